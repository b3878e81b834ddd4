"""Dots of fp64: the unit that Triton picks, and its bits."""

import numpy as np

from gemmproof.reference.dot.triton import triton_dot
from gemmproof.reference.gpus import TARGETS

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128}


def test_doubles_have_the_bits_of_a_chain_in_either_unit():
    by_unit = {target: triton_dot(target, "fp64", **TILE).instruction for target in TARGETS}
    cores = [target for target, instruction in by_unit.items() if instruction == "mma"]
    assert cores == ["sm_80", "sm_90", "sm_100"]
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 64)), rng.standard_normal((64, 3))
    alike = [triton_dot(target, "fp64", **TILE).dot(a, b) for target in ("sm_80", "sm_86")]
    assert np.array_equal(*alike)

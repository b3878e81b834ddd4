"""The mirrors agree with Triton's own interpreter of the kernels, access by access and in bits."""

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from tests.support.interpreter_process import start_interpreter
from tests.witnesses.computed_mirrors import run_grid

from gemmproof.reference.bounds import exact_product
from gemmproof.reference.dot import dot_model
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.mirrored_launch import MirrorLaunch, first_difference, launch_of
from gemmproof.reference.mirrors import MIRRORS

CASES = 40
# it fetches by descriptors, of which the interpreter keeps no offsets: see test_kernels_tma.py
POINTERS = [name for name in MIRRORS if name != "matmul_tma"]


@pytest.fixture(scope="module")
def interpreted():
    """The differences between the mirrors and the interpreter, by kernel."""
    with start_interpreter() as call:
        return {name: call("tests.witnesses.interpreted:report", name, CASES) for name in POINTERS}


@pytest.mark.triton("interpreter")
@pytest.mark.lane("full")
@pytest.mark.parametrize("name", POINTERS)
def test_the_mirror_touches_what_the_interpreter_touches(interpreted, name):
    """Same accesses, offsets, masks and `other` in the same order, then the same bits of c.

    The integers drawn are exact in every format, so both also equal the exact product, and no
    byte around the output changes.
    """
    cases = interpreted[name]["cases"]
    assert [(case, difference) for case, _, difference in cases if difference is not None] == []
    assert len(cases) == CASES
    assert sum(accesses for _, accesses, _ in cases) >= 5 * CASES


@pytest.mark.triton("interpreter")
@pytest.mark.lane("full")
@pytest.mark.parametrize("name", POINTERS)
def test_offsets_past_2_to_the_31_are_exact(interpreted, name):
    """Rows, columns and K steps of narrow views of huge parents, in operands and output."""
    assert interpreted[name]["huge"] == []


def make_launch(name: str, **changes: int) -> MirrorLaunch:
    """Contiguous operands of odd sizes for one mirror."""
    M, N, K = (changes.pop(size, value) for size, value in (("M", 37), ("N", 41), ("K", 29)))
    constants = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16, "GROUP_M": 2, "NUM_SMS": 3}
    launch = launch_of(((M, K), (K, 1)), ((K, N), (N, 1)), ((M, N), (N, 1)), constants)
    return replace(launch, **changes)


@pytest.mark.parametrize("name", MIRRORS)
@pytest.mark.parametrize("in_format", ["fp16", "bf16", "tf32", "fp8e4m3", "fp8e5m2", "int8"])
def test_a_mirror_computes_the_product_in_every_format(name, in_format):
    """Small integers are exact in every format, with and without promotion."""
    launch = make_launch(name, promote=in_format.startswith("fp8"))
    model = dot_model(None, in_format)
    storage = FORMATS[in_format].storage
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (launch.M, launch.K)).astype(storage)
    b = rng.integers(-2, 3, (launch.K, launch.N)).astype(storage)
    c = np.full((launch.M, launch.N), 99, np.int32 if in_format == "int8" else np.float32)
    run_grid(name, launch, {"a": a.ravel(), "b": b.ravel(), "c": c.ravel()}, model.dot)
    exact, _ = exact_product(a, b)
    assert (c == exact).all()


def test_a_mirror_stores_fp8_saturated_and_keeps_the_whole_tile():
    """448 x 448 becomes 448; the tiles handed back hold the masked lanes too."""
    launch = make_launch("matmul", M=1, N=1, K=1)
    operand = np.array([448], ml_dtypes.float8_e4m3fn)
    c = np.zeros(1, ml_dtypes.float8_e4m3fn)
    arrays = {"a": operand, "b": operand, "c": c}
    runs = run_grid("matmul", launch, arrays, dot_model(None, "fp8e4m3").dot)
    assert float(c[0]) == 448.0
    assert runs[0, 0, 0].tiles[0].shape == (16, 32)


@pytest.mark.parametrize("name", MIRRORS)
def test_without_k_a_mirror_only_stores_zeros(name):
    """K = 0: no loads, every element of c written."""
    launch = make_launch(name, K=0)
    c = np.full(launch.M * launch.N, 99.0, np.float32)
    empty = np.zeros(0, np.float32)
    runs = run_grid(name, launch, {"a": empty, "b": empty, "c": c}, dot_model(None, "fp32").dot)
    assert {touch.kind for run in runs.values() for touch in run.touches} == {"store"}
    assert not c.any()


@pytest.mark.parametrize(("promote", "expected"), [(False, 1.0), (True, 1.0 + 2.0**-23)])
def test_promotion_sums_each_block_from_zero(promote, expected):
    """Two terms of half an ulp are lost one by one, but not when their block is summed first."""
    launch = make_launch("matmul", M=1, N=1, K=18, promote=promote)
    a = np.array([1.0] + 15 * [0.0] + 2 * [2.0**-24], np.float32)
    arrays = {"a": a, "b": np.ones(18, np.float32), "c": np.zeros(1, np.float32)}
    run_grid("matmul", launch, arrays, dot_model(None, "fp32").dot)
    assert arrays["c"][0] == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: {"offsets": t.offsets + 1},
            r"offsets of load a by pid .* got \d+, expected \d+",
        ),
        (lambda t: {"mask": None}, r"mask of load a .* got True, expected False"),
        (lambda t: {"other": None}, r"other of load a .* lanes: got None, expected 0\.0"),
        (lambda t: {"pid": (7, 0, 0)}, r"got load a by pid \(7, 0, 0\).*expected load a by pid"),
    ],
)
def test_a_difference_names_the_access_and_the_lane(change, message):
    """Each field of a touch, changed alone, is seen."""
    touches = MIRRORS["matmul"].state(make_launch("matmul", M=3))[0].touches((0, 0, 0))
    assert first_difference(touches, touches) is None
    changed = replace(touches[0], **change(touches[0]))
    difference = first_difference([changed, *touches[1:]], touches)
    assert difference is not None
    assert re.match(f"access 0, {message}", difference)


def test_a_missing_access_is_a_difference():
    """The shorter trace is distinguished from the longer one."""
    touches = MIRRORS["matmul"].state(make_launch("matmul"))[0].touches((0, 0, 0))
    message = "access 4, store c by pid (0, 0, 0), 16x32 lanes: got 4 accesses, expected 5"
    assert first_difference(touches[:-1], touches) == message


def test_a_launch_needs_matching_shapes_and_tile_sizes():
    """One line with what was given."""
    pair = ((2, 2), (2, 1))
    with pytest.raises(ValueError, match=r"launch_of: got a \(2, 2\), b \(2, 2\) and c \(3, 2\)"):
        launch_of(pair, pair, ((3, 2), (2, 1)), {})
    with pytest.raises(ValueError, match=r"launch_of: got \['BLOCK_M'\], expected BLOCK_N BLOCK_K"):
        launch_of(pair, pair, pair, {"BLOCK_M": 16})

"""The texts of faults, each once; the other tests assert on the fields."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.reference.simulator.faults.test_boxes import copied, hint_one_beyond
from tests.reference.simulator.faults.test_copy_engine import shifted
from tests.reference.simulator.faults.test_origins import deciding_kernel
from tests.support.simulator_lanes import launcher
from tests.support.simulator_masks import faults_of, matmul, the

from gemmproof.reference.simulator import run

HALVES = torch.zeros(4, 32).half()
FLOATS = torch.zeros(20, 16)
STEPS = torch.arange(16, dtype=torch.int32)

TEXTS: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "a mask that lacks an axis": (
        lambda: faults_of(matmul(A="M"), "padded"),
        "out_of_bounds",
        "columns 19..31 of a (K=19) are read by 4 programs; the mask tests m only",
        "columns 0..18",
    ),
    "a descriptor of another shape": (
        lambda: copied(32, 16, FLOATS),
        "out_of_bounds",
        "rows 20..31 of a (M=20) are read by 1 program through a tensor descriptor of block"
        " [16, 16] at offsets [16, 0] of shape [32, 16] with strides [16, 1], where a has [20, 16]"
        " with strides [16, 1]",
        "rows 0..19",
    ),
    "a stride off 16 bytes": (
        lambda: copied(20, 18, FLOATS),
        "bad_descriptor",
        "a stride of 72 bytes along axis 0, of shape [20, 16] with strides [18, 1] and block"
        " [16, 16]",
        "a multiple of 16 bytes",
    ),
    "a base off 16 bytes": (
        lambda: copied(20, 16, torch.zeros(321)[1:].view(20, 16)),
        "bad_descriptor",
        "a base 4 bytes past a multiple of 16, of shape [20, 16] with strides [16, 1] and block"
        " [16, 16]",
        "a multiple of 16 bytes",
    ),
    "a block that begins off 16 bytes": (
        lambda: shifted(HALVES, HALVES.clone(), column=1),
        "bad_descriptor",
        "a block that begins 2 bytes into a row, of shape [4, 32] with strides [32, 1] and block"
        " [4, 16]",
        "a multiple of 16 bytes",
    ),
    "a block stored beyond its rows": (
        lambda: shifted(HALVES, torch.zeros(4, 64).half()[:, :20], target_column=16),
        "bad_descriptor",
        "a block stored beyond rows of 40 bytes, of shape [4, 20] with strides [64, 1] and block"
        " [4, 16]",
        "rows of a multiple of 16 bytes, which are stored whole",
    ),
    "a false hint on a pointer": (
        lambda: run(hint_one_beyond, torch.zeros(17)),
        "false_hint",
        "elements 0..15 of c depend on a false hint: tl.multiple_of(16) of a pointer 0 bytes into"
        " a, whose base is 4-byte aligned",
        "a hint that holds",
    ),
    "a row that runs into the next": (
        lambda: faults_of(matmul(C="M")),
        "stored_twice",
        "rows 1..20, columns 0..4 of c stored more than once",
        "one store an element",
    ),
    "a row without a store": (
        lambda: faults_of(matmul(C="short")),
        "never_stored",
        "row 20, columns 0..26 of c never stored",
        "every element of c stored",
    ),
    "a mask without `other`": (
        lambda: faults_of(matmul(A="no other")),
        "undefined_stored",
        "rows 0..20, columns 0..26 of c depend on lanes of a that the load's mask disables, with"
        " no `other`",
        "defined lanes only",
    ),
    "lanes out of bounds": (
        lambda: faults_of(matmul(A="M"), "padded"),
        "undefined_stored",
        "rows 0..20, columns 0..26 of c depend on out-of-bounds lanes of a",
        "defined lanes only",
    ),
    "a branch on an undefined lane": (
        lambda: run(launcher(deciding_kernel, (1,), 10, "a branch"), STEPS),
        "undefined_used",
        "a branch that depends on an undefined lane",
        "defined lanes only",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_a_fault(name: str) -> None:
    produce, kind, got, expected = TEXTS[name]
    fault = the(produce(), kind)
    assert (fault.got, fault.expected) == (got, expected)

"""Accesses beyond an operand: its name, its axis, the line, and what the mask tests."""

import pytest
import torch
from tests.support.simulator_masks import (
    LAYOUTS,
    K,
    M,
    N,
    faults_of,
    kernel,
    lay_out,
    line,
    matmul,
    the,
)

from gemmproof.reference.simulator import run


@pytest.mark.parametrize("layout", [*LAYOUTS, "expanded_rows"])
def test_a_right_kernel_has_no_fault_in_any_layout(layout):
    seen = faults_of(matmul(), layout)
    assert seen.faults == []
    a, b = lay_out(layout, M, K), lay_out(layout, K, N)
    assert (seen.result == a.float() @ b.float()).all()


# the missing term -> the masks, the operand, its axis, the line, both halves of the message
OUT_OF_BOUNDS = {
    "a's K": (
        {"A": "M"}, "a", "K", "tl.load(a_ptrs, mask=rm < M, other=0.0)",
        "columns 19..31 of a (K=19) are read by 4 programs; the mask tests m only",
        "columns 0..18",
    ),
    "a's M": (
        {"A": "K"}, "a", "M", "tl.load(a_ptrs, mask=ak < K, other=0.0)",
        "rows 21..31 of a (M=21) are read by 2 programs; the mask tests k only", "rows 0..20",
    ),
    "b's K": (
        {"B": "N"}, "b", "K", "tl.load(b_ptrs, mask=rn < N, other=0.0)",
        "rows 19..31 of b (K=19) are read by 4 programs; the mask tests n only", "rows 0..18",
    ),
    "b's N": (
        {"B": "K"}, "b", "N", "tl.load(b_ptrs, mask=bk < K, other=0.0)",
        "columns 27..31 of b (N=27) are read by 2 programs; the mask tests k only",
        "columns 0..26",
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("missing", OUT_OF_BOUNDS)
def test_a_missing_term_of_a_loads_mask(missing, layout):
    """Operand, axis, line, the out-of-bounds indices and what the mask does test."""
    masks, operand, axis, text, got, expected = OUT_OF_BOUNDS[missing]
    fault = the(faults_of(matmul(**masks), layout), "out_of_bounds")
    assert (fault.access, fault.operand, fault.axis) == ("load", operand, axis)
    assert fault.where.line == line(kernel, text)
    assert fault.where.file == kernel.fn.__code__.co_filename
    assert fault.expected == expected
    tail = got.split(" are read by ")
    head = tail[0].split(" of ")[0]
    # where rows or columns follow each other, only the lanes past the operand's end leave it
    assert fault.got.split(" of ")[0] == head
    assert fault.got.endswith(tail[1].split("; ")[1])
    if layout in ("padded", "sliced"):
        assert fault.got == got


def test_a_missing_mask_is_reported():
    """Both axes of a, one fault each, and no mask."""
    seen = faults_of(matmul(A="-"), "padded")
    faults = {f.axis: f for f in seen.faults if f.kind == "out_of_bounds"}
    assert set(faults) == {"M", "K"}
    for fault in faults.values():
        assert fault.operand == "a"
        assert fault.got.endswith("; there is no mask")
        assert fault.where.line == line(kernel, "tl.load(a_ptrs)")


@pytest.mark.parametrize(
    ("store", "axis", "text", "got"),
    [
        ("M", "N", "tl.store(c_ptrs, acc, mask=rm < M)", "columns 27..31 of c (N=27)"),
        ("N", "M", "tl.store(c_ptrs, acc, mask=rn < N)", "rows 21..31 of c (M=21)"),
        ("<=", "N", "mask=(rm < M) & (rn <= N)", "column 27 of c (N=27)"),
    ],
)
def test_a_store_beyond_a_padded_output(store, axis, text, got):
    """The gap between two rows of the caller's output is not the kernel's."""
    out = lay_out("padded", M, N, torch.float32)
    a, b = lay_out("row", M, K), lay_out("row", K, N)
    seen = run(matmul(C=store, out=out), a, b, operands={"a": a, "b": b, "c": out})
    fault = the(seen, "out_of_bounds")
    assert (fault.access, fault.operand, fault.axis) == ("store", "c", axis)
    assert fault.where.line == line(kernel, text)
    assert fault.got.startswith(got)
    assert (out._base[1 : M + 1, N + 3 :] == 99).all()  # and nothing was written there
    assert (out._base[M + 1 :] == 99).all()

"""The allowed starts of the copy engine's blocks, and ends of the rows that it stores to."""

import pytest
import torch
import triton
import triton.language as tl
from tests.support.interpreter_process import start_interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmproof.reference.simulator import run


@triton.jit
def shift(x, y, column, target_column, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    block = tl.reshape(x.load([0, column]), (ROWS, COLUMNS))
    y.store([0, target_column], block)


def shifted(x, y, column=0, target_column=0, target=None):
    def wrapper(x, y):
        blocks = [TensorDescriptor.from_tensor(t, [4, 16]) for t in (x, y)]
        shift[(1,)](*blocks, column, target_column, 4, 16)
        return y

    return run(wrapper, x, y, target=target)


@pytest.mark.parametrize("column", [-8, -2, 0, 1, 4, 8, 12, 30, 100])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32])
def test_a_block_begins_a_multiple_of_16_bytes_into_a_row(column, dtype):
    """Even outside of it: an H200 ends the kernel with an illegal instruction."""
    x, y = torch.zeros(4, 32, dtype=dtype), torch.zeros(4, 32, dtype=dtype)
    nbytes = column * x.element_size()
    for at in ({"column": column}, {"target_column": column}):
        seen = shifted(x, y, **at)
        assert [f.kind for f in seen.faults] == ["bad_descriptor"] * (nbytes % 16 != 0)
        if seen.faults:
            (fault,) = seen.faults
            assert fault.operand == ("a" if "column" in at else "b")
            assert fault.got.startswith(f"a block that begins {nbytes} bytes")
            assert fault.expected == "a multiple of 16 bytes"


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_without_a_copy_engine_it_begins_anywhere(target):
    x, y = torch.zeros(4, 32).half(), torch.zeros(4, 32).half()
    assert shifted(x, y, column=1, target=target).faults == []


def load_at(column):
    """Any load, for the interpreter."""
    x, y = torch.zeros(4, 32).half(), torch.zeros(4, 32).half()
    blocks = [TensorDescriptor.from_tensor(t, [4, 16]) for t in (x, y)]
    shift[(1,)](*blocks, column, 0, 4, 16)


@pytest.mark.lane("full")
def test_tritons_interpreter_asks_for_the_same():
    with start_interpreter() as call:
        call("tests.reference.simulator.faults.test_copy_engine:load_at", 8)
        with pytest.raises(AssertionError, match="block offset start must be 16-byte aligned"):
            call("tests.reference.simulator.faults.test_copy_engine:load_at", 2)


@pytest.mark.parametrize(
    ("columns", "dtype", "target", "wrong"),
    [
        (20, torch.float16, None, True),
        (20, torch.float16, "sm_90", True),
        (20, torch.float16, "sm_80", False),  # without a copy engine pointers are used
        (24, torch.float16, None, False),
        (20, torch.float32, None, False),
        (20, torch.int8, None, True),
        (9, torch.float16, None, False),  # the block does not reach the end
    ],
)
def test_rows_that_are_stored_to_their_end_end_at_16_bytes(columns, dtype, target, wrong):
    """Public: a store by an H100 fills the last 16 bytes, whatever is behind the row."""
    x, memory = torch.zeros(4, 32, dtype=dtype), torch.zeros(4, 64, dtype=dtype)
    at = 0 if columns == 9 else 16
    y = memory[:, : 32 if columns == 9 else columns]
    seen = shifted(x, y, target_column=at, target=target)
    assert [f.kind for f in seen.faults] == ["bad_descriptor"] * wrong
    if wrong:
        nbytes = columns * x.element_size()
        assert seen.faults[0].operand == "b"
        assert seen.faults[0].expected.endswith("stored whole")
        assert f"rows of {nbytes} bytes" in seen.faults[0].got


def test_what_is_behind_rows_of_a_wrappers_own_memory_may_be_filled():
    def wrapper(x):
        y = torch.empty(4, 64, dtype=x.dtype)[:, :4]
        blocks = [TensorDescriptor.from_tensor(t, [4, 16]) for t in (x, y)]
        shift[(1,)](*blocks, 0, 0, 4, 16)
        return y

    assert run(wrapper, torch.zeros(4, 32).half()).faults == []


@pytest.mark.parametrize(("target", "expected"), [("sm_90", 1.0), ("sm_80", 7.0)])
def test_what_the_engine_stores_behind_rows_of_its_own_memory_is_there(target, expected):
    """Other columns of the same result, stored before."""

    def wrapper(x):
        y = torch.full((4, 64), 7, dtype=x.dtype, device=x.device)
        blocks = [TensorDescriptor.from_tensor(t, [4, 16]) for t in (x, y[:, :4])]
        shift[(1,)](*blocks, 0, 0, 4, 16)
        return y

    seen = run(wrapper, torch.ones(4, 32).half(), target=target)
    assert [f for f in seen.faults if f.kind != "never_stored"] == []
    assert (seen.result[:, :4] == 1).all()
    assert (seen.result[:, 4:8] == expected).all()
    assert (seen.result[:, 8:] == 7).all()

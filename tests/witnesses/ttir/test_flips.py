"""tl.flip is read as one operation, and no other function of exclusive ors is."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import launcher, result_of, run

from gemmproof.reference.simulator import launch
from gemmproof.reference.ttir import FLIP, read_module

SHAPES = {(16,): 0, (4, 8): 0, (8, 4): 1, (2, 1, 16): 2, (1, 4, 2): 0}
TYPES = (torch.float32, torch.float16, torch.int32, torch.int8, torch.int64)


@pytest.fixture
def count_flips(monkeypatch):
    """Return the number of flips that were read."""
    counts = [0]

    def read(text):
        functions = read_module(text)
        ops = (op for f in functions.values() for block in f.body for op in block.ops)
        counts[0] += sum(op.name == FLIP for op in ops)
        return functions

    monkeypatch.setattr(launch, "read_module", read)
    return lambda: counts[0]


@triton.jit
def flip_kernel(x_ptr, o_ptr, SHAPE: tl.constexpr, AXIS: tl.constexpr, SIZE: tl.constexpr):
    lane = tl.arange(0, SIZE)
    x = tl.reshape(tl.load(x_ptr + lane), SHAPE)
    tl.store(o_ptr + lane, tl.reshape(tl.flip(x, AXIS), (SIZE,)))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("shape", "axis"), SHAPES.items(), ids=str)
def test_a_block_is_reversed_along_an_axis(shape, axis, dtype, count_flips):
    size = int(np.prod(shape))
    x = torch.arange(size).to(dtype)
    how = {"tensors": [x], "shape": (size,), "make": lambda *n, **_: torch.empty(*n, dtype=dtype)}
    got = result_of(flip_kernel, (1,), shape, axis, size, **how)
    assert count_flips() == (shape[axis] > 1)
    assert (got == np.flip(x.numpy().reshape(shape), axis).ravel()).all()


@triton.jit
def turn(x, STEPS: tl.constexpr, WHICH: tl.constexpr):
    """Reverse a block of 8 lanes, but for what is left out."""
    y = tl.reshape(x, (2, 2, 2))
    for i in tl.static_range(STEPS):
        if WHICH == "sum":
            y = y ^ tl.sum(y, i, keep_dims=True)
        elif WHICH == "lane":
            y = y ^ tl.xor_sum(y, 0, keep_dims=True)
        else:
            y = y ^ tl.xor_sum(y, i, keep_dims=True)
    return tl.reshape(y, (8,))


@triton.jit
def turn_kernel(x_ptr, o_ptr, STEPS: tl.constexpr, WHICH: tl.constexpr):
    lane = tl.arange(0, 8)
    tl.store(o_ptr + lane, turn(tl.load(x_ptr + lane), STEPS, WHICH))


@pytest.mark.parametrize(
    ("steps", "which", "expected", "flips"),
    [
        (3, "", [17, 16, 15, 14, 13, 12, 11, 10], 1),
        (2, "", [16, 17, 14, 15, 12, 13, 10, 11], 0),
        (3, "lane", [14, 15, 16, 17, 10, 11, 12, 13], 0),
        (1, "sum", [10 ^ 24, 11 ^ 26, 12 ^ 28, 13 ^ 30, 14 ^ 24, 15 ^ 26, 16 ^ 28, 17 ^ 30], 0),
    ],
)
def test_what_moves_lanes_in_another_way_is_no_flip(steps, which, expected, flips, count_flips):
    x = torch.arange(10, 18, dtype=torch.int32)
    how = {"tensors": [x], "shape": (8,), "make": torch.empty}
    got = result_of(turn_kernel, (1,), steps, which, **how)
    assert (got.tolist(), count_flips()) == (expected, flips)


@triton.jit
def turn_bits(x):
    """Return the bits of a block of 8 numbers in reverse, not the numbers."""
    y = tl.reshape(x.to(tl.int32, bitcast=True), (2, 2, 2))
    for i in tl.static_range(3):
        y = y ^ tl.xor_sum(y, i, keep_dims=True)
    return tl.reshape(y, (8,))


@triton.jit
def bits_kernel(x_ptr, o_ptr):
    lane = tl.arange(0, 8)
    tl.store(o_ptr + lane, turn_bits(tl.load(x_ptr + lane)))


def test_a_flip_keeps_the_type(count_flips):
    x = torch.arange(8, dtype=torch.float32)
    how = {"tensors": [x], "shape": (8,), "make": torch.empty}
    got = result_of(bits_kernel, (1,), **how)
    assert count_flips() == 0
    assert got.tolist() == x.view(torch.int32).tolist()[::-1]


@triton.jit
def partly_kernel(x_ptr, o_ptr, N):
    lane = tl.arange(0, 8)
    x = tl.load(x_ptr + lane, mask=lane < N)
    tl.store(o_ptr + lane, tl.flip(tl.flip(x, 0), 0), mask=lane < N)


def test_a_flip_moves_undefined_lanes_alone():
    """As on a GPU: x ^ (x ^ y) is y whatever the bits of x."""
    x = torch.arange(5, dtype=torch.float32)
    seen = run(launcher(partly_kernel, (1,), 5, shape=(5,), make=torch.empty), x)
    assert seen.faults == []
    assert seen.result.tolist() == x.tolist()


def test_a_function_that_calls_itself_is_no_flip():
    text = """
    module {
      tt.func private @f(%x: tensor<4xi32>) -> tensor<4xi32> {
        %a = tt.call @f(%x) : (tensor<4xi32>) -> tensor<4xi32>
        %b = arith.xori %a, %x : tensor<4xi32>
        tt.return %b : tensor<4xi32>
      }
    }
    """
    assert next(op.name for op in read_module(text)["f"].body[0].ops) == "tt.call"

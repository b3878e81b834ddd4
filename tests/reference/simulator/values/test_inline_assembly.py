"""Inline assembly whose operands must be constants: constraint n."""

import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.simulation import KernelError
from gemmproof.reference.simulator import run


@triton.jit
def halves_kernel(x_ptr, o_ptr, LUT: tl.constexpr, S: tl.constexpr):
    """Nibbles of words as halves above 1024, as kernels of packed weights make them."""
    i = tl.arange(0, S)
    x = tl.load(x_ptr + i)
    text: tl.constexpr = "lop3.b32 $0, $1, $2, $3, $4;"
    x = tl.inline_asm_elementwise(
        text, "=r,r,n,n,n", [x, 0x000F000F, 0x64006400, LUT], tl.int32, True, 1
    )
    tl.store(o_ptr + i, x)


@triton.jit
def shifted_kernel(x_ptr, o_ptr, PACK: tl.constexpr, S: tl.constexpr):
    i = tl.arange(0, S)
    x = tl.load(x_ptr + i)
    text: tl.constexpr = (
        "shl.b32 $0, $1, $2;" if PACK == 1 else "shl.b32 $0, $2, $4; shl.b32 $1, $3, $5;"
    )
    constraints: tl.constexpr = "=r,r,n" if PACK == 1 else "=r,=r,r,r,n,n"
    x = tl.inline_asm_elementwise(text, constraints, [x, 3], tl.int32, True, PACK)
    tl.store(o_ptr + i, x)


@triton.jit
def varying_kernel(x_ptr, o_ptr, S: tl.constexpr):
    i = tl.arange(0, S)
    text: tl.constexpr = "shl.b32 $0, $1, $2;"
    tl.store(o_ptr + i, tl.inline_asm_elementwise(text, "=r,r,n", [i, i], tl.int32, True, 1))


def launch(kernel, x, *more):
    o = torch.empty_like(x)
    kernel[(1,)](x, o, *more, S=16)
    return o


X = torch.arange(16, dtype=torch.int32) * 0x01234567


def test_constants_are_written_as_literals():
    seen = run(lambda x: launch(halves_kernel, x, 0xEA), X)
    assert seen.faults == []
    assert torch.equal(seen.result, (X & 0x000F000F) | 0x64006400)


@pytest.mark.parametrize("pack", [1, 2])
def test_each_register_of_a_pack_has_its_literal(pack):
    seen = run(lambda x: launch(shifted_kernel, x, pack), X)
    assert torch.equal(seen.result, X << 3)


def test_a_value_that_varies_is_the_kernels_fault():
    with pytest.raises(KernelError, match="constraint n needs a constant operand"):
        run(lambda x: launch(varying_kernel, x), X)

"""Decisions at compile time: strings, types, functions, the integer 1."""

import pytest
import triton
import triton.language as tl
from tests.support.simulator_lanes import launcher, result_of

from gemmproof.reference.simulation import KernelError
from gemmproof.reference.simulator import run

GLOBAL = tl.constexpr(5)


@triton.constexpr_function
def log2(n):
    return max(k for k in range(40) if 2**k <= n)


@triton.jit
def double(x):
    return 2 * x


@triton.jit
def square(x):
    return x * x


@triton.jit
def apply(x, F: tl.constexpr):
    return F(x)


@triton.jit
def constants(o, n, TEXT: tl.constexpr, FLAG: tl.constexpr, TYPE: tl.constexpr, F: tl.constexpr):
    half: tl.constexpr = 32 // 2
    i = tl.arange(0, half)
    x = i + GLOBAL
    if TEXT == "double":
        x = double(x)
    elif TEXT == "none":
        x = x
    if FLAG is not None and FLAG > 2:
        x += FLAG
    if not FLAG:
        x -= 1
    x += log2(half)
    x = x.to(TYPE).to(tl.int32)
    tl.static_assert(half == 16, "halves")
    tl.store(o + i, apply(x, F))


@pytest.mark.parametrize(
    ("text", "flag", "dtype", "function", "expected"),
    [
        ("double", 3, tl.int32, double, lambda i: 2 * (2 * (i + 5) + 3 + 4)),
        ("none", None, tl.int8, square, lambda i: (i + 5 - 1 + 4) ** 2),
        ("other", 1, tl.float16, double, lambda i: 2 * (i + 5 + 4)),
    ],
)
def test_constants_decide_when_the_kernel_is_compiled(text, flag, dtype, function, expected):
    """Strings, None, dtypes, functions, global constants and constexpr functions."""
    got = result_of(constants, (1,), 9, text, flag, dtype, function)
    assert got[:16].tolist() == [expected(i) for i in range(16)]


def test_an_integer_argument_of_one_is_a_constant():
    """Triton specialises 1, so that it may be a shape or a static range's bound."""

    @triton.jit
    def ones(o, n, m):
        x = tl.zeros((16,), tl.int32)
        for _ in tl.static_range(n):
            x += 1
        tl.store(o + tl.arange(0, 16), x + m)

    assert result_of(ones, (1,), 1, 7)[:16].tolist() == [8] * 16
    with pytest.raises(KernelError):
        run(launcher(ones, (1,), 2, 7))

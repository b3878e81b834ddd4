"""tl.dot with every argument, and what it refuses."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.simulator import KernelError, run


@triton.jit
def dot_kernel(
    a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, F: tl.constexpr
):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], F(a, b))


@triton.jit
def dot_plain(a, b):
    return tl.dot(a, b)


@triton.jit
def dot_onto(a, b):
    acc = tl.full((a.shape[0], b.shape[1]), 5, tl.float32)
    return tl.dot(a, b, acc)


@triton.jit
def dot_every_word(a, b):
    acc = tl.zeros((a.shape[0], b.shape[1]), tl.float32)
    return tl.dot(input=a, other=b, acc=acc, input_precision="ieee", out_dtype=tl.float32)


@triton.jit
def dot_old_words(a, b):
    return tl.dot(a, b, allow_tf32=False, max_num_imprecise_acc=0)


@triton.jit
def dot_half(a, b):
    acc = tl.zeros((a.shape[0], b.shape[1]), tl.float16)
    return tl.dot(a, b, acc, out_dtype=tl.float16)


@triton.jit
def dot_whole(a, b):
    acc = tl.full((a.shape[0], b.shape[1]), 7, tl.int32)
    return tl.dot(a, b, acc, out_dtype=tl.int32)


@triton.jit
def dot_whole_of_type(a, b):
    return tl.dot(a, b, out_dtype=tl.int32)


@triton.jit
def dot_transposed(a, b):
    return tl.trans(tl.dot(tl.trans(b), tl.trans(a)))


@triton.jit
def dot_bad_acc(a, b):
    return tl.dot(a, b, tl.zeros((a.shape[0], b.shape[1]), tl.int32))


@triton.jit
def dot_bf16_out(a, b):
    return tl.dot(a, b, out_dtype=tl.bfloat16)


@triton.jit
def dot_inner(a, b):
    return tl.dot(a, a)


def dot_of(function, a, b, out):
    def wrapper(a, b):
        c = torch.empty((a.shape[0], b.shape[1]), dtype=out)
        dot_kernel[(1,)](a, b, c, a.shape[0], b.shape[1], a.shape[1], function)
        return c

    seen = run(wrapper, a, b)
    assert seen.faults == []
    assert seen.launches[0].tiles
    return seen.result


def integers(M, N, dtype, seed):
    x = torch.from_numpy(np.random.default_rng(seed).integers(-3, 4, (M, N)).astype(np.float32))
    return x.to(dtype)


FORMATS = (torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("function", [dot_plain, dot_every_word, dot_old_words, dot_transposed])
def test_dot_of_every_format(dtype, function):
    """Small integers, whose product is exact even in tf32; every keyword of tl.dot."""
    a, b = integers(16, 32, dtype, 1), integers(32, 16, dtype, 2)
    assert (dot_of(function, a, b, torch.float32) == a.float() @ b.float()).all()


def test_dot_adds_onto_the_accumulator():
    a, b = integers(16, 16, torch.float16, 1), integers(16, 32, torch.float16, 2)
    assert (dot_of(dot_onto, a, b, torch.float32) == a.float() @ b.float() + 5).all()


def test_dot_of_mixed_fp8():
    a = integers(16, 32, torch.float8_e4m3fn, 1)
    b = integers(32, 16, torch.float8_e5m2, 2)
    assert (dot_of(dot_plain, a, b, torch.float32) == a.float() @ b.float()).all()


@pytest.mark.parametrize("function", [dot_whole, dot_whole_of_type, dot_plain])
def test_dot_of_int8_is_exact_in_int32(function):
    rng = np.random.default_rng(3)
    a = torch.from_numpy(rng.integers(-128, 128, (16, 64)).astype(np.int8))
    b = torch.from_numpy(rng.integers(-128, 128, (64, 16)).astype(np.int8))
    expected = a.long() @ b.long() + (7 if function is dot_whole else 0)
    assert (dot_of(function, a, b, torch.int32) == expected).all()


def test_dot_with_an_fp16_accumulator_rounds_in_fp16():
    """4096 ones: fp16 stops at 2048, fp32 does not."""
    a = torch.full((16, 512), 4.0).half()
    b = torch.full((512, 16), 2.0).half()
    b[0] = 0.25
    half = dot_of(dot_half, a, b, torch.float32)
    whole = dot_of(dot_plain, a, b, torch.float32)
    assert (whole == 8 * 511 + 1).all()
    assert (half.half().float() == half).all()
    assert (half != whole).all()


def test_what_dot_refuses():
    """Another dtype, another inner size, an accumulator of another type, a bf16 result."""
    a, b = integers(16, 32, torch.float16, 1), integers(32, 64, torch.float16, 2)
    for function, left, right in (
        (dot_plain, a, b.float()),
        (dot_inner, a, b),
        (dot_bad_acc, a, b),
        (dot_bf16_out, a, b),
        (dot_plain, a.double().to(torch.int32), b.to(torch.int32)),
    ):
        with pytest.raises(KernelError):
            dot_of(function, left, right, torch.float32)


@triton.jit
def dot3_kernel(a_ptr, b_ptr, c_ptr, B: tl.constexpr, S: tl.constexpr):
    i, j, k = tl.arange(0, B), tl.arange(0, S), tl.arange(0, S)
    at = i[:, None, None] * S * S + j[None, :, None] * S + k[None, None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


def test_dot_of_rank_three():
    def wrapper(a, b):
        c = torch.empty(a.shape, dtype=torch.float32)
        dot3_kernel[(1,)](a, b, c, *a.shape[:2])
        return c

    a = integers(64, 16, torch.float16, 1).reshape(4, 16, 16)
    b = integers(64, 16, torch.float16, 2).reshape(4, 16, 16)
    seen = run(wrapper, a, b)
    assert seen.faults == []
    assert (seen.result == a.float() @ b.float()).all()


@triton.jit
def constant_sum_kernel(c_ptr):
    i = tl.arange(0, 16)
    ones = tl.full((16, 16), 1, tl.float16)
    total = tl.full((16, 16), 5, tl.float32) + tl.dot(ones, ones)
    tl.store(c_ptr + i[:, None] * 16 + i[None, :], total)


@pytest.mark.parametrize("target", [None, "sm_80", "sm_90"])
def test_a_dot_of_constants_onto_constants_waits_for_the_launch(target):
    """The sum is folded into the dot for a target: the dot is no constant for that."""

    def wrapper(c):
        constant_sum_kernel[(1,)](c)
        return c

    seen = run(wrapper, torch.empty(16, 16), target=target)
    assert seen.faults == []
    assert (seen.result == 21).all()

"""A GEMM kernel whose masks can be omitted, and operands in every layout."""

import inspect

import torch
import triton
import triton.language as tl
from tests.support.simulator_cases import fill, make_view

from gemmproof.reference.simulator import run

M, N, K = 21, 27, 19  # no two alike, none a multiple of a tile


@triton.jit
def kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, S: tl.constexpr, ONTO: tl.constexpr = False,
):  # fmt: skip
    """A, B and C say which axes the mask of each operand tests; "-" is no mask. ONTO adds to c."""
    rm = (tl.program_id(0) * S + tl.arange(0, S))[:, None]
    rn = (tl.program_id(1) * S + tl.arange(0, S))[None, :]
    acc = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        ak = (k + tl.arange(0, S))[None, :]
        bk = (k + tl.arange(0, S))[:, None]
        a_ptrs = a_ptr + rm * sam + ak * sak
        if A == "MK":
            a = tl.load(a_ptrs, mask=(rm < M) & (ak < K), other=0.0)
        elif A == "M":
            a = tl.load(a_ptrs, mask=rm < M, other=0.0)
        elif A == "K":
            a = tl.load(a_ptrs, mask=ak < K, other=0.0)
        elif A == "no other":
            a = tl.load(a_ptrs, mask=(rm < M) & (ak < K))
        else:
            a = tl.load(a_ptrs)
        b_ptrs = b_ptr + bk * sbk + rn * sbn
        if B == "KN":
            b = tl.load(b_ptrs, mask=(bk < K) & (rn < N), other=0.0)
        elif B == "K":
            b = tl.load(b_ptrs, mask=bk < K, other=0.0)
        else:
            b = tl.load(b_ptrs, mask=rn < N, other=0.0)
        acc += tl.dot(a, b)
    c_ptrs = c_ptr + rm * scm + rn * scn
    if ONTO:
        acc += tl.load(c_ptrs, mask=(rm < M) & (rn < N), other=0.0)
    if C == "MN":
        tl.store(c_ptrs, acc, mask=(rm < M) & (rn < N))
    elif C == "M":
        tl.store(c_ptrs, acc, mask=rm < M)
    elif C == "N":
        tl.store(c_ptrs, acc, mask=rn < N)
    elif C == "short":
        tl.store(c_ptrs, acc, mask=(rm < M - 1) & (rn < N))
    elif C == "-":
        tl.store(c_ptrs, acc)
    else:
        tl.store(c_ptrs, acc, mask=(rm < M) & (rn <= N))


def line(function, text):
    """The only line of a kernel that holds `text`."""
    lines, first = inspect.getsourcelines(getattr(function, "fn", function))
    numbers = [first + i for i, x in enumerate(lines) if text in x]
    assert len(numbers) == 1, text
    return numbers[0]


def into(a, b, c, A="MK", B="KN", C="MN", S=16, ONTO=False):
    """c = a @ b, or c += a @ b."""
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, S), triton.cdiv(N, S))
    strides = (*a.stride(), *b.stride(), *c.stride())
    kernel[grid](a, b, c, M, N, K, *strides, A=A, B=B, C=C, S=S, ONTO=ONTO)
    return c


def matmul(out=None, **masks):
    """A wrapper that multiplies into `out`, or into new memory."""

    def wrapper(a, b):
        shape = (a.shape[0], b.shape[1])
        c = torch.empty(shape, device=a.device) if out is None else out
        return into(a, b, c, **masks)

    return wrapper


def lay_out(layout, rows, columns, dtype=torch.float16):
    """Small integers in the named layout."""
    return fill(make_view(layout, rows, columns, dtype), rows)


LAYOUTS = ("row", "padded", "sliced", "column", "misaligned")


def faults_of(wrapper, layout="row", **how):
    a, b = lay_out(layout, M, K), lay_out(layout, K, N)
    return run(wrapper, a, b, **how)


def the(seen, kind, operand=None):
    """The only fault of a kind (and operand)."""
    matches = [f for f in seen.faults if f.kind == kind and operand in (None, f.operand)]
    assert len(matches) == 1, seen.faults
    return matches[0]

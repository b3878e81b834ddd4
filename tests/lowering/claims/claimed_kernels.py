"""Kernels for a contract's claims on compiled code: right ones, and some with one fault each."""

import torch
import triton
import triton.language as tl


@triton.jit
def multiply(a, b, acc, PRECISION: tl.constexpr):
    return tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=acc.dtype)


@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    stride_cp, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
    PARTS: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    """HOW: "dot", "sum" without one, "print" in addition, "both": half of it in full fp32, or
    "rest": that half by a sum of products."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None].to(tl.int64)
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :].to(tl.int64)
    acc = tl.zeros((BM, BN), dtype=tl.int32 if a_ptr.dtype.element_ty == tl.int8 else tl.float32)
    for start in range(tl.program_id(2) * BK, K, BK * PARTS):
        k = start + tl.arange(0, BK).to(tl.int64)
        in_a, in_b = (m < M) & (k[None, :] < K), (k[:, None] < K) & (n < N)
        a = tl.load(a_ptr + m * stride_am + k[None, :] * stride_ak, mask=in_a, other=0.0)
        b = tl.load(b_ptr + k[:, None] * stride_bk + n * stride_bn, mask=in_b, other=0.0)
        if HOW == "sum":  # a row of a and a column of b: Triton turns whole tiles into a dot
            acc += tl.sum(tl.trans(a).to(tl.float32) * b.to(tl.float32))
        elif HOW == "both" or HOW == "rest":
            lower = k[:, None] % 2 == 0
            acc = multiply(a, tl.where(lower, b, 0.0).to(b.dtype), acc, PRECISION)
            rest = tl.where(lower, 0.0, b).to(tl.float32)
            if HOW == "both":
                acc = multiply(a.to(tl.float32), rest, acc, "ieee")
            else:  # Triton turns it into a dot that the source does not have
                acc += tl.sum(a.to(tl.float32)[:, :, None] * rest[None, :, :], 1)
        else:
            acc = multiply(a, b, acc, PRECISION)
    if HOW == "print":
        tl.device_print("acc", acc)
    c_ptrs = c_ptr + tl.program_id(2).to(tl.int64) * stride_cp + m * stride_cm + n * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


@triton.jit
def add_kernel(part_ptr, c_ptr, SIZE, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Add the parts that the other launch stored, without a dot."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(PARTS):
        acc += tl.load(part_ptr + part * SIZE + i, mask=i < SIZE, other=0.0)
    tl.store(c_ptr + i, acc.to(c_ptr.dtype.element_ty), mask=i < SIZE)


def launch(a, b, tile=(16, 16, 16), precision="ieee", how="dot", parts=1, kernel=None, **options):
    (m, k), n = a.shape, b.shape[1]
    fp32 = parts > 1 or a.dtype.itemsize == 1
    out = torch.int32 if a.dtype == torch.int8 else torch.float32 if fp32 else a.dtype
    c = torch.empty(parts, m, n, device=a.device, dtype=out)
    strides = (*a.stride(), *b.stride(), n, 1, m * n)
    (kernel or tile_kernel)[(triton.cdiv(m, tile[0]), triton.cdiv(n, tile[1]), parts)](
        a, b, c, m, n, k, *strides, *tile, precision, parts, how, **options
    )
    return c


def right(a, b):
    return launch(a, b)[0]


def in_thirds(a, b):
    """Compute fp32 by three products of tf32."""
    return launch(a, b, precision="tf32x3")[0]


@triton.jit
def assembly_kernel(a_ptr, b_ptr, c_ptr, N, K, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + tl.program_id(0).to(tl.int64) * K + k, mask=k < K, other=0.0)
    b = tl.load(b_ptr + k.to(tl.int64) * N + tl.program_id(1), mask=k < K, other=0.0)
    bits = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [a.to(tl.float32).to(tl.int32, bitcast=True)],
        dtype=tl.int32, is_pure=True, pack=1,
    )  # fmt: skip
    c = bits.to(tl.float32, bitcast=True) * b.to(tl.float32)
    c_ptr += tl.program_id(0).to(tl.int64) * N + tl.program_id(1)
    tl.store(c_ptr, tl.sum(c).to(c_ptr.dtype.element_ty))


def in_ptx(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    assembly_kernel[(m, n)](a, b, c, n, k, 64)
    return c


def of_bytes(a, b):
    return launch(a, b, tile=(16, 16, 32))[0]


def few_rows(a, b):
    return launch(a, b, tile=(1, 16, 32))[0]


def summed_by_another_launch(a, b):
    (m, _), n = a.shape, b.shape[1]
    parts = launch(a, b, parts=2)
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    add_kernel[(triton.cdiv(m * n, 64),)](parts, c, m * n, 2, 64)
    return c


def printing(a, b):
    """Print: the called function has a stack, and the printed values are on the kernel's stack."""
    return launch(a, b, how="print")[0]


def in_full(a, b):
    return right(a, b)


def without_a_dot(a, b):
    return launch(a, b, tile=(1, 1, 16), how="sum")[0]


def half_of_it_in_full(a, b):
    """Call one line of a helper for a dot on the tensor cores, and for one that is not on them."""
    return launch(a, b, how="both")[0]


def half_of_it_by_sums(a, b):
    return launch(a, b, how="rest")[0]


def too_few_registers(a, b):
    return launch(a, b, tile=(32, 64, 32), maxnreg=32)[0]


def too_many_warps(a, b):
    """Launch too many warps: on AMD's server GPUs they have 64 threads each."""
    return launch(a, b, num_warps=32)[0]


def too_many_stages(a, b):
    return launch(a, b, tile=(16, 64, 128), num_stages=7)[0]


@triton.autotune(
    [triton.Config({"BM": n, "BN": n, "HOW": how}, num_warps=2) for n, how in
     ((16, "dot"), (1, "sum"))], key=["K"],
)  # fmt: skip
@triton.heuristics({"BK": lambda args: 16})
@triton.jit
def tuned_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    tile_kernel(
        a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, N, 1, 0,
        BM, BN, BK, "ieee", 1, HOW,
    )  # fmt: skip


def one_configuration_without_a_dot(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    tuned_kernel[lambda x: (triton.cdiv(m, x["BM"]), triton.cdiv(n, x["BN"]), 1)](
        a, b, c, m, n, k, *a.stride(), *b.stride()
    )
    return c


def few_rows_without_a_dot(a, b):
    return without_a_dot(a, b) if a.shape[0] < 3 else right(a, b)


def vectors_without_a_dot(a, b):
    return without_a_dot(a, b) if 1 in (a.shape[0], b.shape[1]) else right(a, b)


def one_product_without_a_dot(a, b):
    """Drop the dot if K < 2: K = 1 has no sum, and K = 0 nothing to multiply."""
    return without_a_dot(a, b) if a.shape[1] < 2 else right(a, b)


def refuses_two_rows(a, b):
    if a.shape[0] == 2:
        raise NotImplementedError("not yet")
    return right(a, b)


def deep_enough_for_fp8(a, b):
    return launch(a, b, (16, 16, 32))[0]

"""Small kernels whose compiled code is tested."""

import torch
import triton
import triton.language as tl


@triton.jit
def multiply(a, b, acc, PRECISION: tl.constexpr, EVERY: tl.constexpr):
    """Add one dot to an accumulator: on the tensor core, or each block separately."""
    if EVERY:
        return acc + tl.dot(a, b, max_num_imprecise_acc=EVERY)
    return tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=acc.dtype)


@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr,
    PRECISION: tl.constexpr, EVERY: tl.constexpr, WHOLE: tl.constexpr = False,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        in_a = (m[:, None] < M) & ((k[None, :] < K) | WHOLE)
        in_b = ((k[:, None] < K) | WHOLE) & (n[None, :] < N)
        a = tl.load(a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak, mask=in_a, other=0.0)
        b = tl.load(b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn, mask=in_b, other=0.0)
        acc = multiply(a, b, acc, PRECISION, EVERY)
    c_ptrs = c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_ptrs, acc, mask=(m[:, None] < M) & (n[None, :] < N))


def launch(a, b, kernel=tile_kernel, tile=(64, 64, 32), precision="ieee", every=0, **options):
    """Compute c of fp32, or of int32, by one kernel."""
    (m, k), n = a.shape, b.shape[1]
    is_integer = a.dtype == torch.int8
    c = torch.empty(m, n, device=a.device, dtype=torch.int32 if is_integer else torch.float32)
    acc = tl.int32 if is_integer else tl.float32
    grid = (triton.cdiv(m, tile[0]), triton.cdiv(n, tile[1]))
    strides = (*a.stride(), *b.stride(), *c.stride())
    kernel[grid](a, b, c, m, n, k, *strides, *tile, acc, precision, every, **options)
    return c


@triton.jit
def batched_kernel(a_ptr, b_ptr, c_ptr, ACC: tl.constexpr, PRECISION: tl.constexpr):
    """Compute two products of 32 x 64 x 32 in a block."""
    batch, side = tl.arange(0, 2)[:, None, None], tl.arange(0, 32)
    row, column = side[None, :, None], side[None, None, :]
    acc = tl.zeros((2, 32, 32), dtype=ACC)
    for start in range(0, 64, 32):
        a = tl.load(a_ptr + batch * 2048 + row * 64 + start + column)
        b = tl.load(b_ptr + batch * 2048 + (start + row) * 32 + column)
        acc = multiply(a, b, acc, PRECISION, 0)
    tl.store(c_ptr + batch * 1024 + row * 32 + column, acc)


def batched(a, b, precision="ieee"):
    """Compute c of two products, of operands with 4096 elements each."""
    is_integer = a.dtype == torch.int8
    c = torch.empty(2, 32, 32, device=a.device, dtype=torch.int32 if is_integer else torch.float32)
    batched_kernel[(1,)](a, b, c, tl.int32 if is_integer else tl.float32, precision)
    return c


def right(a, b):
    return launch(a, b)


def cut(a, b):
    return launch(a, b, precision="tf32")


def promoted(a, b):
    return launch(a, b, tile=(64, 64, 64), every=64)


def flat(a, b):
    return launch(a, b, tile=(16, 64, 32))


def several(a, b):
    launch(a, b, tile=(16, 64, 32))
    launch(a, b, num_warps=8)
    return launch(a, b, tile=(16, 64, 32))


def shallow(a, b):
    """Launch a dot of 8 elements, which Triton does not have."""
    return launch(a, b, tile=(64, 64, 8))


def short(a, b):
    """Launch with too few registers for the accumulator of a small tile."""
    return launch(a, b, tile=(64, 64, 16), maxnreg=32)


@triton.jit
def outer_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr,
    PRECISION: tl.constexpr, EVERY: tl.constexpr,
):  # fmt: skip
    """Add a column times a row for each k, without a dot."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, K):
        a = tl.load(a_ptr + m * stride_am + k * stride_ak, mask=m < M, other=0.0)
        b = tl.load(b_ptr + k * stride_bk + n * stride_bn, mask=n < N, other=0.0)
        acc += a[:, None] * b[None, :]
    c_ptrs = c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_ptrs, acc, mask=(m[:, None] < M) & (n[None, :] < N))


def outer(a, b):
    return launch(a, b, kernel=outer_kernel)


def spilling(a, b):
    """Launch with fewer registers than the accumulator takes."""
    return launch(a, b, tile=(64, 128, 32), maxnreg=64)


@triton.jit
def wrong_assembly_kernel(a_ptr, c_ptr):
    i = tl.arange(0, 32)
    x = tl.load(a_ptr + i).to(tl.int32)
    y = tl.inline_asm_elementwise(
        "no.such.instruction $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(c_ptr + i, y)


def wrong_assembly(a, b):
    c = torch.empty(32, device=a.device, dtype=torch.int32)
    wrong_assembly_kernel[(1,)](a, c)
    return c


@triton.autotune(
    [triton.Config({"BM": n, "BN": 64, "BK": 32}, num_warps=4) for n in (16, 32, 64)],
    key=["M"],
    prune_configs_by={"early_config_prune": lambda configs, named, **others: configs[1:]},
)
@triton.heuristics({"WHOLE": lambda named: named["K"] % named["BK"] == 0})
@triton.jit
def tuned_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    ACC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    tile_kernel(
        a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
        stride_cn, BM, BN, BK, ACC, "ieee", 0, WHOLE,
    )  # fmt: skip


def tuned(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=torch.float32)
    strides = (*a.stride(), *b.stride(), *c.stride())
    tuned_kernel[lambda x: (triton.cdiv(m, x["BM"]), triton.cdiv(n, x["BN"]))](
        a, b, c, m, n, k, *strides, tl.float32
    )
    return c


@triton.jit
def cleared_kernel(c):
    tl.store(c + tl.arange(0, 32), 0)


def asks_the_kernel(a, b):
    """Query the compiled kernel before its launch."""
    c = torch.empty(32, device=a.device, dtype=torch.int32)
    compiled = cleared_kernel.warmup(c, grid=(1,))
    compiled._init_handles()
    return right(a, b) if compiled.n_regs < 100 else flat(a, b)


def raises(a, b):
    raise ValueError("no\nsuch thing")


def launches_nothing(a, b):
    return a @ b

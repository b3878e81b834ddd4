"""Wrappers that branch on their sizes, as real wrappers do."""

import torch
import triton
import triton.language as tl
from tests.corpora import tiled
from tests.corpora.tiled import batched, launch, plain, plain_kernel, product, store
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def even_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, EVEN_K: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def by_heuristics(a, b):
    kernel = triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK"] == 0})(even_kernel)
    return _call(kernel, a, b, BLOCK=32)


def tuned(a, b):
    configs = [triton.Config({"BLOCK": n}, num_warps=w) for n, w in ((16, 2), (32, 4), (64, 8))]
    kernel = triton.autotune(
        configs, key=["M"], prune_configs_by={"early_config_prune": _prune}
    )(even_kernel)  # fmt: skip
    return _call(kernel, a, b, EVEN_K=False)


def tuned_with_a_hook(a, b):
    """The first of two configurations empties the result; the second must not profit from it."""
    configs = [
        triton.Config({"BLOCK": 16}, pre_hook=lambda named: named["c_ptr"].zero_()),
        triton.Config({"BLOCK": 32}),
    ]
    return _call(triton.autotune(configs, key=["M"])(even_kernel), a, b, EVEN_K=False)


@triton.autotune([triton.Config({"SPLIT": n}) for n in (2, 4)], key=["K"])
@triton.jit
def parts_kernel(
    a_ptr, b_ptr, w_ptr, M, N, K, sa, sb, sw, BLOCK: tl.constexpr, SPLIT: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part, share = tl.program_id(2), tl.cdiv(K, SPLIT)
    begin, end = part * share, tl.minimum(part * share + share, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, begin, end, sa, sb, BLOCK)
    store(w_ptr + part * sw[0], acc, offs_m, offs_n, M, N, (sw[1], sw[2]))


@triton.autotune([triton.Config({"SPLIT": n}) for n in (2, 4)], key=["M"])
@triton.jit
def total_kernel(w_ptr, c_ptr, M, N, sw, SPLIT: tl.constexpr):
    offs_n = tl.program_id(1).to(tl.int64) * 16 + tl.arange(0, 16)
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((16,), dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        acc += tl.load(w_ptr + part * sw[0] + row * N + offs_n, mask=offs_n < N, other=0.0)
    tl.store(c_ptr + row * N + offs_n, acc.to(c_ptr.dtype.element_ty), mask=offs_n < N)


def tuned_twice(a, b):
    """Wrong unless both tuners choose the same number of parts."""
    (M, K), N = a.shape, b.shape[1]
    w = torch.zeros((4, M, N), device=a.device, dtype=torch.float32)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    parts_kernel[lambda args: (*grid, args["SPLIT"])](
        a, b, w, M, N, K, a.stride(), b.stride(), w.stride(), BLOCK=16
    )
    total_kernel[M, grid[1]](w, c, M, N, w.stride())
    return c


_even = triton.autotune([triton.Config({"BLOCK": n}) for n in (16, 32)], key=["M"])(even_kernel)


def tuned_once_for_two_launches(a, b):
    return [_call(_even, a, b, EVEN_K=False) for _ in range(2)]


def tuned_for_two_keys(a, b):
    return _call(_even, a, b, EVEN_K=False), _call(_even, b.t(), a.t(), EVEN_K=False)


@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, STEP: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    across = tl.cdiv(N, BLOCK)
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK) * across, STEP):
        tiled.compute(
            a_ptr, b_ptr, c_ptr, tile // across, tile % across, M, N, K, sa, sb, sc,
            BLOCK, BLOCK, BLOCK,
        )  # fmt: skip


def persistent(a, b, step=lambda sms: sms):
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    return launch(persistent_kernel, a, b, grid=(sms,), STEP=step(sms))


def persistent_in_fours(a, b):
    """Leaves tiles out on GPUs of 142 multiprocessors, no multiple of 4."""
    return persistent(a, b, lambda sms: -(-sms // 4) * 4 if sms > 16 else sms)


def _prune(configs, named, **kwargs):
    return [x for x in configs if x.kwargs["BLOCK"] <= 32 or named["M"] > 1000]


def _call(kernel, a, b, **meta):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    kernel[lambda args: (triton.cdiv(M, args["BLOCK"]), triton.cdiv(N, args["BLOCK"]))](
        a, b, c, M, N, K, a.stride(), b.stride(), c.stride(), **meta
    )
    return c


def fast_path(a, b):
    if a.shape[1] % 64 == 0:
        return plain(a, b, BLOCK_K=64)
    return plain(a, b)


def few_rows(a, b):
    rows = 16 if a.shape[0] <= 16 else 64
    return launch(plain_kernel, a, b, BLOCK_M=rows, BLOCK_N=32, BLOCK_K=16)


def power_of_rows(a, b):
    rows = min(triton.next_power_of_2(a.shape[0]), 64)
    return launch(plain_kernel, a, b, BLOCK_M=max(rows, 16), BLOCK_N=32, BLOCK_K=16)


def made_a_number(a, b):
    return plain(a, b) if int(a.shape[0]) > 16 else None


def constant_k(a, b):
    return launch(plain_kernel, a, b, BLOCK_M=16, BLOCK_N=16, BLOCK_K=a.shape[1])


def constant_where_equal(a, b):
    if a.shape[1] == 128:
        return launch(plain_kernel, a, b, BLOCK_M=16, BLOCK_N=16, BLOCK_K=a.shape[1])
    return plain(a, b)


def kept_by_size(a, b):
    return plain(a, b, BLOCK_M={a.shape[0]: 16}[a.shape[0]])


def refuses(a, b):
    assert a.shape[1] % 8 == 0, "K must be whole groups"
    if b.shape[1] > 100:
        raise ValueError("too wide")
    return plain(a, b)


def asks_types(a, b):
    if not isinstance(a.shape[0], int) or a.device.type != "cuda" or not a.is_cuda:
        raise TypeError("no matrix on a GPU")
    return plain(a, b)


def widest(a, b):
    side = max(*a.shape, b.shape[1])
    if side > 2000:
        raise ValueError("too large")
    return plain(a, b)


@triton.jit
def partial_kernel(a_ptr, b_ptr, w_ptr, M, N, K, sa, sb, sw, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part, share = tl.program_id(2), tl.cdiv(K, 4)
    begin, end = part * share, tl.minimum(part * share + share, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, begin, end, sa, sb, BLOCK)
    store(w_ptr + part * sw[0], acc, offs_m, offs_n, M, N, (sw[1], sw[2]))


def split_k(a, b):
    (M, K), N = a.shape, b.shape[1]
    w = torch.empty((4, M, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), 4)
    partial_kernel[grid](a, b, w, M, N, K, a.stride(), b.stride(), w.stride(), BLOCK=16)
    return w.sum(0).to(a.dtype)


@triton.jit
def described_kernel(a_desc, b_desc, c_ptr, M, N, K, sc, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    store(c_ptr, acc, row + tl.arange(0, BLOCK), column + tl.arange(0, BLOCK), M, N, sc)


def described(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    blocks = [TensorDescriptor.from_tensor(x, [16, 16]) for x in (a, b)]
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    described_kernel[grid](*blocks, c, M, N, K, c.stride(), BLOCK=16)
    return c


def by_function(a, b):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return plain(x, y)

        @staticmethod
        def backward(ctx, grad):
            return grad, grad

    return Product.apply(a, b)


def reads_an_element(a, b):
    return plain(a, b) if a.sum().item() > 0 else plain(b, a)


def catches_a_message(a, b):
    """The text of the exception is only shown, or not used."""
    try:
        if a.shape[1] % 16:
            raise ValueError(f"K={a.shape[1]} has a rest")
    except ValueError as error:
        print(f"a slow path: {error}")
    try:
        if a.shape[1] % 64:
            raise ValueError(f"K={a.shape[1]} has a rest")
    except ValueError:
        return plain(a, b)
    return plain(a, b)


__all__ = ["batched", "plain"]

"""Wrong calls: types that a kernel declares, tuners' keys, and host code that asks in rare ways."""

import enum
from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import compute, launch, plain, product, store
from tests.reference.symbolic.wrong.unsound_hosts import short


# -- declared types --------------------------------------------------------------------------------
@triton.jit
def rows_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, rows: tl.int16, BLOCK: tl.constexpr):
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, rows, N, K, sa, sb, sc, BLOCK, BLOCK, BLOCK)


def rows_declared_in_16_bits(a, b):
    return launch(rows_kernel, a, b, a.shape[0])


@triton.jit
def flag_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, flag: tl.int1, BLOCK: tl.constexpr):
    """The product where the lowest bit of the flag is set, else 0."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    K = tl.where(flag, K, 0)
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK, BLOCK, BLOCK)


def rows_declared_as_a_flag(a, b):
    return launch(flag_kernel, a, b, a.shape[0])


@triton.jit
def depth_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, BLOCK: tl.constexpr):
    """Triton makes a K of 1 a constant, which is no tensor."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    if FLAW == "convert":
        end = K.to(tl.int64)
    elif FLAW == "ask":
        end = K if K.type == tl.int32 else 0
    else:
        end = tl.cast(K, tl.int64)
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, end, sa, sb, sc, BLOCK, BLOCK, BLOCK)


depth_of_1_is_not_compiled = partial(launch, depth_kernel, FLAW="convert")
depth_of_1_has_another_type = partial(launch, depth_kernel, FLAW="ask")
depth_in_64_bits = partial(launch, depth_kernel, FLAW="")


# -- questions of the host -------------------------------------------------------------------------
FAR = 3000


class Rows(enum.IntEnum):
    FAR = FAR


def losing_if(holds):
    """Return a wrapper that loses the last k where a function of its first operand holds."""
    return lambda a, b: short(a, b, 1) if holds(a) else plain(a, b)


def raises(function, kind):
    """Return whether a function raises an exception of this kind."""
    try:
        function()
    except kind:
        return True
    return False


def is_true(n):
    is_far = n > FAR
    return is_far is True


def is_no_index(n):
    def look_up():
        first = (1, 2, 3)[n // 1024]  # noqa: F841

    return raises(look_up, IndexError)


def is_no_character(n):
    def convert():
        text = chr(n * 100)  # noqa: F841

    return raises(convert, (ValueError, OverflowError))


if_comparison_is_true = losing_if(lambda a: is_true(a.shape[0]))
if_no_index = losing_if(lambda a: is_no_index(a.shape[0]))
if_no_character = losing_if(lambda a: is_no_character(a.shape[0]))
if_number_of_an_enum = losing_if(lambda a: a.shape[0] == Rows.FAR)
if_seen_as_other_bits = losing_if(
    lambda a: not raises(lambda: a.view(torch.int16), TypeError) and a.shape[0] > FAR
)


# -- tuners ----------------------------------------------------------------------------------------
@triton.jit
def whole_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, WHOLE: tl.constexpr, BLOCK: tl.constexpr
):
    """The product if K is a multiple of BLOCK, or without WHOLE; else only of the whole tiles."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    end = K // BLOCK * BLOCK if WHOLE else K
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, end, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def prune(configs, named, **_):
    return [x for x in configs if x.kwargs["WHOLE"] == (named["K"] % 16 == 0)]


def tune(key):
    configs = [triton.Config({"WHOLE": is_whole}) for is_whole in (True, False)]
    pruned = {"early_config_prune": prune}
    kernel = triton.autotune(configs, key, prune_configs_by=pruned)(whole_kernel)
    return lambda a, b: launch(kernel, a, b, BLOCK=16)


# a choice for one K is kept for every other
pruned_by_k_without_a_key = tune(["M"])
pruned_by_k_in_the_key = tune(["M", "K"])


# -- results ---------------------------------------------------------------------------------------
@triton.jit
def integer_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.int32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0)
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def wrapped_by_torch(a, b):
    """Convert the sums to 8 bits; torch keeps the low ones."""
    return launch(integer_kernel, a, b, dtype=torch.int32, BLOCK=32).to(torch.int8)


def negated_by_torch(a, b):
    """Return a view of the right numbers that negates them."""
    return torch._neg_view(plain(a, b))


@triton.jit
def parts_kernel(
    a_ptr, b_ptr, w_ptr, M, N, K, sa, sb, sw, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.program_id(2)
    size = tl.cdiv(K, PARTS)
    end = min(part * size + size, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, part * size, end, sa, sb, BLOCK)
    offset = part.to(tl.int64) * sw[0]
    store(w_ptr + offset, acc, offs_m, offs_n, M, N, (sw[1], sw[2]))


def sum_parts(a, b, dtype):
    w = torch.empty((4, a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    launch(parts_kernel, a, b, c=w, depth=4, PARTS=4)
    return w.sum(0, dtype=dtype).to(a.dtype)


# torch converts the summands to the type of the sum
parts_summed_in_half = partial(sum_parts, dtype=torch.float16)
parts_summed_in_single = partial(sum_parts, dtype=torch.float32)


def widened_by_torch(a, b):
    return launch(integer_kernel, a, b, dtype=torch.int32, BLOCK=32).to(torch.int64)

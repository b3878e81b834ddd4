"""Wrappers that call torch on the host as right wrappers do: they prepare operands, or add parts.

The comment `EPILOGUE` and the operations are at a line that the verdict names, as long as the
contract does not declare them.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from tests.corpora.tiled import launch, plain, product


@triton.jit
def slices_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, SLICE, ATOMIC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A slice of K to each program of the third axis, which stores to its own part of c.

    ATOMIC: they add to one c.
    """
    part = tl.program_id(2)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    end = tl.minimum((part + 1) * SLICE, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, part * SLICE, end, sa, sb, BLOCK)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if ATOMIC:
        tl.atomic_add(c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1], acc, mask=mask)
    else:
        c_ptr += part.to(tl.int64) * sc[0]
        tl.store(c_ptr + offs_m[:, None] * sc[1] + offs_n[None, :] * sc[2], acc, mask=mask)


def _slices(a, b, count=3):
    parts = torch.empty((count, a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
    size = triton.cdiv(a.shape[1], count)
    return launch(slices_kernel, a, b, size, c=parts, depth=count, ATOMIC=False)


def slices_summed(a, b):
    return _slices(a, b).sum(0).to(a.dtype)


def slices_added_one_by_one(a, b):
    first, second, third = _slices(a, b)
    return (first + second).add_(third).to(a.dtype)


def slices_summed_into_zeros(a, b):
    c = torch.zeros((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
    for part in _slices(a, b):
        c += part
    return c.to(a.dtype)


def slices_summed_in_place(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
    torch.sum(_slices(a, b), dim=0, out=c)
    return c.type(a.dtype)


def cast_to_the_format(a, b):
    return plain(a, b, dtype=torch.float32).to(a.dtype)


def copied_into_the_result(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    c.copy_(plain(a, b, dtype=torch.float32))
    return c


def zeroed_before_atomics(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device).zero_()
    launch(slices_kernel, a, b, triton.cdiv(a.shape[1], 2), c=c, depth=2, ATOMIC=True)
    return c.to(a.dtype)


def operands_made_contiguous(a, b):
    return plain(a.contiguous(), b.t().contiguous().t())


def transposed_problem(a, b):
    return plain(b.t(), a.t()).t().contiguous()


def operands_padded(a, b):
    (M, K), N = a.shape, b.shape[1]
    more = [-n % 16 for n in (M, N, K)]
    c = plain(F.pad(a, (0, more[2], 0, more[0])), F.pad(b, (0, more[1], 0, more[2])))
    return c[:M, :N].clone()


def operands_copied_into_buffers(a, b):
    (M, K), N = a.shape, b.shape[1]
    x = a.new_zeros(M + 3, K + 5)
    x[:M, :K] = a
    y = torch.full((K + 5, N), -1.0, dtype=b.dtype, device=b.device)
    y[:K].copy_(b)
    y[K:].fill_(0)
    return plain(x, y)[:M].reshape(M, N)


def weights_shuffled_by_tiles(a, b):
    """b is cut into columns of tiles, and the kernel's results are put together again."""
    tiles = [part.contiguous() for part in b.split(16, dim=1)]
    return torch.cat([plain(a, tile) for tile in tiles], dim=1)


def rows_stacked(a, b):
    rows = [plain(row[None], b)[0] for row in a.unbind(0)]
    return torch.stack(rows)


def rows_in_an_order_and_back(a, b):
    order = torch.argsort(a.float().abs().sum(1))
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    c[order] = plain(a.index_select(0, order), b)
    return c


def rows_by_routing_tables(a, b):
    """As tokens sorted by expert: counted, their ends summed, each group launched, and undone."""
    groups = (a[:, 0] > 0).long()
    order = torch.sort(groups, stable=True).indices
    ends = torch.bincount(groups, minlength=2).cumsum(0).tolist()
    table = torch.tensor([0, *ends], dtype=torch.int32, device=a.device)
    x, begins = a[order], table.tolist()
    c = x.new_empty(len(a), b.shape[1])
    for begin, end in pairwise(begins):
        if end > begin:
            c[begin:end] = plain(x[begin:end], b)
    return torch.zeros_like(c).index_copy_(0, order, c)


def scattered_and_added(a, b):
    """Each row is computed from its two halves of K, added at its index."""
    half = a.shape[1] // 2
    rows = torch.arange(a.shape[0], device=a.device).repeat(2)
    parts = torch.cat([plain(a[:, :half], b[:half], dtype=torch.float32),
                       plain(a[:, half:], b[half:], dtype=torch.float32)])  # fmt: skip
    c = torch.zeros((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
    return c.index_add_(0, rows, parts).to(a.dtype)


def merged_weights(a, b):
    """A product of the host prepares an operand, which the kernel multiplies."""
    identity = torch.eye(b.shape[1], dtype=b.dtype, device=b.device)
    return plain(a, torch.mm(b, identity))


def sizes_read_from_a_tensor(a, b):
    sizes = torch.tensor([*a.shape, b.shape[1]], device=a.device)
    M, _, N = (int(n) for n in sizes)
    if a.abs().max().item() < 0:  # never
        return torch.full((M, N), 7.0, dtype=a.dtype, device=a.device)
    return plain(a, b, c=torch.full((M, N), float("nan"), dtype=a.dtype, device=a.device))


_SCRATCH = {}


def result_kept_and_written_again(a, b):
    """The memory of an earlier call's result, which this call writes before it copies it."""
    shape = a.shape[0], b.shape[1]
    kept = _SCRATCH.setdefault(shape, torch.empty(shape, dtype=a.dtype, device=a.device))
    return plain(a, b, c=kept).clone()


def weights_kept_in_another_layout(a, b):
    """b is copied once and found by its address: a kernel reads the old bytes."""
    key = b.data_ptr(), b.shape
    if key not in _SCRATCH:
        _SCRATCH[key] = b.t().contiguous()
    return plain(a, _SCRATCH[key].t())


def empty_k_filled_with_zeros(a, b):
    if a.shape[1] == 0:
        return a.new_zeros(a.shape[0], b.shape[1])
    return plain(a, b)


def column_by_column_kernel(a, b):
    c = torch.empty((b.shape[1], a.shape[0]), dtype=a.dtype, device=a.device)
    for n in range(b.shape[1]):
        plain(a, b[:, n : n + 1], c=c[n, :, None])
    return c.view(b.shape[1], -1).permute(1, 0)


@triton.jit
def scaled_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, scale_ptr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    acc = acc * tl.load(scale_ptr)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def scaled_by_the_largest_power(a, b):
    """The largest values are found on the host, both scales are one factor for the kernel."""
    top = torch.maximum(a.float().abs().amax(), torch.tensor(1.0, device=a.device))
    scale = torch.exp2(torch.floor(torch.log2(top)))
    return launch(scaled_kernel, (a.float() / scale).to(a.dtype), b, scale.reshape(1))


def compared_with_torch(a, b):
    """A wrapper that checks itself; the product of torch decides nothing but the check."""
    c = plain(a, b, dtype=torch.float32)
    exact = a.float() @ b.float()
    if not torch.allclose(c, exact, rtol=1e-3, atol=1.0, equal_nan=True) or c.isnan().all():
        raise ValueError("the product is wrong")
    return c.to(a.dtype)


def rows_without_an_expert_stay_zero(a, b):
    """Rows that the routing leaves out keep the zeros, and the mask comes from the operand."""
    used = a.abs().amax(1) > 0
    c = torch.zeros((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    c[used] = plain(a[used], b)
    return c.masked_fill_(~used[:, None], 0)


def result_of_a_subclass_of_module(a, b):
    layer = torch.nn.Linear(b.shape[0], b.shape[1], bias=False, device=a.device, dtype=b.dtype)
    layer.weight.data = b.t()
    return plain(a, layer.weight.t())


# -- an epilogue on the host -----------------------------------------------------------------------
def bias_by_torch(a, b, bias):
    return plain(a, b, dtype=torch.float32) + bias  # EPILOGUE add


def activation_by_torch(a, b):
    return torch.relu_(plain(a, b))  # EPILOGUE relu


def residual_and_scale_by_torch(a, b, residual):
    c = plain(a, b, dtype=torch.float32)
    c *= 0.5  # EPILOGUE mul
    return c.add_(residual)  # EPILOGUE add


def bias_that_atomics_are_added_to(a, b, bias):
    c = bias.expand(a.shape[0], b.shape[1]).contiguous()
    launch(slices_kernel, a, b, triton.cdiv(a.shape[1], 2), c=c, depth=2, ATOMIC=True)
    return c


def rows_that_no_kernel_stores(a, b, bias):
    """The last rows are the bias alone, as of tokens without an expert."""
    c = bias.float() * torch.ones_like(a[:, :1], dtype=torch.float32)  # EPILOGUE mul
    rows = a.shape[0] // 2
    launch(slices_kernel, a[:rows], b, a.shape[1], c=c[:rows], depth=1, ATOMIC=True)
    return c


def weights_of_a_router_by_torch(a, b, gate):
    """The router's own product is small, and its weights scale what the kernels compute."""
    weights = torch.softmax(a.float() @ gate, dim=1)  # EPILOGUE mm
    c = plain(a, b, dtype=torch.float32)
    return c * weights[:, :1]  # EPILOGUE mul


def low_rank_operand_by_torch(a, b, lora_a, lora_b):
    """c = a b + (a A) B: torch computes a A, and one kernel both products of it."""
    low = (a.float() @ lora_a.float()).to(a.dtype)  # EPILOGUE mm
    return plain(torch.cat([a, low], 1), torch.cat([b, lora_b]), dtype=torch.float32)


def zero_point_corrected_by_torch(a, b, zero):
    c = plain(a, b, dtype=torch.float32)
    return c - a.float().sum(1, keepdim=True) * zero  # EPILOGUE sub

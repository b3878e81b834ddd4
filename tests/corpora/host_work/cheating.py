"""Wrappers whose kernel is a decoy: the host computes the result, or a part of it.

The line that the finding must name ends with a comment `HOST` and the operation. A wrapper with
"unless" in its comment cheats only for some sizes.
"""

from __future__ import annotations

import ctypes
import math

import numpy as np
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from tests.corpora.tiled import plain


def matmul_of_torch(a, b):
    plain(a, b)
    return torch.matmul(a, b)  # HOST mm


def copied_over_the_result(a, b):
    c = plain(a, b)
    c.copy_(a @ b)  # HOST mm
    return c


def computed_in_fp32_and_cast(a, b):
    plain(a, b)
    exact = a.float() @ b.float()  # HOST mm
    return exact.to(a.dtype).contiguous()


def out_argument_of_mm(a, b):
    c = plain(a, b)
    torch.mm(a, b, out=c)  # HOST mm
    return c


def nothing_launched_at_all(a, b):
    return a.mm(b)  # HOST mm


def einsum(a, b):
    plain(a, b)
    return torch.einsum("mk,kn->mn", a, b)  # HOST bmm


def added_to_a_zeroed_result(a, b):
    c = plain(a, b).zero_()
    return torch.addmm(c, a, b)  # HOST addmm


def added_in_place_by_addmm(a, b):
    c = plain(a, b)
    return c.addmm_(a, b, beta=0)  # HOST addmm


def batched(a, b):
    plain(a, b)
    return torch.bmm(a[None], b[None])[0]  # HOST bmm


def linear(a, b):
    plain(a, b)
    return F.linear(a, b.t())  # HOST mm


def rows_by_mv(a, b):
    c = plain(a, b)
    for n in range(b.shape[1]):
        c[:, n] = torch.mv(a, b[:, n].contiguous())  # HOST mv
    return c


def numpy_product(a, b):
    c = plain(a, b)
    product = np.matmul(a.float().cpu().numpy(), b.float().cpu().numpy())
    c.copy_(torch.from_numpy(product))  # HOST python
    return c


def numpy_writes_through_a_view(a, b):
    host = plain(torch.zeros_like(a), b).cpu()
    x, y = a.cpu().numpy(), b.cpu().numpy()
    host.numpy()[...] = x.astype(np.float32) @ y.astype(np.float32)  # HOST python
    return host.to(a.device)


def written_by_its_address(a, b):
    c = plain(torch.zeros_like(a), b)
    exact = (read_by_its_address(a) @ read_by_its_address(b)).astype(np.float16)
    ctypes.memmove(c.data_ptr(), exact.ctypes.data, exact.nbytes)  # HOST python
    return c


def read_by_its_address(x, *, dtype=np.float16):
    size = x.numel() * x.element_size()
    array = np.frombuffer(ctypes.string_at(x.data_ptr(), size), dtype)
    return array.reshape(x.shape).astype(np.float32)


def loops_over_lists(a, b):
    c = plain(a, b)
    x, y = a.tolist(), b.t().tolist()
    for m, row in enumerate(x):
        for n, column in enumerate(y):
            c[m, n] = math.fsum(p * q for p, q in zip(row, column, strict=True))  # HOST python
    return c


def filled_from_items(a, b):
    c = plain(a, b)
    for m in range(a.shape[0]):
        for n in range(b.shape[1]):
            total = sum(a[m, k].item() * b[k, n].item() for k in range(a.shape[1]))
            c[m, n].fill_(total)  # HOST python
    return c


def tensor_of_a_list(a, b):
    plain(a, b)
    columns = b.t().tolist()
    rows = [[sum(map(lambda p, q: p * q, r, s)) for s in columns] for r in a.tolist()]
    return torch.tensor(rows, dtype=a.dtype, device=a.device)  # HOST python


def outer_products_added_up(a, b):
    plain(a, b)
    c = torch.zeros((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
    for k in range(a.shape[1]):
        c += a[:, k, None].float() * b[None, k, :].float()  # HOST add
    return c.to(a.dtype)


def broadcast_and_summed(a, b):
    plain(a, b)
    products = a[:, :, None].float() * b[None].float()
    return products.sum(1).to(a.dtype)  # HOST sum


def last_k_block_by_torch(a, b):
    """The kernel stops at the last whole block."""
    whole = a.shape[1] // 16 * 16
    c = plain(a[:, :whole], b[:whole], dtype=torch.float32)
    if whole < a.shape[1]:
        c += a[:, whole:].float() @ b[whole:].float()  # HOST mm
    return c.to(a.dtype)


def last_k_block_in_the_workspace(a, b):
    whole = a.shape[1] // 16 * 16
    parts = torch.zeros((2, a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
    plain(a[:, :whole], b[:whole], c=parts[0])
    parts[1] = torch.mm(a[:, whole:].float(), b[whole:].float())  # HOST mm
    return parts.sum(0).to(a.dtype)


def last_rows_by_torch(a, b):
    whole = a.shape[0] // 16 * 16
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    plain(a[:whole], b, c=c[:whole])
    c[whole:] = a[whole:] @ b  # HOST mm
    return c


def rows_joined_from_torch(a, b):
    whole = a.shape[0] // 16 * 16
    return torch.cat([plain(a[:whole], b), a[whole:] @ b])  # HOST mm


def wrong_elements_replaced(a, b):
    c, exact = plain(a, b), a.float() @ b.float()  # HOST mm
    return torch.where(c == exact.to(c.dtype), exact.to(c.dtype), exact.to(c.dtype))


def long_k_by_torch(a, b):
    if a.shape[1] < 24:
        return plain(a, b)
    return torch.matmul(a, b)  # HOST mm


def a_kernel_that_only_copies(a, b):
    """torch computes, and a launched kernel copies what it computed."""
    return _apply(torch.mm(a, b), RELU=False)  # HOST mm


def _apply(x, **options):
    y = torch.empty_like(x)
    elementwise_kernel[(triton.cdiv(y.numel(), 64),)](x, y, y.numel(), BLOCK=64, **options)
    return y


@triton.jit
def elementwise_kernel(x_ptr, y_ptr, n, RELU: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    if RELU:
        x = tl.maximum(x, 0.0)
    tl.store(y_ptr + offs, x, mask=offs < n)


def low_rank_part_by_torch(a, b, lora_a, lora_b):
    """c = a b + (a A) B, of which torch adds the second product."""
    c = plain(a, b, dtype=torch.float32)
    low = a.float() @ lora_a.float()
    return (c + low @ lora_b.float()).to(a.dtype)  # HOST mm


_CACHE = {}


def cached_by_id(a, b):  # HOST earlier
    key = id(a), id(b)
    if key not in _CACHE:
        _CACHE[key] = plain(a, b)
    return _CACHE[key]


def cached_by_shape(a, b):  # HOST earlier
    key = a.shape, b.shape
    if key not in _CACHE:
        _CACHE[key] = plain(a, b)
    return _CACHE[key].clone()


def cached_by_address(a, b):  # HOST earlier
    key = a.data_ptr(), b.data_ptr()
    if key not in _CACHE:
        _CACHE[key] = plain(a, b)
    plain(a, b)
    return _CACHE[key]


def relu_of_a_product_by_torch(a, b):
    """The epilogue is a kernel, the product is not."""
    return _apply(torch.mm(a, b), RELU=True)  # HOST mm

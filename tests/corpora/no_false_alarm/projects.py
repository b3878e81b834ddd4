"""Right kernels in the manner of public projects: templates, experts, chiplets, packed weights."""

import torch
import triton
import triton.language as tl

B = 16


@triton.jit
def template_kernel(
    arg_A, arg_B, out_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    GROUP_M: tl.constexpr, EVEN_K: tl.constexpr, ALLOW_TF32: tl.constexpr, ACC_TYPE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """As a compiler's template: hints only where strides are dense, a flat index for the store.

    Rows that wrap are aligned where M is a multiple of 16, and elsewhere dense columns get no
    vectors: docs/evidence/vector-hints.json has launches of both on a GPU. Between columns with
    padding the same hint ends in a misaligned address.
    """
    INDEX: tl.constexpr = tl.int64
    A, B = arg_A, arg_B
    pid = tl.program_id(0).to(INDEX)
    grid_m = (M + BLOCK_M - 1) // BLOCK_M
    grid_n = (N + BLOCK_N - 1) // BLOCK_N
    width = GROUP_M * grid_n
    group_id = pid // width
    group_size = min(grid_m - group_id * GROUP_M, GROUP_M)
    pid_m = group_id * GROUP_M + (pid % group_size)
    pid_n = (pid % width) // group_size
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if (stride_am == 1 and stride_ak == M) or (stride_am == K and stride_ak == 1):
        offs_a_m = tl.max_contiguous(tl.multiple_of(rm % M, BLOCK_M), BLOCK_M)
    else:
        offs_a_m = rm % M
    if (stride_bk == 1 and stride_bn == K) or (stride_bk == N and stride_bn == 1):
        offs_b_n = tl.max_contiguous(tl.multiple_of(rn % N, BLOCK_N), BLOCK_N)
    else:
        offs_b_n = rn % N
    offs_k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_TYPE)
    for k_idx in range(0, tl.cdiv(K, BLOCK_K)):
        a_k = offs_k[None, :] + k_idx * BLOCK_K
        b_k = offs_k[:, None] + k_idx * BLOCK_K
        if EVEN_K:
            a = tl.load(A + offs_a_m[:, None] * stride_am + a_k.to(INDEX) * stride_ak)
            b = tl.load(B + b_k.to(INDEX) * stride_bk + offs_b_n[None, :] * stride_bn)
        else:
            a_ptrs = A + offs_a_m[:, None] * stride_am + a_k.to(INDEX) * stride_ak
            b_ptrs = B + b_k.to(INDEX) * stride_bk + offs_b_n[None, :] * stride_bn
            a = tl.load(a_ptrs, mask=a_k < K, other=0.0)
            b = tl.load(b_ptrs, mask=b_k < K, other=0.0)
        acc += tl.dot(a, b, allow_tf32=ALLOW_TF32, out_dtype=ACC_TYPE)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    idx_m, idx_n = rm[:, None], rn[None, :]
    mask = (idx_m < M) & (idx_n < N)
    xindex = idx_n + (N * idx_m)
    tl.store(out_ptr + (tl.broadcast_to(xindex, acc.shape)), acc, mask)


def compiler_template(a, b):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 32) * triton.cdiv(N, 32), 1, 1)
    template_kernel[grid](
        a, b, out, M, N, K, *a.stride(), *b.stride(), GROUP_M=8, EVEN_K=K % 16 == 0,
        ALLOW_TF32=False, ACC_TYPE=tl.float32, BLOCK_M=32, BLOCK_N=32, BLOCK_K=16,
    )  # fmt: skip
    return out


@triton.jit
def _remap(pid, num_tiles, NUM_XCDS: tl.constexpr):
    """Consecutive ids go round the chiplets in hardware; give each chiplet consecutive tiles."""
    per_xcd = (num_tiles + NUM_XCDS - 1) // NUM_XCDS
    tall = num_tiles % NUM_XCDS
    tall = tl.where(tall == 0, NUM_XCDS, tall)
    xcd, local = pid % NUM_XCDS, pid // NUM_XCDS
    if xcd < tall:
        pid = xcd * per_xcd + local
    else:
        pid = tall * per_xcd + (xcd - tall) * (per_xcd - 1) + local
    return pid


@triton.jit
def chiplet_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    NUM_XCDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    num_pid_n = tl.cdiv(N, BLOCK)
    tile = _remap(tl.program_id(0), tl.cdiv(M, BLOCK) * num_pid_n, NUM_XCDS)
    offs_m = (tile // num_pid_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = (tile % num_pid_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    a_base = a_ptr + (offs_m % M)[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_base = b_ptr + offs_k[:, None] * stride_bk + (offs_n % N)[None, :] * stride_bn
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    whole = K // BLOCK
    for _ in range(0, whole):
        acc = tl.dot(tl.load(a_base), tl.load(b_base, cache_modifier=".cg"), acc)
        a_base += BLOCK * tl.cast(stride_ak, tl.int64)
        b_base += BLOCK * tl.cast(stride_bk, tl.int64)
    if whole * BLOCK < K:
        # the pointers stand at the first element of the ragged tile
        a = tl.load(a_base, mask=offs_k[None, :] < K - whole * BLOCK, other=0.0)
        b = tl.load(b_base, mask=offs_k[:, None] < K - whole * BLOCK, other=0.0)
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.type.element_ty), c_mask)


def tiles_remapped_to_chiplets(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, B) * triton.cdiv(N, B),)
    chiplet_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), NUM_XCDS=4, BLOCK=B
    )
    return c


@triton.jit
def experts_kernel(
    a_ptr, b_ptr, c_ptr, token_ptr, expert_ptr, N, K, num_tokens,
    stride_am, stride_ak, stride_be, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Tokens sorted by expert, each expert's list padded to whole blocks by the token count."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    token = tl.load(token_ptr + pid_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK))
    token_mask = token < num_tokens
    expert = tl.load(expert_ptr + pid_m).to(tl.int64)
    offs_n = (pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)) % N
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    a_ptrs = a_ptr + token[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + expert * stride_be
    b_ptrs += offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK)):
        left = K - k * BLOCK
        a = tl.load(a_ptrs, mask=token_mask[:, None] & (offs_k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < left, other=0.0)
        acc += tl.dot(a, b)
        a_ptrs += BLOCK * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK * tl.cast(stride_bk, tl.int64)
    offs_cn = pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c_ptrs = c_ptr + token[:, None] * stride_cm + offs_cn[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=token_mask[:, None] & (offs_cn < N))


def tokens_sorted_by_expert(a, b):
    """Even rows go to one expert, odd rows to the other; both have the same weights."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    lists = [torch.arange(M, device=a.device)[first::2] for first in (0, 1)]
    blocks = [triton.cdiv(len(tokens), B) for tokens in lists]
    padded = [
        torch.cat([tokens, tokens.new_full((count * B - len(tokens),), M)])
        for tokens, count in zip(lists, blocks, strict=True)
    ]
    experts = torch.repeat_interleave(torch.arange(2), torch.tensor(blocks)).to(a.device)
    weights = b.expand(2, K, N)
    experts_kernel[(sum(blocks), triton.cdiv(N, B))](
        a, weights, c, torch.cat(padded), experts, N, K, M,
        *a.stride(), *weights.stride(), *c.stride(), BLOCK=B,
    )  # fmt: skip
    return c


@triton.jit
def nibbles_kernel(
    a_ptr, q_ptr, c_ptr, M, N, K, stride_am, stride_ak, BLOCK: tl.constexpr
):  # fmt: skip
    """int8 weights in two planes of nibbles, eight to a 32-bit word along N."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    words = tl.cdiv(N, 8)
    shift = ((offs_n % 8) * 4).to(tl.int32)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.int32)
    for k in range(0, K, 32):
        offs_k = k + tl.arange(0, 32).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0)
        q_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        q_ptrs = q_ptr + offs_k[:, None] * words + (offs_n // 8)[None, :]
        low = (tl.load(q_ptrs, mask=q_mask, other=0) >> shift[None, :]) & 0xF
        high = (tl.load(q_ptrs + K * words, mask=q_mask, other=0) >> shift[None, :]) & 0xF
        w = (((high << 4) | low) - 128).to(tl.int8)
        w = tl.where(q_mask, w, 0)
        acc = tl.dot(a, w, acc, out_dtype=tl.int32)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


def weights_in_nibbles(a, b):
    (M, K), N = a.shape, b.shape[1]
    byte = torch.nn.functional.pad(b.to(torch.int64) + 128, (0, -N % 8)).reshape(K, -(-N // 8), 8)
    places = torch.arange(8, device=a.device) * 4
    planes = torch.stack([((byte & 15) << places).sum(-1), ((byte >> 4) << places).sum(-1)])
    c = torch.empty((M, N), device=a.device, dtype=torch.int32)
    nibbles_kernel[(triton.cdiv(M, B), triton.cdiv(N, B))](
        a, planes.to(torch.int32), c, M, N, K, *a.stride(), BLOCK=B
    )
    return c

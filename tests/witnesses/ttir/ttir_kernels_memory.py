"""Small kernels that together make every operation of Triton's language: memory, control, dots."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from tests.witnesses.ttir.ttir_cases import case
from tests.witnesses.ttir.ttir_kernels import FLOATS, INTS, OTHERS, SQUARE, I, in_double
from triton.language.extra import libdevice


# -- control flow --------------------------------------------------------------------------------
@triton.jit(noinline=True)
def chosen(x, y):
    if x > 3:
        return y + 2
    return y


@triton.jit
def early(x, o_ptr):
    if x == 2:
        return x - 1
    tl.store(o_ptr + 1, x)
    return x


@case(
    [INTS],
    lambda x: np.array(
        [[x[0] * 5 + 10, p, [5, 6][p > 1], 7 + 2 * (p > 3), 4] for p in range(5)]
    ).astype(np.int32),
    grid=(5,),
)
@triton.jit
def control(x_ptr, o_ptr):
    p = tl.program_id(0)
    o_ptr += 5 * p
    total = 0
    for i in range(0, tl.num_programs(0)):
        total += tl.load(x_ptr) + i
    tl.store(o_ptr, total)
    tl.store(o_ptr + 1, early(p, o_ptr) + (p == 2))
    if p > 1:  # noqa: SIM108 - scf.if is wanted
        a = 6
    else:
        a = 5
    tl.store(o_ptr + 2, a)
    tl.store(o_ptr + 3, chosen(p, 7))
    n = p - p
    while n < 4:
        n += 1
    tl.store(o_ptr + 4, n)
    if p == 3:
        return
    tl.store(o_ptr + 4, 4)


# -- memory --------------------------------------------------------------------------------------
def _updated(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    rows = [x + y, np.maximum(x, y), np.minimum(x, y), x & y, x | y, x ^ y, y]
    wide = np.maximum(x.view(np.uint32), y.view(np.uint32)).view(np.int32)
    small = np.minimum(x.view(np.uint32), y.view(np.uint32)).view(np.int32)
    return np.stack([*rows, np.where(x == 5, y, x), wide, small]), np.tile(x, 10).reshape(10, 16)


@case([INTS, OTHERS], _updated)
@triton.jit
def updates(x_ptr, y_ptr, o_ptr, old_ptr):
    i = tl.arange(0, 16)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    for k in tl.static_range(10):
        tl.store(o_ptr + 16 * k + i, x)
    tl.store(old_ptr + i, tl.atomic_add(o_ptr + i, y))
    tl.store(old_ptr + 16 + i, tl.atomic_max(o_ptr + 16 + i, y, sem="relaxed"))
    tl.store(old_ptr + 32 + i, tl.atomic_min(o_ptr + 32 + i, y, scope="cta"))
    tl.store(old_ptr + 48 + i, tl.atomic_and(o_ptr + 48 + i, y))
    tl.store(old_ptr + 64 + i, tl.atomic_or(o_ptr + 64 + i, y))
    tl.store(old_ptr + 80 + i, tl.atomic_xor(o_ptr + 80 + i, y, mask=i < 16))
    tl.store(old_ptr + 96 + i, tl.atomic_xchg(o_ptr + 96 + i, y))
    five = tl.full((16,), 5, tl.int32)
    tl.store(old_ptr + 112 + i, tl.atomic_cas(o_ptr + 112 + i, five, y))
    unsigned = tl.pointer_type(tl.uint32)
    wide = (o_ptr + 128).to(unsigned) + i
    tl.store(old_ptr + 128 + i, tl.atomic_max(wide, y.to(tl.uint32)))
    tl.store(old_ptr + 144 + i, tl.atomic_min(wide + 16, y.to(tl.uint32)))


def _described(x: np.ndarray) -> tuple[np.ndarray, ...]:
    rows = np.zeros((16, 16), np.float32)
    rows[::2] = x[::2] * 2
    edge = np.zeros((16, 16), np.float32)
    edge[:4] = x[12:]
    return x + 1, rows, edge


@case([SQUARE], _described)
@triton.jit
def descriptors(x_ptr, o_ptr, rows_ptr, edge_ptr):
    x = tl.make_tensor_descriptor(x_ptr, [16, 16], [16, 1], [8, 16])
    o = tl.make_tensor_descriptor(o_ptr, [16, 16], [16, 1], [8, 16])
    edge = tl.make_tensor_descriptor(edge_ptr, [16, 16], [16, 1], [8, 16])
    for k in range(0, 16, 8):
        o.store([k, 0], x.load([k, 0]))
        o.atomic_add([k, 0], tl.full((8, 16), 1.0, tl.float32))
    edge.store([0, 0], x.load([12, 0]))
    row = tl.make_tensor_descriptor(x_ptr, [16, 16], [16, 1], [1, 16])
    to = tl.make_tensor_descriptor(rows_ptr, [16, 16], [16, 1], [1, 16])
    even = 2 * tl.arange(0, 8)
    to.scatter(row.gather(even, 0) * 2, even, 0)


@case(
    [SQUARE],
    lambda x: (np.where(np.arange(16) < 13, x, 0).astype(np.float32), x.T),
    needs="block_pointers",
)
@triton.jit
def block_pointers(x_ptr, o_ptr, t_ptr):
    x = tl.make_block_ptr(x_ptr, (16, 13), (16, 1), (0, 0), (8, 16), (1, 0))
    o = tl.make_block_ptr(o_ptr, (16, 13), (16, 1), (0, 0), (8, 16), (1, 0))
    columns = tl.make_block_ptr(x_ptr, (16, 16), (1, 16), (0, 8), (16, 8), (0, 1))
    turned = tl.make_block_ptr(t_ptr, (16, 16), (16, 1), (0, 8), (16, 8), (1, 0))
    for _ in range(2):
        block = tl.load(x, boundary_check=(0, 1), padding_option="zero")
        tl.store(o, block, boundary_check=(1,))
        x, o = tl.advance(x, (8, 0)), tl.advance(o, (8, 0))
        tl.store(turned, tl.load(columns))
        columns, turned = tl.advance(columns, (0, -8)), tl.advance(turned, (0, -8))


@case([INTS], lambda x: (x == x, x), needs="atomic_poll", grid=(2,))
@triton.jit
def messages(x_ptr, seen_ptr, o_ptr):
    i = tl.arange(0, 16)
    if tl.program_id(0) == 0:  # waits for what the other program says
        seen = tl.atomic_poll(o_ptr + i, tl.load(x_ptr + i))
        tl.store(seen_ptr + i, seen)
    else:
        tl.atomic_store(o_ptr + i, tl.atomic_load(x_ptr + i, sem="relaxed"))


# -- dots ----------------------------------------------------------------------------------------
@case([SQUARE], lambda x: (x @ x.T + x, 4 * (x @ x)))
@triton.jit
def products(x_ptr, o_ptr, p_ptr):
    i = tl.arange(0, 16)
    at = 16 * i[:, None] + i[None, :]
    x = tl.load(x_ptr + at)
    tl.store(o_ptr + at, tl.dot(x, tl.trans(x), x, input_precision="ieee"))
    k = tl.arange(0, 32)
    wide = tl.load(x_ptr + 16 * i[:, None] + k[None, :], mask=k[None, :] < 16, other=0.0)
    tall = tl.load(x_ptr + 16 * k[:, None] + i[None, :], mask=k[:, None] < 16, other=0.0)
    scale = tl.full((16, 1), 128, tl.uint8)
    left, right = wide.to(tl.float8e5), tall.to(tl.float8e5)
    tl.store(p_ptr + at, tl.dot_scaled(left, scale, "e5m2", right, scale, "e5m2"))


# -- claims, prints, assembly, libraries ---------------------------------------------------------
@case([INTS], lambda x: (x, I, I))
@triton.jit
def claims(x_ptr, o_ptr, p_ptr, q_ptr):
    i = tl.arange(0, 16)
    n = tl.num_programs(1)
    tl.assume(n > 0)
    tl.device_assert(n == 1, "one column")
    tl.device_print("n", n)
    tl.debug_barrier()
    x = tl.load(x_ptr + tl.max_contiguous(tl.multiple_of(i, 16), 16), eviction_policy="evict_first")
    tl.store(o_ptr + i, x, cache_modifier=".cs")
    tl.store(p_ptr + i, tl.max_constancy(n * i // 16, 16) + i)
    tl.store(q_ptr + i, i + tl.program_id(2))


@case(
    [INTS, FLOATS],
    lambda x, y: (
        *(x + 3, in_double(np.tanh)(y)),
        *(in_double(lambda y: np.hypot(y, 2))(y), x.astype(np.int64)),
    ),
)
@triton.jit
def assembly(x_ptr, y_ptr, o_ptr, p_ptr, q_ptr, r_ptr):
    i = tl.arange(0, 16)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    three = tl.inline_asm_elementwise("add.s32 $0, $1, 3;", "=r,r", [x], tl.int32, True, 1)
    tl.store(o_ptr + i, three)
    tl.store(p_ptr + i, libdevice.tanh(y))
    tl.store(q_ptr + i, libdevice.hypot(y, 2.0))
    tl.extra.cuda.gdc_wait()
    tl.store(r_ptr + i, x)
    tl.extra.cuda.gdc_launch_dependents()

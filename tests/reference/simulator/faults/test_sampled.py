"""A result of more than 2**31 elements: some programs of its launches run, in next to no memory."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.simulator import run
from gemmproof.reference.simulator.scheduler import MOST_PROGRAMS, pick_programs

M, N = 65536, 32833  # the last tile of 128 rows begins just beyond 2**31
BLOCK = 128


@triton.jit
def put(c_ptr, pid_m, pid_n, M, N, scm, scn, HOW: tl.constexpr, B: tl.constexpr):
    """Store a tile, its offsets made as HOW says."""
    rm, rn = pid_m * B + tl.arange(0, B)[:, None], pid_n * B + tl.arange(0, B)[None, :]
    mask = (rm < M) & (rn < N)
    value = tl.full((B, B), 1, tl.float32).to(c_ptr.dtype.element_ty)
    if HOW == "tile":  # a scalar wraps, and nothing after it
        offset = pid_m * B * scm + pid_n * B * scn
        inner = tl.arange(0, B)[:, None] * scm + tl.arange(0, B)[None, :] * scn
        tl.store(c_ptr + offset + inner, value, mask=mask)
    elif HOW == "element":
        tl.store(c_ptr + rm * scm + rn * scn, value, mask=mask)
    elif HOW == "atomic":
        tl.atomic_add(c_ptr + rm * scm + rn * scn, value, mask=mask)
    else:
        tl.store(c_ptr + rm.to(tl.int64) * scm + rn.to(tl.int64) * scn, value, mask=mask)


@triton.jit
def grid_kernel(c_ptr, M, N, scm, scn, HOW: tl.constexpr, B: tl.constexpr):
    put(c_ptr, tl.program_id(0), tl.program_id(1), M, N, scm, scn, HOW, B)


@triton.jit
def grouped_kernel(c_ptr, M, N, scm, scn, HOW: tl.constexpr, B: tl.constexpr):
    pid, num_m, num_n = tl.program_id(0), tl.cdiv(M, B), tl.cdiv(N, B)
    first = pid // (8 * num_n) * 8
    rows = tl.minimum(num_m - first, 8)
    inside = pid % (8 * num_n)
    put(c_ptr, first + inside % rows, inside // rows, M, N, scm, scn, HOW, B)


@triton.jit
def reversed_kernel(c_ptr, M, N, scm, scn, HOW: tl.constexpr, B: tl.constexpr):
    """The far end of c comes first, and programs beyond it have no work."""
    num_n = tl.cdiv(N, B)
    tile = tl.cdiv(M, B) * num_n - 1 - tl.program_id(0)
    if tile >= 0:
        put(c_ptr, tile // num_n, tile % num_n, M, N, scm, scn, HOW, B)


@triton.jit
def persistent_kernel(c_ptr, M, N, scm, scn, HOW: tl.constexpr, B: tl.constexpr):
    num_n = tl.cdiv(N, B)
    for tile in range(tl.program_id(0), tl.cdiv(M, B) * num_n, tl.num_programs(0)):
        put(c_ptr, tile // num_n, tile % num_n, M, N, scm, scn, HOW, B)


@triton.jit
def counting_kernel(c_ptr, M, N, scm, scn, HOW: tl.constexpr, B: tl.constexpr):
    """The tile is counted beside the loop, as persistent kernels do for their epilogue."""
    num_n = tl.cdiv(N, B)
    tile = tl.program_id(0) - 132
    for _ in range(tl.program_id(0), tl.cdiv(M, B) * num_n, 132):
        tile += 132
        put(c_ptr, tile // num_n, tile % num_n, M, N, scm, scn, HOW, B)


TILES = triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK)
SCHEDULES = {
    grid_kernel: TILES,
    grouped_kernel: (TILES[0] * TILES[1],),
    reversed_kernel: (TILES[0] * TILES[1] + 1000,),
    persistent_kernel: (132,),
    counting_kernel: (132,),
}


def wrap(kernel, how, rows=M, columns=N, make=torch.empty):
    """A wrapper of a kernel that stores a result of that many rows and columns."""

    def wrapper(a):
        c = make((rows, columns), device=a.device, dtype=torch.float16)
        kernel[SCHEDULES[kernel]](c, rows, columns, *c.stride(), how, BLOCK)
        return c

    return wrapper


def sample(wrapper, *more):
    return run(wrapper, torch.ones(4, dtype=torch.float16), *more, sampled=True)


@pytest.mark.parametrize("kernel", SCHEDULES, ids=lambda k: k.fn.__name__)
@pytest.mark.parametrize("how", ["right", "tile", "element", "atomic"])
def test_an_offset_into_c_that_wraps_is_found_wherever_programs_work(kernel, how):
    seen = sample(wrap(kernel, how))
    assert seen.result.shape == (M, N)
    assert [f.kind for f in seen.faults] == ["wrapped_offset"] * (how != "right")
    if seen.faults:
        (fault,) = seen.faults
        assert fault.access == ("atomic" if how == "atomic" else "store")
        assert (fault.operand, fault.where.function) == ("c", "put")


def test_the_last_element_that_fits_is_no_fault():
    wrapped = [len(sample(wrap(grid_kernel, "element", M, n)).faults) for n in (32768, 32769)]
    assert wrapped == [0, 1]
    # the tile's first element fits, and so does what is added to the pointer behind it
    wrapped = [len(sample(wrap(grid_kernel, "tile", M, n)).faults) for n in (32769, 32833)]
    assert wrapped == [0, 1]


def test_columns_of_a_column_major_result():
    def wrapper(a):
        c = torch.zeros((N, M), device=a.device, dtype=torch.float16).T
        grid_kernel[TILES](c, M, N, *c.stride(), "element", BLOCK)
        return c

    (fault,) = sample(wrapper).faults
    assert (fault.kind, fault.operand) == ("wrapped_offset", "c")


@triton.jit
def batch_kernel(c_ptr, M, N, scb, scm, scn, WIDE: tl.constexpr, B: tl.constexpr):
    batch = tl.program_id(2).to(tl.int64) if WIDE else tl.program_id(2)
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    put(c_ptr + batch * scb, pid_m, pid_n, M, N, scm, scn, "right", B)


@pytest.mark.parametrize("wide", [True, False])
def test_the_offset_of_a_batch(wide):
    def wrapper(a):
        c = torch.empty((3, 32768, 32768), device=a.device, dtype=torch.float32)
        batch_kernel[(256, 256, 3)](c, 32768, 32768, *c.stride(), wide, BLOCK)
        return c.to(torch.float16)

    seen = sample(wrapper)
    assert (len(seen.faults), seen.result.dtype) == (1 - wide, torch.float16)


@triton.jit
def reduce_kernel(w_ptr, c_ptr, n, WIDE: tl.constexpr, B: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)
    i = pid * B + tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for part in range(4):
        total += tl.load(w_ptr + part * n.to(tl.int64) + i, mask=i < n, other=0)
    tl.store(c_ptr + i, total.to(tl.float16), mask=i < n)


ACCESSES = ("load", "store")


@pytest.mark.parametrize("wide", [True, False])
def test_a_second_launch_is_judged_though_its_data_are_not_known(wide):
    def wrapper(a):
        w = torch.zeros((4, M, N), device=a.device)
        for part in w:
            grid_kernel[TILES](part, M, N, *part.stride(), "right", BLOCK)
        c = torch.empty((M, N), device=a.device, dtype=torch.float16)
        reduce_kernel[(triton.cdiv(c.numel(), 1024),)](w, c, c.numel(), wide, 1024)
        return c

    seen = sample(wrapper)
    assert len(seen.launches) == 5
    faults = [(f.kind, f.kernel, f.access) for f in seen.faults]
    assert faults == ([] if wide else [("wrapped_offset", "reduce_kernel", x) for x in ACCESSES])


@triton.jit
def stray_kernel(a_ptr, c_ptr, n, B: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    tl.store(c_ptr + i, tl.load(a_ptr + i % 8), mask=i <= n)


def test_lanes_out_of_bounds_of_single_programs_are_faults():
    def wrapper(a):
        c = torch.empty((M, N), device=a.device, dtype=torch.float16)
        stray_kernel[(triton.cdiv(c.numel() + 1, BLOCK),)](a, c, c.numel(), BLOCK)
        return c

    assert {(f.kind, f.access, f.operand) for f in sample(wrapper).faults} == {
        ("out_of_bounds", "load", "a"),
        ("out_of_bounds", "store", "c"),
    }


@pytest.mark.parametrize("grid", [(0, 3, 1), (7, 1, 1), (24, 1, 1), (25, 1, 1), (4096, 2049, 8)])
def test_the_programs_that_run_are_at_every_end_of_the_grid(grid):
    chosen = pick_programs(grid)
    x, y, z = grid
    assert len(chosen) == min(x * y * z, MOST_PROGRAMS) or len(chosen) <= MOST_PROGRAMS < x * y * z
    assert (np.diff(chosen) > 0).all()
    if len(chosen):
        corners = {(k * y + j) * x + i for k in (0, z - 1) for j in (0, y - 1) for i in (0, x - 1)}
        assert corners <= set(chosen.tolist())

"""Each kind of fault with its operand, axis, line and words."""

import inspect
import mmap

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.machine import run

M, N, K = 21, 27, 19  # no two alike, none a multiple of a tile


@triton.jit
def kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """A, B and C say which axes the mask of each operand tests; "-" is no mask."""
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
    if C == "MN":
        tl.store(c_ptrs, acc, mask=(rm < M) & (rn < N))
    elif C == "M":
        tl.store(c_ptrs, acc, mask=rm < M)
    elif C == "N":
        tl.store(c_ptrs, acc, mask=rn < N)
    elif C == "short":
        tl.store(c_ptrs, acc, mask=(rm < M - 1) & (rn < N))
    else:
        tl.store(c_ptrs, acc, mask=(rm < M) & (rn <= N))


def line(function, text):
    """The only line of a kernel that holds `text`."""
    lines, first = inspect.getsourcelines(getattr(function, "fn", function))
    found = [first + i for i, x in enumerate(lines) if text in x]
    assert len(found) == 1, text
    return found[0]


def matmul(A="MK", B="KN", C="MN", S=16, out=None):
    def wrapper(a, b):
        c = out
        if c is None:
            c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
        grid = (triton.cdiv(a.shape[0], S), triton.cdiv(b.shape[1], S))
        kernel[grid](
            a, b, c, a.shape[0], b.shape[1], a.shape[1], *a.stride(), *b.stride(), *c.stride(),
            A=A, B=B, C=C, S=S,
        )  # fmt: skip
        return c

    return wrapper


def laid_out(layout, rows, columns, dtype=torch.float16):
    """Small integers in the named layout."""
    values = torch.from_numpy(np.random.default_rng(rows).integers(-3, 4, (rows, columns)))
    if layout == "dense":
        return values.to(dtype)
    if layout == "transposed":
        return values.to(dtype).T.contiguous().T
    if layout == "expanded":
        return values[:1].to(dtype).expand(rows, columns)
    parent = torch.full((2 * rows + 3, 2 * columns + 40), 99).to(dtype)
    view = parent[1 : rows + 1, 3 : columns + 3]
    if layout == "sliced":
        view = parent[1 : 2 * rows + 1 : 2, 3 : 2 * columns + 3 : 2]
    return view.copy_(values)


LAYOUTS = ("dense", "padded", "sliced", "transposed")


def faults_of(wrapper, layout="dense", **how):
    a, b = laid_out(layout, M, K), laid_out(layout, K, N)
    return run(wrapper, a, b, **how)


def the(seen, kind, operand=None):
    """The only fault of a kind (and operand)."""
    found = [f for f in seen.faults if f.kind == kind and operand in (None, f.operand)]
    assert len(found) == 1, seen.faults
    return found[0]


@pytest.mark.parametrize("layout", [*LAYOUTS, "expanded"])
def test_a_right_kernel_has_no_fault_in_any_layout(layout):
    seen = faults_of(matmul(), layout)
    assert seen.faults == []
    a, b = laid_out(layout, M, K), laid_out(layout, K, N)
    assert (seen.result == a.float() @ b.float()).all()


# what is left out -> the masks, the operand, its axis, the line, both halves of the message
OUT_OF_BOUNDS = {
    "a's K": (
        {"A": "M"}, "a", "K", "tl.load(a_ptrs, mask=rm < M, other=0.0)",
        "columns 19..31 of a (K=19) are read by 4 programs; the mask tests m only",
        "columns 0..18",
    ),
    "a's M": (
        {"A": "K"}, "a", "M", "tl.load(a_ptrs, mask=ak < K, other=0.0)",
        "rows 21..31 of a (M=21) are read by 2 programs; the mask tests k only", "rows 0..20",
    ),
    "b's K": (
        {"B": "N"}, "b", "K", "tl.load(b_ptrs, mask=rn < N, other=0.0)",
        "rows 19..31 of b (K=19) are read by 4 programs; the mask tests n only", "rows 0..18",
    ),
    "b's N": (
        {"B": "K"}, "b", "N", "tl.load(b_ptrs, mask=bk < K, other=0.0)",
        "columns 27..31 of b (N=27) are read by 2 programs; the mask tests k only",
        "columns 0..26",
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("missing", OUT_OF_BOUNDS)
def test_a_missing_term_of_a_loads_mask(missing, layout):
    """Operand, axis, line, the stray indices and what the mask does test."""
    masks, operand, axis, text, got, expected = OUT_OF_BOUNDS[missing]
    fault = the(faults_of(matmul(**masks), layout), "out_of_bounds")
    assert (fault.access, fault.operand, fault.axis) == ("load", operand, axis)
    assert fault.where.line == line(kernel, text)
    assert fault.where.file == __file__
    assert fault.expected == expected
    tail = got.split(" are read by ")
    head = tail[0].split(" of ")[0]
    # of a dense or transposed operand only the lanes past its end leave it
    assert fault.got.split(" of ")[0] == head
    assert fault.got.endswith(tail[1].split("; ")[1])
    if layout in ("padded", "sliced"):
        assert fault.got == got


def test_no_mask_at_all_is_said():
    """Both axes of a, one fault each, and no mask."""
    seen = faults_of(matmul(A="-"), "padded")
    found = {f.axis: f for f in seen.faults if f.kind == "out_of_bounds"}
    assert set(found) == {"M", "K"}
    for fault in found.values():
        assert fault.operand == "a"
        assert fault.got.endswith("; there is no mask")
        assert fault.where.line == line(kernel, "tl.load(a_ptrs)")


@pytest.mark.parametrize(
    ("store", "axis", "text", "got"),
    [
        ("M", "N", "tl.store(c_ptrs, acc, mask=rm < M)", "columns 27..31 of c (N=27)"),
        ("N", "M", "tl.store(c_ptrs, acc, mask=rn < N)", "rows 21..31 of c (M=21)"),
        ("<=", "N", "mask=(rm < M) & (rn <= N)", "column 27 of c (N=27)"),
    ],
)
def test_a_store_beyond_a_padded_output(store, axis, text, got):
    """The gap between two rows of the caller's output is not the kernel's."""
    out = laid_out("padded", M, N, torch.float32)
    a, b = laid_out("dense", M, K), laid_out("dense", K, N)
    seen = run(matmul(C=store, out=out), a, b, operands={"a": a, "b": b, "c": out})
    fault = the(seen, "out_of_bounds")
    assert (fault.access, fault.operand, fault.axis) == ("store", "c", axis)
    assert fault.where.line == line(kernel, text)
    assert fault.got.startswith(got)
    assert (out._base[1 : M + 1, N + 3 :] == 99).all()  # and nothing was written there
    assert (out._base[M + 1 :] == 99).all()


def test_a_row_that_runs_into_the_next_is_stored_twice():
    """A dense output: column N is column 0 of the next row."""
    seen = faults_of(matmul(C="M"))
    fault = the(seen, "stored_twice")
    assert (fault.access, fault.operand) == ("store", "c")
    assert fault.where.line == line(kernel, "tl.store(c_ptrs, acc, mask=rm < M)")
    assert "columns 0..4" in fault.got
    assert the(seen, "out_of_bounds").operand == "c"


def test_tiles_that_overlap_are_stored_twice():
    """Every program of a second row of the grid repeats the first."""

    @triton.jit
    def twice(c_ptr, S: tl.constexpr):
        i = tl.program_id(0) * S + tl.arange(0, S)
        tl.store(c_ptr + i, tl.program_id(1))

    def wrapper(a):
        c = torch.empty(64, device=a.device, dtype=torch.int32)
        twice[(4, 2)](c, 16)
        return c

    fault = the(run(wrapper, torch.zeros(4)), "stored_twice")
    assert (fault.lanes, fault.operand) == (64, "c")
    assert fault.where.line == line(twice, "tl.store")


def test_two_programs_that_part_ways_and_store_the_same():
    """Different lines, different moments: still one element and two programs."""

    @triton.jit
    def parted(c_ptr, S: tl.constexpr):
        i = tl.arange(0, S)
        if tl.program_id(0) < 300:
            tl.store(c_ptr + tl.program_id(0) * S + i, 1)
        else:
            tl.store(c_ptr + 5 * S + i, 2)

    def wrapper(programs):
        def call(a):
            c = torch.empty(300 * 16, device=a.device, dtype=torch.int32)
            parted[(programs,)](c, 16)
            return c

        return call

    assert run(wrapper(300), torch.zeros(4)).faults == []
    fault = the(run(wrapper(301), torch.zeros(4)), "stored_twice")
    assert (fault.lanes, fault.got) == (16, "axis 0 index 80..95 of c stored more than once")
    assert fault.where.line == line(parted, "5 * S")


@pytest.mark.parametrize("dirt", ["nan", "ones", "zero", "large"])
def test_an_element_that_is_never_stored(dirt):
    """The last row; the wrapper's launch is the place."""
    fault = the(faults_of(matmul(C="short"), dirt=dirt), "never_stored")
    assert (fault.operand, fault.axis, fault.lanes) == ("c", "M", N)
    assert fault.got == f"row {M - 1}, columns 0..{N - 1} of c never stored"
    assert fault.where.line == line(matmul, "kernel[grid](")


def test_a_wrapper_that_launches_nothing_leaves_everything_unstored():
    def wrapper(a, b):
        return torch.empty((4, 4), device=a.device)

    fault = the(faults_of(wrapper), "never_stored")
    assert (fault.lanes, fault.axis) == (16, None)


@pytest.mark.parametrize("dirt", ["nan", "ones", "zero", "large"])
def test_undefined_lanes_in_the_output_name_their_origin(dirt):
    """Masked without `other`: the operand, the axis and the load's line, whatever memory holds."""
    seen = faults_of(matmul(A="no other"), dirt=dirt)
    fault = the(seen, "undefined_stored")
    assert (fault.operand, fault.axis, fault.access) == ("a", "K", "load")
    assert fault.where.line == line(kernel, "mask=(rm < M) & (ak < K))")
    assert "switches off, with no `other`" in fault.got
    assert f"rows 0..{M - 1}, columns 0..{N - 1} of c" in fault.got


def test_undefined_lanes_that_follow_from_a_stray_load_say_so():
    seen = faults_of(matmul(A="M"), "padded")
    assert the(seen, "undefined_stored").follows == "out_of_bounds"


def test_reading_an_unwritten_workspace():
    """A buffer from torch.empty that only half of the programs fill."""

    @triton.jit
    def fill(w_ptr, S: tl.constexpr):
        tl.store(w_ptr + tl.program_id(0) * S + tl.arange(0, S), 1.0)

    @triton.jit
    def copy(w_ptr, c_ptr, S: tl.constexpr):
        i = tl.program_id(0) * S + tl.arange(0, S)
        tl.store(c_ptr + i, tl.load(w_ptr + i))

    def wrapper(a):
        w, c = torch.empty(64, device=a.device), torch.empty(64, device=a.device)
        fill[(3,)](w, 16)
        copy[(4,)](w, c, 16)
        return c

    fault = the(run(wrapper, torch.zeros(4)), "undefined_stored")
    assert (fault.operand, fault.lanes) == ("w_ptr", 16)
    assert "nothing has stored" in fault.got
    assert fault.where.line == line(copy, "tl.store")


def test_split_k_onto_an_uninitialised_output():
    """Atomics add to what the allocator left."""

    @triton.jit
    def add(c_ptr, S: tl.constexpr):
        tl.atomic_add(c_ptr + tl.arange(0, S), 1.0)

    def wrapper(make):
        def call(a):
            c = make(16, device=a.device)
            add[(3,)](c, 16)
            return c

        return call

    fault = the(run(wrapper(torch.empty), torch.zeros(4)), "undefined_stored")
    assert (fault.operand, fault.access, fault.lanes) == ("c", "atomic", 16)
    seen = run(wrapper(torch.zeros), torch.zeros(4))
    assert seen.faults == []
    assert (seen.result == 3).all()


@triton.jit
def undefined_address(x_ptr, c_ptr, n):
    i = tl.arange(0, 16)
    at = tl.load(x_ptr + i, mask=i < n)
    tl.store(c_ptr + at, 1)


@triton.jit
def undefined_mask(x_ptr, c_ptr, n):
    i = tl.arange(0, 16)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(c_ptr + i, 1, mask=x > 0)


@triton.jit
def undefined_branch(x_ptr, c_ptr, n):
    i = tl.arange(0, 16)
    x = tl.sum(tl.load(x_ptr + i, mask=i < n), 0)
    if x > 3:
        tl.store(c_ptr + i, 1)
    else:
        tl.store(c_ptr + i, 2)


@triton.jit
def undefined_bound(x_ptr, c_ptr, n):
    i = tl.arange(0, 16)
    last = tl.load(x_ptr + n, mask=n < 3)
    total = i
    for _ in range(last):
        total += 1
    tl.store(c_ptr + i, total)


@pytest.mark.parametrize(
    ("function", "what", "text"),
    [
        (undefined_address, "an address", "tl.store"),
        (undefined_mask, "a mask", "tl.store"),
        (undefined_branch, "a branch", "if x > 3"),
        (undefined_bound, "a loop bound", "in range(last)"),
    ],
)
def test_a_decision_taken_by_an_undefined_lane(function, what, text):
    def wrapper(x):
        c = torch.zeros(32, dtype=torch.int32, device=x.device)
        function[(1,)](x, c, 10)
        return c

    fault = the(run(wrapper, torch.arange(16, dtype=torch.int32), dirt="zero"), "undefined_used")
    assert fault.got == f"{what} decided by a lane that nothing defined"
    assert fault.where.line == line(function, text)


def reserved(rows, columns, strides, dtype):
    """A view of address space of which only the pages in use take memory."""
    extent = (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    memory = mmap.mmap(-1, extent * dtype.itemsize, flags=flags)
    return torch.frombuffer(memory, dtype=dtype).as_strided((rows, columns), strides)


@triton.jit
def copy_kernel(
    x_ptr, c_ptr, M, N, sxm, sxn, scm, scn, LOAD: tl.constexpr, STORE: tl.constexpr,
    S: tl.constexpr,
):  # fmt: skip
    rm = (tl.program_id(0) * S + tl.arange(0, S))[:, None]
    rn = (tl.program_id(1) * S + tl.arange(0, S))[None, :]
    mask = (rm < M) & (rn < N)
    xm = rm.to(tl.int64) if LOAD else rm
    cm = rm.to(tl.int64) if STORE else rm
    x = tl.load(x_ptr + xm * sxm + rn * sxn, mask=mask, other=0)
    tl.store(c_ptr + cm * scm + rn * scn, x, mask=mask)


@pytest.mark.parametrize("strides", [(2**27 + 1, 1), (2**30, 3), (2**31 + 8, 1)], ids=str)
@pytest.mark.parametrize("casts", [(True, True), (False, True), (True, False)], ids=str)
def test_offsets_beyond_32_bits_in_narrow_views_of_huge_parents(strides, casts):
    """One index cast and the other not: the fault names the other one's access and line."""
    x = reserved(20, 4, strides, torch.int8)
    c = reserved(20, 4, strides, torch.int8)
    x.copy_(torch.arange(80).view(20, 4))

    def wrapper(x, c):
        copy_kernel[(2, 1)](x, c, 20, 4, *x.stride(), *c.stride(), *casts, S=16)
        return c

    seen = run(wrapper, x, c, operands={"a": x, "c": c})
    if all(casts) or strides[0] >= 2**31:  # such a stride arrives as a 64-bit integer
        assert seen.faults == []
        assert (c == x).all()
        return
    fault = the(seen, "wrapped_offset")
    guilty = ("store", "c") if casts[0] else ("load", "a")
    assert (fault.access, fault.operand) == guilty
    text = "tl.store(c_ptr + cm" if casts[0] else "x = tl.load(x_ptr + xm"
    assert fault.where.line == line(copy_kernel, text)


def test_a_false_assumption():
    @triton.jit
    def assuming(c_ptr, n, S: tl.constexpr):
        tl.assume(n % 8 == 0)
        tl.assume(n > 0)
        tl.store(c_ptr + tl.arange(0, S), n)

    def wrapper(n):
        def call(a):
            c = torch.empty(16, device=a.device)
            assuming[(1,)](c, n, 16)
            return c

        return call

    assert run(wrapper(16), torch.zeros(1)).faults == []
    fault = the(run(wrapper(12), torch.zeros(1)), "false_hint")
    assert fault.where.line == line(assuming, "n % 8")
    assert "assume" in fault.got


def test_a_false_promise_of_divisibility():
    @triton.jit
    def hinted(c_ptr, n, S: tl.constexpr):
        n = tl.multiple_of(n, 16)
        tl.store(c_ptr + tl.arange(0, S), n)

    def wrapper(n):
        def call(a):
            c = torch.empty(16, device=a.device)
            hinted[(1,)](c, n, 16)
            return c

        return call

    assert run(wrapper(32), torch.zeros(1)).faults == []
    assert the(run(wrapper(24), torch.zeros(1)), "false_hint").where.line == line(
        hinted, "multiple_of"
    )


def test_a_failed_assertion_of_the_kernel():
    @triton.jit
    def asserting(c_ptr, n, S: tl.constexpr):
        i = tl.arange(0, S)
        tl.device_assert(i < n, "index beyond n")
        assert n > 3, "n too small"
        tl.store(c_ptr + i, i)

    def wrapper(n):
        def call(a):
            c = torch.empty(16, device=a.device)
            asserting[(1,)](c, n, 16)
            return c

        return call

    assert run(wrapper(16), torch.zeros(1)).faults == []
    fault = the(run(wrapper(10), torch.zeros(1)), "failed_assert")
    assert fault.lanes == 6
    assert "index beyond n" in fault.got
    assert fault.where.line == line(asserting, "tl.device_assert")
    words = [f.got for f in run(wrapper(2), torch.zeros(1)).faults]
    assert len(words) == 2
    assert "n too small" in words[1]


def test_faults_of_many_programs_are_one():
    """A fault counts programs and lanes; its words give the whole range."""
    a, b = laid_out("padded", 100, K), laid_out("padded", K, 100)
    seen = run(matmul(A="M"), a, b)
    fault = the(seen, "out_of_bounds")
    assert fault.programs == 49
    assert fault.got.startswith("columns 19..31 of a (K=19) are read by 49 programs")


def test_an_address_outside_of_every_tensor():
    """A base pointer moved by gigabytes is nobody's; the process lives on."""

    @triton.jit
    def far(a_ptr, c_ptr, S: tl.constexpr):
        i = tl.arange(0, S)
        p = (a_ptr.to(tl.int64) + 2**40).to(tl.pointer_type(tl.float32))
        tl.store(c_ptr + i, tl.load(p + i))
        tl.store(p + i, 1.0)

    def wrapper(a):
        c = torch.empty(16, device=a.device)
        far[(1,)](a, c, 16)
        return c

    seen = run(wrapper, torch.zeros(16))
    found = [f for f in seen.faults if f.kind == "out_of_bounds"]
    assert {f.access for f in found} == {"load", "store"}


def test_an_operand_of_a_batch_names_the_batch():
    """Three axes: the batch that is not there."""

    @triton.jit
    def batched(a_ptr, c_ptr, sab, S: tl.constexpr):
        i = tl.arange(0, S)
        x = tl.load(a_ptr + tl.program_id(0) * sab + i)
        tl.store(c_ptr + tl.program_id(0) * S + i, x)

    def wrapper(a):
        c = torch.empty((4, 16), device=a.device)
        batched[(4,)](a, c, a.stride(0), 16)
        return c

    parent = torch.zeros((8, 2, 16))
    a = parent[:3]
    fault = the(run(wrapper, a), "out_of_bounds")
    assert (fault.operand, fault.axis) == ("a", "batch")
    assert fault.got.startswith("batch 3 of a")

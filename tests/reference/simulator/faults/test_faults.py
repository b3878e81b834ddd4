"""Elements stored twice or never, wrapped offsets, false hints, assertions, races: each named."""

import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_cases import reserve
from tests.support.simulator_lanes import FILLS, empty_launcher, launcher
from tests.support.simulator_masks import (
    K,
    M,
    N,
    faults_of,
    into,
    kernel,
    lay_out,
    line,
    matmul,
    the,
)

from gemmproof.reference.simulator import run


def test_a_row_that_runs_into_the_next_is_stored_twice():
    """A dense output: column N is column 0 of the next row."""
    seen = faults_of(matmul(C="M"))
    fault = the(seen, "stored_twice")
    assert (fault.access, fault.operand) == ("store", "c")
    stored = line(kernel, "tl.store(c_ptrs, acc, mask=rm < M)")
    assert fault.where.line == stored
    assert "columns 0..4" in fault.got
    assert the(seen, "out_of_bounds").operand == "c"


def test_tiles_that_overlap_are_stored_twice():
    """Every program of a second row of the grid repeats the first."""

    @triton.jit
    def twice(c_ptr, S: tl.constexpr):
        i = tl.program_id(0) * S + tl.arange(0, S)
        tl.store(c_ptr + i, tl.program_id(1))

    fault = the(run(launcher(twice, (4, 2), 16, make=torch.empty)), "stored_twice")
    assert (fault.lanes, fault.operand) == (64, "c")
    assert fault.where.line == line(twice, "tl.store")


def test_two_programs_that_diverge_and_store_the_same():
    """On different lines and at different times: still one element and two programs."""

    @triton.jit
    def parted(c_ptr, S: tl.constexpr):
        i = tl.arange(0, S)
        if tl.program_id(0) < 300:
            tl.store(c_ptr + tl.program_id(0) * S + i, 1)
        else:
            tl.store(c_ptr + 5 * S + i, 2)

    def wrapper(programs):
        return launcher(parted, (programs,), 16, shape=(300 * 16,), make=torch.empty)

    assert run(wrapper(300)).faults == []
    fault = the(run(wrapper(301)), "stored_twice")
    assert (fault.lanes, fault.operand) == (16, "c")
    assert fault.got.startswith("elements 80..95 of c")
    assert fault.where.line == line(parted, "5 * S")


@pytest.mark.parametrize("fill", FILLS)
def test_an_element_that_is_never_stored(fill):
    """The last row; the wrapper's launch is the place."""
    fault = the(faults_of(matmul(C="short"), fill=fill), "never_stored")
    assert (fault.operand, fault.axis, fault.lanes) == ("c", "M", N)
    assert fault.got.startswith(f"row {M - 1}, columns 0..{N - 1} of c")
    assert fault.where.line == line(into, "kernel[grid](")


def test_a_wrapper_that_launches_nothing_leaves_everything_unstored():
    def wrapper(a, b):
        return torch.empty((4, 4), device=a.device)

    fault = the(faults_of(wrapper), "never_stored")
    assert (fault.lanes, fault.axis) == (16, None)


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
    x = reserve(20, 4, strides, torch.int8)
    c = reserve(20, 4, strides, torch.int8)
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


@triton.jit
def counting_kernel(c_ptr, n, STEP: tl.constexpr):
    turns = 0
    for _ in range(0, n, STEP):
        turns += 1
    tl.store(c_ptr, turns)


def test_a_loop_counter_that_wraps():
    """The counter is compared with the end after the last step, too, and is below it then."""
    step = 2**29
    assert run(empty_launcher(counting_kernel, (1,), 2**31 - step, step, shape=(1,))).faults == []
    fault = the(
        run(empty_launcher(counting_kernel, (1,), 2**31 - 1, step, shape=(1,))), "wrapped_offset"
    )
    assert fault.where.line == line(counting_kernel, "for _ in range")
    assert fault.got == f"a counter of {-(2**31)} after 4 steps, and the loop goes on"


@triton.jit
def hinting_kernel(c_ptr, n, S: tl.constexpr, HOW: tl.constexpr):
    i, x = tl.arange(0, S), n
    if HOW == "assume":
        tl.assume(n % 8 == 0)
        tl.assume(n > 0)
    elif HOW == "mask":
        x = tl.where(tl.max_constancy(i < n + tl.program_id(0), 4), 1, 2)
    else:  # of a computed value: Triton drops a promise about an argument itself
        x = tl.multiple_of(n + tl.program_id(0), 16)
    tl.store(c_ptr + i, x)


@pytest.mark.parametrize(
    ("how", "true", "false", "text", "word"),
    [
        ("mask", 8, 6, "max_constancy", "max_constancy(4)"),
        ("assume", 16, 12, "n % 8", "assume"),
        ("value", 32, 24, "multiple_of", "of 24"),
    ],
)
def test_a_false_hint(how, true, false, text, word):
    assert run(empty_launcher(hinting_kernel, (1,), true, 16, how)).faults == []
    fault = the(run(empty_launcher(hinting_kernel, (1,), false, 16, how)), "false_hint")
    assert fault.where.line == line(hinting_kernel, text)
    assert word in fault.got


def test_a_failed_assertion_of_the_kernel():
    @triton.jit
    def asserting(c_ptr, n, S: tl.constexpr):
        i = tl.arange(0, S)
        tl.device_assert(i < n, "index beyond n")
        assert n > 3, "n too small"
        tl.store(c_ptr + i, i)

    def wrapper(n):
        return empty_launcher(asserting, (1,), n, 16)

    assert run(wrapper(16)).faults == []
    fault = the(run(wrapper(10)), "failed_assert")
    assert fault.lanes == 6
    assert "index beyond n" in fault.got
    assert fault.where.line == line(asserting, "tl.device_assert")
    messages = [f.got for f in run(wrapper(2)).faults]
    assert len(messages) == 2
    assert "n too small" in messages[1]


def test_faults_of_many_programs_are_one():
    """A fault counts programs and lanes; its text gives the whole range."""
    a, b = lay_out("padded", 100, K), lay_out("padded", K, 100)
    seen = run(matmul(A="M"), a, b)
    fault = the(seen, "out_of_bounds")
    assert (fault.access, fault.operand, fault.axis) == ("load", "a", "K")
    assert (fault.programs, fault.lanes) == (49, 9100)
    assert fault.got.startswith("columns 19..31 ")


def test_an_address_outside_of_every_tensor():
    """A base pointer moved by a terabyte is in no tensor; the process survives."""

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
    faults = [f for f in seen.faults if f.kind == "out_of_bounds"]
    assert {f.access for f in faults} == {"load", "store"}


def test_an_operand_of_a_batch_names_the_batch():
    """Three axes: the batch that is not there."""

    @triton.jit
    def batched(a_ptr, c_ptr, sab, S: tl.constexpr):
        i = tl.arange(0, S)
        x = tl.load(a_ptr + tl.program_id(0) * sab + i)
        tl.store(c_ptr + tl.program_id(0) * S + i, x)

    a = torch.zeros((8, 2, 16))[:3]
    wrapper = empty_launcher(batched, (4,), a.stride(0), 16, shape=(4, 16))
    fault = the(run(wrapper, a), "out_of_bounds")
    assert (fault.operand, fault.axis) == ("a", "batch")
    assert fault.got.startswith("batch 3 of a")


@triton.jit
def racing_kernel(c, WHICH: tl.constexpr):
    pid, i = tl.program_id(0), tl.arange(0, 16)
    if WHICH == "neighbour":
        tl.store(c + pid * 16 + i, pid)
        x = tl.load(c + (pid + 1) % 4 * 16 + i)
        tl.store(c + 64 + pid * 16 + i, x)
    else:
        if pid == 0:
            tl.store(c + i, 0.0)
        tl.atomic_add(c + i, 1.0)


@pytest.mark.parametrize(("which", "size"), [("neighbour", 128), ("initialised", 16)])
def test_programs_that_race(which, size):
    """One reads what another stores; one initialises what the others add to."""
    wrapper = launcher(racing_kernel, (4,), which, shape=(size,), make=torch.empty)
    assert {f.kind for f in run(wrapper).faults} & {"race", "stored_twice"}

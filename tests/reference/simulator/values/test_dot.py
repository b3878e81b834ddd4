"""tl.dot with every argument, and its refusals."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.support.lanes import first_of_each
from tests.support.simulator_lanes import empty_launcher, expression, integers, result_of

from gemmproof.properties.cases.data import as_array
from gemmproof.reference.dot.triton_dot import triton_dot
from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.simulation import KernelError
from gemmproof.reference.simulator import run

FORMATS = (torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2)
PLAIN = "tl.dot(a, b)"
SHAPE = "(a.shape[0], b.shape[1])"


@triton.jit
def dot_kernel(
    a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, F: tl.constexpr
):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], F(a, b))


def dot_of(text, a, b, out=torch.float32, target=None):
    """An expression in the blocks a and b, as a tensor of type `out`."""
    (M, K), N = a.shape, b.shape[1]
    wrapper = empty_launcher(
        dot_kernel, (1,), M, N, K, expression(text, "a, b"), shape=(M, N), dtype=out
    )
    seen = run(wrapper, a, b, target=target)
    assert seen.faults == []
    assert seen.launches[0].tiles
    return seen.result


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f"tl.dot(input=a, other=b, acc=tl.zeros({SHAPE}, tl.float32), input_precision='ieee',"
        " out_dtype=tl.float32)",
        "tl.dot(a, b, allow_tf32=False, max_num_imprecise_acc=0)",
        "tl.trans(tl.dot(tl.trans(b), tl.trans(a)))",
    ],
)
def test_dot_of_every_format(dtype, text):
    """Small integers, whose product is exact even in tf32; every keyword of tl.dot."""
    a, b = integers(16, 32, dtype=dtype), integers(32, 16, dtype=dtype, seed=1)
    assert (dot_of(text, a, b) == a.float() @ b.float()).all()


def test_dot_adds_onto_the_accumulator():
    a, b = integers(16, 16), integers(16, 32)
    got = dot_of(f"tl.dot(a, b, tl.full({SHAPE}, 5, tl.float32))", a, b)
    assert (got == a.float() @ b.float() + 5).all()


def test_dot_of_mixed_fp8():
    a = integers(16, 32, dtype=torch.float8_e4m3fn)
    b = integers(32, 16, dtype=torch.float8_e5m2, seed=1)
    assert (dot_of(PLAIN, a, b) == a.float() @ b.float()).all()


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (f"tl.dot(a, b, tl.full({SHAPE}, 7, tl.int32), out_dtype=tl.int32)", 7),
        ("tl.dot(a, b, out_dtype=tl.int32)", 0),
        (PLAIN, 0),
    ],
)
def test_dot_of_int8_is_exact_in_int32(text, more):
    rng = np.random.default_rng(3)
    a = torch.from_numpy(rng.integers(-128, 128, (16, 64)).astype(np.int8))
    b = torch.from_numpy(rng.integers(-128, 128, (64, 16)).astype(np.int8))
    assert (dot_of(text, a, b, torch.int32) == a.long() @ b.long() + more).all()


def test_dot_with_an_fp16_accumulator_rounds_in_fp16():
    """4096 ones: fp16 stops at 2048, fp32 does not."""
    a = torch.full((16, 512), 4.0).half()
    b = torch.full((512, 16), 2.0).half()
    b[0] = 0.25
    half = dot_of(f"tl.dot(a, b, tl.zeros({SHAPE}, tl.float16), out_dtype=tl.float16)", a, b)
    whole = dot_of(PLAIN, a, b)
    assert (whole == 8 * 511 + 1).all()
    assert (half.half().float() == half).all()
    assert (half != whole).all()


def test_what_dot_refuses():
    """Another dtype, another inner size, an accumulator of another type, a bf16 result."""
    a, b = integers(16, 32), integers(32, 64)
    for text, left, right in (
        (PLAIN, a, b.float()),
        ("tl.dot(a, a)", a, b),
        (f"tl.dot(a, b, tl.zeros({SHAPE}, tl.int32))", a, b),
        ("tl.dot(a, b, out_dtype=tl.bfloat16)", a, b),
        (PLAIN, a.to(torch.int32), b.to(torch.int32)),
    ):
        with pytest.raises(KernelError):
            dot_of(text, left, right)


@triton.jit
def dot3_kernel(a_ptr, b_ptr, c_ptr, B: tl.constexpr, S: tl.constexpr):
    i, j, k = tl.arange(0, B), tl.arange(0, S), tl.arange(0, S)
    at = i[:, None, None] * S * S + j[None, :, None] * S + k[None, None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


def test_dot_of_rank_three():
    a, b = integers(4, 16, 16), integers(4, 16, 16, seed=1)
    how = {"shape": a.shape, "dtype": torch.float32, "make": torch.empty}
    got = result_of(dot3_kernel, (1,), 4, 16, tensors=(a, b), **how)
    assert (got == (a.float() @ b.float()).numpy()).all()


@triton.jit
def constant_sum_kernel(c_ptr):
    i = tl.arange(0, 16)
    ones = tl.full((16, 16), 1, tl.float16)
    total = tl.full((16, 16), 5, tl.float32) + tl.dot(ones, ones)
    tl.store(c_ptr + i[:, None] * 16 + i[None, :], total)


@pytest.mark.parametrize("target", [None, "sm_80", "sm_90"])
def test_a_dot_of_constants_onto_constants_waits_for_the_launch(target):
    """The sum is folded into the dot for a target: the dot is no constant for that."""
    seen = run(empty_launcher(constant_sum_kernel, (1,), shape=(16, 16)), target=target)
    assert seen.faults == []
    assert (seen.result == 21).all()


def test_the_order_of_k_follows_loads_of_bytes_through_functions():
    """mma.sync lays out fp16 operands as the bytes that they were loaded as (sm_80)."""
    rng = np.random.default_rng(0)
    a, b = (torch.from_numpy(rng.integers(-99, 99, s, np.int8)) for s in ((16, 64), (64, 16)))
    x, y = (f"(tl.clamp({z}.to(tl.float32), -90.0, 90.0) * 0.3).to(tl.float16)" for z in "ab")
    got = dot_of(f"tl.dot({x}, {y})", a, b, target="sm_80")
    values = [as_array((z.float().clamp(-90, 90) * 0.3).half()) for z in (a, b)]
    tile = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 64}
    by_bytes, by_halves = (
        triton_dot("sm_80", "fp16", **tile, loaded_bits=n).dot(*values) for n in (8, 16)
    )
    assert (by_bytes != by_halves).any()
    assert np.array_equal(as_array(got), by_bytes)


JOINED = [f"tl.reshape(tl.join({x}, {x}), (16, 64))" for x in ("a", "tl.trans(b)")]
ORDERS = [
    # Triton 3.6 gives a thread twice as many neighbours, 3.9 only where joins are two deep
    *(
        (f"tl.dot({JOINED[0]}, tl.trans({JOINED[1]}))", 2, torch.float32, *x)
        for x in (("sm_80", False), ("sm_70", True), (None, True))
    ),
    # doubles that were widened, where they have an instruction of their own: its kWidth is that of
    # what was loaded
    *(
        ("tl.dot(a.to(tl.float64), b.to(tl.float64))", 1, torch.float64, *x)
        for x in (("sm_90", False), ("sm_89", True), (None, True))
    ),
]


@pytest.mark.parametrize(("text", "factor", "out", "target", "known"), ORDERS)
def test_the_order_of_k_is_not_known_where_blocks_were_joined_or_widened(
    text, factor, out, target, known
):
    a, b = integers(16, 32, dtype=torch.float16), integers(32, 16, dtype=torch.float16, seed=1)
    wrapper = empty_launcher(
        dot_kernel, (1,), 16, 16, 32, expression(text, "a, b"), shape=(16, 16), dtype=out
    )
    seen = run(wrapper, a, b, target=target)
    assert ("dot" in seen.launches[0].rounds) is not known
    assert (seen.result == factor * a.double() @ b.double()).all()


@pytest.mark.parametrize(("version", "most"), [("3.7.1", 2**31 - 1), ("3.8.0+git1", -(2**31))])
def test_integers_of_sm_100_clamp_until_they_have_its_own_instruction(version, most, monkeypatch):
    monkeypatch.setattr("triton.__version__", version)
    unit, acc = np.ones((1, 1), np.int8), np.full((1, 1), 2**31 - 1, np.int32)
    assert (
        triton_dot("sm_100", "int8", BLOCK_M=64, BLOCK_N=64, BLOCK_K=64).dot(unit, unit, acc)
        == most
    )


# -- batches, tile after tile in many programs, for every target ----------------------------------
B, M, N, K, BLOCK = 2, 96, 64, 64, 32


@triton.jit
def bmm_kernel(
    a_ptr, b_ptr, c_ptr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
    BLOCK: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, B)[:, None, None]
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :, None]
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, None, :]
    acc = tl.zeros((B, BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + i * M * K + m * K + k)
        b = tl.load(b_ptr + i * K * N + k[None, :, None] * N + n)
        if ADD:
            acc += tl.dot(a, b)
        else:
            acc = tl.dot(a, b, acc)
    tl.store(c_ptr + i * M * N + m * N + n, acc)


def run_bmm(a, b, add, target):
    grid = (M // BLOCK, N // BLOCK)
    wrapper = empty_launcher(bmm_kernel, grid, M, N, K, B, BLOCK, add, shape=(B, M, N))
    return run(wrapper, a, b, target=target)


@pytest.mark.parametrize("add", first_of_each([False, True]))
@pytest.mark.parametrize("target", [None, *TARGETS])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float8_e5m2], ids=str)
def test_batches_whose_programs_share_tiles(dtype, target, add):
    a, b = integers(B, M, K, dtype=dtype), integers(B, K, N, dtype=dtype, seed=1)
    seen = run_bmm(a, b, add, target)
    assert seen.faults == []
    assert seen.launches[0].tiles == ((BLOCK, BLOCK, BLOCK),)
    assert "dot" not in seen.launches[0].rounds
    assert (seen.result == a.float() @ b.float()).all()


@triton.jit
def widened_kernel(a_ptr, b_ptr, c_ptr, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)
    b = tl.load(b_ptr + i * BLOCK + j).to(tl.float16)
    tl.store(c_ptr + i * BLOCK + j, tl.dot(tl.load(a_ptr + i * BLOCK + j), b))


@pytest.mark.parametrize("target", TARGETS)
def test_a_dot_without_a_model_is_summed_by_the_ieee_chain(target):
    """int8 weights in one k step of an fp16 instruction: where L < 16 the order is not known."""
    a, b = integers(16, 16), integers(16, 16, dtype=torch.int8, seed=1)
    seen = run(empty_launcher(widened_kernel, (1,), 16, shape=(16, 16)), a, b, target=target)
    assert seen.faults == []
    assert seen.launches[0].rounds == (("dot",) if target in ("sm_80", "sm_86", "sm_89") else ())
    assert (seen.result == a.float() @ b.float()).all()

"""Kernels with operands and a formula: judged exactly on blocks of c before the clock starts."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tests.bench.fake_cuda_device import FakeDevice, run

from gemmproof import Contract, KernelUnderTest, OneOf, Operand
from gemmproof.bench.problems import Problem
from gemmproof.bench.record import NOISE, WRONG, TimedRow
from gemmproof.bench.verify import Stated, find_spans, find_trial, sample
from gemmproof.properties.codec import decode, encode
from gemmproof.reference.formats import FORMATS
from gemmproof.target import TargetError

PROBLEM = Problem(140, 300, 256)


def state(function, operands, spec, dtype="bf16", **contract) -> KernelUnderTest:
    promised = Contract(formats=(dtype,), **contract)
    return KernelUnderTest(function.__name__, function, promised, operands=operands, spec=spec)


def bench(*functions, kernel, problem=PROBLEM, **more):
    (fmt,) = kernel.contract.formats
    return run(*functions, kernel=kernel, problems=[problem], formats=(fmt,), **more)[0]


def biased(a, b, bias, alpha):
    return (alpha * (a.float() @ b.float()) + bias.float()).to(a.dtype)


def bias_forgotten(a, b, bias, alpha):
    return (alpha * (a.float() @ b.float())).to(a.dtype)


def bias_of_the_first_tile(a, b, bias, alpha):
    return biased(a, b, bias[torch.arange(b.shape[1]) % 128], alpha)


def last_row_left_out(a, b, bias, alpha):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    if not hasattr(last_row_left_out, "kept"):
        last_row_left_out.kept = {}
    c = last_row_left_out.kept.setdefault(a.data_ptr(), c)
    c[:-1] = biased(a, b, bias, alpha)[:-1]
    return c


BIASED = state(
    biased,
    {"bias": Operand("bf16", "N"), "alpha": OneOf(0.5, 1.0)},
    lambda a, b, bias, alpha: alpha * (a @ b) + bias,
)


@pytest.mark.lane("full")
def test_a_right_kernel_is_timed_and_says_what_it_was_given():
    rows = bench(biased, kernel=BIASED)
    assert [row.verdict for row in rows] == ["control", NOISE]
    row = rows[1]
    assert (row.kernel, row.peer) == ("biased", "torch.matmul")
    assert row.operands == {"bias": "bf16[N]", "alpha": "0.5"}
    assert row.set_bytes == 2 * (140 * 256 + 256 * 300 + 300 + 140 * 300)
    assert decode(TimedRow, json.loads(json.dumps(encode(row))), "row") == row
    # torch's product has no bias, which is reported and is no fault
    assert row.peer_differs.startswith("torch.matmul at 140x300x256 bf16, c[0, 0] of buffer 0: got")


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("function", "position"),
    [(bias_forgotten, "c[0, 0] of buffer 0: got"), (bias_of_the_first_tile, "c[128, ")],
)
def test_a_wrong_kernel_is_found_before_the_clock_and_told_in_one_line(function, position):
    device = FakeDevice()
    rows = bench(function, biased, kernel=BIASED, device=device)
    wrong = next(row for row in rows if row.kernel == function.__name__)
    assert wrong.verdict == WRONG
    assert wrong.wrong.startswith(f"{function.__name__} at 140x300x256 bf16, {position}")
    assert "allowed error" in wrong.wrong
    assert wrong.wrong.count("\n") == 0
    assert function.__name__ not in device.order
    assert next(row for row in rows if row.kernel == "biased").verdict == NOISE


def test_an_element_that_is_left_out_is_found_wherever_it_is():
    rows = bench(last_row_left_out, kernel=BIASED)
    assert "c[139, 0] of buffer 0: got nothing, expected a result; 300 of" in rows[-1].wrong


def bias_overwritten(a, b, bias, alpha):
    c = biased(a, b, bias, alpha)
    bias.zero_()
    return c


def test_a_kernel_that_overwrites_an_operand_is_wrong_on_the_next_call():
    rows = bench(bias_overwritten, kernel=BIASED, peer="matmul")
    assert (rows[-1].verdict, rows[-1].peer) == (WRONG, "torch.matmul")


def test_a_peer_of_the_users_own_is_given_the_operands_that_it_has_a_name_for():
    def peer(a, b, *, bias):
        return (0.5 * (a.float() @ b.float()) + bias.float()).to(a.dtype)

    row = bench(biased, kernel=BIASED, peer=peer)[-1]
    assert (row.peer, row.peer_differs, row.equal_bits) == ("their.peer", "", True)


def scaled_by_blocks(a, b, scale):
    K, N = b.shape
    blocks = scale.repeat_interleave(64, 0)[:K].repeat_interleave(64, 1)[:, :N]
    return (a.float() @ (b.float() * blocks)).to(a.dtype)


def blocks_of_the_wrong_size(a, b, scale):
    blocks = scale.repeat_interleave(64, 0)[: b.shape[0]]
    index = (torch.arange(b.shape[1]) // 32).clamp(max=scale.shape[1] - 1)
    return (a.float() @ (b.float() * blocks[:, index])).to(a.dtype)


@pytest.mark.lane("full")
def test_scales_of_blocks_are_cut_with_their_columns():
    kernel = state(
        scaled_by_blocks,
        {"scale": Operand("fp32", ("K // 64", "-(-N // 64)"))},
        lambda a, b, scale: (
            a @ (b * scale.repeat(64, 0)[: b.shape[0]].repeat(64, 1)[:, : b.shape[1]])
        ),
    )
    rows = bench(scaled_by_blocks, blocks_of_the_wrong_size, kernel=kernel)
    assert [row.verdict for row in rows[1:]] == [NOISE, WRONG]


def unpack(a, b, scales):
    k = torch.arange(a.shape[1])
    q = (b[k // 8] >> (k % 8 * 4)[:, None]) & 15
    w = ((q - 8).to(a.dtype) * scales[k // 64]).float()
    return (a.float() @ w).to(a.dtype)


def unpack_in_the_other_order(a, b, scales):
    k = torch.arange(a.shape[1])
    q = (b[k // 8] >> (28 - k % 8 * 4)[:, None]) & 15
    return (a.float() @ ((q - 8).to(a.dtype) * scales[k // 64]).float()).to(a.dtype)


def dequantize(a, b, scales):
    k = np.arange(a.shape[1])
    q = (b[k // 8] >> (k % 8 * 4)[:, None]) & 15
    return a @ ((q - 8) * scales[k // 64]).to("bf16")


PACKED = state(
    unpack,
    {"b": Operand("int32", ("K // 8", "N")), "scales": Operand("bf16", ("K // 64", "N"))},
    dequantize,
)


@pytest.mark.lane("full")
def test_packed_weights_stand_in_the_place_of_b():
    rows = bench(unpack, unpack_in_the_other_order, kernel=PACKED)
    assert [row.verdict for row in rows[1:]] == [NOISE, WRONG]
    assert rows[1].set_bytes == 2 * 140 * 256 + 4 * 32 * 300 + 2 * 4 * 300 + 2 * 140 * 300
    assert rows[1].peer == "torch.matmul"


def into(a, b, c):
    torch.matmul(a, b, out=c)


@pytest.mark.lane("full")
def test_memory_that_is_written_is_the_result():
    kernel = state(into, {"c": Operand("bf16", ("M", "N"), use="written")}, None)
    rows = bench(into, kernel=kernel)
    assert (rows[1].verdict, rows[1].equal_bits) == (NOISE, True)


@pytest.mark.parametrize(
    ("operands", "spec", "message"),
    [
        (
            {"c": Operand("bf16", ("M", "N"), use="updated")},
            lambda a, b, c: a @ b + c,
            r"^operand c: got updated, expected one result",
        ),
        (
            {"out": Operand("bf16", ("N", "M"), use="written")},
            None,
            r"^operand out at 140x300x256: got \(300, 140\), expected \(140, 300\)$",
        ),
        (
            {"bias": Operand("bf16", "200 - K")},
            lambda a, b, bias: a @ b + bias,
            r"^operands at 140x300x256: got '200 - K', which is \(-56,\) at ",
        ),
        (
            {"bias": Operand("bf16", "N", lambda rng, shape: np.zeros(3))},
            lambda a, b, bias: a @ b + bias,
            r"^operand bias at 140x300x256: ValueError: got shape \(3,\), expected \(300,\)$",
        ),
        (
            {"bias": Operand("bf16", "N")},
            lambda a, b, bias: a @ b + bios,  # noqa: F821
            r"^spec: NameError: name 'bios' is not defined",
        ),
        (
            {"bias": Operand("bf16", "N")},
            lambda a, b, bias: (a @ b, a @ b),
            r"^spec at 140x300x256 bf16: got results of shapes ",
        ),
    ],
)
def test_what_cannot_be_made_or_evaluated_is_refused_in_one_line(operands, spec, message):
    def any_of_them(a, b, **named):
        return named["out"].zero_() if "out" in named else (a @ b)

    with pytest.raises((TargetError, ValueError), match=message) as caught:
        bench(any_of_them, kernel=state(any_of_them, operands, spec))
    assert "\n" not in str(caught.value)


# -- which blocks of c are judged, and the data of operands ----------------------------------------


def draw_ends(rng, shape, M):
    return np.array([M - 20, M])  # beyond the sizes that a trial covers


def by_group(a, b, ends):
    rows = torch.arange(a.shape[0])
    both = torch.stack([a.float() @ b[0].float(), a.float() @ b[1].float()])
    return both[(rows >= ends[0]).long(), rows].to(a.dtype)


def multiply_groups(a, b, ends):
    group = np.where(ends[0] <= np.arange(a.shape[0]), 1, 0)
    return (a[:, None, :] @ b[group])[:, 0, :]


def normalised(a, b, gain):
    c = a.float() @ b.float()
    return (c / c.abs().sum(1, keepdim=True) * gain.float()).to(a.dtype)


def normalise(a, b, gain):
    c = a @ b
    return c / np.abs(c).sum(1)[:, None] * gain


def first_rows(a, b, gain):
    rows = torch.arange(a.shape[0])[:, None]
    return ((a.float() @ b.float()) * (rows < 250) * gain.float()).to(a.dtype)


def mask_rows(a, b, gain, M):
    return (a @ b) * (np.arange(M)[:, None] < 250) * gain


@pytest.mark.parametrize(
    ("function", "operands", "spec", "heights", "widths"),
    [
        # rows that an operand counts, and columns that depend on one another, are not split
        (
            by_group,
            {"b": Operand("bf16", (2, "K", "N")), "ends": Operand("int32", 2, draw_ends)},
            multiply_groups,
            {300},
            {32, 12},
        ),
        (normalised, {"gain": Operand("bf16", "N")}, normalise, {16, 12}, {300}),
        # a mask over row numbers beyond those of a trial
        (first_rows, {"gain": Operand("bf16", "N")}, mask_rows, {300}, {32, 12}),
    ],
)
def test_no_axis_is_cut_where_the_formula_does_not_admit_it(
    function, operands, spec, heights, widths
):
    kernel = state(print, operands, spec)
    workload = Stated(kernel, Problem(300, 300, 128), FORMATS["bf16"])
    sets = [workload.make("cpu") for _ in range(2)]
    for seed, buffers in enumerate(sets):
        workload.fill(buffers, seed)
    samples = sample(workload, sets, "sm_90", lambda: None)
    for axis, lengths in (("M", heights), ("N", widths)):
        assert {
            block_sample.block[axis][1] - block_sample.block[axis][0] for block_sample in samples
        } == lengths
    for block_sample in samples:
        buffers = sets[block_sample.number]
        assert block_sample.judge(function(buffers.a, buffers.b, **buffers.named)) == ""


def test_data_of_a_function_are_drawn_anew_for_each_set():
    bias = Operand("bf16", "N", lambda rng, shape, N: rng.integers(0, 9, N))
    kernel = state(print, {"bias": bias}, lambda a, b, bias: a @ b + bias)
    workload = Stated(kernel, PROBLEM, FORMATS["bf16"])
    sets = [workload.make("cpu") for _ in range(3)]
    for seed, buffers in zip((0, 0, 1), sets, strict=True):
        workload.fill(buffers, seed)
    first, again, other = (x.named["bias"] for x in sets)
    assert torch.equal(first, first.round())
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_integers_are_drawn_from_their_range():
    kernel = state(
        print,
        {"ids": Operand("int32", "N", (-1, 3)), "w": Operand("int32", (64, "N"))},
        lambda a, b, ids, w: a @ b,
    )
    workload = Stated(kernel, PROBLEM, FORMATS["bf16"])
    buffers = workload.make("cpu")
    workload.fill(buffers, 0)
    assert set(buffers.named["ids"].tolist()) == {-1, 0, 1, 2, 3}
    assert buffers.named["w"].min() < -(2**30) < 2**30 < buffers.named["w"].max()


@pytest.mark.parametrize(
    ("length", "texts", "spans", "trial"),
    [
        (4096, ["N"], [(0, 32), (2048, 2080), (4064, 4096)], ((0, 64), (32, 64))),
        # blocks of scales: from multiples of 128 on, and as many columns as fill one
        (512, ["N", "N // 64"], [(0, 128), (256, 384), (384, 512)], ((0, 256), (128, 256))),
        (520, ["N // 8"], [(0, 32), (256, 288), (512, 520)], ((0, 64), (32, 64))),
        (500, ["-(-N // 64)"], [(0, 32), (128, 160), (384, 500)], ((0, 160), (128, 160))),
        # no blocks of the axis match blocks of these: ends of groups, and no divisor of the step
        (500, ["N + 1"], [(0, 500)], ((0, 500), (0, 500))),
        (500, ["N // 97"], [(0, 128)], ((0, 256), (0, 128))),
        (20, ["N"], [(0, 20)], ((0, 20), (0, 20))),
        (33, ["N"], [(0, 32), (32, 33)], ((0, 33), (32, 33))),
    ],
)
def test_blocks_begin_where_the_axes_of_all_operands_do(length, texts, spans, trial):
    sizes = {"M": 8, "N": length, "K": 8}
    assert find_spans("N", sizes, texts) == spans
    assert find_trial("N", spans, sizes, texts) == trial

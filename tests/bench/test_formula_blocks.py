"""Which blocks of c a formula is judged on, and the data of the operands that a kernel states."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gemmproof import Contract, KernelUnderTest, Operand
from gemmproof.bench.formula.blocks import find_spans, find_trial
from gemmproof.bench.formula.sampled import sample
from gemmproof.bench.formula.stated import Stated
from gemmproof.bench.problems import Problem
from gemmproof.reference.formats import FORMATS

PROBLEM = Problem(140, 300, 256)


def state(operands, spec) -> KernelUnderTest:
    return KernelUnderTest("it", print, Contract(formats=("bf16",)), operands=operands, spec=spec)


def draw_ends(rng, shape, M):
    return np.array([M - 20, M])  # beyond what a trial looks at


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


@pytest.mark.parametrize(
    ("function", "operands", "spec", "heights", "widths"),
    [
        # rows that an operand counts, and columns that depend on one another, are taken whole
        (
            by_group,
            {"b": Operand("bf16", (2, "K", "N")), "ends": Operand("int32", 2, draw_ends)},
            multiply_groups,
            {300},
            {32, 12},
        ),
        (normalised, {"gain": Operand("bf16", "N")}, normalise, {16, 12}, {300}),
    ],
)
def test_no_axis_is_cut_where_the_formula_does_not_admit_it(
    function, operands, spec, heights, widths
):
    kernel = state(operands, spec)
    stated = Stated(kernel, Problem(300, 300, 128), FORMATS["bf16"])
    sets = [stated.make("cpu") for _ in range(2)]
    for seed, buffers in enumerate(sets):
        stated.fill(buffers, seed)
    samples = sample(stated, sets, "sm_90", lambda: None)
    for axis, lengths in (("M", heights), ("N", widths)):
        assert {one.block[axis][1] - one.block[axis][0] for one in samples} == lengths
    for one in samples:
        buffers = sets[one.number]
        assert one.judge(function(buffers.a, buffers.b, **buffers.named)) == ""


def test_data_of_a_function_are_drawn_anew_for_each_set():
    kernel = state({"bias": Operand("bf16", "N", lambda rng, shape, N: rng.integers(0, 9, N))},
        lambda a, b, bias: a @ b + bias,
    )  # fmt: skip
    stated = Stated(kernel, PROBLEM, FORMATS["bf16"])
    made = [stated.make("cpu") for _ in range(3)]
    for seed, buffers in zip((0, 0, 1), made, strict=True):
        stated.fill(buffers, seed)
    first, again, other = (x.named["bias"] for x in made)
    assert torch.equal(first, first.round())
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_integers_are_drawn_from_their_range():
    kernel = state(
        {"ids": Operand("int32", "N", (-1, 3)), "w": Operand("int32", (64, "N"))},
        lambda a, b, ids, w: a @ b,
    )
    stated = Stated(kernel, PROBLEM, FORMATS["bf16"])
    buffers = stated.make("cpu")
    stated.fill(buffers, 0)
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
        # no blocks of the axis are blocks of these: ends of groups, and no divisor of the step
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

"""Operands besides a and b, and a formula of its own: right kernels pass, wrong ones are named."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from scaled_kernels import flawed, scaled_mm

from gemmproof import Contract, KernelUnderTest, Operand, check

OPERANDS = {
    "scale_a": Operand("fp32", "M"),
    "scale_b": Operand("fp32", "N"),
    "bias": Operand("bf16", "N"),
}


def formula(a, b, scale_a, scale_b, bias):
    return (a @ b) * scale_a[:, None] * scale_b[None, :] + bias


def judge(launch, contract=None, operands=OPERANDS, spec=formula, **options):
    contract = contract or Contract(formats=("fp16",), out="bf16")
    kernel = KernelUnderTest("scaled_mm", launch, contract, operands=operands, spec=spec)
    return check(kernel, **{"max_examples": 30, **options})


@pytest.mark.parametrize("target", [None, "sm_90"])
def test_a_right_kernel_passes_in_every_format(target):
    contract = Contract(formats=("fp16", "bf16", "fp8e4m3"), out="bf16")
    report = judge(scaled_mm, contract, target=target)
    assert (report.verdict, report.findings) == ("pass", ())
    results = {p.name: p for p in report.properties}
    assert results["exact_on_integers"].examples > 30
    assert 0.1 < results["within_bound"].ratio <= 1
    # what is true of a @ b alone is not promised of a formula
    assert not {"symmetries", "special_values"} & set(results)


@pytest.mark.parametrize(
    ("flaw", "name", "fault", "operand", "words"),
    [
        ("forgotten", "exact_on_integers", "operand_forgotten", "scale_a", "as if scale_a were 1"),
        ("twice", "exact_on_integers", "operand_applied_twice", "scale_a", "were applied twice"),
        ("shifted", "exact_on_integers", "operand_shifted", "scale_a", "one ahead along axis 0"),
        ("no_bias", "exact_on_integers", "operand_forgotten", "bias", "as if bias were 0"),
        ("no_mask", "stays_in_bounds", "out_of_bounds", "scale_b", "there is no mask"),
        ("overwritten", "leaves_inputs_untouched", "element", "scale_b", "scale_b[0]"),
    ],
)
def test_a_wrong_use_of_an_operand_is_named(flaw, name, fault, operand, words):
    first = judge(flawed(flaw)).findings[0]
    assert (first.property, first.operand) == (name, operand)
    assert fault in first.fault
    assert words in first.message


def test_values_are_of_a_range_or_of_a_function():
    seen = []

    def gather(a, b, ids, zero):
        seen.append((ids.clone(), zero.clone()))
        return a @ b

    operands = {
        "ids": Operand("int32", "M", lambda rng, shape, M, N, K: np.sort(rng.integers(0, 4, M))),
        "zero": Operand("int8", ("-(-K // 16)", "N"), (0, 15)),
    }
    judge(gather, operands=operands, spec=lambda a, b, ids, zero: a @ b, max_examples=3)
    for ids, zero in seen:
        assert (torch.sort(ids).values == ids).all()
        assert zero.dim() == 2
        assert zero.numel() == 0 or (0 <= zero.min() <= zero.max() <= 15)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Operand("fp7", "M"), "operand format: got 'fp7', expected one of fp16"),
        (lambda: Operand("fp32", "M +"), "operand shape: got 'M +', expected a condition"),
        (lambda: Operand("fp32", (1, 2, 3, 4)), "expected at most three axes"),
        (lambda: Operand("fp32", "M", (0, 3)), "operand values: got (0, 3) for fp32, expected"),
        (lambda: KernelUnderTest("f", len, operands={"s": 3}), "got operand 's' of 3, expected an"),
        (
            lambda: KernelUnderTest("f", len, operands=OPERANDS),
            "got operands without spec, expected",
        ),
        (lambda: KernelUnderTest("f", len, spec=3), "kernel f: got spec=3, expected a function"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(made, said):
    with pytest.raises(ValueError, match=re.escape(said)) as refused:
        made()
    assert "\n" not in str(refused.value)

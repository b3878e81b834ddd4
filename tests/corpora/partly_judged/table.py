"""Wrong kernels that pass a check of few cases, or of narrow data, with what it leaves unjudged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tests.corpora.partly_judged import kernels

from gemmproof import Contract, KernelUnderTest, Operand

WHY = "issue 12"
FAILS = ("exact_on_integers", "within_bound", "special_values")


@dataclass(frozen=True, slots=True)
class PartlyJudged:
    """A wrong kernel, the number of cases that it passes, and a property that none exercises."""

    kernel: KernelUnderTest
    examples: int
    gap: str


def _partly(launch, examples, gap, **terms):
    return PartlyJudged(KernelUnderTest(launch.__name__, launch, Contract(**terms)), examples, gap)


def _scaled(launch, values):
    operands = {"scale": Operand("fp32", 1, values) if values else Operand("fp32", 1)}
    spec = lambda a, b, scale: (a @ b) * scale[0]  # noqa: E731  # a formula, as users write it
    return KernelUnderTest(launch.__name__, launch, operands=operands, spec=spec)


def _zeros(rng, shape):
    return np.zeros(shape)


WRONG = (
    _partly(kernels.off_for_fractions, 3, "within_bound"),
    _partly(kernels.off_for_fractions, 2, "within_bound", formats=("fp16", "bf16")),
    _partly(kernels.nan_becomes_zero, 5, "special_values"),
    _partly(kernels.right_for_one_shape, 3, "call_order"),
    _partly(kernels.right_for_one_call, 3, "same_bits_on_dirty_outputs"),
    _partly(kernels.in_halves_where_rows_are_few, 4, "row_bits_at_any_m", batch_invariant=True),
    _partly(kernels.counts_its_programs, 1, "no_races"),
    _partly(kernels.assumes_where_flagged, 30, "every_hint_holds"),
    _partly(kernels.off_by_one, 30, "call_order", expected=dict.fromkeys(FAILS, WHY)),
    PartlyJudged(_scaled(kernels.scaled_wrong, _zeros), 30, "within_bound"),
    PartlyJudged(_scaled(kernels.scaled_wrong, _zeros), 12, "exact_on_integers"),
)
RIGHT = (
    KernelUnderTest("product", kernels.right),
    KernelUnderTest("any_layout", kernels.right, Contract(formats=("bf16",), layouts="any")),
    KernelUnderTest("fp32_only", kernels.right, Contract(formats=("tf32",))),
    KernelUnderTest("whole_tiles", kernels.right, Contract(M="16..:16", N="32..:32", K="16..:16")),
    KernelUnderTest("every_row_alike", kernels.right, Contract(batch_invariant=True)),
    KernelUnderTest("with_empty_sides", kernels.right, Contract(M="0..", N="0..", K="0..")),
    KernelUnderTest("one_shape", kernels.right, Contract(M=48, N=32, K=64)),
    _scaled(kernels.scaled, None),
)

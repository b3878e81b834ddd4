"""The property that a result does not depend on what memory held before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from gemmproof.properties.finding import Finding
from gemmproof.properties.outcome import DIRTS, Outcome
from gemmproof.properties.tensors import as_array, format_of_tensor
from gemmproof.reference.formats import Array, bits

NAME = "same_bits_on_dirty_outputs"


def applies(outcome: Outcome) -> bool:
    """Whether the case was called more than once and every call gave a comparable result."""
    return outcome.result is not None and outcome.case.calls > 1


def judge(outcome: Outcome) -> Iterator[Finding]:
    """One finding if a later call's bits differ from the first call's."""
    first = outcome.result
    assert first is not None
    for call, run in enumerate(outcome.runs[1:], start=2):
        later = run.result
        if not isinstance(later, torch.Tensor) or format_of_tensor(later) is not outcome.out:
            return
        again = as_array(later)
        if again.shape != first.shape:
            return
        wrong = bits(again) != bits(first)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            got = f"{_shown(again, at)} in call {call} over {DIRTS[call - 1]} bytes"
            expected = f"{_shown(first, at)} as in call 1 over {DIRTS[0]} bytes"
            yield Finding(
                property=NAME,
                fault="bits_differ",
                message=f"c{list(at)}: got {got}, expected {expected}; {int(wrong.sum())} of"
                f" {wrong.size} elements differ",
                case=outcome.case,
                operand="c",
                got=got,
                expected=expected,
            )
            return


def _shown(x: Array, at: tuple[int, ...]) -> str:
    # NaNs differ in bits that no number shows
    return f"{x[at]} (0x{int(bits(x)[at]):0{2 * x.itemsize}x})"

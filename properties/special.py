"""The property that NaN, Inf and overflow are where the product has them, and nowhere else.

What counts is whether an element meets a special value, not in which order: one NaN in a row of a
spoils that row of c and no other element; Inf times 0 is NaN where both lanes are real. An element
that meets none is a number within its bound, unless it must overflow the result's format.
Signs of zeros are not judged: an accumulator that starts at 0 never holds -0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemmproof.properties import values
from gemmproof.properties.finding import Finding, Mismatch, make_finding
from gemmproof.properties.naming import word
from gemmproof.properties.observation import Observation
from gemmproof.reference.arithmetic import Array, widen
from gemmproof.reference.bounds import bound_rounding, special_values
from gemmproof.reference.formats import FORMATS

NAME = "special_values"


def applies(observation: Observation) -> bool:
    """Whether there is a float result of operands with NaN, Inf, subnormals and large numbers."""
    case = observation.case
    special = case.fill == "special" and case.format.kind == "float"
    return special and observation.has_result and observation.out.kind == "float"


def judge(observation: Observation) -> Iterator[Finding]:
    """One finding for each way in which a special value is lost, or is where none belongs."""
    a, b = (widen(x) for x in values.inputs(observation))
    got, out = widen(observation.result), observation.out
    odd = special_values(a, b)
    odd = np.zeros(got.shape) if odd is None else odd
    acc = values.accumulator(observation)
    bound = bound_rounding(acc, out, values.declared_model(observation).acc_format).error
    top = (np.abs(got) == out.max) | np.isinf(got)
    number = odd == 0
    # saturating stores of 8 bits clamp a NaN like anything else
    lost_nan = np.isnan(odd) & ~np.isnan(got) & ~(top & (out.itemsize == 1))
    right = top & (np.sign(got) == np.sign(odd))
    nan_allowed = not out.has_inf or _nan_for_inf(observation)
    lost_inf = np.isinf(odd) & ~right & ~(np.isnan(got) & nan_allowed)
    certain = number & (np.abs(acc.exact) - acc.error > out.max * (1 + out.u))
    right = top & (np.sign(got) == np.sign(acc.exact))
    overflow = certain & ~right & ~(np.isnan(got) & (not out.has_inf))
    judged = number & np.isfinite(bound)
    with np.errstate(invalid="ignore"):
        near = np.abs(got - acc.exact) <= bound
    spread = judged & ~np.isfinite(got)
    off = judged & np.isfinite(got) & ~near
    for fault, wrong, expected in (
        ("nan_lost", lost_nan, odd),
        ("inf_lost", lost_inf, odd),
        ("special_spread", spread, acc.exact),
        ("overflow", overflow, np.copysign(np.inf, acc.exact)),
        ("wrong_value", off, acc.exact),
    ):
        mismatch = Mismatch.of(wrong)
        if mismatch is not None:
            yield _find_misplaced(observation, fault, mismatch, expected, a, b)


def _nan_for_inf(observation: Observation) -> bool:
    """Whether NaN may stand where the product is Inf.

    It may where lanes beyond K meet Inf with a mask's zero (a mask on one operand is enough for
    numbers), where fp32 operands are multiplied in pieces (Inf less Inf is NaN), and where a narrow
    accumulator may overflow to the other sign.
    """
    tiles = observation.tiles
    whole = bool(tiles) and all(observation.case.K % tile[2] == 0 for tile in tiles)
    pieces = observation.case.dtype in ("fp32", "tf32")
    acc = FORMATS[observation.kernel.contract.accumulator]
    return not whole or pieces or acc.emax < FORMATS["fp32"].emax


def _find_misplaced(
    observation: Observation, fault: str, wrong: Mismatch, expected: Array, a: Array, b: Array
) -> Finding:
    got, want = f"{observation.result[wrong.at]}", f"{expected[wrong.at]:g}"
    *_, row, column = wrong.at
    lead = wrong.at[:-2]
    x, y = (word(observation, name) for name in "ab")
    lines = {f"{x}[{row}, *]": a[lead][row], f"{y}[*, {column}]": b[lead][:, column]}
    met = [
        f"{place} is {line[k]:g}"
        for place, line in lines.items()
        for k in np.flatnonzero(~np.isfinite(line))[:1]
    ]
    why = "; ".join(met) or "nothing that it meets is NaN or Inf"
    note = f" ({why}){wrong.counted('wrong')}"
    return make_finding(observation, NAME, fault, wrong, got, want, note)

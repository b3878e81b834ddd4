"""The property that NaN, Inf and overflow are where the product has them, and nowhere else.

What counts is whether an element meets something odd, not in which order: one NaN in a row of a
spoils that row of c and no other element; Inf times 0 is NaN where both lanes are real. An element
that meets nothing odd is a number within its bound, unless it must overflow the result's format.
Signs of zeros are not judged: an accumulator that starts at 0 never holds -0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemmproof.properties import values
from gemmproof.properties.finding import Finding
from gemmproof.properties.outcome import Outcome
from gemmproof.reference.bound import rounded
from gemmproof.reference.exact import special_values
from gemmproof.reference.formats import FORMATS, Array, widen

NAME = "special_values"


def applies(outcome: Outcome) -> bool:
    """Whether there is a float result of operands with NaN, Inf, subnormals and large numbers."""
    floats = outcome.out is not None and outcome.out.kind == "float"
    inputs = FORMATS[outcome.case.dtype].kind == "float"
    return outcome.result is not None and floats and inputs and outcome.case.fill == "special"


def judge(outcome: Outcome) -> Iterator[Finding]:
    """One finding for each way in which an odd value is lost, or is where none belongs."""
    assert outcome.result is not None
    assert outcome.out is not None
    a, b = (widen(x) for x in values.inputs(outcome))
    got, out = widen(outcome.result), outcome.out
    odd = special_values(a, b)
    odd = np.zeros(got.shape) if odd is None else odd
    acc = values.accumulator(outcome)
    bound = rounded(acc, out, values.declared_model(outcome).acc_format).error
    top = (np.abs(got) == out.max) | np.isinf(got)
    number = odd == 0
    # saturating stores of 8 bits clamp a NaN like anything else
    lost_nan = np.isnan(odd) & ~np.isnan(got) & ~(top & (out.itemsize == 1))
    right = top & (np.sign(got) == np.sign(odd))
    nan_allowed = not out.has_inf or _nan_for_inf(outcome)
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
        if wrong.any():
            yield _finding(outcome, fault, wrong, expected, a, b)


def _nan_for_inf(outcome: Outcome) -> bool:
    """Whether NaN may stand where the product is Inf.

    It may where lanes beyond K meet Inf with a mask's zero (a mask on one operand is enough for
    numbers), where fp32 operands are multiplied in pieces (Inf less Inf is NaN), and where a narrow
    accumulator may overflow to the other sign.
    """
    tiles = {tile for launch in outcome.runs[0].launches for tile in launch.tiles}
    whole = bool(tiles) and all(outcome.case.K % tile[2] == 0 for tile in tiles)
    pieces = outcome.case.dtype in ("fp32", "tf32")
    return not whole or pieces or outcome.kernel.contract.accumulator != "fp32"


def _finding(
    outcome: Outcome, fault: str, wrong: Array, expected: Array, a: Array, b: Array
) -> Finding:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    assert outcome.result is not None
    got, want = f"{outcome.result[at]}", f"{expected[at]:g}"
    *_, row, column = at
    lead = at[:-2]
    met = [
        f"{name}[{place}] is {line[k]:g}"
        for name, line, place in (
            ("a", a[lead][row], f"{row}, *"),
            ("b", b[lead][:, column], f"*, {column}"),
        )
        for k in np.flatnonzero(~np.isfinite(line))[:1]
    ]
    why = "; ".join(met) or "nothing that it meets is NaN or Inf"
    return Finding(
        property=NAME,
        fault=fault,
        message=f"c{list(at)}: got {got}, expected {want} ({why}); {int(wrong.sum())} of"
        f" {wrong.size} elements wrong",
        case=outcome.case,
        operand="c",
        got=got,
        expected=want,
    )

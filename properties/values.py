"""Properties of values: exact where sums are exact, within a derived bound everywhere else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemmproof.properties.finding import Finding
from gemmproof.properties.operands import stored
from gemmproof.properties.outcome import Outcome
from gemmproof.reference.bound import Accumulated, accumulated, rounded
from gemmproof.reference.dot import DotModel, dot_model
from gemmproof.reference.exact import exact_product
from gemmproof.reference.formats import FORMATS, Array, Format, round_to, widen

EXACT = "exact_on_integers"
BOUND = "within_bound"


def exact_applies(outcome: Outcome) -> bool:
    """Whether there is a result, and data whose sums no accumulator rounds."""
    integers = FORMATS[outcome.case.dtype].kind == "int"
    return outcome.result is not None and (integers or outcome.case.fill == "index")


def bound_applies(outcome: Outcome) -> bool:
    """Whether there is a result of a float GEMM of numbers; integer ones are exact or wrong."""
    floats = FORMATS[outcome.case.dtype].kind == "float"
    return outcome.result is not None and floats and outcome.case.fill != "special"


def inputs(outcome: Outcome) -> tuple[Array, Array]:
    """a (..., M, K) and b (..., K, N) as contiguous storage arrays."""
    if "inputs" not in outcome.memo:
        a, b = (
            stored(x).reshape(x.view.shape[1 if outcome.case.batch is None else 0 :])
            for x in outcome.operands
        )
        outcome.memo["inputs"] = (a, b)
    pair: tuple[Array, Array] = outcome.memo["inputs"]
    return pair


def exact(outcome: Outcome) -> Array:
    """The exact product (of index and integer data), or the nearest float64."""
    if "exact" not in outcome.memo:
        if bound_applies(outcome):
            outcome.memo["exact"] = accumulator(outcome).exact
        else:
            outcome.memo["exact"] = exact_product(*inputs(outcome))[0]
    product: Array = outcome.memo["exact"]
    return product


def accumulator(outcome: Outcome) -> Accumulated:
    """What the contract's accumulator holds before it is stored: exact value, error bound."""
    if "accumulated" not in outcome.memo:
        outcome.memo["accumulated"] = accumulated(*inputs(outcome), declared_model(outcome))
    acc: Accumulated = outcome.memo["accumulated"]
    return acc


def not_exact(outcome: Outcome) -> Array:
    """Where the result is not the exact product, rounded once where the output cannot hold it.

    No order of the sum rounds (fills.WINDOWS), so one rounding to nearest is all that is allowed;
    0 and -0 are equal. What overflows the output may be its largest value, Inf or NaN; an integer
    output must saturate.
    """
    got, want, out = _result(outcome), exact(outcome), _out(outcome)
    if out.kind == "int":
        if want.dtype == object:
            want = want.astype(np.float64)
        low = -out.max - 1 if out.name.startswith("int") else 0
        return np.asarray(got.astype(np.int64) != np.clip(want, low, out.max).astype(np.int64))
    nearest = round_to(want.astype(np.float64), out)
    wrong = np.asarray(got != nearest)
    beyond = ~np.isfinite(widen(nearest))
    if beyond.any():
        wide = widen(got)
        top = (np.abs(wide) == out.max) | np.isinf(wide)
        fits = np.isnan(wide) | (top & (np.sign(wide) == np.sign(want.astype(np.float64))))
        wrong[beyond] = ~fits[beyond]
    return wrong


def declared_model(outcome: Outcome) -> DotModel:
    """The dot of the target with the contract's accumulator, the IEEE chain without a target.

    A tensor core without the operands' format gets them in fp16 if they are fp8 (Triton converts
    them, exactly), and leaves the rest to multiply-adds.
    """
    target, dtype = outcome.target, outcome.case.dtype
    acc = outcome.kernel.contract.accumulator
    for stage, in_format in ((target, dtype), (target, "fp16" if "fp8" in dtype else dtype)):
        try:
            return dot_model(stage, in_format, acc)
        except ValueError:  # no such unit
            continue
    return dot_model(None, dtype, acc)


def error_and_bound(outcome: Outcome) -> tuple[Array, Array]:
    """|c - a b| and what the contract's accumulator and one rounding allow; float64 (..., M, N).

    Where the exact result may overflow the output the bound is Inf.
    """
    if "error" not in outcome.memo:
        held = declared_model(outcome).acc_format
        bound = rounded(accumulator(outcome), _out(outcome), held).error
        with np.errstate(invalid="ignore"):
            error = np.abs(widen(_result(outcome)) - exact(outcome))
        error[np.isnan(error)] = np.inf
        outcome.memo["error"] = (error, bound)
    pair: tuple[Array, Array] = outcome.memo["error"]
    return pair


def beyond_bound(outcome: Outcome) -> Array:
    """Where the error exceeds its bound."""
    error, bound = error_and_bound(outcome)
    return np.asarray(error > bound)


def largest_ratio(outcome: Outcome) -> float | None:
    """The largest finite error over its bound; 0 where both are 0, None where there is none."""
    error, bound = error_and_bound(outcome)
    judged = np.isfinite(bound) & np.isfinite(error)
    if not judged.any():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error[judged] == 0, 0.0, error[judged] / bound[judged])
    return float(ratio.max())


def judge_exact(outcome: Outcome) -> Iterator[Finding]:
    """One finding at the first element that is not exact."""
    wrong = not_exact(outcome)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        yield _finding(outcome, EXACT, at, int(wrong.sum()), None)


def judge_bound(outcome: Outcome) -> Iterator[Finding]:
    """One finding at the element whose error exceeds its bound most."""
    wrong = beyond_bound(outcome)
    if wrong.any():
        error, bound = error_and_bound(outcome)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(wrong, error / bound, 0.0)
        at = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
        yield _finding(outcome, BOUND, at, int(wrong.sum()), float(bound[at]))


def _finding(
    outcome: Outcome, name: str, at: tuple[int, ...], count: int, bound: float | None
) -> Finding:
    result = _result(outcome)
    got = _number(result[at])
    expected = _number(exact(outcome)[at])
    allowed = "" if bound is None else f", allowed error {bound:.3g}"
    elements = f"{count} of {result.size} elements" if result.size > 1 else "the only element"
    return Finding(
        property=name,
        fault="wrong_value",
        message=f"c{list(at)}: got {got}, expected {expected}{allowed}; {elements} wrong",
        case=outcome.case,
        operand="c",
        got=got,
        expected=expected,
        bound=bound,
    )


def _number(x: object) -> str:
    value = float(x)  # type: ignore[arg-type]
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _result(outcome: Outcome) -> Array:
    assert outcome.result is not None
    return outcome.result


def _out(outcome: Outcome) -> Format:
    assert outcome.out is not None
    return outcome.out

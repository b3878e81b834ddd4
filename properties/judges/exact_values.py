"""Judges of values: exact on integers, within the bound, special values."""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gemmproof.properties.cases.data import tie_bits
from gemmproof.properties.cases.operands import stored_elements
from gemmproof.properties.finding import Finding, Mismatch, make_finding
from gemmproof.properties.kernel import WRITTEN
from gemmproof.properties.observation import ObservedCase, remember, word
from gemmproof.reference.arithmetic import Array, round_to, widen, widen_nearest
from gemmproof.reference.bounds import (
    Accumulated,
    bound_accumulation,
    bound_rounding,
    exact_product,
    special_values,
)
from gemmproof.reference.dot import DotModel, dot_model
from gemmproof.reference.dot.tensor_core import Unit
from gemmproof.reference.formats import FORMATS, FP8, Format
from gemmproof.reference.spec import Rules, SpecArray, evaluate
from gemmproof.reference.spec.functions import approximations_unknown

# -- values --------------------------------------------------------------------------------------
EXACT = "exact_on_integers"
BOUND = "within_bound"

# How many k an fp8 unit of 13 bits may sum before fp32 sums take over: four wgmma, as in CUTLASS
# (mma_promotion_interval), DeepGEMM and the report on DeepSeek-V3 (arXiv 2412.19437, 3.5.2).
PROMOTED = 128
# options of a kernel, and elements of a result, for which a formula is evaluated once more
MOST_OPTIONS, MOST_EVALUATED = 48, 2**14


def exact_applies(observation: ObservedCase) -> bool:
    """Return whether there is a result, and data whose sums the accumulator does not round."""
    case = observation.case
    if observation.kernel.spec is not None:
        some = observation.has_result and case.fill != "special"
        return some and bool(evaluated(observation).exact.any())
    if not observation.has_result or case.sums_are_exact:
        return observation.has_result
    acc = FORMATS[observation.kernel.contract.accumulator]
    tied = case.fill == "ties" and acc.p >= tie_bits(case.format)
    return tied and observation.out.kind == "float"


def bound_applies(observation: ObservedCase) -> bool:
    """Return whether there is a result of a float GEMM of numbers; integers must be exact.

    The elements of a formula whose error has no bound do not count, such as integers beyond 2**31.
    """
    case = observation.case
    if not observation.has_result or case.fill == "special":
        return False
    if observation.kernel.spec is None:
        return case.format.kind == "float"
    known = evaluated(observation).known
    return bool(known.any()) or not known.size


@remember
def inputs(observation: ObservedCase) -> tuple[Array, Array]:
    """Return a (..., M, K) and b (..., K, N) as contiguous storage arrays."""
    a, b = (stored_elements(observation.operands[name]) for name in "ab")
    return a, b


@remember
def evaluate_all(observation: ObservedCase) -> tuple[SpecArray, ...]:
    """Evaluate the kernel's `spec`: every result. Raises a one-line ValueError."""
    return evaluate_with(observation, {})


def evaluate_with(
    observation: ObservedCase, other: Mapping[str, Any], **rules: Any
) -> tuple[SpecArray, ...]:
    """Evaluate the kernel's formula on the operands, of which `other` replaces some.

    `rules` replace some fields of those that the formula is evaluated by.
    """
    kernel, case = observation.kernel, observation.case
    read = (item for item in observation.operands.items() if item[1].use != WRITTEN)
    operands = {name: (stored_elements(x), x.dtype) for name, x in read}
    own = Rules(observation.target, kernel.contract.accumulator)
    values = {**operands, **kernel.values_of(case), **other}
    rules_here = replace(own, **rules)
    return evaluate(lambda **named: kernel.calculate(named, case.sides), values, rules_here)


def rests_on_approximations(observation: ObservedCase) -> bool:
    """Return whether no evaluation of the formula can give an exact element, whatever the operands.

    With every option of the kernel that this case has operands for, each element is computed from
    approximated functions by arithmetic alone. False where that is not known.
    """
    kernel = observation.kernel
    whole = evaluate_all(observation)
    if any(x.exact.any() or not x.known.any() for x in whole):  # no approximation gives these
        return False
    omissible = [name for name, x in kernel.tensors.items() if x.optional]
    if not {*omissible} <= {*observation.operands} or observation.result.size > MOST_EVALUATED:
        return False
    options: list[list[dict[str, Any]]] = [[{}, {name: None}] for name in omissible]
    options += [[{name: x} for x in choice.values] for name, choice in kernel.choices.items()]
    ways = list(itertools.islice(itertools.product(*options), MOST_OPTIONS + 1))
    chosen = (dict(ChainMap(*way)) for way in ways)
    return len(ways) <= MOST_OPTIONS and all(_is_approximated(observation, x) for x in chosen)


def _is_approximated(observation: ObservedCase, chosen: Mapping[str, Any]) -> bool:
    """Return whether the chosen values give a formula whose elements are all approximated."""
    try:
        with approximations_unknown() as choices:
            results = evaluate_with(observation, chosen)
    except ValueError:
        return False
    return not choices and not any(x.known.any() or x.exact.any() for x in results)


def evaluated(observation: ObservedCase) -> SpecArray:
    """Return the result that the kernel's `spec` gives. Raises a one-line ValueError."""
    return evaluate_all(observation)[observation.part]


def list_shapes(observation: ObservedCase) -> tuple[tuple[int, ...] | None, ...]:
    """Return the shape of each result that a call must give. Raises a one-line ValueError.

    With `memory_only` that is the one that the first call gave, None before it.
    """
    case, kernel = observation.case, observation.kernel
    if kernel.memory_only and not case.is_sampled:
        results = observation.calls[0].results if observation.calls else (None,)
        return tuple(None if x is None else x.shape for x in results)
    if kernel.spec is None or case.is_sampled:  # no formula is evaluated
        return (case.result_shape,) * max(1, len(kernel.written) * case.is_sampled)
    return tuple(c.shape for c in evaluate_all(observation))


def label_results(observation: ObservedCase) -> tuple[str, ...]:
    """Return the names of a call's results in messages."""
    return observation.kernel.label_results(len(list_shapes(observation)))


@remember
def exact(observation: ObservedCase) -> Array:
    """Return the exact product (of index and integer data), or the nearest float64."""
    if observation.kernel.spec is not None:
        return evaluated(observation).value
    if bound_applies(observation):
        return accumulator(observation).exact
    return exact_product(*inputs(observation))[0]


@remember
def accumulator(observation: ObservedCase) -> Accumulated:
    """Return the accumulator's exact value before it is stored, and its error bound."""
    if observation.kernel.spec is not None:
        c = evaluated(observation)
        return Accumulated(c.value, c.bound)
    model = declared_model(observation)
    return bound_accumulation(*inputs(observation), model, any_order=True)


def not_exact(observation: ObservedCase) -> Array:
    """Mark where the result is not the exact product, rounded once if the output cannot hold it.

    No order of the sum rounds (data.window), so only one rounding to nearest is allowed; 0 and -0
    are equal. A value that overflows the output may be its largest value, Inf or NaN; an integer
    output must saturate.
    """
    got, want, out = observation.result, exact(observation), observation.out
    if observation.kernel.spec is not None:
        return evaluated(observation).exact & _differs(got, want, out)
    return _differs(got, want, out)


def _differs(got: Array, want: Array, out: Format) -> Array:
    if out.kind == "int":
        if want.dtype == object:
            want = want.astype(np.float64)
        return np.asarray(
            got.astype(np.int64) != np.clip(want, *integer_range(out)).astype(np.int64)
        )
    nearest = round_to(want.astype(np.float64), out)
    wrong = np.asarray(got != nearest)
    beyond = ~np.isfinite(widen(nearest))
    if beyond.any():
        wide = widen(got)
        top = (np.abs(wide) == out.max) | np.isinf(wide)
        fits = np.isnan(wide) | (top & (np.sign(wide) == np.sign(want.astype(np.float64))))
        wrong[beyond] = ~fits[beyond]
    return wrong


def integer_range(fmt: Format) -> tuple[int, int]:
    """Return the lowest and the highest value of an integer format."""
    high = int(fmt.max)
    return (-high - 1 if fmt.storage.kind == "i" else 0), high


def declared_model(observation: ObservedCase) -> DotModel:
    """Return the declared accumulation, as a dot whose steps may hold any of the k.

    fp32 and fp16: as the target's tensor cores keep them, as IEEE arithmetic without a target. A
    tensor core that lacks the operands' format gets fp8 operands in fp16 (Triton converts them,
    exactly), and leaves the rest to multiply-adds. fp8 units that keep fewer bits than fp32
    count as fp32 where their sums start from zero at least every PROMOTED k and are added in fp32
    (wider units, to which Triton leaves small tiles, lose less: n (2**-25 + 2**-23) for n additions
    is below 127 * 2**-13, and below n * 2**-13); sums that never leave the unit are those of e8m13,
    for which no target is needed.
    """
    target, dtype = observation.target, observation.case.dtype
    acc = observation.kernel.contract.accumulator
    narrow = FORMATS[acc].stored is not FORMATS[acc]
    if narrow:
        bits = FORMATS[acc].p - 1
        unit = Unit("fused", 1, bits, bits, "rz", FORMATS[acc].emin)
        return replace(dot_model(None, dtype, FORMATS[acc].stored.name), unit=unit)
    for in_format in (dtype, "fp16" if dtype in FP8 else dtype):
        try:
            model = dot_model(target, in_format, acc)
        except ValueError:  # no such unit
            continue
        kept = FORMATS[model.acc_format].p - 1
        return replace(model, part=PROMOTED) if 0 < model.unit.F < kept else model
    return dot_model(None, dtype, acc)


def held_by(observation: ObservedCase) -> str:
    """Return the format that the accumulator holds before a result is stored."""
    if observation.kernel.spec is not None:
        return "fp32"
    integers = observation.case.format.kind == "int"
    return "int32" if integers else declared_model(observation).acc_format


@remember
def error_and_bound(observation: ObservedCase) -> tuple[Array, Array]:
    """Return |c - a b| and the error allowed by accumulator and one rounding; float64 (..., M, N).

    Where the exact result may overflow the output the bound is Inf, also if it overflows itself:
    a formula that is Inf or NaN for finite operands says nothing about c.
    """
    bound = bound_rounding(accumulator(observation), observation.out, held_by(observation)).error
    bound = np.where(np.isfinite(np.asarray(exact(observation), np.float64)), bound, np.inf)
    with np.errstate(invalid="ignore"):
        error = np.abs(widen_nearest(observation.result) - exact(observation))
    error[np.isnan(error)] = np.inf
    return error, bound + _rounding_to_float64(observation.result)


def _rounding_to_float64(x: Array) -> Array:
    """Return the most that a 64-bit integer loses as a float64; 0 for what is exact."""
    size = np.abs(widen_nearest(x))
    return np.where((x.dtype.kind in "iu") & (size > 2.0**53), np.spacing(size) / 2, 0.0)


def judge_stored(got: Array, c: SpecArray, out: Format) -> tuple[Array, Array]:
    """Mark the elements stored in `out` that differ from a formula's, and return the bound.

    As not_exact and beyond_bound judge a case: exact where no evaluation rounds, else within the
    bound and one rounding. Values that are Inf or NaN for some evaluations are not judged.
    """
    bound = bound_rounding(Accumulated(c.value, c.bound), out, "fp32").error
    with np.errstate(invalid="ignore"):
        error = np.abs(widen_nearest(got) - c.value)
        error[np.isnan(error)] = np.inf
        bound = bound + _rounding_to_float64(got)
        wrong = (error > bound) & np.isfinite(c.value) | c.exact & _differs(got, c.value, out)
    return wrong, bound


def beyond_bound(observation: ObservedCase) -> Array:
    """Mark where the error exceeds its bound."""
    error, bound = error_and_bound(observation)
    return np.asarray(error > bound)


def mark_wrong(observation: ObservedCase, name: str) -> Array:
    """Mark the elements that break the property of that name; every one, if it is not of values."""
    marks = {EXACT: not_exact, BOUND: beyond_bound}
    if name in marks:
        return marks[name](observation)
    return np.ones(observation.result.shape, np.bool_)


def largest_ratio(observation: ObservedCase) -> float | None:
    """Return the largest finite error over its bound; 0 if both are 0, or None."""
    error, bound = error_and_bound(observation)
    judged = np.isfinite(bound) & np.isfinite(error)
    return float(_ratio(error, bound)[judged].max()) if judged.any() else None


def _ratio(error: Array, bound: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / bound)


def judge_exact(observation: ObservedCase) -> Iterator[Finding]:
    """Yield one finding at the first element that is not exact."""
    wrong = Mismatch.of(not_exact(observation))
    if wrong is not None:
        yield _wrong_value(observation, EXACT, wrong, None)


def judge_bound(observation: ObservedCase) -> Iterator[Finding]:
    """Yield one finding at the element whose error exceeds its bound most."""
    beyond = beyond_bound(observation)
    wrong = Mismatch.of(beyond)
    if wrong is not None:
        error, bound = error_and_bound(observation)
        ratio = np.where(beyond, _ratio(error, bound), 0.0)
        at = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
        yield _wrong_value(observation, BOUND, replace(wrong, at=at), float(bound[at]))


def _wrong_value(
    observation: ObservedCase, name: str, wrong: Mismatch, bound: float | None
) -> Finding:
    got, exactly = observation.result[wrong.at], exact(observation)[wrong.at]
    expected = _number(exactly)
    note = "" if bound is None else f", allowed error {bound:.3g}"
    if bound is None and observation.out.kind == "float":
        nearest = widen(round_to(np.array(exactly, np.float64), observation.out))[()]
        if np.isfinite(nearest) and nearest != exactly:
            expected, note = _number(nearest), f", the nearest to {expected}"
    note += wrong.counted("wrong") if wrong.size > 1 else "; the only element wrong"
    if lines := list_reorders(observation):
        verb = "leaves" if len(lines) == 1 else "leave"
        note += f"; {' and '.join(lines)} {verb} the order of elements to the compiler"
    more = {"bound": bound}
    return make_finding(
        observation, name, "wrong_value", wrong, _number(got), expected, note, **more
    )


def list_reorders(observation: ObservedCase) -> list[str]:
    """List the operations, with their lines, that leave the order of elements to the compiler."""
    launches = observation.calls[0].run.launches if observation.is_simulated else ()
    return sorted({f"{word} at {where}" for x in launches for word, where in x.reorders if where})


def _number(x: object) -> str:
    value = float(x)  # type: ignore[arg-type]
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


# -- special values ------------------------------------------------------------------------------
NAME = "special_values"


def applies(observation: ObservedCase) -> bool:
    """Return whether special data (NaN, Inf, subnormals, large numbers) give a float result."""
    case = observation.case
    special = case.fill == "special" and case.format.kind == "float"
    return special and observation.has_result and observation.out.kind == "float"


def judge(observation: ObservedCase) -> Iterator[Finding]:
    """Yield one finding for each way in which a special value is lost or misplaced."""
    if observation.kernel.spec is not None:
        yield from _judge_formula(observation)
        return
    a, b = (widen(x) for x in inputs(observation))
    got, out = widen(observation.result), observation.out
    odd = special_values(a, b)
    odd = np.zeros(got.shape) if odd is None else odd
    acc = accumulator(observation)
    bound = bound_rounding(acc, out, declared_model(observation).acc_format).error
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


KEPT_NAN = (
    ", which np.maximum and np.minimum keep: pass propagate_nan=tl.PropagateNan.ALL to "
    "tl.maximum and tl.minimum, or write np.fmax and np.fmin in the formula"
)


def _judge_formula(observation: ObservedCase) -> Iterator[Finding]:
    """Yield the same for a formula: what every evaluation of it gives is what c must be.

    Where evaluations may differ (Inf that is multiplied out, NaN that a comparison meets), nothing
    is expected.
    """
    c, out = evaluated(observation), observation.out
    got = widen(observation.result)
    wrong, _ = judge_stored(observation.result, c, out)
    nan = np.isnan(c.value)
    # saturating stores of 8 bits clamp a NaN like anything else
    wrong &= ~(nan & (np.abs(got) == out.max) & (out.itemsize == 1))
    dropped = _drops_nan(observation, wrong & nan)
    for fault, marks, note in (
        ("nan_lost", dropped, KEPT_NAN),
        ("nan_lost", wrong & nan & ~dropped, ""),
        ("inf_lost", wrong & np.isinf(c.value), ""),
        ("special_spread", wrong & np.isfinite(c.value) & ~np.isfinite(got), ""),
        ("wrong_value", wrong & np.isfinite(c.value) & np.isfinite(got), ""),
    ):
        mismatch = Mismatch.of(marks)
        if mismatch is not None:
            value = _number(observation.result[mismatch.at])
            expected = _number(c.value[mismatch.at])
            note += mismatch.counted("wrong")
            yield make_finding(observation, NAME, fault, mismatch, value, expected, note)


def _drops_nan(observation: ObservedCase, marks: Array) -> Array:
    """Mark the elements that are right if maximum and minimum return the other operand for NaN."""
    if not marks.any():
        return marks
    other = evaluate_with(observation, {}, drops_nan=True)[observation.part]
    same = other.exact & ~_differs(observation.result, other.value, observation.out)
    return np.asarray(marks & same & ~np.isnan(other.value))


def _nan_for_inf(observation: ObservedCase) -> bool:
    """Return whether NaN is allowed where the product is Inf.

    It is where lanes beyond K meet Inf with a mask's zero (a mask on one operand is enough for
    numbers), where fp32 operands are multiplied in pieces (Inf less Inf is NaN), and where a narrow
    accumulator may overflow to the other sign.
    """
    tiles = observation.tiles
    whole = bool(tiles) and all(observation.case.K % tile[2] == 0 for tile in tiles)
    pieces = observation.case.dtype in ("fp32", "tf32")
    acc = FORMATS[observation.kernel.contract.accumulator]
    return not whole or pieces or acc.emax < FORMATS["fp32"].emax


def _find_misplaced(
    observation: ObservedCase, fault: str, wrong: Mismatch, expected: Array, a: Array, b: Array
) -> Finding:
    got, want = f"{observation.result[wrong.at]}", f"{expected[wrong.at]:g}"
    *_, row, column = wrong.at
    lead = wrong.at[:-2]
    x, y = (word(observation, name) for name in "ab")
    lines = {f"{x}[{row}, *]": a[lead][row], f"{y}[*, {column}]": b[lead][:, column]}
    reasons = [
        f"{line_name} is {line[k]:g}"
        for line_name, line in lines.items()
        for k in np.flatnonzero(~np.isfinite(line))[:1]
    ]
    why = "; ".join(reasons) or "nothing that it meets is NaN or Inf"
    note = f" ({why}){wrong.counted('wrong')}"
    return make_finding(observation, NAME, fault, wrong, got, want, note)

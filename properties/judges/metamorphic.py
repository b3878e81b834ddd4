"""Judges of relations between calls: transposed, permuted, scaled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gemmproof.properties.cases.case import COMPARE, Case
from gemmproof.properties.cases.generate import vary
from gemmproof.properties.cases.operands import copy_elements, operand_of
from gemmproof.properties.contract import ANY
from gemmproof.properties.finding import Finding, Mismatch, make_finding, place_of
from gemmproof.properties.judges import exact_values
from gemmproof.properties.observation import ObservedCase, Related, RelatedCall, word
from gemmproof.reference.arithmetic import Array, bits, round_to, widen, widen_nearest
from gemmproof.reference.formats import FORMATS

NAME = "symmetries"
RELATIONS = tuple(name for name in COMPARE if name not in ("order", "rows"))


def make_call(observation: ObservedCase) -> Iterator[RelatedCall]:
    """Yield the related call, none if the contract admits no such call."""
    case = replace(observation.case, compare=None, calls=1)
    relation, contract = observation.case.compare, observation.kernel.contract
    operands = observation.operands
    x, y = (word(observation, name) for name in "ab")
    a, b = operands["a"].data, operands["b"].data
    if relation == "negated" and not (a.dtype == np.int8 and (a == -128).any()):
        yield _call_on(case, _negate(a), b, f"{x} negated")
    elif relation == "scaled" and any(find_scales(observation)):
        s, t = find_scales(observation)
        small_a, small_b = (round_to(widen(x) * 2.0**-n, case.format) for x, n in ((a, s), (b, t)))
        yield _call_on(case, small_a, small_b, f"{x} times 2**-{s}, {y} times 2**-{t}")
    elif relation == "permuted_rows":
        exchanged = _take(a, _order(observation, case.M), 1)
        yield _call_on(case, exchanged, b, f"rows of {x} exchanged")
    elif relation == "permuted_columns":
        exchanged = _take(b, _order(observation, case.N), 2)
        yield _call_on(case, a, exchanged, f"columns of {y} exchanged")
    elif relation == "padded_k" and 0 < case.K == a.shape[2] == b.shape[1]:
        more = _more_k(observation)
        if longer := vary(case, contract, K=case.K + more):
            wide = np.pad(_code(a), ((0, 0), (0, 0), (0, more))).view(a.dtype)
            high = np.pad(_code(b), ((0, 0), (0, more), (0, 0))).view(b.dtype)
            yield _call_on(longer, wide, high, f"K={longer.K}, the last {more} zero")
    elif relation == "transposed":
        turned = vary(case, contract, M=case.N, N=case.M, layouts=())
        if turned and contract.layouts == ANY:
            first, second = (operands[name].tensor.transpose(-1, -2) for name in "ba")
            yield RelatedCall(turned, {"a": first, "b": second}, f"{y}^T {x}^T")
        elif turned:
            left, right = (_turn(copy_elements(operands[name])) for name in "ba")
            yield _call_on(turned, left, right, f"{y}^T {x}^T")


def _call_on(case: Case, a: Array, b: Array, text: str) -> RelatedCall:
    tensors = {name: operand_of(case, name, data).tensor for name, data in (("a", a), ("b", b))}
    return RelatedCall(case, tensors, text)


def _code(x: Array) -> Array:
    # as integers: numpy neither pads nor transposes an array of an fp8 dtype
    return np.ascontiguousarray(x).view(f"u{x.itemsize}")


def _turn(x: Array) -> Array:
    return np.ascontiguousarray(_code(x).swapaxes(-1, -2)).view(x.dtype)


def _negate(x: Array) -> Array:
    if x.dtype.kind == "i":
        return np.negative(x)
    return (_code(x) ^ np.array(1 << (8 * x.itemsize - 1), f"u{x.itemsize}")).view(x.dtype)


def _take(x: Array, order: Array, axis: int) -> Array:
    # a layout that repeats one line has nothing to exchange
    return x if x.shape[axis] == 1 else np.take(_code(x), order, axis).view(x.dtype)


def _order(observation: ObservedCase, side: int) -> Array:
    """Reverse every aligned block of the smallest tile side; the remainder stays."""
    order = np.arange(side)
    block = min((min(tile[:2]) for tile in observation.tiles), default=1)
    block = max(1, min(block, side))  # fewer lines than a block are one block
    whole = side - side % block
    order[:whole] = order[:whole].reshape(-1, block)[:, ::-1].ravel()
    return order


def _more_k(observation: ObservedCase) -> int:
    step = observation.kernel.contract.sizes("K").step
    block = max((tile[2] for tile in observation.tiles), default=1)
    return -(-(-observation.case.K % block or block) // step) * step


def find_scales(observation: ObservedCase) -> tuple[int, int]:
    """Return s and t such that 2**-s a, 2**-t b and their sums are normal (index data), or 0, 0."""
    case, out = observation.case, observation.out
    fmt = case.format
    if case.fill != "index" or fmt.kind != "float" or out.kind != "float":
        return 0, 0
    least = -max(out.emin, FORMATS[observation.kernel.contract.accumulator].emin)
    s = min(10, -fmt.emin, least)
    return s, min(10, -fmt.emin, least - s)


def applies(observation: ObservedCase) -> bool:
    """Return whether the case has a result and the related call was made."""
    return observation.case.compare in RELATIONS and len(observation.related) > 0


def judge(observation: ObservedCase) -> Iterator[Finding]:
    """Yield one finding at the first element that contradicts the related result."""
    (other,) = observation.related
    if lack := other.describe_lack(observation.out):
        got, expected = lack
        yield _not_related(
            observation, "the call", f"{got} for {other.asked.description}", expected
        )
        return
    here, there = _bring_back(observation, other)
    same = _same(here, there)
    if observation.case.compare == "negated":
        same |= _may_saturate(observation, there)
    if observation.case.compare == "scaled":
        # values beyond the range of the output format may have saturated
        wide = np.abs(widen_nearest(here))
        same |= ~np.isfinite(wide) | (
            wide == observation.out.max * 2.0 ** -sum(find_scales(observation))
        )
    allowed = None
    if not _is_bitwise(observation, other):
        if not exact_values.bound_applies(observation):
            return
        error, bound = exact_values.error_and_bound(observation)
        allowed = 2 * bound
        with np.errstate(invalid="ignore"):
            apart = np.abs(widen_nearest(here) - widen_nearest(there))
        same |= (apart <= allowed) | ~np.isfinite(bound) | (error > bound)
    wrong = Mismatch.of(~same)
    if wrong is not None:
        got = f"{wrong.number(there)} for {other.asked.description}"
        expected = f"{wrong.number(here)}, which the call without that gives"
        if allowed is not None:
            expected += f", or within {float(allowed[wrong.at]):.3g} of it"
        note = wrong.counted("differ")
        yield _not_related(observation, place_of(observation, wrong.at), got, expected, note)


def _bring_back(observation: ObservedCase, related: Related) -> tuple[Array, Array]:
    """Return both results, with the relation undone where that is exact."""
    first, other, case = observation.result, related.result, observation.case
    if case.compare == "negated":
        # the negative of the lowest integer does not fit its width
        other = -other.astype(np.int64) if observation.out.kind == "int" else _negate(other)
    elif case.compare == "scaled":
        first = round_to(widen(first) * 2.0 ** -sum(find_scales(observation)), observation.out)
    elif case.compare == "permuted_rows":  # the order is its own inverse
        other = _take(other, _order(observation, case.M), -2)
    elif case.compare == "permuted_columns":
        other = _take(other, _order(observation, case.N), -1)
    elif case.compare == "transposed":
        other = _turn(other)
    return first, other


def _same(x: Array, y: Array) -> Array:
    """Mark equal bits, with 0 equal to -0 and NaN equal to NaN."""
    if x.dtype.kind in "iu":
        return np.asarray(x == y)
    wide, other = widen(x), widen(y)
    return np.asarray((bits(x) == bits(y)) | (wide == other) | (np.isnan(wide) & np.isnan(other)))


def _may_saturate(observation: ObservedCase, there: Array) -> Array:
    """Mark where a result and a negated one may differ by saturation at the ends of the format.

    `there` is the related result negated: int64 for integers. x is the value before saturation:
    the upper end shows x >= high, so -x is at most -high, or the lower end.
    """
    out, here = observation.out, observation.result
    if out.kind == "float":
        odd = ~np.isfinite(exact_values.exact(observation).astype(np.float64))
        return odd & (out.itemsize == 1)
    low, high = exact_values.integer_range(out)
    first, second = here.astype(np.int64), -there
    return _saturates(first, second, low, high) | _saturates(second, first, low, high)


def _saturates(x: Array, y: Array, low: int, high: int) -> Array:
    """Mark where `x` is at an end, and `y` at or beyond that end's negative."""
    top = (x == high) & (y <= max(-high, low))
    return np.asarray(top | ((x == low) & (y >= min(-low, high))))


def _is_bitwise(observation: ObservedCase, other: Related) -> bool:
    relation = observation.case.compare
    if observation.case.sums_are_exact:
        return True
    if observation.out.kind == "int":  # a quantiser rounds in whatever direction
        return False
    if relation in ("negated", "scaled"):
        return True
    if relation not in ("permuted_rows", "permuted_columns"):
        return False
    assert other.call is not None
    launches = [*observation.calls[0].run.launches, *other.call.run.launches]
    tiles = {launch.tiles for launch in launches}
    one_dot = len(launches) == 2 and len(tiles) == 1 and len(tiles.pop()) == 1
    return one_dot and not any(launch.atomics for launch in launches)


def _not_related(
    observation: ObservedCase, where: str, got: str, expected: str, note: str = ""
) -> Finding:
    relation = observation.case.compare or ""
    axis = {"permuted_rows": "M", "permuted_columns": "N", "padded_k": "K"}.get(relation)
    more = {"operand": "c", "axis": axis}
    return make_finding(observation, NAME, f"not_{relation}", where, got, expected, note, **more)

"""The property that products related by a symmetry are: negated, scaled, permuted, padded, turned.

Bitwise where every correct kernel must give the same bits, within the sum of both bounds elsewhere:

- `negated`: rounding to nearest and toward zero commute with negation, so (-a) b = -(a b) bit for
  bit, 0 and -0 apart, whatever the order of the sum.
- `scaled`: index data are integers whose sums are exact, and 2**-s of them stay normal numbers of
  the operands, the accumulator and the result, so (2**-s a) (2**-t b) = 2**-(s + t) (a b) exactly.
- `permuted_rows`, `permuted_columns`: one program computes all rows (columns) of a tile alike, so
  exchanging rows of a within the aligned blocks of a tile exchanges those of c, bit for bit, if
  there is one launch, without atomics, all of whose dots have one shape. Else within the bound:
  a split or a second launch may sum other rows in another order.
- `padded_k`: zero columns of a and zero rows of b added to K change no sum that is exact; others
  may be split elsewhere, and stay within the bound.
- `transposed`: b^T a^T = (a b)^T where sums are exact; others may be tiled in another way, and stay
  within the bound. Where the contract admits any view, the operands are turned and not copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gemmproof.properties import values
from gemmproof.properties.case import COMPARE, Case
from gemmproof.properties.contract import ANY
from gemmproof.properties.finding import Finding
from gemmproof.properties.operands import Operand, operand_of, stored
from gemmproof.properties.outcome import Asked, Outcome, Twin
from gemmproof.properties.rows import shape_of, shown
from gemmproof.properties.strategies import admitted
from gemmproof.reference.formats import FORMATS, Array, bits, round_to, widen

NAME = "symmetries"
RELATIONS = tuple(name for name in COMPARE if name not in ("order", "rows"))


def asked(outcome: Outcome) -> Iterator[Asked]:
    """The related call, none where the case has no such twin that the contract admits."""
    case = replace(outcome.case, compare=None, calls=1)
    a, b = outcome.operands
    relation = outcome.case.compare
    if relation == "negated" and not (a.data.dtype == np.int8 and (a.data == -128).any()):
        yield _with(case, outcome, _negative(a.data), b.data, "a negated")
    elif relation == "scaled" and any(shifts := scales_of(outcome)):
        small_a, small_b = (
            round_to(widen(x.data) * 2.0**-shift, FORMATS[case.dtype])
            for x, shift in zip((a, b), shifts, strict=True)
        )
        words = f"a times 2**-{shifts[0]}, b times 2**-{shifts[1]}"
        yield _with(case, outcome, small_a, small_b, words)
    elif relation == "permuted_rows":
        order = _order(outcome, case.M)
        yield _with(case, outcome, _taken(a.data, order, 1), b.data, "rows of a exchanged")
    elif relation == "permuted_columns":
        order = _order(outcome, case.N)
        yield _with(case, outcome, a.data, _taken(b.data, order, 2), "columns of b exchanged")
    elif relation == "padded_k" and 0 < case.K == a.data.shape[2] == b.data.shape[1]:
        more = _more_k(outcome)
        longer = replace(case, K=case.K + more)
        if more and admitted(longer, outcome.kernel.contract):
            wide = np.pad(_code(a.data), ((0, 0), (0, 0), (0, more))).view(a.data.dtype)
            high = np.pad(_code(b.data), ((0, 0), (0, more), (0, 0))).view(b.data.dtype)
            yield _with(longer, outcome, wide, high, f"K={longer.K}, the last {more} zero")
    elif relation == "transposed":
        yield from _turned(case, outcome)


def _turned(case: Case, outcome: Outcome) -> Iterator[Asked]:
    turned = replace(case, M=case.N, N=case.M, a="row", b="row")
    contract = outcome.kernel.contract
    if not admitted(turned, contract):
        return
    a, b = outcome.operands
    if contract.layouts == ANY:
        x, y = b.tensor.transpose(-1, -2), a.tensor.transpose(-1, -2)
        yield Asked(turned, x, y, shape_of(turned), "b^T a^T")
        return
    yield _with(turned, outcome, _across(b), _across(a), "b^T a^T")


def _across(operand: Operand) -> Array:
    return np.ascontiguousarray(_code(stored(operand)).swapaxes(1, 2)).view(operand.data.dtype)


def _with(case: Case, outcome: Outcome, a: Array, b: Array, words: str) -> Asked:
    x, y = operand_of(case, "a", a), operand_of(case, "b", b)
    return Asked(case, x.tensor, y.tensor, shape_of(case), words)


def _code(x: Array) -> Array:
    # as integers: numpy pads and turns no array of an fp8 dtype
    return np.ascontiguousarray(x).view(f"u{x.itemsize}")


def _negative(x: Array) -> Array:
    if x.dtype.kind == "i":
        return np.negative(x)
    return (_code(x) ^ np.array(1 << (8 * x.itemsize - 1), f"u{x.itemsize}")).view(x.dtype)


def _taken(x: Array, order: Array, axis: int) -> Array:
    # a layout that repeats one line has nothing to exchange
    return x if x.shape[axis] == 1 else np.take(_code(x), order, axis).view(x.dtype)


def _order(outcome: Outcome, side: int) -> Array:
    """Every aligned block of the smallest tile side turned round; what is left over stays."""
    order = np.arange(side)
    block = min((min(tile[:2]) for tile in _tiles(outcome)), default=1)
    for start in range(0, side if block > 1 else 0, block):
        stop = min(start + block, side)
        if stop - start == block or side < block:
            order[start:stop] = order[start:stop][::-1]
    return order


def _tiles(outcome: Outcome) -> set[tuple[int, int, int]]:
    return {tile for launch in outcome.runs[0].launches for tile in launch.tiles}


def _more_k(outcome: Outcome) -> int:
    step = outcome.kernel.contract.multiples[2]
    block = max((tile[2] for tile in _tiles(outcome)), default=1)
    rest = -outcome.case.K % block
    return -(-(rest or block) // step) * step


def scales_of(outcome: Outcome) -> tuple[int, int]:
    """s and t such that 2**-s a, 2**-t b and their sums are normal for index data; 0, 0 if none."""
    case, out = outcome.case, outcome.out
    fmt = FORMATS[case.dtype]
    if case.fill != "index" or fmt.kind != "float" or out is None or out.kind != "float":
        return 0, 0
    least = -max(out.emin, FORMATS[outcome.kernel.contract.accumulator].emin)
    s = min(10, -fmt.emin, least)
    return s, min(10, -fmt.emin, least - s)


def applies(outcome: Outcome) -> bool:
    """Whether the case has a result and the related call was made."""
    return outcome.case.compare in RELATIONS and len(outcome.twins) > 0


def judge(outcome: Outcome) -> Iterator[Finding]:
    """One finding at the first element that is not what the related result says."""
    (twin,) = outcome.twins
    relation = outcome.case.compare
    first = outcome.result
    assert first is not None
    assert relation is not None
    if twin.run is None:
        assert twin.raised is not None
        got = f"{twin.raised.text} for {twin.asked.words}"
        yield _finding(outcome, twin, "the call", got, "a result")
        return
    if twin.result is None or twin.out is not outcome.out:
        got = f"a result of {getattr(twin.run.result, 'dtype', type(twin.run.result).__name__)}"
        yield _finding(outcome, twin, "the call", got, f"one of {outcome.out}")
        return
    here, there = _brought_back(outcome, twin)
    same = _same(here, there)
    if relation == "scaled":
        # what left the range of the output format may have saturated
        assert outcome.out is not None
        wide = np.abs(widen(here))
        same |= ~np.isfinite(wide) | (wide == outcome.out.max * 2.0 ** -sum(scales_of(outcome)))
    allowed = None
    if not _bitwise(outcome, twin):
        if not values.bound_applies(outcome):
            return
        error, bound = values.error_and_bound(outcome)
        allowed = 2 * bound
        with np.errstate(invalid="ignore"):
            apart = np.abs(widen(here) - widen(there))
        same |= (apart <= allowed) | ~np.isfinite(bound) | (error > bound)
    wrong = ~same
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        got = f"{shown(there, at)} for {twin.asked.words}"
        expected = f"{shown(here, at)}, which the call without that gives"
        if allowed is not None:
            expected += f", or within {float(allowed[at]):.3g} of it"
        count = f"{int(wrong.sum())} of {wrong.size} elements differ"
        yield _finding(outcome, twin, f"c{list(at)}", got, f"{expected}; {count}")


def _brought_back(outcome: Outcome, twin: Twin) -> tuple[Array, Array]:
    """The case's result, and its twin's with the relation undone, where it is undone exactly."""
    first, other, case = outcome.result, twin.result, outcome.case
    assert first is not None
    assert other is not None
    assert outcome.out is not None
    if case.compare == "negated":
        other = _negative(other)
    elif case.compare == "scaled":
        first = round_to(widen(first) * 2.0 ** -sum(scales_of(outcome)), outcome.out)
    elif case.compare == "permuted_rows":
        other = _back(other, _order(outcome, case.M), -2)
    elif case.compare == "permuted_columns":
        other = _back(other, _order(outcome, case.N), -1)
    elif case.compare == "transposed":
        other = np.ascontiguousarray(_code(other).swapaxes(-1, -2)).view(other.dtype)
    return first, other


def _back(x: Array, order: Array, axis: int) -> Array:
    return np.ascontiguousarray(np.take(_code(x), order, axis)).view(x.dtype)  # its own inverse


def _same(x: Array, y: Array) -> Array:
    """The same bits, 0 and -0 being one; NaN is NaN."""
    if x.dtype.kind in "iu":
        return np.asarray(x == y)
    wide, other = widen(x), widen(y)
    return np.asarray((bits(x) == bits(y)) | (wide == other) | (np.isnan(wide) & np.isnan(other)))


def _bitwise(outcome: Outcome, twin: Twin) -> bool:
    relation, case = outcome.case.compare, outcome.case
    if relation in ("negated", "scaled") or values.exact_applies(outcome):
        return True
    if relation in ("permuted_rows", "permuted_columns"):
        assert twin.run is not None
        launches = [*outcome.runs[0].launches, *twin.run.launches]
        tiles = {launch.tiles for launch in launches}
        one_dot = len(launches) == 2 and len(tiles) == 1 and len(tiles.pop()) == 1
        return one_dot and not any(launch.atomics for launch in launches)
    return FORMATS[case.dtype].kind == "int"


def _finding(outcome: Outcome, twin: Twin, place: str, got: str, expected: str) -> Finding:
    relation = outcome.case.compare
    axis = {"permuted_rows": "M", "permuted_columns": "N", "padded_k": "K"}.get(relation or "")
    return Finding(
        property=NAME,
        fault=f"not_{relation}",
        message=f"{place}: got {got}, expected {expected}",
        case=outcome.case,
        operand="c",
        axis=axis,
        got=got,
        expected=expected,
    )

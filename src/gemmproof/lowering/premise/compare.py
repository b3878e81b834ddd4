"""Each model that predicted a dot beside what the compiler made of that dot.

A contradiction needs both sides: what was not recognised in the compiled program contradicts
nothing, and is told as not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gemmproof.lowering.premise.aspects import compare_instruction, compare_sums
from gemmproof.lowering.premise.compiled import CompiledDot
from gemmproof.lowering.premise.order import read_width
from gemmproof.lowering.premise.predicted import Predicted
from gemmproof.lowering.record import FMA, UNKNOWN, DotInstruction

AGREED, NOT_KNOWN, CONTRADICTED = "as predicted", "not known", "contradicted"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A model beside the compiled dot: `status`, and a line that says why where it is not agreed.

    `open` are the premises of an agreed one that the compiled program does not tell.
    """

    status: str
    line: str = ""
    open: tuple[str, ...] = ()


def compare(predicted: Sequence[Predicted], compiled: Sequence[CompiledDot]) -> list[Comparison]:
    """What becomes of each model of one launch."""
    by_line = {one.where: one for one in compiled}
    named = {one.where for one in predicted}
    found = []
    for one in predicted:
        dot = by_line.get(one.where)
        if dot is None or one.tile not in dot.tiles:
            dot = _find_moved(one, compiled, named) or dot
        models = [x for x in predicted if x.where == one.where]
        found.append(_compare_one(one, dot, models))
    return found


def _find_moved(
    one: Predicted, compiled: Iterable[CompiledDot], named: set[str]
) -> CompiledDot | None:
    """The only dot of this tile at a line without a prediction.

    A sum that is folded into a dot gives it its own line.
    """
    others = [x for x in compiled if x.where not in named and one.tile in x.tiles]
    return others[0] if len(others) == 1 else None


def _compare_one(
    one: Predicted, dot: CompiledDot | None, models: Sequence[Predicted]
) -> Comparison:
    shown = one.where or "line unknown"
    if dot is None or one.tile not in dot.tiles:
        tile = "x".join(map(str, one.tile))
        words = f"no dot of {tile} stands at this line of the compiled program"
        return Comparison(NOT_KNOWN, f"{shown}: {words}")
    instructions = _list_products(dot)
    if not instructions:
        return Comparison(NOT_KNOWN, f"{shown}: no instruction that multiplies is recognised")
    if any(x.unit == UNKNOWN for x in instructions):
        names = " ".join(x.name for x in instructions if x.unit == UNKNOWN)
        return Comparison(NOT_KNOWN, f"{shown}: {names} is not recognised")
    judged = [(compare_instruction(one, x, dot), x) for x in instructions]
    # of a line with several dots each instruction is one of some; else every one is this dot's
    is_only = dot.kinds == 1 and len({(x.tile, x.formats) for x in models}) == 1
    wrong = [aspects for (aspects, _), _ in judged if aspects]
    differs: tuple[str, ...] = ()
    if len(wrong) == len(judged):
        differs = min(wrong, key=len)
    elif is_only and len(models) == 1 and wrong:
        differs = wrong[0]
    told = [x for (_, x), _ in judged]
    open_ = min(told, key=len) if told else ()
    if is_only:
        sums, untold = compare_sums(one, dot, instructions)
        differs, open_ = (*differs, *sums), (*open_, *untold)
    if differs:
        both = f"predicted as {one}; compiled to {_describe(dot, instructions)}"
        return Comparison(CONTRADICTED, f"{shown}: {both} (they differ in {', '.join(differs)})")
    return Comparison(AGREED, open=tuple(dict.fromkeys(open_)))


def _list_products(dot: CompiledDot) -> list[DotInstruction]:
    """What multiplies at a line: those of the tensor cores where there are any.

    A multiply-add of integers beside them computes an address.
    """
    found = [x for lowering in dot.lowerings for x in lowering.instructions]
    cores = [x for x in found if x.unit != FMA and (x.unit != UNKNOWN or x.name)]
    kept = cores or [x for x in found if x.unit == FMA and x.accumulator[:1] == "f"]
    joined: dict[DotInstruction, list[DotInstruction]] = {}
    for x in kept:
        joined.setdefault(replace(x, count=0, from_zero=0, or_zero=0), []).append(x)
    return [
        replace(
            kind,
            count=sum(x.count for x in same),
            from_zero=sum(x.from_zero for x in same),
            or_zero=sum(x.or_zero for x in same),
        )
        for kind, same in joined.items()
    ]


def _describe(dot: CompiledDot, instructions: Sequence[DotInstruction]) -> str:
    """The compiled dot, as a report names it."""
    counted: Counter[str] = Counter()
    for x in instructions:
        shape = "" if x.shape is None else " m{}n{}k{}".format(*x.shape)
        formats = f" of {x.a} x {x.b}" if x.a else ""
        saturates = " saturating" if "satfinite" in x.name else ""
        counted[f"{x.name if x.unit == FMA else x.unit}{shape}{formats} onto {x.accumulator}"
                f"{saturates}"] += x.count  # fmt: skip
    words = [f"{count} {name}" for name, count in counted.items()]
    for lowering in dot.lowerings:
        if width := read_width(lowering.layouts[0]):
            words.append(f"kWidth {width}")
        if lowering.promoted_k is not None:
            words.append(f"sums of {lowering.promoted_k} of k from zero")
        if lowering.precision:
            words.append(f"fp32 by {lowering.precision}")
    return ", ".join(dict.fromkeys(words))

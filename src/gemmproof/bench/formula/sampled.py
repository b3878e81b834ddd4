"""Sampled blocks of c as the formula gives them, exactly, with the bound that follows from it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gemmproof.bench.formula.blocks import (
    LENGTHS,
    Block,
    Span,
    cut,
    find_spans,
    find_trial,
    list_names,
    list_texts,
)
from gemmproof.bench.formula.stated import Stated, to_storage
from gemmproof.bench.operands import Buffers
from gemmproof.properties.cases.data import format_of_tensor
from gemmproof.properties.judges.exact_values import judge_stored
from gemmproof.reference.arithmetic import widen
from gemmproof.reference.spec import Rules, SpecArray, SpecError, evaluate
from gemmproof.target import TargetError

LARGEST = 2**25  # elements of an operand that a formula is evaluated on, in float64
Spans = Mapping[str, list[Span]]


@dataclass(frozen=True, slots=True)
class Sample:
    """A block of the result of set `number`: what the formula gives for it."""

    number: int
    block: Block
    c: SpecArray

    def judge(self, result: torch.Tensor) -> str:
        """The first element that is wrong, in words; "" where there is none."""
        out = format_of_tensor(result)
        assert out is not None
        got = to_storage(result[tuple(slice(*span) for span in self.block.values())])
        wrong, bound = judge_stored(got, self.c, out)
        if not wrong.any():
            return ""
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        starts = [start for start, _ in self.block.values()]
        place = [start + i for start, i in zip(starts, at, strict=True)]
        return (
            f"c{place} of buffer {self.number}: got {float(widen(got)[at])!r},"
            f" expected {float(self.c.value[at])!r}, allowed error {bound[at]:.3g};"
            f" {int(wrong.sum())} of {wrong.size} elements wrong in that block"
        )


def sample(
    stated: Stated, sets: Sequence[Buffers], target: str | None, beat: Callable[[], None]
) -> list[Sample]:
    """Blocks of the first set and of the last one.

    `target` is the GPU whose units the bound admits (spec.Rules). Raises TargetError, in one line,
    for a formula that cannot be evaluated so, or of whose values no bound is known.
    """
    beat()
    spans = _choose_spans(stated, sets[0], target)
    made = []
    for number, block in _list_blocks(spans, len(sets) - 1):
        beat()
        made.append(Sample(number, block, _evaluate(stated, sets[number], target, block)))
    if not any(x.c.known.any() for x in made):
        raise TargetError(
            f"spec at {stated.problem} {stated.fmt.name}: got values without a known bound,"
            " expected some that a result can be judged by"
        )
    return made


def _list_blocks(spans: Spans, last: int) -> list[tuple[int, Block]]:
    """The diagonal of c in the first set, both other corners in the last one."""
    places = [(0, i, i) for i in range(3)] + [(last, 0, -1), (last, -1, 0)]
    made: list[tuple[int, Block]] = []
    for number, i, j in places:
        turns = {"batch": i, "M": i, "N": j}
        block: Block = {axis: own[turns[axis] % len(own)] for axis, own in spans.items()}
        if (number, block) not in made:
            made.append((number, block))
    return made


def _choose_spans(stated: Stated, buffers: Buffers, target: str | None) -> Spans:
    """As many axes in blocks as the formula admits, by trial: what it gives for a block of a part
    of c is what it gives for the part. Columns that are normalised, or an operand of row numbers,
    make an axis be taken whole.
    """
    sizes, shapes = stated.sizes, [shape for _, shape in stated.axes.values()]
    axes_of_c: list[str] = [axis for axis in ("batch", "M", "N") if axis in sizes]
    texts = {axis: list_texts(axis, shapes) for axis in axes_of_c}
    whole = {axis: [(0, sizes[axis])] for axis in texts}
    cut_up = {
        axis: whole[axis] if _may_hold_places(stated, axis) else find_spans(axis, sizes, own)
        for axis, own in texts.items()
    }
    why = ""
    for axes in (set(LENGTHS), {"N", "batch"}, {"M", "batch"}, {"M", "N"}, set[str]()):
        spans = {axis: cut_up[axis] if axis in axes else whole[axis] for axis in whole}
        trials = {a: find_trial(a, own, sizes, texts[a]) for a, own in spans.items()}
        part = {axis: trial[0] for axis, trial in trials.items()}
        block = {axis: trial[1] for axis, trial in trials.items()}
        try:
            if part == block:  # and so is every sample
                _require_small(stated, buffers, spans)
                return spans
            c, own = (_evaluate(stated, buffers, target, x) for x in (part, block))
        except TargetError as mistake:
            why = why or str(mistake)
            continue
        inner = tuple(
            slice(block[axis][0] - part[axis][0], block[axis][1] - part[axis][0]) for axis in part
        )
        with np.errstate(invalid="ignore"):
            differs = np.abs(c.value[inner] - own.value) > c.error[inner] + own.error
        if not differs.any():
            return spans
        why = why or (
            f"spec at {stated.problem}: got rows or columns that depend on one another in"
            f" operands of more than {LARGEST} elements, expected smaller shapes"
        )
    raise TargetError(why)


def _may_hold_places(stated: Stated, axis: str) -> bool:
    """Whether a function may have drawn places along an axis, such as where groups of rows begin.

    It draws along the axis, or has a name for it or for what such a function drew before.
    """
    known = {axis}
    for name, operand in stated.read.items():
        if callable(operand.values):
            over = set().union(*(list_names(text) for text in operand.axes)) & {axis}
            if over or known & set(inspect.signature(operand.values).parameters):
                known.add(name)
    return known != {axis}


def _require_small(stated: Stated, buffers: Buffers, spans: Spans) -> None:
    block = {axis: own[-1] for axis, own in spans.items()}
    for name, (_, axes) in stated.axes.items():
        shape = cut(buffers.tensors[name], axes, stated.sizes, block).shape
        if math.prod(shape) > LARGEST:
            raise TargetError(
                f"spec at {stated.problem}: got {name} of {tuple(shape)} for a block of c,"
                f" expected at most {LARGEST} elements"
            )


def _evaluate(stated: Stated, buffers: Buffers, target: str | None, block: Block) -> SpecArray:
    """What the formula gives for a block. Raises TargetError, in one line."""
    kernel, place = stated.kernel, f"{stated.problem} {stated.fmt.name}"
    given: dict[str, Any] = dict(stated.values)
    _require_small(stated, buffers, {axis: [span] for axis, span in block.items()})
    for name, (fmt, axes) in stated.axes.items():
        part = cut(buffers.tensors[name], axes, stated.sizes, block)
        given[name] = (to_storage(part), fmt)
    rules = Rules(target, kernel.contract.accumulator)
    try:
        results = evaluate(lambda **named: kernel.calculate(named), given, rules)
    except SpecError as mistake:
        raise TargetError(f"{mistake} (at {place})") from None
    shape = tuple(stop - start for start, stop in block.values())
    got = [x.shape for x in results]
    if got != [shape]:
        raise TargetError(f"spec at {place}: got results of shapes {got}, expected {shape}")
    return results[0]

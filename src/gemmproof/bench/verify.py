"""Verification of results before they are timed, whole or in sampled blocks."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gemmproof.bench.device_operands import Buffers, draw_uniform, fill_integers, make_buffers
from gemmproof.bench.problems import Problem
from gemmproof.bench.timed_calls import Leg, poison
from gemmproof.properties.cases.data import TORCH_DTYPES, as_tensor, format_of_tensor
from gemmproof.properties.contract import ROLES, evaluate_relation
from gemmproof.properties.judges.exact_values import judge_stored
from gemmproof.properties.kernel import UPDATED, KernelUnderTest, Operand
from gemmproof.reference.arithmetic import Array, round_to, widen
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.reference.spec import Rules, SpecArray, SpecError, evaluate
from gemmproof.target import TargetError

# -- blocks of c ---------------------------------------------------------------------------------
# Along each axis: lengths of a block, and what the start of one in the middle is a multiple of, if
# the length is no more, so that axes such as "N // 128" can be cut too.
LENGTHS: Mapping[str, tuple[int, ...]] = {"M": (16, 128, 256), "N": (32, 128, 256), "batch": (1,)}
STEPS: Mapping[str, int] = {"M": 128, "N": 128, "batch": 1}
Span = tuple[int, int]
Block = Mapping[str, Span]


def find_spans(axis: str, sizes: Mapping[str, int], texts: Iterable[str]) -> list[Span]:
    """The first, a middle and the last block of an axis; the last one reaches its end.

    One span, the whole axis, where it is short, or no blocks of the axis are blocks of all `texts`,
    the axes of operands that are stated over it.
    """
    length, known = sizes[axis], list(texts)
    for width in LENGTHS[axis]:
        step = max(width, STEPS[axis])
        middle, aligned = length // step // 2 * step, (length - 1) // step * step
        ends = [((length - 1) // width * width, length), (aligned, length)]
        last = [span for span in ends if _fits(axis, span, sizes, known)][:1]
        spans = dict.fromkeys([(0, min(width, length)), (middle, middle + width), *last])
        found = [span for span in spans if _fits(axis, span, sizes, known)]
        if found and found[0][0] == 0:
            return found
    return [(0, length)]


def find_trial(
    axis: str, spans: list[Span], sizes: Mapping[str, int], texts: Iterable[str]
) -> tuple[Span, Span]:
    """A part of an axis from 0 on, of two blocks where it has them, and the last block of it."""
    width, length = spans[0][1], sizes[axis]
    step = max(width, STEPS[axis])
    if len(spans) == 1:
        return (0, min(2 * step, length)), spans[0]
    near = [(start, min(start + width, length)) for start in (width, step)]
    second = next(s for s in (*near, spans[1]) if _fits(axis, s, sizes, list(texts)))
    return (0, second[1]), second


def cut(
    x: torch.Tensor, axes: Iterable[str | int], sizes: Mapping[str, int], block: Block
) -> torch.Tensor:
    """The part of an operand that a block of c needs; other axes, such as K, are whole."""
    index = []
    for axis in axes:
        named = sorted(list_names(axis) & set(block))
        if not named:
            index.append(slice(None))
            continue
        start, stop = block[named[0]]
        first = _size(axis, named[0], start, sizes)
        index.append(slice(first, first + _size(axis, named[0], stop - start, sizes)))
    return x[tuple(index)]


def list_texts(axis: str, shapes: Iterable[Iterable[str | int]]) -> list[str]:
    """The axes of operands that are stated over an axis of c."""
    return [text for shape in shapes for text in map(str, shape) if axis in list_names(text)]


def _fits(axis: str, span: Span, sizes: Mapping[str, int], texts: Iterable[str]) -> bool:
    """Whether a span of an axis is one of every text: each x of it lies as far as if it began at 0.

    size(start + x) = size(start) + size(x) for every x up to the span's length, which has some.
    """
    start, stop = span
    if not start < stop <= sizes[axis]:
        return False
    for text in texts:
        if len(list_names(text) & set(LENGTHS)) > 1:
            return False
        first = _size(text, axis, start, sizes)
        own = [_size(text, axis, x, sizes) for x in range(stop - start + 1)]
        if own[0] != 0 or own[-1] < 1:
            return False
        if any(_size(text, axis, start + x, sizes) != first + n for x, n in enumerate(own)):
            return False
    return True


def _size(text: str | int, axis: str, length: int, sizes: Mapping[str, int]) -> int:
    return evaluate_relation(str(text), {"batch": 1, **sizes, axis: length})


def list_names(text: str | int) -> set[str]:
    """What an axis is stated over."""
    return {n.id for n in ast.walk(ast.parse(str(text))) if isinstance(n, ast.Name)}


# -- declared operands ---------------------------------------------------------------------------
_STORED = {TORCH_DTYPES[f.name]: f for f in FORMATS.values() if f.stored is f}


@dataclass(frozen=True, slots=True)
class Stated:
    """What a kernel takes on a problem with a and b in a format: shapes, values, and the formula.

    Of a OneOf it is the first value. `columns`: b is in column-major memory. Raises ValueError, in
    one line, for shapes that are none.
    """

    kernel: KernelUnderTest
    problem: Problem
    fmt: Format
    columns: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        """What the shapes are stated over."""
        lead = {} if self.problem.batch is None else {"batch": self.problem.batch}
        integers = {n: x for n, x in self.values.items() if type(x) is int}
        sides = {axis: int(getattr(self.problem, axis)) for axis in ("M", "N", "K")}
        return {**integers, **sides, **lead}

    @property
    def values(self) -> dict[str, Any]:
        """The Python values by name."""
        return {name: one.values[0] for name, one in self.kernel.choices.items()}

    @property
    def read(self) -> dict[str, Operand]:
        """The tensors that it states and reads; a and b are there if they are not as usual."""
        return {name: x for name, x in self.kernel.tensors.items() if not x.is_result}

    @property
    def axes(self) -> dict[str, tuple[str, tuple[str | int, ...]]]:
        """Of every tensor that is read: the name of its format, and the axes of its shape."""
        lead = () if self.problem.batch is None else ("batch",)
        usual = {name: (self.fmt.name, (*lead, *role.axes)) for name, role in ROLES.items()}
        return {**usual, **{name: (x.format, x.axes) for name, x in self.read.items()}}

    def describe(self) -> dict[str, str]:
        """Every operand that is stated, as reports show it: its format and axes, or its value."""
        said = {
            n: f"{x.format}[{', '.join(map(str, x.axes))}]" for n, x in self.kernel.tensors.items()
        }
        return {**said, **{name: repr(x) for name, x in self.values.items()}}

    def make(self, device: str) -> Buffers:
        """One set without data. Raises torch.OutOfMemoryError where there is no room for it."""
        usual = make_buffers(self.problem, self.fmt, device)
        made = {
            name: torch.empty(x.sides(self.sizes), dtype=TORCH_DTYPES[x.format], device=device)
            for name, x in self.read.items()
        }
        a, b = made.pop("a", usual.a), made.pop("b", usual.b)
        b = torch.empty_like(b.mT, memory_format=torch.contiguous_format).mT if self.columns else b
        return Buffers(a, b, {**made, **self.values})

    def fill(self, buffers: Buffers, seed: int) -> None:
        """Uniform data of a seed (operands.draw_uniform); what a function draws is copied.

        Raises TargetError, in one line, where such a function gives no array of that shape.
        """
        generator = torch.Generator(buffers.a.device).manual_seed(seed)
        known: dict[str, Any] = {**self.values, **self.sizes}
        for name, x in buffers.tensors.items():
            stated = self.read.get(name)
            if stated is None:
                draw_uniform(x, self.fmt, generator)
                continue
            if not callable(stated.values):
                draw_uniform(x, FORMATS[stated.format], generator, stated.values)
            else:
                try:
                    x.copy_(_draw(stated, tuple(x.shape), known, seed))
                except Exception as mistake:  # a function of theirs may raise anything
                    words = " ".join(f"{type(mistake).__name__}: {mistake}".split())
                    raise TargetError(f"operand {name} at {self.problem}: {words}") from None
            known[name] = x


def _draw(stated: Operand, sides: tuple[int, ...], known: dict[str, Any], seed: int) -> Any:
    """What the function of an operand draws, of what is known that it has a name for."""
    function: Any = stated.values
    takes = inspect.signature(function).parameters
    given = {
        name: to_storage(x) if isinstance(x, torch.Tensor) else x
        for name, x in known.items()
        if name in takes
    }
    made = np.asarray(function(np.random.default_rng(seed), sides, **given))
    if made.shape != sides:
        raise ValueError(f"got shape {made.shape}, expected {sides}")
    fmt = FORMATS[stated.format]
    return as_tensor(
        made.astype(fmt.storage) if fmt.kind == "int" else round_to(made, fmt), fmt.name
    )


def to_storage(x: torch.Tensor) -> Array:
    """A copy of the elements as a storage array, of any format that an operand may have."""
    fmt = _STORED[x.dtype]
    # as integers: few operations take fp8
    code = x.view(getattr(torch, f"int{8 * fmt.itemsize}")).contiguous().cpu()
    return code.numpy().view(fmt.storage)


def require_simple(kernel: KernelUnderTest) -> None:
    """Raise ValueError, in one line, for operands that calls on rotating buffers cannot have."""
    for name in kernel.written:
        stated = kernel.tensors[name]
        if stated.use == UPDATED or len(kernel.written) > 1:
            got = "updated" if stated.use == UPDATED else "a second one that is written"
            raise ValueError(
                f"operand {name}: got {got}, expected one result, which no call reads: calls are"
                " repeated"
            )


# -- sampled blocks ------------------------------------------------------------------------------
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


# -- verify --------------------------------------------------------------------------------------
def verify(
    legs: list[tuple[Leg, str]], sets: Sequence[Buffers], stated: Stated, out: Format
) -> list[str]:
    """What is wrong with each leg, run in the way in which it will be timed; "" where nothing is.

    First every set holds integers whose products are exact (operands.fill_integers), and every
    element of every result must equal them; then the data that are timed, on which no element may
    stay NaN. Results are poisoned before both. The sets are left with the data that are timed.
    """
    place = f"{stated.problem} {stated.fmt.name}"
    exact = [fill_integers(x, stated.fmt, out, seed) for seed, x in enumerate(sets)]
    for leg, _ in legs:
        leg.refresh()
    wrong = [_find_wrong(leg, how, exact, place) for leg, how in legs]
    del exact
    for seed, buffers in enumerate(sets):
        stated.fill(buffers, seed)
    for leg, _ in legs:
        leg.refresh()
    if out.kind == "int":
        return wrong
    pairs = zip(wrong, legs, strict=True)
    return [found or _find_unwritten(leg, how, place) for found, (leg, how) in pairs]


def find_left_out(leg: Leg, how: str, place: str) -> str:
    """What a leg leaves as it was, on the data that are timed; NaN may be a result of a formula.

    An element is left out where it is still NaN, and still 0 after another run.
    """
    kept = [_keeps_poison(got) for got in _run_poisoned(leg, how)]
    if any(bool(x.any()) for x in kept):
        for result in leg.results(how):
            (result.view(torch.uint8) if result.element_size() == 1 else result).zero_()
        leg.run(how)()
        for number, (got, still) in enumerate(zip(leg.results(how), kept, strict=True)):
            unwritten = still & (_widen(got) == 0)
            if bool(unwritten.any()):
                return _describe(leg, place, number, got, unwritten, "a result", "nothing")
    return ""


def find_beyond(leg: Leg, how: str, samples: Sequence[Sample], place: str) -> str:
    """What of the last results is not the formula's within its bound, in the sampled blocks."""
    results = leg.results(how)
    for one in samples:
        if found := one.judge(results[one.number]):
            return f"{leg.callee.name} at {place}, {found}"
    return ""


def _keeps_poison(x: torch.Tensor) -> torch.Tensor:
    return _widen(x).isnan() if x.is_floating_point() else x == torch.iinfo(x.dtype).min


def _run_poisoned(leg: Leg, how: str) -> list[torch.Tensor]:
    poison(leg.results(how))
    leg.run(how)()
    return leg.results(how)


def _find_wrong(leg: Leg, how: str, exact: list[torch.Tensor], place: str) -> str:
    for number, (got, expected) in enumerate(zip(_run_poisoned(leg, how), exact, strict=True)):
        if got.shape != expected.shape or got.dtype != expected.dtype:
            return (
                f"{leg.callee.name} at {place}: got {got.dtype} {tuple(got.shape)}, expected"
                f" {expected.dtype} {tuple(expected.shape)}"
            )
        # NaN differs from itself, so that what stays poisoned is wrong too
        differs = _widen(got) != _widen(expected)
        if bool(differs.any()):
            return _describe(leg, place, number, got, differs, str(_at(expected, differs)))
    return ""


def _find_unwritten(leg: Leg, how: str, place: str) -> str:
    for number, got in enumerate(_run_poisoned(leg, how)):
        unwritten = _widen(got).isnan()
        if bool(unwritten.any()):
            return _describe(leg, place, number, got, unwritten, "a number")
    return ""


def _describe(
    leg: Leg,
    place: str,
    number: int,
    result: torch.Tensor,
    wrong: torch.Tensor,
    expected: str,
    got: str = "",
) -> str:
    where = [int(i) for i in wrong.nonzero()[0]]
    count, size = int(wrong.sum()), wrong.numel()
    return (
        f"{leg.callee.name} at {place}, c{where} of buffer {number}: got"
        f" {got or _at(result, wrong)}, expected {expected}; {count} of {size} elements wrong"
    )


def _at(x: torch.Tensor, wrong: torch.Tensor) -> float | int:
    return _widen(x)[tuple(wrong.nonzero()[0])].item()


def _widen(x: torch.Tensor) -> torch.Tensor:
    """The same numbers in a format that torch can compare."""
    return x.float() if x.element_size() == 1 and x.is_floating_point() else x


def equal_bits(leg: Leg, other: Leg, how: str) -> bool:
    """Whether the last results of both have the same bits in every set."""
    return all(
        x.shape == y.shape
        and x.dtype == y.dtype
        and torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        for x, y in zip(leg.results(how), other.results(how), strict=True)
    )

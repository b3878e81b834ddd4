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
from gemmproof.properties.kernel import UPDATED, KernelUnderTest, Operand, list_parameters
from gemmproof.reference.arithmetic import Array, round_to, widen
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.reference.spec import Rules, SpecArray, SpecError, evaluate
from gemmproof.target import TargetError

# -- blocks of c ---------------------------------------------------------------------------------
# Along each axis: lengths of a block, and the step that the start of a middle block is a multiple
# of, if the length is no more, so that axes such as "N // 128" can be cut too.
LENGTHS: Mapping[str, tuple[int, ...]] = {"M": (16, 128, 256), "N": (32, 128, 256), "batch": (1,)}
STEPS: Mapping[str, int] = {"M": 128, "N": 128, "batch": 1}
Span = tuple[int, int]
Block = Mapping[str, Span]


def find_spans(axis: str, sizes: Mapping[str, int], texts: Iterable[str]) -> list[Span]:
    """Return the first, a middle and the last block of an axis; the last one reaches its end.

    One span, the whole axis, if it is short, or if no blocks of the axis are blocks of all `texts`,
    the axes of operands that are declared over it.
    """
    length, known = sizes[axis], list(texts)
    for width in LENGTHS[axis]:
        step = max(width, STEPS[axis])
        middle, aligned = length // step // 2 * step, (length - 1) // step * step
        ends = [((length - 1) // width * width, length), (aligned, length)]
        last = [span for span in ends if _fits(axis, span, sizes, known)][:1]
        spans = dict.fromkeys([(0, min(width, length)), (middle, middle + width), *last])
        fitting = [span for span in spans if _fits(axis, span, sizes, known)]
        if fitting and fitting[0][0] == 0:
            return fitting
    return [(0, length)]


def find_trial(
    axis: str, spans: list[Span], sizes: Mapping[str, int], texts: Iterable[str]
) -> tuple[Span, Span]:
    """Return a leading part of an axis, of two blocks if it has them, and its last block."""
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
    """Return the part of an operand that a block of c needs; other axes, such as K, are whole."""
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
    """Return the axes of operands that are declared over an axis of c."""
    return [text for shape in shapes for text in map(str, shape) if axis in list_names(text)]


def _fits(axis: str, span: Span, sizes: Mapping[str, int], texts: Iterable[str]) -> bool:
    """Return whether a span is one of every text, with the same offsets as if it began at 0.

    size(start + x) = size(start) + size(x) for every x up to the span's length, whose size is >= 1.
    """
    start, stop = span
    if not start < stop <= sizes[axis]:
        return False
    for text in texts:
        if len(list_names(text) & set(LENGTHS)) > 1:
            return False
        first = _size(text, axis, start, sizes)
        offsets = [_size(text, axis, x, sizes) for x in range(stop - start + 1)]
        if offsets[0] != 0 or offsets[-1] < 1:
            return False
        if any(_size(text, axis, start + x, sizes) != first + n for x, n in enumerate(offsets)):
            return False
    return True


def _size(text: str | int, axis: str, length: int, sizes: Mapping[str, int]) -> int:
    return evaluate_relation(str(text), {"batch": 1, **sizes, axis: length})


def list_names(text: str | int) -> set[str]:
    """Return the names that an axis is declared over."""
    return {n.id for n in ast.walk(ast.parse(str(text))) if isinstance(n, ast.Name)}


# -- declared operands ---------------------------------------------------------------------------
_STORED = {TORCH_DTYPES[f.name]: f for f in FORMATS.values() if f.stored is f}


@dataclass(frozen=True, slots=True)
class Stated:
    """A kernel's inputs on a problem with a and b in a format: shapes, values, and the formula.

    A OneOf has its first value. `columns`: b is in column-major memory. Raises ValueError, in one
    line, for invalid shapes.
    """

    kernel: KernelUnderTest
    problem: Problem
    fmt: Format
    columns: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that the shapes are declared over."""
        lead = {} if self.problem.batch is None else {"batch": self.problem.batch}
        integers = {n: x for n, x in self.values.items() if type(x) is int}
        sides = {axis: int(getattr(self.problem, axis)) for axis in ("M", "N", "K")}
        return {**integers, **sides, **lead}

    @property
    def values(self) -> dict[str, object]:
        """The Python values by name."""
        return {name: choice.values[0] for name, choice in self.kernel.choices.items()}

    @property
    def read(self) -> dict[str, Operand]:
        """The declared tensors that are read; a and b are included if they are not as usual."""
        return {name: x for name, x in self.kernel.tensors.items() if not x.is_result}

    @property
    def axes(self) -> dict[str, tuple[str, tuple[str | int, ...]]]:
        """The name of the format and the axes of the shape of every tensor that is read."""
        lead = () if self.problem.batch is None else ("batch",)
        usual = {name: (self.fmt.name, (*lead, *role.axes)) for name, role in ROLES.items()}
        return {**usual, **{name: (x.format, x.axes) for name, x in self.read.items()}}

    def describe(self) -> dict[str, str]:
        """Return every declared operand as reports show it: its format and axes, or its value."""
        tensors = {
            n: f"{x.format}[{', '.join(map(str, x.axes))}]" for n, x in self.kernel.tensors.items()
        }
        return {**tensors, **{name: repr(x) for name, x in self.values.items()}}

    def make(self, device: str) -> Buffers:
        """Allocate one set without data. Raises torch.OutOfMemoryError if it does not fit."""
        usual = make_buffers(self.problem, self.fmt, device)
        tensors = {
            name: torch.empty(x.sides(self.sizes), dtype=TORCH_DTYPES[x.format], device=device)
            for name, x in self.read.items()
        }
        a, b = tensors.pop("a", usual.a), tensors.pop("b", usual.b)
        b = torch.empty_like(b.mT, memory_format=torch.contiguous_format).mT if self.columns else b
        return Buffers(a, b, {**tensors, **self.values})

    def fill(self, buffers: Buffers, seed: int) -> None:
        """Fill with uniform data of a seed (draw_uniform); what a function draws is copied.

        Raises TargetError, in one line, if such a function returns no array of that shape.
        """
        generator = torch.Generator(buffers.a.device).manual_seed(seed)
        known: dict[str, object] = {**self.values, **self.sizes}
        for name, x in buffers.tensors.items():
            operand = self.read.get(name)
            if operand is None:
                draw_uniform(x, self.fmt, generator)
                continue
            if not callable(operand.values):
                draw_uniform(x, FORMATS[operand.format], generator, operand.values)
            else:
                try:
                    x.copy_(_draw(operand, tuple(x.shape), known, seed))
                except Exception as error:  # a user's function may raise anything
                    reason = " ".join(f"{type(error).__name__}: {error}".split())
                    raise TargetError(f"operand {name} at {self.problem}: {reason}") from None
            known[name] = x


def _draw(operand: Operand, sides: tuple[int, ...], known: Mapping[str, object], seed: int) -> Any:
    """Draw an operand by its function, called with the known values that it has parameters for."""
    function: Any = operand.values
    takes = inspect.signature(function).parameters
    arguments = {
        name: to_storage(x) if isinstance(x, torch.Tensor) else x
        for name, x in known.items()
        if name in takes
    }
    drawn = np.asarray(function(np.random.default_rng(seed), sides, **arguments))
    if drawn.shape != sides:
        raise ValueError(f"got shape {drawn.shape}, expected {sides}")
    fmt = FORMATS[operand.format]
    return as_tensor(
        drawn.astype(fmt.storage) if fmt.kind == "int" else round_to(drawn, fmt), fmt.name
    )


def to_storage(x: torch.Tensor) -> Array:
    """Copy the elements to a storage array, of any format that an operand may have."""
    fmt = _STORED[x.dtype]
    # as integers: few operations support fp8
    code = x.view(getattr(torch, f"int{8 * fmt.itemsize}")).contiguous().cpu()
    return code.numpy().view(fmt.storage)


def require_simple(kernel: KernelUnderTest) -> None:
    """Raise ValueError, in one line, for operands that calls on rotating buffers cannot have."""
    for name in kernel.written:
        operand = kernel.tensors[name]
        if operand.use == UPDATED or len(kernel.written) > 1:
            got = "updated" if operand.use == UPDATED else "a second one that is written"
            raise ValueError(
                f"operand {name}: got {got}, expected one result, which no call reads: calls are"
                " repeated"
            )


# -- sampled blocks ------------------------------------------------------------------------------
LARGEST = 2**25  # elements of an operand that a formula is evaluated on, in float64
Spans = Mapping[str, list[Span]]


@dataclass(frozen=True, slots=True)
class Sample:
    """A block of the result of set `number`, and the value of the formula for it."""

    number: int
    block: Block
    c: SpecArray

    def judge(self, result: torch.Tensor) -> str:
        """Return a description of the first wrong element, "" if there is none."""
        out = format_of_tensor(result)
        assert out is not None
        got = to_storage(result[tuple(slice(*span) for span in self.block.values())])
        wrong, bound = judge_stored(got, self.c, out)
        if not wrong.any():
            return ""
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        starts = [start for start, _ in self.block.values()]
        index = [start + i for start, i in zip(starts, at, strict=True)]
        return (
            f"c{index} of buffer {self.number}: got {float(widen(got)[at])!r},"
            f" expected {float(self.c.value[at])!r}, allowed error {bound[at]:.3g};"
            f" {int(wrong.sum())} of {wrong.size} elements wrong in that block"
        )


def sample(
    declared: Stated, sets: Sequence[Buffers], target: str | None, beat: Callable[[], None]
) -> list[Sample]:
    """Return blocks of the first set and of the last one.

    `target` is the GPU whose units the bound admits (spec.Rules). Raises TargetError, in one line,
    for a formula that cannot be evaluated so, or whose values have no known bound.
    """
    beat()
    spans = _choose_spans(declared, sets[0], target)
    samples = []
    for number, block in _list_blocks(spans, len(sets) - 1):
        beat()
        samples.append(Sample(number, block, _evaluate(declared, sets[number], target, block)))
    if not any(x.c.known.any() for x in samples):
        raise TargetError(
            f"spec at {declared.problem} {declared.fmt.name}: got values without a known bound,"
            " expected some that a result can be judged by"
        )
    return samples


def _list_blocks(spans: Spans, last: int) -> list[tuple[int, Block]]:
    """Return the diagonal of c in the first set, both other corners in the last one."""
    positions = [(0, i, i) for i in range(3)] + [(last, 0, -1), (last, -1, 0)]
    blocks: list[tuple[int, Block]] = []
    for number, i, j in positions:
        turns = {"batch": i, "M": i, "N": j}
        block: Block = {axis: own[turns[axis] % len(own)] for axis, own in spans.items()}
        if (number, block) not in blocks:
            blocks.append((number, block))
    return blocks


def _choose_spans(declared: Stated, buffers: Buffers, target: str | None) -> Spans:
    """Cut as many axes into blocks as the formula admits, by trial: its value for a block of a part
    of c is its value for the part. Columns that are normalised, an operand of row numbers, or a
    formula that names its size, leave an axis whole.
    """
    sizes, shapes = declared.sizes, [shape for _, shape in declared.axes.values()]
    axes_of_c: list[str] = [axis for axis in ("batch", "M", "N") if axis in sizes]
    named = list_parameters(declared.kernel.spec) if declared.kernel.spec else ()
    texts = {axis: list_texts(axis, shapes) for axis in axes_of_c}
    whole = {axis: [(0, sizes[axis])] for axis in texts}
    cut_up = {
        axis: whole[axis]
        if axis in named or _may_hold_indices(declared, axis)
        else find_spans(axis, sizes, own)
        for axis, own in texts.items()
    }
    reason = ""
    for axes in (set(LENGTHS), {"N", "batch"}, {"M", "batch"}, {"M", "N"}, set[str]()):
        spans = {axis: cut_up[axis] if axis in axes else whole[axis] for axis in whole}
        trials = {a: find_trial(a, own, sizes, texts[a]) for a, own in spans.items()}
        part = {axis: trial[0] for axis, trial in trials.items()}
        block = {axis: trial[1] for axis, trial in trials.items()}
        try:
            if part == block:  # and so is every sample
                _require_small(declared, buffers, spans)
                return spans
            c, own = (_evaluate(declared, buffers, target, x) for x in (part, block))
        except TargetError as error:
            reason = reason or str(error)
            continue
        inner = tuple(
            slice(block[axis][0] - part[axis][0], block[axis][1] - part[axis][0]) for axis in part
        )
        with np.errstate(invalid="ignore"):
            differs = np.abs(c.value[inner] - own.value) > c.error[inner] + own.error
        if not differs.any():
            return spans
        reason = reason or (
            f"spec at {declared.problem}: got rows or columns that depend on one another in"
            f" operands of more than {LARGEST} elements, expected smaller shapes"
        )
    raise TargetError(reason)


def _may_hold_indices(declared: Stated, axis: str) -> bool:
    """Return whether a function may have drawn indices along an axis, such as starts of row groups.

    It draws along the axis, or has a parameter for it or for what such a function drew before.
    """
    known = {axis}
    for name, operand in declared.read.items():
        if callable(operand.values):
            over = set().union(*(list_names(text) for text in operand.axes)) & {axis}
            if over or known & set(inspect.signature(operand.values).parameters):
                known.add(name)
    return known != {axis}


def _require_small(declared: Stated, buffers: Buffers, spans: Spans) -> None:
    block = {axis: own[-1] for axis, own in spans.items()}
    for name, (_, axes) in declared.axes.items():
        shape = cut(buffers.tensors[name], axes, declared.sizes, block).shape
        if math.prod(shape) > LARGEST:
            raise TargetError(
                f"spec at {declared.problem}: got {name} of {tuple(shape)} for a block of c,"
                f" expected at most {LARGEST} elements"
            )


def _evaluate(declared: Stated, buffers: Buffers, target: str | None, block: Block) -> SpecArray:
    """Evaluate the formula for a block. Raises TargetError, in one line."""
    kernel, label = declared.kernel, f"{declared.problem} {declared.fmt.name}"
    inputs: dict[str, object] = dict(declared.values)
    _require_small(declared, buffers, {axis: [span] for axis, span in block.items()})
    for name, (fmt, axes) in declared.axes.items():
        part = cut(buffers.tensors[name], axes, declared.sizes, block)
        inputs[name] = (to_storage(part), fmt)
    rules = Rules(target, kernel.contract.accumulator)
    try:
        sizes = {axis: n for axis, n in declared.sizes.items() if axis in LENGTHS or axis == "K"}
        sizes |= {axis: stop - start for axis, (start, stop) in block.items()}
        results = evaluate(lambda **named: kernel.calculate(named, sizes), inputs, rules)
    except SpecError as error:
        raise TargetError(f"{error} (at {label})") from None
    shape = tuple(stop - start for start, stop in block.values())
    got = [x.shape for x in results]
    if got != [shape]:
        raise TargetError(f"spec at {label}: got results of shapes {got}, expected {shape}")
    return results[0]


# -- verify --------------------------------------------------------------------------------------
def verify(
    legs: list[tuple[Leg, str]], sets: Sequence[Buffers], declared: Stated, out: Format
) -> list[str]:
    """Return what is wrong with each leg, run in the way in which it will be timed, or "".

    First every set holds integers whose products are exact (fill_integers), and every
    element of every result must equal them; then the data that are timed, on which no element may
    stay NaN. Results are poisoned before both. The sets are left with the data that are timed.
    """
    label = f"{declared.problem} {declared.fmt.name}"
    exact = [fill_integers(x, declared.fmt, out, seed) for seed, x in enumerate(sets)]
    for leg, _ in legs:
        leg.refresh()
    wrong = [_find_wrong(leg, how, exact, label) for leg, how in legs]
    del exact
    for seed, buffers in enumerate(sets):
        declared.fill(buffers, seed)
    for leg, _ in legs:
        leg.refresh()
    if out.kind == "int":
        return wrong
    pairs = zip(wrong, legs, strict=True)
    return [error or _find_unwritten(leg, how, label) for error, (leg, how) in pairs]


def find_left_out(leg: Leg, how: str, label: str) -> str:
    """Return what a leg leaves unwritten, on the timed data; NaN may be a result of a formula.

    An element is unwritten if it is still NaN, and then still 0 after another run.
    """
    poisoned = [_keeps_poison(got) for got in _run_poisoned(leg, how)]
    if any(bool(x.any()) for x in poisoned):
        for result in leg.results(how):
            (result.view(torch.uint8) if result.element_size() == 1 else result).zero_()
        leg.run(how)()
        for number, (got, still) in enumerate(zip(leg.results(how), poisoned, strict=True)):
            unwritten = still & (_widen(got) == 0)
            if bool(unwritten.any()):
                return _describe(leg, label, number, got, unwritten, "a result", "nothing")
    return ""


def find_beyond(leg: Leg, how: str, samples: Sequence[Sample], label: str) -> str:
    """Return the first of the last results that is beyond the formula's bound, in the samples."""
    results = leg.results(how)
    for block in samples:
        if error := block.judge(results[block.number]):
            return f"{leg.callee.name} at {label}, {error}"
    return ""


def _keeps_poison(x: torch.Tensor) -> torch.Tensor:
    return _widen(x).isnan() if x.is_floating_point() else x == torch.iinfo(x.dtype).min


def _run_poisoned(leg: Leg, how: str) -> list[torch.Tensor]:
    poison(leg.results(how))
    leg.run(how)()
    return leg.results(how)


def _find_wrong(leg: Leg, how: str, exact: list[torch.Tensor], label: str) -> str:
    for number, (got, expected) in enumerate(zip(_run_poisoned(leg, how), exact, strict=True)):
        if got.shape != expected.shape or got.dtype != expected.dtype:
            return (
                f"{leg.callee.name} at {label}: got {got.dtype} {tuple(got.shape)}, expected"
                f" {expected.dtype} {tuple(expected.shape)}"
            )
        # NaN differs from itself, so that what stays poisoned is wrong too
        differs = _widen(got) != _widen(expected)
        if bool(differs.any()):
            return _describe(leg, label, number, got, differs, str(_at(expected, differs)))
    return ""


def _find_unwritten(leg: Leg, how: str, label: str) -> str:
    for number, got in enumerate(_run_poisoned(leg, how)):
        unwritten = _widen(got).isnan()
        if bool(unwritten.any()):
            return _describe(leg, label, number, got, unwritten, "a number")
    return ""


def _describe(
    leg: Leg,
    label: str,
    number: int,
    result: torch.Tensor,
    wrong: torch.Tensor,
    expected: str,
    got: str = "",
) -> str:
    index = [int(i) for i in wrong.nonzero()[0]]
    count, size = int(wrong.sum()), wrong.numel()
    return (
        f"{leg.callee.name} at {label}, c{index} of buffer {number}: got"
        f" {got or _at(result, wrong)}, expected {expected}; {count} of {size} elements wrong"
    )


def _at(x: torch.Tensor, wrong: torch.Tensor) -> float | int:
    return _widen(x)[tuple(wrong.nonzero()[0])].item()


def _widen(x: torch.Tensor) -> torch.Tensor:
    """Convert to a format that torch can compare, with the same numbers."""
    return x.float() if x.element_size() == 1 and x.is_floating_point() else x


def equal_bits(leg: Leg, other: Leg, how: str) -> bool:
    """Return whether the last results of both have the same bits in every set."""
    return all(
        x.shape == y.shape
        and x.dtype == y.dtype
        and torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        for x, y in zip(leg.results(how), other.results(how), strict=True)
    )

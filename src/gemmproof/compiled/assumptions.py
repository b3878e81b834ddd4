"""Assumptions of predictions: the model of a dot compared with the compiled one."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, lcm, prod
from pathlib import Path

from gemmproof.compiled.compile import (
    CapturedLaunch,
    Compiler,
    PlannedLaunch,
    describe_launch,
    format_line,
    lower_launch,
)
from gemmproof.compiled.record import (
    FMA,
    UNKNOWN,
    CompiledDot,
    DotInstruction,
    Failure,
    LoweredLaunch,
    Result,
    count_instructions,
)
from gemmproof.reference.dot import SPLITS, DotModel
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.simulation import Launch, PredictedDot
from gemmproof.report.record import ModelCheck
from gemmproof.worker.protocol import Listener, ModelCheckStarted

# -- order ---------------------------------------------------------------------------------------
_WIDTH = re.compile(r"^dot_op<\{.*kWidth = (\d+)\}>$", re.DOTALL)

Steps = tuple[frozenset[int], ...]


def read_width(layout: str) -> int | None:
    """Return the kWidth of an operand in registers, or None for any other layout."""
    match = _WIDTH.match(layout.strip())
    return int(match[1]) if match else None


def list_order(width: int, bits: int, BLOCK_K: int) -> tuple[int, ...]:
    """List the k of successive products within a group, for operands of `bits` with this kWidth.

    A tile of 4 w has no upper half of a group: the rest of a thread's w neighbours takes its place,
    E by E. () if a tile is neither that nor whole groups: the order is then unknown.
    """
    E = 32 // bits
    if width % E or (BLOCK_K % (8 * width) and BLOCK_K != 4 * width):
        return ()
    short = BLOCK_K == 4 * width
    if short and width % (2 * E):
        return tuple(range(BLOCK_K))  # one instruction, whose upper half is empty
    halves, step = ((0, E), 2 * E) if short else ((0, 4 * width), E)
    return tuple(
        width * t + register + half + e
        for register in range(0, width, step)
        for half in halves
        for t in range(4)
        for e in range(E)
    )


def list_steps(order: tuple[int, ...], size: int, K: int) -> Steps:
    """List the products that a unit sums at once, `size` of k in this order; () is ascending."""
    group = order or tuple(range(size))
    count = lcm(len(group), size, K)
    whole = [k + start for start in range(0, count, len(group)) for k in group]
    return tuple(frozenset(whole[i : i + size]) for i in range(0, count, size))


# -- predicted -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Predicted:
    """A model that predicted a dot at a line, and if it began at zero, onto a sum, or both.

    `tile` is (..., M, N, K), after the batch that a block holds.
    """

    where: str
    tile: tuple[int, ...]
    model: DotModel
    from_zero: bool
    onto_sum: bool

    @property
    def formats(self) -> tuple[str, str]:
        """The formats that are multiplied, after widening."""
        model = self.model
        return name(model.as_format or model.a_format), name(model.as_format or model.b_format)

    @property
    def accumulator(self) -> str:
        """The format that products are added in."""
        return name(self.model.acc_format)

    @property
    def precision(self) -> str:
        """The precision of fp32 products, "" for other formats."""
        if self.model.split:
            return self.model.split
        return {"tf32": "tf32", "fp32": "ieee"}.get(self.model.a_format, "")

    @property
    def chain(self) -> int | None:
        """The elements of k that are summed from zero before they are added to the rest.

        None if the unit adds onto the sum itself.
        """
        return self.model.part or (self.tile[-1] if self.model.split else None)

    def __str__(self) -> str:
        """Format the model for a report."""
        model, (a, b) = self.model, self.formats
        parts = [f"{model.instruction} of {a} x {b} onto {self.accumulator}"]
        if model.unit.kind == "fused":
            parts.append(f"{model.unit.L} of k at once")
        if model.as_format and not model.split:
            parts.append(f"widened from {name(model.a_format)} x {name(model.b_format)}")
        if model.order:
            parts.append(f"k in the order {_shorten(model.order)}")
        if model.split:
            parts.append(f"split by {model.split}")
        if self.chain is not None:
            parts.append(f"sums of {self.chain} of k from zero")
        elif self.onto_sum:
            parts.append("onto the sum before it")
        if model.unit.saturates:
            parts.append("saturating")
        return ", ".join(parts)


def name(format_name: str) -> str:
    """Return a format's name in PTX: fp8e4m3 is e4m3, fp16 is f16, int8 is s8."""
    return FORMATS[format_name].ptx or format_name.replace("int", "s")


def _shorten(order: tuple[int, ...]) -> str:
    return f"{' '.join(map(str, order[:8]))} ..."


def join_predicted(dots: Iterable[PredictedDot]) -> list[Predicted]:
    """Join the models of each line and tile; beginning at zero makes no separate model.

    A dot whose sum is the constant zero at first has `from_zero` in its first trip alone.
    """
    starts_by_key: dict[tuple[str, tuple[int, ...], DotModel], set[bool]] = {}
    for dot in dots:
        model = replace(dot.model, from_zero=bool(dot.model.split))
        key = (format_line(dot.where), dot.tile, model)
        starts_by_key.setdefault(key, set()).add(dot.from_zero)
    predicted = (
        Predicted(*key, True in starts, False in starts) for key, starts in starts_by_key.items()
    )
    return sorted(predicted, key=lambda x: (x.where, x.tile, str(x)))


# -- compiled ------------------------------------------------------------------------------------
_WARPS = re.compile(r"warpsPerCTA = \[([\d, ]+)\]")


@dataclass(frozen=True, slots=True)
class DotLine:
    """The dots of a launch at one line, as they were compiled.

    `tiles` are theirs in the source, `kinds` how many of them differ in tile, formats or precision,
    and `warps` how the warps of a block share the result, along each of its axes; None if unknown.
    `strays`: instructions of other dots may be among them, or some of theirs elsewhere.
    """

    where: str
    dots: tuple[CompiledDot, ...]
    tiles: tuple[tuple[int, ...], ...]
    kinds: int
    warps: tuple[int, ...] | None = None
    strays: bool = False


def join_lines(source: Iterable[CompiledDot], compiled: Iterable[CompiledDot]) -> list[DotLine]:
    """Join every line of the source that has dots with what they were compiled to.

    A compiler may give some instructions of a dot another line: that of an operand, or of the
    surrounding function. They belong to the only dot there is, or else to the only line that has no
    instructions.
    """
    lines: dict[str, list[CompiledDot]] = {}
    for dot in source:
        lines.setdefault(dot.where, []).append(dot)
    by_line: dict[str, list[CompiledDot]] = {line: [] for line in lines}
    unassigned: list[CompiledDot] = []
    for dot in compiled:
        by_line.get(dot.where, unassigned).append(dot)
    empty = [line for line in lines if not any(map(_multiplies, by_line[line]))]
    unassigned = [dot for dot in unassigned if _multiplies(dot)]
    only_line = next(iter(lines)) if len(lines) == 1 else empty[0] if len(empty) == 1 else None
    if unassigned and only_line is not None:
        by_line[only_line] += unassigned
    joined = []
    for line, dots in lines.items():
        shares = {_read_warps(x.layouts[2]) for x in by_line[line] if x.layouts[2]}
        joined.append(
            DotLine(
                line,
                tuple(by_line[line]),
                tuple(dict.fromkeys(x.tile for x in dots)),
                len({(x.tile, x.asked, x.precision) for x in dots}),
                shares.pop() if len(shares) == 1 else None,
                bool(unassigned) and len(lines) > 1,
            )
        )
    return joined


def _multiplies(dot: CompiledDot) -> bool:
    return any(x.name for x in dot.instructions)


def _read_warps(layout: str) -> tuple[int, ...] | None:
    match = _WARPS.search(layout)
    return tuple(map(int, match[1].split(","))) if match else None


# -- aspects -------------------------------------------------------------------------------------
UNIT, STEP, FORMAT, ACCUMULATOR = "the unit", "k of a step", "formats", "the accumulator"
ORDER, SATURATION = "the order of k", "saturation"
PROMOTION, ZERO, SPLIT, PRECISION = "promotion", "sums from zero", "split", "precision"

CaseResult = tuple[tuple[str, ...], tuple[str, ...]]  # aspects that differ, and unknown ones


def compare_instruction(
    predicted: Predicted, instruction: DotInstruction, line: DotLine
) -> CaseResult:
    """Compare an instruction with the model: the aspects that differ, and unknown ones."""
    unit = "fma" if instruction.unit == FMA else instruction.unit
    if unit != predicted.model.instruction:
        return (UNIT,), ()
    differs: list[str] = []
    unknown: list[str] = []
    if not instruction.accumulator:
        unknown.append(ACCUMULATOR)
    elif instruction.accumulator != predicted.accumulator:
        differs.append(ACCUMULATOR)
    if unit == "fma":
        return tuple(differs), tuple(unknown)
    if not (instruction.a and instruction.b):
        unknown.append(FORMAT)
    elif (instruction.a, instruction.b) != predicted.formats:
        differs.append(FORMAT)
    if predicted.model.unit.kind == "integer" and predicted.model.unit.saturates != (
        "satfinite" in instruction.name
    ):
        differs.append(SATURATION)
    if instruction.shape is None:
        return tuple(differs), (*unknown, STEP, ORDER)
    # a sum goes through the unit step by step; an instruction of fewer k would end a step early
    if predicted.model.unit.kind == "fused" and instruction.shape[2] % predicted.model.unit.L:
        return (*differs, STEP), tuple(unknown)
    is_same = compare_order(predicted, instruction, line)
    if is_same is None:
        unknown.append(ORDER)
    elif not is_same:
        differs.append(ORDER)
    return tuple(differs), tuple(unknown)


def compare_order(predicted: Predicted, instruction: DotInstruction, line: DotLine) -> bool | None:
    """Return whether the unit takes the same k at each of its steps; None if unknown.

    Integers that do not saturate have no order.
    """
    model, (_, _, k) = predicted.model, instruction.shape or (0, 0, 0)
    if model.unit.kind == "integer" and not model.unit.saturates:
        return True
    L = model.unit.L
    compiled: tuple[int, ...] = ()
    if instruction.operands == ("registers", "registers"):
        bits = 8 * FORMATS[model.as_format or model.a_format].itemsize
        if predicted.formats[0] == "tf32":
            bits = 32
        sides = [tuple(map(read_width, x.layouts[:2])) for x in line.dots if x.layouts[0]]
        widths = {w for side in sides for w in side}
        width = widths.pop() if len(widths) == 1 else None
        if width is None:
            return None
        if bits > 32:  # doubles: one of k for each of four threads
            return True if width == 1 and not model.order else None
        compiled = list_order(width, bits, predicted.tile[-1])
        if not compiled:
            return None
    return list_steps(model.order, L, k) == list_steps(compiled, L, k)


def compare_sums(
    predicted: Predicted, line: DotLine, instructions: Sequence[DotInstruction]
) -> CaseResult:
    """Compare the order of additions, over all instructions of a dot together.

    A chain that begins at zero and is added may be longer than a dot's k: the source itself may sum
    several before it adds them. A shorter one, or one where the unit was to add onto the sum before
    it, contradicts the prediction.
    """
    differs: list[str] = []
    unknown: list[str] = []
    precisions = {x.precision for x in line.dots if x.precision}
    # without tensor cores operands are not truncated
    cuts = GPUS[predicted.model.target or ""].triton_uses_cores
    if (
        precisions
        and predicted.precision
        and (cuts or not any(x.startswith("tf32") for x in precisions))
    ):
        differs += [PRECISION] * (precisions != {predicted.precision})
    if predicted.model.instruction == "fma":
        return tuple(differs), tuple(unknown)
    if line.strays:
        return tuple(differs), (*unknown, SPLIT, PROMOTION)
    if predicted.model.split:
        products = _count_products(predicted, line, instructions)
        if products is None:
            unknown.append(SPLIT)
        elif products % len(SPLITS[predicted.model.split]):
            differs.append(SPLIT)
    sums, more = _compare_chains(predicted, line, instructions)
    return (*differs, *sums), (*unknown, *more)


def _compare_chains(
    predicted: Predicted, line: DotLine, instructions: Sequence[DotInstruction]
) -> CaseResult:
    if sum(any(y.name for y in x.instructions) for x in line.dots) > 1:
        return (), (PROMOTION,)  # a chain may go from one lowering to another
    promoted = {x.promoted_k for x in line.dots if x.promoted_k is not None}
    sizes = {x.shape[2] for x in instructions if x.shape is not None}
    if len(promoted) > 1 or len(sizes) != 1:
        return (), (PROMOTION,)
    promoted_k, k = next(iter(promoted), None), predicted.tile[-1]
    begun = sum(x.from_zero for x in instructions)
    open_ = sum(x.or_zero for x in instructions)
    total = sizes.pop() * sum(x.count for x in instructions)  # of k, over all chains of the text
    if predicted.model.part:
        chains = ceil(k / predicted.model.part)  # of one dot, each from zero
        if begun == open_ == 0 or promoted_k not in (None, min(predicted.model.part, k)):
            return (PROMOTION,), ()
        return ((), ()) if promoted_k and begun * k == total * chains else ((), (PROMOTION,))
    whole = k * (len(SPLITS[predicted.model.split]) if predicted.model.split else 1)
    # both counts must agree on the length of a chain from zero
    if promoted_k is not None and begun * promoted_k == total:
        is_short = promoted_k < whole
        is_added = promoted_k == whole and not predicted.model.split and predicted.onto_sum
        if is_short or is_added:
            return (PROMOTION,), ()
    is_always_begun = begun * whole == total
    if (
        is_always_begun
        and predicted.onto_sum
        and not predicted.from_zero
        and not predicted.model.split
    ):
        return (ZERO,), ()
    return (), ()


def _count_products(
    predicted: Predicted, line: DotLine, instructions: Sequence[DotInstruction]
) -> int | None:
    """Count how many times the program multiplies the whole tile; None if unknown."""
    if len(instructions) != 1 or (instruction := instructions[0]).shape is None:
        return None
    (*sides, K), (m, n, k) = predicted.tile, instruction.shape
    sizes = (*(1 for _ in sides[2:]), m, n)  # an instruction has no batch
    warps = line.warps if instruction.unit != "tcgen05" else (1,) * len(sides)
    if warps is None or len(warps) != len(sides):
        return None
    if instruction.unit == "wgmma":  # four warps issue one instruction
        warps = (warps[0] // 4, *warps[1:])
    if not all(warps):
        return None
    shares = zip(sides, sizes, warps, strict=True)
    once = prod(ceil(side / (size * count)) for side, size, count in shares) * ceil(K / k)
    return instruction.count // once if instruction.count % once == 0 else None


# -- compare -------------------------------------------------------------------------------------
AGREED, NOT_KNOWN, CONTRADICTED = "as predicted", "not known", "contradicted"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A model compared with the compiled dot: `status`, and a line with the reason if not agreed.

    `open` are the assumptions of an agreed one that the compiled program does not decide.
    """

    status: str
    line: str = ""
    open: tuple[str, ...] = ()


def compare(predicted: Sequence[Predicted], compiled: Sequence[DotLine]) -> list[Comparison]:
    """Compare each predicted model of one launch with the dots that were compiled at its line."""
    by_line = {model.where: model for model in compiled}
    named = {model.where for model in predicted}
    comparisons = []
    for model in predicted:
        line = by_line.get(model.where)
        if line is None or model.tile not in line.tiles:
            line = _find_moved(model, compiled, named) or line
        models = [x for x in predicted if x.where == model.where]
        comparisons.append(_compare_one(model, line, models))
    return comparisons


def _find_moved(
    predicted: Predicted, compiled: Iterable[DotLine], named: set[str]
) -> DotLine | None:
    """Return the only line without a prediction that has a dot of this tile.

    A sum that is folded into a dot gives the dot its line.
    """
    others = [x for x in compiled if x.where not in named and predicted.tile in x.tiles]
    return others[0] if len(others) == 1 else None


def _compare_one(
    predicted: Predicted, line: DotLine | None, models: Sequence[Predicted]
) -> Comparison:
    shown = predicted.where or "line unknown"
    if line is None or predicted.tile not in line.tiles:
        tile = "x".join(map(str, predicted.tile))
        reason = f"no dot of {tile} stands at this line of the compiled program"
        return Comparison(NOT_KNOWN, f"{shown}: {reason}")
    instructions = _list_products(line)
    if not instructions:
        return Comparison(NOT_KNOWN, f"{shown}: no instruction that multiplies is recognised")
    if any(x.unit == UNKNOWN for x in instructions):
        names = " ".join(x.name for x in instructions if x.unit == UNKNOWN)
        return Comparison(NOT_KNOWN, f"{shown}: {names} is not recognised")
    results = [(compare_instruction(predicted, x, line), x) for x in instructions]
    # an instruction of a line with several dots may be of any of them; else it is this dot's
    is_only = line.kinds == 1 and len({(x.tile, x.formats) for x in models}) == 1
    wrong = [aspects for (aspects, _), _ in results if aspects]
    differs: tuple[str, ...] = ()
    if len(wrong) == len(results):
        differs = min(wrong, key=len)
    elif is_only and len(models) == 1 and wrong:
        differs = wrong[0]
    unknown = [x for (_, x), _ in results]
    unknown_aspects = min(unknown, key=len) if unknown else ()
    if is_only:
        sums, unknown_sums = compare_sums(predicted, line, instructions)
        differs, unknown_aspects = (*differs, *sums), (*unknown_aspects, *unknown_sums)
    if differs:
        both = f"predicted as {predicted}; compiled to {_describe(line, instructions)}"
        return Comparison(CONTRADICTED, f"{shown}: {both} (they differ in {', '.join(differs)})")
    return Comparison(AGREED, open=tuple(dict.fromkeys(unknown_aspects)))


def _list_products(line: DotLine) -> tuple[DotInstruction, ...]:
    """List the multiplying instructions of a line: those of the tensor cores if there are any.

    An integer multiply-add next to them computes an address.
    """
    instructions = [x for dot in line.dots for x in dot.instructions]
    cores = [x for x in instructions if x.unit != FMA and (x.unit != UNKNOWN or x.name)]
    products = cores or [x for x in instructions if x.unit == FMA and x.accumulator[:1] == "f"]
    return count_instructions(products)


def _describe(line: DotLine, instructions: Sequence[DotInstruction]) -> str:
    """Format the compiled dots of a line for a report."""
    counted: Counter[str] = Counter()
    for x in instructions:
        shape = "" if x.shape is None else " m{}n{}k{}".format(*x.shape)
        formats = f" of {x.a} x {x.b}" if x.a else ""
        saturates = " saturating" if "satfinite" in x.name else ""
        unit = x.name if x.unit == FMA else x.unit
        counted[f"{unit}{shape}{formats} onto {x.accumulator}{saturates}"] += x.count
    parts = [f"{count} {name}" for name, count in counted.items()]
    for dot in line.dots:
        if width := read_width(dot.layouts[0]):
            parts.append(f"kWidth {width}")
        if dot.promoted_k is not None:
            parts.append(f"sums of {dot.promoted_k} of k from zero")
        if dot.precision:
            parts.append(f"fp32 by {dot.precision}")
    return ", ".join(dict.fromkeys(parts))


# -- check ---------------------------------------------------------------------------------------
Key = tuple[str, str, str]


def lower_to_ptx(planned: PlannedLaunch, workdir: Path) -> LoweredLaunch:
    """Compile a launch up to its PTX, which has all facts of its dots."""
    return lower_launch(planned, workdir, assemble=False)


@dataclass(slots=True)
class AssumptionCheck:
    """The predictions of each launch, and their comparison with the compiled launch.

    A compilation may take `seconds` and `memory`, and keeps its files in a folder of `workdir`
    (None: the default for temporary ones) until it ends. `tell` gets an event before each, and
    heartbeats. `every`: all launches are to be compiled, not only those in doubt. `lower` compiles
    one; no binary is needed.
    """

    tell: Listener
    seconds: float = 30.0
    memory: int = 4 << 30
    every: bool = False
    lower: Callable[[PlannedLaunch, Path], LoweredLaunch] = lower_to_ptx
    workdir: str | None = None
    spent: float = 0.0
    _launches: dict[Key, PlannedLaunch] = field(default_factory=dict)
    _dots: dict[Key, set[PredictedDot]] = field(default_factory=dict)
    _compiled: dict[Key, Result] = field(default_factory=dict)

    def note(self, target: str | None, launches: Iterable[Launch]) -> list[Key]:
        """Add launches that were predicted for a target; return the keys of those to compile."""
        noted: dict[Key, None] = {}
        for launch in launches:
            if target is not None and launch.dots and launch.compiled is not None:
                captured = CapturedLaunch(target, *launch.compiled)
                key = (target, *captured.key)
                if key not in self._launches:
                    record = describe_launch(captured)
                    label = f"{record.kernel} {record.constants}".strip()
                    self._launches[key] = PlannedLaunch(label, record, captured)
                self._dots.setdefault(key, set()).update(launch.dots)
                noted[key] = None
        return list(noted)

    def check(self, target: str, launches: Iterable[Launch]) -> ModelCheck:
        """Check these launches; each is compiled unless an earlier call compiled it."""
        keys = self.note(target, launches)
        self._compile_all(keys)
        return self._conclude(keys)

    def check_noted(self) -> None:
        """Compile every launch that was noted."""
        self._compile_all(self._launches)

    def conclude(self) -> ModelCheck | None:
        """Return the result for all launches that were compiled, or None if none was to be."""
        keys = [key for key in self._launches if key in self._compiled]
        return self._conclude(keys) if keys or self.every else None

    def _compile_all(self, keys: Iterable[Key]) -> None:
        new = [key for key in keys if key not in self._compiled]
        if not new:
            return
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(
            prefix="gemmproof-", dir=self.workdir, ignore_cleanup_errors=True
        ) as workdir:

            def begin(number: int) -> None:
                shown = self._launches[new[number]].label
                self.tell(ModelCheckStarted(shown, number + 1, len(new)))

            compiler = Compiler(Path(workdir), self.seconds, self.memory, begin, lower=self.lower)
            results = compiler.compile([self._launches[key] for key in new])
        self._compiled.update(zip(new, results, strict=True))
        self.spent += time.perf_counter() - began

    def _conclude(self, keys: Iterable[Key]) -> ModelCheck:
        lines: dict[str, dict[str, None]] = {NOT_KNOWN: {}, CONTRADICTED: {}}
        counts: Counter[str] = Counter()
        undecided: Counter[str] = Counter()
        failed: list[str] = []
        targets: Counter[str] = Counter()
        for key in keys:
            targets[key[0]] += 1
            compiled, predicted = self._compiled[key], join_predicted(self._dots[key])
            if isinstance(compiled, Failure):
                failed.append(str(replace(compiled, launch=f"{compiled.launch} for {key[0]}")))
                continue
            if compiled.error:
                got = f"{compiled.where}: {compiled.error}" if compiled.where else compiled.error
                failed.append(str(Failure(f"{self._launches[key].label} for {key[0]}", got)))
                continue
            counts["dots"] += len(predicted)
            for comparison in compare(predicted, join_lines(compiled.source_dots, compiled.dots)):
                counts[comparison.status] += 1
                undecided.update(comparison.open)
                if comparison.status != AGREED:
                    lines[comparison.status][comparison.line] = None
        return ModelCheck(
            " ".join(targets),
            sum(targets.values()),
            counts["dots"],
            counts[AGREED],
            counts[CONTRADICTED],
            round(self.spent, 2),
            tuple(lines[NOT_KNOWN]),
            tuple(lines[CONTRADICTED]),
            tuple(failed),
            dict(undecided),
        )

"""Assumptions of predictions: the model of a dot compared with the compiled one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, lcm, prod
from typing import Any

from gemmproof.lowering import assembly
from gemmproof.lowering.compile import CompiledLaunch
from gemmproof.lowering.facts import list_dots, show
from gemmproof.lowering.record import FMA, UNKNOWN, DotInstruction, DotLowering, read_dot
from gemmproof.reference.dot import DotModel
from gemmproof.reference.dot.model import SPLITS
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.simulation import PredictedDot
from gemmproof.target import display_path

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
        where = "" if dot.where is None else f"{display_path(dot.where.file)}:{dot.where.line}"
        model = replace(dot.model, from_zero=bool(dot.model.split))
        starts_by_key.setdefault((where, dot.tile, model), set()).add(dot.from_zero)
    predicted = (
        Predicted(*key, True in starts, False in starts) for key, starts in starts_by_key.items()
    )
    return sorted(predicted, key=lambda x: (x.where, x.tile, str(x)))


# -- compiled ------------------------------------------------------------------------------------
_WARPS = re.compile(r"warpsPerCTA = \[([\d, ]+)\]")


@dataclass(frozen=True, slots=True)
class CompiledDot:
    """The dots of a launch at one line, and their lowerings.

    `tiles` are theirs, `kinds` how many of them differ in tile, formats or precision, and `warps`
    how the warps of a block share the result, along each of its axes; None if unknown. `strays`:
    instructions of other dots may be among them, or some of theirs elsewhere.
    """

    where: str
    lowerings: tuple[DotLowering, ...]
    tiles: tuple[tuple[int, ...], ...]
    kinds: int
    warps: tuple[int, ...] | None = None
    strays: bool = False

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> CompiledDot:
        """Rebuild the record that `asdict` gave, also after JSON."""
        lowerings = tuple(read_dot(x) for x in data["lowerings"])
        tiles = tuple(tuple(x) for x in data["tiles"])
        warps = None if data["warps"] is None else tuple(data["warps"])
        return CompiledDot(**{**data, "lowerings": lowerings, "tiles": tiles, "warps": warps})


def list_compiled(compiled: CompiledLaunch) -> list[CompiledDot]:
    """List the dots of a compiled launch, by line."""
    source_dots = assembly.list_dots(compiled.asm.get("ttir", ""))
    return join_lines(source_dots, list_dots(compiled))


def join_lines(
    source_dots: list[assembly.IrDot], lowered: Iterable[DotLowering]
) -> list[CompiledDot]:
    """Join every line of the source that has dots with its lowerings.

    A compiler may give some instructions of a dot another line: that of an operand, or of the
    surrounding function. They belong to the only dot there is, or else to the only line that has no
    instructions.
    """
    lines: dict[str, list[assembly.IrDot]] = {}
    for dot in source_dots:
        lines.setdefault(show(dot.location), []).append(dot)
    by_line: dict[str, list[DotLowering]] = {line: [] for line in lines}
    unassigned: list[DotLowering] = []
    for lowering in lowered:
        by_line.get(lowering.where, unassigned).append(lowering)
    empty = [line for line in lines if not any(map(_multiplies, by_line[line]))]
    unassigned = [lowering for lowering in unassigned if _multiplies(lowering)]
    only_line = next(iter(lines)) if len(lines) == 1 else empty[0] if len(empty) == 1 else None
    if unassigned and only_line is not None:
        by_line[only_line] += unassigned
    compiled = []
    for line, dots in lines.items():
        shares = {_read_warps(x.layouts[2]) for x in by_line[line] if x.layouts[2]}
        compiled.append(
            CompiledDot(
                line,
                tuple(by_line[line]),
                tuple(dict.fromkeys(x.tile for x in dots)),
                len({(x.tile, x.formats, x.precision) for x in dots}),
                shares.pop() if len(shares) == 1 else None,
                bool(unassigned) and len(lines) > 1,
            )
        )
    return compiled


def _multiplies(lowering: DotLowering) -> bool:
    return any(x.name for x in lowering.instructions)


def _read_warps(layout: str) -> tuple[int, ...] | None:
    match = _WARPS.search(layout)
    return tuple(map(int, match[1].split(","))) if match else None


def to_dicts(dots: list[CompiledDot]) -> list[dict[str, Any]]:
    """Return the dots as plain data."""
    return [asdict(dot) for dot in dots]


# -- aspects -------------------------------------------------------------------------------------
UNIT, STEP, FORMAT, ACCUMULATOR = "the unit", "k of a step", "formats", "the accumulator"
ORDER, SATURATION = "the order of k", "saturation"
PROMOTION, ZERO, SPLIT, PRECISION = "promotion", "sums from zero", "split", "precision"

CaseResult = tuple[tuple[str, ...], tuple[str, ...]]  # aspects that differ, and unknown ones


def compare_instruction(
    predicted: Predicted, instruction: DotInstruction, dot: CompiledDot
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
    is_same = compare_order(predicted, instruction, dot)
    if is_same is None:
        unknown.append(ORDER)
    elif not is_same:
        differs.append(ORDER)
    return tuple(differs), tuple(unknown)


def compare_order(
    predicted: Predicted, instruction: DotInstruction, dot: CompiledDot
) -> bool | None:
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
        sides = [tuple(map(read_width, x.layouts[:2])) for x in dot.lowerings if x.layouts[0]]
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
    predicted: Predicted, dot: CompiledDot, instructions: Sequence[DotInstruction]
) -> CaseResult:
    """Compare the order of additions, over all instructions of a dot together.

    A chain that begins at zero and is added may be longer than a dot's k: the source itself may sum
    several before it adds them. A shorter one, or one where the unit was to add onto the sum before
    it, contradicts the prediction.
    """
    differs: list[str] = []
    unknown: list[str] = []
    precisions = {x.precision for x in dot.lowerings if x.precision}
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
    if dot.strays:
        return tuple(differs), (*unknown, SPLIT, PROMOTION)
    if predicted.model.split:
        products = _count_products(predicted, dot, instructions)
        if products is None:
            unknown.append(SPLIT)
        elif products % len(SPLITS[predicted.model.split]):
            differs.append(SPLIT)
    sums, more = _compare_chains(predicted, dot, instructions)
    return (*differs, *sums), (*unknown, *more)


def _compare_chains(
    predicted: Predicted, dot: CompiledDot, instructions: Sequence[DotInstruction]
) -> CaseResult:
    if sum(any(y.name for y in x.instructions) for x in dot.lowerings) > 1:
        return (), (PROMOTION,)  # a chain may go from one lowering to another
    promoted = {x.promoted_k for x in dot.lowerings if x.promoted_k is not None}
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
    predicted: Predicted, dot: CompiledDot, instructions: Sequence[DotInstruction]
) -> int | None:
    """Count how many times the program multiplies the whole tile; None if unknown."""
    if len(instructions) != 1 or (instruction := instructions[0]).shape is None:
        return None
    (*sides, K), (m, n, k) = predicted.tile, instruction.shape
    sizes = (*(1 for _ in sides[2:]), m, n)  # an instruction has no batch
    warps = dot.warps if instruction.unit != "tcgen05" else (1,) * len(sides)
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


def compare(predicted: Sequence[Predicted], compiled: Sequence[CompiledDot]) -> list[Comparison]:
    """Compare each predicted model of one launch with its compiled dot."""
    by_line = {model.where: model for model in compiled}
    named = {model.where for model in predicted}
    comparisons = []
    for model in predicted:
        dot = by_line.get(model.where)
        if dot is None or model.tile not in dot.tiles:
            dot = _find_moved(model, compiled, named) or dot
        models = [x for x in predicted if x.where == model.where]
        comparisons.append(_compare_one(model, dot, models))
    return comparisons


def _find_moved(
    predicted: Predicted, compiled: Iterable[CompiledDot], named: set[str]
) -> CompiledDot | None:
    """Return the only dot of this tile at a line without a prediction.

    A sum that is folded into a dot gives the dot its line.
    """
    others = [x for x in compiled if x.where not in named and predicted.tile in x.tiles]
    return others[0] if len(others) == 1 else None


def _compare_one(
    predicted: Predicted, dot: CompiledDot | None, models: Sequence[Predicted]
) -> Comparison:
    shown = predicted.where or "line unknown"
    if dot is None or predicted.tile not in dot.tiles:
        tile = "x".join(map(str, predicted.tile))
        reason = f"no dot of {tile} stands at this line of the compiled program"
        return Comparison(NOT_KNOWN, f"{shown}: {reason}")
    instructions = _list_products(dot)
    if not instructions:
        return Comparison(NOT_KNOWN, f"{shown}: no instruction that multiplies is recognised")
    if any(x.unit == UNKNOWN for x in instructions):
        names = " ".join(x.name for x in instructions if x.unit == UNKNOWN)
        return Comparison(NOT_KNOWN, f"{shown}: {names} is not recognised")
    results = [(compare_instruction(predicted, x, dot), x) for x in instructions]
    # an instruction of a line with several dots may be of any of them; else it is this dot's
    is_only = dot.kinds == 1 and len({(x.tile, x.formats) for x in models}) == 1
    wrong = [aspects for (aspects, _), _ in results if aspects]
    differs: tuple[str, ...] = ()
    if len(wrong) == len(results):
        differs = min(wrong, key=len)
    elif is_only and len(models) == 1 and wrong:
        differs = wrong[0]
    unknown = [x for (_, x), _ in results]
    unknown_aspects = min(unknown, key=len) if unknown else ()
    if is_only:
        sums, unknown_sums = compare_sums(predicted, dot, instructions)
        differs, unknown_aspects = (*differs, *sums), (*unknown_aspects, *unknown_sums)
    if differs:
        both = f"predicted as {predicted}; compiled to {_describe(dot, instructions)}"
        return Comparison(CONTRADICTED, f"{shown}: {both} (they differ in {', '.join(differs)})")
    return Comparison(AGREED, open=tuple(dict.fromkeys(unknown_aspects)))


def _list_products(dot: CompiledDot) -> list[DotInstruction]:
    """List the multiplying instructions of a line: those of the tensor cores if there are any.

    An integer multiply-add next to them computes an address.
    """
    instructions = [x for lowering in dot.lowerings for x in lowering.instructions]
    cores = [x for x in instructions if x.unit != FMA and (x.unit != UNKNOWN or x.name)]
    products = cores or [x for x in instructions if x.unit == FMA and x.accumulator[:1] == "f"]
    joined: dict[DotInstruction, list[DotInstruction]] = {}
    for x in products:
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
    """Format the compiled dot for a report."""
    counted: Counter[str] = Counter()
    for x in instructions:
        shape = "" if x.shape is None else " m{}n{}k{}".format(*x.shape)
        formats = f" of {x.a} x {x.b}" if x.a else ""
        saturates = " saturating" if "satfinite" in x.name else ""
        counted[f"{x.name if x.unit == FMA else x.unit}{shape}{formats} onto {x.accumulator}"
                f"{saturates}"] += x.count  # fmt: skip
    parts = [f"{count} {name}" for name, count in counted.items()]
    for lowering in dot.lowerings:
        if width := read_width(lowering.layouts[0]):
            parts.append(f"kWidth {width}")
        if lowering.promoted_k is not None:
            parts.append(f"sums of {lowering.promoted_k} of k from zero")
        if lowering.precision:
            parts.append(f"fp32 by {lowering.precision}")
    return ", ".join(dict.fromkeys(parts))

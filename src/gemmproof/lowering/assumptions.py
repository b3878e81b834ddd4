"""Assumptions of predictions: the model of a dot beside the compiled one."""

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
    """The kWidth of an operand in registers, None of any other layout."""
    found = _WIDTH.match(layout.strip())
    return int(found[1]) if found else None


def list_order(width: int, bits: int, BLOCK_K: int) -> tuple[int, ...]:
    """The k of successive products within a group, of operands of `bits` with this kWidth.

    A tile of 4 w has no upper half of a group: what is left of a thread's w neighbours takes its
    place, E by E. () where a tile is neither that nor whole groups: the order is then not known.
    """
    E = 32 // bits
    if width % E or (BLOCK_K % (8 * width) and BLOCK_K != 4 * width):
        return ()
    short = BLOCK_K == 4 * width
    if short and width % (2 * E):
        return tuple(range(BLOCK_K))  # one instruction, of which the upper half is empty
    halves, step = ((0, E), 2 * E) if short else ((0, 4 * width), E)
    return tuple(
        width * t + register + half + e
        for register in range(0, width, step)
        for half in halves
        for t in range(4)
        for e in range(E)
    )


def list_steps(order: tuple[int, ...], size: int, K: int) -> Steps:
    """The products that a unit sums at once, `size` of k in this order; () is ascending."""
    group = order or tuple(range(size))
    count = lcm(len(group), size, K)
    whole = [k + start for start in range(0, count, len(group)) for k in group]
    return tuple(frozenset(whole[i : i + size]) for i in range(0, count, size))


# -- predicted -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Predicted:
    """A model that predicted a dot at a line, and whether it began at zero, onto a sum, or both.

    `tile` is (..., M, N, K), after the batch that a block holds.
    """

    where: str
    tile: tuple[int, ...]
    model: DotModel
    from_zero: bool
    onto_sum: bool

    @property
    def formats(self) -> tuple[str, str]:
        """What is multiplied, after widening."""
        model = self.model
        return name(model.as_format or model.a_format), name(model.as_format or model.b_format)

    @property
    def accumulator(self) -> str:
        """What is added in."""
        return name(self.model.acc_format)

    @property
    def precision(self) -> str:
        """How fp32 operands are multiplied, "" for others."""
        if self.model.split:
            return self.model.split
        return {"tf32": "tf32", "fp32": "ieee"}.get(self.model.a_format, "")

    @property
    def chain(self) -> int | None:
        """The elements of k that are summed from zero before they are added to the rest.

        None where the unit adds onto the sum itself.
        """
        return self.model.part or (self.tile[-1] if self.model.split else None)

    def __str__(self) -> str:
        """The model, as a report names it."""
        model, (a, b) = self.model, self.formats
        words = [f"{model.instruction} of {a} x {b} onto {self.accumulator}"]
        if model.unit.kind == "fused":
            words.append(f"{model.unit.L} of k at once")
        if model.as_format and not model.split:
            words.append(f"widened from {name(model.a_format)} x {name(model.b_format)}")
        if model.order:
            words.append(f"k in the order {_shorten(model.order)}")
        if model.split:
            words.append(f"split by {model.split}")
        if self.chain is not None:
            words.append(f"sums of {self.chain} of k from zero")
        elif self.onto_sum:
            words.append("onto the sum before it")
        if model.unit.saturates:
            words.append("saturating")
        return ", ".join(words)


def name(format_name: str) -> str:
    """A format as PTX names it: fp8e4m3 is e4m3, fp16 is f16, int8 is s8."""
    return FORMATS[format_name].ptx or format_name.replace("int", "s")


def _shorten(order: tuple[int, ...]) -> str:
    return f"{' '.join(map(str, order[:8]))} ..."


def join_predicted(dots: Iterable[PredictedDot]) -> list[Predicted]:
    """The models of each line and tile, once; that one began at zero is no model of its own.

    A dot whose sum is the constant zero at first has `from_zero` in its first trip alone.
    """
    found: dict[tuple[str, tuple[int, ...], DotModel], set[bool]] = {}
    for dot in dots:
        where = "" if dot.where is None else f"{display_path(dot.where.file)}:{dot.where.line}"
        model = replace(dot.model, from_zero=bool(dot.model.split))
        found.setdefault((where, dot.tile, model), set()).add(dot.from_zero)
    made = (Predicted(*key, True in starts, False in starts) for key, starts in found.items())
    return sorted(made, key=lambda x: (x.where, x.tile, str(x)))


# -- compiled ------------------------------------------------------------------------------------
_WARPS = re.compile(r"warpsPerCTA = \[([\d, ]+)\]")


@dataclass(frozen=True, slots=True)
class CompiledDot:
    """The dots that a launch has at one line, and what became of them.

    `tiles` are theirs, `kinds` how many of them differ in tile, formats or precision, and `warps`
    how the warps of a block share the result, along each of its axes; None where that is not known.
    `strays`: instructions of other dots may be among them, or some of theirs elsewhere.
    """

    where: str
    lowerings: tuple[DotLowering, ...]
    tiles: tuple[tuple[int, ...], ...]
    kinds: int
    warps: tuple[int, ...] | None = None
    strays: bool = False

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> CompiledDot:
        """The record that `asdict` gave, also after JSON."""
        lowerings = tuple(read_dot(x) for x in data["lowerings"])
        tiles = tuple(tuple(x) for x in data["tiles"])
        warps = None if data["warps"] is None else tuple(data["warps"])
        return CompiledDot(**{**data, "lowerings": lowerings, "tiles": tiles, "warps": warps})


def list_compiled(made: CompiledLaunch) -> list[CompiledDot]:
    """The dots of a compiled launch, by line."""
    asked = assembly.list_dots(made.asm.get("ttir", ""))
    return join_lines(asked, list_dots(made))


def join_lines(asked: list[assembly.IrDot], lowered: Iterable[DotLowering]) -> list[CompiledDot]:
    """Every line of the source that has dots, with what the compiler made of them.

    A compiler may give some instructions of a dot another line: that of an operand, or of the
    function around it. They are those of the only dot there is, or else of the only line that has
    none of its own.
    """
    lines: dict[str, list[assembly.IrDot]] = {}
    for dot in asked:
        lines.setdefault(show(dot.place), []).append(dot)
    given: dict[str, list[DotLowering]] = {line: [] for line in lines}
    strays: list[DotLowering] = []
    for one in lowered:
        given.get(one.where, strays).append(one)
    lacking = [line for line in lines if not any(map(_multiplies, given[line]))]
    strays = [one for one in strays if _multiplies(one)]
    home = next(iter(lines)) if len(lines) == 1 else lacking[0] if len(lacking) == 1 else None
    if strays and home is not None:
        given[home] += strays
    found = []
    for line, dots in lines.items():
        shares = {_read_warps(x.layouts[2]) for x in given[line] if x.layouts[2]}
        found.append(
            CompiledDot(
                line,
                tuple(given[line]),
                tuple(dict.fromkeys(x.tile for x in dots)),
                len({(x.tile, x.formats, x.precision) for x in dots}),
                shares.pop() if len(shares) == 1 else None,
                bool(strays) and len(lines) > 1,
            )
        )
    return found


def _multiplies(one: DotLowering) -> bool:
    return any(x.name for x in one.instructions)


def _read_warps(layout: str) -> tuple[int, ...] | None:
    found = _WARPS.search(layout)
    return tuple(map(int, found[1].split(","))) if found else None


def to_dicts(dots: list[CompiledDot]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [asdict(one) for one in dots]


# -- aspects -------------------------------------------------------------------------------------
UNIT, STEP, FORMAT, ACCUMULATOR = "the unit", "k of a step", "formats", "the accumulator"
ORDER, SATURATION = "the order of k", "saturation"
PROMOTION, ZERO, SPLIT, PRECISION = "promotion", "sums from zero", "split", "precision"

CaseResult = tuple[tuple[str, ...], tuple[str, ...]]  # what differs, and what is not told


def compare_instruction(one: Predicted, made: DotInstruction, dot: CompiledDot) -> CaseResult:
    """What an instruction does otherwise than the model, and what it does not tell."""
    unit = "fma" if made.unit == FMA else made.unit
    if unit != one.model.instruction:
        return (UNIT,), ()
    differs: list[str] = []
    untold: list[str] = []
    if not made.accumulator:
        untold.append(ACCUMULATOR)
    elif made.accumulator != one.accumulator:
        differs.append(ACCUMULATOR)
    if unit == "fma":
        return tuple(differs), tuple(untold)
    if not (made.a and made.b):
        untold.append(FORMAT)
    elif (made.a, made.b) != one.formats:
        differs.append(FORMAT)
    if one.model.unit.kind == "integer" and one.model.unit.saturates != ("satfinite" in made.name):
        differs.append(SATURATION)
    if made.shape is None:
        return tuple(differs), (*untold, STEP, ORDER)
    # a sum goes through the unit step by step; an instruction of fewer k would end one early
    if one.model.unit.kind == "fused" and made.shape[2] % one.model.unit.L:
        return (*differs, STEP), tuple(untold)
    is_same = compare_order(one, made, dot)
    if is_same is None:
        untold.append(ORDER)
    elif not is_same:
        differs.append(ORDER)
    return tuple(differs), tuple(untold)


def compare_order(one: Predicted, made: DotInstruction, dot: CompiledDot) -> bool | None:
    """Whether the unit takes the same k at each of its steps; None where that is not told.

    Integers that do not saturate have no order.
    """
    model, (_, _, k) = one.model, made.shape or (0, 0, 0)
    if model.unit.kind == "integer" and not model.unit.saturates:
        return True
    L = model.unit.L
    compiled: tuple[int, ...] = ()
    if made.operands == ("registers", "registers"):
        bits = 8 * FORMATS[model.as_format or model.a_format].itemsize
        if one.formats[0] == "tf32":
            bits = 32
        sides = [tuple(map(read_width, x.layouts[:2])) for x in dot.lowerings if x.layouts[0]]
        widths = {w for side in sides for w in side}
        width = widths.pop() if len(widths) == 1 else None
        if width is None:
            return None
        if bits > 32:  # doubles: one of k for each of four threads
            return True if width == 1 and not model.order else None
        compiled = list_order(width, bits, one.tile[-1])
        if not compiled:
            return None
    return list_steps(model.order, L, k) == list_steps(compiled, L, k)


def compare_sums(
    one: Predicted, dot: CompiledDot, instructions: Sequence[DotInstruction]
) -> CaseResult:
    """The same of what is added to what, of all instructions of a dot together.

    A chain that begins at zero and is added may be longer than a dot's k: the source itself may sum
    several before it adds them. A shorter one, or one where the unit was to add onto the sum
    before it, is not what was predicted.
    """
    differs: list[str] = []
    untold: list[str] = []
    said = {x.precision for x in dot.lowerings if x.precision}
    # without tensor cores there is nothing to cut operands for
    cuts = GPUS[one.model.target or ""].triton_uses_cores
    if said and one.precision and (cuts or not any(x.startswith("tf32") for x in said)):
        differs += [PRECISION] * (said != {one.precision})
    if one.model.instruction == "fma":
        return tuple(differs), tuple(untold)
    if dot.strays:
        return tuple(differs), (*untold, SPLIT, PROMOTION)
    if one.model.split:
        products = _count_products(one, dot, instructions)
        if products is None:
            untold.append(SPLIT)
        elif products % len(SPLITS[one.model.split]):
            differs.append(SPLIT)
    sums, more = _compare_chains(one, dot, instructions)
    return (*differs, *sums), (*untold, *more)


def _compare_chains(
    one: Predicted, dot: CompiledDot, instructions: Sequence[DotInstruction]
) -> CaseResult:
    if sum(any(y.name for y in x.instructions) for x in dot.lowerings) > 1:
        return (), (PROMOTION,)  # a chain may go from one place to another
    promoted = {x.promoted_k for x in dot.lowerings if x.promoted_k is not None}
    sizes = {x.shape[2] for x in instructions if x.shape is not None}
    if len(promoted) > 1 or len(sizes) != 1:
        return (), (PROMOTION,)
    found, k = next(iter(promoted), None), one.tile[-1]
    begun = sum(x.from_zero for x in instructions)
    maybe = sum(x.or_zero for x in instructions)
    total = sizes.pop() * sum(x.count for x in instructions)  # of k, over all chains of the text
    if one.model.part:
        chains = ceil(k / one.model.part)  # of one dot, each from zero
        if begun == maybe == 0 or found not in (None, min(one.model.part, k)):
            return (PROMOTION,), ()
        return ((), ()) if found and begun * k == total * chains else ((), (PROMOTION,))
    whole = k * (len(SPLITS[one.model.split]) if one.model.split else 1)
    # both ways to count must say how long a chain from zero is
    if found is not None and begun * found == total:
        is_short = found < whole
        is_added = found == whole and not one.model.split and one.onto_sum
        if is_short or is_added:
            return (PROMOTION,), ()
    is_always_begun = begun * whole == total
    if is_always_begun and one.onto_sum and not one.from_zero and not one.model.split:
        return (ZERO,), ()
    return (), ()


def _count_products(
    one: Predicted, dot: CompiledDot, instructions: Sequence[DotInstruction]
) -> int | None:
    """How many times the program multiplies the whole tile; None where that is not told."""
    if len(instructions) != 1 or (made := instructions[0]).shape is None:
        return None
    (*sides, K), (m, n, k) = one.tile, made.shape
    sizes = (*(1 for _ in sides[2:]), m, n)  # an instruction has no batch
    warps = dot.warps if made.unit != "tcgen05" else (1,) * len(sides)
    if warps is None or len(warps) != len(sides):
        return None
    if made.unit == "wgmma":  # an instruction is that of four warps
        warps = (warps[0] // 4, *warps[1:])
    if not all(warps):
        return None
    shares = zip(sides, sizes, warps, strict=True)
    once = prod(ceil(side / (size * count)) for side, size, count in shares) * ceil(K / k)
    return made.count // once if made.count % once == 0 else None


# -- compare -------------------------------------------------------------------------------------
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

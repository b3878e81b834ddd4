"""The premises of one prediction, each beside the compiled dot: what differs, what is not told."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from gemmproof.lowering.premise.compiled import CompiledDot
from gemmproof.lowering.premise.order import list_order, list_steps, read_width
from gemmproof.lowering.premise.predicted import Predicted
from gemmproof.lowering.record import FMA, DotInstruction
from gemmproof.reference.dot.model import SPLITS
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS

UNIT, STEP, FORMAT, ACCUMULATOR = "the unit", "k of a step", "formats", "the accumulator"
ORDER, SATURATION = "the order of k", "saturation"
PROMOTION, ZERO, SPLIT, PRECISION = "promotion", "sums from zero", "split", "precision"

Judged = tuple[tuple[str, ...], tuple[str, ...]]  # what differs, and what is not told


def compare_instruction(one: Predicted, made: DotInstruction, dot: CompiledDot) -> Judged:
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
) -> Judged:
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
) -> Judged:
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

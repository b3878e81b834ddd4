"""Rules of integer operations and of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from gemmproof.reference.symbolic.interpreter.interpret import Machine, choose, rule
from gemmproof.reference.symbolic.interpreter.symbolic_values import (
    ARITHMETIC,
    Bools,
    Data,
    Ints,
    Pointers,
    compare,
    compute,
    insert_axis,
    is_ring,
    permute,
    swap_lanes,
)
from gemmproof.reference.symbolic.lemmas import lane
from gemmproof.reference.symbolic.terms import (
    TRUE,
    Atom,
    Cond,
    Poly,
    eq,
    every,
    le,
    lt,
    make,
    some,
    term,
    walk,
)
from gemmproof.reference.ttir import FLIP, Op


# -- arithmetic ----------------------------------------------------------------------------------
@rule("tt.get_program_id")
def _program(machine: Machine, op: Op, values: Sequence[Any]) -> Ints:
    return Ints(machine.pids["xyz".index(op.keywords[0])])


@rule("tt.get_num_programs")
def _programs(machine: Machine, op: Op, values: Sequence[Any]) -> Ints:
    return Ints(machine.grid["xyz".index(op.keywords[0])])


@rule("arith.constant")
def _constant(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    kind = op.types[0]
    text = op.keywords[0].partition(" : ")[0].strip()
    if text.startswith("dense<"):
        text = text[6:-1]
    if kind.dtype.is_float:
        return Data("number", kind.shape, word=text)
    if text in ("true", "false"):
        return Bools(TRUE if text == "true" else ~TRUE, kind.shape)
    return Ints(term(int(text, 0)), kind.shape, kind.dtype.bits)


def is_zero(value: Data) -> bool:
    """Return whether a number is the constant 0."""
    return is_number(value, 0)


def is_number(value: Data, number: int) -> bool:
    """Return whether a number is this constant."""
    if value.kind != "number":
        return False
    try:
        return float(value.word) == number
    except ValueError:  # a hexadecimal pattern: 0 alone is the same in every format
        return number == 0 and value.word.startswith("0x") and int(value.word, 16) == 0


@rule("ub.poison")
def _poison(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    kind = op.types[0]
    if kind.dtype.is_float:
        return Data("undefined", kind.shape)
    return Ints(machine.unknown("an undefined value", kind.shape), kind.shape, kind.dtype.bits)


def require_fit(machine: Machine, value: Ints, use: str) -> None:
    """Claim that the kernel's integer, of so many bits, holds an exact one.

    Operations that are exact modulo a power of two need no claim on their operands: only what does
    more with a number than to add and multiply it depends on all of it.
    """
    if value.is_given or value.bits == 1 or _is_unknown(value.term):
        return  # an unknown number is any that its type holds
    if value.bits == 64:
        largest = find_magnitude(machine, value.term)
        if largest is not None and largest < 2**63:
            return
    machine.claim("fit", use, fits(value.term, value.bits))


def _is_unknown(number: Poly) -> bool:
    return number.atom is not None and number.atom.kind == "unknown"


SIZES = 2**31  # sizes and strides are below it in every contract
_NOT_SIZES = ("address of", "offset of")
_LOOPS = ("trip", "trips", "earlier", "lane up to it")


def find_magnitude(machine: Machine, number: Poly) -> int | None:
    """Return a number that the absolute value of an integer evidently never exceeds, or None."""
    total = 0
    for monomial, coefficient in number.terms.items():
        bounds = [_find_magnitude(machine, x) for x in monomial]
        if None in bounds:
            return None
        total += abs(coefficient) * prod(x for x in bounds if x is not None)
    return total


def _find_magnitude(machine: Machine, atom: Atom) -> int | None:
    if atom.is_natural and atom.most is not None:
        return atom.most
    if atom.kind == "symbol":
        name = str(atom.args[0])
        if name in _LOOPS or name.startswith(_NOT_SIZES):
            return machine.largest.get(atom)
        return SIZES
    if atom.kind in ("min", "max", "choice"):
        bounds = [find_magnitude(machine, x) for x in atom.args[-2:]]
        return None if None in bounds else max(x for x in bounds if x is not None)
    if atom.kind in ("floordiv", "div", "rem", "shr"):  # by 1 or more, which is claimed
        return find_magnitude(machine, atom.args[0])
    return find_magnitude(machine, atom.args[1]) if atom.kind == "mod" else None


def fits(number: Poly, bits: int) -> Cond:
    """Return the condition that an integer fits a signed type."""
    if number.most is not None and number.most < 2 ** (bits - 1):
        return TRUE
    top = term(2 ** (bits - 1))
    lower = TRUE if number.is_natural else le(-top, number)
    return every((lower, le(number, top - 1)))


def _arithmetic(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    kind = op.types[0]
    divides = op.name.startswith(("arith.div", "arith.rem", "arith.floordiv"))
    if any(isinstance(x, Data) for x in values):
        parts = tuple(machine.data(x) for x in values)
        if divides and (parts[1].kind != "number" or is_zero(parts[1])):  # by 0 it is undefined
            parts = (*parts, Data("undefined", kind.shape))
        return Data(op.name, kind.shape, parts, word=kind.dtype.name)
    if kind.dtype.bits == 1:
        return _logic(machine, op, values)
    x, y = map(machine.ints, values)
    if not is_ring(op.name):
        for side in (x, y):
            require_fit(machine, side, op.name)
    if divides:
        machine.claim("fit", f"{op.name} by what is positive", le(1, y.term))
        _claim_rounding(machine, op, x.term)
    if op.name.startswith("arith.sh"):
        inside = le(0, y.term) & lt(y.term, kind.dtype.bits)
        machine.claim("fit", "a shift by less than the width", inside)
    number = compute(op.name, x.term, y.term)
    if number is None:
        number = machine.unknown(f"{op.name} of what may be negative", kind.shape)
    return Ints(number, kind.shape, kind.dtype.bits)


def _claim_rounding(machine: Machine, op: Op, number: Poly) -> None:
    """Claim that a quotient of arguments is the same where one of them is 1.

    Triton makes an argument of 1 a constant, and Python, which then divides, rounds down where the
    kernel rounds towards zero.
    """
    if number.is_natural:
        return
    leaves = {x for x in walk(number) if x.is_leaf}
    integers = (x.term for x in machine.arguments if isinstance(x, Ints))
    own = [x for x in integers if x.constant is None and leaves & set(walk(x))]
    if leaves <= {x for argument in own for x in walk(argument)}:
        rounds_alike = le(0, number) | every(~eq(x, 1) for x in own)
        machine.claim("fit", f"{op.name} of a constant that may be negative", rounds_alike)


def _logic(machine: Machine, op: Op, values: Sequence[Any]) -> Bools:
    x, y = (machine.bools(value).cond for value in values)
    shape = op.types[0].shape
    if op.name in ("arith.andi", "arith.muli"):
        return Bools(x & y, shape)
    if op.name == "arith.ori":
        return Bools(x | y, shape)
    if op.name in ("arith.xori", "arith.addi", "arith.subi"):
        return Bools(some((every((x, ~y)), every((~x, y)))), shape)
    return Bools(~eq(machine.unknown(op.name, shape), 0), shape)


for _name in ARITHMETIC:
    rule(_name)(_arithmetic)


@rule("arith.cmpi")
def _compare(machine: Machine, op: Op, values: Sequence[Any]) -> Bools:
    shape = op.types[0].shape
    if any(isinstance(x, Pointers) for x in values):
        return Bools(~eq(machine.unknown("a comparison of pointers", shape), 0), shape)
    x, y = map(machine.ints, values)
    for side in (x, y):
        require_fit(machine, side, "a comparison")
    cond = compare(op.keywords[0], x.term, y.term)
    if cond is None:
        cond = ~eq(machine.unknown("an unsigned comparison", shape), 0)
    return Bools(cond, shape)


@rule("arith.select")
def _select(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    shape = op.types[0].shape
    condition = machine.bools(values[0]).cond
    x, y = (v.map(lambda part: part, shape) if hasattr(v, "map") else v for v in values[1:])
    if isinstance(x, Data) != isinstance(y, Data):
        x, y = machine.data(x), machine.data(y)
    return choose(machine, condition, x, y)


@rule(
    "arith.extsi",
    "arith.extui",
    "arith.trunci",
    "arith.bitcast",
    "arith.index_cast",
    "arith.index_castui",
)
def _cast(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    kind, x = op.types[0], values[0]
    if isinstance(x, Data) or kind.dtype.is_float:
        return Data(op.name, kind.shape, (machine.data(x),))
    if kind.dtype.bits == 1:
        if isinstance(x, Bools):
            return x
        return Bools(~eq(make("mod", machine.ints(x).term, 2), 0), kind.shape)
    if isinstance(x, Bools):
        number = -x.number if op.name == "arith.extsi" else x.number
        return Ints(number, kind.shape, kind.dtype.bits)
    whole = machine.ints(x)
    if op.name in ("arith.extsi", "arith.extui"):
        require_fit(machine, whole, "a wider integer")
        if op.name == "arith.extui" and not whole.term.is_natural:
            number = make("mod", whole.term, 1 << whole.bits)
            return Ints(number, kind.shape, kind.dtype.bits)
    if kind.dtype.bits < whole.bits and _is_unknown(whole.term):
        number = machine.unknown("the low bits of an unknown number", kind.shape)
        return Ints(number, kind.shape, kind.dtype.bits)
    return Ints(whole.term, kind.shape, kind.dtype.bits)


@rule("math.absi")
def _absolute(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    if isinstance(values[0], Data):
        return Data(op.name, op.types[0].shape, (values[0],))
    x = machine.ints(values[0])
    require_fit(machine, x, op.name)
    return Ints(make("max", x.term, -x.term), x.shape, x.bits)


# -- claims --------------------------------------------------------------------------------------
@rule("llvm.intr.assume", "tt.assert")
def _assume(machine: Machine, op: Op, values: Sequence[Any]) -> None:
    word = "tl.assume" if op.name == "llvm.intr.assume" else "tl.device_assert"
    machine.claim("hint" if word == "tl.assume" else "assert", word, machine.bools(values[0]).cond)


# -- shapes --------------------------------------------------------------------------------------
@rule("tt.make_range")
def _range(machine: Machine, op: Op, values: Sequence[Any]) -> Ints:
    start, end = op.integer("start"), op.integer("end")
    return Ints(lane(0, end - start) + start, (end - start,))


@rule("tt.splat", "tt.broadcast")
def _broadcast(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    return values[0].map(lambda x: x, op.types[0].shape)


@rule("tt.expand_dims")
def _expand(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    return insert_axis(values[0], op.integer("axis"))


@rule("tt.trans")
def _transpose(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    return permute(values[0], tuple(op.integers("order")))


@rule("tt.reshape")
def _reshape(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    if "allow_reorder" in op.keywords:  # the compiler chooses which element each lane gets
        return machine.opaque(op, values, op.types[0])
    return reshape(values[0], op.types[0].shape)


@rule(FLIP)
def _flip(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    axis = op.integer("axis")
    index = lane(axis, op.types[0].shape[axis])
    swaps = {} if index.atom is None else {index.atom: op.types[0].shape[axis] - 1 - index}
    return swap_lanes(values[0], swaps, op.types[0].shape)


@rule("tt.gather")
def _gather(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    source, index = values
    size = source.shape[op.integer("axis")]
    atom = lane(op.integer("axis"), size).atom
    is_inside = (
        isinstance(index, Ints) and index.term.is_natural and (size - 1 - index.term).is_natural
    )
    if atom is None or not is_inside:
        return machine.opaque(op, values, op.types[0])
    require_fit(machine, index, op.name)
    machine.forgo(index.hints)
    return swap_lanes(source, {atom: index.term}, op.types[0].shape)


def reshape(value: Any, shape: tuple[int, ...]) -> Any:
    """Return a block in another shape, its lanes in row-major order."""
    index: Poly = term(0)
    for axis, n in enumerate(shape):
        index = index * n + lane(axis, n)
    swaps = {}
    below = 1
    for axis in reversed(range(len(value.shape))):
        n = value.shape[axis]
        atom = lane(axis, n).atom
        if atom is not None:
            swaps[atom] = make("mod", make("floordiv", index, below), n)
        below *= n
    return swap_lanes(value, swaps, shape)


@rule("tt.join")
def _join(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    shape = op.types[0].shape
    first = eq(lane(len(shape) - 1, 2), 0)
    x, y = (value.map(lambda part: part, shape) for value in values)
    return choose(machine, first, x, y)


@rule("tt.split")
def _split(machine: Machine, op: Op, values: Sequence[Any]) -> list[Any]:
    *shape, n = values[0].shape
    atom = lane(len(shape), n).atom
    assert atom is not None
    return [swap_lanes(values[0], {atom: term(i)}, tuple(shape)) for i in range(2)]


@rule("tt.unsplat")
def _unsplat(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    return values[0].map(lambda x: x, ())

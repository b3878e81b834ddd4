"""Rules of integer operations and of shapes."""

from __future__ import annotations

from collections.abc import Sequence
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
from gemmproof.reference.symbolic.terms import TRUE, Cond, Poly, eq, every, le, make, some, term
from gemmproof.reference.ttir import Op


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
    """Claim that the kernel's integer, of fewer bits, holds an exact one."""
    if value.is_given or value.bits in (1, 64) or value.term.constant is not None:
        return
    machine.claim("fit", use, fits(value.term, value.bits))


def fits(number: Poly, bits: int) -> Cond:
    """Return the condition that an integer fits a signed type."""
    if number.most is not None and number.most < 2 ** (bits - 1):
        return TRUE
    top = term(2 ** (bits - 1))
    lower = TRUE if number.is_natural else le(-top, number)
    return every((lower, le(number, top - 1)))


def _arithmetic(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    kind = op.types[0]
    if any(isinstance(x, Data) for x in values):
        parts = tuple(machine.data(x) for x in values)
        return Data(op.name, kind.shape, parts, word=kind.dtype.name)
    if kind.dtype.bits == 1:
        return _logic(machine, op, values)
    x, y = map(machine.ints, values)
    if not is_ring(op.name):
        for side in (x, y):
            require_fit(machine, side, op.name)
    if op.name.startswith(("arith.div", "arith.rem", "arith.floordiv")):
        machine.claim("fit", f"{op.name} by what is positive", le(1, y.term))
    number = compute(op.name, x.term, y.term)
    if number is None:
        number = machine.unknown(f"{op.name} of what may be negative", kind.shape)
    return Ints(number, kind.shape, kind.dtype.bits)


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
    if op.keywords[0] not in ("eq", "ne"):
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
    return reshape(values[0], op.types[0].shape)


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

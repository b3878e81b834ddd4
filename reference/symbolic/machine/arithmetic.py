"""Integers, comparisons and choices; what the kernel assumes of them, and where they must fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmproof.reference.symbolic.machine.integers import ARITHMETIC, compare, compute, is_ring
from gemmproof.reference.symbolic.machine.interpret import Machine
from gemmproof.reference.symbolic.machine.joining import choose
from gemmproof.reference.symbolic.machine.registry import rule
from gemmproof.reference.symbolic.machine.values import Bools, Data, Ints, Pointers
from gemmproof.reference.symbolic.terms import (
    TRUE,
    Cond,
    Poly,
    eq,
    every,
    le,
    make,
    some,
    term,
)
from gemmproof.reference.ttir.module import Op


@rule("tt.get_program_id")
def _program(machine: Machine, op: Op, values: Sequence[Any]) -> Ints:
    return Ints(machine.pids["xyz".index(op.words[0])])


@rule("tt.get_num_programs")
def _programs(machine: Machine, op: Op, values: Sequence[Any]) -> Ints:
    return Ints(machine.grid["xyz".index(op.words[0])])


@rule("arith.constant")
def _constant(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    kind = op.types[0]
    text = op.words[0].partition(" : ")[0].strip()
    if text.startswith("dense<"):
        text = text[6:-1]
    if kind.dtype.is_float:
        return Data("number", kind.shape, word=text)
    if text in ("true", "false"):
        return Bools(TRUE if text == "true" else ~TRUE, kind.shape)
    return Ints(term(int(text, 0)), kind.shape, kind.dtype.bits)


def is_zero(value: Data) -> bool:
    """Whether a number is the constant 0."""
    return is_number(value, 0)


def is_number(value: Data, number: int) -> bool:
    """Whether a number is this constant."""
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
    """Claim that an exact integer is what the kernel's own, of fewer bits, holds."""
    if value.is_given or value.bits in (1, 64) or value.term.constant is not None:
        return
    machine.claim("fit", use, fits(value.term, value.bits))


def fits(number: Poly, bits: int) -> Cond:
    """Whether an integer fits a signed type."""
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
    if op.words[0] not in ("eq", "ne"):
        for side in (x, y):
            require_fit(machine, side, "a comparison")
    cond = compare(op.words[0], x.term, y.term)
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

"""Data over symbols: sums, products and contractions are kept, the rest goes by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmproof.reference.symbolic.definitions import lane
from gemmproof.reference.symbolic.machine.arithmetic import is_zero
from gemmproof.reference.symbolic.machine.interpret import Machine
from gemmproof.reference.symbolic.machine.registry import rule
from gemmproof.reference.symbolic.machine.values import Data, fresh_lane, swap_lanes
from gemmproof.reference.ttir.module import Block, Op

CASTS = ("arith.truncf", "arith.extf", "tt.fp_to_fp", "arith.sitofp", "arith.uitofp",
         "arith.fptosi", "arith.fptoui")  # fmt: skip


@rule(*CASTS)
def _cast(machine: Machine, op: Op, values: Sequence[Any]) -> Data:
    value = machine.data(values[0])
    shape = op.types[0].shape
    if value.kind == "number":
        return Data("number", shape, word=value.word)
    if op.name in ("arith.uitofp", "arith.fptoui") or op.attrs.get("rounding") == "rtz":
        return Data(op.name, shape, (value,))  # neither the value nor the nearest to it
    return Data("cast", shape, (value,), word=op.types[0].dtype.name)


@rule("arith.addf")
def _add(machine: Machine, op: Op, values: Sequence[Any]) -> Data:
    x, y = (machine.data(x) for x in values)
    return add(x, y, op.types[0].dtype.name)


def add(x: Data, y: Data, word: str = "") -> Data:
    """A sum, kept in the type `word`; zero adds nothing."""
    if is_zero(x):
        return y
    return x if is_zero(y) else Data("add", x.shape, (x, y), word=word)


@rule("arith.mulf")
def _multiply(machine: Machine, op: Op, values: Sequence[Any]) -> Data:
    x, y = (machine.data(x) for x in values)
    return Data("mul", op.types[0].shape, (x, y), word=op.types[0].dtype.name)


@rule("tt.dot")
def _dot(machine: Machine, op: Op, values: Sequence[Any]) -> Data:
    a, b, c = (machine.data(x) for x in values[:3])
    rank = len(a.shape)
    size = a.shape[-1]
    k = fresh_lane(next(machine.numbers), size)
    shape = op.types[0].shape
    row, column = lane(rank - 1, size).atom, lane(rank - 2, size).atom
    left = swap_lanes(a, {row: k} if row else {}, ())
    right = swap_lanes(b, {column: k} if column else {}, ())
    kept = op.types[0].dtype.name
    word = op.attrs.get("inputPrecision", "ieee")
    product = Data("dot", shape, (left, right), over=k.atom, word=word)
    return add(c, Data("cast", shape, (product,), word=kept), word=kept)


@rule("tt.reduce")
def _reduce(machine: Machine, op: Op, values: Sequence[Any]) -> list[Data]:
    axis = op.integer("axis")
    parts = []
    for value in values:
        x = machine.data(value)
        k = fresh_lane(next(machine.numbers), x.shape[axis])
        swaps = {}
        for i, n in enumerate(x.shape):
            atom = lane(i, n).atom
            if atom is not None and i >= axis:
                swaps[atom] = k if i == axis else lane(i - 1, n)
        parts.append((swap_lanes(x, swaps, ()), k.atom))
    shape = op.types[0].shape
    if len(parts) == 1 and _is_sum(machine, op):
        kept = op.types[0].dtype.name
        return [Data("reduce", shape, (parts[0][0],), word=kept, over=parts[0][1])]
    inner = tuple(part for part, _ in parts)
    return [Data("tt.reduce", kind.shape, inner) for kind in op.types]


def _is_sum(machine: Machine, op: Op) -> bool:
    (block,) = op.regions[0]
    return _adds(machine, [name for name, _ in block.args], [block])


def _adds(machine: Machine, names: Sequence[str], body: Sequence[Block]) -> bool:
    """Whether a body, or what it calls, returns the sum of its two arguments."""
    first, last = body[0].ops[0], body[0].ops[-1]
    if len(body[0].ops) != 2 or len(names) != 2 or sorted(first.operands) != sorted(names):
        return False
    if not last.name.endswith("return") or last.operands != first.results:
        return False
    if first.name == "tt.call":
        callee = machine.functions.get(first.words[0])
        return callee is not None and _adds(machine, [x for x, _ in callee.args], callee.body)
    return first.name in ("arith.addf", "arith.addi")

"""Programs evaluated on plain integers, all programs of a launch at once.

Nothing here imports Triton or gemmproof: the rules are those of the hardware. An integer wraps at
the width of its type, division of integers in a kernel truncates, and that of constants floors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .language import (
    Allocate,
    Assign,
    DivMod,
    Expr,
    For,
    If,
    Launch,
    Lookup,
    Op,
    Program,
    Raise,
    Split,
    Statement,
    Store,
    While,
    list_strides,
)

BOUNDS = "stays_in_bounds"
FIT = "offsets_fit"
ONCE = "stores_each_element_once"
LANES = "undefined_lanes_never_stored"
EXACT = "exact_on_integers"

PY, I1, I32, I64, F32 = "py", "i1", "i32", "i64", "f32"
WIDTHS = {I1: 1, I32: 32, I64: 64}
MOST_TRIPS = 3000
MOST_LANES = 120_000_000  # of all operations of a call
CHUNK_LANES = 1 << 19
GARBAGE = 12345677.0  # what is read outside of a tensor
ROUNDED = 1041  # products of int8, of which a sum in float32 may be odd and above 2**24
MOST_GRID = (2**31 - 1, 65535, 65535)


class Invalid(Exception):
    """A program that Triton refuses to compile, or whose behaviour is not defined."""


class Unsure(Exception):
    """Sizes at which the evaluation would take too long, or at which it does not know."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value of all programs: the first axis of `data` is theirs, or 1.

    `wrapped`: the lanes that an operation on the way wrapped, or None. `tensor`: of a pointer.
    """

    dtype: str
    data: Any
    wrapped: np.ndarray | None = None
    tensor: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.dtype == PY else self.data.shape[1:]


@dataclass(slots=True, eq=False)
class Memory:
    """A tensor: its sides and strides, and its elements.

    `stored`: the elements that are stored. `owners`: the program of the present launch that stored
    each, or -1. A program may store an element again, and a later launch may.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    contents: np.ndarray | None
    stored: np.ndarray | None = None
    owners: np.ndarray | None = None

    def contains(self, offsets: np.ndarray) -> np.ndarray:
        """Return which offsets are those of elements."""
        inside = offsets >= 0
        rest = offsets
        axes = sorted(zip(self.strides, self.shape, strict=True), reverse=True)
        for stride, n in axes:
            if n == 1:
                continue
            inside &= rest // stride < n
            rest = rest % stride
        return inside & (rest == 0)


@dataclass(slots=True, eq=False)
class Access:
    """The accesses of one statement by some programs, with the mask of each lane."""

    kind: str
    tensor: str
    launch: int
    programs: np.ndarray
    offsets: np.ndarray
    mask: np.ndarray


@dataclass(slots=True)
class Outcome:
    """The violated properties of one call, each with what was seen; and its accesses, if wanted."""

    violated: dict[str, str] = field(default_factory=dict)
    accesses: list[Access] = field(default_factory=list)
    result: np.ndarray | None = None
    raised: bool = False

    def add(self, name: str, text: str) -> None:
        self.violated.setdefault(name, text)


FITS = np.zeros((), bool)


# -- arithmetic ------------------------------------------------------------------------------------
def _wrap(exact: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return an exact result (int64, or objects) at its width, and the lanes that wrap."""
    half = 1 << (WIDTHS[dtype] - 1)
    if exact.dtype == object:
        flat = [(int(x) + half) % (2 * half) - half for x in exact.ravel()]
        data = np.array(flat, dtype=np.int64).reshape(exact.shape)
        return data, np.asarray(exact != data, dtype=bool)
    if dtype == I64:
        return exact, FITS
    data = exact.astype(np.int32).astype(np.int64)
    return data, data != exact


def _exactly(name: str, x: np.ndarray, y: np.ndarray, dtype: str) -> np.ndarray:
    """Return x + y, x - y, x * y or x << y, as objects if int64 may not hold it."""
    if x.size and y.size and (dtype == I64 or name == "<<"):
        high = [float(max(v.max(), -int(v.min()))) for v in (x, y)]
        factor = {"*": high[1], "<<": 2.0 ** min(high[1], 64.0)}.get(name, 1.0)
        if high[0] * factor + high[1] >= 2.0**62:
            x, y = x.astype(object), y.astype(object)
    match name:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
    return x * (1 << y.astype(object)) if x.dtype == object else x << y


def _pad(x: np.ndarray, rank: int) -> np.ndarray:
    """Give a block leading axes after that of the programs."""
    return x.reshape(x.shape[:1] + (1,) * (rank - x.ndim + 1) + x.shape[1:])


def _join(*masks: np.ndarray | None) -> np.ndarray | None:
    whole = None
    for mask in masks:
        if mask is not None:
            whole = mask if whole is None else whole | mask
    return whole


PYTHON = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
    "//": lambda x, y: x // y, "%": lambda x, y: x % y, "<<": lambda x, y: x << y,
    ">>": lambda x, y: x >> y, "&": lambda x, y: x & y, "|": lambda x, y: x | y,
    "<": lambda x, y: x < y, "<=": lambda x, y: x <= y, ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y, "==": lambda x, y: x == y, "!=": lambda x, y: x != y,
    "min": min, "max": max, "cdiv": lambda x, y: -(-x // y),
    "and": lambda x, y: x and y, "or": lambda x, y: x or y,
}  # fmt: skip
_COMPARE = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
            "==": np.equal, "!=": np.not_equal}  # fmt: skip


# -- one launch ------------------------------------------------------------------------------------
@dataclass(slots=True, eq=False)
class Run:
    """The programs `pids` of one launch; `whole` is False if only some trips are evaluated."""

    call: Call
    number: int
    pids: np.ndarray
    grid: tuple[int, ...]
    names: dict[str, Value]

    @property
    def count(self) -> int:
        return len(self.pids)

    # -- expressions
    def value(self, x: Expr) -> Value:
        if isinstance(x, int):
            return Value(PY, x)
        if isinstance(x, str):
            return self.names[x]
        match x.name:
            case "pid":
                return Value(I32, self.pids[:, x.args[0]].copy())
            case "programs":
                return Value(I32, np.full(1, self.grid[x.args[0]], np.int64))
            case "arange":
                return Value(I32, np.arange(self.constant(x.args[0]), dtype=np.int64)[None])
            case "zeros":
                sides = tuple(self.constant(n) for n in x.args)
                return Value(F32, np.zeros((1, *sides)))
            case "load":
                return self.load(*x.args)
            case "reshape":
                block = self.value(x.args[0])
                sides = tuple(self.constant(n) for n in x.args[1:])
                return Value(F32, block.data.reshape(block.data.shape[0], *sides))
            case "gather":
                block, index = self.value(x.args[0]), self.value(x.args[1])
                axis = self.constant(x.args[2]) + 1
                rows = np.broadcast_to(index.data, (len(index.data), *block.shape))
                data = np.broadcast_to(block.data, (max(len(rows), len(block.data)), *block.shape))
                rows = np.broadcast_to(rows, data.shape)
                return Value(F32, np.take_along_axis(data, rows, axis))
            case "flip":
                return Value(F32, np.flip(self.value(x.args[0]).data, self.constant(x.args[1]) + 1))
            case "sum":
                return Value(F32, self.value(x.args[0]).data.sum(self.constant(x.args[1]) + 1))
        args = [self.value(y) for y in x.args]
        match x.name:
            case "rows":
                return _expand(args[0], 2)
            case "columns":
                return _expand(args[0], 1)
            case "int32" | "int64":
                return _cast(args[0], I32 if x.name == "int32" else I64)
            case "fp32":
                return args[0]
            case "trans":
                return Value(F32, np.swapaxes(args[0].data, 1, 2))
            case "join":
                return Value(F32, np.stack(np.broadcast_arrays(args[0].data, args[1].data), -1))
            case "dot":
                return self.dot(*args)
            case "where":
                return self.where(*args)
            case "cdiv":
                return self.cdiv(*args)
            case "~":
                return Value(args[0].dtype, ~args[0].data, args[0].wrapped)
        return self.binary(x.name, *args)

    def constant(self, x: Expr) -> int:
        value = self.value(x)
        if value.dtype != PY:
            raise Invalid("a constant is expected")
        return int(value.data)

    def cdiv(self, x: Value, y: Value) -> Value:
        if x.dtype == y.dtype == PY:
            return Value(PY, -(-x.data // y.data))
        return self.binary("//", self.binary("-", self.binary("+", x, y), Value(PY, 1)), y)

    def binary(self, name: str, x: Value, y: Value) -> Value:
        if x.dtype == y.dtype == PY:
            if name in ("//", "%") and y.data == 0:
                raise Invalid("division by zero")
            return Value(PY, PYTHON[name](x.data, y.data))
        if x.tensor or y.tensor:
            return self.point(name, x, y)
        if F32 in (x.dtype, y.dtype):
            left, right = (np.asarray(v.data, float) for v in (x, y))
            rank = max(len(x.shape), len(y.shape))
            left, right = (v if v.ndim == 0 else _pad(v, rank) for v in (left, right))
            return Value(F32, PYTHON[name](left, right))
        dtype, x, y = _promote(x, y)
        rank = max(x.data.ndim, y.data.ndim) - 1
        left, right = _pad(x.data, rank), _pad(y.data, rank)
        marks = [_pad(v.wrapped, rank) for v in (x, y) if v.wrapped is not None]
        wrapped = _join(*marks)
        self.call.spend(max(left.size, right.size) * 2)
        if name in _COMPARE:
            return Value(I1, _COMPARE[name](left, right), wrapped)
        if name in ("&", "|"):
            return Value(dtype, left & right if name == "&" else left | right, wrapped)
        if name in ("min", "max"):
            picked = np.minimum(left, right) if name == "min" else np.maximum(left, right)
            return Value(dtype, picked, wrapped)
        if dtype == I1:
            raise Invalid("arithmetic of booleans")
        if name in ("//", "%"):
            if (right == 0).any():
                raise Unsure("division by zero in a lane")
            quotient = np.abs(left) // np.abs(right) * np.where((left < 0) ^ (right < 0), -1, 1)
            return Value(dtype, quotient if name == "//" else left - quotient * right, wrapped)
        if name in ("<<", ">>"):
            if ((right < 0) | (right >= WIDTHS[dtype])).any():
                raise Unsure("a shift beyond the width")
            if name == ">>":
                return Value(dtype, left >> right, wrapped)
        data, marked = _wrap(_exactly(name, left, right, dtype), dtype)
        marked = marked if marked.any() else None
        return Value(dtype, data, _widen(_join(wrapped, marked), data))

    def point(self, name: str, x: Value, y: Value) -> Value:
        if not x.tensor:
            x, y = y, x
        if name not in "+-" or y.tensor:
            raise Invalid("arithmetic of pointers")
        offset = _cast(y, I64) if y.dtype != PY else Value(I64, np.full(1, int(y.data), np.int64))
        whole = self.binary(name, Value(I64, x.data, x.wrapped), offset)
        return Value(I64, whole.data, whole.wrapped, x.tensor)

    def where(self, cond: Value, x: Value, y: Value) -> Value:
        if cond.dtype == PY:
            raise Invalid("where of a constant")
        if F32 in (x.dtype, y.dtype):
            dtype, left, right = F32, *(np.asarray(v.data, float) for v in (x, y))
            left, right = (v.reshape(1) if v.ndim == 0 else v for v in (left, right))
            marks = []
        else:
            if x.dtype == y.dtype == PY:
                x = _as_tensor(x)
            dtype, x, y = _promote(x, y)
            left, right = x.data, y.data
            marks = [v.wrapped for v in (cond, x, y) if v.wrapped is not None]
        rank = max(v.ndim for v in (left, right, cond.data)) - 1
        left, right, cond_ = (_pad(v, rank) for v in (left, right, cond.data))
        data = np.where(cond_, left, right)
        return Value(dtype, data, _widen(_join(*(_pad(m, rank) for m in marks)), data))

    def dot(self, a: Value, b: Value, acc: Value | None = None) -> Value:
        self.call.spend(a.data.size * b.shape[1] // 8)
        product = a.data @ b.data if self.call.whole else np.zeros((1, a.shape[0], b.shape[1]))
        return Value(F32, product if acc is None else acc.data + product)

    # -- memory
    def locate(
        self, pointer: Value, mask: Value | None, shape: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets and active lanes of all programs, in the common shape."""
        rank = len(shape)
        parts = (self.count, *shape)
        offsets = np.broadcast_to(_pad(pointer.data, rank), parts)
        active = np.broadcast_to(_pad(self.active, rank), parts)
        if mask is not None:
            if mask.dtype == PY:
                if not mask.data:
                    active = np.zeros(parts, bool)
            else:
                active = active & np.broadcast_to(_pad(mask.data, rank), parts)
        self.call.spend(active.size * 4)
        return offsets, active

    def check(
        self, kind: str, pointer: Value, offsets: np.ndarray, active: np.ndarray
    ) -> np.ndarray:
        """Report lanes outside of the tensor, and wrapped ones; return those that are inside."""
        call, memory = self.call, self.call.memory[pointer.tensor]
        if call.wants_accesses:
            call.outcome.accesses.append(
                Access(kind, pointer.tensor, self.number, self.pids, offsets, active)
            )
        inside = memory.contains(offsets)
        outside = active & ~inside
        text = f"{kind} of {pointer.tensor}"
        if outside.any():
            at = np.argwhere(outside)[0].tolist()
            where = f"program {self.pids[at[0]].tolist()}, lane {at[1:]}"
            call.outcome.add(BOUNDS, f"{text}: offset {offsets[tuple(at)]}, {where}")
        if pointer.wrapped is not None:
            marked = active & np.broadcast_to(_pad(pointer.wrapped, active.ndim - 1), active.shape)
            if marked.any():
                call.outcome.add(FIT, f"{text}: an offset wrapped")
        return inside

    @property
    def active(self) -> np.ndarray:
        return self.names["<active>"].data

    def load(self, at: Expr, mask: Expr, other: Expr) -> Value:
        pointer = self.value(at)
        masked = None if mask == "" else self.value(mask)
        shape = np.broadcast_shapes(pointer.shape, () if masked is None else masked.shape)
        offsets, active = self.locate(pointer, masked, shape)
        inside = self.check("load", pointer, offsets, active)
        contents = self.call.memory[pointer.tensor].contents
        fill = np.nan if other == "" else float(self.constant(other))
        if not self.call.whole or contents is None:
            return Value(F32, np.zeros((1, *shape)))
        data = np.where(active & inside, contents[np.where(inside, offsets, 0)], fill)
        data[active & ~inside] = GARBAGE
        return Value(F32, data)

    def store(self, x: Store) -> None:
        pointer, value = self.value(x.pointer), _as_tensor(self.value(x.value))
        masked = None if x.mask is None else self.value(x.mask)
        shapes = [pointer.shape, value.shape, () if masked is None else masked.shape]
        shape = np.broadcast_shapes(*shapes)
        offsets, active = self.locate(pointer, masked, shape)
        inside = self.check("atomic" if x.atomic else "store", pointer, offsets, active)
        memory = self.call.memory[pointer.tensor]
        if not self.call.whole or memory.contents is None:
            return
        stored = active & inside
        at = offsets[stored]
        values = np.broadcast_to(_pad(value.data, len(shape)), active.shape)[stored]
        if np.isnan(values).any():
            self.call.outcome.add(LANES, f"store of {pointer.tensor}: an undefined lane")
        memory.stored[at] = True
        if x.atomic:
            np.add.at(memory.contents, at, values)
            if np.isnan(memory.contents[at]).any():
                self.call.outcome.add(LANES, f"atomic of {pointer.tensor}: onto undefined memory")
            return
        memory.contents[at] = values
        steps = np.array([1, self.grid[0], self.grid[0] * self.grid[1]])
        numbers = (self.pids @ steps).reshape(-1, *[1] * len(shape))
        programs = np.broadcast_to(numbers, active.shape)[stored]
        others = (memory.owners[at] >= 0) & (memory.owners[at] != programs)
        memory.owners[at] = np.arange(len(at))
        others |= memory.owners[at] != np.arange(len(at))  # by two lanes of this store
        memory.owners[at] = programs
        if others.any() and pointer.tensor == "c":
            self.call.outcome.add(ONCE, f"store of c: element {at[others][0]} is stored twice")

    # -- statements
    def run(self, body: Sequence[Statement]) -> None:
        for x in body:
            if not self.active.any():
                return
            match x:
                case Assign(name, value):
                    self.assign(name, self.value(value))
                case Split(left, right, value):
                    block = self.value(value).data
                    self.assign(left, Value(F32, block[..., 0]))
                    self.assign(right, Value(F32, block[..., 1]))
                case Store():
                    self.store(x)
                case If(condition, inner, otherwise):
                    self.branch(self.value(condition), inner, otherwise)
                case While(condition, inner):
                    self.repeat(condition, inner)
                case For():
                    self.loop(x)
                case _:
                    raise Invalid(f"{x} in a kernel")

    def assign(self, name: str, value: Value) -> None:
        old = self.names.get(name)
        if old is None or (self.active.all() and not self.depth):
            self.names[name] = value
            return
        if value.dtype == old.dtype == PY and value.data == old.data:
            return
        old, value = _as_tensor(old), _as_tensor(value)
        if (old.dtype, old.tensor, old.shape) != (value.dtype, value.tensor, value.shape):
            raise Invalid(f"{name} changes its type")
        if self.active.all():
            self.names[name] = value
            return
        chosen = _pad(self.active, len(value.shape))
        data = np.where(chosen, value.data, old.data)
        marks = [np.zeros(1, bool) if v.wrapped is None else v.wrapped for v in (value, old)]
        wrapped = None
        if marks[0].any() or marks[1].any():
            wrapped = np.where(chosen, *(_pad(m, len(value.shape)) for m in marks))
        self.names[name] = Value(value.dtype, data, wrapped, value.tensor)

    @property
    def depth(self) -> int:
        return self.names["<depth>"].data

    def within(self, active: np.ndarray, body: Sequence[Statement]) -> None:
        """Run statements of some programs."""
        before = self.names["<active>"]
        self.names["<active>"] = Value(I1, active)
        self.run(body)
        self.names["<active>"] = before

    def branch(
        self, condition: Value, body: Sequence[Statement], otherwise: Sequence[Statement]
    ) -> None:
        if condition.dtype == PY:
            self.run(body if condition.data else otherwise)
            return
        if condition.shape:
            raise Invalid("a branch on a block")
        holds = np.broadcast_to(condition.data.astype(bool), (self.count,))
        before = self.active
        known = set(self.names)
        for chosen, inner in ((holds, body), (~holds, otherwise)):
            self.within(before & chosen, inner)
        for name in set(self.names) - known:
            del self.names[name]

    def repeat(self, condition: Expr, body: Sequence[Statement]) -> None:
        before = self.active
        self.enter(body)
        for _ in range(MOST_TRIPS if self.call.whole else 12):
            value = self.value(condition)
            going = np.broadcast_to(np.asarray(value.data, bool).reshape(-1), (self.count,))
            active = self.active & going
            self.names["<active>"] = Value(I1, active)
            if not active.any():
                break
            self.run(body)
        else:
            raise Unsure("a long loop")
        self.names["<active>"] = Value(I1, before)
        self.names["<depth>"] = Value(PY, self.depth - 1)

    def loop(self, x: For) -> None:
        start, stop, step = (self.value(y) for y in (x.start, x.stop, x.step))
        is_down = step.dtype == PY and step.data < 0
        if is_down:  # the compiler counts upward, and subtracts
            start, stop, step = stop, start, Value(PY, -step.data)
        if step.dtype == PY and step.data == 0:
            raise Invalid("a step of 0")
        start, stop, step = (_as_tensor(v) for v in (start, stop, step))
        dtype = I64 if I64 in (start.dtype, stop.dtype, step.dtype) else I32
        first, last = _cast(start, dtype), _cast(stop, dtype)
        by = _cast(step, dtype)
        if first.shape or last.shape or by.shape:
            raise Invalid("a loop over blocks")
        if (by.data <= 0).any():
            raise Unsure("a step that is not positive")
        at, before = first, self.active
        known = set(self.names)
        self.enter(x.body)
        plan = self.call.plan(self, x, first, last, by)
        for trip in itertools.count():
            going = np.broadcast_to(at.data < last.data, (self.count,))
            active = self.active & going
            self.names["<active>"] = Value(I1, active)
            if not active.any() or trip > MOST_TRIPS:
                break
            seen = self.binary("+", self.binary("-", last, at), first) if is_down else at
            self.names[x.name] = seen
            self.run(x.body)
            skip = plan.pop(0) if plan else 1
            if skip == 0:
                self.call.outcome.add(FIT, "the counter of a loop wraps, and the loop goes on")
                break
            if skip > 1:
                self.advance(x, skip - 1)
                at = self.binary("+", at, self.binary("*", by, Value(PY, skip - 1)))
            at = self.binary("+", at, by)
        if trip > MOST_TRIPS:
            raise Unsure("a long loop")
        self.names["<active>"] = Value(I1, before)
        self.names["<depth>"] = Value(PY, self.depth - 1)
        for name in set(self.names) - known:
            del self.names[name]

    def enter(self, body: Sequence[Statement]) -> None:
        """Enter a loop: the constants that it carries become tensors."""
        self.names["<depth>"] = Value(PY, self.depth + 1)
        for name in list_assigned(body):
            if name in self.names:
                self.names[name] = _as_tensor(self.names[name])

    def advance(self, x: For, trips: int) -> None:
        """Apply `trips` more steps to the values that the loop carries by a fixed step."""
        for name, step in self.call.find_steps(x).items():
            value = self.value(step)
            if value.dtype == PY:
                old = self.names[name]
                dtype = I64 if old.tensor or old.dtype == I64 else I32
                value = Value(dtype, np.full(1, value.data, np.int64))
            more = self.binary("*", _cast(value, I64), Value(I64, np.full(1, trips, np.int64)))
            old = self.names[name]
            total = self.binary("+", Value(I64, old.data, old.wrapped), more)
            if old.tensor or old.dtype == I64:
                self.names[name] = Value(I64, total.data, total.wrapped, old.tensor)
            else:
                data, marked = _wrap(total.data, I32)
                wrapped = _widen(_join(total.wrapped, marked if marked.any() else None), data)
                self.names[name] = Value(I32, data, wrapped)


def _widen(mask: np.ndarray | None, data: np.ndarray) -> np.ndarray | None:
    return None if mask is None else np.broadcast_to(mask, data.shape)


def _expand(x: Value, axis: int) -> Value:
    if len(x.shape) != 1:
        raise Invalid("an axis is inserted in what is no vector")
    wrapped = None if x.wrapped is None else np.expand_dims(x.wrapped, axis)
    return Value(x.dtype, np.expand_dims(x.data, axis), wrapped)


def _as_tensor(x: Value) -> Value:
    if x.dtype != PY:
        return x
    if isinstance(x.data, bool):
        return Value(I1, np.full(1, x.data))
    if not -(2**63) <= x.data < 2**63 or 2**31 <= x.data < 2**32:
        raise Invalid("a constant that is no signed integer")
    return Value(I32 if -(2**31) <= x.data < 2**31 else I64, np.full(1, x.data, np.int64))


def _cast(x: Value, dtype: str) -> Value:
    x = _as_tensor(x)
    if x.dtype == I1:
        return Value(dtype, x.data.astype(np.int64), x.wrapped)
    if x.dtype == I64 and dtype == I32:
        data, marked = _wrap(x.data, I32)
        return Value(I32, data, _widen(_join(x.wrapped, marked if marked.any() else None), data))
    return Value(dtype, x.data, x.wrapped)


def _promote(x: Value, y: Value) -> tuple[str, Value, Value]:
    """Return two values at their common type; a constant takes that of the other value."""
    if PY in (x.dtype, y.dtype):
        scalar, other = (x, y) if x.dtype == PY else (y, x)
        if isinstance(scalar.data, bool):
            scalar = (
                _cast(_as_tensor(scalar), other.dtype) if other.dtype != I1 else _as_tensor(scalar)
            )
        else:
            if other.dtype == I1:
                raise Invalid("a boolean and a number")
            half = 1 << (WIDTHS[other.dtype] - 1)
            if not -half <= scalar.data < half:
                raise Invalid(f"{scalar.data} is out of range for {other.dtype}")
            scalar = Value(other.dtype, np.full(1, scalar.data, np.int64))
        x, y = (scalar, other) if x.dtype == PY else (other, scalar)
    if x.dtype == y.dtype:
        return x.dtype, x, y
    if I1 in (x.dtype, y.dtype):
        raise Invalid("a boolean and an integer")
    return I64, _cast(x, I64), _cast(y, I64)


# -- one call --------------------------------------------------------------------------------------
class Raised(Exception):
    """The wrapper refuses the sizes."""


@dataclass(slots=True, eq=False)
class Call:
    """One call of a program's wrapper at some sizes and strides.

    `whole`: all programs and trips are evaluated, with values; otherwise the first and last ones,
    without. `configs`: the configuration of each kernel by name.
    """

    program: Program
    sizes: Mapping[str, int]
    strides: Mapping[str, tuple[int, int]]
    configs: Mapping[str, int]
    multiprocessors: int = 132
    whole: bool = True
    wants_accesses: bool = False
    seed: int = 1
    largest: int = 500  # element of a and b
    memory: dict[str, Memory] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)
    launches: int = 0
    spent: int = 0
    steps: dict[int, dict[str, Expr]] = field(default_factory=dict)

    def spend(self, lanes: int) -> None:
        self.spent += lanes
        if self.spent > MOST_LANES:
            raise Unsure("too many lanes")

    def evaluate(self) -> Outcome:
        """Return which properties do not hold. Raises Invalid and Unsure."""
        shapes = {"a": ("M", "K"), "b": ("K", "N")}
        names: dict[str, int] = dict(self.sizes)
        random = np.random.default_rng(self.seed)
        for name, axes in shapes.items():
            shape = tuple(self.sizes[axis] for axis in axes)
            strides = self.strides[name]
            names |= dict(zip(list_strides(name, 2), strides, strict=True))
            contents = None
            if self.whole:
                span = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
                contents = random.integers(-self.largest, self.largest + 1, span).astype(float)
            self.memory[name] = Memory(shape, strides, contents)
        try:
            self.host(self.program.wrapper, names)
        except Raised:
            self.outcome.raised = True
            return self.outcome
        except ValueError as shapes:  # of numpy: they do not fit
            raise Invalid(str(shapes)) from None
        self.conclude()
        return self.outcome

    @property
    def workspace(self) -> int:
        """The elements of the largest tensor that is neither an operand nor the result."""
        own = (x.shape for name, x in self.memory.items() if name not in ("a", "b", "c"))
        return max((math.prod(shape) for shape in own), default=0)

    def conclude(self) -> None:
        if self.program.terms.dtype == "int8" and self.sizes["K"] >= ROUNDED:
            self.outcome.add(EXACT, "sums of int8 are rounded above 2**24")
        if not self.whole:
            return
        c = self.memory["c"]
        views = [self._view(self.memory[name]) for name in "ab"]
        expected = views[0] @ views[1]
        self.outcome.result = c.contents.reshape(c.shape)
        left = ~c.stored.reshape(c.shape)
        if left.any():
            at = np.argwhere(left)[0].tolist()
            self.outcome.add(ONCE, f"c{at} is never stored")
        if (self.outcome.result != expected).any():
            at = np.argwhere(self.outcome.result != expected)[0].tolist()
            got, right = (x[tuple(at)] for x in (self.outcome.result, expected))
            self.outcome.add(EXACT, f"c{at} is {got:g}, and should be {right:g}")

    def _view(self, x: Memory) -> np.ndarray:
        at = np.zeros((), np.int64)
        for axis, (n, stride) in enumerate(zip(x.shape, x.strides, strict=True)):
            side = [1] * len(x.shape)
            side[axis] = n
            at = at + (np.arange(n) * stride).reshape(side)
        return x.contents[at]

    # -- the wrapper
    def number(self, x: Expr, names: Mapping[str, Any]) -> Any:
        if isinstance(x, int):
            return x
        if isinstance(x, str):
            return names[x]
        if x.name == "multiprocessors":
            return self.multiprocessors
        args = [self.number(y, names) for y in x.args]
        if x.name == "~":
            return ~args[0]
        if x.name in ("//", "%", "cdiv") and args[1] == 0:
            raise Invalid("division by zero in the wrapper")
        return PYTHON[x.name](*args)

    def host(self, body: Sequence[Statement], names: dict[str, Any]) -> None:
        for x in body:
            match x:
                case Assign(name, value):
                    names[name] = self.number(value, names)
                case DivMod(quotient, rest, first, second):
                    pair = divmod(self.number(first, names), self.number(second, names))
                    names[quotient], names[rest] = pair
                case Lookup(name, table, key, default, _):
                    entries = dict(dict(self.program.tables)[table])
                    sizes = tuple(self.number(k, names) for k in key)
                    names[name] = entries.get(sizes, self.number(default, names))
                case If(condition, inner, otherwise):
                    self.host(inner if self.number(condition, names) else otherwise, names)
                case Allocate(name, shape, _, zero):
                    self.allocate(name, [self.number(n, names) for n in shape], zero, names)
                case Launch():
                    self.launch(x, names)
                case Raise():
                    raise Raised
                case _:
                    raise Invalid(f"{x} in a wrapper")

    def allocate(self, name: str, shape: list[int], zero: bool, names: dict[str, Any]) -> None:
        if min(shape) < 0:
            raise Invalid("a negative side")
        strides = [1]
        for n in reversed(shape[1:]):
            strides.insert(0, strides[0] * max(n, 1))
        names |= dict(zip(list_strides(name, len(shape)), strides, strict=True))
        contents = stored = owners = None
        total = int(np.prod(np.array(shape, dtype=object)))
        if self.whole:
            self.spend(total)
            contents = np.full(total, 0.0 if zero else np.nan)
            stored, owners = np.zeros(total, bool), np.full(total, -1)
        self.memory[name] = Memory(tuple(shape), tuple(strides), contents, stored, owners)

    def launch(self, x: Launch, names: Mapping[str, Any]) -> None:
        kernel = next(k for k in self.program.kernels if k.name == x.kernel)
        meta = {name: self.number(value, names) for name, value in x.meta}
        if kernel.configs:
            meta |= dict(kernel.configs[self.configs.get(kernel.name, 0)])
        grid = [int(self.number(n, {**names, **meta})) for n in x.grid]
        grid += [1] * (3 - len(grid))
        for axis, (n, most) in enumerate(zip(grid, MOST_GRID, strict=True)):
            if n > most:
                self.outcome.add(ONCE, f"axis {axis} of the grid has {n} programs")
                self.outcome.add(EXACT, f"axis {axis} of the grid has {n} programs")
                return
        values = {name: Value(PY, n) for name, n in meta.items()}
        tensors = x.args[: len(kernel.pointers)]
        for name, tensor in zip(kernel.pointers, tensors, strict=True):
            values[name] = Value(I64, np.zeros(1, np.int64), None, str(tensor))
        for name, given in zip(kernel.scalars, x.args[len(kernel.pointers) :], strict=True):
            n = int(self.number(given, names))
            if not -(2**63) <= n < 2**63:
                raise Invalid("an argument beyond 64 bits")
            dtype = I32 if -(2**31) <= n < 2**31 else I64
            values[name] = Value(PY, n) if n == 1 else Value(dtype, np.full(1, n, np.int64))
        number = self.launches
        self.launches += 1
        if min(grid) < 0:
            raise Unsure("a negative grid")
        for memory in self.memory.values():
            if memory.owners is not None:
                memory.owners[:] = -1
        for pids in self.iter_programs(grid, meta):
            active = Value(I1, np.ones(len(pids), bool))
            own = {**values, "<active>": active, "<depth>": Value(PY, 0)}
            Run(self, number, pids, tuple(grid), own).run(kernel.body)

    def iter_programs(self, grid: Sequence[int], meta: Mapping[str, int]) -> Iterator[np.ndarray]:
        """Yield the ids of the programs that are evaluated at once."""
        if not self.whole:
            axes = [sorted({*range(min(n, 2)), *range(max(n - 2, 0), n)}) for n in grid]
            if np.prod([len(x) for x in axes]):
                yield np.array(list(itertools.product(*axes)), np.int64)
            return
        total = int(np.prod(np.array(grid, dtype=object)))
        if total > 200_000:
            raise Unsure("too many programs")
        tile = max([n for n in meta.values() if n < 4096], default=16)
        chunk = max(1, min(CHUNK_LANES // (tile * tile), 512))
        for first in range(0, total, chunk):
            n = np.arange(first, min(first + chunk, total))
            yield np.stack([n % grid[0], n // grid[0] % grid[1], n // (grid[0] * grid[1])], 1)

    # -- long loops
    def plan(self, run: Run, x: For, first: Value, last: Value, by: Value) -> list[int]:
        """Return by how many trips to go on after each: 1, or many in the middle of a long loop.

        The last entry is 0 if the counter wraps, so that the loop does not end.
        """
        if self.whole:
            return []
        spans = (last.data.astype(object) - first.data.astype(object) - 1) // by.data.astype(object)
        counts = np.broadcast_to(np.maximum(spans + 1, 0), (run.count,))[run.active]
        if len(set(counts.tolist())) != 1:
            if max(counts.tolist()) > 64:
                raise Unsure("programs of different numbers of trips")
            return []
        trips = int(counts[0])
        ends = first.data.astype(object) + trips * by.data.astype(object)
        dtype = I64 if I64 in (first.dtype, last.dtype, by.dtype) else I32
        wraps = int(max(ends.ravel().tolist())) >= 1 << (WIDTHS[dtype] - 1)
        if trips <= 8 and not wraps:
            return []
        self.find_steps(x)
        # trips 0, 1, 2, trips - 2, trips - 1, and the first one after the counter wraps
        plan = [1] * trips if trips <= 8 else [1, 1, trips - 4, 1, 1]
        return [*plan, 0] if wraps else plan

    def find_steps(self, x: For) -> dict[str, Expr]:
        """Return the step of each integer that the loop carries. Raises Unsure if one has none."""
        key = id(x)
        if key not in self.steps:
            self.steps[key] = _find_steps(x)
        return self.steps[key]


def _find_steps(x: For) -> dict[str, Expr]:
    assigned = set(list_assigned(x.body))
    carried = _read_first(x.body, set())[0] & assigned
    steps: dict[str, Expr] = {}
    for name in sorted(carried):
        if name.startswith("acc"):  # values are not known, and are not needed
            continue
        changes = [y for y in _walk(x.body) if name in list_assigned((y,))]
        match changes:
            case [Assign(_, Op("+", (first, step)))] if first == name and changes[0] in x.body:
                if not set(_list_names(step)) & assigned - {x.name} and x.name not in _list_names(
                    step
                ):
                    steps[name] = step
                    continue
        raise Unsure(f"{name} is carried")
    return steps


def list_assigned(body: Sequence[Statement]) -> Iterator[str]:
    """Yield the names that statements assign."""
    for x in _walk(body):
        match x:
            case Assign(name) | For(name):
                yield name
            case Split(left, right):
                yield from (left, right)


def _read_first(body: Sequence[Statement], ready: set[str]) -> tuple[set[str], set[str]]:
    """Return the names that are read before they are assigned, and those assigned for certain."""
    reads: set[str] = set()
    ready = set(ready)
    for x in body:
        own: set[str] = set()
        match x:
            case Assign(name, value):
                reads |= set(_list_names(value)) - ready
                own = {name}
            case Split(left, right, value):
                reads |= set(_list_names(value)) - ready
                own = {left, right}
            case For(name, start, stop, step, inner):
                reads |= {n for y in (start, stop, step) for n in _list_names(y)} - ready
                reads |= _read_first(inner, ready | {name})[0]
            case While(condition, inner):
                reads |= set(_list_names(condition)) - ready
                reads |= _read_first(inner, ready)[0]
            case If(condition, inner, otherwise):
                reads |= set(_list_names(condition)) - ready
                parts = [_read_first(inner, ready), _read_first(otherwise, ready)]
                reads |= parts[0][0] | parts[1][0]
                own = parts[0][1] & parts[1][1]
            case Store():
                reads |= set(_list_names(x)) - ready
        ready |= own
    return reads, ready


def _walk(body: Sequence[Statement]) -> Iterator[Statement]:
    for x in body:
        yield x
        for inner in ("body", "otherwise"):
            yield from _walk(getattr(x, inner, ()))


def _list_names(x: Any) -> Iterator[str]:
    match x:
        case str():
            yield x
        case Op():
            for y in x.args:
                yield from _list_names(y)
        case Assign(_, value) | Split(_, _, value):
            yield from _list_names(value)
        case Store(pointer, value, mask, _):
            for y in (pointer, value, mask):
                yield from _list_names(y)
        case For(_, start, stop, step, body):
            for y in (start, stop, step, *body):
                yield from _list_names(y)
        case While(condition, body):
            for y in (condition, *body):
                yield from _list_names(y)
        case If(condition, body, otherwise):
            for y in (condition, *body, *otherwise):
                yield from _list_names(y)

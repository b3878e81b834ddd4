"""Rules of loads, stores, floats and sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gemmproof.reference.symbolic.interpreter.integer_rules import (
    fits,
    is_zero,
    require_fit,
    reshape,
)
from gemmproof.reference.symbolic.interpreter.interpret import Machine, NotInterpretable, rule
from gemmproof.reference.symbolic.interpreter.symbolic_values import (
    BlockWindow,
    Data,
    Pointers,
    Step,
    SymbolicAccess,
    fresh_lane,
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
    symbol,
    term,
)
from gemmproof.reference.ttir import DTYPES, Op, find_combination

# -- numbers -------------------------------------------------------------------------------------
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
    return replace(add(x, y, op.types[0].dtype.name), shape=op.types[0].shape)


def add(x: Data, y: Data, word: str = "") -> Data:
    """Return a sum, kept in the type `word`; zero adds nothing."""
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
    whole = add(c, Data("cast", shape, (product,), word=kept), word=kept)
    return replace(whole, shape=shape)


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
    combined = find_combination(machine.functions, op)
    if len(parts) == 1 and combined in ("arith.addf", "arith.addi"):
        kept = op.types[0].dtype.name
        return [Data("reduce", shape, (parts[0][0],), word=kept, over=parts[0][1])]
    inner = tuple(part for part, _ in parts)
    return [Data("tt.reduce", kind.shape, inner) for kind in op.types]


# -- sums ----------------------------------------------------------------------------------------
def sum_up(machine: Machine, first: Data, carried: Any, new: Data, trip: Atom) -> Data:
    """Return a number after a loop: a sum over its trips if each adds to the one before."""
    rest = _rest(new, carried) if isinstance(carried, Data) else None
    if rest is None:
        fixed, shape = new, first.shape
        if isinstance(carried, Data):
            fixed = _without(new, carried.word)
            if _moves(new, carried):  # any lane of a trip may end in any lane of the result
                first, fixed = machine.spread(first), machine.spread(fixed)
        return Data("carried", shape, (first, Data("sum", shape, (fixed,), over=trip)))
    if rest.kind == "nothing":
        return first
    return replace(add(first, Data("sum", first.shape, (rest,), over=trip)), shape=first.shape)


def _moves(value: Data, carried: Data) -> bool:
    """Return whether a value has the carried one in lanes other than its own."""
    if value.kind == "hole" and value.word == carried.word:
        return value.lanes != carried.lanes
    return any(_moves(part, carried) for part in value.parts)


_NOTHING = Data("nothing")


def _rest(value: Data, carried: Data) -> Data | None:
    """Return what a value adds to the carried value in it, or None if it is no such sum."""
    if value.kind == "hole" and (value.word, value.lanes) == (carried.word, carried.lanes):
        return _NOTHING
    if value.kind == "add":
        x, y = value.parts
        for part, other in ((x, y), (y, x)):
            if not _mentions(other, carried.word):
                rest = _rest(part, carried)
                if rest is not None:
                    return other if rest.kind == "nothing" else add(rest, other)
        return None
    if value.kind == "choice":
        parts = [_rest(part, carried) for part in value.parts]
        if any(part is None for part in parts):
            return None
        zero = Data("number", value.shape, word="0")
        shown = tuple(zero if p is None or p.kind == "nothing" else p for p in parts)
        return replace(value, parts=shown)
    return None


def names_hole(value: Data) -> bool:
    """Return whether a number depends on what a loop carries."""
    return value.kind in ("hole", "carried", "before") or any(map(names_hole, value.parts))


def _mentions(value: Data, word: str) -> bool:
    if value.kind == "hole" and value.word == word:
        return True
    return any(_mentions(part, word) for part in value.parts)


def _without(value: Data, word: str) -> Data:
    """Return a value with nothing in place of what the loop carries."""
    if value.kind == "hole" and value.word == word:
        return replace(value, kind="before", word="")
    return replace(value, parts=tuple(_without(part, word) for part in value.parts))


# -- memory --------------------------------------------------------------------------------------
ZERO, NAN = Data("number", word="0"), Data("number", word="nan")
ALIGNMENT = 16  # bytes, of a descriptor's strides but the last


@rule("tt.addptr")
def _move(machine: Machine, op: Op, values: Sequence[Any]) -> Pointers:
    pointer, offset = values[0], machine.ints(values[1])
    if not isinstance(pointer, Pointers):
        raise NotInterpretable("an offset from what is no pointer", machine.where)
    steps = pointer.steps
    if offset.bits < 32:
        require_fit(machine, offset, "an offset")
    if offset.bits == 32 and offset.term.constant is None:
        steps = (*steps, (offset.term, TRUE))
    return Pointers(pointer.tensor, pointer.term + offset.term, op.types[0].shape, steps)


@rule("tt.bitcast")
def _cast_pointers(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    if isinstance(values[0], Pointers):
        after = op.types[0].dtype.pointee
        if after is None or after.name != values[0].tensor.dtype:
            raise NotInterpretable(
                "a pointer read as one to elements of another type", machine.where
            )
        return values[0]
    return machine.opaque(op, values, op.types[0])


def _access(
    machine: Machine, kind: str, pointers: Any, mask: Cond, shape: tuple[int, ...], **rest: Any
) -> SymbolicAccess:
    if not isinstance(pointers, Pointers):
        raise NotInterpretable(f"a {kind} through what is no pointer", machine.where)
    access = SymbolicAccess(
        kind, pointers.tensor, pointers.term, mask, machine.path, shape, machine.where,
        machine.trips, pointers.steps, launch=machine.launch, number=next(machine.numbers),
        hints=pointers.hints, **rest,
    )  # fmt: skip
    machine.keep(access)
    return access


@rule("tt.load")
def _load(machine: Machine, op: Op, values: Sequence[Any]) -> Data:
    shape = op.types[0].shape
    if isinstance(values[0], BlockWindow):
        return _load_window(machine, op, values[0], values[0].starts, shape)
    mask = machine.bools(values[1]).cond if len(values) > 1 else TRUE
    other = machine.data(values[2]) if len(values) > 2 else None
    return Data("load", shape, access=_access(machine, "load", values[0], mask, shape, other=other))


@rule("tt.store")
def _store(machine: Machine, op: Op, values: Sequence[Any]) -> None:
    target, value, *rest = values
    value = machine.data(value)
    if isinstance(target, BlockWindow):
        _store_window(machine, op, target, target.starts, value)
        return
    mask = machine.bools(rest[0]).cond if rest else TRUE
    _access(machine, "store", target, mask, value.shape, value=value)


@rule("tt.atomic_rmw")
def _atomic(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    target, value, *rest = values
    mask = machine.bools(rest[0]).cond if rest else TRUE
    access = _access(
        machine, "atomic", target, mask, value.shape, value=machine.data(value), word=op.keywords[0]
    )
    return Data("load", op.types[0].shape, access=access) if op.types else None


@rule("tt.atomic_cas")
def _exchange(machine: Machine, op: Op, values: Sequence[Any]) -> Data:
    access = _access(
        machine, "atomic", values[0], TRUE, op.types[0].shape, value=machine.data(values[2]),
        word="cas",
    )  # fmt: skip
    return Data("load", op.types[0].shape, access=access)


# -- windows -------------------------------------------------------------------------------------
def _terms(machine: Machine, values: Sequence[Any]) -> tuple[Poly, ...]:
    numbers = [machine.ints(x) for x in values]
    for number in numbers:
        require_fit(machine, number, "a window")
    return tuple(number.term for number in numbers)


@rule("tt.make_tensor_ptr", "tt.make_tensor_descriptor")
def _window(machine: Machine, op: Op, values: Sequence[Any]) -> BlockWindow:
    base, *scalars = values
    block = op.types[0].shape
    n = len(block)
    sizes, strides, starts = (_terms(machine, scalars[i : i + n]) for i in (0, n, 2 * n))
    fill = None
    if op.name == "tt.make_tensor_descriptor":
        padding = op.attrs.get("padding", "")
        fill = NAN if padding.startswith("2") or "nan" in padding else ZERO
        claim_rules(machine, base, strides)
    return BlockWindow(base, sizes, strides, starts, block, fill)


def claim_rules(machine: Machine, base: Any, strides: Sequence[Poly]) -> None:
    """Claim the copy engine's requirements on a descriptor that the kernel makes."""
    if not isinstance(base, Pointers):
        raise NotInterpretable("a descriptor of what is no pointer", machine.where)
    size = DTYPES[base.tensor.dtype].itemsize
    rules = [eq(strides[-1], 1)]
    rules += [eq(make("mod", x * size, ALIGNMENT), 0) for x in strides[:-1]]
    machine.claim("hint", "a descriptor's strides", every(rules))
    first = base.term + base.tensor.offset
    if base.tensor.memory.is_operand:  # others begin at whole lines
        first = first + symbol(f"address of {base.tensor.name}", is_natural=True)
    claimed = eq(make("mod", first * size, ALIGNMENT), 0)
    machine.claim("hint", "a descriptor's address", claimed)


@rule("tt.advance")
def _advance(machine: Machine, op: Op, values: Sequence[Any]) -> BlockWindow:
    window, *moves = values
    pairs = zip(window.starts, _terms(machine, moves), strict=True)
    starts = tuple(x + y for x, y in pairs)
    machine.claim("fit", "where a window begins", every(fits(x, 32) for x in starts))
    return replace(window, starts=starts)


def _point_block(
    window: BlockWindow, starts: Sequence[Poly], checked: Sequence[int]
) -> tuple[Pointers, Cond]:
    """Return the pointers of a window's block, and which lanes are within its parent."""
    offset: Poly = term(0)
    inside = []
    for axis, (start, stride, size) in enumerate(
        zip(starts, window.strides, window.sizes, strict=True)
    ):
        index = start + lane(axis, window.block[axis])
        offset = offset + index * stride
        if axis in checked:
            inside += [le(0, index), lt(index, size)]
    base = window.base
    steps: tuple[Step, ...] = base.steps
    return Pointers(base.tensor, base.term + offset, window.block, steps), every(inside)


def _checked(op: Op, window: BlockWindow) -> Sequence[int]:
    """Return the axes along which an access checks that it is within the parent."""
    if not window.starts:
        return range(len(window.block))
    return op.integers("boundaryCheck")


def _load_window(
    machine: Machine, op: Op, window: BlockWindow, starts: Sequence[Poly], shape: tuple[int, ...]
) -> Data:
    pointers, inside = _point_block(window, starts, _checked(op, window))
    fill = window.fill
    if fill is None and "padding" in op.attrs:
        fill = NAN if op.attrs["padding"].partition(" : ")[0] in ("2", "nan") else ZERO
    access = _access(machine, "load", pointers, inside, window.block, other=fill)
    value = Data("load", window.block, access=access)
    return value if shape == window.block else reshape(value, shape)


def _store_window(
    machine: Machine, op: Op, window: BlockWindow, starts: Sequence[Poly], value: Data
) -> None:
    pointers, inside = _point_block(window, starts, _checked(op, window))
    value = value if value.shape == window.block else reshape(value, window.block)
    _access(machine, "store", pointers, inside, window.block, value=value)


def _claim_start(machine: Machine, window: BlockWindow, starts: Sequence[Any]) -> tuple[Poly, ...]:
    """Return where a descriptor's block begins; claim a multiple of 16 bytes into its rows."""
    offsets = _terms(machine, starts)
    size = DTYPES[window.base.tensor.dtype].itemsize
    begins = eq(make("mod", offsets[-1] * size, ALIGNMENT), 0)
    machine.claim("hint", "where a descriptor's block begins", begins)
    return offsets


@rule("tt.descriptor_load")
def _descriptor_load(machine: Machine, op: Op, values: Sequence[Any]) -> Data:
    window, *starts = values
    offsets = _claim_start(machine, window, starts)
    return _load_window(machine, op, window, offsets, op.types[0].shape)


@rule("tt.descriptor_store")
def _descriptor_store(machine: Machine, op: Op, values: Sequence[Any]) -> None:
    window, *starts, value = values
    offsets = _claim_start(machine, window, starts)
    size = DTYPES[window.base.tensor.dtype].itemsize  # memory after a row may be anybody's
    ends = eq(make("mod", window.sizes[-1] * size, ALIGNMENT), 0)
    machine.claim("hint", "where a descriptor's rows end", ends)
    _store_window(machine, op, window, offsets, machine.data(value))


@rule("tt.descriptor_reduce")
def _descriptor_reduce(machine: Machine, op: Op, values: Sequence[Any]) -> None:
    window, *starts, value = values
    pointers, inside = _point_block(
        window, _claim_start(machine, window, starts), range(len(window.block))
    )
    value = reshape(machine.data(value), window.block)
    _access(machine, "atomic", pointers, inside, window.block, value=value, word=op.keywords[0])


@rule("tt.print", "ttg.barrier", "gpu.barrier", "tt.grid_dependency_wait",
      "tt.grid_dependency_launch_dependents")  # fmt: skip
def _nothing(machine: Machine, op: Op, values: Sequence[Any]) -> None:
    return None

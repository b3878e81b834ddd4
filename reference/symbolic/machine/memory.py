"""Loads, stores and atomics over symbols, through pointers, block pointers and descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gemmproof.reference.symbolic.definitions import lane
from gemmproof.reference.symbolic.machine.arithmetic import require_fit
from gemmproof.reference.symbolic.machine.interpret import Machine
from gemmproof.reference.symbolic.machine.registry import rule
from gemmproof.reference.symbolic.machine.seen import NotFollowed
from gemmproof.reference.symbolic.machine.shapes import reshape
from gemmproof.reference.symbolic.machine.values import (
    Access,
    BlockWindow,
    Data,
    Pointers,
    Step,
)
from gemmproof.reference.symbolic.terms import (
    TRUE,
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
from gemmproof.reference.ttir.dtypes import DTYPES
from gemmproof.reference.ttir.module import Op

ZERO, NAN = Data("number", word="0"), Data("number", word="nan")
ALIGNMENT = 16  # bytes, of a descriptor's strides but the last


@rule("tt.addptr")
def _move(machine: Machine, op: Op, values: Sequence[Any]) -> Pointers:
    pointer, offset = values[0], machine.ints(values[1])
    if not isinstance(pointer, Pointers):
        raise NotFollowed("an offset from what is no pointer", machine.where)
    steps = pointer.steps
    if offset.bits < 32:
        require_fit(machine, offset, "an offset")
    if offset.bits == 32 and offset.term.constant is None:
        steps = (*steps, (offset.term, TRUE))
    return Pointers(pointer.tensor, pointer.term + offset.term, op.types[0].shape, steps)


@rule("tt.bitcast")
def _cast(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    if isinstance(values[0], Pointers):
        after = op.types[0].dtype.pointee
        if after is None or after.name != values[0].tensor.dtype:
            raise NotFollowed("a pointer read as one to elements of another type", machine.where)
        return values[0]
    return machine.opaque(op, values, op.types[0])


def _access(
    machine: Machine, kind: str, pointers: Any, mask: Cond, shape: tuple[int, ...], **rest: Any
) -> Access:
    if not isinstance(pointers, Pointers):
        raise NotFollowed(f"a {kind} through what is no pointer", machine.where)
    access = Access(
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
        machine, "atomic", target, mask, value.shape, value=machine.data(value), word=op.words[0]
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
    """Claim what the copy engine asks of a descriptor that the kernel makes."""
    if not isinstance(base, Pointers):
        raise NotFollowed("a descriptor of what is no pointer", machine.where)
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
    moved = (x + y for x, y in zip(window.starts, _terms(machine, moves), strict=True))
    return replace(window, starts=tuple(moved))


def _place(
    window: BlockWindow, starts: Sequence[Poly], checked: Sequence[int]
) -> tuple[Pointers, Cond]:
    """The pointers of a window's block, and which lanes lie within its parent."""
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
    """The axes along which an access looks whether it is within the parent."""
    if not window.starts:
        return range(len(window.block))
    return op.integers("boundaryCheck")


def _load_window(
    machine: Machine, op: Op, window: BlockWindow, starts: Sequence[Poly], shape: tuple[int, ...]
) -> Data:
    pointers, inside = _place(window, starts, _checked(op, window))
    fill = window.fill
    if fill is None and "padding" in op.attrs:
        fill = NAN if op.attrs["padding"].partition(" : ")[0] in ("2", "nan") else ZERO
    access = _access(machine, "load", pointers, inside, window.block, other=fill)
    value = Data("load", window.block, access=access)
    return value if shape == window.block else reshape(value, shape)


def _store_window(
    machine: Machine, op: Op, window: BlockWindow, starts: Sequence[Poly], value: Data
) -> None:
    pointers, inside = _place(window, starts, _checked(op, window))
    value = value if value.shape == window.block else reshape(value, window.block)
    _access(machine, "store", pointers, inside, window.block, value=value)


def _claim_start(machine: Machine, window: BlockWindow, starts: Sequence[Any]) -> tuple[Poly, ...]:
    """Where a descriptor's block begins; claim that it is a multiple of 16 bytes into its rows."""
    places = _terms(machine, starts)
    size = DTYPES[window.base.tensor.dtype].itemsize
    begins = eq(make("mod", places[-1] * size, ALIGNMENT), 0)
    machine.claim("hint", "where a descriptor's block begins", begins)
    return places


@rule("tt.descriptor_load")
def _descriptor_load(machine: Machine, op: Op, values: Sequence[Any]) -> Data:
    window, *starts = values
    places = _claim_start(machine, window, starts)
    return _load_window(machine, op, window, places, op.types[0].shape)


@rule("tt.descriptor_store")
def _descriptor_store(machine: Machine, op: Op, values: Sequence[Any]) -> None:
    window, *starts, value = values
    places = _claim_start(machine, window, starts)
    size = DTYPES[window.base.tensor.dtype].itemsize  # what is behind a row may be anybody's
    ends = eq(make("mod", window.sizes[-1] * size, ALIGNMENT), 0)
    machine.claim("hint", "where a descriptor's rows end", ends)
    _store_window(machine, op, window, places, machine.data(value))


@rule("tt.descriptor_reduce")
def _descriptor_reduce(machine: Machine, op: Op, values: Sequence[Any]) -> None:
    window, *starts, value = values
    pointers, inside = _place(
        window, _claim_start(machine, window, starts), range(len(window.block))
    )
    value = reshape(machine.data(value), window.block)
    _access(machine, "atomic", pointers, inside, window.block, value=value, word=op.words[0])


@rule("tt.print", "ttg.barrier", "gpu.barrier", "tt.grid_dependency_wait",
      "tt.grid_dependency_launch_dependents")  # fmt: skip
def _nothing(machine: Machine, op: Op, values: Sequence[Any]) -> None:
    return None

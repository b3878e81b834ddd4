"""The operands of a case in memory, and those that its formula leaves unused."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import torch

from gemmproof.properties.cases.case import MAX_ELEMENTS, Case
from gemmproof.properties.cases.data import as_tensor, elements, further_elements
from gemmproof.properties.cases.layouts import GUARD, ROW, OperandView, view
from gemmproof.properties.contract import ROLES, Role
from gemmproof.properties.kernel import READ, WRITTEN, ContractError, KernelUnderTest, Operand
from gemmproof.reference.arithmetic import Array
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.reference.provenance import MOST_FILLED, reserve
from gemmproof.reference.spec import Rules, evaluate

# -- operands ------------------------------------------------------------------------------------
POISON_FLOAT = 0xFF  # NaN in every float format
POISON_INT = 0x55
SMALL = 2**24  # elements; a larger parent is committed, and watched, near its rows only


@dataclass(frozen=True, slots=True)
class AllocatedOperand:
    """One operand: the tensor a kernel is given, its elements, and the memory around it.

    `data` is a copy of the elements, (batch, rows, columns), 1 long where the layout repeats one.
    `parent` is the whole storage, flat; `watched` the ranges of it that were written here, with
    the bits they had (`before`, one array per range). `dtype` is the name of the format, `use` what
    a call does with the elements (operand.USES).
    """

    role: Role
    tensor: torch.Tensor
    view: OperandView
    data: Array
    parent: Array
    watched: tuple[tuple[int, int], ...]
    before: tuple[Array, ...]
    dtype: str
    use: str = READ


@dataclass(frozen=True, slots=True)
class Touched:
    """Memory of an operand that a call changed: `what` is "element", "gap", "guard" or "view".

    `place` is the first element's index, or the offset from the view's first element; `count` how
    many elements changed.
    """

    operand: str
    what: str
    place: str
    count: int


def operands(
    case: Case, kernel: KernelUnderTest | None = None, unread: Collection[str] = ()
) -> dict[str, AllocatedOperand]:
    """The operands of a case, as CPU tensors: a and b, of 2 axes or 3 with a batch, and a kernel's.

    Those that are `unread`, whose elements the result does not depend on, hold NaN. Raises
    ContractError, in one line, where a kernel's shapes or functions give none.
    """
    stated = kernel.tensors if kernel is not None else {}
    made = {name: operand_of(case, name) for name in ROLES if name not in stated}
    values = kernel.values_of(case) if kernel is not None else {}
    known = {**values, **case.sides}
    for name in [*(role for role in ROLES if role in stated), *stated]:
        if name in made or (kernel is not None and name in values):  # left out
            continue
        assert kernel is not None
        number = ROLES[name].number if name in ROLES else len(ROLES) + list(stated).index(name)
        try:
            shape = stated[name].sides(kernel.sizes_of(case))
            size = math.prod(shape) * FORMATS[stated[name].format].itemsize
            if case.is_sampled and size > MOST_FILLED:
                made[name] = _reserve_operand(name, stated[name], shape, number)
                continue
            if math.prod(shape) > MAX_ELEMENTS:
                raise ValueError(f"got {shape}, expected at most {MAX_ELEMENTS} elements")
            if name in unread or stated[name].use == WRITTEN:
                data = poison(shape, stated[name].format)
            else:
                data = further_elements(case, stated[name], shape, number, known)
        except Exception as mistake:  # a function of theirs may raise anything
            kind = "" if isinstance(mistake, ValueError) else f"{type(mistake).__name__}: "
            words = " ".join(str(mistake).split())
            raise ContractError(f"operand {name}: {kind}{words} (case {case})") from mistake
        known[name] = data
        made[name] = _further_operand(case, name, stated[name], data, number)
    return {name: made[name] for name in (*ROLES, *made)}


def tensors_of(case: Case, kernel: KernelUnderTest | None = None) -> dict[str, torch.Tensor]:
    """The tensors of new operands of a case."""
    return {name: operand.tensor for name, operand in operands(case, kernel).items()}


def poison(shape: tuple[int, ...], dtype: str) -> Array:
    """Elements that nobody gave: NaN in a float format."""
    fmt = FORMATS[dtype]
    byte = POISON_INT if fmt.kind == "int" else POISON_FLOAT
    return np.full(math.prod(shape) * fmt.itemsize, byte, np.uint8).view(fmt.storage).reshape(shape)


def _further_operand(
    case: Case, name: str, stated: Operand, data: Array, number: int
) -> AllocatedOperand:
    """An operand that the kernel states, in the layout that the case has for it."""
    role = _role_of(name, stated, number)
    layout = case.layout(name) if name in ROLES else dict(case.arguments).get(name, ROW)
    batch, height, width = (1, 1, 1, *data.shape)[-3:]
    k_axis = role.k_axis if "K" in role.axes else 1
    place = view(layout, (batch, height, width), role.number, k_axis)
    elements = data.reshape(batch, height, width)
    once = tuple(
        slice(0, 1) if step == 0 and side > 0 else slice(None)
        for side, step in zip(elements.shape, place.strides, strict=True)
    )
    made = _place(role, elements[once], place, stated.format, data.ndim)
    return replace(made, use=stated.use)


def with_elements(operand: AllocatedOperand, data: Array) -> AllocatedOperand:
    """The same operand in new memory, with other elements, of the shape of its own `data`."""
    axes = operand.tensor.dim()
    made = _place(operand.role, data, operand.view, operand.dtype, axes)
    return replace(made, use=operand.use)


def copy_elements(operand: AllocatedOperand) -> Array:
    """The elements that the operand was given, (batch, rows, columns), whatever calls did since."""
    code = np.broadcast_to(operand.data.view(f"u{operand.data.itemsize}"), operand.view.shape)
    return np.ascontiguousarray(code).view(operand.data.dtype)


def stored_elements(operand: AllocatedOperand) -> Array:
    """The elements that the operand was given, with as many axes as its tensor."""
    return copy_elements(operand).reshape(operand.view.shape[3 - operand.tensor.dim() :])


def view_strided(parent: Array, place: OperandView) -> Array:
    """The view `place` of a flat storage array, (batch, rows, columns), sharing its memory."""
    # as integers: numpy strides no array of an fp8 dtype
    code = parent.view(f"u{parent.itemsize}")[place.first :]
    strides = tuple(stride * parent.itemsize for stride in place.strides)
    return np.lib.stride_tricks.as_strided(code, place.shape, strides).view(parent.dtype)


def find_changes(operand: AllocatedOperand) -> list[Touched]:
    """What calls changed of an operand since it was made, at most one entry per kind."""
    name, view, tensor = operand.role.name, operand.view, operand.tensor
    seen: dict[str, list[int]] = defaultdict(list)
    flat = operand.parent.view(f"u{operand.parent.itemsize}")
    for (start, stop), before in zip(operand.watched, operand.before, strict=True):
        for offset in (np.flatnonzero(flat[start:stop] != before) + start).tolist():
            seen[_classify(view, offset)].append(offset)
    if operand.use != READ:
        seen.pop("element", None)
    found = [
        Touched(name, what, _describe(operand, offsets[0]), len(offsets))
        for what, offsets in sorted(seen.items())
    ]
    shape, strides = (numbers[3 - tensor.dim() :] for numbers in (view.shape, view.strides))
    if tuple(tensor.shape) != shape or tensor.stride() != strides:
        place = f"shape {tuple(tensor.shape)} strides {tensor.stride()}"
        found.append(Touched(name, "view", place, 1))
    return found


def operand_of(case: Case, name: str, data: Array | None = None) -> AllocatedOperand:
    """One operand of a case, in the case's layout for it, with these elements or the case's own.

    `data` is (batch, rows, columns), 1 long where the layout repeats one element.
    """
    role, shape = ROLES[name], case.shape_of(name)
    place = view(case.layout(name), shape, role.number, role.k_axis)
    if data is None:
        distinct = (
            1 if stride == 0 and side > 0 else side
            for side, stride in zip(shape, place.strides, strict=True)
        )
        data = elements(case, role, tuple(distinct))
    return _place(role, data, place, case.dtype, 2 if case.batch is None else 3)


def _role_of(name: str, stated: Operand, number: int) -> Role:
    rows, columns = ("", "", *map(str, stated.axes))[-2:]
    return Role(name, (rows, columns), number)


def _reserve_operand(
    name: str, stated: Operand, shape: tuple[int, ...], number: int
) -> AllocatedOperand:
    """An operand as large as a sampled result: addresses, of whose elements none is known."""
    fmt, role = FORMATS[stated.format], _role_of(name, stated, number)
    batch, height, width = (1, 1, 1, *shape)[-3:]
    place = view(ROW, (batch, height, width), number, 1)
    parent = np.frombuffer(reserve(place.extent * fmt.itemsize), fmt.storage)
    skip = 3 - len(shape)
    tensor = torch.as_strided(
        as_tensor(parent, fmt.name), place.shape[skip:], place.strides[skip:], place.first
    )
    data = parent[:1].reshape(1, 1, 1)
    return AllocatedOperand(role, tensor, place, data, parent, (), (), fmt.name, stated.use)


def _place(role: Role, data: Array, place: OperandView, dtype: str, axes: int) -> AllocatedOperand:
    """The operand in memory of its own: `data` in a view of the last `axes` of three axes."""
    fmt = FORMATS[dtype]
    parent = _parent(place.extent, fmt)
    watched = _choose_watched(place)
    for start, stop in watched:
        parent[start:stop].view(np.uint8)[:] = POISON_INT if fmt.kind == "int" else POISON_FLOAT
    view_strided(parent, replace(place, shape=data.shape))[...] = data
    flat = parent.view(f"u{parent.itemsize}")
    tensor = torch.as_strided(
        as_tensor(parent, dtype), place.shape[3 - axes :], place.strides[3 - axes :], place.first
    )
    before = tuple(flat[start:stop].copy() for start, stop in watched)
    return AllocatedOperand(role, tensor, place, data, parent, watched, before, dtype)


def _parent(extent: int, fmt: Format) -> Array:
    if extent <= SMALL:
        # 64 bytes: what the base of a tensor is aligned to, on every device
        raw = np.empty(extent * fmt.itemsize + 64, np.uint8)
        skip = -raw.ctypes.data % 64
        return raw[skip : skip + extent * fmt.itemsize].view(fmt.storage)
    return np.frombuffer(reserve(extent * fmt.itemsize), fmt.storage)


def _choose_watched(place: OperandView) -> tuple[tuple[int, int], ...]:
    if place.extent <= SMALL:
        return ((0, place.extent),)
    # a line along the axis of the smallest stride, and a guard band on either side of it
    line, *others = sorted(range(3), key=lambda axis: place.strides[axis])
    length = max(place.shape[line] - 1, 0) * place.strides[line] + 1
    found = {(0, GUARD), (place.extent - GUARD, place.extent)}
    for i in range(place.shape[others[0]]):
        for j in range(place.shape[others[1]]):
            start = place.first + i * place.strides[others[0]] + j * place.strides[others[1]]
            found.add((start - GUARD, start + length + GUARD))
    ranges: list[tuple[int, int]] = []
    for start, stop in sorted(found):
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(stop, ranges[-1][1]))
        else:
            ranges.append((start, stop))
    return tuple(ranges)


def _classify(place: OperandView, offset: int) -> str:
    if offset < GUARD or offset >= place.extent - GUARD:
        return "guard"
    return "gap" if _index(place, offset) is None else "element"


def _index(place: OperandView, offset: int) -> tuple[int, int, int] | None:
    """The element at an offset of the parent, None in a gap.

    Taking strides in falling order finds it, because no view here overlaps itself but by stride 0.
    """
    rest = offset - place.first
    index = [0, 0, 0]
    for axis in sorted(range(3), key=lambda axis: -place.strides[axis]):
        stride, side = place.strides[axis], place.shape[axis]
        if side == 0:
            return None
        if stride > 0:
            index[axis] = min(max(rest, 0) // stride, side - 1)
            rest -= index[axis] * stride
    return (index[0], index[1], index[2]) if rest == 0 else None


def _describe(operand: AllocatedOperand, offset: int) -> str:
    index = _index(operand.view, offset)
    if index is None:
        return f"{operand.role.name} offset {offset - operand.view.first}"
    shown = index[3 - operand.tensor.dim() :]
    return f"{operand.role.name}[{', '.join(map(str, shown))}]"


# -- unused operands -----------------------------------------------------------------------------
def find_unread(kernel: KernelUnderTest, case: Case) -> frozenset[str]:
    """The float operands that `spec` does not touch in this case.

    Only where something is to choose: a formula that never reads an operand is not asked again in
    each case. BLAS says of beta = 0 that c need not be set on entry.
    """
    if case.is_sampled or kernel.spec is None or not (kernel.choices or kernel.written):
        return frozenset()
    placed = operands(case, kernel)
    read = {name: x for name, x in placed.items() if x.use != WRITTEN}
    given: dict[str, object]
    given = {name: (stored_elements(x), x.dtype) for name, x in read.items()}
    given |= kernel.values_of(case)
    floats = [name for name, x in read.items() if FORMATS[x.dtype].kind == "float"]
    return frozenset(name for name in floats if _is_unread(kernel, given, name))


def _is_unread(kernel: KernelUnderTest, given: dict[str, object], name: str) -> bool:
    # every use of a bare object fails
    try:
        evaluate(lambda **named: kernel.calculate(named), {**given, name: object()}, Rules())
    except Exception:  # whatever the formula raises, it touched the operand
        return False
    return True

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
SMALL = 2**24  # elements; a larger parent is committed and watched only near its rows


@dataclass(frozen=True, slots=True)
class AllocatedOperand:
    """One operand: the tensor passed to a kernel, its elements, and the memory around it.

    `data` is a copy of the elements, (batch, rows, columns), 1 long where the layout repeats one.
    `parent` is the whole storage, flat; `watched` the ranges of it that were written here, with
    their original bits (`before`, one array per range). `dtype` is the name of the format, `use`
    the call's use of the elements (operand.USES).
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

    `location` is the first element's index, or the offset from the view's first element; `count`
    the number of elements changed.
    """

    operand: str
    what: str
    location: str
    count: int


def operands(
    case: Case, kernel: KernelUnderTest | None = None, unused: Collection[str] = ()
) -> dict[str, AllocatedOperand]:
    """Return a case's operands as CPU tensors: a and b, of 2 axes or 3 (batch), and a kernel's own.

    Those that are `unused`, whose elements the result does not depend on, hold NaN. Raises a
    one-line ContractError if a kernel's shapes or functions give no operand.
    """
    declared = kernel.tensors if kernel is not None else {}
    allocated = {name: operand_of(case, name) for name in ROLES if name not in declared}
    values = kernel.values_of(case) if kernel is not None else {}
    known = {**values, **case.sides}
    for name in [*(role for role in ROLES if role in declared), *declared]:
        if name in allocated or (kernel is not None and name in values):  # omitted
            continue
        assert kernel is not None
        number = ROLES[name].number if name in ROLES else len(ROLES) + list(declared).index(name)
        try:
            shape = declared[name].sides(kernel.sizes_of(case))
            size = math.prod(shape) * FORMATS[declared[name].format].itemsize
            if case.is_sampled and size > MOST_FILLED:
                allocated[name] = _reserve_operand(name, declared[name], shape, number)
                continue
            if math.prod(shape) > MAX_ELEMENTS:
                raise ValueError(f"got {shape}, expected at most {MAX_ELEMENTS} elements")
            if name in unused or declared[name].use == WRITTEN:
                data = poison(shape, declared[name].format)
            else:
                data = further_elements(case, declared[name], shape, number, known)
        except Exception as mistake:  # a user's function may raise anything
            kind = "" if isinstance(mistake, ValueError) else f"{type(mistake).__name__}: "
            text = " ".join(str(mistake).split())
            raise ContractError(f"operand {name}: {kind}{text} (case {case})") from mistake
        known[name] = data
        allocated[name] = _further_operand(case, name, declared[name], data, number)
    return {name: allocated[name] for name in (*ROLES, *allocated)}


def tensors_of(case: Case, kernel: KernelUnderTest | None = None) -> dict[str, torch.Tensor]:
    """Return the tensors of new operands of a case."""
    return {name: operand.tensor for name, operand in operands(case, kernel).items()}


def poison(shape: tuple[int, ...], dtype: str) -> Array:
    """Return uninitialised elements: NaN in a float format."""
    fmt = FORMATS[dtype]
    byte = POISON_INT if fmt.kind == "int" else POISON_FLOAT
    return np.full(math.prod(shape) * fmt.itemsize, byte, np.uint8).view(fmt.storage).reshape(shape)


def _further_operand(
    case: Case, name: str, declared: Operand, data: Array, number: int
) -> AllocatedOperand:
    """Allocate an operand that the kernel declares, in the case's layout for it."""
    role = _role_of(name, declared, number)
    layout = case.layout(name) if name in ROLES else dict(case.arguments).get(name, ROW)
    batch, height, width = (1, 1, 1, *data.shape)[-3:]
    k_axis = role.k_axis if "K" in role.axes else 1
    operand_view = view(layout, (batch, height, width), role.number, k_axis)
    elements = data.reshape(batch, height, width)
    once = tuple(
        slice(0, 1) if step == 0 and side > 0 else slice(None)
        for side, step in zip(elements.shape, operand_view.strides, strict=True)
    )
    operand = _allocate(role, elements[once], operand_view, declared.format, data.ndim)
    return replace(operand, use=declared.use)


def with_elements(operand: AllocatedOperand, data: Array) -> AllocatedOperand:
    """Return the operand in new memory with other elements, in the shape of its `data`."""
    axes = operand.tensor.dim()
    copy = _allocate(operand.role, data, operand.view, operand.dtype, axes)
    return replace(copy, use=operand.use)


def copy_elements(operand: AllocatedOperand) -> Array:
    """Copy the elements that the operand was given, (batch, rows, columns), despite later calls."""
    code = np.broadcast_to(operand.data.view(f"u{operand.data.itemsize}"), operand.view.shape)
    return np.ascontiguousarray(code).view(operand.data.dtype)


def stored_elements(operand: AllocatedOperand) -> Array:
    """Return the elements as the operand was given, with as many axes as its tensor."""
    return copy_elements(operand).reshape(operand.view.shape[3 - operand.tensor.dim() :])


def view_strided(parent: Array, operand_view: OperandView) -> Array:
    """View a flat storage array through `operand_view`, (batch, rows, columns), sharing memory."""
    # as integers: numpy cannot stride an array of an fp8 dtype
    code = parent.view(f"u{parent.itemsize}")[operand_view.first :]
    strides = tuple(stride * parent.itemsize for stride in operand_view.strides)
    return np.lib.stride_tricks.as_strided(code, operand_view.shape, strides).view(parent.dtype)


def find_changes(operand: AllocatedOperand) -> list[Touched]:
    """List the changes of an operand since it was allocated, at most one entry per kind."""
    name, view, tensor = operand.role.name, operand.view, operand.tensor
    seen: dict[str, list[int]] = defaultdict(list)
    flat = operand.parent.view(f"u{operand.parent.itemsize}")
    for (start, stop), before in zip(operand.watched, operand.before, strict=True):
        for offset in (np.flatnonzero(flat[start:stop] != before) + start).tolist():
            seen[_classify(view, offset)].append(offset)
    if operand.use != READ:
        seen.pop("element", None)
    changes = [
        Touched(name, kind, _describe(operand, offsets[0]), len(offsets))
        for kind, offsets in sorted(seen.items())
    ]
    shape, strides = (numbers[3 - tensor.dim() :] for numbers in (view.shape, view.strides))
    if tuple(tensor.shape) != shape or tensor.stride() != strides:
        text = f"shape {tuple(tensor.shape)} strides {tensor.stride()}"
        changes.append(Touched(name, "view", text, 1))
    return changes


def operand_of(case: Case, name: str, data: Array | None = None) -> AllocatedOperand:
    """Allocate one operand of a case, in the case's layout, with these elements or the case's own.

    `data` is (batch, rows, columns), 1 long where the layout repeats one element.
    """
    role, shape = ROLES[name], case.shape_of(name)
    operand_view = view(case.layout(name), shape, role.number, role.k_axis)
    if data is None:
        distinct = (
            1 if stride == 0 and side > 0 else side
            for side, stride in zip(shape, operand_view.strides, strict=True)
        )
        data = elements(case, role, tuple(distinct))
    return _allocate(role, data, operand_view, case.dtype, 2 if case.batch is None else 3)


def _role_of(name: str, declared: Operand, number: int) -> Role:
    rows, columns = ("", "", *map(str, declared.axes))[-2:]
    return Role(name, (rows, columns), number)


def _reserve_operand(
    name: str, declared: Operand, shape: tuple[int, ...], number: int
) -> AllocatedOperand:
    """Reserve an operand as large as a sampled result: addresses without known elements."""
    fmt, role = FORMATS[declared.format], _role_of(name, declared, number)
    batch, height, width = (1, 1, 1, *shape)[-3:]
    operand_view = view(ROW, (batch, height, width), number, 1)
    parent = np.frombuffer(reserve(operand_view.extent * fmt.itemsize), fmt.storage)
    skip = 3 - len(shape)
    tensor = torch.as_strided(
        as_tensor(parent, fmt.name),
        operand_view.shape[skip:],
        operand_view.strides[skip:],
        operand_view.first,
    )
    data = parent[:1].reshape(1, 1, 1)
    return AllocatedOperand(
        role, tensor, operand_view, data, parent, (), (), fmt.name, declared.use
    )


def _allocate(
    role: Role, data: Array, operand_view: OperandView, dtype: str, axes: int
) -> AllocatedOperand:
    """Allocate the operand in its own memory: `data` in a view of the last `axes` of three axes."""
    fmt = FORMATS[dtype]
    parent = _parent(operand_view.extent, fmt)
    watched = _choose_watched(operand_view)
    for start, stop in watched:
        parent[start:stop].view(np.uint8)[:] = POISON_INT if fmt.kind == "int" else POISON_FLOAT
    view_strided(parent, replace(operand_view, shape=data.shape))[...] = data
    flat = parent.view(f"u{parent.itemsize}")
    tensor = torch.as_strided(
        as_tensor(parent, dtype),
        operand_view.shape[3 - axes :],
        operand_view.strides[3 - axes :],
        operand_view.first,
    )
    before = tuple(flat[start:stop].copy() for start, stop in watched)
    return AllocatedOperand(role, tensor, operand_view, data, parent, watched, before, dtype)


def _parent(extent: int, fmt: Format) -> Array:
    if extent <= SMALL:
        # 64 bytes: the alignment of a tensor's base, on every device
        raw = np.empty(extent * fmt.itemsize + 64, np.uint8)
        skip = -raw.ctypes.data % 64
        return raw[skip : skip + extent * fmt.itemsize].view(fmt.storage)
    return np.frombuffer(reserve(extent * fmt.itemsize), fmt.storage)


def _choose_watched(operand_view: OperandView) -> tuple[tuple[int, int], ...]:
    if operand_view.extent <= SMALL:
        return ((0, operand_view.extent),)
    # a line along the axis of the smallest stride, and a guard band on either side of it
    line, *others = sorted(range(3), key=lambda axis: operand_view.strides[axis])
    length = max(operand_view.shape[line] - 1, 0) * operand_view.strides[line] + 1
    bounds = {(0, GUARD), (operand_view.extent - GUARD, operand_view.extent)}
    for i in range(operand_view.shape[others[0]]):
        for j in range(operand_view.shape[others[1]]):
            start = (
                operand_view.first
                + i * operand_view.strides[others[0]]
                + j * operand_view.strides[others[1]]
            )
            bounds.add((start - GUARD, start + length + GUARD))
    ranges: list[tuple[int, int]] = []
    for start, stop in sorted(bounds):
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(stop, ranges[-1][1]))
        else:
            ranges.append((start, stop))
    return tuple(ranges)


def _classify(operand_view: OperandView, offset: int) -> str:
    if offset < GUARD or offset >= operand_view.extent - GUARD:
        return "guard"
    return "gap" if _index(operand_view, offset) is None else "element"


def _index(operand_view: OperandView, offset: int) -> tuple[int, int, int] | None:
    """Return the element at an offset of the parent, None in a gap.

    Taking strides in falling order finds it, because no view here overlaps itself but by stride 0.
    """
    rest = offset - operand_view.first
    index = [0, 0, 0]
    for axis in sorted(range(3), key=lambda axis: -operand_view.strides[axis]):
        stride, side = operand_view.strides[axis], operand_view.shape[axis]
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
    """Return the float operands that `spec` does not touch in this case.

    Only if there are options: a formula that never reads an operand is not evaluated again in each
    case. BLAS specifies for beta = 0 that c need not be set on entry.
    """
    has_formula = kernel.spec is not None and not kernel.memory_only
    if case.is_sampled or not has_formula or not (kernel.choices or kernel.written):
        return frozenset()
    allocated = operands(case, kernel)
    read = {name: x for name, x in allocated.items() if x.use != WRITTEN}
    values: dict[str, object]
    values = {name: (stored_elements(x), x.dtype) for name, x in read.items()}
    values |= kernel.values_of(case)
    floats = [name for name, x in read.items() if FORMATS[x.dtype].kind == "float"]
    return frozenset(name for name in floats if _is_unread(kernel, case, values, name))


def _is_unread(kernel: KernelUnderTest, case: Case, values: dict[str, object], name: str) -> bool:
    # every use of a bare object fails
    given = {**values, name: object()}
    try:
        evaluate(lambda **named: kernel.calculate(named, case.sides), given, Rules())
    except Exception:  # any exception of the formula means that it touched the operand
        return False
    return True

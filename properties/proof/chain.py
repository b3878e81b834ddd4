"""Where a result's elements come from: the launch that stored them, and what torch did then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gemmproof.properties.proof.around import LAUNCH
from gemmproof.reference.symbolic.interpreter.symbolic_values import Access
from gemmproof.reference.symbolic.obligations.contents import (
    COPIES,
    NotCopied,
    get_base,
    get_copied,
    is_zeros,
)
from gemmproof.reference.symbolic.obligations.product import WIDE
from gemmproof.reference.symbolic.tracing import Path
from gemmproof.reference.symbolic.tracing.trace import TensorView, TorchCall
from gemmproof.reference.ttir import DTYPES

_SUM = "aten.sum.dim_IntList"


@dataclass(frozen=True, slots=True)
class Chain:
    """The view of stored memory that a result is made of, element by element.

    The operations before `end` made it. `summed`: torch adds up this axis of it. `is_last`: it has
    the result's own format, else one that is wide. `is_zero`: torch filled it with 0.
    """

    view: TensorView
    end: int
    summed: int | None = None
    is_last: bool = True
    is_zero: bool = False


def find_chain(path: Path, accesses: Sequence[Access]) -> Chain:
    """What the only tensor among a path's results is made of. Raises NotCopied."""
    results = [view for view in path.results if isinstance(view, TensorView)]
    if len(results) != 1:
        raise NotCopied(f"{len(results)} tensors are returned")
    view, summed = results[0], None
    dtypes = [view.dtype]
    end = len(path.operations)
    while True:
        if view.dtype != view.memory.dtype:
            raise NotCopied(f"what is returned is {view.name} as {view.dtype}")
        end, call = _find_writer(path, accesses, view, end)
        if call.name == LAUNCH or is_zeros(call):
            is_last = set(dtypes) == {dtypes[0]} and summed is None
            is_zero = call.name != LAUNCH
            return Chain(view, end + (not is_zero), summed, is_last, is_zero)
        if call.name == _SUM and summed is None:
            view, summed = _unsum(call, view)
        else:
            view = _uncopy(call, view)
        dtypes.append(view.dtype)
        wide = view.dtype in WIDE or (view.dtype == dtypes[0] and summed is None)
        if not wide or DTYPES[view.dtype].is_float != DTYPES[dtypes[0]].is_float:
            raise NotCopied(f"{view.name} is kept in {view.dtype} before it is returned")


def _find_writer(
    path: Path, accesses: Sequence[Access], view: TensorView, end: int
) -> tuple[int, TorchCall]:
    """The last operation before `end` that changes the memory of a view."""
    storing = {x.launch for x in accesses if x.kind != "load" and x.tensor.storage == view.storage}
    for i in reversed(range(end)):
        call = path.operations[i]
        if call.name == LAUNCH and call.args[0] in storing:
            return i, call
        for output in call.outputs:
            if output.storage == view.storage:
                if _place(output) != _place(view):
                    raise NotCopied(f"{view.name} is changed in part by {get_base(call)}")
                return i, call
    raise NotCopied(f"{view.name} is stored by no launch")


def _place(view: TensorView) -> Any:
    return view.shape, view.strides, view.offset


def _uncopy(call: TorchCall, view: TensorView) -> TensorView:
    base = get_base(call)
    source = get_copied(call)
    if base not in COPIES or source is None or source.shape != view.shape:
        raise NotCopied(f"{view.name} is changed by {base}")
    return source


def _unsum(call: TorchCall, view: TensorView) -> tuple[TensorView, int]:
    """What is summed, and along which axis."""
    source, axes, *rest = call.args
    if not isinstance(source, TensorView) or len(axes) != 1 or any(rest) or len(call.outputs) != 1:
        raise NotCopied(f"{view.name} is a sum of another form")
    axis = int(axes[0]) % len(source.shape)
    left = (*source.shape[:axis], *source.shape[axis + 1 :])
    if left != view.shape or source.dtype not in WIDE:
        raise NotCopied(f"{view.name} is a sum of {source.dtype}")
    return source, axis

"""What torch does around the launches of a path, as far as it matters to what they leave."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from torch.utils._pytree import tree_leaves

from gemmproof.reference.symbolic.interpreter.symbolic_values import Access
from gemmproof.reference.symbolic.obligations.contents import get_base, is_zeros
from gemmproof.reference.symbolic.obligations.in_bounds import is_whole
from gemmproof.reference.symbolic.tracing import Path
from gemmproof.reference.symbolic.tracing.trace import TensorView, TorchCall

# of these the first operand is not read
_FILLS = ("aten.zeros", "aten.zero_", "aten.new_zeros", "aten.zeros_like", "aten.fill_",
          "aten.copy_")  # fmt: skip
LAUNCH = "launch"


def is_zeroed(path: Path, store: Access) -> bool:
    """Whether torch filled all of the memory with 0 before the launch, and before each trial of it.

    A launch of several configurations is tried out, and its trials add up, unless the tuner's own
    hook fills the memory.
    """
    touched = []
    for call in path.operations:
        if call.name == LAUNCH and call.args[0] == store.launch:
            break
        touched += [call] if _writes(call, {store.tensor.storage}) else []
    if not touched or not is_zeros(touched[-1]):
        return False
    is_tried = path.launches[store.launch].configs > 1
    return all(map(is_whole, touched[-1].outputs)) and (touched[-1].in_tuner or not is_tried)


def find_rewrite(path: Path, stores: Sequence[Access], end: int) -> str:
    """What torch, or another launch, does to stored memory behind the first launch that stores it.

    The operations before `end` count for torch; "" where there is nothing.
    """
    (storage,) = {x.tensor.storage for x in stores}
    launches, stored = {x.launch for x in stores}, False
    for i, call in enumerate(path.operations):
        if call.name == LAUNCH and call.args[0] in launches:
            if i >= end:
                return f"{stores[0].tensor.name} is stored to again"
            stored = True
        elif stored and i < end and _writes(call, {storage}):
            return f"{stores[0].tensor.name} is changed by {get_base(call)}"
    return ""


def list_read(call: TorchCall) -> list[TensorView]:
    """The tensors that an operation of torch reads; a launch is none."""
    if call.name == LAUNCH:
        return []
    given: list[Any] = list(call.args)
    if get_base(call) in _FILLS:
        given = given[1:]
    kept = {name: x for name, x in call.kwargs.items() if name != "out"}
    return list(list_views((given, kept)))


def list_views(what: Any) -> Iterator[TensorView]:
    """The tensors in arguments, at any depth."""
    is_view = lambda x: isinstance(x, TensorView)  # noqa: E731
    yield from filter(is_view, tree_leaves(what, is_leaf=is_view))


def _writes(call: TorchCall, storages: Collection[int]) -> bool:
    return any(view.storage in storages for view in call.outputs)

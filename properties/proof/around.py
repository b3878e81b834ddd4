"""What torch does around the launches of a path, as far as it matters to what they leave."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from torch.utils._pytree import tree_leaves

from gemmproof.reference.symbolic.machine.values import Access
from gemmproof.reference.symbolic.obligations.bounds import is_whole
from gemmproof.reference.symbolic.wrapper import Path
from gemmproof.reference.symbolic.wrapper.record import TensorView, TorchCall

_ZEROS = ("aten.zeros", "aten.zero_", "aten.new_zeros", "aten.zeros_like")
_FILLS = (*_ZEROS, "aten.fill_", "aten.copy_")  # the first operand is not read
LAUNCH = "launch"


def is_zeroed(path: Path, store: Access) -> bool:
    """Whether torch filled all of the result with 0 before its only launch of one configuration."""
    if len(path.launches) != 1 or path.launches[0].configs != 1:
        return False  # where it is tuned, trials may add to it
    before = []
    for call in path.operations:
        if call.name == LAUNCH:
            break
        before.append(call)
    touched = [c for c in before if _writes(c, {store.tensor.storage})]
    if not touched or _base(touched[-1]) not in _ZEROS:
        return False
    return all(is_whole(view) for view in touched[-1].outputs)


def find_change(
    path: Path, accesses: Sequence[Access], store: Access, roles: Collection[str]
) -> str:
    """What changes an operand, or the result behind the launch, "" if nothing does."""
    read = {x.tensor.storage: x.tensor.name for x in accesses if x.tensor.name in roles}
    for access in accesses:
        if access.kind != "load" and access.tensor.storage in read:
            return f"{access.tensor.name} is stored to"
    launched = False
    for call in path.operations:
        launched |= call.name == LAUNCH
        for storage, name in read.items():
            if _writes(call, {storage}):
                return f"{name} is changed by {_base(call)}"
        if launched and _writes(call, {store.tensor.storage}):
            return f"{store.tensor.name} is changed by {_base(call)}"
    views = [view for view in path.results if isinstance(view, TensorView)]
    if len(views) != 1 or views[0].storage != store.tensor.storage:
        return f"what is returned is not {store.tensor.name} as it was stored"
    if views[0].dtype != store.tensor.dtype:
        return f"what is returned is {store.tensor.name} as {views[0].dtype}"
    return ""


def list_read(call: TorchCall) -> list[TensorView]:
    """The tensors that an operation of torch reads; a launch is none."""
    if call.name == LAUNCH:
        return []
    given: list[Any] = list(call.args)
    if _base(call) in _FILLS:
        given = given[1:]
    kept = {name: x for name, x in call.kwargs.items() if name != "out"}
    return list(list_views((given, kept)))


def list_views(what: Any) -> Iterator[TensorView]:
    """The tensors in arguments, at any depth."""
    is_view = lambda x: isinstance(x, TensorView)  # noqa: E731
    yield from filter(is_view, tree_leaves(what, is_leaf=is_view))


def _writes(call: TorchCall, storages: Collection[int]) -> bool:
    return any(view.storage in storages for view in call.outputs)


def _base(call: TorchCall) -> str:
    return call.name.rsplit(".", 1)[0]

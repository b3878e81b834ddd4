"""The end of a simulated call: what was seen becomes faults, as far as it concerns the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gemmproof.reference.observation import Fault, Where
from gemmproof.reference.simulator.checks.blame import Event, gather
from gemmproof.reference.simulator.checks.judge import STRAY
from gemmproof.reference.simulator.memory import Storage, View, view_of
from gemmproof.reference.simulator.session import Session, axes_of


def elements_of(flags: np.ndarray, storage: Storage, view: View) -> np.ndarray:
    """The bytes of `flags` that belong to a view, shape (*view.shape, itemsize)."""
    size = view.itemsize
    start = view.start - storage.start
    strides = (*(s * size for s in view.strides), 1)
    return np.lib.stride_tricks.as_strided(flags[start:], (*view.shape, size), strides)


def conclude(session: Session, result: Any) -> None:
    """Name the result "c" and turn the events that concern it, or no memory, into faults."""
    results = result if isinstance(result, tuple | list) else [result]
    tensors = [t for t in results if isinstance(t, torch.Tensor)]
    for tensor in tensors[:1]:
        storage = session.memory.storage_of(tensor)
        for operand in session.operands:
            if operand.storage is storage and operand.name not in session.names:
                operand.name = "c"
                operand.axes = _result_axes(operand.view, view_of(tensor))
    faults = session.run.faults
    for kernel in dict.fromkeys(k for k, _ in session.events):
        events = [e for k, e in session.events if k == kernel]
        faults += gather(kernel, [e for e in events if e.elements is None])
        for tensor in tensors:
            faults += _stored_twice(session, kernel, events, tensor)
            faults += _undefined_stored(session, kernel, events, tensor)
    for tensor in tensors:
        faults += _never_stored(session, tensor)


def _result_axes(view: View, result: View) -> tuple[str, ...]:
    names = axes_of("c", len(result.shape))
    dims = list(zip(result.shape, result.strides, strict=True))
    own = list(zip(view.shape, view.strides, strict=True))
    if own == dims:
        return names
    if sorted(own) == sorted(dims) and len(set(dims)) == len(dims):
        return tuple(names[dims.index(d)] for d in own)
    return axes_of("", len(own))


def _met(tensor: torch.Tensor, storage: Storage, elements: np.ndarray) -> np.ndarray:
    """Which elements of the tensor begin at these byte offsets of its storage."""
    flags = np.zeros(storage.data.size, np.bool_)
    flags[elements] = True
    return np.asarray(elements_of(flags, storage, view_of(tensor))[..., 0])


def _stored_twice(
    session: Session, kernel: str, events: list[Event], tensor: torch.Tensor
) -> list[Fault]:
    storage = session.memory.storage_of(tensor)
    lines: dict[Where | None, list[Event]] = {}
    for e in events:
        if e.kind == "stored_twice" and e.storage is storage:
            lines.setdefault(e.where, []).append(e)
    faults = []
    for where, group in lines.items():
        hit = _met(tensor, storage, np.concatenate([e.elements for e in group]))
        if hit.any():
            programs = np.unique(np.concatenate([e.programs for e in group]))
            faults.append(
                Fault(
                    kind="stored_twice",
                    kernel=kernel,
                    access="store",
                    operand="c",
                    axis=_ragged_axis(hit),
                    where=where or Where("", 0, ""),
                    got=f"{span(hit)} of c stored more than once",
                    expected="one store an element",
                    programs=len(programs),
                    lanes=int(hit.sum()),
                )
            )
    return faults


_EXPECTED = {
    "undefined_stored": "values from defined lanes only",
    "false_hint": "a hint that holds",
}


def _undefined_stored(
    session: Session, kernel: str, events: list[Event], tensor: torch.Tensor
) -> list[Fault]:
    """One fault for each origin of the undefined lanes that the result still holds."""
    storage = session.memory.storage_of(tensor)
    if storage.undefined is None:
        return []
    still = np.asarray(elements_of(storage.undefined, storage, view_of(tensor)).any(axis=-1))
    mine, met = _lanes_behind(session, events, tensor)
    faults = []
    for i, origin in enumerate(session.sources[:8]):
        hit = met(i) & still
        if not hit.any():
            continue
        operand = origin.operand
        axis = (
            operand.axes[origin.axis] if operand is not None and origin.axis is not None else None
        )
        source = origin.what
        if not source.startswith("a "):
            source = f"lanes of {operand.name if operand else 'memory'} that {source}"
        faults.append(
            Fault(
                kind=origin.kind,
                kernel=kernel,
                access=mine[0].access if operand is not None and operand.name == "c" else "load",
                operand=operand.name if operand is not None else "c",
                axis=axis,
                where=origin.where or mine[0].where or Where("", 0, ""),
                got=f"{span(hit)} of c come from {source}",
                expected=_EXPECTED[origin.kind],
                programs=len(np.unique(np.concatenate([e.programs for e in mine]))),
                lanes=int(hit.sum()),
                follows="out_of_bounds" if origin.what == STRAY else "",
            )
        )
    return faults


def span(hit: np.ndarray) -> str:
    """The bounding ranges of the marked elements: "rows 0..3, columns 16..31"."""
    words = (
        ("row", "column") if hit.ndim == 2 else tuple(f"axis {i} index" for i in range(hit.ndim))
    )
    if hit.ndim == 3:
        words = ("batch", "row", "column")
    parts = []
    for axis, word in enumerate(words):
        other = tuple(i for i in range(hit.ndim) if i != axis)
        at = np.flatnonzero(hit.any(axis=other))
        low, high = int(at[0]), int(at[-1])
        many = {"batch": "batches", "row": "rows", "column": "columns"}.get(word, word)
        parts.append(f"{word} {low}" if low == high else f"{many} {low}..{high}")
    return ", ".join(parts)


def _lanes_behind(
    session: Session, events: list[Event], tensor: torch.Tensor
) -> tuple[list[Event], Callable[[int], np.ndarray]]:
    """The events that stored undefined lanes into a tensor or into what torch made it from.

    The function gives, for a poison bit, the elements of the tensor that such lanes met; of a
    source of another shape all elements count as met.
    """
    found: list[tuple[torch.Tensor, list[Event]]] = []
    for part in _lineage(session, tensor):
        storage = session.memory.storage_of(part)
        mine = [e for e in events if e.kind == "undefined_stored" and e.storage is storage]
        if mine:
            found.append((part, mine))

    def met(bit: int) -> np.ndarray:
        hit = np.zeros(tuple(tensor.shape), np.bool_)
        for part, mine in found:
            elements = np.concatenate([e.elements for e in mine])
            bits = np.concatenate([e.bits for e in mine])
            lanes = elements[(bits >> bit) & 1 == 1]
            if part.shape == tensor.shape:
                hit |= _met(part, session.memory.storage_of(part), lanes)
            else:
                hit |= lanes.size > 0
        return hit

    return [e for _, mine in found for e in mine], met


def _lineage(session: Session, tensor: torch.Tensor) -> list[torch.Tensor]:
    """A tensor, then the tensors that its undefined elements were carried over from."""
    found, seen, i = [tensor], set(), 0
    while i < len(found):
        storage = session.memory.storage_of(found[i])
        i += 1
        if storage not in seen:
            seen.add(storage)
            found += storage.sources
    return found


def _never_stored(session: Session, tensor: torch.Tensor) -> list[Fault]:
    storage = session.memory.storage_of(tensor)
    if storage.undefined is None or not storage.undefined.any() or not tensor.numel():
        return []
    missing = np.asarray(elements_of(storage.undefined, storage, view_of(tensor)).any(axis=-1))
    _, met = _lanes_behind(session, [e for _, e in session.events], tensor)
    for bit in range(8):
        missing &= ~met(bit)
    if not missing.any():
        return []
    launches = session.run.launches
    axis = _ragged_axis(missing)
    return [
        Fault(
            kind="never_stored",
            kernel=launches[-1].kernel if launches else "",
            access="store",
            operand="c",
            axis=axis,
            where=launches[-1].where if launches else Where("", 0, ""),
            got=f"{span(missing)} of c never stored",
            expected="every element of c stored",
            programs=0,
            lanes=int(missing.sum()),
        )
    ]


def _ragged_axis(hit: np.ndarray) -> str | None:
    """The axis along which only a part is hit while the other is hit wholly."""
    names = axes_of("c", hit.ndim)
    partial = []
    for axis, name in enumerate(names):
        other = tuple(i for i in range(hit.ndim) if i != axis)
        if not hit.any(axis=other).all():
            partial.append(name)
    return partial[0] if len(partial) == 1 else None

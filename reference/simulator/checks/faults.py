"""Violations of a call, as faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch

from gemmproof.reference.simulation import NOWHERE, Fault, Where
from gemmproof.reference.simulator import session as context
from gemmproof.reference.simulator.checks.access import STRAY
from gemmproof.reference.simulator.checks.messages import (
    Violation,
    count_programs,
    gather,
    label_range,
)
from gemmproof.reference.simulator.memory import view_of
from gemmproof.reference.simulator.scheduler import KINDS
from gemmproof.reference.simulator.session import Session, axes_of, match_axes


class Result(NamedTuple):
    """A tensor that a call gave, by the name that messages have for it."""

    name: str
    tensor: torch.Tensor


def conclude(session: Session, result: Any, names: Sequence[str] = ("c",)) -> None:
    """Name the results and turn the sightings that concern them, or no memory, into faults."""
    given = result if isinstance(result, tuple | list) else [result]
    named = zip_longest(given, names, fillvalue=names[-1])
    results = [Result(name, x) for x, name in named if isinstance(x, torch.Tensor)]
    for one in results[: len(names)]:
        storage = session.memory.storage_of(one.tensor)
        for operand in session.operands:
            if operand.storage is storage and operand.name not in session.names:
                operand.name = one.name
                axes = axes_of(one.name, one.tensor.dim())
                operand.axes = match_axes(operand.view, view_of(one.tensor), axes)
    faults = session.run.faults
    if session.sampled:  # what any element holds in the end is not known
        session.sightings = [(k, s) for k, s in session.sightings if s.kind in KINDS]
        results = []
    for kernel in dict.fromkeys(k for k, _ in session.sightings):
        sightings = [s for k, s in session.sightings if k == kernel]
        faults += gather(kernel, [s for s in sightings if s.elements is None])
        for one in results:
            faults += _find_stored_twice(session, kernel, sightings, one)
            faults += _find_undefined_stored(session, kernel, sightings, one)
    for one in results:
        faults += _find_never_stored(session, one)


def _fault(
    kind: str, kernel: str, name: str, hit: np.ndarray, sightings: list[Violation], **words: Any
) -> Fault:
    """The fault of the marked elements of a result; `words` override its defaults."""
    facts = {"access": "store", "operand": name, "axis": _ragged_axis(name, hit), **words}
    facts["where"] = facts["where"] or NOWHERE
    programs = count_programs(sightings) if sightings else 0
    return Fault(kind=kind, kernel=kernel, programs=programs, lanes=int(hit.sum()), **facts)


def _mark_elements(session: Session, tensor: torch.Tensor, elements: np.ndarray) -> np.ndarray:
    """Which elements of the tensor begin at these byte offsets of its storage."""
    storage = session.memory.storage_of(tensor)
    flags = np.zeros(storage.data.size, np.bool_)
    flags[elements] = True
    return storage.elements_of(flags, view_of(tensor))[..., 0]


def _find_stored_twice(
    session: Session, kernel: str, sightings: list[Violation], result: Result
) -> Iterator[Fault]:
    name, tensor = result
    storage = session.memory.storage_of(tensor)
    lines: dict[Where | None, list[Violation]] = {}
    for e in sightings:
        if e.kind == "stored_twice" and e.storage is storage:
            lines.setdefault(e.where, []).append(e)
    for where, group in lines.items():
        hit = _mark_elements(session, tensor, np.concatenate([e.elements for e in group]))
        if hit.any():
            got = f"{span(hit)} of {name} stored more than once"
            words = {"got": got, "expected": "one store an element", "where": where}
            yield _fault("stored_twice", kernel, name, hit, group, **words)


def _find_undefined_stored(
    session: Session, kernel: str, sightings: list[Violation], result: Result
) -> Iterator[Fault]:
    """One fault for each origin of the undefined lanes that the result still holds."""
    name, tensor = result
    still = session.memory.undefined_in(tensor)
    if still is None:
        return
    mine, elements_with = _lanes_behind(session, sightings, tensor)
    for i, origin in context.origins_by_bit(session).items():
        hit = elements_with(1 << i) & still
        if not hit.any():
            continue
        operand, axis = origin.operand, None
        source = origin.what.format(operand.shown if operand else "memory")
        if operand is not None and origin.axis is not None:
            axis = operand.axes[origin.axis]
        yield _fault(
            origin.kind,
            kernel,
            name,
            hit,
            mine,
            access=mine[0].access if operand is not None and operand.name == name else "load",
            operand=operand.name if operand is not None else name,
            axis=axis,
            where=origin.where or mine[0].where,
            got=f"{span(hit)} of {name} {'depends' if hit.sum() == 1 else 'depend'} on {source}",
            expected="a hint that holds" if origin.kind == "false_hint" else "defined lanes only",
            follows="out_of_bounds" if origin.what == STRAY else "",
        )


def span(hit: np.ndarray) -> str:
    """The bounding ranges of the marked elements: "rows 0..3, columns 16..31"."""
    at = [np.flatnonzero(_hit_along(hit, axis)).tolist() for axis in range(hit.ndim)]
    return ", ".join(label_range(i, hit.ndim, x[0], x[-1]) for i, x in enumerate(at))


def _lanes_behind(
    session: Session, sightings: list[Violation], tensor: torch.Tensor
) -> tuple[list[Violation], Callable[[int], np.ndarray]]:
    """The sightings that stored undefined lanes into a tensor or into what torch made it from.

    The function gives, for poison bits, the elements of the tensor that such lanes hit; of a source
    of another shape all elements count as hit.
    """
    found: list[tuple[torch.Tensor, list[Violation]]] = []
    for part in _lineage(session, tensor):
        storage = session.memory.storage_of(part)
        mine = [e for e in sightings if e.kind == "undefined_stored" and e.storage is storage]
        if mine:
            found.append((part, mine))

    def elements_with(bits: int) -> np.ndarray:
        hit = np.zeros(tuple(tensor.shape), np.bool_)
        for part, mine in found:
            wanted = np.concatenate([e.bits for e in mine]) & bits != 0
            elements = np.concatenate([e.elements for e in mine])[wanted]
            alike = part.shape == tensor.shape
            hit |= _mark_elements(session, part, elements) if alike else elements.size > 0
        return hit

    return [e for _, mine in found for e in mine], elements_with


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


def _find_never_stored(session: Session, result: Result) -> Iterator[Fault]:
    name, tensor = result
    missing = session.memory.undefined_in(tensor)
    if missing is None:
        return
    _, elements_with = _lanes_behind(session, [e for _, e in session.sightings], tensor)
    missing &= ~elements_with(0xFF)
    if missing.any():
        last = session.run.launches[-1] if session.run.launches else None
        kernel, where = (last.kernel, last.where) if last is not None else ("", NOWHERE)
        got = f"{span(missing)} of {name} never stored"
        words = {"got": got, "expected": f"every element of {name} stored", "where": where}
        yield _fault("never_stored", kernel, name, missing, [], **words)


def _ragged_axis(name: str, hit: np.ndarray) -> str | None:
    """The axis along which only a part is hit while the other is hit wholly."""
    names = enumerate(axes_of(name, hit.ndim))
    partial = [name for axis, name in names if not _hit_along(hit, axis).all()]
    return partial[0] if len(partial) == 1 else None


def _hit_along(hit: np.ndarray, axis: int) -> np.ndarray:
    """Which indices along an axis have a marked element."""
    return np.asarray(hit.any(axis=tuple(i for i in range(hit.ndim) if i != axis)))

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
    """A tensor that a call returned, and its name in messages."""

    name: str
    tensor: torch.Tensor


def conclude(session: Session, result: Any, names: Sequence[str] = ("c",)) -> None:
    """Name the results and turn the violations that concern them, or no memory, into faults."""
    values = result if isinstance(result, tuple | list) else [result]
    named = zip_longest(values, names, fillvalue=names[-1])
    results = [Result(name, x) for x, name in named if isinstance(x, torch.Tensor)]
    for output in results[: len(names)]:
        storage = session.memory.storage_of(output.tensor)
        for operand in session.operands:
            if operand.storage is storage and operand.name not in session.names:
                operand.name = output.name
                axes = axes_of(output.name, output.tensor.dim())
                operand.axes = match_axes(operand.view, view_of(output.tensor), axes)
    faults = session.run.faults
    if session.sampled:  # the final value of an element is unknown
        session.violations = [(k, s) for k, s in session.violations if s.kind in KINDS]
        results = []
    for kernel in dict.fromkeys(k for k, _ in session.violations):
        violations = [s for k, s in session.violations if k == kernel]
        faults += gather(kernel, [s for s in violations if s.elements is None])
        for output in results:
            faults += _find_stored_twice(session, kernel, violations, output)
            faults += _find_undefined_stored(session, kernel, violations, output)
    for output in results:
        faults += _find_never_stored(session, output)


def _fault(
    kind: str, kernel: str, name: str, hit: np.ndarray, violations: list[Violation], **fields: Any
) -> Fault:
    """Return the fault of the marked elements of a result; `fields` override its defaults."""
    facts = {"access": "store", "operand": name, "axis": _ragged_axis(name, hit), **fields}
    facts["where"] = facts["where"] or NOWHERE
    programs = count_programs(violations) if violations else 0
    return Fault(kind=kind, kernel=kernel, programs=programs, lanes=int(hit.sum()), **facts)


def _mark_elements(session: Session, tensor: torch.Tensor, elements: np.ndarray) -> np.ndarray:
    """Return a mask of the tensor's elements that begin at these byte offsets of its storage."""
    storage = session.memory.storage_of(tensor)
    flags = np.zeros(storage.data.size, np.bool_)
    flags[elements] = True
    return storage.elements_of(flags, view_of(tensor))[..., 0]


def _find_stored_twice(
    session: Session, kernel: str, violations: list[Violation], result: Result
) -> Iterator[Fault]:
    name, tensor = result
    storage = session.memory.storage_of(tensor)
    groups: dict[Where | None, list[Violation]] = {}
    for e in violations:
        if e.kind == "stored_twice" and e.storage is storage:
            groups.setdefault(e.where, []).append(e)
    for where, group in groups.items():
        hit = _mark_elements(session, tensor, np.concatenate([e.elements for e in group]))
        if hit.any():
            got = f"{span(hit)} of {name} stored more than once"
            fields = {"got": got, "expected": "one store an element", "where": where}
            yield _fault("stored_twice", kernel, name, hit, group, **fields)


def _find_undefined_stored(
    session: Session, kernel: str, violations: list[Violation], result: Result
) -> Iterator[Fault]:
    """Yield a fault for each origin of the undefined lanes that the result still holds."""
    name, tensor = result
    still = session.memory.undefined_in(tensor)
    if still is None:
        return
    stores, elements_with = _lanes_behind(session, violations, tensor)
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
            stores,
            access=stores[0].access if operand is not None and operand.name == name else "load",
            operand=operand.name if operand is not None else name,
            axis=axis,
            where=origin.where or stores[0].where,
            got=f"{span(hit)} of {name} {'depends' if hit.sum() == 1 else 'depend'} on {source}",
            expected="a hint that holds" if origin.kind == "false_hint" else "defined lanes only",
            follows="out_of_bounds" if origin.what == STRAY else "",
        )


def span(hit: np.ndarray) -> str:
    """Format the bounding ranges of the marked elements: "rows 0..3, columns 16..31"."""
    at = [np.flatnonzero(_hit_along(hit, axis)).tolist() for axis in range(hit.ndim)]
    return ", ".join(label_range(i, hit.ndim, x[0], x[-1]) for i, x in enumerate(at))


def _lanes_behind(
    session: Session, violations: list[Violation], tensor: torch.Tensor
) -> tuple[list[Violation], Callable[[int], np.ndarray]]:
    """Return the violations that stored undefined lanes into a tensor or into its sources.

    The function returns, for poison bits, the elements of the tensor that such lanes hit; for a
    source of another shape all elements count as hit.
    """
    parts: list[tuple[torch.Tensor, list[Violation]]] = []
    for part in _lineage(session, tensor):
        storage = session.memory.storage_of(part)
        stores = [e for e in violations if e.kind == "undefined_stored" and e.storage is storage]
        if stores:
            parts.append((part, stores))

    def elements_with(bits: int) -> np.ndarray:
        hit = np.zeros(tuple(tensor.shape), np.bool_)
        for part, stores in parts:
            selected = np.concatenate([e.bits for e in stores]) & bits != 0
            elements = np.concatenate([e.elements for e in stores])[selected]
            alike = part.shape == tensor.shape
            hit |= _mark_elements(session, part, elements) if alike else elements.size > 0
        return hit

    return [e for _, stores in parts for e in stores], elements_with


def _lineage(session: Session, tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return a tensor, then the tensors that its undefined elements were carried over from."""
    lineage, seen, i = [tensor], set(), 0
    while i < len(lineage):
        storage = session.memory.storage_of(lineage[i])
        i += 1
        if storage not in seen:
            seen.add(storage)
            lineage += storage.sources
    return lineage


def _find_never_stored(session: Session, result: Result) -> Iterator[Fault]:
    name, tensor = result
    missing = session.memory.undefined_in(tensor)
    if missing is None:
        return
    _, elements_with = _lanes_behind(session, [e for _, e in session.violations], tensor)
    missing &= ~elements_with(0xFF)
    if missing.any():
        last = session.run.launches[-1] if session.run.launches else None
        kernel, where = (last.kernel, last.where) if last is not None else ("", NOWHERE)
        got = f"{span(missing)} of {name} never stored"
        fields = {"got": got, "expected": f"every element of {name} stored", "where": where}
        yield _fault("never_stored", kernel, name, missing, [], **fields)


def _ragged_axis(name: str, hit: np.ndarray) -> str | None:
    """Return the only axis that is hit in part, or None if there is not exactly one."""
    names = enumerate(axes_of(name, hit.ndim))
    partial = [name for axis, name in names if not _hit_along(hit, axis).all()]
    return partial[0] if len(partial) == 1 else None


def _hit_along(hit: np.ndarray, axis: int) -> np.ndarray:
    """Return a mask of the indices along an axis that have a marked element."""
    return np.asarray(hit.any(axis=tuple(i for i in range(hit.ndim) if i != axis)))

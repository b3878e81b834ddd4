"""One call of a wrapper on the tile simulator: `run` returns all observations, `simulate` c."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from gemmproof.reference.fake_cuda import explain_lack, fake_gpu
from gemmproof.reference.gpus import DEFAULT, GPUS
from gemmproof.reference.simulation import NOWHERE, Fault, Run, Unsupported, Where
from gemmproof.reference.simulator.access_checks import (
    STRAY,
    Violation,
    count_programs,
    gather,
    label_range,
)
from gemmproof.reference.simulator.element_terms import ElementTerms
from gemmproof.reference.simulator.host_work import PythonReads
from gemmproof.reference.simulator.launch import intercept_launches
from gemmproof.reference.simulator.memory import (
    element_dtype,
    iter_dense,
    uninitialised_value,
    view_of,
)
from gemmproof.reference.simulator.scheduler import KINDS, HostReads, perform
from gemmproof.reference.simulator.session import (
    Enough,
    Session,
    axes_of,
    match_axes,
    origins_by_bit,
)

_NEW = ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "resize_")
_PLAIN = torch._C._disabled_torch_dispatch_impl  # of tensors that torch itself dispatches
EMPTY = {f"aten::{name}" for name in _NEW}


class _Allocations(TorchDispatchMode):
    """Fills memory from torch.empty with a pattern; it is undefined until it is written."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler (2 s) to switch it off

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__torch_dispatch__ is not _PLAIN for kind in types):
            return NotImplemented  # a jagged tensor: its operators on dense ones come back here
        kwargs = kwargs or {}
        schema = func._schema
        if self.session.sampled:
            result = perform(self.session, func, args, kwargs)
            for tensor in iter_dense(result):
                self._claim(tensor)
            return result
        doubtful = None if schema.name in EMPTY else self._trace_undefined(func, args, kwargs)
        self.session.writers.begin_operator(args, kwargs)
        result = func(*args, **kwargs)
        for tensor in iter_dense(result):
            self._claim(tensor)
        self.session.writers.note(func, args, kwargs, result)
        if self.session.terms is not None:
            find = self.session.memory.storage_of
            self.session.terms.note(find, func, args, kwargs, result)
        if doubtful is not None:
            self._inherit(result, *doubtful)
        if schema.name in EMPTY and isinstance(result, torch.Tensor):
            self._fill_uninitialised(result)
        elif schema.is_mutable:
            given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
            written = (a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write)
            for tensor in iter_dense([given.get(name) for name in written]):
                self._define(tensor)
        return result

    def _trace_undefined(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, list[Any]] | None:
        """Return a torch operator's result with NaN for undefined elements, and those inputs.

        NaN propagates through copies, casts, sums and products as an undefined value would.
        Returns None if every operand is defined, or if the operator writes or returns a view.
        """
        undefined = self.session.memory.undefined_in
        sources = [x for x in iter_dense((args, kwargs)) if undefined(x) is not None]
        schema = func._schema
        if not sources or schema.is_mutable or any(r.alias_info for r in schema.returns):
            return None

        def mark(x: Any) -> Any:
            if not isinstance(x, torch.Tensor) or not x.is_floating_point():
                return x
            if x.layout != torch.strided:
                return x
            flags = undefined(x)
            if flags is None:
                return x
            wide = torch.ones(x.shape, dtype=torch.float32)
            wide[torch.from_numpy(np.ascontiguousarray(flags))] = torch.nan
            return wide.to(x.dtype)

        return func(*tree_map(mark, args), **tree_map(mark, kwargs)), sources

    def _inherit(self, result: Any, doubt: Any, sources: list[torch.Tensor]) -> None:
        """Mark the elements of a result that depend on undefined ones, and record their sources."""
        for tensor, mark in zip(iter_dense(result), iter_dense(doubt), strict=True):
            storage = self.session.memory.storage_of(tensor)
            if not tensor.is_floating_point() or not tensor.numel():
                continue
            flags = torch.isnan(mark).numpy()
            if storage.undefined is None:
                storage.undefined = np.zeros(storage.data.size, np.bool_)
            storage.elements_of(storage.undefined, view_of(tensor))[flags] = True
            storage.sources += sources

    def _claim(self, tensor: torch.Tensor) -> None:
        """Mark memory that is first seen while the wrapper runs as allocated by the wrapper."""
        storage = self.session.memory.storage_of(tensor)
        if not storage.views:
            storage.private = True

    def _fill_uninitialised(self, tensor: torch.Tensor) -> None:
        storage = self.session.memory.storage_of(tensor)
        storage.undefined = np.ones(storage.data.size, np.bool_)
        try:
            dtype = element_dtype(tensor)
        except TypeError:  # a type that no kernel accepts
            return
        pattern = uninitialised_value(dtype, self.session.fill)
        storage.typed(pattern.dtype)[...] = pattern

    def _define(self, tensor: torch.Tensor) -> None:
        if tensor.numel():
            storage = self.session.memory.at(tensor.untyped_storage().data_ptr())
            if storage is not None and storage.undefined is not None:
                storage.elements_of(storage.undefined, view_of(tensor))[...] = False


def _undefine(session: Session, tensor: torch.Tensor) -> None:
    """Fill a tensor's elements, and nothing around them, as uninitialised memory."""
    storage, view = session.memory.storage_of(tensor), view_of(tensor)
    storage.undefined = np.zeros(storage.data.size, np.bool_)
    storage.elements_of(storage.undefined, view)[...] = True
    pattern = uninitialised_value(element_dtype(tensor), session.fill)
    storage.elements_of(storage.data, view)[...] = np.frombuffer(pattern.tobytes(), np.uint8)


def run(
    function: Callable[..., Any],
    *tensors: torch.Tensor,
    target: str | None = None,
    config: int = 0,
    fill: str = "nan",
    operands: dict[str, torch.Tensor] | None = None,
    trace: list[Any] | None = None,
    kwargs: Mapping[str, object] | None = None,
    seconds: float = 60.0,
    tries: bool = False,
    labels: dict[str, str] | None = None,
    written: Sequence[str] = (),
    results: Sequence[str] = ("c",),
    axes: dict[str, tuple[str, ...]] | None = None,
    sampled: bool = False,
    terms: ElementTerms | None = None,
) -> Run:
    """Call `function(*tensors, **kwargs)` with its Triton launches on the tile simulator.

    The tensors are on the CPU; the wrapper sees CUDA tensors. `operands` gives them the names that
    faults use (default: a, b, ...), `labels` their names in messages, `axes` the names of the
    dimensions of those other than a and b (default: numbers). `config` picks the autotune
    configuration. `fill` is the content of undefined memory: "nan", "ones", "zero" or "large";
    `seconds` are allowed, counted as in work.py. The operands that are to be `written` are
    undefined until then; `results` are the names of the function's results.
    With `tries` a kernel that has several configurations makes a trial run before it is launched,
    as when it is tuned. `sampled`: some programs of each launch run, over memory that is never
    committed (scheduler.py); the result then has a shape and no elements, and is None if the call
    ended before. `terms` collects the terms of all elements. Raises what the wrapper raises, and
    KernelError, Unsupported, LimitExceeded or Exhausted for the kernel.
    """
    if operands is None:
        operands = dict(zip("abdefghij", tensors, strict=False))
    session = Session(operands, fill, target, config, seconds, trace, tries, sampled)
    session.labels, session.axes = labels or {}, axes or {}
    if terms is not None:
        session.terms = terms
        session.follow_terms()
    reads = HostReads(session) if sampled else PythonReads(session.writers)
    result = None
    try:
        for name in () if sampled else written:
            _undefine(session, operands[name])
        with fake_gpu(target), intercept_launches(session), _Allocations(session), reads:
            result = function(*tensors, **(kwargs or {}))
    except Enough:
        pass
    except Exception as error:
        # it may depend on values that programs which did not run had to store
        if session.partial and not isinstance(error, Unsupported):
            return _end(session, None, results)
        lack = explain_lack(error, GPUS[target or DEFAULT])
        if lack is None:
            raise
        raise lack from error
    return _end(session, result, results)


def _end(session: Session, result: Any, results: Sequence[str]) -> Run:
    session.run.result = result
    conclude(session, result, results)
    return session.run


def simulate(
    function: Callable[..., Any], *tensors: torch.Tensor, target: str | None = None
) -> Any:
    """Return `function(*tensors)`, with its Triton launches on the tile simulator.

    Accesses out of bounds and undefined lanes do not stop the call; `gemmproof.check` reports them.

    Args:
        function: A wrapper that launches Triton kernels.
        *tensors: Its arguments, on the CPU.
        target: The GPU whose dot products are predicted, such as "sm_90"; None for exact IEEE
            chains.

    Raises:
        SimulatorError: An operation is not supported. Exceptions of the wrapper pass through.
    """
    return run(function, *tensors, target=target).result


# -- violations as faults --------------------------------------------------------------------------
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
    work = [session.writers.list_work(*output) for output in results]
    if not session.sampled and None not in work:
        session.run.host_work = [each for part in work for each in part or ()]
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
    for i, origin in origins_by_bit(session).items():
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

"""The formula of a recorded wrapper, read from its kernels in a worker."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gemmproof.record_calls.declaration import (
    RecordedDeclaration,
    Undeclared,
    add_formula,
    declare_calls,
)
from gemmproof.record_calls.record import FUNCTION, RecordedCall
from gemmproof.target import Target, TargetError, find_function, load_module
from gemmproof.worker.protocol import Ready, WorkerContext

MOST_TERMS = 1 << 17  # products of a call that is read: a few seconds


@dataclass(frozen=True, slots=True)
class RecordedWrapper:
    """The calls of one wrapper, and the folders that its imports search."""

    calls: tuple[RecordedCall, ...]
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        """The wrapper's name."""
        return self.calls[0].function


def read_formula(request: RecordedWrapper, context: WorkerContext) -> RecordedDeclaration:
    """Return the declaration with the formula of the kernels, or why there is none."""
    context.emit(Ready())
    declared = declare_calls(request.calls)
    first = request.calls[0]
    if declared.calling is None:
        return declared
    if first.kind != FUNCTION:
        return replace(declared, reason="a formula is read of functions only")
    sys.path[:] = dict.fromkeys([*request.path, *sys.path])
    try:
        return _read(declared, request.calls)
    except (TargetError, ValueError) as error:
        return replace(declared, reason=str(error))


def _read(declared: RecordedDeclaration, calls: Sequence[RecordedCall]) -> RecordedDeclaration:
    """Return the declaration with a formula. Raises an error, in one line, if none is read."""
    from gemmproof.draft.declaration import declare
    from gemmproof.draft.polynomials import Unreadable
    from gemmproof.draft.read_wrapper import read_wrapper
    from gemmproof.draft.search import CallSearch

    target = Target(declared.file, declared.function, is_file=True)
    function = find_function(target, load_module(target))
    source = read_wrapper(function)
    search, reasons = CallSearch(source), []
    for call in _list_candidates(declared, calls):
        if any(n not in source.parameters for n in (*call.tensors, *call.values)):
            raise Undeclared("its parameters are not those of its source")
        try:
            drafted = search.try_call(call)
            if drafted is None:
                continue
            own = declare(source, drafted, declared.function)
            operands = [_write_seen(x, call.values, calls) for x in own.calling.operands]
            calling = replace(own.calling, operands=tuple(operands))
            given = [n for n in source.parameters if n in call.tensors or n in call.values]
            positions = list(source.parameters) if calling.call else given
            return add_formula(declared, calls, calling, own.dtype, own.batched, positions)
        except (Undeclared, Unreadable) as error:
            reasons.append(str(error))
    raise Undeclared(next(iter([*reasons, *search.refused]), "no call was understood"))


def _write_seen(operand: str, values: Mapping[str, Any], calls: Sequence[RecordedCall]) -> str:
    """Return the operand of a number with the values that were recorded of it."""
    name = operand.partition("=")[0]
    if not isinstance(values.get(name), float):
        return operand
    seen = (x.text for call in calls for x in call.arguments if x.name == name)
    return f"{name}={'|'.join(dict.fromkeys(seen))}"


def _list_candidates(declared: RecordedDeclaration, calls: Sequence[RecordedCall]) -> Iterator[Any]:
    """Yield calls to read the formula of, at sizes as recorded, and where they vary at others."""
    from gemmproof.draft.candidates import (
        EXPERTS,
        SIZES,
        CandidateCall,
        TensorDraft,
        evaluate_size,
    )
    from gemmproof.draft.search import COLUMNS, ROWS
    from gemmproof.record_calls.declaration import cover
    from gemmproof.record_calls.sizes import SizeNames, choose_factors, express_shapes, list_vectors

    covered = cover(calls)
    whole = max(covered.calls, key=_rank)
    factors = choose_factors(whole, covered.calls)
    if not all(factors):
        raise Undeclared("it has no two matrices")
    vectors, ranks = list_vectors(covered.calls, covered.ranks), covered.ranks
    names = SizeNames(frozenset(x.name for x in whole.arguments))
    sides = express_shapes(names, factors, vectors, ranks)
    named = {**names.axes, **names.further}
    tensors = {
        n: TensorDraft(x.format, tuple(int(s) if s.isdecimal() else s for s in sides[n]), x.written)
        for n, x in whole.tensors.items()
    }
    at = covered.calls.index(whole)
    seen = {n: vector[at] or 1 for n, vector in named.items()}
    constant = {n: seen[n] for n, vector in named.items() if len({*vector} - {None}) == 1}
    values = _read_values(whole, vectors, named, at)
    small = [{**sizes, **constant} for sizes in SIZES]
    for sizes in (*small, seen):
        usual = {"batch": 2, "experts": EXPERTS}
        full = {**usual, **{n: seen[n] for n in names.further}, **sizes}
        points = min(full.get("M", 1), len(ROWS)) * min(full.get("N", 1), len(COLUMNS)) * full["K"]
        parts = {side for x in sides.values() for side in x if "//" in side}
        # that an index has a step is seen only if it makes one
        if points <= MOST_TERMS and all(evaluate_size(side, full) > 1 for side in parts):
            yield CandidateCall(tensors, values, full, factors)


def _rank(call: RecordedCall) -> tuple[int, int]:
    """Return how many tensors a call has, and how many elements."""
    return len(call.tensors), sum(math.prod(x.shape) for x in call.tensors.values())


def _read_values(
    call: RecordedCall,
    vectors: Mapping[tuple[str, int], Sequence[int | None]],
    named: Mapping[str, Sequence[int | None]],
    at: int,
) -> dict[str, Any]:
    """Return the values of the parameters that are no tensors; a size as the name of it."""
    import torch

    from gemmproof.draft.candidates import SCALARS

    values: dict[str, Any] = {}
    for x in call.arguments:
        if x.tensor is not None or x.other or x.is_default:
            continue
        if x.text.startswith("torch."):
            values[x.name] = getattr(torch, x.text.removeprefix("torch."))
            continue
        value = ast.literal_eval(x.text)
        if isinstance(value, float):  # one that a formula shows apart from others
            value = next(n for n in SCALARS if n not in values.values())
        axis = x.name.upper() if x.name.upper() in named else ""
        is_size = axis and type(value) is int and named[axis][at] == value
        values[x.name] = axis if is_size else value
    return values

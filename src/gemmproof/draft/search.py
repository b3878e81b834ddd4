"""Find a call that a wrapper takes, and read the formula of its result from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from gemmproof.draft.candidates import (
    AXES,
    EXPERTS,
    ROOM,
    SIZES,
    CandidateCall,
    Candidates,
    draw_tensor,
)
from gemmproof.draft.formula import FormulaFunction, Reader, Sum, list_elements, list_products
from gemmproof.draft.polynomials import Unreadable
from gemmproof.draft.read_wrapper import WrapperSource
from gemmproof.reference.provenance import words_of
from gemmproof.reference.simulator.call import run
from gemmproof.reference.simulator.element_terms import ElementTerms, TooManyTerms
from gemmproof.target import line_of

MOST_CALLS = 48  # that are tried
MOST_UNREADABLE = 4  # calls that the wrapper took, but whose results have no formula
MOST_CHANGED = 14  # calls that differ in tensors besides the factors
# the coordinates of a result that are read: consecutive ones, and those around groups of 32 to 128
ROWS = (0, 1, 2, 3, 4)
COLUMNS = (*range(20), 31, 32, 33, 63, 64, 65, 127, 128, 129, 143)
SECONDS = 10.0  # counted, of one call


@dataclass(slots=True)
class DraftedCall:
    """A call that the wrapper took, its formula, and what it was read from."""

    call: CandidateCall
    formula: Sum
    axes: tuple[str, ...]
    reader: Reader
    shapes: dict[str, tuple[int, ...]]
    adds_atomically: bool = False


@dataclass(slots=True)
class AcceptedCall:
    """A call that the wrapper took, without a formula.

    `extents`: how far the kernels read or write each tensor, by dimension; `indexing`: tensors
    whose elements are indices of others.
    """

    call: CandidateCall
    extents: dict[str, tuple[int, ...]]
    indexing: set[str]
    adds_atomically: bool


@dataclass(slots=True)
class CallSearch:
    """The search for a call of one wrapper.

    `advance` is called before each call. `refused` and `unreadable` count the reasons of those that
    failed, `refusal` is the last one. `extents` is how far the last accepted call read each tensor.
    `is_plain`: a call of a[M, K] and b[K, N] alone returned c[M, N].
    """

    source: WrapperSource
    advance: Callable[[], None] = lambda: None
    refused: dict[str, int] = field(default_factory=dict)
    unreadable: dict[str, int] = field(default_factory=dict)
    tried: int = 0
    is_plain: bool = False
    accepted: AcceptedCall | None = None
    refusal: str = ""
    extents: dict[str, tuple[int, ...]] = field(default_factory=dict)
    candidates: Candidates = field(init=False)

    def __post_init__(self) -> None:
        self.candidates = Candidates(self.source)

    def find(self) -> DraftedCall | None:
        """Return the first call whose result has a formula, None if none of MOST_CALLS has."""
        candidates = self.candidates
        for first in candidates.list_calls():
            waiting, seen = [first], set[str]()
            while waiting and len(seen) < MOST_CHANGED:
                if self.tried == MOST_CALLS or sum(self.unreadable.values()) == MOST_UNREADABLE:
                    return None
                call = waiting.pop(0)
                if repr(call.tensors) in seen:
                    continue
                seen.add(repr(call.tensors))
                self.tried += 1
                self.advance()
                before = sum(self.refused.values())
                try:
                    drafted = self.try_call(call)
                except Unreadable as error:
                    self.unreadable[str(error)] = self.unreadable.get(str(error), 0) + 1
                    repacked = candidates.repack(call, self.extents)
                    waiting = repacked + candidates.reshape(call, error.tensor) + waiting
                    continue
                if drafted is not None:
                    return self._enlarge(drafted)
                if sum(self.refused.values()) > before:
                    others = candidates.reformat(call, self.refusal)
                    waiting = [x for x in others if x.is_turned] + waiting
                    waiting += [x for x in others if not x.is_turned] if len(seen) == 1 else []
        return None

    def _enlarge(self, drafted: DraftedCall) -> DraftedCall | None:
        """Return the same at larger sizes if an index is constant that groups of K may change.

        None if no formula is read there.
        """
        larger = SIZES[2] | {"experts": EXPERTS}
        may_grow = drafted.adds_atomically or _has_constant(drafted)
        if drafted.call.sizes["K"] >= larger["K"] or not may_grow:
            return drafted
        self.accepted = None  # how far tensors are read at these sizes is not known
        waiting, tried, last = [replace(drafted.call, sizes=larger)], 0, ""
        while waiting and tried < MOST_CHANGED:
            call, tried = waiting.pop(0), tried + 1
            self.advance()
            try:
                if again := self.try_call(call):
                    return again
            except Unreadable as error:
                self.unreadable[str(error)] = self.unreadable.get(str(error), 0) + 1
                if error.tensor != last:  # the tensor that was reshaped is understood
                    waiting, last = self.candidates.reshape(call, error.tensor), error.tensor
        return None

    def try_call(self, call: CandidateCall) -> DraftedCall | None:
        """Return a call's result with its formula, None if the call is refused."""
        generator = np.random.default_rng(0)
        tensors = {n: draw_tensor(generator, n, t, call.sizes) for n, t in call.tensors.items()}
        values = {
            n: call.sizes[x] if isinstance(x, str) and x in call.sizes else x
            for n, x in call.values.items()
        }
        terms = ElementTerms()

        def launch(*given: torch.Tensor) -> Any:
            named = {**values, **dict(zip(tensors, given, strict=True))}
            by_position, by_name = self.source.arrange(named)
            return self.source.target(*by_position, **by_name)

        try:
            observed = run(
                launch, *tensors.values(), operands=tensors, terms=terms, seconds=SECONDS
            )
        except TooManyTerms as error:
            self.accepted = self.accepted or _accept(call, terms)
            raise Unreadable(str(error)) from None
        except Exception as error:
            reason = f"{type(error).__name__}: {words_of(error)}"
            if not words_of(error) and (line := line_of(error)):
                reason = f"{type(error).__name__} at {line}"
            self.refused[reason] = self.refused.get(reason, 0) + 1
            self.refusal = reason
            return None
        result = observed.result
        result = result[0] if isinstance(result, tuple | list) and result else result
        written = [n for n, t in call.tensors.items() if t.written and terms.has_stored(tensors[n])]
        if result is None and written:
            result = tensors[written[0]]
        is_operand = isinstance(result, torch.Tensor) and any(result is tensors[n] for n in written)
        tensors_drafted = {
            n: replace(t, written=t.written and is_operand and result is tensors[n])
            for n, t in call.tensors.items()
        }
        call = replace(call, tensors=tensors_drafted)
        self.is_plain |= _is_product(call, result)
        accepted = _accept(call, terms)
        self.extents = accepted.extents
        is_partly_read = bool(self.candidates.repack(call, self.extents))
        if self.accepted is None and len(observed.launches) > 0 and not is_partly_read:
            self.accepted = accepted
        if not isinstance(result, torch.Tensor) or not 1 <= result.dim() <= 3:
            raise Unreadable("a result that is no tensor of one to three dimensions")
        if not terms.has_stored(result):
            raise Unreadable("a result that no kernel stored")
        numbers = terms.of_tensor(terms.storage_of(result), result)
        integers = {
            n: t.numpy() for n, t in tensors.items() if t.dtype in (torch.int32, torch.int64)
        }
        reader = Reader(terms, integers)
        axes = AXES[numbers.ndim]
        chosen = (range(numbers.shape[0]), ROWS, COLUMNS)[-numbers.ndim :]
        at = [[i for i in w if i < n] for w, n in zip(chosen, numbers.shape, strict=True)]
        formula = reader.read(numbers[np.ix_(*at)], axes, at)
        if not any(p.over for p in list_products(formula)):
            raise Unreadable("a result without a product of matrices")
        reader.sizes |= dict(zip(axes, numbers.shape, strict=True))
        if any(
            call.tensors[n].format == "int32" and not is_unpacked(formula, n) for n in call.factors
        ):
            raise Unreadable("weights of int32 that are not unpacked")
        shapes = {n: tuple(t.shape) for n, t in tensors.items()}
        return DraftedCall(call, formula, axes, reader, shapes, terms.adds_atomically)


def _accept(call: CandidateCall, terms: ElementTerms) -> AcceptedCall:
    """Return a call without a formula, with what its terms tell."""
    extents: dict[str, tuple[int, ...]] = {}
    indexing: set[str] = set()
    for term in terms.terms:
        if term.kind == "element":
            name, index, through = term.detail
            indexing.update(through)
            if index is not None:
                known = extents.get(name, (0,) * len(index))
                extents[name] = tuple(max(x, i + 1) for x, i in zip(known, index, strict=True))
    return AcceptedCall(call, extents, indexing, terms.adds_atomically)


def _is_product(call: CandidateCall, result: Any) -> bool:
    """Return whether a call of a[M, K] and b[K, N], and of nothing else, returned c[M, N]."""
    sides = [t.sides for t in call.tensors.values()]
    if sides != [("M", "K"), ("K", "N")] or call.values or not isinstance(result, torch.Tensor):
        return False
    return tuple(result.shape) == (call.sizes["M"], call.sizes["N"])


def _has_constant(drafted: DraftedCall) -> bool:
    """Return whether a dimension of unknown size is indexed by a constant only."""
    return any(
        function.is_constant and drafted.shapes[element.tensor][dim] == ROOM
        for element in list_elements(drafted.formula)
        for dim, function in enumerate(element.index)
    )


def is_unpacked(part: Any, name: str) -> bool:
    """Return whether a formula takes bits of a tensor's elements."""
    if isinstance(part, FormulaFunction):
        own = part.name in ("arith.shrsi", "arith.shrui", "arith.andi")
        return (own and name in repr(part)) or any(is_unpacked(x, name) for x in part.args)
    if isinstance(part, Sum):
        return any(is_unpacked(f, name) for p in part.products for f in p.factors)
    return False

"""Terms of elements: what each element of a result is computed from, by which operations.

While a formula is read, every lane carries the number of a term beside its value: a term is an
element of a caller's tensor, a number, or an operation on terms. The values decide branches, masks
and addresses as they always do, so that a term describes one call at its sizes and data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from gemmproof.reference.simulation import Unsupported
from gemmproof.reference.simulator.memory import Storage, StridedView, view_of
from gemmproof.reference.ttir import TORCH

MOST_TERMS = 1 << 20
NO_TERM = 0  # of a lane that depends on no tensor: its value is its term

# Operators of torch that move elements; each is run on the numbers of terms.
_TORCH_MOVES = frozenset({
    *("clone", "cat", "stack", "index", "index_select", "gather", "constant_pad_nd", "repeat"),
    *("repeat_interleave", "flip", "roll", "embedding", "_to_copy", "contiguous", "take_along_dim"),
})  # fmt: skip
# Operators of torch that a kernel's operation names too.
_TORCH_SAME = {
    "add": "arith.addf", "sub": "arith.subf", "mul": "arith.mulf", "div": "arith.divf",
    "neg": "arith.negf", "reciprocal": "reciprocal", "exp": "math.exp", "sigmoid": "sigmoid",
    "tanh": "math.tanh", "relu": "relu", "sqrt": "math.sqrt",
    "bitwise_right_shift": "arith.shrsi", "__rshift__": "arith.shrsi",
    "bitwise_and": "arith.andi", "__and__": "arith.andi", "maximum": "arith.maximumf",
    "minimum": "arith.minimumf",
}  # fmt: skip
_WITHOUT_TERMS = ("empty", "new_empty", "resize", "set", "record_stream")
_TORCH_FILLS = ("zeros", "zeros_like", "new_zeros", "zero", "fill", "full", "ones", "full_like")


class Term(NamedTuple):
    """A term: `kind` is "element", "number", "vector", "dot", or the name of an operation.

    `detail` is an element's (tensor, index, tensors that its address depends on), a number's value,
    or what an operation needs besides `args`, the numbers of other terms.
    """

    kind: str
    detail: Any = None
    args: tuple[int, ...] = ()


class TooManyTerms(Unsupported):
    """A call whose formula has more than MOST_TERMS terms."""


class ElementTerms:
    """All terms of one call, by number, and those of the elements in memory."""

    def __init__(self) -> None:
        self.terms: list[Term] = [Term("number", 0)]
        self.numbers: dict[Term, int] = {}
        self.memory: dict[Storage, np.ndarray] = {}
        self.known: Mapping[Storage, tuple[str, StridedView]] = {}
        self.adds_atomically = False  # floats, in the order in which programs run
        self._tensors: dict[int, tuple[str, ...]] = {}

    def add(self, term: Term) -> int:
        """Return the number of a term. Raises TooManyTerms."""
        number = self.numbers.get(term)
        if number is None:
            if len(self.terms) >= MOST_TERMS:
                raise TooManyTerms(f"a formula of more than {MOST_TERMS:,} terms")
            number = self.numbers[term] = len(self.terms)
            self.terms.append(term)
        return number

    def tensors_of(self, number: int) -> tuple[str, ...]:
        """Return the names of the tensors that a term depends on."""
        if number not in self._tensors:
            term = self.terms[number]
            names = {term.detail[0], *term.detail[2]} if term.kind == "element" else set()
            for other in term.args:
                names.update(self.tensors_of(other))
            self._tensors[number] = tuple(sorted(names))
        return self._tensors[number]

    # -- lanes ---------------------------------------------------------------------------------
    def fill(self, numbers: np.ndarray, data: np.ndarray) -> np.ndarray:
        """Return the numbers of terms with those of the values in `data` where there are none."""
        numbers, data = np.broadcast_arrays(numbers, data)
        missing = numbers == NO_TERM
        if not missing.any():
            return numbers
        values, at = np.unique(np.asarray(data[missing]), return_inverse=True)
        own = [self.add(Term("number", value)) for value in values.tolist()]
        filled = numbers.copy()
        filled[missing] = np.array(own, np.int64)[at.reshape(-1)]
        return filled

    def combine(self, kind: str, detail: Any, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return the terms of an operation, lane by lane; the parts broadcast."""
        parts = np.broadcast_arrays(*parts)
        shape = parts[0].shape
        rows = np.stack([part.reshape(-1) for part in parts], axis=1)
        unique, at = np.unique(rows, axis=0, return_inverse=True)
        own = [self.add(Term(kind, detail, tuple(row))) for row in unique.tolist()]
        return np.array(own, np.int64)[at.reshape(-1)].reshape(shape)

    def operate(self, kind: str, detail: Any, values: Sequence[Any]) -> np.ndarray:
        """Return the terms of an operation on values, none where only numbers meet."""
        shapes = [array.shape for v in values for array in (v.data, v.term_numbers())]
        shape = np.broadcast_shapes(*shapes)
        parts = [np.broadcast_to(v.term_numbers(), shape) for v in values]
        some = np.logical_or.reduce([part != NO_TERM for part in parts])
        filled = [
            self.fill(part[some], np.broadcast_to(v.data, shape)[some])
            for part, v in zip(parts, values, strict=True)
        ]
        result = np.zeros(shape, np.int64)
        if filled[0].size:
            result[some] = self.combine(kind, detail, filled)
        return result

    def vectors(self, value: Any) -> np.ndarray:
        """Return the terms of the vectors along the last axis of a block."""
        numbers = self.fill(value.term_numbers(), value.data)
        rows = numbers.reshape(-1, numbers.shape[-1])
        unique, at = np.unique(rows, axis=0, return_inverse=True)
        own = [self.add(Term("vector", None, tuple(row))) for row in unique.tolist()]
        return np.array(own, np.int64)[at.reshape(-1)].reshape(numbers.shape[:-1])

    # -- memory --------------------------------------------------------------------------------
    def load(
        self, accesses: Iterable[Any], ptr: Any, fill: Any, kind: np.dtype, full: tuple[int, ...]
    ) -> np.ndarray:
        """Return the terms of loaded lanes, those of `fill` where a lane is masked."""
        result = np.zeros(full, np.int64)
        if fill is not None:
            result[...] = fill.term_numbers()
        through = np.broadcast_to(ptr.term_numbers(), full)
        for lanes in accesses:
            index = np.broadcast_to(lanes.index, full)
            good = np.broadcast_to(True if lanes.good is None else lanes.good, full)
            for way in np.unique(through[good]).tolist():
                some = good & (through == way)
                via = self.tensors_of(way) if way != NO_TERM else ()
                at = index[some] * kind.itemsize
                result[some] = self.read(lanes.storage, at, kind.itemsize, via)
        return result

    def read(
        self, storage: Storage, at: np.ndarray, size: int, through: tuple[str, ...] = ()
    ) -> np.ndarray:
        """Return the terms of elements by byte offset; `through` are what their address needs."""
        memory = self.memory.get(storage)
        numbers = np.zeros(at.shape, np.int64) if memory is None else memory[at]
        if storage not in self.known:
            return numbers
        name, view = self.known[storage]
        missing = numbers == NO_TERM
        if missing.any():
            offsets, back = np.unique(at[missing], return_inverse=True)
            own = [
                self.add(Term("element", (name, _index_of(view, storage, x, size), through)))
                for x in offsets.tolist()
            ]
            numbers = numbers.copy()
            numbers[missing] = np.array(own, np.int64)[back.reshape(-1)]
        return numbers

    def store(
        self, storage: Storage, index: np.ndarray, data: np.ndarray, numbers: np.ndarray
    ) -> None:
        """Record the terms of stored elements."""
        memory = self._memory_of(storage)
        memory[index * data.dtype.itemsize] = self.fill(numbers, data)

    def update(
        self, op: str, storage: Storage, index: np.ndarray, new: np.ndarray, numbers: np.ndarray
    ) -> None:
        """Record the terms of elements that an atomic operation changes, in lane order."""
        memory, size = self._memory_of(storage), new.dtype.itemsize
        for i, value, number in zip(index.tolist(), new, numbers.tolist(), strict=True):
            own = number or self.add(Term("number", value.item()))
            if op in ("add", "fadd"):
                self.adds_atomically |= op == "fadd"
                before = int(self.read(storage, np.array([i * size]), size)[0])
                if before == NO_TERM:
                    before = self.add(Term("number", storage.typed(new.dtype)[i].item()))
                own = self.add(Term("arith.addf", None, (before, own)))
            elif op != "exch":
                own = self.add(Term(f"atomic {op}", None, (own,)))
            memory[i * size] = own

    def _memory_of(self, storage: Storage) -> np.ndarray:
        if storage not in self.memory:
            self.memory[storage] = np.zeros(storage.data.size, np.int64)
        return self.memory[storage]

    # -- torch -----------------------------------------------------------------------------------
    def storage_of(self, tensor: torch.Tensor) -> Storage:
        """Return the storage of a tensor that a kernel or an operator has written."""
        at = tensor.untyped_storage().data_ptr()
        return next(x for x in (*self.memory, *self.known) if x.start == at)

    def has_stored(self, tensor: torch.Tensor) -> bool:
        """Return whether elements of a caller's tensor were written."""
        at = tensor.untyped_storage().data_ptr()
        return any(x.start == at for x in self.memory)

    def of_tensor(self, storage: Storage, tensor: torch.Tensor) -> np.ndarray:
        """Return the terms of a tensor's elements, in its shape."""
        offsets = _offsets(view_of(tensor), storage)
        numbers = self.read(storage, offsets.reshape(-1), tensor.element_size())
        return self.fill(numbers, _values(tensor).reshape(-1)).reshape(tuple(tensor.shape))

    def note(
        self, find: Callable[[Any], Storage], func: Any, args: Any, kwargs: Any, result: Any
    ) -> None:
        """Record the terms of what an operator of torch has computed or moved."""
        schema = func._schema
        name = schema.name.rpartition("::")[2].removesuffix("_")
        if name == "lift_fresh" or name.startswith(_WITHOUT_TERMS):
            return
        if not schema.is_mutable and any(r.alias_info for r in schema.returns):
            return
        named = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
        written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        targets = [x for x in tree_leaves([named[k] for k in written if k in named]) if _is(x)]
        targets = targets if schema.is_mutable else [x for x in tree_leaves(result) if _is(x)]
        if not targets or not targets[0].numel():
            return
        try:
            terms = self._compute(find, func, name, named, written, targets[0])
        except (RuntimeError, TypeError, ValueError, KeyError, IndexError):
            terms = None
        for target in targets:
            own = terms
            if own is None:
                parts = [self.of_tensor(find(x), x) for x in tree_leaves(named) if _is(x)]
                names = {n for part in parts for t in np.unique(part) for n in self.tensors_of(t)}
                opaque = self.add(Term(f"torch.{name}", tuple(sorted(names))))
                own = np.full(tuple(target.shape), opaque)
            storage = find(target)
            at = _offsets(view_of(target), storage)
            self._memory_of(storage)[at] = np.broadcast_to(own, at.shape)

    def _compute(
        self,
        find: Callable[[Any], Storage],
        func: Any,
        name: str,
        named: dict[str, Any],
        written: list[str],
        target: torch.Tensor,
    ) -> np.ndarray | None:
        """Return the terms of an operator's result, None if it is not known."""

        def swap(x: Any) -> Any:
            is_numbers = _is(x) and x.dtype != torch.bool
            return torch.from_numpy(self.of_tensor(find(x), x)) if is_numbers else x

        if name in _TORCH_FILLS:
            return self.fill(np.zeros(tuple(target.shape), np.int64), _values(target))
        if name == "copy":
            source = named["src"]
            return self._cast(swap(source).numpy(), source.dtype, target.dtype)
        if name in ("clone", "_to_copy"):
            source = named["self"]
            return self._cast(swap(source).numpy(), source.dtype, target.dtype)
        if name in _TORCH_MOVES:
            indices = ("index", "indices", "repeats")
            swapped = {k: x if k in indices else tree_map(swap, x) for k, x in named.items()}
            if "value" in swapped and isinstance(swapped["value"], int | float):
                swapped["value"] = self.add(Term("number", swapped["value"]))
            return np.asarray(func(**swapped))
        if name in _TORCH_SAME and named.get("alpha", 1) == 1:
            parts = []
            for key in ("self", "other"):
                if key in named:
                    x = named[key]
                    number = isinstance(x, int | float) and self.add(Term("number", x))
                    parts.append(swap(x).numpy() if _is(x) else np.array(number))
            return self.combine(_TORCH_SAME[name], None, parts)
        if name == "sum" and _is(named.get("self")):
            whole = swap(named["self"]).numpy()
            dims = named.get("dim") or list(range(whole.ndim))
            for dim in sorted((d % whole.ndim for d in dims), reverse=True):
                total, *rest = np.moveaxis(whole, dim, 0)
                for other in rest:
                    total = self.combine("arith.addf", None, [total, other])
                whole = total
            return whole.reshape(tuple(target.shape))
        return None

    def _cast(self, numbers: np.ndarray, source: torch.dtype, to: torch.dtype) -> np.ndarray:
        """Return the terms of elements that torch converts; widening rounds nothing."""
        if source == to or torch.promote_types(source, to) == to:
            return numbers
        return self.combine("arith.truncf", TORCH[str(to)], [numbers])


def _is(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.layout == torch.strided


def _values(tensor: torch.Tensor) -> np.ndarray:
    wide = tensor.detach()
    if wide.is_floating_point():
        return wide.to(torch.float64).numpy()
    return wide.to(torch.int64).numpy()


def _offsets(view: StridedView, storage: Storage) -> np.ndarray:
    """Return the byte offsets of a view's elements in its storage, in the view's shape."""
    at = np.full((1,) * len(view.shape), view.start - storage.start, np.int64)
    for axis, (n, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        along = [1] * len(view.shape)
        along[axis] = n
        at = at + (np.arange(n) * stride * view.itemsize).reshape(along)
    return np.broadcast_to(at, view.shape)


def _index_of(view: StridedView, storage: Storage, at: int, size: int) -> tuple[int, ...] | None:
    """Return the index in a view of the element at a byte offset, None if it has none."""
    if size != view.itemsize:
        return None
    rest = (at + storage.start - view.start) // size
    index = [0] * len(view.shape)
    for axis in sorted(range(len(index)), key=lambda i: -view.strides[i]):
        if view.shape[axis] > 1 and view.strides[axis] > 0:
            index[axis], rest = divmod(rest, view.strides[axis])
    inside = all(0 <= i < n for i, n in zip(index, view.shape, strict=True))
    return tuple(index) if rest == 0 and inside else None

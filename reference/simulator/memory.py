"""Memory: storages, the operands that live in them, and the addresses of each."""

from __future__ import annotations

import ctypes
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from gemmproof.reference.ttir import DTYPES, TORCH, Dtype

# A map of the elements that belong to a view is kept up to this many elements; beyond it (a
# narrow view of a huge parent) membership is computed from the strides.
MAP_ELEMENTS = 1 << 26


@dataclass(frozen=True, slots=True)
class StridedView:
    """A strided view: `start` is the first element's address, strides are in elements."""

    start: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> int:
        """Elements from the first to the last of the view, inclusive; 0 if it is empty."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def numel(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(slots=True, eq=False)
class Storage:
    """One allocation: its bytes, which of them are undefined, and who allocated it.

    `undefined` is None while all bytes are defined; `private`: the wrapper allocated it, so that
    every element of it may be accessed. `owners` maps an element size to the program that
    stored each element in the current launch, `readers` to the one that last read it. `sources` are
    tensors whose undefined elements an operator of torch carried over into this storage. `marks`
    are the writers of its bytes (host_work.py), None while all have the same `writer`.
    """

    start: int
    data: np.ndarray
    keep: Any
    private: bool = False
    undefined: np.ndarray | None = None
    owners: dict[int, Ledger] = field(default_factory=dict)
    readers: dict[int, Ledger] = field(default_factory=dict)
    views: list[StridedView] = field(default_factory=list)
    sources: list[Any] = field(default_factory=list)
    marks: np.ndarray | None = None
    writer: int | None = None

    @property
    def end(self) -> int:
        return self.start + self.data.size

    def typed(self, dtype: np.dtype) -> np.ndarray:
        """Return the storage as a flat array of `dtype`, without trailing bytes."""
        n = self.data.size // dtype.itemsize
        return self.data[: n * dtype.itemsize].view(dtype)

    def undefined_elements(self, size: int) -> np.ndarray | None:
        """Return a number for each element, nonzero if any of its bytes is undefined, as a view.

        Returns None while everything is defined.
        """
        if self.undefined is None:
            return None
        n = self.data.size // size
        return self.undefined[: n * size].view(f"u{size}")

    def elements_of(self, flags: np.ndarray, view: StridedView) -> np.ndarray:
        """Return the flags, one a byte of the storage, of a view: (*view.shape, itemsize)."""
        size = view.itemsize
        strides = (*(s * size for s in view.strides), 1)
        first = flags[view.start - self.start :]
        return np.lib.stride_tricks.as_strided(first, (*view.shape, size), strides)

    def ledger(self, kind: str, size: int) -> Ledger:
        """Return the ledger of `kind` ("owners", "readers") for elements of `size` bytes."""
        ledgers: dict[int, Ledger] = getattr(self, kind)
        if size not in ledgers:
            ledgers[size] = Ledger(self.data.size // size)
        return ledgers[size]


class Ledger:
    """A program id for each element of a storage, -1 for none; sparse if there are too many."""

    def __init__(self, n: int) -> None:
        self.dense = np.full(n, -1, np.int32) if n <= MAP_ELEMENTS else None
        self.sparse: dict[int, int] = {}

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        if self.dense is not None:
            return self.dense[index]
        ids = [self.sparse.get(i, -1) for i in index.ravel().tolist()]
        return np.array(ids, dtype=np.int64).reshape(index.shape)

    def __setitem__(self, index: np.ndarray, programs: np.ndarray) -> None:
        if self.dense is not None:
            self.dense[index] = programs
        else:
            ids = np.broadcast_to(programs, index.shape).ravel().tolist()
            self.sparse.update(zip(index.ravel().tolist(), ids, strict=True))


class Region:
    """The elements of a storage that may be accessed through an operand."""

    def __init__(self, storage: Storage, size: int, views: list[StridedView]) -> None:
        self.views = [v for v in views if v.span]
        self.map: np.ndarray | None = None
        starts = [(v.start - storage.start) // size for v in self.views]
        self.low = min(starts, default=0)
        self.high = max((s + v.span for s, v in zip(starts, self.views, strict=True)), default=0)
        self.dense = any(
            v.span == self.high - self.low == v.numel and s == self.low
            for s, v in zip(starts, self.views, strict=True)
        )
        self._starts = starts
        if not self.dense and 0 < self.high - self.low <= MAP_ELEMENTS:
            self.map = np.zeros(self.high - self.low, dtype=np.bool_)
            for start, view in zip(starts, self.views, strict=True):
                lanes = np.lib.stride_tricks.as_strided(
                    self.map[start - self.low :], view.shape, view.strides, writeable=True
                )
                lanes[...] = True

    def contains(self, index: np.ndarray) -> np.ndarray:
        """Return a mask of the element indices (of the storage) that belong to the region."""
        inside = (index >= self.low) & (index < self.high)
        if self.dense or not inside.any():
            return inside
        if self.map is not None:
            return inside & self.map[np.where(inside, index - self.low, 0)]
        member = np.zeros(index.shape, dtype=np.bool_)
        for start, view in zip(self._starts, self.views, strict=True):
            member |= _in_strided(index - start, view)
        return inside & member


def _in_strided(offset: np.ndarray, view: StridedView) -> np.ndarray:
    """Return a mask of the offsets that are elements of a view, by dividing the strides out.

    Offsets count from the view's first element. Exact if no two indices of the view alias (each
    stride exceeds the span of the smaller ones); a huge view whose indices alias is treated as
    every element between first and last.
    """
    inside = (offset >= 0) & (offset < view.span)
    axes = sorted(
        ((s, n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1 and s > 0),
        reverse=True,
    )
    span = 1
    for stride, n in reversed(axes):
        if stride < span:
            return inside
        span += (n - 1) * stride
    for stride, n in axes:
        index, offset = np.divmod(offset, stride)
        inside &= (index >= 0) & (index < n)
    return inside & (offset == 0)


@dataclass(slots=True, eq=False)
class Argument:
    """A tensor as a kernel received it: its name in messages, its view, its storage.

    `axes` names the view's dimensions ("M", "K", ... or a number), `word` it in messages, if set.
    """

    name: str
    dtype: Dtype
    view: StridedView
    storage: Storage
    axes: tuple[str, ...]
    word: str = ""
    _regions: dict[int, Region] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        return self.word or self.name

    def region(self, size: int) -> Region:
        """Return what may be accessed through this operand with elements of `size` bytes."""
        if size not in self._regions:
            # a tensor of the caller is checked by the caller's views, whatever the wrapper passes
            views = self.storage.views or [self.view]
            if self.storage.private:
                n = self.storage.data.size // size
                views = [StridedView(self.storage.start, size, (n,), (1,))]
            elif size != self.view.itemsize:  # a pointer cast: elements of another size
                views = [_recut(v, size) for v in views]
            else:
                views = [v for v in views if v.itemsize == size]
            self._regions[size] = Region(self.storage, size, views)
        return self._regions[size]


def _recut(view: StridedView, size: int) -> StridedView:
    """Return a view as elements of another size: exact for dense rows, else the whole span."""
    span = view.span * view.itemsize // size
    return StridedView(view.start, size, (span,), (1,))


class AddressSpace:
    """All storages that a run has seen, by address."""

    def __init__(self) -> None:
        self._storages: list[Storage] = []
        self._empty: dict[int, Storage] = {}

    def storage_of(self, tensor: Any) -> Storage:
        """Return the storage of a torch tensor, registered when first seen."""
        untyped = tensor.untyped_storage()
        start, nbytes = untyped.data_ptr(), untyped.nbytes()
        if not nbytes:  # it has no address: identified by torch's own object
            key = untyped._cdata
            if key not in self._empty:
                self._empty[key] = Storage(0, np.zeros(0, np.uint8), keep=untyped)
            return self._empty[key]
        existing = self.at(start)
        if existing is not None and existing.start == start:
            return existing
        data = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(start))
        storage = Storage(start, data, keep=untyped)
        insort(self._storages, storage, key=attrgetter("start"))
        return storage

    def undefined_in(self, tensor: Any) -> np.ndarray | None:
        """Return a mask of the undefined elements of a tensor, or None if there are none."""
        storage = self.storage_of(tensor)
        if storage.undefined is None or not storage.undefined.any() or not tensor.numel():
            return None
        flags = storage.elements_of(storage.undefined, view_of(tensor)).any(axis=-1)
        return np.asarray(flags) if flags.any() else None

    def at(self, address: int) -> Storage | None:
        """Return the storage that holds the byte at `address`, or None if no known one does."""
        index = bisect_right(self._storages, address, key=attrgetter("start")) - 1
        if index >= 0 and address < self._storages[index].end:
            return self._storages[index]
        return None

    def split(self, addresses: np.ndarray) -> list[tuple[Storage | None, np.ndarray]]:
        """Group addresses by the storage that holds them: (storage or None, lanes) pairs."""
        starts = np.array([s.start for s in self._storages], dtype=np.int64)
        ends = np.array([s.end for s in self._storages], dtype=np.int64)
        index = np.searchsorted(starts, addresses, side="right") - 1
        known = (index >= 0) & (addresses < ends[index.clip(0)]) if len(starts) else index >= 0
        index = np.where(known, index, -1)
        return [
            (self._storages[i] if i >= 0 else None, index == i) for i in np.unique(index).tolist()
        ]

    def new_launch(self) -> None:
        """Clear the ledgers: a later launch may store again."""
        for storage in self._storages:
            storage.owners.clear()
            storage.readers.clear()


_BY_ROWS = ("crow_indices", "col_indices", "values")
_BY_COLUMNS = ("ccol_indices", "row_indices", "values")
_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: _BY_ROWS,
    torch.sparse_bsr: _BY_ROWS,
    torch.sparse_csc: _BY_COLUMNS,
    torch.sparse_bsc: _BY_COLUMNS,
}


def iter_dense(values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested values that have memory; of a sparse one its parts."""
    for x in tree_leaves(values):
        if isinstance(x, torch.Tensor):
            is_dense = x.layout == torch.strided
            parts = _SPARSE.get(x.layout, ())
            yield from (x,) if is_dense else (getattr(x, part)() for part in parts)


def element_dtype(tensor: Any) -> Dtype:
    """Return the type of a tensor's elements. Raises TypeError if it has none (complex)."""
    try:
        return DTYPES[TORCH[str(tensor.dtype)]]
    except KeyError:
        raise TypeError(f"tensors of {tensor.dtype} have no Triton type") from None


def view_of(tensor: Any) -> StridedView:
    """Return the strided view of a torch tensor."""
    return StridedView(
        tensor.data_ptr(), tensor.element_size(), tuple(tensor.shape), tuple(tensor.stride())
    )


def uninitialised_value(dtype: Dtype, kind: str) -> np.ndarray:
    """Return the value of an undefined lane of `dtype`, as a zero-dimensional array.

    `kind`: "nan" (integers: a large odd pattern), "ones" (bytes 0xFF), "zero", "large" (finite).
    """
    np_type = dtype.numpy
    if dtype.is_pointer or np_type == np.bool_:
        return np.array(0, dtype=np_type)
    size = dtype.itemsize
    if np_type.kind in "iu" or kind in ("zero", "ones"):
        byte = {"zero": b"\0", "ones": b"\xff", "nan": b"\x5b", "large": b"\x3d"}[kind]
        return np.frombuffer(byte * size, np_type).reshape(())
    number = np.nan if kind == "nan" else {1: 192.0, 2: 30000.0}.get(size, 1e30)
    return np.array(number).astype(np_type)

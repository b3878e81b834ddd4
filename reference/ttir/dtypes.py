"""TTIR's types: scalars with the numpy type that holds each, blocks, block pointers, descriptors.

TTIR's integers have no sign: a value holds the signed numpy type of its width and every operation
says how it reads the bits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gemmproof.reference.formats import FNUZ, FORMATS


@dataclass(frozen=True, slots=True)
class Dtype:
    """A scalar type: TTIR's name, the numpy type of one element, and what a pointer points to.

    `format` is the name under which the numerics know the type, "" where they do not.
    """

    name: str
    numpy: np.dtype
    format: str = ""
    pointee: Dtype | None = None

    @property
    def is_pointer(self) -> bool:
        return self.pointee is not None

    @property
    def is_float(self) -> bool:
        return self.name[0] in "fb"

    @property
    def bits(self) -> int:
        return 1 if self.name == "i1" else 8 * self.numpy.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory (i1 takes a byte)."""
        return self.numpy.itemsize

    def __str__(self) -> str:
        return f"pointer to {self.pointee}" if self.is_pointer else self.name


def _table() -> dict[str, Dtype]:
    table = {"i1": Dtype("i1", np.dtype(np.bool_))}
    for f in (*FORMATS.values(), *FNUZ):
        if f.ttir:  # of two integers of one width the signed one stands first
            table.setdefault(f.ttir, Dtype(f.ttir, f.storage, f.name if f.name in FORMATS else ""))
    return table


DTYPES = _table()
I1, I8, I32, I64 = (DTYPES[name] for name in ("i1", "i8", "i32", "i64"))
F32, F64 = DTYPES["f32"], DTYPES["f64"]

# torch's dtype -> TTIR's
TORCH = {f"torch.{f.dtype}": f.ttir for f in (*FORMATS.values(), *FNUZ) if f.ttir}
TORCH["torch.bool"] = "i1"


@lru_cache(maxsize=64)
def pointer_to(pointee: Dtype) -> Dtype:
    return Dtype("ptr", np.dtype(np.int64), pointee=pointee)


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a value: a block of `shape` of scalars, () for a scalar.

    `kind` is "value", "window" (a block pointer) or "descriptor": the latter two have the shape of
    the block that they load, and `dtype` is that of its elements.
    """

    shape: tuple[int, ...]
    dtype: Dtype
    kind: str = "value"

    def with_dtype(self, dtype: Dtype) -> Type:
        return Type(self.shape, dtype)


_DIMS = re.compile(r"((?:\d+x)*)(.+)")


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """The type that TTIR writes so. Raises ValueError for one that is not known."""
    text = text.strip()
    for word, kind in (("!tt.tensordesc<", "descriptor"), ("!tt.ptr<", "value"), ("<", "value")):
        if text.startswith(word) and text.endswith(">"):
            inner = text[len(word) : -1]
            if kind == "descriptor":
                block = parse_type(inner if inner.startswith("tensor<") else f"tensor<{inner}>")
                return Type(block.shape, block.dtype, "descriptor")
            pointee = parse_type(re.sub(r", \d+$", "", inner))  # without the address space
            if pointee.shape:
                return Type(pointee.shape, pointee.dtype, "window")
            return Type((), pointer_to(pointee.dtype))
    if text.startswith("tensor<") and text.endswith(">"):
        # raw TTIR has a layout behind the block only for descriptors
        found = _DIMS.fullmatch(re.sub(r", #.*$", "", text[7:-1]))
        if found:
            element = parse_type(found[2])
            shape = tuple(int(n) for n in found[1].split("x") if n)
            if not element.shape:
                return Type(shape, element.dtype)
    name = text.replace("si", "i").replace("ui", "i") if text[:2] in ("si", "ui") else text
    if name in DTYPES:
        return Type((), DTYPES[name])
    raise ValueError(f"type {text}")


def unsigned(data: np.ndarray) -> np.ndarray:
    """The same bits read without sign."""
    return data if data.dtype.kind in "bu" else data.view(f"u{data.dtype.itemsize}")

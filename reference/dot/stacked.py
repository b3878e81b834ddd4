"""Dots of many programs at once, with block scales or without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from gemmproof.reference.arithmetic import Array, round_to, to_fp32
from gemmproof.reference.dot import DotModel
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS


# -- stacked programs ----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """The distinct blocks (n, *block) that programs loaded, and the one of each program."""

    blocks: np.ndarray
    of: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Stacking:
    """The order in which programs go through the pairs of a block of a and a block of b.

    `order` is "rows" or "columns" first, or the permutation that puts rows first.
    """

    rows: np.ndarray
    columns: np.ndarray
    order: str | np.ndarray

    @staticmethod
    def find(a: Shared, b: Shared) -> Stacking | None:
        """Return the layout, or None if some pair belongs to no program or to several."""
        rows, columns = len(a.blocks), len(b.blocks)
        if len(a.of) != rows * columns:
            return None
        natural = np.arange(len(a.of))
        by_rows = a.of * columns + b.of
        if np.array_equal(by_rows, natural):
            return Stacking(a.of, b.of, "rows")
        if np.array_equal(b.of * rows + a.of, natural):
            return Stacking(a.of, b.of, "columns")
        order = np.argsort(by_rows, kind="stable")
        return Stacking(a.of, b.of, order) if np.array_equal(by_rows[order], natural) else None

    def fits(self, a: Shared, b: Shared) -> bool:
        """Return whether the programs share other blocks in the same way."""
        return np.array_equal(self.rows, a.of) and np.array_equal(self.columns, b.of)


def multiply(
    model: DotModel,
    layout: Stacking,
    pairs: list[tuple[np.ndarray, np.ndarray]],
    acc: np.ndarray | None,
) -> np.ndarray:
    """model.dot for programs (P, M, K) x (P, K, N) of shared blocks, one pair after the other."""
    rows, M, _ = pairs[0][0].shape
    columns, _, N = pairs[0][1].shape
    tall = np.concatenate([a.reshape(rows * M, -1) for a, _ in pairs], axis=1)
    wide = np.concatenate([b.transpose(1, 0, 2).reshape(-1, columns * N) for _, b in pairs])
    # axes of a program's matrix in the stacked one: (row, m, column, n) from (row, column, m, n)
    order = layout.order
    by_rows = isinstance(order, np.ndarray) or order == "rows"
    axes = (0, 2, 1, 3) if by_rows else (1, 2, 0, 3)
    shape = (rows, columns, M, N) if by_rows else (columns, rows, M, N)
    start = None
    if acc is not None:
        whole = np.broadcast_to(acc, (rows * columns, M, N))
        whole = whole[order] if isinstance(order, np.ndarray) else whole
        start = whole.reshape(shape).transpose(axes).reshape(rows * M, columns * N)
    dot: Any = _fused_chain if _products_exact(model) else model.dot
    stacked = dot(tall, wide, start).reshape(rows, M, columns, N)
    c: np.ndarray = stacked.transpose(np.argsort(axes)).reshape(rows * columns, M, N)
    if not isinstance(order, np.ndarray):
        return c
    result = np.empty_like(c)
    result[order] = c
    return result


def _products_exact(model: DotModel) -> bool:
    """Return whether this is the IEEE chain onto fp32 of formats with fp32 products."""
    a, b = FORMATS[model.a_format], FORMATS[model.b_format]
    least = a.emin - a.p + b.emin - b.p + 2
    exact = a.p + b.p <= 24 and least >= -149 and a.emax + b.emax + 2 <= 128
    return model.target is None and model.acc_format == "fp32" and exact


def _as_fp32(x: np.ndarray) -> torch.Tensor:
    if x.dtype == np.float16:  # torch converts whole vectors of them
        return torch.from_numpy(np.ascontiguousarray(x)).float()
    return torch.from_numpy(to_fp32(np.ascontiguousarray(x)))


def _fused_chain(a: np.ndarray, b: np.ndarray, acc: np.ndarray | None) -> np.ndarray:
    """The IEEE chain of a (M, K) and b (K, N) onto acc (M, N), one pass over acc for each k.

    torch multiplies and adds in one pass where numpy takes two. With exact products a fused and a
    separate rounding are the same, so the bits are those of DotModel.dot.
    """
    c = np.zeros((len(a), b.shape[1]), np.float32) if acc is None else acc.copy()
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        add_product = torch.from_numpy(c).addcmul_
        columns = _as_fp32(a).T.contiguous()[:, :, None].unbind()
        lines = _as_fp32(b)[:, None, :].unbind()
        for column, line in zip(columns, lines, strict=True):
            add_product(column, line)
    if c.size and np.isnan(c.max()):  # max propagates NaN
        c[np.isnan(c)] = FORMATS["fp32"].nan
    return c


# -- operands with block scales ------------------------------------------------------------------
# MX and PTX share the names of the 8-bit formats.
_BYTES = {f.ptx: f.storage for f in FORMATS.values() if f.is_fp8 and f.ptx}
KNOWN = ("e2m1", *_BYTES, "bf16", "fp16")
# The eight magnitudes of e2m1; the fourth bit is the sign.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)


def computed_format(target: str, lhs: str, rhs: str) -> str | None:
    """Return the 16-bit format that Triton's compiler widens operands to before a plain dot.

    None if tensor cores multiply scaled operands, from compute capability 10.0 on.
    """
    if GPUS[target].capability >= (10, 0):
        return None
    return "fp16" if "fp16" in (lhs, rhs) else "bf16"


def widen(x: Array, name: str, packed_axis: int) -> Array:
    """Return the values of the format `name`, one of KNOWN, as float32, exactly.

    A byte packs two values of e2m1, the first in its low half, so `packed_axis` doubles in length.
    """
    if name == "e2m1":
        raw = x.view(np.uint8)
        axis = packed_axis % raw.ndim
        shape = list(raw.shape)
        shape[axis] *= 2
        codes = np.stack([raw & 15, raw >> 4], axis=axis + 1).reshape(shape)
        return np.where(codes & 8, -_E2M1[codes & 7], _E2M1[codes & 7])
    return to_fp32(x.view(_BYTES[name]) if name in _BYTES else x)


def factors(scales: Array) -> Array:
    """Return the values of scales as float32: 2**(scale - 127), 255 is NaN; or those of fp8."""
    if scales.dtype.kind not in "iu":
        return to_fp32(scales)
    exponent = scales.view(np.uint8).astype(np.int32) - 127
    powers = np.ldexp(np.float32(1), np.minimum(exponent, 127))
    return np.where(exponent == 128, np.float32(np.nan), powers)


def computed_factors(scales: Array, name: str, fast_math: bool) -> Array:
    """Return the factors of Triton's compiler in the 16-bit format `name`, as float32.

    It shifts an e8m0 scale to the exponent field of a float: 0 becomes 0 and not 2**-127, and 255
    Inf, which becomes NaN afterwards unless fast_math.
    """
    values = factors(scales)
    if scales.dtype.kind in "iu":
        codes = scales.view(np.uint8)
        values = np.where(codes == 0, np.float32(0), values)
        values = np.where((codes == 255) & fast_math, np.float32(np.inf), values)
    return to_fp32(round_to(values, FORMATS[name]))


def scale(x: Array, by: Array, axis: int) -> Array:
    """Multiply float32 values by factors, of which `axis` has one for each group along K."""
    with np.errstate(all="ignore"):
        return x * np.repeat(by, x.shape[axis] // by.shape[axis], axis=axis)

"""Accumulator models: the exact bits of one `dot`, by target, formats and instruction."""

from dataclasses import dataclass

import numpy as np

from gemmproof.reference.dot_ieee import fma_chain
from gemmproof.reference.formats import FORMATS, Array, format_named, to_fp32, truncate_tf32


@dataclass(frozen=True, slots=True)
class DotModel:
    """How one dot accumulates, as data."""

    target: str | None
    in_format: str
    acc_format: str
    instruction: str

    def dot(self, a: Array, b: Array, acc: Array | None = None) -> Array:
        """a (..., M, K) times b (..., K, N) onto acc (..., M, N), bit for bit.

        Operands are storage arrays of the input format, leading axes broadcast; acc None is zero.
        """
        fmt, acc_fmt = FORMATS[self.in_format], FORMATS[self.acc_format]
        lead = np.broadcast_shapes(
            a.shape[:-2], b.shape[:-2], () if acc is None else acc.shape[:-2]
        )
        M, K, N = a.shape[-2], a.shape[-1], b.shape[-1]
        if acc is None:
            acc = np.zeros((*lead, M, N), acc_fmt.storage)
        shape = (*lead, M, N)
        acc = np.broadcast_to(acc, shape).reshape(-1, M, N)
        if fmt.kind == "int":
            wide = a.astype(np.float64) @ b.astype(np.float64)  # exact: K * 2**16 is below 2**53
            wrapped = wide.astype(np.int64).astype(np.int32)
            return (wrapped.reshape(acc.shape) + acc).reshape(shape)
        read = truncate_tf32 if fmt.name == "tf32" else to_fp32
        a, b = _flat(read(a), lead), _flat(read(b), lead)
        return fma_chain(a, b, acc, fmt, fmt, acc_fmt).reshape(shape)


def _flat(x: Array, lead: tuple[int, ...]) -> Array:
    rows, columns = x.shape[-2:]
    if x.size == rows * columns:
        return x.reshape(1, rows, columns)
    return np.broadcast_to(x, (*lead, rows, columns)).reshape(-1, rows, columns)


def dot_model(
    target: str | None, in_format: str, acc_format: str = "fp32", instruction: str | None = None
) -> DotModel:
    """The model of one dot; target None is the IEEE chain.

    Raises ValueError naming the value for a combination that has no model.
    """
    fmt = format_named(in_format)
    if fmt.kind == "int":
        acc_format = "int32"
    if target is not None:
        raise ValueError(f"dot_model: got target {target!r}, expected None")
    return DotModel(target, in_format, acc_format, instruction or "fma")

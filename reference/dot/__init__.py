"""Accumulator models: the exact bits of one `dot`, by target, formats and instruction."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from gemmproof.reference.arithmetic import Array, round_tf32_rna, round_to, to_fp32, truncate_tf32
from gemmproof.reference.dot.tensor_core import Unit, fma_chain, fused_chain
from gemmproof.reference.formats import FORMATS, FP8, format_named
from gemmproof.reference.gpus import GPUS, TARGETS, TensorCore

# -- units in the last place ---------------------------------------------------------------------
# The k order of an emulated fp8 mma: low element pairs of all registers, then the high pairs.
_LOW_PAIRS = tuple(k for t in range(4) for k in (4 * t, 4 * t + 1, 16 + 4 * t, 17 + 4 * t))
EMULATION_ORDER = (*_LOW_PAIRS, *(k + 2 for k in _LOW_PAIRS))


def default_instruction(target: str | None, in_format: str) -> str:
    """Return the instruction that Triton picks for a large tile."""
    if target in TARGETS:
        for core in GPUS[target].cores:
            if in_format in core.formats:
                return core.instruction
    return "fma" if target is None or in_format in ("fp32", "fp64") else "mma"


def unit_for(target: str | None, in_format: str, acc_format: str, instruction: str) -> Unit:
    """Return the unit that accumulates; ValueError names the value that has none."""
    if target is not None and target not in TARGETS:
        raise ValueError(f"target: got {target!r}, expected None or one of {' '.join(TARGETS)}")
    fmt = FORMATS[in_format]
    if acc_format not in fmt.sums:
        raise ValueError(
            f"acc_format: got {acc_format!r} for {in_format}, expected {' or '.join(fmt.sums)}"
        )
    if instruction == "fma":
        return Unit("integer" if fmt.kind == "int" else "fma")
    if target is None:
        raise ValueError(
            f"instruction: got {instruction!r} without a target, expected fma or a target"
        )
    core = GPUS[target].core(instruction)
    if core is None:
        known = " ".join(core.instruction for core in GPUS[target].cores)
        raise ValueError(
            f"instruction: got {instruction!r} on {target}, expected one of {known} fma"
        )
    if in_format not in core.formats:
        raise ValueError(
            f"in_format: got {in_format!r} for {instruction} on {target}, "
            f"expected one of {' '.join(core.formats)}"
        )
    if in_format == "int8":
        return Unit("integer", L=32, saturates=instruction == "mma")
    return Unit("fma") if in_format == "fp64" else _fused(core, in_format, acc_format)


def _fused(core: TensorCore, in_format: str, acc_format: str) -> Unit:
    acc, F = FORMATS[acc_format], core.F
    # 5 below the least exponent of the accumulator, and lower by the bits kept beyond fp32's own
    e_zero = acc.emin - 5 - (F - 23)
    fraction = acc.p - 1
    fp8 = core.fp8 if in_format in FP8 else "native"
    if fp8 == "narrow":
        F = FORMATS["e8m13"].p - 1
        fraction = min(fraction, F)
    L = core.step_bytes // FORMATS["fp16" if fp8 == "emulated" else in_format].itemsize
    return Unit("fused", L, F, fraction, "rne" if acc_format == "fp16" else "rz", e_zero)


def is_emulated(target: str | None, in_format: str, instruction: str) -> bool:
    """Return whether it compiles to fp16 instructions from zero, then one addition of c."""
    core = GPUS[target].core(instruction) if target is not None else None
    return core is not None and core.fp8 == "emulated" and in_format in FP8


# -- operands split into parts -------------------------------------------------------------------
# (piece of a, piece of b) in the order of accumulation, piece 0 the leading one.
SPLITS: Mapping[str, tuple[tuple[int, int], ...]] = MappingProxyType(
    {
        "tf32x3": ((1, 0), (0, 1), (0, 0)),
        "bf16x3": ((1, 0), (0, 1), (0, 0)),
        "bf16x6": ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0)),
    }
)


def pieces(x: Array, split: str) -> list[Array]:
    """Return the pieces of float32 x as the unit reads them, leading one first, in float32.

    tf32: the leading piece rounded half away, the rest cut by the hardware. bf16: each piece the
    remainder rounded to nearest. x - piece is exact in float32.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        if split == "tf32x3":
            high = round_tf32_rna(x)
            return [high, truncate_tf32(x - high)]
        parts = []
        for _ in range(3 if split == "bf16x6" else 2):
            part = to_fp32(round_to(x, "bf16"))
            parts.append(part)
            x = x - part
        return parts


# -- models of dots ------------------------------------------------------------------------------
Split = Literal["", "tf32x3", "bf16x3", "bf16x6"]


@dataclass(frozen=True, slots=True)
class DotModel:
    """The accumulation of one dot product, as data.

    Attributes:
        target: The GPU, or None for IEEE arithmetic.
        instruction: The instruction.
        a_format: The format of a.
        b_format: The format of b.
        acc_format: The format of the accumulator.
        unit: The sum of products that is formed at once. Chains of units ascend in k.
        as_format: The format that the operands are converted to first.
        order: The order of k within every len(order) of k; ascending if empty.
        part: Every `part` of k is a chain from zero, which is added to acc in IEEE arithmetic; 0
            for a single chain.
        BLOCK_K: The k of one tl.dot; 0 for all of k.
        from_zero: Each tl.dot starts at zero and is added to acc.
        split: The pieces of the operands whose products are summed in one chain.
    """

    target: str | None
    instruction: str
    a_format: str
    b_format: str
    acc_format: str
    unit: Unit
    as_format: str
    order: tuple[int, ...] = ()
    part: int = 0
    BLOCK_K: int = 0
    from_zero: bool = False
    split: Split = ""

    def dot(self, a: Array, b: Array, acc: Array | None = None) -> Array:
        """Return acc + a b, bit for bit; acc is not changed.

        Args:
            a: Array (..., M, K) of the storage type of `a_format`.
            b: Array (..., K, N) of the storage type of `b_format`; leading axes broadcast.
            acc: Array (..., M, N) of the storage type of `acc_format`; None for zero.

        Returns:
            An array (..., M, N) of the storage type of `acc_format`.

        Raises:
            ValueError: A type or shape is wrong; the message names it.
        """
        acc_fmt = FORMATS[self.acc_format]
        _check_operand("a", a, self.a_format)
        _check_operand("b", b, self.b_format)
        if a.shape[-1] != b.shape[-2]:
            raise ValueError(
                f"dot: got a of shape {a.shape} and b of shape {b.shape}, expected one K"
            )
        try:
            lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            shape = (*lead, a.shape[-2], b.shape[-1])
            if acc is not None:
                _check_operand("acc", acc, self.acc_format)
                shape = np.broadcast_shapes(shape, acc.shape)
        except ValueError as error:
            raise ValueError(f"dot: {error}") from None
        if shape[-2:] != (a.shape[-2], b.shape[-1]):
            raise ValueError(
                f"acc: got shape {shape}, expected (..., {a.shape[-2]}, {b.shape[-1]})"
            )
        start = np.zeros(shape, acc_fmt.storage) if acc is None else np.broadcast_to(acc, shape)
        if not start.size:
            return start.copy()
        start = start.reshape(-1, *shape[-2:])
        if self.unit.kind == "integer":
            return _integer_chain(_flat(a, shape), _flat(b, shape), start, self.unit).reshape(shape)
        read_a, read_b = _read(a, self.a_format), _read(b, self.b_format)
        return _blocks(self, _flat(read_a, shape), _flat(read_b, shape), start).reshape(shape)


def dot_model(
    target: str | None,
    in_format: str | tuple[str, str],
    acc_format: str | None = None,
    instruction: str | None = None,
) -> DotModel:
    """Return the model of one instruction's dot product, chained over k.

    Args:
        target: One of `gpus.TARGETS`, such as "sm_90"; None for the IEEE chain of fused
            multiply-adds.
        in_format: The format of both operands, or a pair of fp8 formats.
        acc_format: The format of the accumulator; by default fp32, int32 for int8, fp64 for fp64.
        instruction: "wgmma", "mma", "tcgen05" or "fma"; by default Triton's choice for a large
            tile. An fp8 "mma" on sm_90 and sm_100 is the PTX instruction, which is compiled to fp16
            instructions there; for Triton's choice see `triton_dot`.

    Raises:
        ValueError: There is no model of this combination; the message names the value.
    """
    a_format, b_format = (in_format, in_format) if isinstance(in_format, str) else in_format
    sums = [format_named(name).sums for name in (a_format, b_format)]
    if a_format != b_format and not (a_format in FP8 and b_format in FP8):
        raise ValueError(f"in_format: got {in_format!r}, expected one format or two fp8 formats")
    if not sums[0]:
        known = " ".join(f.name for f in FORMATS.values() if f.sums)
        raise ValueError(f"in_format: got {in_format!r}, expected one of {known}")
    acc_format = format_named(acc_format or sums[0][0]).name
    if instruction is None:
        instruction = default_instruction(target, a_format)
    unit = unit_for(target, a_format, acc_format, instruction)
    emulated = is_emulated(target, a_format, instruction)
    return DotModel(
        target,
        instruction,
        a_format,
        b_format,
        acc_format,
        unit,
        as_format="fp16" if emulated else "",
        order=EMULATION_ORDER if emulated else (),
        part=len(EMULATION_ORDER) if emulated else 0,
    )


def _check_operand(name: str, x: Array, format_name: str) -> None:
    if not isinstance(x, np.ndarray):
        raise ValueError(f"{name}: got {type(x).__name__}, expected a numpy array")
    storage = FORMATS[format_name].storage
    if x.dtype != storage:
        raise ValueError(
            f"{name}: got dtype {x.dtype} ({x.dtype.str}), expected {storage} for {format_name}"
        )
    if x.ndim < 2:
        raise ValueError(f"{name}: got shape {x.shape}, expected at least two axes")


def _read(x: Array, format_name: str) -> Array:
    if format_name == "fp64":
        return x
    return truncate_tf32(x) if format_name == "tf32" else to_fp32(x)


def _flat(x: Array, shape: tuple[int, ...]) -> Array:
    """Return x (..., R, C) as (1 or P, R, C), P the product of the leading axes of `shape`."""
    rows, columns = x.shape[-2:]
    if all(n == 1 for n in x.shape[:-2]):
        return x.reshape(1, rows, columns)
    return np.broadcast_to(x, (*shape[:-2], rows, columns)).reshape(-1, rows, columns)


def slices(K: int, size: int) -> Iterator[slice]:
    yield from (slice(k, k + size) for k in range(0, K, size)) if size else (slice(0, K),)


def _blocks(model: DotModel, a: Array, b: Array, acc: Array) -> Array:
    """Run every tl.dot of the K loop in turn."""
    for ks in slices(a.shape[-1], model.BLOCK_K):
        a_block, b_block = a[..., ks], b[..., ks, :]
        if model.from_zero:
            result = _parts(model, a_block, b_block, np.zeros_like(acc))
            acc = _add(acc, result, model)
        else:
            acc = _parts(model, a_block, b_block, acc)
    return acc


def _parts(model: DotModel, a: Array, b: Array, acc: Array) -> Array:
    """Run one tl.dot: a chain, or chains from zero added to acc."""
    if model.split:
        return _split_chain(model, a, b, acc)
    a, b = order_k(a, b, model.order)
    if not model.part:
        return _chain(model, a, b, acc)
    for ks in slices(a.shape[-1], model.part):
        acc = _add(acc, _chain(model, a[..., ks], b[..., ks, :], np.zeros_like(acc)), model)
    return acc


def _split_chain(model: DotModel, a: Array, b: Array, acc: Array) -> Array:
    """Add the small products first; their NaN (Inf - Inf) gives way to the large product."""
    a_pieces, b_pieces = pieces(a, model.split), pieces(b, model.split)
    terms = SPLITS[model.split]
    for i, j in terms:
        if (i, j) == terms[-1]:
            acc = np.where(np.isnan(acc), acc.dtype.type(0), acc)
        acc = _chain(model, a_pieces[i], b_pieces[j], acc)
    return acc


def _chain(model: DotModel, a: Array, b: Array, acc: Array) -> Array:
    a_fmt = FORMATS[model.as_format or model.a_format]
    b_fmt = FORMATS[model.as_format or model.b_format]
    acc_fmt = FORMATS[model.acc_format]
    if model.unit.kind == "fma":
        return fma_chain(a, b, acc, a_fmt, b_fmt, acc_fmt)
    return fused_chain(a, b, acc, model.unit, a_fmt, b_fmt, acc_fmt)


def _add(x: Array, y: Array, model: DotModel) -> Array:
    """x + y in the accumulator's format, to nearest, NaN canonical."""
    with np.errstate(all="ignore"):
        total: Array = x + y
    nan = np.isnan(total)
    if nan.any():
        total[nan] = FORMATS[model.acc_format].nan
    return total


def order_k(a: Array, b: Array, order: tuple[int, ...]) -> tuple[Array, Array]:
    """Return both operands with k in the unit's order, zeros appended to whole groups."""
    if not order:
        return a, b
    K, group = a.shape[-1], len(order)
    tail = -K % group
    if tail:
        a = np.concatenate([a, np.zeros((*a.shape[:-1], tail), a.dtype)], axis=-1)
        b = np.concatenate([b, np.zeros((*b.shape[:-2], tail, b.shape[-1]), b.dtype)], axis=-2)
    ks = (np.arange(0, K + tail, group)[:, None] + np.array(order)).reshape(-1)
    return a[..., ks], b[..., ks, :]


def _integer_chain(a: Array, b: Array, acc: Array, unit: Unit) -> Array:
    """int8 products onto int32: exact, wrapping, or clamped after every L products."""
    wide = acc.astype(np.int64)
    K = a.shape[-1]
    near = int(np.abs(wide).max(initial=0)) + K * 2**14 >= 2**31
    for ks in slices(K, unit.L if unit.saturates and near else 0):
        # exact: sums of int8 products stay below 2**53
        product = a[..., ks].astype(np.float64) @ b[..., ks, :].astype(np.float64)
        wide = wide + product.astype(np.int64)
        if unit.saturates:
            wide = np.clip(wide, -(2**31), 2**31 - 1)
    return wide.astype(np.int32)

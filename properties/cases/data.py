"""The elements of a case's operands, as tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from gemmproof.properties.cases.case import EXACT_FILLS, Case
from gemmproof.properties.contract import ROLES, Role
from gemmproof.properties.kernel import Operand, call_by_name
from gemmproof.reference.arithmetic import Array, round_to
from gemmproof.reference.formats import FORMATS, Format

# -- tensors -------------------------------------------------------------------------------------
TORCH_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {f.name: getattr(torch, f.dtype) for f in FORMATS.values()}
)
_RESULTS = {TORCH_DTYPES[f.name]: f for f in FORMATS.values() if f.result}


def format_of_tensor(tensor: torch.Tensor) -> Format | None:
    """Return the format of a tensor's elements, None for a dtype that no GEMM result has."""
    return _RESULTS.get(tensor.dtype)


def share_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether two tensors share one storage."""
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr() != 0


def overwrite(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Overwrite a tensor in place with the elements of another of its shape and strides."""
    if tensor.layout is not torch.strided:  # sparse, in a global of the wrapper's module
        tensor.copy_(other)
        return
    # along an expanded axis all elements share one address, and torch does not write to them all
    own = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
    tensor[own].copy_(other[own])


def as_tensor(storage: Array, dtype: str) -> torch.Tensor:
    """Return a tensor of format `dtype` on the memory of a contiguous storage array."""
    return torch.from_numpy(storage.view(f"i{storage.itemsize}")).view(TORCH_DTYPES[dtype])


def as_array(tensor: torch.Tensor) -> Array:
    """Return a contiguous copy of a CPU tensor's elements, as a storage array of its format.

    Raises ValueError for a dtype without a format.
    """
    fmt = format_of_tensor(tensor)
    if fmt is None:
        known = " ".join(f.name for f in _RESULTS.values())
        raise ValueError(f"tensor dtype: got {tensor.dtype}, expected one of {known}")
    carrier = tensor.detach().clone(memory_format=torch.contiguous_format)
    return carrier.view(getattr(torch, f"int{8 * fmt.itemsize}")).numpy().view(fmt.storage)


# -- data ----------------------------------------------------------------------------------------
# A seed with which NaN and Inf of operands beside a and b meet sums that are numbers, and their
# zeros meet sums that are none, in special data of some forty rows and columns.
ODD_SEED = 11
# Two of 8 seeds: the first half of K of a, or of b, is zeros in special and wide data, so that
# whole tiles of zeros meet NaN and Inf, and numbers follow. A third: whole lines of both are.
ZERO_SEEDS = (6, 7)
ZERO_LINES_SEED = 5
_CHOICES = 2  # the stream of hashes that selects elements; the values of operands use other streams


def window(fmt: Format) -> int:
    """Return the bound of sum_k |a_ik b_kj| that `index` data keep wherever K allows.

    Then every partial sum, in any order and any association, is an integer that the accumulator
    holds exactly: fp32 to 2**24, the fp8 chains of Hopper and Ada to 2**14 (their sums keep 14
    significant bits), fp16 to 2**11. An output of the operands' format holds the result exactly
    too, fp8 apart, where 2**8 keeps it below 448, the largest fp8e4m3. Beyond K = window the values
    are +-1 and the sums stay within K.
    """
    return 2 ** min(max(fmt.stored.p, 8), fmt.emax)


def elements(case: Case, role: Role, shape: tuple[int, ...], fmt: Format | None = None) -> Array:
    """Return the values of an operand, (batch, rows, columns), as a storage array.

    `shape` may have sides of 1 where the layout repeats one element along an axis. `fmt` is the
    case's unless one is given.
    """
    fmt = fmt or case.format
    k_axis = role.k_axis
    indices = np.indices(shape, dtype=np.uint64, sparse=True)
    if case.fill == "cancelling":
        # the second half of K cancels the first: a negated, b equal but for one element in eight
        half = np.uint64(shape[k_axis] // 2)
        k = indices[k_axis]
        second = (k >= half) & (k < half + half)
        folded = tuple(np.where(second, x - half, x) if x is k else x for x in indices)
        x = _plain(case, role, folded, fmt)
        if role.number == 0:
            x = np.where(second, -x, x)
        else:
            differs = second & (_hash(case.seed, _CHOICES, indices) % np.uint64(8) == 0)
            x = np.where(differs, _plain(case, role, indices, fmt), x)
    else:
        # the elements of a line are those of its first index along K if all are equal
        is_equal = case.fill == "equal"
        first = (x * 0 if is_equal and i == k_axis else x for i, x in enumerate(indices))
        x = _plain(case, role, tuple(first), fmt)
        if is_equal and role.number > 0 and case.K > window(fmt):  # the sums would leave the range
            x = np.where(indices[k_axis] & np.uint64(1), -x, x)
        if case.fill in _SHAPED and fmt.kind == "float":
            x = _SHAPED[case.fill](case, role, indices, x, fmt)
        if case.fill in ("special", "wide") and case.seed % 8 == ZERO_SEEDS[role.number]:
            x = np.where(indices[k_axis] < np.uint64((shape[k_axis] + 1) // 2), 0.0, x)
        has_zero_lines = case.fill in ("special", "wide") and case.seed % 8 == ZERO_LINES_SEED
        if case.fill == "zeros" or has_zero_lines:
            # one line in three is zeros, and one in three up to the middle of K
            turn = (indices[3 - k_axis] + np.uint64(role.number)) % np.uint64(3)
            end = np.where(turn == 1, shape[k_axis], np.where(turn == 2, shape[k_axis] // 2, 0))
            x = np.where(indices[k_axis] < end.astype(np.uint64), 0.0, x)
    x = np.broadcast_to(x, shape)
    return x.astype(fmt.storage) if fmt.kind == "int" else round_to(np.ascontiguousarray(x), fmt)


def further_elements(
    case: Case, operand: Operand, shape: tuple[int, ...], number: int, known: Mapping[str, Any]
) -> Array:
    """Return the values of a declared operand: from its function or range, or distinct ones.

    `number` distinguishes it from other operands; the number of a or b means that it replaces that
    operand, with the elements that it would have in its format. `known` are sizes, Python values
    and elements of other operands, which a function may ask for by name.

    Floats are signed powers of two from 2**-3 to 2**4, times 1 to 2 if the fill is not exact; no
    two neighbours along an axis are the same, so that a swap of two is detected. Special data have
    NaN, Inf and zeros of both signs among them, but for scalars. Raises ValueError if the function
    gives another shape.
    """
    fmt = FORMATS[operand.format]
    if callable(operand.values):
        rng = np.random.default_rng(case.seed)
        values = np.asarray(call_by_name(operand.values, rng, shape, **known))
        if values.shape != shape:
            raise ValueError(f"operand values: got shape {values.shape}, expected {shape}")
        return values.astype(fmt.storage) if fmt.kind == "int" else round_to(values, fmt)
    role = next((role for role in ROLES.values() if role.number == number), None)
    usual = operand.values is None and (fmt.kind == "float" or fmt.name == "int8")
    if role is not None and usual and operand.axes[-2:] == role.axes:
        return elements(case, role, (1, *shape)[-3:], fmt).reshape(shape)
    indices = np.indices(shape, dtype=np.uint64)
    code = _hash(case.seed, number + 1, tuple(indices)).reshape(shape)
    if fmt.kind == "int":
        info = np.iinfo(fmt.storage)
        low, high = operand.values or (max(info.min, -(2**30)), min(info.max, 2**30))
        return (low + (code % np.uint64(high - low + 1)).astype(np.int64)).astype(fmt.storage)
    step = sum((index * np.uint64(3 + 2 * i) for i, index in enumerate(indices)), np.uint64(0))
    step = step + np.uint64(case.seed + 3 * number)  # scalars differ from each other as well
    exponent = (step % np.uint64(8)).astype(np.int64) - 3
    # a tie of the sums stays a tie when scaled by a power of two
    powers = case.fill in (*EXACT_FILLS, "ties")
    value = np.ldexp(1.0, exponent) * (1.0 if powers else 1 + _uniform(code))
    value = np.asarray(_signed(code, value))
    if case.fill == "special" and shape and fmt.emin < 0 < fmt.p - 1:
        value = _spread_odd(value, np.asarray(step), fmt)
    return round_to(value, fmt)


def _plain(case: Case, role: Role, indices: tuple[Array, ...], fmt: Format) -> Array:
    code = _hash(case.seed, role.number + (role.number >= _CHOICES), indices)
    if case.fill in (*EXACT_FILLS, "special", "ties"):
        top = min(_amplitude(case.K, fmt), _amplitude(case.K, case.format))
        magnitude = (code >> np.uint64(1)) % np.uint64(top) + np.uint64(1)
        return _signed(code, magnitude.astype(np.float64))
    if fmt.kind == "int":
        byte = (code >> np.uint64(8)) % np.uint64(256)
        if case.fill == "positive":
            return (byte % np.uint64(128)).astype(np.float64)
        if case.fill == "wide":
            return np.array([-128.0, 127.0, 0.0, -1.0, 1.0])[(code % np.uint64(5)).astype(np.intp)]
        return np.maximum(byte.astype(np.float64) - 128, -127)
    if case.fill == "positive":
        return _uniform(code)
    if case.fill == "wide":
        high, low = _exponents(case.K, fmt)
        e = low + (code % np.uint64(high - low + 1)).astype(np.int64)
        return _signed(code >> np.uint64(8), np.ldexp(1 + _uniform(code), e))
    # the sum of four uniforms: near enough to a normal variate, and the same bits on every host
    parts = [((code >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.float64) for i in range(4)]
    return (parts[0] + parts[1] + parts[2] + parts[3] - 2 * 0xFFFF) / 37837.0  # sqrt(4/12) * 2**16


def _special(case: Case, role: Role, indices: tuple[Array, ...], x: Array, fmt: Format) -> Array:
    """Return index data in which some rows of a and columns of b have special or large elements.

    By a hash of the line: NaN, Inf, -Inf, -0 among zeros, a subnormal, or a line of large numbers
    whose products with another such line overflow fp16 and fp8 but not fp32. Three in eight lines
    stay plain, so most elements of c are numbers that no special value may reach.
    """
    line, k = indices[3 - role.k_axis], indices[role.k_axis]
    code = _hash(case.seed * 2 + role.number, _CHOICES, (indices[0], line))
    kind = code % np.uint64(8)
    here = k == (code >> np.uint64(8)) % np.uint64(max(case.K, 1))
    inf = np.inf if fmt.has_inf else np.nan
    large = 2.0 ** min(fmt.emax, 60)
    for number, value in enumerate((np.nan, inf, -inf, -0.0, 2.0 ** (fmt.emin - fmt.p + 1))):
        x = np.where((kind == number) & here, value, x)
    zeros = (kind == 3) & ~here & (k % np.uint64(2) == 0)
    x = np.where(zeros, 0.0, x)
    return np.where(kind == 5, np.copysign(large, x), x)


def _spread_odd(x: Array, step: Array, fmt: Format) -> Array:
    """Return x with NaN, Inf, -Inf, 0 and -0 in one place of 16 each, which `step` counts."""
    inf = np.inf if fmt.has_inf else np.nan
    for number, value in enumerate((np.nan, inf, -inf, 0.0, -0.0)):
        x = np.where(step % np.uint64(16) == number, value, x)
    return x


def _subnormal(case: Case, role: Role, indices: tuple[Array, ...], x: Array, fmt: Format) -> Array:
    """Return lines of subnormals, of large numbers and of numbers near 1 in turn, b one ahead of a.

    Subnormals times large numbers are normal: there a flush of one operand loses all of c.
    Subnormals times numbers near 1 are subnormal in the format: there a flush of the sum or of the
    result does. Large numbers lift all subnormals of bf16 and fp32 to normal numbers, those of
    narrower ranges as far as sums of their squares stay in range.
    """
    kind = (indices[3 - role.k_axis] + np.uint64(role.number)) % np.uint64(3)
    code = _hash(case.seed, role.number + _CHOICES + 1, indices)
    steps = 1 + (code >> np.uint64(8)) % np.uint64(2 ** (fmt.p - 1) - 1)
    low = _signed(code, steps.astype(np.float64) * fmt.eta)
    near = _signed(code, 1 + _uniform(code))
    high, _ = _exponents(case.K, fmt)
    large, unit = 2.0 ** min(fmt.p + 16, high), 2.0 ** min(0, high)
    return np.where(kind == 0, low, near * np.where(kind == 1, large, unit))


def tie_bits(fmt: Format) -> int:
    """Return how many bits the sums of `ties` data have, which an accumulator must hold.

    All that fp32 holds; for fp8 the 14 that its units keep.
    """
    return FORMATS["e8m13" if fmt.is_fp8 else "fp32"].p


def _ties(case: Case, role: Role, indices: tuple[Array, ...], x: Array, fmt: Format) -> Array:
    """Return data whose sums no accumulator rounds, a last bit off a tie of a narrow result.

    A row of a holds t, t * 2**-p and +-t * 2**-13 at three consecutive indices, and zeros; p is the
    precision of an fp8 format, bf16 or fp16, in turn. b holds +-1, one sign a column. Rounding
    first to another format of 8 to 11 bits loses the last term, and the tie then goes to even. In
    every other group of rows of formats wider than fp8 that term is t * 2**-23, which sums or
    roundings of up to 23 bits lose.
    """
    if role.number > 0:
        return np.where(_hash(case.seed, _CHOICES + 1, (indices[2],)) & np.uint64(1), -1.0, 1.0)
    row, turns = indices[1], np.uint64(len(_TIED))
    narrow = np.array(_TIED)[(row % turns).astype(np.intp)]
    K = np.uint64(max(case.K, 1))
    first = _hash(case.seed, _CHOICES, (indices[0], row)) % K
    index = (indices[2] + K - first) % K
    bits = np.where(row // (turns + turns) & np.uint64(1), tie_bits(fmt), FORMATS["e8m13"].p)
    top = 2.0 ** (4 if fmt.is_fp8 else 10)  # neither overflows nor gives subnormals
    last = _signed(row // turns, np.ldexp(top, 1 - bits))
    return np.select([index == 0, index == 1, index == 2], [top, top * 2.0**-narrow, last], 0.0)


# Precisions at which results are rounded twice: those of fp8, bf16 and fp16.
_TIED = sorted({float(f.p) for f in FORMATS.values() if f.is_fp8 or f.name in ("bf16", "fp16")})
TIE_ROWS = 4 * len(_TIED)  # rows of a after which the kinds of `ties` data repeat
_SHAPED = {"special": _special, "subnormal": _subnormal, "ties": _ties}


def _amplitude(K: int, fmt: Format) -> int:
    """Return the largest |element| of `index` data: exact in fmt, K * amplitude**2 <= window."""
    if fmt.kind == "int":
        return 127  # an int32 accumulator holds 2**17 products
    exact = min(2**fmt.p, 2**11)  # tf32 reads 11 bits of fp32
    return max(1, min(exact, math.isqrt(window(fmt) // max(K, 1))))


def _exponents(K: int, fmt: Format) -> tuple[int, int]:
    """Return the highest and the lowest exponent of `wide` data.

    K products of factors below 2**(high + 1) sum to at most 2**(emax - 1), so no output of the
    operands' format overflows. The lowest reaches the format's subnormals, or 2**-60 where the
    format has fp32's range and products would leave that of the accumulator.
    """
    spare = min(fmt.emax, 100) - 3 - max(K - 1, 0).bit_length()
    high = spare // 2
    low = max(fmt.emin - fmt.p + 1, -60)
    return max(high, low), low


def _hash(seed: int, stream: int, indices: tuple[Array, ...]) -> Array:
    """Return 64 well-mixed bits per index (the finaliser of splitmix64, once per coordinate)."""
    code: Array = np.full((1,) * max(len(indices), 1), seed * 8 + stream + 1, np.uint64)
    for coordinate in indices or (np.zeros(1, np.uint64),):
        code = code * np.uint64(0x9E3779B97F4A7C15) + coordinate + np.uint64(1)
        code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        code = code ^ (code >> np.uint64(31))
    return code


def _uniform(code: Array) -> Array:
    """Return numbers in [0, 1) on a grid of 2**-40, from the upper bits."""
    return (code >> np.uint64(24)).astype(np.float64) * 2.0**-40


def _signed(code: Array, magnitude: Array) -> Array:
    return np.where((code & np.uint64(1)).astype(bool), -magnitude, magnitude)

"""Checks of a wrapper's arguments: types, formats, shapes, and memory that is shared."""

from __future__ import annotations

import math

import torch


def check_tensor(where: str, name: str, x: torch.Tensor, formats: tuple[torch.dtype, ...]) -> None:
    """Raise TypeError unless x is a dense tensor of one of some formats."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{where}: got {name} of {type(x).__name__}, expected torch.Tensor")
    if x.layout != torch.strided:
        raise TypeError(f"{where}: got {name} with {x.layout}, expected torch.strided")
    if x.dtype not in formats:
        raise TypeError(f"{where}: got {name} of {x.dtype}, expected {join_names(formats)}")


def check_operand(
    where: str, name: str, x: torch.Tensor, formats: tuple[torch.dtype, ...], rank: int = 2
) -> None:
    """Raise TypeError or ValueError unless x is a tensor of these formats and dimensions."""
    check_tensor(where, name, x, formats)
    if x.dim() != rank:
        expected = ("no dimension", "one dimension", "two dimensions", "three dimensions")[rank]
        raise ValueError(f"{where}: got {name} of shape {tuple(x.shape)}, expected {expected}")


def check_out(
    where: str,
    out: torch.Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    **operands: torch.Tensor,
) -> None:
    """Raise TypeError or ValueError unless `out` has the format, the shape and its own memory.

    The first of the operands says on which device `out` is to be.
    """
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"{where}: got out of {type(out).__name__}, expected torch.Tensor")
    if out.layout != torch.strided or out.is_neg():
        raise TypeError(
            f"{where}: got out with {out.layout} (negated: {out.is_neg()}), expected torch.strided"
        )
    if out.dtype != dtype:
        raise TypeError(f"{where}: got out of {out.dtype}, expected {dtype}")
    device = next(iter(operands.values())).device
    if out.device != device:
        raise TypeError(f"{where}: got out on {out.device}, expected {device}")
    if tuple(out.shape) != shape:
        raise ValueError(f"{where}: got out of shape {tuple(out.shape)}, expected {shape}")
    if _overlaps_itself(out):
        raise ValueError(
            f"{where}: got out with shape {shape} and strides {out.stride()}, "
            "expected one address per element"
        )
    for name, x in operands.items():
        if may_overlap(out, x):
            raise ValueError(
                f"{where}: got out in the memory of {name}, expected memory of its own"
            )


def _overlaps_itself(x: torch.Tensor) -> bool:
    """Return whether two elements share an address; assumed for three axes that interleave.

    An axis whose stride passes the extent of those of smaller strides is out of the question.
    i stride0 = j stride1 has the smallest solution (stride1 / g, stride0 / g), g the gcd.
    """
    if x.numel() == 0:
        return False
    axes = sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n > 1)
    while axes and axes[-1][0] > sum((n - 1) * s for s, n in axes[:-1]):
        axes.pop()
    if len(axes) != 2:
        return len(axes) > 0
    (stride0, rows), (stride1, columns) = axes
    g = math.gcd(stride0, stride1)
    return g == 0 or (stride1 // g < rows and stride0 // g < columns)


def may_overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether two views may share a byte; exact for blocks of one parent."""
    if x.numel() == 0 or y.numel() == 0:
        return False
    low_x, low_y = x.data_ptr(), y.data_ptr()
    if low_x + _extent(x) <= low_y or low_y + _extent(y) <= low_x:
        return False
    # Modulo a stride each view is one arc: disjoint arcs never meet.
    pitches = {s * z.element_size() for z in (x, y) for s in z.stride() if s > 0}
    return all(
        (low_y - low_x) % pitch < _extent(x, pitch) or (low_x - low_y) % pitch < _extent(y, pitch)
        for pitch in pitches
    )


def _extent(x: torch.Tensor, pitch: int | None = None) -> int:
    """Bytes from the first to past the last element; axes of multiples of a pitch are excluded."""
    size = x.element_size()
    last = sum(
        (n - 1) * s
        for n, s in zip(x.shape, x.stride(), strict=True)
        if pitch is None or s * size % pitch
    )
    return (last + 1) * size


def join_names(dtypes: tuple[torch.dtype, ...]) -> str:
    return " or ".join(str(dtype) for dtype in dtypes)

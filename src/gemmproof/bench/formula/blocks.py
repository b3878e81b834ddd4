"""Which blocks of c are sampled, and the part of each operand that such a block needs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

import torch

from gemmproof.properties.contract import evaluate

# Along each axis: lengths of a block, and what the start of one in the middle is a multiple of, if
# the length is no more, so that axes such as "N // 128" can be cut too.
LENGTHS: Mapping[str, tuple[int, ...]] = {"M": (16, 128, 256), "N": (32, 128, 256), "batch": (1,)}
STEPS: Mapping[str, int] = {"M": 128, "N": 128, "batch": 1}
Span = tuple[int, int]
Block = Mapping[str, Span]


def find_spans(axis: str, sizes: Mapping[str, int], texts: Iterable[str]) -> list[Span]:
    """The first, a middle and the last block of an axis; the last one reaches its end.

    One span, the whole axis, where it is short, or no blocks of the axis are blocks of all `texts`,
    the axes of operands that are stated over it.
    """
    length, known = sizes[axis], list(texts)
    for width in LENGTHS[axis]:
        step = max(width, STEPS[axis])
        middle, aligned = length // step // 2 * step, (length - 1) // step * step
        ends = [((length - 1) // width * width, length), (aligned, length)]
        last = [span for span in ends if _fits(axis, span, sizes, known)][:1]
        spans = dict.fromkeys([(0, min(width, length)), (middle, middle + width), *last])
        found = [span for span in spans if _fits(axis, span, sizes, known)]
        if found and found[0][0] == 0:
            return found
    return [(0, length)]


def find_trial(
    axis: str, spans: list[Span], sizes: Mapping[str, int], texts: Iterable[str]
) -> tuple[Span, Span]:
    """A part of an axis from 0 on, of two blocks where it has them, and the last block of it."""
    width, length = spans[0][1], sizes[axis]
    step = max(width, STEPS[axis])
    if len(spans) == 1:
        return (0, min(2 * step, length)), spans[0]
    near = [(start, min(start + width, length)) for start in (width, step)]
    second = next(s for s in (*near, spans[1]) if _fits(axis, s, sizes, list(texts)))
    return (0, second[1]), second


def cut(
    x: torch.Tensor, axes: Iterable[str | int], sizes: Mapping[str, int], block: Block
) -> torch.Tensor:
    """The part of an operand that a block of c needs; other axes, such as K, are whole."""
    index = []
    for axis in axes:
        named = sorted(list_names(axis) & set(block))
        if not named:
            index.append(slice(None))
            continue
        start, stop = block[named[0]]
        first = _size(axis, named[0], start, sizes)
        index.append(slice(first, first + _size(axis, named[0], stop - start, sizes)))
    return x[tuple(index)]


def list_texts(axis: str, shapes: Iterable[Iterable[str | int]]) -> list[str]:
    """The axes of operands that are stated over an axis of c."""
    return [text for shape in shapes for text in map(str, shape) if axis in list_names(text)]


def _fits(axis: str, span: Span, sizes: Mapping[str, int], texts: Iterable[str]) -> bool:
    """Whether a span of an axis is one of every text: each x of it lies as far as if it began at 0.

    size(start + x) = size(start) + size(x) for every x up to the span's length, which has some.
    """
    start, stop = span
    if not start < stop <= sizes[axis]:
        return False
    for text in texts:
        if len(list_names(text) & set(LENGTHS)) > 1:
            return False
        first = _size(text, axis, start, sizes)
        own = [_size(text, axis, x, sizes) for x in range(stop - start + 1)]
        if own[0] != 0 or own[-1] < 1:
            return False
        if any(_size(text, axis, start + x, sizes) != first + n for x, n in enumerate(own)):
            return False
    return True


def _size(text: str | int, axis: str, length: int, sizes: Mapping[str, int]) -> int:
    return evaluate(str(text), {"batch": 1, **sizes, axis: length})


def list_names(text: str | int) -> set[str]:
    """What an axis is stated over."""
    return {n.id for n in ast.walk(ast.parse(str(text))) if isinstance(n, ast.Name)}

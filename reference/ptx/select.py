"""PTX instructions that compare, select and move."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, widen
from gemmproof.reference.ptx.floats import FLUSHED, HALVES, flush
from gemmproof.reference.ptx.operation import TYPES, Family, Opcode, Words, elementwise

Compare = Callable[[Array, Array], Array]

_ORDERED: dict[str, Compare] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _unordered(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


def _or_unordered(compare: Compare) -> Compare:
    return lambda a, b: compare(a, b) | _unordered(a, b)


def _and_ordered(compare: Compare) -> Compare:
    return lambda a, b: compare(a, b) & ~_unordered(a, b)


# NaN makes every comparison of floats false, .ne included; those that end in u, true.
_FLOAT: dict[str, Compare] = {
    **{name: _and_ordered(compare) for name, compare in _ORDERED.items()},
    **{f"{name}u": _or_unordered(compare) for name, compare in _ORDERED.items()},
    "num": lambda a, b: ~_unordered(a, b),
    "nan": _unordered,
}
_SAME = {name: _ORDERED[name] for name in ("eq", "ne")}
_UNSIGNED = _ORDERED | {
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_BY_KIND = {"f": _FLOAT, "s": _ORDERED, "u": _UNSIGNED, "b": _SAME}

_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}

_COMPARED = tuple(
    name
    for name, t in TYPES.items()
    if (t.kind in "bus" and t.width >= 16 and t.lanes == 1) or name in (*HALVES, "f32", "f64")
)


def _comparison(words: Words, t: str) -> Compare:
    kind = TYPES[t].kind
    compare = words.pick(_BY_KIND[kind])
    flushes = t in FLUSHED and words.flag("ftz")

    def run(a: Array, b: Array) -> Array:
        if flushes:
            a, b = flush(a), flush(b)
        return compare(widen(a), widen(b)) if kind == "f" else compare(a, b)

    return run


def _set_predicate(words: Words) -> Opcode:
    """setp: p, and q from the opposite; of a pair, p from the low and q from the high lane."""
    t = words.one_type(*_COMPARED)
    combine = words.pick(_COMBINE) if set(words.left) & set(_COMBINE) else None
    compare = _comparison(words, t)
    lanes = TYPES[t].lanes

    def run(a: Array, b: Array, *c: Array) -> tuple[Array, Array]:
        truth = compare(a, b)
        p, q = (truth[0::2], truth[1::2]) if lanes == 2 else (truth, ~truth)
        return (combine(p, *c), combine(q, *c)) if combine else (p, q)

    reads = (t, t, "pred") if combine else (t, t)
    # a pair has two truths, so q is not optional
    return Opcode(("pred", "pred"), reads, run, optional=2 - lanes)


def _set(words: Words) -> Opcode:
    """set: all ones, or 1.0 in a float result, where the comparison holds."""
    found = words.types()
    results = {"u16", "s16", "u32", "s32", "f16", "bf16", "f32", "f16x2", "bf16x2"}
    if len(found) != 2 or found[0] not in results or found[1] not in _COMPARED:
        raise words.unknown("expected a result type and a type to compare")
    target, t = (TYPES[f] for f in found)
    if t.lanes != target.lanes:
        raise words.unknown("expected two types of as many lanes")
    compare = _comparison(words, t.name)
    true: Any = 1 if target.kind == "f" else -1

    def run(a: Array, b: Array) -> Array:
        return np.where(compare(a, b), np.array(true).astype(target.dtype), target.dtype.type(0))

    return Opcode((target.name,), (t.name, t.name), run)


_MOVED = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")


def _select(words: Words) -> Opcode:
    t = words.one_type(*_MOVED)
    return Opcode((t,), (t, t, "pred"), lambda a, b, p: np.where(p, a, b))


def _select_by_sign(words: Words) -> Opcode:
    found = words.types()
    if len(found) != 2 or found[0] not in _MOVED or found[1] not in ("s32", "f32"):
        raise words.unknown("expected a type, then s32 or f32")
    t, by = found
    flushes = by == "f32" and words.flag("ftz")

    def run(a: Array, b: Array, c: Array) -> Array:
        return np.where((flush(c) if flushes else c) >= 0, a, b)

    return Opcode((t,), (t, t, by), run)


FAMILIES: dict[str, Family] = {
    "setp": _set_predicate,
    "set": _set,
    "selp": _select,
    "slct": _select_by_sign,
    "mov": elementwise(lambda a: a, 1, *_MOVED, "pred", *HALVES),
}

"""PTX instructions on integers, comparisons and selections."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gemmproof.reference import bitwise
from gemmproof.reference.arithmetic import Array, widen
from gemmproof.reference.ptx.float_instructions import FLUSHED, HALVES, flush
from gemmproof.reference.ptx.instruction_operands import TYPES, Family, Opcode, Words, elementwise

# -- integers ------------------------------------------------------------------------------------
SIGNED = ("s16", "s32", "s64")
NUMBERS = ("u16", "u32", "u64", *SIGNED)
PAIRS = ("u16x2", "s16x2")
UNTYPED = ("b16", "b32", "b64")


def _add(mnemonic: Words) -> Opcode:
    # u32's wrapping sum has the bits of s32's; only .sat asks for the sign
    saturates = mnemonic.flag("sat")
    t = mnemonic.one_type(*(("s32",) if saturates else NUMBERS + PAIRS))
    compute: Callable[..., Any] = np.add if mnemonic.root == "add" else np.subtract
    if saturates:
        compute = partial(_saturate, compute)
    return Opcode((t,), (t, t), compute)


def _saturate(compute: Callable[..., Any], *args: Array) -> Array:
    info = np.iinfo(args[0].dtype)
    wide = compute(*(a.astype(np.int64) for a in args))
    return np.clip(wide, info.min, info.max).astype(args[0].dtype)


def _multiply(mnemonic: Words) -> Opcode:
    part = mnemonic.one_of("lo", "hi", "wide")
    t = mnemonic.one_type(*(x for x in NUMBERS if part != "wide" or x[1:] != "64"))
    saturates = part == "hi" and t == "s32" and mnemonic.root == "mad" and mnemonic.flag("sat")
    wide = f"{t[0]}{2 * TYPES[t].width}" if part == "wide" else t
    target = TYPES[wide].dtype

    def product(a: Array, b: Array) -> Array:
        if part == "hi":
            return bitwise.multiply_high(a, b)
        return a.astype(target) * b.astype(target)

    if mnemonic.root == "mul":
        return Opcode((wide,), (t, t), product)
    add: Callable[..., Any] = partial(_saturate, np.add) if saturates else np.add
    return Opcode((wide,), (t, t, wide), lambda a, b, c: add(product(a, b), c))


def _divide(mnemonic: Words) -> Opcode:
    """div and rem. By zero, which PTX leaves to the hardware: all ones, and the dividend."""
    t = mnemonic.one_type(*NUMBERS)

    def compute(a: Array, b: Array) -> Array:
        rest = np.where(b == 0, a, np.fmod(a, b))
        if mnemonic.root == "rem":
            return rest
        return np.where(b == 0, np.array(-1).astype(a.dtype), (a - rest) // b)

    return Opcode((t,), (t, t), compute)


def _extreme(mnemonic: Words) -> Opcode:
    relu = mnemonic.flag("relu")
    t = mnemonic.one_type(*(("s32", "s16x2") if relu else NUMBERS + PAIRS))
    pick = np.minimum if mnemonic.root == "min" else np.maximum
    return Opcode(
        (t,), (t, t), lambda a, b: np.maximum(pick(a, b), 0).astype(a.dtype) if relu else pick(a, b)
    )


def _sad(mnemonic: Words) -> Opcode:
    t = mnemonic.one_type(*NUMBERS)
    unsigned = t.replace("s", "u")
    dtype = TYPES[unsigned].dtype
    return Opcode(
        (unsigned,),
        (t, t, unsigned),
        lambda a, b, c: bitwise.subtract_absolutely(a, b).view(dtype) + c,
    )


def _logic3(mnemonic: Words) -> Opcode:
    mnemonic.one_type("b32")

    def compute(a: Array, b: Array, c: Array, lut: Array) -> Array:
        d = np.zeros_like(a)
        for i in range(8):
            row = [x if i >> k & 1 else ~x for x, k in ((a, 2), (b, 1), (c, 0))]
            d |= np.where(lut >> np.uint64(i) & np.uint64(1) == 1, row[0] & row[1] & row[2], 0)
        return d.astype(np.uint32)

    return Opcode(("b32",), ("b32", "b32", "b32", "literal"), compute)


def _shift(mnemonic: Words) -> Opcode:
    left = mnemonic.root == "shl"
    t = mnemonic.one_type(*(UNTYPED if left else UNTYPED + NUMBERS))
    return Opcode((t,), (t, "u32"), bitwise.shift_left if left else bitwise.shift_right)


def _funnel(mnemonic: Words) -> Opcode:
    left = mnemonic.one_of("l", "r") == "l"
    wraps = mnemonic.one_of("wrap", "clamp") == "wrap"
    mnemonic.one_type("b32")

    def compute(a: Array, b: Array, c: Array) -> Array:
        count = (c & np.uint32(31) if wraps else np.minimum(c, np.uint32(32))).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        if left:
            return ((both << count) >> np.uint64(32)).astype(np.uint32)
        return (both >> count).astype(np.uint32)

    return Opcode(("b32",), ("b32", "b32", "u32"), compute)


def _extract(mnemonic: Words) -> Opcode:
    t = mnemonic.one_type("u32", "u64", "s32", "s64")
    width, unsigned = TYPES[t].width, TYPES[f"u{t[1:]}"].dtype

    def compute(x: Array, position: Array, length: Array) -> Array:
        a = x.view(unsigned)
        pos, count = (v.astype(np.int64) & 0xFF for v in (position, length))
        field = bitwise.shift_right(a, pos) & bitwise.low_mask(count, unsigned)
        top = np.minimum(pos + count - 1, width - 1)
        sign = (bitwise.shift_right(a, np.maximum(top, 0)) & unsigned.type(1)) == 1
        fill = sign & (count > 0) & (t[0] == "s")
        valid = np.minimum(count, np.maximum(width - pos, 0))
        return np.where(fill, field | ~bitwise.low_mask(valid, unsigned), field).view(x.dtype)

    return Opcode((t,), (t, "u32", "u32"), compute)


def _insert(mnemonic: Words) -> Opcode:
    t = mnemonic.one_type("b32", "b64")

    def compute(a: Array, b: Array, position: Array, length: Array) -> Array:
        pos, count = (v.astype(np.int64) & 0xFF for v in (position, length))
        mask = bitwise.shift_left(bitwise.low_mask(count, a.dtype), pos)
        return (b & ~mask) | (bitwise.shift_left(a, pos) & mask)

    return Opcode((t,), (t, t, "u32", "u32"), compute)


# PTX ISA, prmt: each mode's selector, by the low two bits of the operand.
_BYTE_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def _permute(mnemonic: Words) -> Opcode:
    mnemonic.one_type("b32")
    selectors = np.array(mnemonic.pick(_BYTE_MODES), np.uint32) if mnemonic.left else None

    def compute(a: Array, b: Array, c: Array) -> Array:
        return bitwise.permute_bytes(a, b, c if selectors is None else selectors[c & 3])

    return Opcode(("b32",), ("b32", "b32", "b32"), compute)


def _count(mnemonic: Words) -> Opcode:
    t = mnemonic.one_type("b32", "b64")
    table = {"popc": bitwise.count_ones, "clz": bitwise.count_leading_zeros}
    compute = table[mnemonic.root]
    return Opcode(("u32",), (t,), lambda a: compute(a).astype(np.uint32))


def _find(mnemonic: Words) -> Opcode:
    from_top = mnemonic.flag("shiftamt")
    t = mnemonic.one_type("u32", "u64", "s32", "s64")
    width = TYPES[t].width

    def compute(a: Array) -> Array:
        index = bitwise.highest_bit(np.where(a < 0, ~a, a))
        return np.where(from_top & (index >= 0), width - 1 - index, index).astype(np.uint32)

    return Opcode(("u32",), (t,), compute)


def _dot(mnemonic: Words) -> Opcode:
    """dp4a and dp2a: a sum of products of bytes, or of halves and bytes, onto 32 bits."""
    four = mnemonic.root == "dp4a"
    upper = not four and mnemonic.one_of("lo", "hi") == "hi"
    types = mnemonic.types()
    if len(types) != 2 or not set(types) <= {"u32", "s32"}:
        raise mnemonic.unknown("expected two types of u32 s32")
    total = "s32" if "s32" in types else "u32"
    left, right = (f[0].replace("s", "i") for f in types)

    def compute(a: Array, b: Array, c: Array) -> Array:
        x = a.view(f"{left}{1 if four else 2}").reshape(a.size, -1).astype(np.int64)
        y = b.view(f"{right}1").reshape(b.size, 4).astype(np.int64)
        y = y if four else y[:, 2:] if upper else y[:, :2]
        return ((x * y).sum(axis=1) + c.astype(np.int64)).astype(c.dtype)

    return Opcode((total,), (types[0], types[1], total), compute)


INTEGER_FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("add", "sub"), _add),
    **dict.fromkeys(("mul", "mad"), _multiply),
    **dict.fromkeys(("div", "rem"), _divide),
    **dict.fromkeys(("min", "max"), _extreme),
    **dict.fromkeys(("shl", "shr"), _shift),
    **dict.fromkeys(("popc", "clz"), _count),
    **dict.fromkeys(("dp4a", "dp2a"), _dot),
    "abs": elementwise(np.abs, 1, *SIGNED),
    "neg": elementwise(np.negative, 1, *SIGNED),
    "and": elementwise(np.bitwise_and, 2, "pred", *UNTYPED),
    "or": elementwise(np.bitwise_or, 2, "pred", *UNTYPED),
    "xor": elementwise(np.bitwise_xor, 2, "pred", *UNTYPED),
    "not": elementwise(np.invert, 1, "pred", *UNTYPED),
    "brev": elementwise(bitwise.reverse_bits, 1, "b32", "b64"),
    "sad": _sad,
    "lop3": _logic3,
    "shf": _funnel,
    "bfe": _extract,
    "bfi": _insert,
    "prmt": _permute,
    "bfind": _find,
}


# -- comparisons and selections ------------------------------------------------------------------
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


def _comparison(mnemonic: Words, t: str) -> Compare:
    kind = TYPES[t].kind
    compare = mnemonic.pick(_BY_KIND[kind])
    flushes = t in FLUSHED and mnemonic.flag("ftz")

    def run(a: Array, b: Array) -> Array:
        if flushes:
            a, b = flush(a), flush(b)
        return compare(widen(a), widen(b)) if kind == "f" else compare(a, b)

    return run


def _set_predicate(mnemonic: Words) -> Opcode:
    """setp: p, and q from the opposite; of a pair, p from the low and q from the high lane."""
    t = mnemonic.one_type(*_COMPARED)
    combine = mnemonic.pick(_COMBINE) if set(mnemonic.left) & set(_COMBINE) else None
    compare = _comparison(mnemonic, t)
    lanes = TYPES[t].lanes

    def run(a: Array, b: Array, *c: Array) -> tuple[Array, Array]:
        truth = compare(a, b)
        p, q = (truth[0::2], truth[1::2]) if lanes == 2 else (truth, ~truth)
        return (combine(p, *c), combine(q, *c)) if combine else (p, q)

    reads = (t, t, "pred") if combine else (t, t)
    # a pair has two results, so q is not optional
    return Opcode(("pred", "pred"), reads, run, optional=2 - lanes)


def _set(mnemonic: Words) -> Opcode:
    """set: all ones, or 1.0 in a float result, where the comparison holds."""
    types = mnemonic.types()
    results = {"u16", "s16", "u32", "s32", "f16", "bf16", "f32", "f16x2", "bf16x2"}
    if len(types) != 2 or types[0] not in results or types[1] not in _COMPARED:
        raise mnemonic.unknown("expected a result type and a type to compare")
    target, t = (TYPES[f] for f in types)
    if t.lanes != target.lanes:
        raise mnemonic.unknown("expected two types of as many lanes")
    compare = _comparison(mnemonic, t.name)
    true: Any = 1 if target.kind == "f" else -1

    def run(a: Array, b: Array) -> Array:
        return np.where(compare(a, b), np.array(true).astype(target.dtype), target.dtype.type(0))

    return Opcode((target.name,), (t.name, t.name), run)


_MOVED = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")


def _select(mnemonic: Words) -> Opcode:
    t = mnemonic.one_type(*_MOVED)
    return Opcode((t,), (t, t, "pred"), lambda a, b, p: np.where(p, a, b))


def _select_by_sign(mnemonic: Words) -> Opcode:
    types = mnemonic.types()
    if len(types) != 2 or types[0] not in _MOVED or types[1] not in ("s32", "f32"):
        raise mnemonic.unknown("expected a type, then s32 or f32")
    t, by = types
    flushes = by == "f32" and mnemonic.flag("ftz")

    def run(a: Array, b: Array, c: Array) -> Array:
        return np.where((flush(c) if flushes else c) >= 0, a, b)

    return Opcode((t,), (t, t, by), run)


SELECTIONS: dict[str, Family] = {
    "setp": _set_predicate,
    "set": _set,
    "selp": _select,
    "slct": _select_by_sign,
    "mov": elementwise(lambda a: a, 1, *_MOVED, "pred", *HALVES),
}

"""PTX instructions on floats: every result rounded once, NaN the device's, modifiers honoured.

The approximations (`ex2.approx` and the like) are computed in float64 and rounded; a GPU differs by
the errors that the PTX ISA documents for each. `add.f32` and `mul.f32` without a rounding, which
the assembler may fuse, stay unfused.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, format_of, round_to, widen
from gemmproof.reference.arithmetic.rounding import Mode, arithmetic
from gemmproof.reference.ptx.operation import Family, Opcode, Words, elementwise

HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_SINGLE = (*HALVES, "f32", "f64")
FLOATS = (*_SINGLE, "f32x2")
# what .ftz applies to in all instructions but the approximations
FLUSHED = ("f16", "f16x2", "f32", "f32x2")
MODES: tuple[Mode, ...] = ("rn", "rz", "rm", "rp")


def flush(x: Array) -> Array:
    """Subnormal numbers as zeros of their sign; integers as they are."""
    if x.dtype.kind in "iu":
        return x
    tiny = np.abs(widen(x)) < 2.0 ** format_of(x.dtype).emin
    return np.where(tiny, np.copysign(x.dtype.type(0), x), x).astype(x.dtype)


def saturate(x: Array) -> Array:
    """x clamped to [0, 1]; NaN becomes +0."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0)).astype(x.dtype)


def rectify(x: Array) -> Array:
    """max(x, +0); NaN becomes the canonical NaN."""
    zero = x.dtype.type(0)
    return np.where(x > 0, x, np.where(np.isnan(x), format_of(x.dtype).nan, zero)).astype(x.dtype)


def apply_modifiers(words: Words, compute: Callable[..., Any], *allowed: str) -> Callable[..., Any]:
    """`compute` with what .ftz, .sat and .relu do to its operands and its result."""
    flags = {flag for flag in allowed if words.flag(flag)}

    def run(*args: Array) -> Array:
        y = compute(*(map(flush, args) if "ftz" in flags else args))
        y = flush(y) if "ftz" in flags else y
        y = saturate(y) if "sat" in flags else y
        return rectify(y) if "relu" in flags else y

    return run


def _opcode(words: Words, t: str, count: int, compute: Callable[..., Any], *also: str) -> Opcode:
    """compute on `count` operands of type t, with .ftz if t has it and the modifiers `also`."""
    allowed = ("ftz", *also) if t in FLUSHED else also
    return Opcode((t,), (t,) * count, apply_modifiers(words, compute, *allowed))


def _saturation(t: str) -> tuple[str, ...]:
    return ("sat",) if t in FLUSHED and t != "f32x2" else ()


def _take_rounding(words: Words, t: str, default: Mode | None = None) -> Mode:
    return words.one_of(*(MODES[:1] if t in HALVES else MODES), default=default)


def _arithmetic(words: Words) -> Opcode:
    t = words.one_type(*FLOATS)
    mode = _take_rounding(words, t, "rn")
    return _opcode(words, t, 2, partial(arithmetic, words.root, mode), *_saturation(t))


def _fused(words: Words) -> Opcode:
    t = words.one_type(*(FLOATS if words.root == "fma" else ("f32", "f64")))
    compute = partial(arithmetic, "fma", _take_rounding(words, t))
    return _opcode(words, t, 3, compute, *_saturation(t), *(("relu",) if t in HALVES else ()))


def _divide(words: Words) -> Opcode:
    t = words.one_type("f32", "f64")
    if t == "f32" and words.flag("approx"):
        return _opcode(words, t, 2, divide_fast)
    mode = "rn" if t == "f32" and words.flag("full") else _take_rounding(words, t)
    return _opcode(words, t, 2, partial(arithmetic, "div", mode))


def divide_fast(a: Array, b: Array) -> Array:
    """`div.approx.f32`: beyond 2**126 the divisor's reciprocal is flushed (PTX ISA, div)."""
    huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    zero = arithmetic("mul", "rn", a, np.copysign(np.float32(0), b))
    return np.where(huge, zero, arithmetic("div", "rn", a, b)).astype(np.float32)


def _root_or_reciprocal(words: Words) -> Opcode:
    t = words.one_type("f32", "f64")
    mode = "rn" if t == "f32" and words.flag("approx") else _take_rounding(words, t)
    return _opcode(words, t, 1, partial(arithmetic, words.root, mode))


_APPROXIMATE: dict[str, tuple[Callable[[Array], Array], tuple[str, ...]]] = {
    "ex2": (np.exp2, ("f32", *HALVES)),
    "lg2": (np.log2, ("f32",)),
    "sin": (np.sin, ("f32",)),
    "cos": (np.cos, ("f32",)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), ("f32",)),
    "tanh": (np.tanh, ("f32", *HALVES)),
}


def _approximate(words: Words) -> Opcode:
    function, types = _APPROXIMATE[words.root]
    t = words.one_type(*types)
    words.one_of("approx")
    if words.root == "ex2" and t.startswith("bf16") and "ftz" not in words.left:
        raise words.unknown("expected .ftz, for bf16 has no other")
    allowed = ("ftz",) if words.root != "tanh" and not t.startswith("f16") else ()

    def compute(a: Array) -> Array:
        return round_to(function(widen(a)), format_of(a.dtype))

    return Opcode((t,), (t,), apply_modifiers(words, compute, *allowed))


def _absolute_or_negative(words: Words) -> Opcode:
    t = words.one_type(*_SINGLE)
    change = np.abs if words.root == "abs" else np.negative

    def compute(a: Array) -> Array:
        return np.where(np.isnan(a), format_of(a.dtype).nan, change(a)).astype(a.dtype)

    return _opcode(words, t, 1, compute)


def _extreme(words: Words) -> Opcode:
    """min and max: the operand that is a number, and -0 below +0; with .NaN, NaN wins."""
    t = words.one_type(*_SINGLE)
    propagates = t != "f64" and words.flag("NaN")
    by_size = t != "f64" and words.flag("xorsign")
    if by_size:
        words.one_of("abs")
    smallest = words.root == "min"

    def compute(a: Array, b: Array) -> Array:
        x, y = (np.abs(a), np.abs(b)) if by_size else (a, b)
        first = (x < y) | ((x == y) & np.signbit(x))
        pick = np.where(first == smallest, x, y)
        pick = np.where(np.isnan(x), y, np.where(np.isnan(y), x, pick))
        bad = np.isnan(x) | np.isnan(y) if propagates else np.isnan(x) & np.isnan(y)
        if by_size:
            pick = np.where(np.signbit(a) ^ np.signbit(b), -pick, pick)
        return np.where(bad, format_of(a.dtype).nan, pick).astype(a.dtype)

    return _opcode(words, t, 2, compute)


_PROPERTIES: dict[str, Callable[[Array], Array]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
    "normal": lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny),
    "subnormal": lambda x: (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny),
}


def _test(words: Words) -> Opcode:
    t = words.one_type("f32", "f64")
    return Opcode(("pred",), (t,), words.pick(_PROPERTIES))


FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("add", "sub", "mul"), _arithmetic),
    **dict.fromkeys(("fma", "mad"), _fused),
    **dict.fromkeys(("rcp", "sqrt"), _root_or_reciprocal),
    **dict.fromkeys(_APPROXIMATE, _approximate),
    **dict.fromkeys(("abs", "neg"), _absolute_or_negative),
    **dict.fromkeys(("min", "max"), _extreme),
    "div": _divide,
    "copysign": elementwise(lambda a, b: np.copysign(b, a), 2, "f32", "f64"),
    "testp": _test,
}

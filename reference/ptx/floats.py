"""PTX instructions on floats: each result rounded once, NaN the device's own, the modifiers obeyed.

The approximations (`ex2.approx` and the like) are taken in float64 and rounded; a GPU differs from
that by the errors that the PTX ISA documents for each. `add.f32` and `mul.f32` without a rounding,
which the assembler may fuse, stay unfused.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, bits, format_of, round_to, widen
from gemmproof.reference.arithmetic.rounding import Mode, arithmetic
from gemmproof.reference.ptx.operation import TYPES, Opcode, Words

HALVES = ("f16", "bf16", "f16x2", "bf16x2")
FLOATS = (*HALVES, "f32", "f32x2", "f64")
MODES: dict[str, Mode] = {"rn": "rn", "rz": "rz", "rm": "rm", "rp": "rp"}


def flush(x: Array) -> Array:
    """Subnormal numbers as zeros of their sign."""
    fmt = format_of(x.dtype)
    tiny = np.abs(widen(x)) < 2.0**fmt.emin
    return np.where(tiny, np.copysign(x.dtype.type(0), x), x).astype(x.dtype)


def saturate(x: Array) -> Array:
    """Clamped to [0, 1], NaN to +0."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0)).astype(x.dtype)


def rectify(x: Array) -> Array:
    """max(x, +0), and NaN the canonical one."""
    zero = x.dtype.type(0)
    return np.where(x > 0, x, np.where(np.isnan(x), format_of(x.dtype).nan, zero)).astype(x.dtype)


def _apply_modifiers(
    words: Words, compute: Callable[..., Any], *allowed: str
) -> Callable[..., Any]:
    """compute between what .ftz, .sat and .relu do to its operands and result."""
    flags = {flag for flag in allowed if words.flag(flag)}

    def run(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            y = compute(*(flush(a) for a in args) if "ftz" in flags else args)
            y = flush(y) if "ftz" in flags else y
            y = saturate(y) if "sat" in flags else y
            return rectify(y) if "relu" in flags else y

    return run


def _modifiers(t: str) -> tuple[str, ...]:
    """The modifiers that arithmetic of a type has."""
    return {"f64": (), "f32": ("ftz", "sat"), "f32x2": ("ftz",)}.get(
        t, ("ftz", "sat") if t.startswith("f16") else ()
    )


def _take_rounding(words: Words, t: str, default: str | None) -> Mode:
    modes = {"rn": MODES["rn"]} if t in HALVES else MODES
    return words.one_of(modes, default)


def _arithmetic(words: Words) -> Opcode:
    t = words.one_type(*FLOATS)
    mode = _take_rounding(words, t, "rn")
    subtract = words.root == "sub"
    op = {"add": "add", "sub": "add", "mul": "mul"}[words.root]

    def compute(a: Array, b: Array) -> Array:
        return arithmetic(op, mode, a, np.negative(b) if subtract else b)

    return Opcode((t,), (t, t), _apply_modifiers(words, compute, *_modifiers(t)))


def _fused(words: Words) -> Opcode:
    t = words.one_type(*(FLOATS if words.root == "fma" else ("f32", "f64")))
    mode = _take_rounding(words, t, None)
    allowed = _modifiers(t) + (("relu",) if t in HALVES else ())
    return Opcode(
        (t,), (t, t, t), _apply_modifiers(words, partial(arithmetic, "fma", mode), *allowed)
    )


def _divide(words: Words) -> Opcode:
    t = words.one_type("f32", "f64")
    fast = t == "f32" and (words.flag("full") or words.flag("approx"))
    mode: Mode = "rn" if fast else _take_rounding(words, t, None)
    by_reciprocal = fast and words.mnemonic.find(".approx") > 0

    def compute(a: Array, b: Array) -> Array:
        return divide_fast(a, b) if by_reciprocal else arithmetic("div", mode, a, b)

    return Opcode((t,), (t, t), _apply_modifiers(words, compute, *(("ftz",) if t == "f32" else ())))


def divide_fast(a: Array, b: Array) -> Array:
    """`div.approx.f32`: beyond 2**126 the divisor's reciprocal is flushed (PTX ISA, div)."""
    with np.errstate(all="ignore"):
        huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
        zero = arithmetic("mul", "rn", a, np.copysign(np.float32(0), b))
        return np.where(huge, zero, arithmetic("div", "rn", a, b)).astype(np.float32)


def _root_or_reciprocal(words: Words) -> Opcode:
    t = words.one_type("f32", "f64")
    fast = t == "f32" and words.flag("approx")
    mode: Mode = "rn" if fast else _take_rounding(words, t, None)

    def compute(a: Array) -> Array:
        if words.root == "rcp":
            return arithmetic("div", mode, np.ones_like(a), a)
        return arithmetic("sqrt", mode, a)

    return Opcode((t,), (t,), _apply_modifiers(words, compute, *(("ftz",) if t == "f32" else ())))


APPROXIMATE: dict[str, tuple[Callable[[Array], Array], tuple[str, ...]]] = {
    "ex2": (np.exp2, ("f32", *HALVES)),
    "lg2": (np.log2, ("f32",)),
    "sin": (np.sin, ("f32",)),
    "cos": (np.cos, ("f32",)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), ("f32",)),
    "tanh": (np.tanh, ("f32", *HALVES)),
}


def _approximate(words: Words) -> Opcode:
    function, types = APPROXIMATE[words.root]
    t = words.one_type(*types)
    words.one_of({"approx": None})
    if words.root == "ex2" and t.startswith("bf16") and "ftz" not in words.left:
        raise words.unknown("expected .ftz, for bf16 has no other")
    name = format_of(TYPES[t].dtype).name
    allowed = ("ftz",) if words.root != "tanh" and not t.startswith("f16") else ()
    return Opcode(
        (t,), (t,), _apply_modifiers(words, lambda a: round_to(function(widen(a)), name), *allowed)
    )


def _absolute_or_negative(words: Words) -> Opcode:
    t = words.one_type(*(f for f in FLOATS if f != "f32x2"))
    sign = np.uint64(1) << np.uint64(8 * TYPES[t].dtype.itemsize - 1)
    clears = words.root == "abs"

    def compute(a: Array) -> Array:
        code, mask = bits(a), bits(a).dtype.type(sign)
        y = (code & ~mask if clears else code ^ mask).view(a.dtype)
        return np.where(np.isnan(a), format_of(a.dtype).nan, y).astype(a.dtype)

    allowed = ("ftz",) if t == "f32" or t.startswith("f16") else ()
    return Opcode((t,), (t,), _apply_modifiers(words, compute, *allowed))


def _extreme(words: Words) -> Opcode:
    """min and max: the operand that is a number, and -0 below +0; with .NaN, NaN wins."""
    t = words.one_type(*(f for f in FLOATS if f != "f32x2"))
    plain = t == "f64"
    spreads = not plain and words.flag("NaN")
    by_size = not plain and words.flag("xorsign")
    if by_size:
        words.one_of({"abs": None})
    smallest = words.root == "min"

    def compute(a: Array, b: Array) -> Array:
        signs = np.signbit(a) ^ np.signbit(b)
        x, y = (np.abs(a), np.abs(b)) if by_size else (a, b)
        first = (x < y) | ((x == y) & np.signbit(x))
        pick = np.where(first == smallest, x, y)
        pick = np.where(np.isnan(x), y, np.where(np.isnan(y), x, pick))
        bad = np.isnan(x) | np.isnan(y) if spreads else np.isnan(x) & np.isnan(y)
        if by_size:
            pick = np.where(signs, -pick, pick)
        return np.where(bad, format_of(a.dtype).nan, pick).astype(a.dtype)

    allowed = ("ftz",) if t == "f32" or t.startswith("f16") else ()
    return Opcode((t,), (t, t), _apply_modifiers(words, compute, *allowed))


def _copy_sign(words: Words) -> Opcode:
    t = words.one_type("f32", "f64")
    return Opcode((t,), (t, t), lambda a, b: np.copysign(b, a))


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
    return Opcode(("pred",), (t,), words.one_of(_PROPERTIES))


FAMILIES: dict[str, Callable[[Words], Opcode]] = {
    **dict.fromkeys(("add", "sub", "mul"), _arithmetic),
    **dict.fromkeys(("fma", "mad"), _fused),
    **dict.fromkeys(("rcp", "sqrt"), _root_or_reciprocal),
    **dict.fromkeys(APPROXIMATE, _approximate),
    **dict.fromkeys(("abs", "neg"), _absolute_or_negative),
    **dict.fromkeys(("min", "max"), _extreme),
    "div": _divide,
    "copysign": _copy_sign,
    "testp": _test,
}

"""PTX instructions on floats, and conversions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from gemmproof.reference.arithmetic import (
    TO_INTEGRAL,
    Array,
    Mode,
    arithmetic,
    float_to_integer,
    format_of,
    fp32_to_odd,
    integer_to_float,
    round_float,
    round_tf32_rna,
    round_to,
    truncate_tf32,
    widen,
)
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.reference.ptx.instruction_operands import (
    TYPES,
    Family,
    Opcode,
    PtxType,
    Words,
    elementwise,
)

# -- floats --------------------------------------------------------------------------------------
HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_SINGLE = (*HALVES, "f32", "f64")
FLOATS = (*_SINGLE, "f32x2")
# types to which .ftz applies in all instructions but the approximations
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


def apply_modifiers(
    mnemonic: Words, compute: Callable[..., Any], *allowed: str
) -> Callable[..., Any]:
    """Return `compute` with .ftz, .sat and .relu applied to its operands and its result."""
    flags = {flag for flag in allowed if mnemonic.flag(flag)}

    def run(*args: Array) -> Array:
        y = compute(*(map(flush, args) if "ftz" in flags else args))
        y = flush(y) if "ftz" in flags else y
        y = saturate(y) if "sat" in flags else y
        return rectify(y) if "relu" in flags else y

    return run


def _opcode(mnemonic: Words, t: str, count: int, compute: Callable[..., Any], *also: str) -> Opcode:
    """Return `compute` on `count` operands of type t, with modifiers `also`, .ftz if FLUSHED."""
    allowed = ("ftz", *also) if t in FLUSHED else also
    return Opcode((t,), (t,) * count, apply_modifiers(mnemonic, compute, *allowed))


def _saturation(t: str) -> tuple[str, ...]:
    return ("sat",) if t in FLUSHED and t != "f32x2" else ()


def _take_rounding(mnemonic: Words, t: str, default: Mode | None = None) -> Mode:
    return mnemonic.one_of(*(MODES[:1] if t in HALVES else MODES), default=default)


def _arithmetic(mnemonic: Words) -> Opcode:
    t = mnemonic.one_type(*FLOATS)
    mode = _take_rounding(mnemonic, t, "rn")
    return _opcode(mnemonic, t, 2, partial(arithmetic, mnemonic.root, mode), *_saturation(t))


def _fused(mnemonic: Words) -> Opcode:
    t = mnemonic.one_type(*(FLOATS if mnemonic.root == "fma" else ("f32", "f64")))
    compute = partial(arithmetic, "fma", _take_rounding(mnemonic, t))
    return _opcode(mnemonic, t, 3, compute, *_saturation(t), *(("relu",) if t in HALVES else ()))


def _divide(mnemonic: Words) -> Opcode:
    t = mnemonic.one_type("f32", "f64")
    if t == "f32" and mnemonic.flag("approx"):
        return _opcode(mnemonic, t, 2, divide_fast)
    mode = "rn" if t == "f32" and mnemonic.flag("full") else _take_rounding(mnemonic, t)
    return _opcode(mnemonic, t, 2, partial(arithmetic, "div", mode))


def divide_fast(a: Array, b: Array) -> Array:
    """`div.approx.f32`: beyond 2**126 the divisor's reciprocal is flushed (PTX ISA, div)."""
    huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    zero = arithmetic("mul", "rn", a, np.copysign(np.float32(0), b))
    return np.where(huge, zero, arithmetic("div", "rn", a, b)).astype(np.float32)


def _root_or_reciprocal(mnemonic: Words) -> Opcode:
    t = mnemonic.one_type("f32", "f64")
    mode = "rn" if t == "f32" and mnemonic.flag("approx") else _take_rounding(mnemonic, t)
    return _opcode(mnemonic, t, 1, partial(arithmetic, mnemonic.root, mode))


_APPROXIMATE: dict[str, tuple[Callable[[Array], Array], tuple[str, ...]]] = {
    "ex2": (np.exp2, ("f32", *HALVES)),
    "lg2": (np.log2, ("f32",)),
    "sin": (np.sin, ("f32",)),
    "cos": (np.cos, ("f32",)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), ("f32",)),
    "tanh": (np.tanh, ("f32", *HALVES)),
}


def _approximate(mnemonic: Words) -> Opcode:
    function, types = _APPROXIMATE[mnemonic.root]
    t = mnemonic.one_type(*types)
    mnemonic.one_of("approx")
    if mnemonic.root == "ex2" and t.startswith("bf16") and "ftz" not in mnemonic.left:
        raise mnemonic.unknown("expected .ftz, for bf16 has no other")
    allowed = ("ftz",) if mnemonic.root != "tanh" and not t.startswith("f16") else ()

    def compute(a: Array) -> Array:
        return round_to(function(widen(a)), format_of(a.dtype))

    return Opcode((t,), (t,), apply_modifiers(mnemonic, compute, *allowed))


def _absolute_or_negative(mnemonic: Words) -> Opcode:
    t = mnemonic.one_type(*_SINGLE)
    change = np.abs if mnemonic.root == "abs" else np.negative

    def compute(a: Array) -> Array:
        return np.where(np.isnan(a), format_of(a.dtype).nan, change(a)).astype(a.dtype)

    return _opcode(mnemonic, t, 1, compute)


def _extreme(mnemonic: Words) -> Opcode:
    """min and max: the operand that is a number, and -0 below +0; with .NaN, NaN wins."""
    t = mnemonic.one_type(*_SINGLE)
    propagates = t != "f64" and mnemonic.flag("NaN")
    by_size = t != "f64" and mnemonic.flag("xorsign")
    if by_size:
        mnemonic.one_of("abs")
    smallest = mnemonic.root == "min"

    def compute(a: Array, b: Array) -> Array:
        x, y = (np.abs(a), np.abs(b)) if by_size else (a, b)
        first = (x < y) | ((x == y) & np.signbit(x))
        pick = np.where(first == smallest, x, y)
        pick = np.where(np.isnan(x), y, np.where(np.isnan(y), x, pick))
        bad = np.isnan(x) | np.isnan(y) if propagates else np.isnan(x) & np.isnan(y)
        if by_size:
            pick = np.where(np.signbit(a) ^ np.signbit(b), -pick, pick)
        return np.where(bad, format_of(a.dtype).nan, pick).astype(a.dtype)

    return _opcode(mnemonic, t, 2, compute)


_PROPERTIES: dict[str, Callable[[Array], Array]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
    "normal": lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny),
    "subnormal": lambda x: (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny),
}


def _test(mnemonic: Words) -> Opcode:
    t = mnemonic.one_type("f32", "f64")
    return Opcode(("pred",), (t,), mnemonic.pick(_PROPERTIES))


FLOAT_FAMILIES: dict[str, Family] = {
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


# -- conversions ---------------------------------------------------------------------------------
Rule = Callable[..., Array]

_TO_WHOLE = {f"{mode}i": mode for mode in MODES}
_SCALARS = ("f16", "bf16", "f32", "f64")
_BYTES = tuple(f"{f.ptx}x2" for f in FORMATS.values() if f.is_fp8 and f.ptx)
_SMALL = {
    "e2m1x2": (np.dtype(ml_dtypes.float4_e2m1fn), 6.0),
    "e2m3x2": (np.dtype(ml_dtypes.float6_e2m3fn), 7.5),
    "e3m2x2": (np.dtype(ml_dtypes.float6_e3m2fn), 28.0),
}


def _convert(mnemonic: Words) -> Opcode:
    if mnemonic.flag("pack"):
        return _pack_integers(mnemonic)
    types = mnemonic.types()
    if len(types) != 2:
        raise mnemonic.unknown("expected a result type, then a source type")
    to, of = (TYPES[name] for name in types)
    match types:
        case _ if all(t.name in _SCALARS or (t.kind in "us" and t.lanes == 1) for t in (to, of)):
            return _between_numbers(mnemonic, to, of)
        case ["tf32", "f32"]:
            return Opcode(("tf32",), ("f32",), _to_tf32(mnemonic))
        case ["f16x2" | "bf16x2" as target, "f32"]:
            return _pair(target, _narrow_single(mnemonic, to, "rn", "rz"))
        case [target, "f32"] if target in (*_BYTES, *_SMALL):
            return _pair(target, _to_bytes(mnemonic, target))
        case [target, "f16x2"] if target in _BYTES:
            return Opcode((target,), ("f16x2",), _to_bytes(mnemonic, target))
        case ["f16x2", source] if source in (*_BYTES, *_SMALL):
            return Opcode(("f16x2",), (source,), _from_bytes(mnemonic, to, source, "relu"))
        case ["bf16x2", "ue8m0x2"]:
            return Opcode(("bf16x2",), ("ue8m0x2",), _from_bytes(mnemonic, to, "ue8m0x2"))
    raise mnemonic.unknown("expected a conversion of the PTX ISA that this evaluator has")


def _pair(target: str, narrow: Rule) -> Opcode:
    """cvt.rn.f16x2.f32 d, a, b: a goes to the high half."""
    return Opcode((target,), ("f32", "f32"), lambda a, b: narrow(_interleave(b, a)))


def _between_numbers(mnemonic: Words, to: PtxType, of: PtxType) -> Opcode:
    rule = _number_rule(mnemonic, to, of)
    flushed = ("ftz",) if "f32" in (to.name, of.name) else ()
    run = apply_modifiers(mnemonic, rule, *flushed, *(("sat",) if to.kind == "f" else ()))
    return Opcode((to.name,), (of.name,), run, loose=True)


def _number_rule(mnemonic: Words, to: PtxType, of: PtxType) -> Rule:
    if to.kind != "f":
        clamps = mnemonic.flag("sat")
        if of.kind == "f":  # always clamps
            return partial(float_to_integer, dtype=to.dtype, mode=mnemonic.pick(_TO_WHOLE))
        return lambda a: _clamp(a, to.dtype) if clamps else a.astype(to.dtype)
    target = format_of(to.dtype)
    if of.kind != "f":
        return partial(integer_to_float, name=target.name, mode=mnemonic.one_of(*MODES))
    if to is of and set(mnemonic.left) & set(_TO_WHOLE):
        whole = TO_INTEGRAL[mnemonic.pick(_TO_WHOLE)]
        return lambda a: round_to(whole(widen(a)), target)
    source = format_of(of.dtype)
    if target.p >= source.p and target.emin <= source.emin:
        return partial(round_to, fmt=target)
    if source.name == "fp32":
        return _narrow_single(mnemonic, to, *MODES)
    mode = mnemonic.one_of(*(MODES if source.name == "fp64" else MODES[:1]))
    return partial(round_float, name=target.name, mode=mode)


def _narrow_single(mnemonic: Words, to: PtxType, *modes: Mode) -> Rule:
    """Return the rule that narrows f32 to half its width."""
    fmt = format_of(to.dtype)
    rule = partial(round_float, name=fmt.name, mode=mnemonic.one_of(*modes))
    return _bound(mnemonic, rule, fmt, "relu")


def _to_tf32(mnemonic: Words) -> Rule:
    rules: dict[str, Rule] = {
        "rn": lambda a: round_to(a, "tf32"),
        "rz": lambda a: np.where(np.isnan(a), FORMATS["tf32"].nan, truncate_tf32(a)),
        "rna": round_tf32_rna,
    }
    rule = mnemonic.pick(rules)
    return _bound(
        mnemonic, rule, FORMATS["tf32"], *(("relu",) if rule is not round_tf32_rna else ())
    )


def _bound(mnemonic: Words, rule: Rule, fmt: Format, *allowed: str) -> Rule:
    """Return `rule` with .satfinite, which clips to fmt's largest number, and `allowed`."""
    top = np.float32(fmt.max if mnemonic.flag("satfinite") else np.inf)
    return apply_modifiers(mnemonic, lambda a: rule(np.clip(a, -top, top)), *allowed)


def _clamp(x: Array, dtype: np.dtype) -> Array:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    own = np.iinfo(x.dtype)
    return np.clip(x, max(low, own.min), min(high, own.max)).astype(dtype)


def _to_bytes(mnemonic: Words, target: str) -> Rule:
    """Return the rule from floats to pairs of eight bits or less; these always saturate."""
    mnemonic.one_of("rn")
    mnemonic.one_of("satfinite")
    rectifies = mnemonic.flag("relu")

    def narrow(x: Array) -> Array:
        x = rectify(x) if rectifies else x
        if target in _BYTES:
            return round_to(x, format_of(TYPES[target].dtype), saturate=True)
        dtype, largest = _SMALL[target]
        # the format has no NaN: its largest number replaces it
        value = np.where(np.isnan(x), largest, np.clip(widen(x), -largest, largest))
        code = fp32_to_odd(value).astype(dtype)
        if target != "e2m1x2":
            return code
        nibbles = code.view(np.uint8) & np.uint8(15)
        return nibbles[0::2] | (nibbles[1::2] << np.uint8(4))

    return narrow


def _from_bytes(mnemonic: Words, to: PtxType, source: str, *allowed: str) -> Rule:
    mnemonic.one_of("rn")

    def widen_bytes(a: Array) -> Array:
        if source == "e2m1x2":
            nibbles = _interleave(a & np.uint8(15), a >> np.uint8(4))
            a = nibbles.view(ml_dtypes.float4_e2m1fn)
        return round_to(a.astype(np.float32), format_of(to.dtype))

    return apply_modifiers(mnemonic, widen_bytes, *allowed)


def _pack_integers(mnemonic: Words) -> Opcode:
    """cvt.pack.sat.s8.s32.b32 d, a, b, c: b lowest, then a, above them c's low bits."""
    mnemonic.one_of("sat")
    types = mnemonic.types()
    narrow = types[0] if types else ""
    byte = narrow in ("s8", "u8") and types[1:] == ["s32", "b32"]
    if not byte and not (narrow in ("s16", "u16") and types[1:] == ["s32"]):
        raise mnemonic.unknown("expected .sat.(s8|u8).s32.b32 or .sat.(s16|u16).s32")
    t = TYPES[narrow]
    unsigned, shift = np.dtype(f"u{t.width // 8}"), np.uint32(t.width)

    def run(a: Array, b: Array, *c: Array) -> Array:
        high, low = (_clamp(v, t.dtype).view(unsigned).astype(np.uint32) for v in (a, b))
        y = low | (high << shift)
        return y | (c[0] << (shift + shift)) if byte else y

    return Opcode(("b32",), ("s32", "s32", "b32")[: 3 if byte else 2], run)


def _interleave(low: Array, high: Array) -> Array:
    return np.stack((low, high), axis=1).reshape(-1)


CONVERSIONS: dict[str, Family] = {"cvt": _convert}

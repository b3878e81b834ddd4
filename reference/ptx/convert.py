"""PTX's cvt: every conversion between integers, floats and the packed narrow formats."""

from collections.abc import Callable

import ml_dtypes
import numpy as np

from gemmproof.reference.arithmetic.conversions import (
    Array,
    format_of,
    fp32_to_odd,
    round_tf32_rna,
    round_to,
    truncate_tf32,
    widen,
)
from gemmproof.reference.arithmetic.rounding import (
    TO_INTEGRAL,
    float_to_integer,
    integer_to_float,
    round_float,
)
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.ptx.floats import MODES, flush, rectify, saturate
from gemmproof.reference.ptx.operation import TYPES, Opcode, Words

_TO_WHOLE = {f"{mode}i": mode for mode in MODES.values()}
_SCALARS = ("f16", "bf16", "f32", "f64")
_PAIRS = ("f16x2", "bf16x2")
_BYTES = {f"{f.ptx}x2": f.name for f in FORMATS.values() if f.is_fp8 and f.ptx}
_SMALL = {
    "e2m1x2": (np.dtype(ml_dtypes.float4_e2m1fn), 6.0),
    "e2m3x2": (np.dtype(ml_dtypes.float6_e2m3fn), 7.5),
    "e3m2x2": (np.dtype(ml_dtypes.float6_e3m2fn), 28.0),
}


def _convert(words: Words) -> Opcode:
    if words.flag("pack"):
        return _pack_integers(words)
    found = words.types()
    if len(found) != 2:
        raise words.unknown("expected a result type, then a source type")
    target, source = found
    for known in (_between_numbers, _to_tf32, _to_pair, _to_bytes, _from_bytes):
        operation = known(words, target, source)
        if operation:
            return operation
    raise words.unknown("expected a conversion of the PTX ISA that this evaluator has")


def _between_numbers(words: Words, target: str, source: str) -> Opcode | None:
    to, of = TYPES[target], TYPES[source]
    numbers = all(
        t.name in _SCALARS or (t.kind in "us" and t.lanes == 1 and t.width <= 64) for t in (to, of)
    )
    if not numbers:
        return None
    flushes = "f32" in (target, source) and words.flag("ftz")
    clamps = words.flag("sat")
    compute = _number_rule(words, target, source, clamps)

    def run(a: Array) -> Array:
        with np.errstate(all="ignore"):
            y = compute(flush(a) if flushes and of.kind == "f" else a)
            y = flush(y) if flushes and to.kind == "f" else y
            return saturate(y) if clamps and to.kind == "f" else y

    return Opcode((target,), (source,), run, loose=True)


def _number_rule(words: Words, target: str, source: str, clamps: bool) -> Callable[[Array], Array]:
    to, of = TYPES[target], TYPES[source]
    if of.kind != "f" and to.kind != "f":
        return lambda a: _clamp(a, to.dtype) if clamps else a.astype(to.dtype)
    if of.kind == "f" and to.kind != "f":
        mode = words.one_of(_TO_WHOLE)
        return lambda a: float_to_integer(a, to.dtype, mode)
    name = format_of(to.dtype).name
    if of.kind != "f":
        mode = words.one_of(MODES)
        return lambda a: integer_to_float(a, name, mode)
    if target == source and set(words.left) & set(_TO_WHOLE):
        whole = TO_INTEGRAL[words.one_of(_TO_WHOLE)]
        return lambda a: round_to(whole(widen(a)), name)
    into, out_of = format_of(to.dtype), format_of(of.dtype)
    if into.p >= out_of.p and into.emin <= out_of.emin:
        return lambda a: round_to(a, name)
    mode = words.one_of(MODES if source in ("f32", "f64") else {"rn": MODES["rn"]})
    bound = np.float32(_finite_bound(words, target, source))
    rectifies = source == "f32" and to.width == 16 and words.flag("relu")

    def narrow(a: Array) -> Array:
        y = round_float(a if np.isinf(bound) else np.clip(a, -bound, bound), name, mode)
        return rectify(y) if rectifies else y

    return narrow


def _finite_bound(words: Words, target: str, source: str) -> float:
    """The magnitude to which .satfinite clips, or infinity without it."""
    allowed = source == "f32" and target in (*_PAIRS, "f16", "bf16", "tf32")
    if not (allowed and words.flag("satfinite")):
        return np.inf
    name = "tf32" if target == "tf32" else format_of(TYPES[target].dtype).name
    return FORMATS[name].max


def _clamp(x: Array, dtype: np.dtype) -> Array:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    own = np.iinfo(x.dtype)
    return np.clip(x, max(low, own.min), min(high, own.max)).astype(dtype)


def _to_tf32(words: Words, target: str, source: str) -> Opcode | None:
    if (target, source) != ("tf32", "f32"):
        return None
    mode = words.one_of({"rn": "rn", "rz": "rz", "rna": "rna"})
    bound = np.float32(_finite_bound(words, target, source))
    rectifies = mode != "rna" and words.flag("relu")
    rules: dict[str, Callable[[Array], Array]] = {
        "rn": lambda a: round_to(a, "tf32"),
        "rz": lambda a: np.where(np.isnan(a), FORMATS["tf32"].nan, truncate_tf32(a)),
        "rna": round_tf32_rna,
    }

    def run(a: Array) -> Array:
        y = rules[mode](np.clip(a, -bound, bound))
        return rectify(y) if rectifies else y

    return Opcode(("tf32",), ("f32",), run)


def _to_pair(words: Words, target: str, source: str) -> Opcode | None:
    """cvt.rn.f16x2.f32 d, a, b: a goes to the high half."""
    if target not in _PAIRS or source != "f32":
        return None
    name = format_of(TYPES[target].dtype).name
    mode = words.one_of({"rn": MODES["rn"], "rz": MODES["rz"]})
    bound = np.float32(_finite_bound(words, target, source))
    rectifies = words.flag("relu")

    def run(high: Array, low: Array) -> Array:
        y = round_float(np.clip(_interleave(low, high), -bound, bound), name, mode)
        return rectify(y) if rectifies else y

    return Opcode((target,), ("f32", "f32"), run)


def _to_bytes(words: Words, target: str, source: str) -> Opcode | None:
    """Two of f32 or a pair of f16 to two of eight bits or less; these always saturate."""
    if target not in _BYTES and target not in _SMALL:
        return None
    if source != "f32" and not (source == "f16x2" and target in _BYTES):
        return None
    words.one_of({"rn": "rn"})
    words.one_of({"satfinite": None})
    rectifies = words.flag("relu")

    def run(*args: Array) -> Array:
        values = args[0] if source == "f16x2" else _interleave(args[1], args[0])
        return _narrow_bytes(rectify(values) if rectifies else values, target)

    return Opcode((target,), (source,) * (1 if source == "f16x2" else 2), run)


def _narrow_bytes(x: Array, target: str) -> Array:
    if target in _BYTES:
        return round_to(x, _BYTES[target], saturate=True)
    dtype, largest = _SMALL[target]
    # without a NaN of its own the format takes the largest number for it
    value = np.where(np.isnan(x), largest, np.clip(widen(x), -largest, largest))
    code = fp32_to_odd(value).astype(dtype)
    if target != "e2m1x2":
        return code
    nibbles = code.view(np.uint8) & np.uint8(15)
    return nibbles[0::2] | (nibbles[1::2] << np.uint8(4))


def _from_bytes(words: Words, target: str, source: str) -> Opcode | None:
    wanted = "bf16x2" if source == "ue8m0x2" else "f16x2"
    if target != wanted or source not in (*_BYTES, *_SMALL, "ue8m0x2"):
        return None
    words.one_of({"rn": "rn"})
    rectifies = source != "ue8m0x2" and words.flag("relu")
    name = format_of(TYPES[target].dtype).name

    def run(a: Array) -> Array:
        if source == "e2m1x2":
            nibbles = _interleave(a & np.uint8(15), a >> np.uint8(4))
            a = nibbles.view(ml_dtypes.float4_e2m1fn)
        y = round_to(a.astype(np.float32), name)
        return rectify(y) if rectifies else y

    return Opcode((target,), (source,), run)


def _pack_integers(words: Words) -> Opcode:
    """cvt.pack.sat.s8.s32.b32 d, a, b, c: b lowest, then a, above them c's low bits."""
    words.one_of({"sat": None})
    found = words.types()
    narrow = found[0] if found else ""
    byte = narrow in ("s8", "u8") and found[1:] == ["s32", "b32"]
    if not byte and not (narrow in ("s16", "u16") and found[1:] == ["s32"]):
        raise words.unknown("expected .sat.(s8|u8).s32.b32 or .sat.(s16|u16).s32")
    t = TYPES[narrow]
    unsigned, shift = np.dtype(f"u{t.width // 8}"), np.uint32(t.width)

    def run(a: Array, b: Array, *c: Array) -> Array:
        high, low = (_clamp(v, t.dtype).view(unsigned).astype(np.uint32) for v in (a, b))
        y = low | (high << shift)
        return y | (c[0] << (shift + shift)) if byte else y

    return Opcode(("b32",), ("s32", "s32", "b32")[: 3 if byte else 2], run)


def _interleave(low: Array, high: Array) -> Array:
    return np.stack((low, high), axis=1).reshape(-1)


FAMILIES = {"cvt": _convert}

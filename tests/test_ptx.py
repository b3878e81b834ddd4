"""The PTX evaluator against rationals, Python's integers, struct, ml_dtypes and the PTX ISA."""

import math
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from rational import drawn, rounded

from gemmproof.reference.ptx import UnknownAsm, compile_asm

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
I32, U32, I64, U64 = (np.dtype(d) for d in ("i4", "u4", "i8", "u8"))
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
LETTERS = {1: "r", 2: "h", 4: "r", 8: "l"}  # by bytes
SCALARS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
WORDS = np.array(
    [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xDEADBEEF, 0x00FF8001, 0xFFFF0000],
    np.uint32,
)
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 2.5], np.float32)


def ask(asm, *args, out, pack=1, constraints=None):
    """The one result of `asm` for the arrays args, with a register class by size."""
    out = np.dtype(out)
    if constraints is None:
        letters = [
            "r" if pack > 1 else LETTERS[d.itemsize] for d in (out, *(a.dtype for a in args))
        ]
        constraints = "=" + ",".join(letters)
    return compile_asm(asm, constraints, [a.dtype for a in args], [out], pack)(list(args))[0]


def same_bits(got, wanted):
    """Bitwise equality, so that NaN payloads and signs of zeros count."""
    wanted = np.asarray(wanted)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(
        got.view(f"u{got.itemsize}"), np.ascontiguousarray(wanted).view(f"u{got.itemsize}")
    )


def words(count=200, seed=0, dtype=np.uint32):
    """Random integers beside those at the edges."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    drawn_ = rng.integers(info.min, info.max, count, dtype, endpoint=True)
    edges = np.array([info.min, info.min + 1, 0, 1, info.max - 1, info.max], dtype)
    return np.concatenate([edges, drawn_, rng.permutation(edges)])


def test_the_example_of_tritons_documentation():
    asm = """
    {
        // Unpack `a` into `ai`.
        .reg .b8 tmp<4>;
        mov.b32 {tmp0, tmp1, tmp2, tmp3}, $8;
        cvt.u32.u8 $0, tmp0;
        cvt.u32.u8 $1, tmp1;
        cvt.u32.u8 $2, tmp2;
        cvt.u32.u8 $3, tmp3;
    }
    /* to
       float */
    cvt.rn.f32.s32 $4, $0;
    cvt.rn.f32.s32 $5, $1;
    cvt.rn.f32.s32 $6, $2;
    cvt.rn.f32.s32 $7, $3;
    max.f32 $4, $4, $9;
    max.f32 $5, $5, $10;
    max.f32 $6, $6, $11;
    max.f32 $7, $7, $12;
    """
    a = np.arange(250, 256, dtype=np.uint8)  # 6 elements: the last group of 4 is padded
    b = np.array([0, 300, 251, 400, 1, 256], np.float32)
    run = compile_asm(asm, ",".join(["=r"] * 8 + ["r"] * 5), [a.dtype, b.dtype], [I32, F32], 4)
    c, d = run([a, b])
    same_bits(c, a.astype(np.int32))
    same_bits(d, np.maximum(a.astype(np.float32), b))


def test_tritons_own_conversion_of_e4b15_to_fp16():
    asm = (
        "{ .reg .b32 a<2>, b<2>; prmt.b32 a0, 0, $2, 0x5746; and.b32 b0, a0, 0x7f007f00;"
        "and.b32 b1, a0, 0x00ff00ff; and.b32 a1, a0, 0x00800080; shr.b32 b0, b0, 1;"
        "add.u32 b1, b1, a1; lop3.b32 $0, b0, 0x80008000, a0, 0xf8; shl.b32 $1, b1, 7; }"
    )
    codes = np.arange(256, dtype=np.uint8)
    got = ask(asm, codes, out=F16, pack=4, constraints="=r,=r,r")
    sign, exponent, mantissa = codes >> 7, (codes >> 3) & 15, codes & 7
    value = np.where(
        exponent == 0, mantissa / 8 * 2.0**-14, (1 + mantissa / 8) * 2.0 ** (exponent - 15.0)
    )
    same_bits(got, np.where(sign == 1, -value, value).astype(np.float16))


def test_tritons_own_conversion_of_fp16_to_e4b15_with_predicates():
    asm = """{ .reg .pred p<4>; .reg .b32 a<2>, b<2>; .reg .b16 c<4>; .reg .b16 top;
        .reg .b32 top2; mov.b16 top, 0x3F00; mov.b32 top2, 0x3F003F00;
        and.b32 a0, $1, 0x7fff7fff; and.b32 a1, $2, 0x7fff7fff;
        setp.lt.f16x2  p0|p1, a0, top2; setp.lt.f16x2  p2 | p3, a1, top2;
        mov.b32 {c0, c1}, a0; mov.b32 {c2, c3}, a1;
        selp.b16 c0, c0, top, p0; selp.b16 c1, c1, top, p1;
        selp.b16 c2, c2, top, p2; selp.b16 c3, c3, top, p3;
        mov.b32 a0, {c0, c1}; mov.b32 a1, {c2, c3};
        mad.lo.u32 a0, a0, 2, 0x00800080; mad.lo.u32 a1, a1, 2, 0x00800080;
        lop3.b32 b0, $1, 0x80008000, a0, 0xea; lop3.b32 b1, $2, 0x80008000, a1, 0xea;
        prmt.b32 $0, b0, b1, 0x7531; }"""
    x = np.array([0, 1, -1.75, 5, -0.125, 0.11, 1e-3, -(2**-10)], np.float16)
    got = ask(asm, x, out=np.uint8, pack=4, constraints="=r,r,r")
    code = np.minimum(np.abs(x), np.float16(1.75)).view(np.uint16)
    rounded_up = ((code.astype(np.uint32) * 2 + 0x80) >> 8) & 0x7F
    same_bits(got, (rounded_up | (np.signbit(x) << 7)).astype(np.uint8))
    shorter = asm.replace("setp.lt.f16x2  p0|p1, a0, top2; setp.lt.f16x2  p2 | p3, a1, top2;", "")
    cut = shorter.index("mov.b32 {c0, c1}, a0"), shorter.index("mad.lo.u32 a0")
    minimum = "min.f16x2 a0, a0, top2; min.f16x2 a1, a1, top2;"
    again = shorter[: cut[0]] + minimum + shorter[cut[1] :]
    same_bits(ask(again, x, out=np.uint8, pack=4, constraints="=r,r,r"), got)


@pytest.mark.parametrize(
    ("dtype", "pack", "classes"),
    [("u1", 1, "rh"), ("u1", 2, "rh"), ("u1", 4, "r"), ("i2", 1, "rhl"), ("i2", 2, "r"),
     ("i4", 1, "rfl"), ("i8", 1, "ld"), ("u1", 3, "r")],
)  # fmt: skip
def test_elements_share_registers_as_triton_packs_them(dtype, pack, classes):
    x = words(11, dtype=dtype)
    width = {"h": 16, "r": 32, "f": 32, "l": 64, "d": 64}
    for letter in classes:
        move = f"mov.b{width[letter]} $0, $1;"
        same_bits(ask(move, x, out=dtype, pack=pack, constraints=f"=&{letter},{letter}"), x)
    if pack == 1:
        raw = ask("mov.b64 $0, $1;", x, out=U64, constraints="=l,l")
        assert raw[-1] == int(x[-1]) % 2 ** (8 * x.itemsize)  # the first element in the low bits
    else:
        mask = 2 ** (8 * x.itemsize) - 1
        first = ask(f"and.b32 $0, $1, {mask};", x, out=dtype, pack=pack)
        assert (first[0::pack] == x[0::pack]).all()
        assert not first[1::pack].any()


def test_wide_elements_of_a_pack_have_a_register_each():
    x = np.arange(6, dtype=np.int32)
    swapped = ask("mov.b32 $0, $3; mov.b32 $1, $2;", x, out=I32, pack=2, constraints="=r,=r,r,r")
    same_bits(swapped, np.array([1, 0, 3, 2, 5, 4], np.int32))


def test_no_inputs_and_no_lanes():
    run = compile_asm("mov.u32 ${0}, 7;", "=r", [], [I32], 1)
    same_bits(run([], 3)[0], np.full(3, 7, np.int32))
    assert len(run([])[0]) == 1
    assert len(ask("add.s32 $0, $1, $1;", np.array([], np.int32), out=I32)) == 0


def test_a_tied_operand_starts_in_its_result():
    x = np.arange(4, dtype=np.int32)
    run = compile_asm("add.s32 $0, $0, 1;", "=r,0,~{memory}", [I32], [I32], 1)
    same_bits(run([x])[0], x + 1)
    same_bits(x, np.arange(4, dtype=np.int32))  # the argument itself is left alone


def test_predicates_guard_every_kind_of_write():
    asm = """{ .reg .pred p, q; .reg .b16 lo, hi;
        setp.ge.s32 p, $1, 0; not.pred q, p; and.pred q, q, p;
        @p mov.u32 $0, 1; @!p mov.u32 $0, 2; @q mov.u32 $0, 3;
        mov.b32 {lo, hi}, $0; @!p mov.b32 {_, lo}, $1; mov.b32 $0, {lo, hi}; }"""
    x = np.array([-0x50000, 5, 0, -0x10000], np.int32)
    same_bits(ask(asm, x, out=I32), np.array([0xFFFB, 1, 1, 0xFFFF], np.int32))


def test_pairs_of_floats_in_wide_registers():
    asm = """{ .reg .b64 a, b, c; mov.b64 a, { $2, $3 }; mov.b64 b, { $4, $5 };
        mul.f32x2 c, a, b; mov.b64 { $0, $1 }, c; }"""
    a, b = drawn(F32, 8, 0, spread=4), drawn(F32, 8, 1, spread=4)
    got = ask(asm, a, b, out=F32, pack=2, constraints="=r,=r,r,r,r,r")
    same_bits(got, a * b)


def test_a_block_hides_the_names_outside():
    asm = "{ .reg .b32 t; mov.b32 t, 1; { .reg .b32 t; mov.b32 t, $1; } mov.b32 $0, t; }"
    same_bits(ask(asm, WORDS, out=U32), np.ones_like(WORDS))


# Integers: Python's own, with the width and sign of the type.


def _wrapped(value, t):
    bits_ = int(t[1:])
    value %= 1 << bits_
    return value - (1 << bits_) if t[0] == "s" and value >> (bits_ - 1) else value


def _divided(a, b):
    return int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))


INTEGER = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
    "div": _divided,
    "rem": lambda a, b: a - b * _divided(a, b),
}


@pytest.mark.parametrize("t", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("op", [*INTEGER, "mul.hi", "sad", "mad.lo", "mad.hi"])
def test_integer_arithmetic(op, t):
    dtype = np.dtype(f"{'i' if t[0] == 's' else 'u'}{int(t[1:]) // 8}")
    a, b, c = (words(100, seed, dtype) for seed in range(3))
    if op in ("div", "rem"):
        b[b == 0] = 3
    triple = op in ("sad", "mad.lo", "mad.hi")
    args = (a, b, c) if triple else (a, b)
    dollars = ", ".join(f"${i}" for i in range(len(args) + 1))
    got = ask(f"{op}.{t} {dollars};", *args, out=dtype)
    width = int(t[1:])
    rules = INTEGER | {
        "mul.hi": lambda a, b: (a * b) >> width,
        "mad.lo": lambda a, b, c: a * b + c,
        "mad.hi": lambda a, b, c: ((a * b) >> width) + c,
        "sad": lambda a, b, c: abs(a - b) + c,
    }
    wanted = [_wrapped(rules[op](*row), t) for row in zip(*(x.tolist() for x in args), strict=True)]
    same_bits(got, np.array(wanted, dtype))


@pytest.mark.parametrize("t", ["s16", "u16", "s32", "u32"])
def test_wide_products(t):
    dtype = np.dtype(f"{'i' if t[0] == 's' else 'u'}{int(t[1:]) // 8}")
    wide = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")
    a, b, c = words(50, 0, dtype), words(50, 1, dtype), words(50, 2, wide)
    product = a.astype(wide) * b.astype(wide)
    same_bits(ask(f"mul.wide.{t} $0, $1, $2;", a, b, out=wide), product)
    same_bits(ask(f"mad.wide.{t} $0, $1, $2, $3;", a, b, c, out=wide), product + c)


def test_saturating_sums_and_single_operands():
    a, b = words(80, 0, np.int32), words(80, 1, np.int32)
    wide = a.astype(np.int64), b.astype(np.int64)
    for op, exact in (("add", wide[0] + wide[1]), ("sub", wide[0] - wide[1])):
        wanted = np.clip(exact, -(2**31), 2**31 - 1).astype(np.int32)
        same_bits(ask(f"{op}.sat.s32 $0, $1, $2;", a, b, out=I32), wanted)
    for op, exact in (("abs", abs(wide[0])), ("neg", -wide[0])):
        same_bits(ask(f"{op}.s32 $0, $1;", a, out=I32), exact.astype(np.int32))
    relu = np.maximum(np.minimum(a, b), 0)
    same_bits(ask("min.relu.s32 $0, $1, $2;", a, b, out=I32), relu)
    pairs = [v.view(np.int16) for v in (a, b)]
    packed = ask("max.s16x2 $0, $1, $2;", *pairs, out=np.int16, pack=2, constraints="=r,r,r")
    same_bits(packed, np.maximum(*pairs))
    by_zero = ask("div.u32 $0, $1, 0;", WORDS, out=U32), ask("rem.u32 $0, $1, 0;", WORDS, out=U32)
    same_bits(by_zero[0], np.full_like(WORDS, 2**32 - 1))
    same_bits(by_zero[1], WORDS)


@pytest.mark.parametrize("lut", [0x00, 0xEA, 0xF8, 0x96, 0xE4, 0x6A, 0xFF, 0x1B])
def test_lop3_has_the_truth_table_of_its_literal(lut):
    a, b, c = (words(40, seed) for seed in range(3))
    # the ISA's recipe: the same function of 0xF0, 0xCC and 0xAA is the table itself
    constant = [np.full(1, v, np.uint32) for v in (0xF0, 0xCC, 0xAA)]
    assert ask(f"lop3.b32 $0, $1, $2, $3, {lut};", *constant, out=U32)[0] & 0xFF == lut
    got = ask(f"lop3.b32 $0, $1, $2, $3, {lut:#x};", a, b, c, out=U32)
    for row in zip(a, b, c, got, strict=True):
        bits_ = [f"{int(v):032b}" for v in row]
        table = [str(lut >> int(x + y + z, 2) & 1) for x, y, z in zip(*bits_[:3], strict=True)]
        assert "".join(table) == bits_[3]


def test_logic_and_shifts():
    a, b = words(60, 0), words(60, 1)
    for op, wanted in (("and", a & b), ("or", a | b), ("xor", a ^ b)):
        same_bits(ask(f"{op}.b32 $0, $1, $2;", a, b, out=U32), wanted)
    same_bits(ask("not.b32 $0, $1;", a, out=U32), ~a)
    counts = np.concatenate([np.arange(40), [2**31, 2**32 - 1]]).astype(np.uint32)
    for t in ("b32", "u32", "s32", "b64", "s64", "u64", "b16", "s16"):
        size = int(t[1:])
        x = np.full(len(counts), (-123456789012345) % 2**size, f"u{size // 8}")
        value = _wrapped(int(x[0]), t.replace("b", "u"))
        right = [(value >> min(int(n), 200)) % 2**size for n in counts]
        same_bits(ask(f"shr.{t} $0, $1, $2;", x, counts, out=x.dtype), np.array(right, x.dtype))
        if t[0] == "b":
            left = [(value << min(int(n), 200)) % 2**size for n in counts]
            same_bits(ask(f"shl.{t} $0, $1, $2;", x, counts, out=x.dtype), np.array(left, x.dtype))
    for mode, fold in (("wrap", lambda n: n % 32), ("clamp", lambda n: min(n, 32))):
        rows = list(zip(a.tolist(), b.tolist(), np.resize(counts, a.shape).tolist(), strict=True))
        left = [((hi << 32 | lo) << fold(n) >> 32) % 2**32 for lo, hi, n in rows]
        right = [((hi << 32 | lo) >> fold(n)) % 2**32 for lo, hi, n in rows]
        for side, wanted in (("l", left), ("r", right)):
            asm = f"shf.{side}.{mode}.b32 $0, $1, $2, $3;"
            got = ask(asm, a, b, np.resize(counts, a.shape), out=U32)
            same_bits(got, np.array(wanted, np.uint32))


@pytest.mark.parametrize("t", ["u32", "s32", "u64", "s64"])
def test_bit_fields(t):
    size = int(t[1:])
    dtype = np.dtype(f"u{size // 8}")
    positions = [0, 1, 5, 24, 31, 32, 63, 64, 255, 256 + 3]
    rows = [(p, n) for p in positions for n in (0, 1, 8, 31, 32, 33, 64, 200, 256)]
    pos, count = (np.array(column, np.uint32) for column in zip(*rows, strict=True))
    a, b = (words(len(rows), seed, dtype)[: len(rows)] for seed in (5, 6))
    fields, merged = [], []
    for x, y, p, n in zip(a.tolist(), b.tolist(), pos & 255, count & 255, strict=True):
        p, n = int(p), int(n)
        source = [x >> i & 1 for i in range(size)]
        sign = source[min(p + n - 1, size - 1)] if n and t[0] == "s" else 0
        field = [source[p + i] if i < n and p + i < size else sign for i in range(size)]
        into = [y >> i & 1 for i in range(size)]
        for i in range(min(n, max(size - p, 0))):
            into[p + i] = source[i]
        fields.append(sum(bit << i for i, bit in enumerate(field)))
        merged.append(sum(bit << i for i, bit in enumerate(into)))
    same_bits(ask(f"bfe.{t} $0, $1, $2, $3;", a, pos, count, out=dtype), np.array(fields, dtype))
    if t[0] == "u":
        got = ask(f"bfi.b{size} $0, $1, $2, $3, $4;", a, b, pos, count, out=dtype)
        same_bits(got, np.array(merged, dtype))


# The table of PTX ISA, prmt: the source byte of result bytes 3, 2, 1, 0 by selector.
MODES = {
    "f4e": ["3210", "4321", "5432", "6543"],
    "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"],
    "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"],
    "rc16": ["1010", "3232", "1010", "3232"],
}


def test_prmt():
    a, b, s = (words(60, seed) for seed in range(3))
    plain, by_mode = [], {mode: [] for mode in MODES}
    for x, y, z in zip(a.tolist(), b.tolist(), s.tolist(), strict=True):
        pool = struct.pack("<II", x, y)
        out = []
        for i in range(4):
            nibble = z >> 4 * i & 15
            byte = pool[nibble & 7]
            out.append((255 if byte & 128 else 0) if nibble & 8 else byte)
        plain.append(bytes(out))
        for mode, table in MODES.items():
            by_mode[mode].append(bytes(pool[int(k)] for k in reversed(table[z & 3])))
    got = ask("prmt.b32 $0, $1, $2, $3;", a, b, s, out=U32)
    same_bits(got, np.frombuffer(b"".join(plain), "<u4"))
    for mode, wanted in by_mode.items():
        got = ask(f"prmt.b32.{mode} $0, $1, $2, $3;", a, b, s, out=U32)
        same_bits(got, np.frombuffer(b"".join(wanted), "<u4"))


@pytest.mark.parametrize("dtype", [U32, U64])
def test_counts_of_bits(dtype):
    size = 8 * dtype.itemsize
    x = np.concatenate([words(50, 0, dtype), np.array([1 << k for k in range(size)], dtype)])
    text = [f"{int(v):0{size}b}" for v in x]
    letter = {4: "r", 8: "l"}[dtype.itemsize]
    rules = {
        f"popc.b{size}": [t.count("1") for t in text],
        f"clz.b{size}": [len(t) - len(t.lstrip("0")) for t in text],
        f"bfind.u{size}": [int(v).bit_length() - 1 for v in x],
        f"bfind.shiftamt.u{size}": [size - int(v).bit_length() if v else -1 for v in x],
        f"bfind.s{size}": [
            (int(v) if t[0] == "0" else ~int(v) % 2**size).bit_length() - 1
            for v, t in zip(x, text, strict=True)
        ],
    }
    for op, wanted in rules.items():
        got = ask(f"{op} $0, $1;", x, out=I32, constraints=f"=r,{letter}")
        same_bits(got, np.array(wanted, np.int32))
    same_bits(
        ask(f"brev.b{size} $0, $1;", x, out=dtype), np.array([int(t[::-1], 2) for t in text], dtype)
    )


@pytest.mark.parametrize("left", ["u32", "s32"])
@pytest.mark.parametrize("right", ["u32", "s32"])
def test_dot_products_of_bytes(left, right):
    a, b, c = (words(60, seed) for seed in range(3))
    sign = "s" if "s32" in (left, right) else "u"

    def parts(value, size, t):
        form = {(8, "s32"): "4b", (8, "u32"): "4B", (16, "s32"): "2h", (16, "u32"): "2H"}[size, t]
        return struct.unpack(f"<{form}", struct.pack("<I", value))

    four, low, high = [], [], []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        bytes_, halves, others = parts(x, 8, left), parts(x, 16, left), parts(y, 8, right)
        four.append(z + sum(p * q for p, q in zip(bytes_, others, strict=True)))
        low.append(z + halves[0] * others[0] + halves[1] * others[1])
        high.append(z + halves[0] * others[2] + halves[1] * others[3])
    for op, wanted in (("dp4a", four), ("dp2a.lo", low), ("dp2a.hi", high)):
        got = ask(f"{op}.{left}.{right} $0, $1, $2, $3;", a, b, c, out=U32)
        same_bits(got, np.array([w % 2**32 for w in wanted], np.uint32))
    assert sign == "s" or min(four) >= 0


# Floats: rationals, rounded once.

NAN = {F16: 0x7FFF, BF16: 0x7FFF, F32: 0x7FFFFFFF, F64: 0x7FFFFFFFFFFFFFFF}
EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
}


def _all_draws(t, count):
    """Three operands with all exponents, and three with near ones so that sums cancel."""
    near = [drawn(t, count, seed, spread=2) for seed in range(3)]
    near[2][: count // 2] = -(near[0][: count // 2] * near[1][: count // 2])
    far = [drawn(t, count, seed) for seed in range(3, 6)]
    return [np.concatenate(pair) for pair in zip(near, far, strict=True)]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", [*SCALARS])
@pytest.mark.parametrize("op", [*EXACT])
def test_float_arithmetic_is_rounded_once(op, name, mode):
    halves = name in ("f16", "bf16")
    if halves and (mode != "rn" or op in ("div", "rcp")):
        with pytest.raises(UnknownAsm, match=op):
            ask(f"{op}.{mode}.{name} $0, $1, $2;", np.ones(1, SCALARS[name]), out=SCALARS[name])
        return
    dtype = SCALARS[name]
    args = _all_draws(dtype, 150)[: {"fma": 3, "rcp": 1}.get(op, 2)]
    dollars = ", ".join(f"${i}" for i in range(len(args) + 1))
    got = ask(f"{op}.{mode}.{name} {dollars};", *args, out=dtype)
    checked = 0
    for i, row in enumerate(zip(*(a.astype(np.float64).tolist() for a in args), strict=True)):
        if op in ("div", "rcp") and row[-1] == 0:
            continue
        exact = EXACT[op](*map(Fraction, row))
        if exact == 0:
            assert got[i] == 0
            continue
        same_bits(got[i : i + 1], rounded(exact, dtype, mode)[None])
        checked += 1
    assert checked > 200


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_roots_are_rounded_once(name, mode):
    dtype = SCALARS[name]
    x = np.abs(drawn(dtype, 200, 0))
    got = ask(f"sqrt.{mode}.{name} $0, $1;", x, out=dtype)
    for value, y in zip(x.astype(np.float64).tolist(), got, strict=True):
        if value == 0:
            continue
        # the root to 200 bits and a sticky one is on the same side of every boundary
        scaled = Fraction(value) * Fraction(4) ** 800
        root = Fraction(math.isqrt(int(scaled)), 2**800)
        sticky = root * root != Fraction(value)
        same_bits(y[None], rounded(root + sticky * Fraction(1, 2**802), dtype, mode)[None])


def test_zeros_of_exact_sums_have_the_sign_of_the_direction():
    a = np.array([1, 0, -0.0, 0, -0.0], np.float32)
    b = np.array([-1, 0, -0.0, -0.0, 0], np.float32)
    plus, minus = [0.0, 0, -0.0, 0, 0], [-0.0, 0, -0.0, -0.0, -0.0]
    for mode, wanted in (("rn", plus), ("rz", plus), ("rp", plus), ("rm", minus)):
        for asm in ("add.{}.f32 $0, $1, $2;", "fma.{}.f32 $0, $1, 0f3f800000, $2;"):
            same_bits(ask(asm.format(mode), a, b, out=F32), np.array(wanted, np.float32))


@pytest.mark.parametrize("name", ["f16x2", "bf16x2", "f32x2"])
def test_pairs_are_two_of_the_scalar(name):
    dtype = SCALARS[name[:-2]]
    a, b, c = (drawn(dtype, 64, seed) for seed in range(3))
    for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma.rn", 3)):
        args, dollars = (a, b, c)[:count], ", ".join(f"${i}" for i in range(count + 1))
        paired = [x.view(np.int64) if name == "f32x2" else x for x in args]
        letter = "l" if name == "f32x2" else "r"
        got = ask(
            f"{op}.{name} {dollars};", *paired, out=paired[0].dtype,
            pack=1 if name == "f32x2" else 2, constraints="=" + ",".join([letter] * (count + 1)),
        )  # fmt: skip
        same_bits(got.view(dtype), ask(f"{op}.{name[:-2]} {dollars};", *args, out=dtype))


@pytest.mark.parametrize("name", [*SCALARS])
def test_nan_is_canonical_and_infinities_follow_ieee(name):
    dtype = SCALARS[name]
    x = ODD.astype(dtype)
    a, b = (v.ravel() for v in np.meshgrid(x, x))
    with np.errstate(all="ignore"):
        wanted = {
            "add": a.astype(F64) + b.astype(F64),
            "mul": a.astype(F64) * b.astype(F64),
            "fma.rn": a.astype(F64) * b.astype(F64) + a.astype(F64),
        }
    for op, exact in wanted.items():
        third = ", $1" if op == "fma.rn" else ""
        got = ask(f"{op}.{name} $0, $1, $2{third};", a, b, out=dtype)
        nan = np.isnan(exact)
        codes = got.view(f"u{dtype.itemsize}")
        assert (codes[nan] == NAN[dtype]).all()
        same_bits(got[~nan], exact[~nan].astype(dtype))
    huge = np.full(1, 1e300)
    inf = ask("fma.rn.f64 $0, $1, $1, $2;", huge, np.full(1, -np.inf), out=F64)
    assert inf[0] == -np.inf  # the product overflows only when rounded


def test_flushing_saturating_and_rectifying():
    tiny = np.array([1e-40, -1e-40, 3e-38, -2.0, 0.25, np.nan, np.inf], np.float32)
    one = np.float32(1) + np.zeros_like(tiny)
    flushed = np.array([0.0, -0.0, 3e-38, -2.0, 0.25, np.nan, np.inf], np.float32)
    flushed.view(np.uint32)[5] = NAN[F32]
    same_bits(ask("mul.ftz.f32 $0, $1, $2;", tiny, one, out=F32), flushed)
    half = ask("mul.ftz.f32 $0, $1, 0f3e800000;", tiny, out=F32)
    assert half[2] == 0  # a result below the normal numbers goes, too
    assert ask("mul.f32 $0, $1, 0f3e800000;", tiny, out=F32)[2] == np.float32(3e-38) / 4
    unit = np.array([1e-40, 0.0, 3e-38, 0.0, 0.25, 0.0, 1.0], np.float32)
    same_bits(ask("add.sat.f32 $0, $1, 0f00000000;", tiny, out=F32), unit)
    x = np.array([-3, 2, np.nan, -0.0], np.float16)
    got = ask("fma.rn.relu.f16 $0, $1, $1, $1; neg.f16 $0, $0;", x, out=F16)
    assert got[0] == -6
    got = ask("{.reg .b16 o; mov.b16 o, 0x3C00; fma.rn.relu.f16 $0, $1, o, $1;}", x, out=F16)
    same_bits(got, np.array([0, 0x4400, 0x7FFF, 0], np.uint16).view(np.float16))


@pytest.mark.parametrize("name", [*SCALARS])
def test_extremes_take_the_number_and_order_zeros(name):
    dtype = SCALARS[name]
    a, b = (v.ravel() for v in np.meshgrid(ODD.astype(dtype), ODD.astype(dtype)))
    for op, pick in (("min", min), ("max", max)):
        got = ask(f"{op}.{name} $0, $1, $2;", a, b, out=dtype)
        for x, y, z in zip(a.tolist(), b.tolist(), got, strict=True):
            x, y = float(x), float(y)
            if math.isnan(x) and math.isnan(y):
                assert int(z.view(f"u{dtype.itemsize}")) == NAN[dtype]
                continue
            numbers = [v for v in (x, y) if not math.isnan(v)]
            wanted = pick(numbers, key=lambda v: (v, math.copysign(1, v)))
            same_bits(z[None], np.array([wanted]).astype(dtype))
        if name != "f64":
            spread = ask(f"{op}.NaN.{name} $0, $1, $2;", a, b, out=dtype)
            either = np.isnan(a.astype(F64)) | np.isnan(b.astype(F64))
            assert (np.isnan(spread.astype(F64)) == either).all()
            signed = ask(f"{op}.xorsign.abs.{name} $0, $1, $2;", a, b, out=dtype)
            flipped = np.signbit(a) ^ np.signbit(b)
            known = ~np.isnan(signed.astype(F64))
            assert (np.signbit(signed) == flipped)[known].all()
            size = (pick is min and np.fmin) or np.fmax
            same_bits(
                np.abs(signed)[known],
                size(np.abs(a.astype(F64)), np.abs(b.astype(F64)))[known].astype(dtype),
            )


def test_signs():
    x = np.array([1.5, -2, 0.0, -0.0, -np.inf], np.float16)
    same_bits(ask("abs.f16 $0, $1;", x, out=F16), np.abs(x))
    same_bits(ask("neg.f16 $0, $1;", x, out=F16), -x)
    pairs = np.array([1.5, -2], BF16)
    same_bits(ask("neg.bf16x2 $0, $1;", pairs, out=BF16, pack=2), -pairs)
    nan = np.array([0xFFC00001], np.uint32).view(np.float32)
    assert ask("abs.f32 $0, $1;", nan, out=U32)[0] == NAN[F32]
    assert ask("copysign.f32 $0, $1, $2;", -np.ones(1, F32), np.full(1, 3, F32), out=F32)[0] == -3


APPROXIMATE = {
    "ex2.approx": (torch.exp2, "f32 f16"),
    "lg2.approx": (torch.log2, "f32"),
    "sin.approx": (torch.sin, "f32"),
    "cos.approx": (torch.cos, "f32"),
    "rsqrt.approx": (torch.rsqrt, "f32"),
    "sqrt.approx": (torch.sqrt, "f32"),
    "rcp.approx": (torch.reciprocal, "f32"),
    "tanh.approx": (torch.tanh, "f32 f16 bf16"),
    "ex2.approx.ftz": (torch.exp2, "bf16"),
}


@pytest.mark.parametrize("op", APPROXIMATE)
def test_approximations_are_the_rounded_real_function(op):
    function, types = APPROXIMATE[op]
    for name in types.split():
        dtype = SCALARS[name]
        x = np.concatenate([drawn(dtype, 100, 0, spread=3), ODD.astype(dtype)])
        x = np.abs(x) if op[:3] in ("lg2", "sqr", "rsq") else x
        got = ask(f"{op}.{name} $0, $1;", x, out=dtype)
        real = function(torch.from_numpy(x.astype(np.float64))).numpy()
        with np.errstate(over="ignore"):
            wanted = real.astype(np.float32).astype(dtype) if name == "bf16" else real.astype(dtype)
        nan = np.isnan(real)
        assert (got.view(f"u{dtype.itemsize}")[nan] == NAN[dtype]).all()
        same_bits(got[~nan], wanted[~nan])


def test_division_of_the_fast_kind():
    a = np.array([1, 3, np.inf, -1], np.float32)
    b = np.array([3, 2.0**127, 2.0**127, 2.0**126], np.float32)
    got = ask("div.approx.f32 $0, $1, $2;", a, b, out=F32)
    same_bits(got[[0, 1, 3]], np.array([np.float32(1) / np.float32(3), 0, -(2.0**-126)], F32))
    assert np.isnan(got[2])  # 2**127 has a flushed reciprocal, and infinity times 0 is NaN
    assert ask("div.full.f32 $0, $1, $2;", a, b, out=F32)[1] == np.float32(3 / 2**127)


COMPARISONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16"])
def test_comparisons_of_floats(name):
    dtype = SCALARS[name]
    a, b = (v.ravel() for v in np.meshgrid(ODD.astype(dtype), ODD.astype(dtype)))
    letter = LETTERS[dtype.itemsize]
    rows = list(zip(a.astype(F64).tolist(), b.astype(F64).tolist(), strict=True))
    ordered = [not (math.isnan(x) or math.isnan(y)) for x, y in rows]
    rules = {"num": ordered, "nan": [not o for o in ordered]}
    for op, rule in COMPARISONS.items():
        rules[op] = [o and rule(x, y) for (x, y), o in zip(rows, ordered, strict=True)]
        rules[f"{op}u"] = [not o or rule(x, y) for (x, y), o in zip(rows, ordered, strict=True)]
    for op, wanted in rules.items():
        asm = f"{{.reg .pred p, q; setp.{op}.{name} p|q, $1, $2; selp.s32 $0, 1, 0, p;\n"
        asm += "@q add.s32 $0, $0, 2;}"
        got = ask(asm, a, b, out=I32, constraints=f"=r,{letter},{letter}")
        same_bits(got, np.where(wanted, 1, 2).astype(np.int32))


def test_comparisons_of_integers_and_combinations():
    a, b = words(50, 0), words(50, 1)
    b[::3] = a[::3]
    unsigned = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"} | {op: op for op in COMPARISONS}
    for t, names in (("u32", unsigned), ("s32", {op: op for op in COMPARISONS})):
        x, y = (a, b) if t == "u32" else (a.view(np.int32), b.view(np.int32))
        for op, rule in names.items():
            got = ask(f"set.{op}.u32.{t} $0, $1, $2;", x, y, out=I32)
            same_bits(got, -COMPARISONS[rule](x, y).astype(np.int32))
    for op, rule in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        asm = f"""{{.reg .pred p, q; setp.lt.u32 q, $2, 0x80000000;
            setp.lt.{op}.u32 p, $1, 1000000000, !q; selp.b32 $0, $1, $2, p;}}"""
        truth = rule(a < 1000000000, b >= 0x80000000)
        same_bits(ask(asm, a, b, out=U32), np.where(truth, a, b))
    got = ask("set.gt.f32.s32 $0, $1, 0;", a.view(np.int32), out=F32)
    same_bits(got, (a.view(np.int32) > 0).astype(np.float32))


def test_selection_by_sign_and_properties():
    x = ODD
    got = ask("slct.s32.f32 $0, 5, 6, $1;", x, out=I32)
    same_bits(got, np.where(x >= 0, 5, 6).astype(np.int32))
    got = ask("slct.f32.s32 $0, 0f40000000, 1.5, $1;", words(5, 0, I32), out=F32)
    same_bits(got, np.where(words(5, 0, I32) >= 0, 2, 1.5).astype(np.float32))
    kinds = {
        "finite": np.isfinite(x), "infinite": np.isinf(x), "number": ~np.isnan(x),
        "notanumber": np.isnan(x), "normal": np.isfinite(x) & (x != 0), "subnormal": x > 9,
    }  # fmt: skip
    kinds["subnormal"][:] = False
    for kind, wanted in kinds.items():
        asm = f"{{.reg .pred p; testp.{kind}.f32 p, $1; selp.u32 $0, 1, 0, p;}}"
        same_bits(ask(asm, x, out=I32), wanted.astype(np.int32))


# Conversions.


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(
    ("to", "of"),
    [("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64")],
)
def test_floats_to_narrower_floats(to, of, mode):
    x = np.concatenate([drawn(SCALARS[of], 200, 0), drawn(SCALARS[of], 200, 1, spread=18)])
    x = np.concatenate([x, np.array([65519, 65520, 2.0**-25, 3e-8, np.inf], SCALARS[of])])
    got = ask(f"cvt.{mode}.{to}.{of} $0, $1;", x, out=SCALARS[to])
    for value, y in zip(x.astype(F64).tolist(), got, strict=True):
        wanted = rounded(Fraction(value), SCALARS[to], mode) if math.isfinite(value) else value
        same_bits(y[None], np.array([wanted], SCALARS[to]))


def test_floats_to_wider_floats_and_integral_floats():
    x = np.arange(65536, dtype=np.uint16)
    for name, dtype in (("f16", F16), ("bf16", BF16)):
        got = ask(f"cvt.f32.{name} $0, $1;", x.view(dtype), out=F32)
        wanted = x.view(dtype).astype(np.float32)
        nan = np.isnan(wanted)
        same_bits(got[~nan], wanted[~nan])
        assert (got.view(np.uint32)[nan] == NAN[F32]).all()
    y = np.array([0.5, 1.5, -0.5, -1.2, 2.7, 1e10, np.inf], np.float32)
    for mode, rule in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        same_bits(ask(f"cvt.{mode}.f32.f32 $0, $1;", y, out=F32), rule(y))
    same_bits(ask("cvt.sat.f32.f32 $0, $1;", y, out=F32), np.clip(y, 0, 1) + np.float32(0))


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("to", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("of", ["f32", "f64", "f16"])
def test_floats_to_integers_clamp(to, of, mode):
    rule = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode]
    x = np.concatenate([drawn(SCALARS[of], 100, 0, spread=9), drawn(SCALARS[of], 60, 1)])
    x = np.concatenate([x, np.array([0.5, 1.5, -0.5, 127.5, 255.5, np.inf, -np.inf], SCALARS[of])])
    size = int(to[1:])
    low, high = (-(2 ** (size - 1)), 2 ** (size - 1) - 1) if to[0] == "s" else (0, 2**size - 1)
    dtype = np.dtype(f"{'i' if to[0] == 's' else 'u'}{max(size, 16) // 8}")
    out = dtype if size > 8 else np.dtype(dtype.kind + "4")
    constraints = f"={LETTERS[out.itemsize]},{LETTERS[x.itemsize]}"
    got = ask(f"cvt.{mode}.{to}.{of} $0, $1;", x, out=out, constraints=constraints)
    for value, y in zip(x.astype(F64).tolist(), got.tolist(), strict=True):
        whole = rule(value) if math.isfinite(value) else math.copysign(2**70, value)
        assert y == int(min(max(whole, low), high))
    nan = ask(f"cvt.{mode}.{to}.{of} $0, $1;", x[:1] * SCALARS[of].type(np.nan), out=out,
              constraints=constraints)  # fmt: skip
    top = 1 << (size - 1) if of == "f64" or size == 64 else 0
    assert int(nan[0]) % 2**size == top


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("of", ["s32", "u32", "s64", "u64", "s16"])
def test_integers_to_floats_are_rounded_once(of, mode):
    dtype = np.dtype(f"{'i' if of[0] == 's' else 'u'}{int(of[1:]) // 8}")
    x = words(150, 3, dtype)
    if dtype.itemsize == 8:  # a tie at 53 bits that a second rounding would break wrongly
        x = np.concatenate([x, np.array([2**62 + 2**38, 2**62 + 2**38 + 1, 2**60 - 1], dtype)])
    for name in ("f32", "f64", "f16"):
        got = ask(f"cvt.{mode}.{name}.{of} $0, $1;", x, out=SCALARS[name])
        for value, y in zip(x.tolist(), got, strict=True):
            wanted = rounded(Fraction(value), SCALARS[name], mode) if value else 0.0
            same_bits(y[None], np.array([wanted], SCALARS[name]))


def test_integers_to_integers():
    x = words(60, 0, np.int32)
    same_bits(ask("cvt.s64.s32 $0, $1;", x, out=I64), x.astype(np.int64))
    same_bits(ask("cvt.u32.u8 $0, $1;", x, out=I32), x & 255)
    same_bits(ask("cvt.s32.s8 $0, $1;", x, out=I32), x.astype(np.int8).astype(np.int32))
    same_bits(ask("cvt.s8.s32 $0, $1;", x, out=I32), x.astype(np.int8).astype(np.int32))
    same_bits(ask("cvt.sat.u8.s32 $0, $1;", x, out=I32), np.clip(x, 0, 255))
    same_bits(ask("cvt.sat.s16.u32 $0, $1;", x, out=I32), np.clip(x.view(U32), 0, 32767).view(I32))
    halves = drawn(F16, 20, 0)  # in the low bits of registers of 32
    same_bits(ask("cvt.f32.f16 $0, $1;", halves, out=F32, constraints="=r,r"), halves.astype(F32))
    got = ask("cvt.rn.f16.f32 $0, $1;", halves.astype(F32), out=U32)
    same_bits(got, halves.view(np.uint16).astype(np.uint32))
    b = words(60, 1, np.int32)
    got = ask("cvt.pack.sat.s8.s32.b32 $0, $1, $2, 0x12345678;", x, b, out=U32)
    bytes_ = [
        np.clip(v, -128, 127).astype(np.int8).view(np.uint8).astype(np.uint32) for v in (b, x)
    ]
    same_bits(got, bytes_[0] | bytes_[1] << np.uint32(8) | np.uint32(0x56780000))


def test_tf32():
    x = np.concatenate([drawn(F32, 500, 0), np.array([np.nan, np.inf, 3.4028e38], F32)])
    code = x.view(np.uint32).astype(np.uint64)
    finite = np.isfinite(x)
    nearest = np.array([struct.unpack("<I", struct.pack("<f", v))[0] for v in x[finite]], np.uint64)
    even = (nearest + 0xFFF + (nearest >> 13 & 1)) & 0xFFFFE000
    away = (code[finite] + 0x1000) & 0xFFFFE000
    for mode, wanted in (("rn", even), ("rna", away), ("rz", code[finite] & 0xFFFFE000)):
        got = ask(f"cvt.{mode}.tf32.f32 $0, $1;", x, out=U32)
        same_bits(got[finite], wanted.astype(np.uint32))
        assert got[500] == NAN[F32]
        assert got[501] == 0x7F800000
    top = ask("cvt.rna.satfinite.tf32.f32 $0, $1;", x[501:], out=U32)
    assert top.tolist() == [0x7F7FE000] * 2


def test_pairs_out_of_two_floats_put_the_first_high():
    a, b = drawn(F32, 200, 0, spread=12), drawn(F32, 200, 1, spread=12)
    for name, dtype in (("f16", F16), ("bf16", BF16)):
        for mode in ("rn", "rz"):
            got = ask(f"cvt.{mode}.{name}x2.f32 $0, $1, $2;", a, b, out=U32)
            high, low = (got >> 16).astype(np.uint16), got.astype(np.uint16)
            for half, x in ((high, a), (low, b)):
                wanted = [rounded(Fraction(float(v)), dtype, mode) for v in x]
                same_bits(half.view(dtype), np.array(wanted, dtype))
    got = ask("cvt.rn.relu.satfinite.f16x2.f32 $0, $1, $2;", np.full(1, 1e9, F32), -a[:1] ** 2,
              out=U32)  # fmt: skip
    assert got[0] == 0x7BFF0000


@pytest.mark.parametrize(("name", "dtype", "top"), [("e4m3", E4M3, 448), ("e5m2", E5M2, 57344)])
def test_bytes_of_eight_bit_floats(name, dtype, top):
    x = np.concatenate([drawn(F32, 400, 0, spread=10), ODD, np.array([1e9, -1e9, 464, 465], F32)])
    b = x[::-1].copy()

    def narrow(v):
        with np.errstate(invalid="ignore"):
            y = np.clip(v, -top, top).astype(dtype).view(np.uint8)
        return np.where(np.isnan(v), 0x7F, y)

    asm = f"{{.reg .b16 t; cvt.rn.satfinite.{name}x2.f32 t, $1, $2; cvt.u32.u16 $0, t;}}"
    same_bits(ask(asm, x, b, out=I32), (narrow(x).astype(np.int32) << 8) | narrow(b))
    with np.errstate(over="ignore"):
        halves = x.astype(np.float16)
    got = ask(f"cvt.rn.satfinite.{name}x2.f16x2 $0, $1;", halves, out=dtype, pack=2,
              constraints="=h,r")  # fmt: skip
    same_bits(got.view(np.uint8), narrow(halves.astype(np.float32)).astype(np.uint8))
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    back = ask(f"cvt.rn.f16x2.{name}x2 $0, $1;", codes, out=F16, pack=2, constraints="=r,h")
    wide = codes.astype(np.float32)
    nan = np.isnan(wide)
    same_bits(back[~nan], wide[~nan].astype(np.float16))
    assert (back.view(np.uint16)[nan] == 0x7FFF).all()


def test_four_bit_floats():
    grid = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    x = np.array([0.24, 0.25, 0.26, 0.75, 2.5, 3.5, 5, 5.1, 1e9, -2.4, -np.inf, np.nan], np.float32)
    codes = []
    for v in x.tolist():
        size = min(abs(v), 6.0) if v == v else 6.0
        best = min(range(8), key=lambda k: (abs(grid[k] - size), k & 1))
        codes.append(best | (8 if v < 0 else 0))
    asm = "{.reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $1, $2; cvt.u32.u8 $0, t;}"
    one = np.ones_like(x)
    same_bits(ask(asm, x, one, out=I32), np.array([c << 4 | 2 for c in codes], np.int32))
    every = np.arange(256, dtype=np.uint8)
    asm = "{.reg .b8 t; cvt.u8.u32 t, $1; cvt.rn.f16x2.e2m1x2 $0, t;}"
    got = ask(asm, every, out=U32, constraints="=r,r").view(np.float16).reshape(-1, 2)
    signed = np.array(grid + [-v for v in grid], np.float16)
    signed[8] = -0.0
    same_bits(got[:, 0].copy(), signed[every & 15])
    same_bits(got[:, 1].copy(), signed[every >> 4])


def test_scales_of_eight_exponent_bits():
    codes = np.arange(256, dtype=np.uint8)
    got = ask("cvt.rn.bf16x2.ue8m0x2 $0, $1;", codes, out=BF16, pack=2, constraints="=r,h")
    same_bits(got[:255], np.ldexp(1.0, codes[:255].astype(int) - 127).astype(BF16))
    assert got.view(np.uint16)[255] == 0x7FFF


def test_literals():
    x = np.zeros(1, np.uint32)
    for text, wanted in (("010", 8), ("0x1F", 31), ("0b101", 5), ("-1", 2**32 - 1), ("7U", 7),
                         ("0f3f800000", 0x3F800000)):  # fmt: skip
        assert ask(f"mov.b32 $0, {text}; add.u32 $0, $0, $1;", x, out=U32)[0] == wanted
    y = np.zeros(1)
    for text, wanted in (("0d3ff8000000000000", 1.5), ("0f3fc00000", 1.5), ("2.5e-3", 0.0025)):
        assert ask(f"add.f64 $0, $1, {text};", y, out=F64)[0] == wanted


REFUSED = [
    ("mov.u32 $0, %laneid;", "%laneid to be declared"),
    ("mov.u32 $0, %globaltimer;", "%globaltimer"),
    ("frobnicate.u32 $0, $1;", "frobnicate.u32"),
    ("add.f32.bf16 $0, $1, $1;", "add.f32.bf16"),
    ("add.cc.u32 $0, $1, $1;", r"add.cc.u32, expected no \.cc"),
    ("ld.global.u32 $0, [$1];", "ld.global.u32"),
    ("L: add.u32 $0, $1, 1;", "L: add"),
    ("bra L;", "bra"),
    ("add.u32 $0, $1, 1", "end in ;"),
    ("add.u32 $0, $1;", "2 sources"),
    ("add.u32 $0, $1, $2;", r"\$2 to be declared"),
    ("add.u64 $0, $1, $1;", "64 bits"),
    ("add.u32 $0, $0, $1;", r"value in \$0"),
    ("{.reg .b32 t; mov.b32 $0, t;}", "value in t"),
    ("{.reg .b32 t; mov.b32 t, $1;}", r"no write of \$0"),
    ("add.u32 $0, $1, 0x100000000;", "literal of 32 bits"),
    ("add.f32 $0, $1, 1;", "not '1'"),
    ("add.f32 $0, $1, WARP_SZ;", "WARP_SZ"),
    ("mov.b32 5, $1;", "register for the result"),
    ("add.u32 $0, !$1, $1;", "! before predicates"),
    ("{ mov.b32 $0, $1;", "without an end"),
    ("mov.b32 $0, $1; }", "block to close"),
    (".reg .b99 t; mov.b32 $0, $1;", "known type"),
    (".reg .b32 t, t; mov.b32 $0, $1;", "no second t"),
    (".reg .b32 a.b; mov.b32 $0, $1;", "names of registers"),
    ("{.reg .b16 a; mov.b32 {a, a, a}, $1; mov.b32 $0, $1;}", "parts that fill"),
    ("cvt.f16.f32 $0, $1;", "cvt.f16.f32"),
    ("cvt.rs.f16x2.f32 $0, $1, $1, $1;", "cvt.rs"),
    ("cvt.rn.f32.f16 $0, $1;", r"expected no \.rn"),
    ("cvt.rn.e4m3x2.f32 $0, $1, $1;", "satfinite"),
    ("rcp.approx.ftz.f64 $0, $1;", "rcp.approx.ftz.f64"),
    ("ex2.approx.bf16 $0, $1;", "expected .ftz"),
    ("mul.wide.u64 $0, $1, $1;", "mul.wide.u64"),
    ("setp.lo.s32 $0, $1, $1;", "setp.lo.s32"),
]


@pytest.mark.parametrize(("asm", "message"), REFUSED)
def test_the_unknown_is_refused_by_name(asm, message):
    with pytest.raises(UnknownAsm, match=message):
        compile_asm(asm, "=r,r", [I32], [I32], 1)


@pytest.mark.parametrize(
    ("constraints", "dtype", "pack", "message"),
    [("=r", I32, 1, "expected a source"), ("r,r", I32, 1, "expected a result"),
     ("=r,r,r", I32, 1, "2 operands"), ("=b,r", I32, 1, "=b"), ("=h,h", I32, 1, "wider"),
     ("=r,r", np.dtype(bool), 1, "bool"), ("=r,r", np.dtype("u1"), 6, "multiple of 4")],
)  # fmt: skip
def test_operands_that_do_not_fit_are_refused(constraints, dtype, pack, message):
    with pytest.raises(UnknownAsm, match=message):
        compile_asm("mov.b32 $0, $1;", constraints, [dtype], [dtype], pack)


def test_arrays_of_other_types_are_refused():
    run = compile_asm("add.u32 $0, $1, $1;", "=r,r", [I32], [I32], 1)
    with pytest.raises(ValueError, match="asm inputs"):
        run([np.zeros(3)])

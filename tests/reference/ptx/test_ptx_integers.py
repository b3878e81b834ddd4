"""The integer instructions of PTX against Python's own integers, wrapped to the type's width."""

import math
import struct

import numpy as np
import pytest
from ptx_asm import I32, U32, U64, WORDS, ask, same_bits, words


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

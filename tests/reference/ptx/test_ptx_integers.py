"""The integer instructions of PTX against Python's own integers, wrapped to the type's width."""

import math
import struct

import numpy as np
import pytest
from tests.reference.ptx.ptx_asm import WORDS, check, draw_integers, integer_dtype, run
from tests.support.rational import map_rows


def _check_rows(asm, t, rule, *args):
    """The result of type t is the rule of each row of args, in Python's integers."""
    check(asm, *args, gives=map_rows(rule, integer_dtype(t), *args))


def _divide(a, b):
    return int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))


INTEGER = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
    "div": _divide,
    "rem": lambda a, b: a - b * _divide(a, b),
}


@pytest.mark.parametrize("t", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("op", [*INTEGER, "mul.hi", "sad", "mad.lo", "mad.hi"])
def test_integer_arithmetic(op, t):
    a, b, c = (draw_integers(100, seed, integer_dtype(t)) for seed in range(3))
    if op in ("div", "rem"):
        b[b == 0] = 3
    width = int(t[1:])
    rules = INTEGER | {
        "mul.hi": lambda a, b: (a * b) >> width,
        "mad.lo": lambda a, b, c: a * b + c,
        "mad.hi": lambda a, b, c: ((a * b) >> width) + c,
        "sad": lambda a, b, c: abs(a - b) + c,
    }
    args = (a, b, c) if op in ("sad", "mad.lo", "mad.hi") else (a, b)
    _check_rows(f"{op}.{t}", t, rules[op], *args)


@pytest.mark.parametrize("t", ["s16", "u16", "s32", "u32"])
def test_wide_products(t):
    wide = f"{t[0]}{2 * int(t[1:])}"
    a, b, c = (draw_integers(50, k, integer_dtype(u)) for k, u in enumerate((t, t, wide)))
    _check_rows(f"mul.wide.{t}", wide, lambda a, b: a * b, a, b)
    _check_rows(f"mad.wide.{t}", wide, lambda a, b, c: a * b + c, a, b, c)


@pytest.mark.parametrize(
    ("asm", "rule"),
    [
        ("add.sat.s32", lambda a, b: min(max(a + b, -(2**31)), 2**31 - 1)),
        ("sub.sat.s32", lambda a, b: min(max(a - b, -(2**31)), 2**31 - 1)),
        ("min.relu.s32", lambda a, b: max(min(a, b), 0)),
        ("abs.s32 $0, $1;", lambda a, b: abs(a)),
        ("neg.s32 $0, $1;", lambda a, b: -a),
    ],
)
def test_saturating_sums_and_single_operands(asm, rule):
    _check_rows(asm, "s32", rule, *(draw_integers(80, seed, np.int32) for seed in (0, 1)))


def test_pairs_of_integers():
    pairs = [draw_integers(80, seed, np.int32).view(np.int16) for seed in (0, 1)]
    check("max.s16x2", *pairs, gives=np.maximum(*pairs), pack=2)


def test_division_by_zero():
    check("div.u32 $0, $1, 0;", WORDS, gives=np.full_like(WORDS, 2**32 - 1))
    check("rem.u32 $0, $1, 0;", WORDS, gives=WORDS)


@pytest.mark.parametrize("lut", [0x00, 0xEA, 0xF8, 0x96, 0xE4, 0x6A, 0xFF, 0x1B])
def test_lop3_has_the_truth_table_of_its_literal(lut):
    a, b, c = (draw_integers(40, seed) for seed in range(3))
    # the ISA's recipe: the same function of 0xF0, 0xCC and 0xAA is the table itself
    constant = [np.full(1, v, np.uint32) for v in (0xF0, 0xCC, 0xAA)]
    table = run(f"lop3.b32 $0, $1, $2, $3, {lut};", *constant, out="u4")
    assert table[0] & 0xFF == lut
    got = run(f"lop3.b32 $0, $1, $2, $3, {lut:#x};", a, b, c, out="u4")
    for row in zip(a, b, c, got, strict=True):
        bits_ = [f"{int(v):032b}" for v in row]
        table = [str(lut >> int(x + y + z, 2) & 1) for x, y, z in zip(*bits_[:3], strict=True)]
        assert "".join(table) == bits_[3]


def test_logic():
    a, b = draw_integers(60, 0), draw_integers(60, 1)
    for op, expected in (("and", a & b), ("or", a | b), ("xor", a ^ b)):
        check(f"{op}.b32", a, b, gives=expected)
    check("not.b32", a, gives=~a)


COUNTS = np.concatenate([np.arange(40), [2**31, 2**32 - 1]]).astype(np.uint32)


@pytest.mark.parametrize("t", ["b32", "u32", "s32", "b64", "s64", "u64", "b16", "s16"])
def test_shifts(t):
    signless = t.replace("b", "u")
    x = np.full(len(COUNTS), -123456789012345).astype(integer_dtype(signless))
    _check_rows(f"shr.{t}", signless, lambda v, n: v >> min(n, 200), x, COUNTS)
    if t[0] == "b":
        _check_rows(f"shl.{t}", signless, lambda v, n: v << min(n, 200), x, COUNTS)


@pytest.mark.parametrize(
    ("mode", "fold"), [("wrap", lambda n: n % 32), ("clamp", lambda n: min(n, 32))]
)
def test_funnel_shifts(mode, fold):
    low, high = draw_integers(60, 0), draw_integers(60, 1)
    args = low, high, np.resize(COUNTS, low.shape)
    _check_rows(f"shf.l.{mode}.b32", "u32", lambda a, b, n: (b << 32 | a) << fold(n) >> 32, *args)
    _check_rows(f"shf.r.{mode}.b32", "u32", lambda a, b, n: (b << 32 | a) >> fold(n), *args)


POSITIONS = [0, 1, 5, 24, 31, 32, 63, 64, 255, 256 + 3]
FIELDS = [(p, n) for p in POSITIONS for n in (0, 1, 8, 31, 32, 33, 64, 200, 256)]


@pytest.mark.parametrize("t", ["u32", "s32", "u64", "s64"])
def test_bit_fields(t):
    def extract(x, position, length):
        p, n = position & 255, length & 255
        field = x >> p & (1 << n) - 1
        return field - (1 << n) if t[0] == "s" and n and field >> (n - 1) else field

    def insert(x, y, position, length):
        p, n = position & 255, length & 255
        mask = (1 << n) - 1 << p
        return y & ~mask | x << p & mask

    where = [np.array(column, np.uint32) for column in zip(*FIELDS, strict=True)]
    x, y = (draw_integers(len(FIELDS), k, integer_dtype(t))[: len(FIELDS)] for k in (5, 6))
    _check_rows(f"bfe.{t}", t, extract, x, *where)
    if t[0] == "u":
        _check_rows(f"bfi.b{t[1:]}", t, insert, x, y, *where)


# The table of PTX ISA, prmt: the source byte of result bytes 3, 2, 1, 0 by selector.
MODES = {
    "f4e": ["3210", "4321", "5432", "6543"],
    "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"],
    "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"],
    "rc16": ["1010", "3232", "1010", "3232"],
}


@pytest.mark.parametrize("mode", ["", *MODES])
def test_prmt(mode):
    def permute(a, b, selector):
        pool = struct.pack("<II", a, b)
        if mode:
            selector = int(MODES[mode][selector & 3], 16)
        nibbles = [selector >> 4 * i & 15 for i in range(4)]
        chosen = [pool[n & 7] if n < 8 else 255 * (pool[n & 7] >> 7) for n in nibbles]
        return int.from_bytes(chosen, "little")

    args = (draw_integers(60, seed) for seed in range(3))
    _check_rows(f"prmt.b32.{mode}".rstrip("."), "u32", permute, *args)


@pytest.mark.parametrize("size", [32, 64])
def test_counts_of_bits(size):
    powers = np.array([1 << k for k in range(size)], f"u{size // 8}")
    x = np.concatenate([draw_integers(50, 0, powers.dtype), powers])
    for op, rule in {
        f"popc.b{size}": int.bit_count,
        f"clz.b{size}": lambda v: size - v.bit_length(),
        f"bfind.u{size}": lambda v: v.bit_length() - 1,
        f"bfind.shiftamt.u{size}": lambda v: size - v.bit_length() if v else -1,
        f"bfind.s{size}": lambda v: min(v, 2**size - 1 - v).bit_length() - 1,
    }.items():
        _check_rows(op, "s32", rule, x)
    _check_rows(f"brev.b{size}", f"u{size}", lambda v: int(f"{v:0{size}b}"[::-1], 2), x)


@pytest.mark.parametrize("left", ["u32", "s32"])
@pytest.mark.parametrize("right", ["u32", "s32"])
def test_dot_products_of_bytes(left, right):
    args = [draw_integers(60, seed) for seed in range(3)]

    def split(value, form, t):
        form = form if t == "s32" else form.upper()
        return struct.unpack(f"<{form}", struct.pack("<I", value))

    def dot(a, b, c, form="4b", first=0):
        row = zip(split(a, form, left), split(b, "4b", right)[first:], strict=False)
        return sum((p * q for p, q in row), c)

    _check_rows(f"dp4a.{left}.{right}", "u32", dot, *args)
    _check_rows(f"dp2a.lo.{left}.{right}", "u32", lambda *row: dot(*row, "2h"), *args)
    _check_rows(f"dp2a.hi.{left}.{right}", "u32", lambda *row: dot(*row, "2h", 2), *args)

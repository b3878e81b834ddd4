"""Fragments of assembly as a whole: registers, packing, predicates, literals, refusals."""

import numpy as np
import pytest
from tests.reference.ptx.ptx_asm import F32, I32, WORDS, check, draw_integers, run
from tests.support.rational import draw, same_bits

from gemmproof.reference.ptx import UnknownAsm, compile_asm


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
    constraints = ",".join(["=r"] * 8 + ["r"] * 5)
    c, d = compile_asm(asm, constraints, [a.dtype, b.dtype], [I32, F32], 4).run([a, b])
    same_bits(c, a.astype(np.int32))
    same_bits(d, np.maximum(a.astype(np.float32), b))


def test_tritons_own_conversion_of_e4b15_to_fp16():
    asm = (
        "{ .reg .b32 a<2>, b<2>; prmt.b32 a0, 0, $2, 0x5746; and.b32 b0, a0, 0x7f007f00;"
        "and.b32 b1, a0, 0x00ff00ff; and.b32 a1, a0, 0x00800080; shr.b32 b0, b0, 1;"
        "add.u32 b1, b1, a1; lop3.b32 $0, b0, 0x80008000, a0, 0xf8; shl.b32 $1, b1, 7; }"
    )
    codes = np.arange(256, dtype=np.uint8)
    sign, exponent, mantissa = codes >> 7, (codes >> 3) & 15, codes & 7
    value = np.where(
        exponent == 0, mantissa / 8 * 2.0**-14, (1 + mantissa / 8) * 2.0 ** (exponent - 15.0)
    )
    expected = np.where(sign == 1, -value, value).astype(np.float16)
    check(asm, codes, gives=expected, pack=4, constraints="=r,=r,r")


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
    code = np.minimum(np.abs(x), np.float16(1.75)).view(np.uint16)
    rounded_up = ((code.astype(np.uint32) * 2 + 0x80) >> 8) & 0x7F
    expected = (rounded_up | (np.signbit(x) << 7)).astype(np.uint8)
    check(asm, x, gives=expected, pack=4, constraints="=r,r,r")
    start, end = asm.index("setp.lt.f16x2  p0|p1"), asm.index("mad.lo.u32 a0")
    by_minimum = asm[:start] + "min.f16x2 a0, a0, top2; min.f16x2 a1, a1, top2;" + asm[end:]
    check(by_minimum, x, gives=expected, pack=4, constraints="=r,r,r")


@pytest.mark.parametrize(
    ("dtype", "pack", "classes"),
    [("u1", 1, "rh"), ("u1", 2, "rh"), ("u1", 4, "r"), ("i2", 1, "rhl"), ("i2", 2, "r"),
     ("i4", 1, "rfl"), ("i8", 1, "ld"), ("u1", 3, "r")],
)  # fmt: skip
def test_elements_share_registers_as_triton_packs_them(dtype, pack, classes):
    x = draw_integers(11, dtype=dtype)
    width = {"h": 16, "r": 32, "f": 32, "l": 64, "d": 64}
    for letter in classes:
        check(f"mov.b{width[letter]}", x, gives=x, pack=pack, constraints=f"=&{letter},{letter}")
    if pack == 1:
        raw = run("mov.b64", x, out=np.uint64, constraints="=l,l")
        assert raw[-1] == int(x[-1]) % 2 ** (8 * x.itemsize)  # the first element in the low bits
    else:
        mask = 2 ** (8 * x.itemsize) - 1
        first = run(f"and.b32 $0, $1, {mask};", x, out=dtype, pack=pack)
        assert (first[0::pack] == x[0::pack]).all()
        assert not first[1::pack].any()


def test_wide_elements_of_a_pack_have_a_register_each():
    x = np.arange(6, dtype=np.int32)
    swapped = np.array([1, 0, 3, 2, 5, 4], np.int32)
    check("mov.b32 $0, $3; mov.b32 $1, $2;", x, gives=swapped, pack=2, constraints="=r,=r,r,r")


def test_no_inputs_and_no_lanes():
    seven = compile_asm("mov.u32 ${0}, 7;", "=r", [], [I32], 1)
    same_bits(seven.run([], 3)[0], np.full(3, 7, np.int32))
    assert len(seven.run([])[0]) == 1
    none = np.array([], np.int32)
    check("add.s32 $0, $1, $1;", none, gives=none)


def test_a_tied_operand_starts_in_its_result():
    x = np.arange(4, dtype=np.int32)
    check("add.s32 $0, $0, 1;", x, gives=x + 1, constraints="=r,0,~{memory}")
    same_bits(x, np.arange(4, dtype=np.int32))  # the argument itself is left alone


def test_predicates_guard_every_kind_of_write():
    asm = """{ .reg .pred p, q; .reg .b16 lo, hi;
        setp.ge.s32 p, $1, 0; not.pred q, p; and.pred q, q, p;
        @p mov.u32 $0, 1; @!p mov.u32 $0, 2; @q mov.u32 $0, 3;
        mov.b32 {lo, hi}, $0; @!p mov.b32 {_, lo}, $1; mov.b32 $0, {lo, hi}; }"""
    x = np.array([-0x50000, 5, 0, -0x10000], np.int32)
    check(asm, x, gives=np.array([0xFFFB, 1, 1, 0xFFFF], np.int32))


def test_pairs_of_floats_in_wide_registers():
    asm = """{ .reg .b64 a, b, c; mov.b64 a, { $2, $3 }; mov.b64 b, { $4, $5 };
        mul.f32x2 c, a, b; mov.b64 { $0, $1 }, c; }"""
    a, b = draw(F32, 8, 0, spread=4), draw(F32, 8, 1, spread=4)
    check(asm, a, b, gives=a * b, pack=2, constraints="=r,=r,r,r,r,r")


def test_a_block_hides_the_names_outside():
    asm = "{ .reg .b32 t; mov.b32 t, 1; { .reg .b32 t; mov.b32 t, $1; } mov.b32 $0, t; }"
    check(asm, WORDS, gives=np.ones_like(WORDS))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("010", 8), ("0x1F", 31), ("0b101", 5), ("-1", 2**32 - 1), ("7U", 7),
     ("0f3f800000", 0x3F800000), ("0d3ff8000000000000", 1.5), ("0f3fc00000", 1.5),
     ("2.5e-3", 0.0025)],
)  # fmt: skip
def test_literals(text, expected):
    asm, dtype = f"mov.b32 $0, {text}; add.u32 $0, $0, $1;", "u4"
    if isinstance(expected, float):
        asm, dtype = f"add.f64 $0, $1, {text};", "f8"
    check(asm, np.zeros(1, dtype), gives=np.array([expected], dtype))


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
    ("@1 mov.u32 $0, $1;", "predicate as the guard"),
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
    double = compile_asm("add.u32 $0, $1, $1;", "=r,r", [I32], [I32], 1)
    with pytest.raises(ValueError, match="asm inputs"):
        double.run([np.zeros(3)])

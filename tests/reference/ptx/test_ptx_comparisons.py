"""Comparisons of PTX, and the selections that follow from them."""

import math

import numpy as np
import pytest
from ptx_asm import F32, F64, I32, LETTERS, ODD, SCALARS, U32, ask, same_bits, words

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

"""Comparisons of PTX, and the selections that follow from them."""

import operator

import numpy as np
import pytest
from tests.reference.ptx.ptx_asm import ODD, SCALARS, check, draw_integers

COMPARISONS = {op: getattr(operator, op) for op in ("eq", "ne", "lt", "le", "gt", "ge")}
UNSIGNED = COMPARISONS | {
    name: COMPARISONS[op] for name, op in (("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge"))
}


@pytest.mark.parametrize("name", SCALARS)
def test_comparisons_of_floats(name):
    a, b = (v.ravel() for v in np.meshgrid(*[ODD.astype(SCALARS[name])] * 2))
    wide = a.astype(np.float64), b.astype(np.float64)
    ordered = ~(np.isnan(wide[0]) | np.isnan(wide[1]))
    rules = {"num": ordered, "nan": ~ordered}
    for op, rule in COMPARISONS.items():
        rules |= {op: ordered & rule(*wide), f"{op}u": ~ordered | rule(*wide)}
    for op, expected in rules.items():
        asm = f"{{.reg .pred p, q; setp.{op}.{name} p|q, $1, $2; selp.s32 $0, 1, 0, p;\n"
        asm += "@q add.s32 $0, $0, 2;}"
        check(asm, a, b, gives=np.where(expected, 1, 2).astype(np.int32))


@pytest.mark.parametrize(
    ("t", "op"), [*(("u32", op) for op in UNSIGNED), *(("s32", op) for op in COMPARISONS)]
)
def test_comparisons_of_integers(t, op):
    a, b = (draw_integers(50, seed).view(f"{'iu'[t == 'u32']}4") for seed in (0, 1))
    b[::3] = a[::3]
    check(f"set.{op}.u32.{t}", a, b, gives=-UNSIGNED[op](a, b).astype(np.int32))
    if op == "gt":
        positive = (a > 0).astype(np.float32)
        check(f"set.gt.f32.{t} $0, $1, 0;", a, gives=positive)


@pytest.mark.parametrize("op", ["and", "or", "xor"])
def test_comparisons_combined_with_a_predicate(op):
    a, b = draw_integers(50, 0), draw_integers(50, 1)
    asm = f"""{{.reg .pred p, q; setp.lt.u32 q, $2, 0x80000000;
        setp.lt.{op}.u32 p, $1, 1000000000, !q; selp.b32 $0, $1, $2, p;}}"""
    truth = getattr(np, f"logical_{op}")(a < 1000000000, b >= 0x80000000)
    check(asm, a, b, gives=np.where(truth, a, b))


def test_selection_by_sign():
    check("slct.s32.f32 $0, 5, 6, $1;", ODD, gives=np.where(ODD >= 0, 5, 6).astype(np.int32))
    x = draw_integers(5, 0, np.int32)
    expected = np.where(x >= 0, 2, 1.5).astype(np.float32)
    check("slct.f32.s32 $0, 0f40000000, 1.5, $1;", x, gives=expected)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("finite", np.isfinite(ODD)), ("infinite", np.isinf(ODD)), ("number", ~np.isnan(ODD)),
     ("notanumber", np.isnan(ODD)), ("normal", np.isfinite(ODD) & (ODD != 0)),
     ("subnormal", np.zeros(ODD.shape, bool))],
)  # fmt: skip
def test_properties_of_floats(kind, expected):
    asm = f"{{.reg .pred p; testp.{kind}.f32 p, $1; selp.u32 $0, 1, 0, p;}}"
    check(asm, ODD, gives=expected.astype(np.int32))

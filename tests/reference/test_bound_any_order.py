"""No tree of additions exceeds the bound of the declared sums, and bad trees come near it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.dot_oracle import STYLES, problem
from tests.support.lanes import first_of_each

from gemmproof.properties.judges import exact_values
from gemmproof.reference.arithmetic import format_of, widen
from gemmproof.reference.bounds import bound_accumulation, bound_rounding
from gemmproof.reference.dot import DotModel, dot_model
from gemmproof.reference.dot.tensor_core import Unit
from gemmproof.reference.formats import FORMATS

NARROW = Unit("fused", 1, 13, 13, "rz", e_zero=-126)
# the declared sums, and the widest part of k that may stay in a unit
PROMISES = {
    "ieee fp16": (dot_model(None, "fp16"), 0),
    "ieee bf16": (dot_model(None, "bf16"), 0),
    "ieee fp32": (dot_model(None, "fp32"), 0),
    "ieee fp16 onto fp16": (dot_model(None, "fp16", "fp16"), 0),
    "volta fp16": (dot_model("sm_70", "fp16"), 0),
    "ampere bf16": (dot_model("sm_80", "bf16"), 0),
    "ampere tf32": (dot_model("sm_80", "tf32"), 0),
    "hopper fp16": (dot_model("sm_90", "fp16"), 0),
    "hopper bf16": (dot_model("sm_90", "bf16"), 0),
    "hopper fp16 onto fp16": (dot_model("sm_90", "fp16", "fp16"), 0),
    "blackwell fp8": (dot_model("sm_100", "fp8e4m3"), 0),
    "e8m13": (replace(dot_model(None, "fp8e4m3"), unit=NARROW), 0),
    "ada fp8 promoted": (replace(dot_model("sm_89", "fp8e5m2"), part=128), 128),
    "hopper fp8 promoted": (replace(dot_model("sm_90", "fp8e4m3"), part=128), 128),
}


def any_tree(rng, model: DotModel, a, b, widest: int):
    """a b in some order: shares of k in full or short steps, some of them onto others.

    A share's products go to the unit in any order, from zero or onto an earlier share's sum.
    """
    order = rng.permutation(a.shape[-1])
    chain = replace(model, part=0)
    total = None
    while len(order):
        many = int(rng.integers(1, min(len(order), widest or len(order)) + 1))
        ks, order = order[:many], order[many:]
        unit = model.unit
        if not widest and unit.kind == "fused":
            unit = replace(unit, L=int(rng.choice((1, 2, 3, unit.L, 32))))
        step = replace(chain, unit=unit)
        if total is not None and not widest and rng.integers(2):
            total = step.dot(a[:, ks], b[ks], total)
            continue
        part = step.dot(a[:, ks], b[ks])
        total = part if total is None else total + part
    return total


@pytest.mark.parametrize("name", first_of_each(PROMISES, lambda name: name.split()[0]))
def test_no_tree_exceeds_the_bound(name):
    model, widest = PROMISES[name]
    formats = (FORMATS[model.a_format], FORMATS[model.b_format], FORMATS[model.acc_format])
    judged, worst = 0, 0.0
    for seed, style in enumerate(STYLES):
        rng = np.random.default_rng(seed)
        for K in (1, 2, 5, 40, 300):
            a, b, _ = problem(rng, 6, 6, K, *formats, style)
            acc = bound_accumulation(a, b, model, any_order=True)
            fine = np.isfinite(acc.exact) & np.isfinite(acc.error)
            for _ in range(4):
                with np.errstate(all="ignore"):
                    error = np.abs(widen(any_tree(rng, model, a, b, widest)) - acc.exact)
                assert (error[fine] <= acc.error[fine]).all(), (style, K)
                judged += int(fine.sum())
                inexact = fine & (acc.error > 0)
                worst = max(
                    worst, (error / np.where(inexact, acc.error, 1))[inexact].max(initial=0)
                )
    assert judged > 2000
    assert worst > 0.01


@pytest.mark.parametrize(("name", "ratio"), [("hopper fp16", 1.5), ("e8m13", 2.8)])
def test_steps_that_lose_one_product_each_come_near_it(name, ratio):
    model, _ = PROMISES[name]
    unit, K = replace(model.unit, L=1), 200
    lost = 2.0**-unit.fraction * (1 - 2.0**-3)
    a, b = np.full((1, K), lost * 2.0**9), np.full((K, 1), 2.0**-9)
    a[0, 0] = b[0, 0] = 1.0
    a, b = (x.astype(FORMATS[model.a_format].storage) for x in (a, b))
    acc = bound_accumulation(a, b, model, any_order=True)
    off = abs(float(replace(model, unit=unit).dot(a, b)[0, 0]) - acc.exact[0, 0])
    assert off <= acc.error[0, 0] <= ratio * off


# products of two 24-bit operands are rounded themselves, and what tf32 ignores may be used
EXACT = [n for n, (model, _) in PROMISES.items() if "onto" not in n and "32" not in model.a_format]


@pytest.mark.parametrize("name", EXACT)
def test_additions_that_are_not_made_cost_nothing(name):
    """One product, and one product among zeros: the accumulator is exact."""
    model, _ = PROMISES[name]
    rng = np.random.default_rng(0)
    storage = FORMATS[model.a_format].storage
    x, y = rng.uniform(1, 2, (8, 1)).astype(storage), rng.uniform(1, 2, (1, 8)).astype(storage)
    diagonal, whole = np.eye(8).astype(storage), rng.uniform(1, 2, (8, 8)).astype(storage)
    for a, b in ((x, y), (diagonal, whole)):
        acc = bound_accumulation(a, b, model, any_order=True)
        # bf16 products may be below the normal range of fp32
        assert (acc.error <= (2.0**-145 if model.a_format == "bf16" else 0)).all()
        assert np.array_equal(widen(model.dot(a, b)), acc.exact)
    two = bound_accumulation(np.hstack([x, x]), np.vstack([y, y]), model, any_order=True)
    assert (two.error > 2.0**-30).all()


def test_one_rounding_a_product_where_products_do_not_fit():
    x = np.array([[1 + 2.0**-20]], np.float32)
    acc = bound_accumulation(x, x, dot_model(None, "fp32"), any_order=True)
    assert acc.error[0, 0] >= acc.exact[0, 0] * 2.0**-24


def test_a_float_becomes_an_integer_in_any_direction():
    a = np.array([[0.5]], np.float32)
    b = np.array([[3.0, -3.0, 600.0, 1.0]], np.float32)
    acc = bound_accumulation(a, b, dot_model(None, "fp32"), any_order=True)
    bound = bound_rounding(acc, "int8", "fp32").error[0]
    for way in (np.floor, np.ceil, np.trunc, np.rint):
        assert (np.abs(way(acc.exact[0]) - acc.exact[0]) <= bound).all()
    assert np.isinf(bound[2])
    assert bound[3] < 1.5
    unsigned = bound_rounding(acc, "uint8", "fp32").error[0]
    assert np.isinf(unsigned[[1, 2]]).all()
    assert np.isfinite(unsigned[[0, 3]]).all()


def test_the_interval_of_promotion_is_a_whole_number_of_steps():
    for target in ("sm_89", "sm_90"):
        assert exact_values.PROMOTED % dot_model(target, "fp8e4m3").unit.L == 0
    assert format_of(FORMATS["e8m13"].storage).name == "fp32"

"""Inf and NaN: a value where all evaluations agree, unknown where they differ."""

import numpy as np
import pytest
from tests.reference.spec import spec_ways

from gemmproof.reference.dot import dot_model
from gemmproof.reference.spec import Rules, erf, evaluate, sigmoid

F = np.float32
INF, NAN = np.inf, np.nan


def run(spec, rules=None, **given):
    return spec_ways.run(spec, rules, **{n: (np.asarray(x, F), "fp32") for n, x in given.items()})


def known_values(c):
    """Return the known value of each element, or None if it is unknown."""
    assert (c.bound[~np.isfinite(c.value)] == 0).sum() == (c.known & ~np.isfinite(c.value)).sum()
    return [v if known else None for v, known in zip(c.value.flat, c.known.flat, strict=True)]


CASES = [
    (lambda x, y: x + y, INF, 1, INF), (lambda x, y: x + y, INF, -INF, NAN),
    (lambda x, y: x - y, INF, INF, NAN), (lambda x, y: x + y, NAN, INF, NAN),
    (lambda x, y: x * y, INF, -2, -INF), (lambda x, y: x * y, INF, 0, NAN),
    (lambda x, y: x * y, NAN, 0, NAN), (lambda x, y: x / y, INF, 2, INF),
    (lambda x, y: x / y, 0, 0, NAN), (lambda x, y: x / y, INF, INF, NAN),
    (lambda x, y: x / y, 1, 0, None),  # the sign of 0 is open
    (lambda x, y: np.maximum(x, y), INF, 1, INF), (lambda x, y: np.minimum(x, y), INF, 1, 1),
    (lambda x, y: np.maximum(x, y), NAN, 1, NAN), (lambda x, y: np.minimum(x, y), 1, NAN, NAN),
    (lambda x, y: np.fmax(x, y), NAN, 1, 1), (lambda x, y: np.fmin(x, y), 1, NAN, 1),
    (lambda x, y: np.fmax(x, y), INF, 1, INF), (lambda x, y: np.fmin(x, y), NAN, NAN, NAN),
    (lambda x, y: np.where(x > y, x, y), NAN, 1, None),
    (lambda x, y: np.where(x > y, x, y), INF, 1, INF),
    (lambda x, y: np.abs(x), -INF, 1, INF), (lambda x, y: abs(x), NAN, 1, NAN),
    (lambda x, y: -x, INF, 1, -INF), (lambda x, y: np.stack([x, y]).sum(0), INF, 1, INF),
    (lambda x, y: np.stack([x, y]).sum(0), INF, -INF, NAN),
    (lambda x, y: np.stack([x, y]).sum(0), NAN, 1, NAN),
    (lambda x, y: x.clip(-448, 448), INF, 1, 448), (lambda x, y: x.clip(-448, 448), NAN, 1, None),
    (lambda x, y: x.to("fp16"), INF, 1, INF), (lambda x, y: x.to("bf16"), NAN, 1, NAN),
    (lambda x, y: x.to("fp8e5m2"), INF, 1, None),  # Triton saturates, torch does not
    (lambda x, y: x.to("fp8e4m3"), NAN, 1, NAN), (lambda x, y: x.to("int8"), INF, 1, None),
    (lambda x, y: x.may_round("fp16"), INF, 1, INF), (lambda x, y: np.exp(x), NAN, 1, NAN),
    (lambda x, y: np.tanh(x), INF, 1, None),  # Inf / Inf by exponentials
    (lambda x, y: sigmoid(x), NAN, 1, NAN), (lambda x, y: erf(x), NAN, 1, NAN),
    (lambda x, y: np.sqrt(x), -1, 1, None), (lambda x, y: np.exp(x * y), 10, 10, None),
    (lambda x, y: x * y + x, 1e38, 10, None), (lambda x, y: x * y - NAN, 1e38, 10, NAN),
    # 3 Inf - Inf where Inf is multiplied out, Inf where it is not
    (lambda x, y: (3 * y - y) * x, INF, 1, None), (lambda x, y: (3 * y - y) * x, 1, INF, NAN),
    # the sign or the zero of the factor is a rounding's
    (lambda x, y: x * (y * y - 1.21), INF, 1.1, None),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "x", "y", "expected"), CASES)
def test_a_special_value_is_told_where_every_evaluation_has_it(spec, x, y, expected):
    with np.errstate(all="ignore"):
        (got,) = known_values(run(spec, x=[x], y=[y]))
    assert got == expected or (
        got is not None and expected is not None and np.isnan([got, expected]).all()
    )


@pytest.mark.parametrize("target", [None, "sm_70", "sm_80", "sm_90"])
def test_a_product_has_them_where_the_unit_has_them(target):
    rng, name = np.random.default_rng(0), "fp16"
    model = dot_model(target, name)
    for _ in range(20):
        a, b = (rng.integers(-2, 3, (12, 12)).astype(np.float16) for _ in "ab")
        for x in (a, b):
            x[rng.random(x.shape) < 0.02] = rng.choice([INF, -INF, NAN])
        (c,) = evaluate(lambda a, b: a @ b, {"a": (a, name), "b": (b, name)}, Rules(target))
        with np.errstate(all="ignore"):
            got = model.dot(a, b)
        assert c.known.all()
        assert np.array_equal(got, c.value, equal_nan=True)


def test_inf_beside_a_sum_that_may_overflow_is_unknown_and_nan_is_not():
    a = np.array([[INF, -1e38, -3e38], [NAN, -1e38, -3e38], [INF, -1, -3]], F)
    c = run(lambda a, b: a @ b, a=a, b=np.ones((3, 1)))
    assert c.known[:, 0].tolist() == [False, True, True]


def test_one_special_operand_leaves_the_others_bounds_alone():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((4, 8)).astype(F), rng.standard_normal((8, 4)).astype(F)
    clean = run(lambda a, b: (a @ b) * 0.3 + 1, a=a, b=b)
    a[1, 2] = INF
    dirty = run(lambda a, b: (a @ b) * 0.3 + 1, a=a, b=b)
    rows = [0, 2, 3]
    assert np.array_equal(clean.bound[rows], dirty.bound[rows])
    assert np.isinf(dirty.value[1]).all()
    assert (dirty.bound[1] == 0).all()


def test_what_a_tf32_unit_may_read_as_zero_makes_no_inf():
    a, b = np.array([[INF]], F), np.array([[1e-44]], F)
    given = {"a": (a, "tf32"), "b": (b, "tf32")}
    (c,) = evaluate(lambda a, b: a @ b, given, Rules("sm_90"))
    assert not c.known.any()

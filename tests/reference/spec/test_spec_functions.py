"""The operations of a spec other than sums and products, and the one line for anything else."""

import math

import numpy as np
import pytest
from tests.reference.spec.spec_ways import fp32, run

from gemmproof.reference.arithmetic import round_to, widen
from gemmproof.reference.spec import SpecError, erf, sigmoid

F = np.float32


def test_packed_weights_are_unpacked_exactly():
    rng = np.random.default_rng(0)
    q, zero = rng.integers(0, 256, (8, 6)).astype(np.uint8), rng.integers(0, 16, (4, 6), np.int8)
    scale = (F(2.0) ** rng.integers(-3, 3, (4, 6))).astype(np.float16)
    a = rng.integers(-4, 5, (5, 16)).astype(np.float16)

    def spec(a, q, zero, scale):
        w = np.stack([q & 15, q >> 4], axis=1).reshape(16, 6)
        return a @ ((w - zero.repeat(4, 0)) * scale.repeat(4, 0)).to("fp16")

    whole = np.empty((16, 6))
    whole[::2], whole[1::2] = q % 16, q // 16
    w = (whole - zero.repeat(4, 0)) * widen(scale).repeat(4, 0)
    result = run(spec, a=(a, "fp16"), q=(q, "uint8"), zero=(zero, "int8"), scale=(scale, "fp16"))
    assert result.exact.all()
    assert np.array_equal(result.value, widen(a) @ w)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (lambda x: x & 12, 8), (lambda x: x | 3, 11), (lambda x: x ^ 1, 10), (lambda x: ~x, -12),
        (lambda x: x << 4, 176), (lambda x: x >> 1, 5), (lambda x: x // 4, 2), (lambda x: x % 4, 3),
        (lambda x: -x // 4, -3), (lambda x: 100 - x * x, -21), (lambda x: (x > 10) & (x < 9), 0),
    ],
)  # fmt: skip
def test_integers_are_exact(spec, expected):
    result = run(lambda x: np.where(y, 1, 0) if not hasattr(y := spec(x), "whole") else y,
                 x=(np.array([11], np.int8), "int8"))  # fmt: skip
    assert (result.value.tolist(), result.exact.all()) == ([expected], True)


@pytest.mark.parametrize("spec", [lambda x: x << 29, lambda x: x * x * x * x, lambda x: x // 0])
def test_integers_beyond_32_bits_are_unknown(spec):
    result = run(spec, x=(np.array([900], np.int16), "int16"))
    assert np.isinf(result.bound).all()


def test_a_rounding_that_the_formula_demands_is_exact_away_from_ties():
    x, y = fp32(1.0, 1.0, 3.0), fp32(2**-12, 2**-9, 0.5)
    third = fp32(1, 1, 1 / 3)
    result = run(lambda x, y, t: (x + y * t).to("fp8e4m3"), x=x, y=y, t=third)
    assert result.bound.tolist() == [0, 0, 0]
    assert result.value.tolist() == widen(round_to(result.value, "fp8e4m3")).tolist()
    tie = run(lambda x, t: np.rint(x + t * 3), x=fp32(0.5), t=fp32(1 / 3))
    assert 1 <= tie.bound[0] < 1.001  # 1.5, but for the roundings: 1 or 2


def test_what_overflows_a_format_is_unknown_unless_it_is_clipped():
    x = fp32(500.0, 3.0)
    assert np.isinf(run(lambda x: x.to("fp8e4m3"), x=x).bound[0])
    assert run(lambda x: x.clip(-448, 448).to("fp8e4m3"), x=x).value.tolist() == [448, 3]
    assert np.isinf(run(lambda x: np.rint(x).to("int8"), x=x).bound).tolist() == [True, False]
    assert run(lambda x: np.rint(x).clip(-128, 127).to("int8"), x=x).value.tolist() == [127, 3]


def test_a_threshold_within_the_error_admits_both_sides():
    def spec(x, y):
        total = x * y
        return np.where(total > 1, 5.0, 1.0)

    third = float(F(1 / 3))
    near, far = run(spec, x=fp32(third, third), y=fp32(3.0, 6.0)).bound
    assert 4 <= near < 4.001
    assert far == 0


def test_a_kernel_may_round_on_the_way_or_not():
    x = fp32(1 + 2**-10)
    assert run(lambda x: x.may_round("bf16"), x=x).bound[0] >= 2**-10
    assert run(lambda x: x.may_round("fp16"), x=x).bound.tolist() == [0]


@pytest.mark.parametrize(
    ("function", "true"),
    [
        (np.exp, math.exp), (np.tanh, math.tanh), (erf, math.erf),
        (sigmoid, lambda x: 1 / (1 + math.exp(-x))),
        (lambda x: np.sqrt(np.abs(x)), lambda x: math.sqrt(abs(x))),
    ],
)  # fmt: skip
def test_functions_follow_their_argument(function, true):
    rng = np.random.default_rng(5)
    x, y = (rng.uniform(-8, 8, 4000).astype(F) for _ in "xy")
    scale = F(0.3)
    result = run(lambda x, y: function(x * y * 0.3), x=(x, "fp32"), y=(y, "fp32"))
    z = (x * y) * scale
    got = np.array([true(v) for v in z.tolist()]).astype(F)
    known = np.isfinite(result.bound)
    assert known.mean() > 0.9
    assert (np.abs(got - result.value) <= result.bound)[known].all()
    # no wider than the slope and some ulp ask for
    share = result.bound[known] / np.maximum(np.abs(result.value), 1e-3)[known]
    assert np.median(share) < 2.0**-16


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (lambda x: np.arctan(x), "spec: got np.arctan, expected one of abs arange "),
        (lambda x: x[:, None] @ x, "spec: got shapes (3, 1) @ (3,), expected "),
        (lambda x: x + np.ones(2), "spec: got shapes (3,) and (2,), expected ones that broadcast"),
        (lambda x: 1 if x > 0 else 2, "spec: got a comparison as a condition, expected np.where"),
        (lambda x: 1 if x else 2, "spec: got an array as a condition, expected np.where"),
        (lambda x: x & 1, "spec: got floats for &, expected integers on both sides"),
        (lambda x: x[x], "spec: got an index that may be rounded, expected an operand of integers"),
        (lambda x: x.to("fp7"), "spec: format: got 'fp7', expected one of "),
        (lambda x: x.may_round("int8"), "spec: got may_round('int8'), expected a float format"),
        (lambda x: x + "1", "spec: got a constant of <U1, expected numbers"),
        (lambda x: np.add.reduce(x), "spec: got np.add with reduce"),
    ],
)
def test_what_a_spec_cannot_say_is_refused_in_one_line(spec, message):
    with pytest.raises(SpecError) as refused:
        run(spec, x=fp32(1, 2, 3))
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_rows_are_gathered_by_an_operand_of_integers():
    ids = np.array([2, 0, 2], np.int32), "int32"
    assert run(lambda x, ids: x[ids], x=fp32(1, 2, 3), ids=ids).value.tolist() == [3, 1, 3]

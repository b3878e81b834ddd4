"""A spec's bound against the dot models of all targets, on data that each unit's rule decides."""

import numpy as np
import pytest
from tests.reference.spec.spec_ways import fp16, fp32, run

from gemmproof.reference.arithmetic import round_to, widen
from gemmproof.reference.dot import dot_model
from gemmproof.reference.gpus import GPUS, TARGETS
from gemmproof.reference.spec import Rules

F = np.float32


@pytest.mark.parametrize("target", TARGETS)
def test_subnormal_operands_are_cut_by_their_encoding(target):
    """2**-24 2**10 has the exponent -4 in fp16's encoding: 2**-34 next to it is cut away."""
    a, b = fp16([[2.0**-24, 2.0**-24]]), fp16([[2.0**10], [2.0**-10]])
    c = run(lambda a, b: a @ b, Rules(target), a=a, b=b)
    (got,) = dot_model(target, "fp16").dot(a[0], b[0])[0]
    assert float(got) != c.value[0, 0]
    assert not c.exact[0, 0]
    assert abs(float(got) - c.value[0, 0]) <= c.bound[0, 0]


def has(target, name):
    return any(name in core.formats for core in GPUS[target].cores)


@pytest.mark.parametrize(
    ("target", "name", "acc"),
    [(t, n, acc) for t in TARGETS
     for n, acc in (("fp16", "fp32"), ("fp16", "fp16"), ("fp8e4m3", "e8m13")) if has(t, n)],
)  # fmt: skip
def test_what_is_called_exact_is_what_the_unit_gives(target, name, acc):
    """Sums up to the last one that fits, and one beyond, with a start of the same grid."""
    model = dot_model(target, name, "fp32" if acc == "e8m13" else acc)
    rng, exact = np.random.default_rng(0), 0
    most = 14 if name == "fp16" else 8
    for top in range(6, 26):
        a, b = np.ones((40, 32)), np.ones((32, 1))
        a[:, 1:] = rng.integers(0, 2, (40, 31))
        a[:, 0], b[0] = 2.0 ** min(most, max(0, top - most)), 2.0 ** min(top, most)
        a, b = (round_to(x, name) for x in (a, b))
        start = rng.integers(-1, 2, (40, 1)) * 2.0 ** rng.integers(0, min(top, 15), (40, 1))
        held = "fp16" if acc == "fp16" else "fp32"
        start = round_to(start, held)
        given = {"a": (a, name), "b": (b, name), "c": (start, held)}
        c = run(lambda a, b, c: a @ b + c, Rules(target, acc), **given)
        got = widen(model.dot(a, b, start))
        assert np.array_equal(got[c.exact], c.value[c.exact])
        known = c.known
        assert (np.abs(got[known] - c.value[known]) <= c.bound[known]).all()
        exact += c.exact.sum()
    assert exact > 40


def test_a_start_that_a_narrow_accumulator_cannot_hold_is_not_exact():
    ones = fp16(np.ones((1, 4))), fp16(np.ones((4, 1)))
    for acc, bias in (("fp16", 2.0**11), ("fp16", 2.0**-30), ("e8m13", 2.0**14)):
        c = run(lambda a, b, c: a @ b + c, Rules("sm_90", acc), a=ones[0], b=ones[1], c=fp32(bias))
        assert not c.exact.any()


def test_a_narrow_fp8_sum_must_be_promoted_unless_it_is_declared():
    K = 4096
    a, b = (round_to(np.full(shape, 1.0), "fp8e4m3") for shape in ((1, K), (K, 1)))
    b[0, 0] = 256
    a[0, 0] = 64
    model, given = dot_model("sm_90", "fp8e4m3"), {"a": (a, "fp8e4m3"), "b": (b, "fp8e4m3")}
    alone = float(model.dot(a, b)[0, 0])
    parts = sum(float(model.dot(a[:, k : k + 128], b[k : k + 128])[0, 0]) for k in range(0, K, 128))
    narrow = run(lambda a, b: a @ b, Rules("sm_90", "e8m13"), **given)
    wide = run(lambda a, b: a @ b, Rules("sm_90"), **given)
    assert wide.bound[0, 0] < abs(alone - wide.value[0, 0]) <= narrow.bound[0, 0]
    assert abs(parts - wide.value[0, 0]) <= wide.bound[0, 0]


@pytest.mark.parametrize("target", TARGETS)
def test_what_may_be_stored_in_fp16_may_go_through_a_tensor_core(target):
    """Products just below what a unit keeps next to 1: each is cut away whole."""
    K = 256
    a, b = np.full((1, K), 2.0**-12), np.full((K, 1), 2.0**-11 * (1 - 2.0**-10))
    a[0, 0] = b[0, 0] = 1
    given = {"a": (a.astype(np.float16), "fp16"), "b": (b.astype(np.float16), "fp16")}
    (got,) = dot_model(target, "fp16").dot(given["a"][0], given["b"][0])[0]
    for spec in (lambda a, b: a @ b, lambda a, b: (a + 0).may_round("fp16") @ b):
        c = run(spec, Rules(target), **given)
        assert abs(float(got) - c.value[0, 0]) <= c.bound[0, 0]
    small = np.full((K, 1), 2.0**-13 * (1 - 2.0**-10))
    small[0] = 2.0**10
    (got,) = dot_model(target, "fp16").dot(np.ones((1, K), np.float16), small.astype(np.float16))[0]
    given = {"q": (np.ones((1, K), np.int8), "int8"), "b": (small.astype(np.float16), "fp16")}
    c = run(lambda q, b: q @ b, Rules(target), **given)
    assert abs(float(got) - c.value[0, 0]) <= c.bound[0, 0]


def test_what_a_tf32_unit_does_not_read_is_charged_to_intermediate_values_too():
    x = F(1 + 2.0**-10 - 2.0**-23)  # read as 1
    a, b = np.full((1, 64), x), np.full((64, 1), x)
    (got,) = dot_model("sm_80", "tf32").dot(a, b)[0]
    for spec in (lambda a, b: a @ b, lambda a, b: (a + 0) @ b):
        c = run(spec, Rules("sm_80"), a=(a, "tf32"), b=(b, "tf32"))
        assert 0.9 < abs(float(got) - c.value[0, 0]) / c.bound[0, 0] <= 1

"""fp8 operands times scales: summed by the unit before they are scaled, and wrongly."""

import numpy as np
import pytest
from tests.reference.spec.spec_ways import run
from tests.support.lanes import first_of_each

from gemmproof.reference.arithmetic import round_to, widen
from gemmproof.reference.dot import dot_model
from gemmproof.reference.gpus import GPUS, TARGETS
from gemmproof.reference.spec import Rules

F, U = np.float32, 2.0**-24
E4M3, E5M2 = "fp8e4m3", "fp8e5m2"
M, N, K = 5, 6, 384
SM_90 = dot_model("sm_90", E4M3)


def draw(rng, name, data, *shape):
    """Elements of one format: of one sign, of all exponents, or cancelling."""
    least, top = (-16 if name == E5M2 else -9, 7) if data == "wide" else (-4, 4)
    x = rng.uniform(1, 4, shape) * 2.0 ** rng.integers(least, top, shape)
    if data != "positive":
        x = x * rng.choice([-1, 1], shape)
    return round_to(x, name), name


def draw_scales(rng, powers, *shape):
    x = 2.0 ** rng.integers(-20, 20, shape) if powers else 2.0 ** rng.uniform(-20, 20, shape)
    return (rng.choice([-1, 1], shape) * x).astype(F), "fp32"


def scale_sums(a, b, s, t, group, model=SM_90, step=128, shift=0, drop=None, first=None):
    """fp32 sums of products by the unit, at most `step` at once, each times its scales.

    `shift`: the scales of so many groups later. `drop`: a group that is omitted. `first`: how the
    three factors are multiplied.
    """
    a, b, s, t = a[0], b[0], s[0], t[0]
    first = first or (lambda p, s, t: p * s * t)
    c = np.zeros((a.shape[0], b.shape[1]), F)
    for k in range(0, a.shape[1], min(group, step)):
        g = k // group
        part = slice(k, min(k + step, (g + 1) * group, a.shape[1]))
        if g != drop:
            h = (g + shift) % s.shape[1]
            c = c + first(model.dot(a[:, part], b[part]), s[:, h, None], t[h])
    return widen(c)


SPELLINGS = {
    "repeat": lambda a, b, s, t, group: (
        (a * np.repeat(s, group, 1)[:, :K]) @ (b * t.repeat(group, 0)[:K])
    ),
    "index": lambda a, b, s, t, group: (
        (s[:, np.arange(K) // group] * a) @ (b * t[np.arange(K) // group])
    ),
    "transposed": lambda a, b, s, t, group: (
        ((b * t.repeat(group, 0)[:K]).T @ (a * s.repeat(group, 1)[:, :K]).T).T
    ),
    "one_side": lambda a, b, s, t, group: (
        (a[:, None] * s.repeat(group, 1)[:, None, :K] * t.T.repeat(group, 1)[None, :, :K]).reshape(
            M * N, K
        )
        @ b
    ).reshape(M, N, N)[:, np.arange(N), np.arange(N)],
    "joined": lambda a, b, s, t, group: (
        np.concatenate([a[:, :64] * s[:, :1], a[:, 64:] * s.repeat(group, 1)[:, 64:K]], 1)
        @ (b * t.repeat(group, 0)[:K])
    ),
    "divided": lambda a, b, s, t, group: (
        (a / (1 / s).repeat(group, 1)[:, :K]) @ (b * t.repeat(group, 0)[:K])
    ),
    "may_be_stored": lambda a, b, s, t, group: (
        a * s.repeat(group, 1)[:, :K] @ (b * t.repeat(group, 0)[:K]).may_round("bf16")
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("group", first_of_each([64, 128]))
@pytest.mark.parametrize("data", ["positive", "signed", "wide"])
@pytest.mark.parametrize(
    "names", [(E4M3, E4M3), pytest.param((E5M2, E4M3), marks=pytest.mark.lane("full"))]
)
def test_sums_of_fp8_may_be_scaled_afterwards(spelling, group, data, names):
    rng = np.random.default_rng(group)
    groups = -(-K // group)
    for powers in (True, False):
        given = {
            "a": draw(rng, names[0], data, M, K),
            "b": draw(rng, names[1], data, K, N),
            "s": draw_scales(rng, powers, M, groups),
            "t": draw_scales(rng, powers, groups, N),
        }
        spec = lambda a, b, s, t: SPELLINGS[spelling](a, b, s, t, group)  # noqa: E731
        c, ieee = (run(spec, Rules(target), **given) for target in ("sm_90", None))
        assert c.known.all()
        model, off = dot_model("sm_90", names), []
        for first in (None, lambda p, s, t: p * (s * t), lambda p, s, t: p * t * s):
            got = scale_sums(**given, group=group, model=model, first=first)
            off.append(np.abs(got - c.value))
            assert (off[-1] <= c.bound).all()
        if data == "positive" and spelling != "may_be_stored":
            assert (off[0] > ieee.bound).any()  # what the declared accumulator does not explain
        for wrong in ({"shift": 1}, {"drop": 1}):
            off = np.abs(scale_sums(**given, group=group, model=model, **wrong) - c.value)
            assert (off > c.bound).any()


def scaled(a, b, s, t):
    """The scales of one group, for each element along k."""
    return (a * s) @ (b * t)


def fp8(x, name=E4M3):
    return round_to(np.asarray(x, float), name), name


def fp32(x):
    return np.asarray(x, F), "fp32"


def test_a_part_may_lose_nearly_all_that_its_bound_says():
    """Each product is cut away whole next to the first of its part, the largest of all."""
    a, b = np.full((1, 256), 1.875), np.ones((256, 1))
    a[0, ::128] = b[::128] = 128
    s = np.repeat([[3.0, 2.0**-30]], 128, 1)
    given = {"a": fp8(a), "b": fp8(b), "s": fp32(s), "t": fp32(1 / 3)}
    c = run(scaled, Rules("sm_90"), **given)
    groups = {**given, "s": fp32(s[:, ::128]), "t": fp32(np.full((2, 1), 1 / 3))}
    off = abs(scale_sums(**groups, group=128) - c.value)[0, 0]
    assert 0.8 < off / c.bound[0, 0] <= 1
    # with parts of 32 a unit may lose less
    s = np.repeat(2.0 ** np.arange(8.0)[None] / 3, 32, 1)
    shorter = run(scaled, Rules("sm_90"), **{**given, "s": fp32(s)})
    assert (shorter.bound / shorter.size < c.bound / c.size / 3).all()


def test_a_scale_rounds_the_sum_though_it_rounds_next_to_none_of_the_addends():
    rng = np.random.default_rng(0)
    # both sums are rounded up
    a, b = fp8([[2.0**15, 1.75 * 4, 8]], E5M2), fp8([[2.0**15], [1.25 * 8], [8]], E5M2)
    s, t = rng.uniform(1.115, 1.13, (2, 4000)).astype(F)
    stacked = {"s": fp32(s[:, None, None]), "t": fp32(t[:, None, None])}
    c = run(scaled, Rules(), a=a, b=b, **stacked)
    (total,) = dot_model(None, E5M2).dot(a[0], b[0])[0]
    off = (widen(total * (s * t)) - c.value[:, 0, 0]) / c.size[:, 0, 0]
    assert 3.2 * U < off.max()
    assert (off <= c.bound[:, 0, 0] / c.size[:, 0, 0]).all()


def test_scaled_subnormals_are_cut_by_their_encoding():
    """2**-9 2**8 has the exponent 2 in e4m3's encoding: 2**-12 next to it is cut away."""
    given = {"a": fp8([[2.0**-9, 2.0**-9]]), "b": fp8([[2.0**8], [2.0**-3]])}
    given |= {"s": fp32([[4.0]]), "t": fp32([[2.0**-20]])}
    c = run(scaled, Rules("sm_90"), **given)
    off = abs(scale_sums(**given, group=2) - c.value)
    assert (off == 2.0**-30) & ~c.exact & (off <= c.bound)


def test_operands_that_the_kernel_quantises_may_be_scaled_too():
    rng = np.random.default_rng(5)
    x, y = (draw(rng, E4M3, "positive", *shape) for shape in ((M, K), (K, N)))
    given = {"a": fp32(widen(x[0]) * 4), "b": fp32(widen(y[0]) / 8)}

    def quantise(a, b):
        return ((a / 4.0).to(E4M3) * 4.0) @ ((b * 8).to(E4M3) * 0.125)

    c, ieee = (run(quantise, Rules(target), **given) for target in ("sm_90", None))
    scales = {"s": fp32(np.full((M, 3), 4)), "t": fp32(np.full((3, N), 0.125))}
    off = np.abs(scale_sums(x, y, **scales, group=128) - c.value)
    assert (off <= c.bound).all()
    assert (off > ieee.bound).any()


@pytest.mark.parametrize("acc", ["fp32", "e8m13"])
def test_a_sum_that_never_leaves_the_unit_is_scaled_only_where_it_is_declared(acc):
    deep = 4096
    a, b = np.ones((1, deep)), np.ones((deep, 1))
    a[0, 0], b[0] = 64, 256
    given = {"a": fp8(a), "b": fp8(b), "s": fp32([[0.3]]), "t": fp32([[0.7]])}
    c = run(scaled, Rules("sm_90", acc), **given)
    alone = scale_sums(**given, group=deep, step=deep)
    promoted = scale_sums(**given, group=deep)
    assert (abs(alone - c.value) <= c.bound).all() == (acc == "e8m13")
    assert (abs(promoted - c.value) <= c.bound).all()


@pytest.mark.parametrize(
    "target", [t for t in TARGETS if any(E4M3 in c.formats for c in GPUS[t].cores)]
)
@pytest.mark.parametrize("deep", [1, 2, 3, 33, 300])
def test_every_unit_for_fp8_may_sum_before_scales(target, deep):
    rng, model = np.random.default_rng(deep), dot_model(target, E4M3)
    given = {
        "a": draw(rng, E4M3, "positive", 40, deep),
        "b": draw(rng, E4M3, "positive", deep, 40),
        "s": draw_scales(rng, False, 40, 1),
        "t": draw_scales(rng, False, 1, 40),
    }
    c = run(scaled, Rules(target), **given)
    assert (abs(scale_sums(**given, group=deep, model=model) - c.value) <= c.bound).all()


def test_what_is_exact_is_what_sums_before_scales_give():
    rng, exact = np.random.default_rng(3), 0
    for top in range(3, 17):
        a, b = rng.integers(-8, 9, (20, 64)), np.eye(64)[:, :3] + np.ones((64, 3))
        a[:, 0], b[0] = 2 ** (top // 2), 2 ** (top - top // 2)
        given = {
            "a": fp8(a),
            "b": fp8(b),
            "s": fp32(2.0 ** rng.integers(-3, 3, (20, 1)) * rng.choice([1, 3], (20, 1))),
            "t": fp32(2.0 ** rng.integers(-3, 3, (1, 3))),
        }
        c = run(scaled, Rules("sm_90"), **given)
        got = scale_sums(**given, group=64)
        assert np.array_equal(got[c.exact], c.value[c.exact])
        exact += c.exact.sum()
    assert 100 < exact < 14 * 60


def test_scales_that_leave_the_range_when_multiplied_first_are_no_finding():
    tiny, large = (
        {"a": fp8(np.full((1, 32), x)), "b": fp8(np.full((32, 1), x))} for x in (2.0**-6, 448)
    )
    for given, s, known in ((tiny, 2.0**65, False), (large, 2.0**-75, True)):
        scales = {"s": fp32([[s]]), "t": fp32([[s]])}
        c = run(scaled, Rules("sm_90"), **given, **scales)
        assert (c.known.all(), c.exact.any()) == (known, False)
        with np.errstate(over="ignore"):
            got = scale_sums(**given, **scales, group=32, first=lambda p, s, t: p * (s * t))
        assert not known or (got == 0 < c.value <= c.bound).all()


@pytest.mark.parametrize("s", [np.inf, np.nan])
def test_an_infinite_scale_may_meet_zeros_and_a_nan_is_everywhere(s):
    a = np.ones((1, 64))
    a[0, 3] = 0
    given = {"a": fp8(a), "b": fp8(np.ones((64, 1))), "s": fp32([[s]]), "t": fp32([[1]])}
    c = run(scaled, Rules("sm_90"), **given)
    assert c.known.all() == np.isnan(s)


UNCHANGED = {
    "gated by what has no two alike": lambda a, b, x, g, w: (a * g) @ b,
    "int8 with scales": lambda a, b, x, g, w: (w * g[:, :1]) @ (w.T * g[:, :1].T),
    "e2m1 with fp8 scales": lambda a, b, x, g, w: (w.decode("e2m1") * a) @ (w.decode("e2m1") * a).T,
    "a sum of fp8": lambda a, b, x, g, w: ((a + a) * g) @ (b * g.T),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_no_fp8_unit_can_sum_keeps_the_bound_of_the_accumulator(name):
    rng, deep = np.random.default_rng(0), 256
    given = {
        "a": draw(rng, E4M3, "positive", 4, deep),
        "b": draw(rng, E4M3, "positive", deep, 4),
        "x": (rng.standard_normal((4, deep)).astype(np.float16), "fp16"),
        "g": fp32(rng.uniform(1, 2, (4, deep))),
        "w": (rng.integers(-128, 128, (4, deep), np.int8), "int8"),
    }
    spec = UNCHANGED[name]
    if "e2m1" in name:
        given["w"] = (rng.integers(0, 16, (4, deep)).astype(np.uint8), "uint8")
    c, ieee = (run(spec, Rules(target), **given) for target in ("sm_90", None))
    assert (c.bound <= ieee.bound * (1 + 1 / 16)).all()

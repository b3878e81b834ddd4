"""The simulator's casts: every bit pattern of the narrow types, midpoints of the wide ones."""

from fractions import Fraction

import numpy as np
import pytest
import torch
import triton.language as tl
from tests.support import simulator_lanes
from tests.support.lanes import first_of_each
from tests.support.rational import round_exactly
from tests.support.simulator_lanes import (
    NUMPY,
    cast,
    compute,
    every,
    finite_values,
    get_name,
    limits,
    same,
)

from gemmproof.reference.simulation import CompileError, KernelError

# numpy warns when it casts a NaN that ml_dtypes made.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

FP8 = (tl.float8e4nv, tl.float8e5)
NARROW = (tl.float16, tl.bfloat16, *FP8)
WIDE = (tl.float32, tl.float64)


@pytest.mark.parametrize(
    ("source", "target", "how"),
    [
        (tl.float8e4nv, tl.float8e5, {}),
        (tl.float8e5, tl.float8e4nv, {}),
        *((dtype, tl.float64, {}) for dtype in FP8),
        *((tl.float64, dtype, {}) for dtype in FP8),
        (tl.float32, tl.float8e4nv, {"fp_downcast_rounding": "rtz"}),
        (tl.float16, tl.float8e5, {"fp_downcast_rounding": "rtz"}),
        (tl.float64, tl.float16, {"fp_downcast_rounding": "rtz"}),
    ],
)
def test_conversions_that_tritons_compiler_cannot_lower(source, target, how):
    """Its frontend lets them through: no GPU of NVIDIA's is given code for them."""
    with pytest.raises(KernelError, match="no conversion of"):
        cast(np.zeros(4, NUMPY[source.name]), source, target, **how)


def pairs_of(sources, targets):
    """The pairs of different types between which Triton's compiler converts."""
    different = [(s, t) for s in sources for t in targets if s != t]
    return [p for p in different if set(p) != set(FP8) and not (tl.float64 in p and {*p} & {*FP8})]


@pytest.mark.parametrize(("source", "target"), pairs_of(NARROW, NARROW), ids=get_name)
def test_casts_between_narrow_floats_are_exact_or_nearest_even(source, target):
    """Every bit pattern of the source; fp8 saturates as PTX's cvt.satfinite does."""
    x = every(source)
    expected = simulator_lanes.round_once(
        x.astype(np.float64), target, saturate=target.primitive_bitwidth == 8
    )
    wrong = ~same(cast(x, source, target), expected)
    if (source, target) == (tl.float8e5, tl.bfloat16):
        wrong &= np.isfinite(x.astype(np.float64))  # Inf and NaN: test_recorded_casts
    assert not wrong.any(), f"{x[wrong][:5]}: got {cast(x, source, target)[wrong][:5]}"


@pytest.mark.parametrize(("source", "target"), pairs_of(WIDE, NARROW), ids=get_name)
def test_casts_from_wide_floats_round_once(source, target):
    """Midpoints of all neighbours, their two neighbours in the source, and special values."""
    values = finite_values(target)
    beyond = 2 * values[-1] - values[-2]
    middles = (np.append(values, beyond)[1:] + np.append(values, beyond)[:-1]) / 2
    kind = NUMPY[source.name]
    x = np.concatenate([values, middles, -middles, [beyond, np.inf, -np.inf, np.nan, 1e30, -1e-40]])
    x = x.astype(kind)
    x = np.concatenate([x, np.nextafter(x, kind.type(np.inf)), np.nextafter(x, -kind.type(np.inf))])
    expected = simulator_lanes.round_once(
        x.astype(np.float64), target, saturate=target.primitive_bitwidth == 8
    )
    wrong = ~same(cast(x, source, target), expected)
    assert not wrong.any(), f"{x[wrong][:5]}: expected {expected[wrong][:5]}"


@pytest.mark.parametrize("target", [tl.float16, tl.bfloat16, tl.float8e5], ids=get_name)
def test_rtz_cuts_toward_zero(target):
    """The largest value of the target not beyond the source's, overflow to the largest finite."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(4000).astype(np.float32) * np.exp2(rng.integers(-30, 18, 4000))
    x = np.concatenate([x, finite_values(target)]).astype(np.float32)
    values = finite_values(target)
    size = np.abs(x.astype(np.float64))
    down = values[np.searchsorted(values, size, side="right") - 1]
    got = cast(x, tl.float32, target, fp_downcast_rounding="rtz")
    assert same(got, np.copysign(down, x)).all()


@pytest.mark.parametrize(("source", "target"), pairs_of(NARROW, WIDE), ids=get_name)
def test_widening_is_exact(source, target):
    x = every(source)
    assert same(cast(x, source, target), x.astype(np.float64)).all()


@pytest.mark.parametrize("target", simulator_lanes.INTEGERS, ids=get_name)
@pytest.mark.parametrize(
    "source", first_of_each([tl.float16, tl.bfloat16, tl.float32]), ids=get_name
)
def test_floats_to_integers_are_cut_and_saturate(source, target):
    """PTX's cvt.rzi: toward zero, the nearest limit beyond the range of at least 16 bits.

    NaN is 0, and in 64 bits the highest bit alone. Of 16 bits an 8-bit type keeps the low ones.
    """
    low, high = limits({tl.int8: tl.int16, tl.uint8: tl.uint16}.get(target, target))
    if source == tl.float32:
        edge = [0.5, -0.5, 1.5, -1.5, 2.0**31, 2.0**31 - 128, -(2.0**31), 2.0**32, 2.0**63, 2.0**64]
        x = np.array([*edge, -1.0, 1e30, -1e30, np.inf, -np.inf, np.nan, 16777217.0], np.float32)
    else:
        x = every(source)
    expected = []
    for value in x.astype(np.float64).tolist():
        if value != value:
            expected.append(2**63 if target.int_bitwidth == 64 else 0)
        elif abs(value) == np.inf:
            expected.append(high if value > 0 else low)
        else:
            expected.append(min(max(int(Fraction(value)), low), high))
    assert cast(x, source, target).tolist() == [simulator_lanes.wrap(v, target) for v in expected]


@pytest.mark.parametrize("target", [tl.float16, tl.bfloat16, tl.float32], ids=get_name)
@pytest.mark.parametrize("source", simulator_lanes.INTEGERS, ids=get_name)
def test_integers_to_floats_round_once_to_nearest_even(source, target):
    """Also 64-bit integers, whose way over float64 would round twice."""
    low, high = limits(source)
    near = [2**k + d for k in range(64) for d in (-3, -1, 0, 1, 2 ** max(0, k - 8), 3)]
    near += [2**60 + 2**36 + 1, 2**62 + 2**38 - 1, 2**53 + 2**29 + 1, 2**61 + 2**53 + 1]
    x = [
        v
        for v in [*near, *(-n for n in near), *simulator_lanes.samples(source)]
        if low <= v <= high
    ]
    got = cast(np.array(x, NUMPY[source.name]), source, target).astype(np.float64)
    kind = NUMPY[target.name]
    expected = [float(round_exactly(Fraction(v), kind)) if v else 0.0 for v in x]
    wrong = [(v, g, e) for v, g, e in zip(x, got.tolist(), expected, strict=True) if g != e]
    assert wrong == []


@pytest.mark.parametrize("source", simulator_lanes.INTEGERS, ids=get_name)
def test_integers_to_integers_keep_the_low_bits(source):
    x = simulator_lanes.samples(source, 6)
    for target in simulator_lanes.INTEGERS:
        got = cast(np.array(x, NUMPY[source.name]), source, target)
        assert got.tolist() == [simulator_lanes.wrap(v, target) for v in x]


@pytest.mark.parametrize("source", [t for t in simulator_lanes.ALL if t not in FP8], ids=get_name)
def test_to_bool_is_unequal_to_zero(source):
    if source == tl.int1:
        x = np.array([False, True])
    else:
        x = np.array([0, 1, 2, 0, 3]).astype(NUMPY[source.name])
    assert cast(x, source, tl.int1).tolist() == (x.astype(np.float64) != 0).tolist()


def test_bitcast_keeps_the_bits():
    x = every(tl.float16)
    got = cast(x, tl.float16, tl.int16, bitcast=True)
    assert got.tobytes() == x.tobytes()
    got = cast(np.arange(256).astype(np.uint8), tl.uint8, tl.float8e4nv, bitcast=True)
    assert got.tobytes() == bytes(range(256))
    with pytest.raises(CompileError, match="bitcast"):
        cast(x, tl.float16, tl.int32, bitcast=True)


def test_a_store_converts_to_the_pointers_type():
    """fp32 values through an fp16 and an int32 pointer."""
    x = torch.tensor([1.0 + 2.0**-12, 65520.0, -3.7])
    got = compute("x", x, x, tl.float16)
    assert got.tolist() == [1.0, np.inf, np.float16(-3.7)]
    assert compute("x", x, x, tl.int32).tolist() == [1, 65520, -3]

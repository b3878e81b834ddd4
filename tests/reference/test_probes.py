"""The probes read every accumulator model's own parameters back from its results alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.lanes import first_of_each

from gemmproof.reference import accumulator
from gemmproof.reference.accumulator import (
    M,
    N,
    Probed,
    ProbeError,
    infer_accumulator,
    probe_operands,
    probe_output,
)
from gemmproof.reference.arithmetic import Array, round_tf32_rna, round_to, widen
from gemmproof.reference.dot import EMULATION_ORDER, DotModel, dot_model
from gemmproof.reference.dot.triton_dot import kwidth_order, triton_dot
from gemmproof.reference.formats import FORMATS

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128}
# model, its name
NAMED = {
    "ieee": (dot_model(None, "bf16"), "fp32 fma chain"),
    "ieee-half": (dot_model(None, "fp16", "fp16"), "fp16 fma chain"),
    "volta": (dot_model("sm_70", "fp16"), "fp32 tensor core F=23 L=4"),
    "ampere": (dot_model("sm_80", "bf16"), "fp32 tensor core F=24 L=8"),
    "hopper": (dot_model("sm_90", "fp16"), "fp32 tensor core F=25 L=16"),
    "half": (dot_model("sm_90", "fp16", "fp16"), "fp16 tensor core F=25 L=16"),
    "tf32": (dot_model("sm_90", "tf32"), "tf32 tensor core F=25 L=8"),
    "fp8": (dot_model("sm_90", "fp8e4m3"), "fp8 tensor core F=13 L=32"),
    "fp8-ada": (dot_model("sm_89", "fp8e5m2"), "fp8 tensor core F=13 L=16"),
    "fp8-blackwell": (dot_model("sm_100", "fp8e4m3"), "fp32 tensor core F=25 L=32"),
    "fp8-emulated": (
        dot_model("sm_90", "fp8e4m3", instruction="mma"),
        "fp32 tensor core F=25 L=16, summed apart every 32, k permuted",
    ),
    "fp8-upcast": (
        triton_dot("sm_90", "fp8e5m2", **TILE | {"BLOCK_M": 16}),
        "fp32 tensor core F=25 L=16, k permuted",
    ),
    "fp8-promoted": (
        triton_dot("sm_90", "fp8e4m3", acc_passed=False, **TILE),
        "fp8 tensor core F=13 L=32, promoted every 128",
    ),
    "fp8-nested": (
        triton_dot("sm_90", "fp8e4m3", acc_passed=False, max_num_imprecise_acc=64, **TILE),
        "fp8 tensor core F=13 L=32, promoted every 64",
    ),
    "tf32x3": (
        triton_dot("sm_90", "fp32", input_precision="tf32x3", **{**TILE, "BLOCK_K": 32}),
        "fp32 of 23-bit inputs tensor core F=25 L=8, summed apart every 32",
    ),
}

SLOW = ("ieee", "ieee-half", "tf32x3", "ampere", "volta")


def make_probed(model: DotModel, K: int = 256) -> Probed:
    return Probed(model.dot, model.a_format, K)


@pytest.mark.parametrize("key", first_of_each(NAMED, lambda key: NAMED[key][1].partition(" F=")[0]))
def test_every_kind_of_accumulator_has_a_name_of_its_own(key: str) -> None:
    model, name = NAMED[key]
    # slow models get fewer k
    inferred = infer_accumulator(model.dot, model.a_format, K=512 if key in SLOW else 2048)
    assert inferred.name == name
    assert (inferred.split, inferred.downcast, inferred.output) == (1, 0, "none")
    if model.unit.kind == "fused":
        unit = model.unit
        assert (inferred.width, inferred.register, inferred.block) == (
            unit.F,
            unit.fraction,
            unit.L,
        )
        assert inferred.rounding == {"rz": "chopped", "rne": "nearest"}[unit.rounding]
    if inferred.pattern:
        order = EMULATION_ORDER if key == "fp8-emulated" else kwidth_order(8, 16, 128)
        flat = [k for group in inferred.pattern for k in group]
        assert flat == [k for n in (0, 16) for k in sorted(order[n : n + 16])]


FUSED = [
    ("sm_70", "fp16", "fp32"),
    ("sm_75", "fp16", "fp32"),
    *((t, f, "fp32") for t in ("sm_80", "sm_90", "sm_100") for f in ("fp16", "bf16", "tf32")),
    ("sm_89", "fp8e4m3", "fp32"),
    ("sm_89", "fp8e5m2", "fp16"),
    ("sm_90", "fp8e5m2", "fp32"),
    ("sm_90", "fp16", "fp16"),
    ("sm_120", "fp8e4m3", "fp32"),
]


@pytest.mark.parametrize(("target", "in_format", "acc_format"), FUSED)
def test_widths_are_those_of_the_table_and_mutants_differ(
    target: str, in_format: str, acc_format: str
) -> None:
    """F by products and by c, and the register, each one bit off where the unit is."""
    model = dot_model(target, in_format, acc_format)
    L = model.unit.L
    # within the second step; from the first into the second; from the first to the third
    triples = [(L + 1, L, L + 2), (1, 3 * L, 3 * L + 2), (5 * L + 1, 5 * L, 6 * L)]
    assert all(e % 2 for e, _, _ in triples)
    mutants = [{}, {"F": model.unit.F - 1}]
    if acc_format == "fp32":  # fp16 is rounded to by numpy's own cast
        mutants.append({"fraction": model.unit.fraction - 1})
    for change in mutants:
        unit = replace(model.unit, **change)
        measured = accumulator.widths(make_probed(replace(model, unit=unit)), triples)
        register = min(unit.fraction, unit.F)
        assert [w.bits for w in measured] == [unit.F, unit.F, register]
        nearest = unit.rounding == "rne" and unit.fraction < unit.F
        last = "nearest" if nearest else "chopped"
        assert [w.rounding for w in measured] == ["chopped", "chopped", last]


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("in_format", ["bf16", "tf32"])
def test_the_floor_of_exponents_is_read_and_a_mutant_differs(target: str, in_format: str) -> None:
    model = dot_model(target, in_format)
    unit = model.unit
    assert accumulator.last_place_near_zero(make_probed(model)) == unit.e_zero - unit.F
    higher = replace(model, unit=replace(unit, e_zero=unit.e_zero + 1))
    assert accumulator.last_place_near_zero(make_probed(higher)) == unit.e_zero + 1 - unit.F
    assert accumulator.last_place_near_zero(make_probed(dot_model(target, "fp16"))) is None


@pytest.mark.parametrize("in_format", ["fp16", "bf16", "tf32", "fp8e4m3", "fp8e5m2"])
def test_zero_products_hide_nothing(in_format: str) -> None:
    """And a unit that takes the exponent of 0 x large into account is noticed."""
    model = dot_model("sm_90", in_format)
    p = make_probed(model)
    assert accumulator.zero_raises_exponent(p, model.unit.F) is False

    def old(a: Array, b: Array) -> Array:
        # 0 taken as 2**emin: what it hides is what 2**emin itself would have hidden
        c = model.dot(a, b)
        hidden = widen(a[:, :1]) * 0 + (b[:1].astype(np.float64) == FORMATS[in_format].max) * 0
        top = 2.0 ** FORMATS[in_format].emin * np.abs(widen(b[:1])).max(0)
        return np.where(np.abs(c) < top * 2.0**-model.unit.F + hidden, 0, c).astype(c.dtype)

    assert accumulator.zero_raises_exponent(Probed(old, in_format, 256), model.unit.F) is True


def through(name: str):
    return lambda x: widen(round_to(x, name)).astype(np.float32)


@pytest.mark.parametrize(
    ("of_a", "of_b", "bits", "rounding"),
    [
        (through("fp32"), through("fp32"), 24, "none"),
        (round_tf32_rna, round_tf32_rna, 11, "away"),
        (round_tf32_rna, through("fp32"), 11, "other"),
        (through("fp32"), round_tf32_rna, 11, "other"),
        (through("tf32"), through("tf32"), 11, "nearest"),
        (through("bf16"), through("bf16"), 8, "nearest"),
        (through("fp16"), through("fp16"), 11, "nearest"),
    ],
    ids=["whole", "rna", "rna of a", "rna of b", "rne", "bf16", "fp16"],
)
def test_the_rounding_of_operands_is_read(of_a, of_b, bits: int, rounding: str) -> None:
    model = dot_model(None, "fp32")
    inferred = probe_operands(Probed(lambda a, b: model.dot(of_a(a), of_b(b)), "fp32", 64))
    assert (inferred.bits, inferred.rounding) == (bits, rounding)


@pytest.mark.parametrize(
    ("split", "bits"), [("tf32", 11), ("tf32x3", 23), ("bf16x3", 17), ("bf16x6", 24)]
)
def test_splits_of_fp32_operands_are_distinguished(split: str, bits: int) -> None:
    model = triton_dot("sm_90", "fp32", input_precision=split, **{**TILE, "BLOCK_K": 32})
    assert probe_operands(make_probed(model)).bits == bits


@pytest.mark.parametrize("out", ["fp16", "bf16"])
def test_the_rounding_of_the_output_is_read(out: str) -> None:
    fmt, model = FORMATS[out], dot_model("sm_90", "fp16")
    drop = np.uint32((1 << (24 - fmt.p)) - 1)

    def cut(c: Array) -> Array:
        return (c.view(np.uint32) & ~drop).view(np.float32)

    def away(c: Array) -> Array:
        return cut((c.view(np.uint32) + ((drop >> 1) + np.uint32(1))).view(np.float32))

    kinds = {"nearest": lambda c: c, "truncated": cut, "away": away}
    for kind, change in kinds.items():
        p = Probed(lambda a, b, f=change: round_to(f(model.dot(a, b)), fmt), "fp16", 64)
        assert probe_output(p, fmt.p) == kind
    assert probe_output(Probed(model.dot, "fp16", 64), fmt.p) == "other"


@pytest.mark.parametrize("interval", [32, 64, 128])
def test_the_promotion_interval_is_found(interval: int) -> None:
    model = triton_dot("sm_90", "fp8e4m3", max_num_imprecise_acc=interval, **TILE)
    assert infer_accumulator(model.dot, "fp8e4m3").promotion == interval


@pytest.mark.parametrize(("part", "named"), [(0, ""), (128, ", summed apart every 128")])
def test_shares_of_k_are_counted_whatever_order_they_are_joined_in(
    part: int, named: str, texts
) -> None:
    """As atomics join them, in another order every time."""
    model = replace(dot_model("sm_90", "fp16"), BLOCK_K=part, from_zero=part > 0)
    orders = iter(np.random.default_rng(1).permuted(np.tile(range(4), (99, 1)), axis=1))

    def product(a: Array, b: Array) -> Array:
        share = a.shape[1] // 4
        c = np.zeros((M, N), np.float16)
        for n in next(orders):
            ks = slice(n * share, (n + 1) * share)
            c = c + model.dot(a[:, ks], b[ks]).astype(np.float16)
        return c

    inferred = infer_accumulator(product, "fp16")
    assert (inferred.split, inferred.promotion) == (4, part)
    assert f"{named}, split-K of " in inferred.name
    texts("an accumulator of shares of k", inferred.name.replace(named, ""))


def test_an_exact_accumulator_is_called_wider_and_an_unknown_order_unknown() -> None:
    def exact(a: Array, b: Array) -> Array:
        return widen(a) @ widen(b)

    inferred = infer_accumulator(exact, "fp16")
    assert (inferred.register, inferred.order, inferred.out_format) == (
        accumulator.SEEN,
        "unknown",
        "fp64",
    )
    assert inferred.name == f"wider than {accumulator.SEEN} bits"
    assert inferred.width == accumulator.SEEN


EXPECTED = "expected fp16, bf16, fp32 or fp64"


def constant(value: float, storage: str, shape: tuple[int, int] = (M, N)):
    return lambda a, b: np.full(shape, value, storage)


@pytest.mark.parametrize(
    ("product", "error", "message"),
    [
        (constant(0, "f4"), ProbeError, "got 0 for a single term"),
        (constant(0, "f4", (N, M)), ProbeError, r"got shape \(64, 128\), expected \(128, 64\)"),
        (constant(np.nan, "f4"), ProbeError, "got nan for a single term"),
        *(
            (
                constant(0, FORMATS[x].storage),
                accumulator.NotMeasurable,
                f"result: got {x}, {EXPECTED}",
            )
            for x in ("fp8e4m3", "fp8e5m2", "int32")
        ),
    ],
    ids=["zeros", "shape", "nan", "fp8e4m3", "fp8e5m2", "int32"],
)
def test_what_cannot_be_probed_is_said_in_one_line(product, error, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        infer_accumulator(product, "fp16")
    assert "\n" not in str(caught.value)


def test_integers_and_odd_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="in_format: got 'int8', expected a float format"):
        infer_accumulator(lambda a, b: a, "int8")
    with pytest.raises(ValueError, match="K: got 100, expected a multiple of 512"):
        infer_accumulator(lambda a, b: a, "fp16", K=100)

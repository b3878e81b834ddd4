"""Drift identifies accumulators from a kernel's source, and judges them by its contract."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scripts.docs import tensor_cores
from scripts.docs.markdown import fill
from tests.support import drift_kernels
from tests.support.lanes import first_of_each
from tests.support.wide import wide

from gemmproof.drift.run import drift, drift_of, launch_product, simulate_product
from gemmproof.drift.text import lines
from gemmproof.properties.cases.data import as_array, as_tensor
from gemmproof.properties.judges.accumulator_drift import (
    DATA,
    Measure,
    declared_model,
    deviations,
    measure,
    narrow_fp8,
    operands,
    slope,
)
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.accumulator import Accumulator, infer_accumulator
from gemmproof.reference.arithmetic import Array, widen
from gemmproof.reference.bounds import gemm_bound
from gemmproof.reference.dot import dot_model
from gemmproof.reference.dot.triton_dot import triton_dot

ROOT = Path(__file__).parents[2]
HOPPER = "fp32 tensor core F=25 L=16"
# wrapper, format, what it is called, the faults against a contract of fp32 sums
KERNELS = [
    ("added", "fp16", HOPPER, []),
    ("ieee", "fp32", "fp32 fma chain", []),
    ("tf32", "fp32", "tf32 tensor core F=25 L=8", ["narrow_operands", "beyond_bound"]),
    ("half", "fp16", "fp16 tensor core F=25 L=16", ["narrow_accumulator", "beyond_bound"]),
    (
        "rounded_to_bf16",
        "bf16",
        f"{HOPPER}, rounded to bf16 every 64",
        ["downcast_in_loop", "beyond_bound"],
    ),
    (
        "rounded_to_fp16",
        "fp16",
        f"{HOPPER}, rounded to fp16 every 128",
        ["downcast_in_loop", "beyond_bound"],
    ),
    (
        "fp8_unpromoted",
        "fp8e4m3",
        "fp8 tensor core F=13 L=32",
        ["narrow_accumulator", "beyond_bound"],
    ),
    ("fp8_promoted_128", "fp8e4m3", "fp8 tensor core F=13 L=32, promoted every 128", []),
    ("fp8_promoted_32", "fp8e5m2", "fp8 tensor core F=13 L=32, promoted every 32", []),
    ("split_in_fp32", "fp16", f"{HOPPER}, split-K of 4 in fp32", []),
    ("split_in_fp16", "fp16", f"{HOPPER}, split-K of 4 in fp16", ["narrow_split", "beyond_bound"]),
    (
        "interleaved_in_fp16",
        "fp16",
        f"{HOPPER}, split-K of 4 in fp16",
        ["narrow_split", "beyond_bound"],
    ),
    ("truncating", "bf16", f"{HOPPER}, c truncated", ["truncated_output", "beyond_bound"]),
]


def of_source(name: str, in_format: str, target: str | None = "sm_90"):
    return simulate_product(getattr(drift_kernels, name), in_format, target)


def read_recorded() -> dict[tuple[str, str], Accumulator]:
    """Return the accumulators of the same kernels on an H200 (scripts/measure.py drift)."""
    text = (ROOT / "tests" / "witnesses" / "recorded" / "drift_h200.json").read_text()
    accumulators = {}
    for row in json.loads(text)["kernels"]:
        fields = {k: v for k, v in row["accumulator"].items() if k != "name"}
        fields["pattern"] = tuple(map(tuple, fields["pattern"]))
        accumulators[row["kernel"], row["format"]] = Accumulator(**fields)
    return accumulators


@pytest.mark.parametrize(
    ("name", "in_format", "accumulator", "faults"), first_of_each(KERNELS, lambda row: row[1])
)
def test_accumulators_are_told_apart_from_the_source(
    name: str, in_format: str, accumulator: str, faults: list[str]
) -> None:
    """By the names above, and in every particular as on the GPU."""
    report = drift(of_source(name, in_format), in_format, sizes=[512])
    assert report.drift.accumulator is not None
    assert report.drift.accumulator.name == accumulator
    assert report.drift.accumulator == read_recorded()[name, in_format]
    assert [deviation.fault for deviation in report.findings] == faults
    assert report.verdict == ("fail" if faults else "pass")


@pytest.mark.lane("full")
def test_the_same_code_probes_a_gpu() -> None:
    """The wrapper is called on tensors of a device; here one that computes as an H200 does."""
    model = dot_model("sm_90", "fp16")

    def wrapper(a, b):
        return as_tensor(model.dot(as_array(a), as_array(b)), "fp32").half()

    report = drift(launch_product(wrapper, "fp16", "cpu"), "fp16", sizes=[32])
    predicted = drift(of_source("passed", "fp16"), "fp16", sizes=[32])
    assert report.drift.accumulator == predicted.drift.accumulator
    assert report.drift.measures == predicted.drift.measures


def test_the_how_to_shows_what_is_printed() -> None:
    """But for the sizes that take longer."""
    shown = (ROOT / "docs" / "how-to" / "measure-drift.md").read_text(encoding="utf-8")
    report = drift(of_source("fp8_unpromoted", "fp8e4m3"), "fp8e4m3", sizes=[512], gpu="sm_90",
                   name="tests/support/drift_kernels.py:fp8_unpromoted")  # fmt: skip
    printed = [text for text, _ in lines(report)]
    assert len(printed) > 10
    for line in (*printed[:1], *printed[3:-1]):
        assert line in shown


def test_the_page_on_tensor_cores_holds_the_tables_of_the_models() -> None:
    tables = {"units": tensor_cores.unit_table(), "found": tensor_cores.found_table()}
    page = tensor_cores.PAGE.read_text(encoding="utf-8")
    assert fill(tensor_cores.PAGE, tables) == page


def test_every_kernel_above_was_launched_too() -> None:
    """And the launches distinguish as many accumulators."""
    names = {row[2] for row in KERNELS}
    assert {read_recorded()[row[0], row[1]].name for row in KERNELS} == names
    assert len(names) == 12


@pytest.mark.parametrize(("batched", "accumulator"), [(False, "fp16"), (True, "fp32")])
def test_a_registered_kernel_is_held_to_its_contract(batched: bool, accumulator: str) -> None:
    model = dot_model("sm_90", "fp16", accumulator)
    seen = []

    def wrapper(a, b):
        seen.append(a.dim())
        return as_tensor(model.dot(as_array(a), as_array(b)), accumulator)

    for declared in ("fp32", "fp16"):
        contract = wide(batched=batched, accumulator=declared)
        report = drift_of(KernelUnderTest("k", wrapper, contract), "fp16", sizes=[32])
        assert report.verdict == ("fail" if (accumulator, declared) == ("fp16", "fp32") else "pass")
        assert report.drift.declared == declared
    assert set(seen) == {2 + batched}


@pytest.fixture(scope="module")
def fp8() -> dict[str, object]:
    """Accumulators of one fp8 dot, unpromoted and promoted."""
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128}
    dots = {
        "chain": triton_dot("sm_90", "fp8e4m3", **tile),
        "promoted": triton_dot("sm_90", "fp8e4m3", acc_passed=False, **tile),
    }
    return {name: infer_accumulator(dot.dot, "fp8e4m3") for name, dot in dots.items()}


def test_a_declared_accumulator_is_no_finding(fp8) -> None:
    """e8m13 admits the chain; fp16, which is narrower, does too: better than declared is right."""
    for declared, faults in (("fp32", 1), ("e8m13", 0), ("fp16", 0), ("bf16", 0)):
        assert len(deviations(fp8["chain"], declared, "fp8e4m3")) == faults
        assert not deviations(fp8["promoted"], declared, "fp8e4m3")


def test_narrow_parts_are_excused_for_fp8_units_alone(fp8) -> None:
    """The same numbers behind fp16 operands, or of 10 bits, are findings."""
    promoted = fp8["promoted"]
    assert narrow_fp8(promoted, "fp8e4m3")
    half = replace(promoted, register=10)
    for accumulator, in_format in ((promoted, "fp16"), (half, "fp8e4m3")):
        accumulator = replace(accumulator, read=11 if in_format == "fp16" else accumulator.read)
        assert [d.fault for d in deviations(accumulator, "fp32", in_format)] == [
            "narrow_accumulator"
        ]
    narrow_sum = replace(promoted, carried=10)
    assert len(deviations(narrow_sum, "fp32", "fp8e4m3")) == 2


def test_unknown_but_better_is_no_finding() -> None:
    def exact(a: Array, b: Array) -> Array:
        return (widen(a) @ widen(b)).astype(np.float32)

    report = drift(exact, "fp16", sizes=[512])
    assert report.verdict == "pass"
    assert report.drift.accumulator is not None
    assert report.drift.accumulator.order == "unknown"


def test_the_bound_keeps_the_order_that_was_found(fp8) -> None:
    """As promoted kernels are bounded by their own interval, unpromoted ones by every step's."""
    a, b = operands("fp8e4m3", 512)
    models = {
        key: declared_model(accumulator, "fp32", "fp8e4m3") for key, accumulator in fp8.items()
    }
    assert (models["promoted"].BLOCK_K, models["chain"].BLOCK_K) == (128, 32)
    bounds = {key: gemm_bound(a, b, model, "fp32") for key, model in models.items()}
    own = gemm_bound(a, b, triton_dot("sm_90", "fp8e4m3", BLOCK_M=64, BLOCK_N=64, BLOCK_K=128,
                                      acc_passed=False), "fp32")  # fmt: skip
    assert np.array_equal(bounds["promoted"], own)
    assert (bounds["chain"] < bounds["promoted"]).all()


def test_measures_are_those_of_their_own_data() -> None:
    """Bias, worst error and ratio by definition, one block of c for each kind of data."""
    model = dot_model(None, "bf16")
    a, b = operands("bf16", 64)
    exact = widen(a) @ widen(b)

    def doubled(x: Array, y: Array) -> Array:
        assert np.array_equal(x, a)
        assert np.array_equal(y, b)
        return (2 * exact).astype(np.float32)

    measures = measure(doubled, "bf16", 64, model)
    assert [m.data for m in measures] == list(DATA)
    for n, m in enumerate(measures):
        rows, columns = slice(32 * n, 32 * n + 32), slice(16 * n, 16 * n + 16)
        c = exact[rows, columns]
        size = np.abs(widen(a[rows])) @ np.abs(widen(b[:, columns]))
        error = (2 * exact).astype(np.float32).astype(np.float64)[rows, columns] - c
        bound = gemm_bound(a[rows], b[:, columns], model, "fp32")
        assert m.bias == (np.sign(c) * error).sum() / size.sum()
        assert m.worst == np.abs(error / size).max()
        assert m.ratio == (np.abs(error) / bound).max()
    assert measure(lambda x, y: np.full((128, 64), np.nan, np.float32), "bf16", 64, model)[
        0
    ].ratio == float("inf")


def test_what_is_no_product_is_a_finding() -> None:
    report = drift(launch_product(lambda a, b: None, "fp16", "cpu"), "fp16", sizes=[32])
    assert (report.verdict, report.drift.accumulator, report.drift.measures) == ("fail", None, ())
    (finding,) = report.findings
    assert (finding.fault, finding.got, finding.expected) == ("no_product", "NoneType", "a tensor")
    got = f"got {finding.got}, expected {finding.expected}"
    assert finding.message == f"result: {got}"


def test_slopes_are_powers_of_k() -> None:
    biases = [Measure(K, "positive", -1e-6 * K**0.5, 0, 0, 0) for K in (512, 1024, 4096)]
    assert f"{slope(biases):.6f}" == "0.500000"
    assert slope(biases[:1]) is None

"""`gemm_benchmark` in a user's project: on the simulator, on a fake device, and refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.support.pytest_project import EXAMPLES, run_pytest, write_project

from gemmproof.bench.fixture import SampleClock

FAKE = """
import pytest
from fake_cuda_device import MEASURE_CEILING, FakeDevice, measure_small

@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    monkeypatch.setattr("gemmproof.bench.fixture._has_gpu", lambda: True)
    monkeypatch.setattr("gemmproof.bench.clocks.CudaDevice",
        lambda: FakeDevice(quick=0.01, slow=0.04))
    monkeypatch.setattr(MEASURE_CEILING, measure_small)
"""
ON_DEVICE = """
import pytest
import torch

def quick(a, b, out=None):
    return torch.matmul(a, b, out=out)

def slow(a, b):
    return a @ b

def bad(a, b):
    return (a @ b).t().contiguous().t() + (a[:, :1] != 0)

WORDS = {"shapes": "24x20x32,8x16x64", "rounds": 4, "settle": 0.0}

@pytest.mark.benchmark(group="gemm")
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_speed(gemm_benchmark, dtype):
    entries = gemm_benchmark(quick, against=torch.matmul, dtype=dtype, **WORDS)
    assert [e["verdict"] for e in entries] == ["control", "faster"] * 2

def test_twice(gemm_benchmark):
    for function in (quick, slow):
        gemm_benchmark(function, shapes=[(8, 8, 8)], rounds=3, settle=0.0, name=function.__name__)

def test_wrong(gemm_benchmark):
    gemm_benchmark(bad, **WORDS)
"""
WITH_OPERANDS = """
from gemmproof import Contract, KernelUnderTest, Operand

WORDS = {"shapes": "24x20x32", "rounds": 4, "settle": 0.0}

def quick_linear(a, b, bias):
    return (a.float() @ b.float() + bias.float()).to(a.dtype)

def without_bias(a, b, bias):
    return a @ b

OPERANDS = {"bias": Operand("bf16", "N")}

def add(a, b, bias):
    return a @ b + bias

def test_operands(gemm_benchmark):
    stated = {"operands": OPERANDS, "spec": add, "dtype": "bf16", **WORDS}
    (_, row, *_) = gemm_benchmark(quick_linear, against="addmm", **stated)
    assert (row["peer"], row["operands"]) == ("torch.addmm", {"bias": "bf16[N]"})
    kernel = KernelUnderTest(
        "it", quick_linear, Contract(formats=("bf16",)), operands=OPERANDS, spec=add
    )
    (_, row, *_) = gemm_benchmark(kernel, against=quick_linear, **WORDS)
    assert (row["format"], row["verdict"], row["equal_bits"]) == ("bf16", "within noise", True)

def test_wrong(gemm_benchmark):
    gemm_benchmark(without_bias, operands=OPERANDS, spec=add, dtype="bf16", **WORDS)
"""
SIMULATED = """
import right, unmasked_row

def test_speed(gemm_benchmark):
    gemm_benchmark(right.matmul, shapes="llama/qkv,1x64x64")

def test_wrong(gemm_benchmark):
    gemm_benchmark(unmasked_row.matmul, shapes="33x16x16")
"""
SIMULATED_OPERANDS = """
import right
from gemmproof import Contract, KernelUnderTest, OneOf

KERNEL = KernelUnderTest(
    "doubled",
    lambda a, b, alpha: right.matmul(a, b) * alpha,
    Contract(formats=("bf16",), K="32..:32"),
    operands={"alpha": OneOf(2.0, 1.0)},
    spec=lambda a, b, alpha: alpha * (a @ b).to("bf16"),
)

def test_operands(gemm_benchmark):
    entries = gemm_benchmark(KERNEL, shapes="33x16x48")
    assert [e["step"] for e in entries] == ["simulate", "judge"]
    assert [e["K"] for e in entries] == [32, 32]
"""


def run(project: Path, *options: str) -> tuple[int, str]:
    """Run pytest in a project, with the fake device importable."""
    return run_pytest(project, *options, columns=200, paths=(Path(__file__).parent,))


def read(path: Path) -> dict[str, dict]:
    return {
        benchmark["name"]: benchmark for benchmark in json.loads(path.read_text())["benchmarks"]
    }


@pytest.mark.lane("full")
def test_samples_of_a_device_become_benchmarks_that_can_be_compared(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(FAKE)
    (tmp_path / "test_it.py").write_text(ON_DEVICE)
    status, out = run(tmp_path, "--benchmark-json", "b.json", "--benchmark-save", "one")
    assert status == 1
    assert "2 failed" not in out
    assert "Failed: bad at 24x20x32 fp16, c[" in out
    benchmarks = read(tmp_path / "b.json")
    speeds = [
        f"{x}-quick-{x}-{shape}" for x in ("fp16", "bf16") for shape in ("24x20x32", "8x16x64")
    ]
    assert list(benchmarks) == [
        *(f"test_speed[{name}]" for name in speeds),
        *("test_twice[quick-fp16-8x8x8]", "test_twice[slow-fp16-8x8x8]"),
    ]
    benchmark = benchmarks["test_speed[bf16-quick-bf16-8x16x64]"]
    assert benchmark["fullname"] == "test_it.py::test_speed[bf16-quick-bf16-8x16x64]"
    assert benchmark["group"] == "gemm"
    assert [*benchmark["stats"]["data"], benchmark["stats"]["median"]] == pytest.approx([0.01] * 5)
    info = benchmark["extra_info"]
    assert (info["device"], info["verdict"], info["how"]) == ("fake GPU", "faster", "CUDA graph")
    assert info["ratio"] == pytest.approx({"median": 2.0, "low": 2.0, "high": 2.0})
    assert info["floor"] == [1.0, 1.0]
    assert info["clocks"]["after"]["temperature_c"] == 40.0
    assert info["ceilings"][0]["format"] == "bf16"
    compare = ("-k", "test_speed", "--benchmark-compare", "--benchmark-compare-fail=median:1%")
    status, out = run(tmp_path, *compare)
    assert status == 0, out
    assert "test_speed[bf16-quick-bf16-8x16x64] (NOW)" in out
    assert "was not used at all" not in out
    slower = (tmp_path / "conftest.py").read_text().replace("quick=0.01", "quick=0.015")
    (tmp_path / "conftest.py").write_text(slower)
    status, out = run(tmp_path, *compare)
    assert status != 0
    assert "Performance has regressed" in out


NO_PLUGIN = "gemm_benchmark: needs pytest-benchmark: pip install 'gemmproof[bench]'"
VERIFIED = ON_DEVICE.replace('["control", "faster"] * 2', '["right"] * 2')
LACKS_BIAS = "Failed: without_bias at 24x20x32 bf16, c[0, 0] of buffer 0: got"
BAD = "Failed: bad at 24x20x32 fp16, c["


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("conftest", "tests", "option", "texts", "names"),
    [
        (
            "",
            SIMULATED_OPERANDS,
            "--benchmark-json=b.json",
            ["1 passed"],
            [f"test_operands[doubled-bf16-33x16x32-{step}]" for step in ("simulate", "judge")],
        ),
        (
            FAKE,
            WITH_OPERANDS,
            "--benchmark-json=b.json",
            ["1 failed, 1 passed", LACKS_BIAS],
            [f"test_operands[{x}-bf16-24x20x32]" for x in ("quick_linear", "it")],
        ),
        (FAKE, VERIFIED, "--benchmark-disable", ["1 failed, 3 passed", BAD], None),
    ],
    ids=["operands on the simulator", "operands on a device", "benchmarks disabled"],
)
def test_results_are_verified(tmp_path: Path, conftest, tests, option, texts, names) -> None:
    write_project(tmp_path, conftest, "right", tests=tests)
    status, out = run(tmp_path, option)
    assert status == int("failed" in texts[0])
    assert [text for text in texts if text not in out] == []
    assert names is None or list(read(tmp_path / "b.json")) == names


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("arguments", "body", "message"),
    [
        ("gemm_benchmark", "gemm_benchmark(print, shapes='lama')", "shapes: got 'lama', expected"),
        ("gemm_benchmark", "gemm_benchmark(print, dtype='f7')", "dtype: got 'f7', expected one of"),
        ("gemm_benchmark", "gemm_benchmark(print, against='mm')", "against: got 'mm', expected"),
        ("gemm_benchmark", "gemm_benchmark(print, operands={'x': 1})", "got operand 'x' of 1, ex"),
        ("gemm_benchmark, benchmark", "pass", "gemm_benchmark: got benchmark too, expected"),
        ("gemm_benchmark", "pass", NO_PLUGIN),
    ],
)
def test_bad_arguments_fail_in_one_line(tmp_path, arguments, body, message) -> None:
    (tmp_path / "test_it.py").write_text(f"def test_it({arguments}):\n    {body}\n")
    disabled = ("-p", "no:benchmark") if message == NO_PLUGIN else ()
    status, out = run(tmp_path, *disabled, "--tb=line")
    assert status == 1
    assert message in out


@pytest.mark.lane("full")
def test_without_a_gpu_the_simulator_and_the_judgement_are_timed(tmp_path: Path) -> None:
    for name in ("right", "unmasked_row"):
        shutil.copy(EXAMPLES / f"{name}.py", tmp_path)
    (tmp_path / "test_it.py").write_text(SIMULATED)
    status, out = run(tmp_path, "--benchmark-json", "b.json")
    assert status == 1
    assert "Failed: matmul at 33x16x16 fp16, load of a at unmasked_row.py:" in out
    benchmarks = read(tmp_path / "b.json")
    assert list(benchmarks) == [
        "test_speed[matmul-fp16-llama/qkv-64x96x64-simulate]",
        "test_speed[matmul-fp16-llama/qkv-64x96x64-judge]",
        "test_speed[matmul-fp16-1x64x64-simulate]",
        "test_speed[matmul-fp16-1x64x64-judge]",
    ]
    for benchmark in benchmarks.values():
        assert benchmark["extra_info"]["device"] == "simulator"
        assert not {"ratio", "peer", "floor"} & benchmark["extra_info"].keys()
        assert benchmark["stats"]["rounds"] == 5
        assert benchmark["stats"]["min"] > 1e-4  # a real clock, not a loaded one


def test_a_sample_clock_gives_each_call_its_sample() -> None:
    clock = SampleClock()
    assert clock() <= clock()
    clock.load([0.5, 0.25])
    pairs = [(clock(), clock()) for _ in range(2)]
    assert [end - begin for begin, end in pairs] == [0.5, 0.25]
    clock()
    with pytest.raises(StopIteration):
        clock()

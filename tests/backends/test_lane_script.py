"""scripts/measure.py lane, on the fake device: a row for each kernel, even if some fail."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from scripts.gpu import evidence, verdicts
from tests.backends.fake_gpu import FakeGpu
from tests.texts import line_with

from gemmproof.worker.protocol import Compared

HERE = Path(__file__).parent
STYLES = "tests/corpora/registered.py"
CONFTEST = """
import os, sys
sys.path[:0] = [{here!r}, {root!r}]
import fake_gpu, launched_kernels as kernels
from gemmproof.backends import cuda_device

def fault(call, result, tensors):
    if {dies} and call > 3:
        os._exit(5)
    return result

cuda_device.find_gpu = lambda: fake_gpu.FakeGpu(fault)

def pytest_gemm_kernels():
    from gemmproof import Contract, KernelUnderTest
    contract = Contract(formats=("fp16", "bf16"), layouts="any")
    return [KernelUnderTest("plain", kernels.plain, contract)]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    def write(dies: bool = False) -> str:
        path = tmp_path / "conftest.py"
        root = str(HERE.parents[1])
        path.write_text(CONFTEST.format(here=str(HERE), root=root, dies=dies))
        return str(path)

    monkeypatch.setattr(evidence, "Gpu", FakeGpu)
    monkeypatch.setattr(verdicts, "require_gpu", lambda command: None)
    evidence.load_registered.cache_clear()
    yield write
    evidence.load_registered.cache_clear()


@pytest.mark.lane("full")
def test_a_row_for_each_kernel_and_format(project, tmp_path, capsys, texts):
    report = tmp_path / "lane.json"
    assert verdicts.judge_kernels(examples=4, jobs=2, report=report, conftest=project()) == 0
    document = json.loads(report.read_text())
    assert (document["device"], document["driver"]) == ("fake GPU", "1.2")
    rows = [(row["kernel"], row["format"]) for row in document["kernels"]]
    assert rows == [("plain", "fp16"), ("plain", "bf16")]
    for row in document["kernels"]:
        assert (row["cases"], row["verdict"], row["findings"]) == (4, "pass", [])
        assert row["launches"] == 3 * row["launched"] > 0
        assert row["equal"] == row["outputs"] > 0
        assert row["held"]["equals_prediction"] > 0
    assert len(report.read_text().splitlines()) == 12  # one row per line
    texts("every kernel is as expected", capsys.readouterr().out.splitlines()[-1])


@pytest.mark.lane("full")
def test_a_kernel_that_dies_is_a_finding(project, capsys, texts):
    dying = project(dies=True)
    assert verdicts.judge_kernels(format="bf16", examples=4, jobs=1, conftest=dying) == 1
    out = capsys.readouterr().out
    texts("a kernel that ends its process", line_with(out, "on cuda: ").strip())
    texts("no kernel is as expected", out.splitlines()[-1])


def test_an_unknown_kernel_is_refused(project, capsys, texts):
    with pytest.raises(SystemExit) as refused:
        verdicts.judge_kernels(kernel="other", conftest=project())
    assert refused.value.code == 2
    texts("a kernel that is not registered", capsys.readouterr().err)


def test_only_all_kernels_of_the_repository_make_its_evidence(project, monkeypatch):
    written = []
    monkeypatch.setattr(verdicts, "judge_one", lambda *task, **how: {})
    monkeypatch.setattr(verdicts, "collect", lambda rows, describe, report: written.append(report))
    verdicts.judge_kernels(format="fp16", examples=1)
    verdicts.judge_kernels(examples=1, conftest=project())
    verdicts.judge_kernels(examples=1)
    assert written == [None, None, evidence.ROOT / "docs" / "evidence" / "lane.json"]


def test_styles_of_public_projects_can_be_judged_as_well():
    styles = evidence.list_tasks("lane", conftest=str(evidence.ROOT / STYLES))
    assert len({name for name, _ in styles}) >= 10


def test_without_a_gpu_one_line_is_told(monkeypatch, capsys, texts):
    nothing = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setattr(evidence, "torch", SimpleNamespace(cuda=nothing))
    with pytest.raises(SystemExit) as refused:
        verdicts.judge_kernels()
    assert refused.value.code == 2
    texts("no GPU for the lane", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("missing", "note", "expected"),
    [
        (["equals_prediction"], "24 without predicted bits: a division", True),
        (
            ["equals_prediction"],
            "equals_prediction not run: the kernel that predicts it is wrong",
            False,
        ),
        (["equals_prediction", "within_bound"], "", False),
        ([], "", False),  # the verdict has another reason
    ],
)
def test_only_bits_that_nobody_can_predict_may_be_missing(missing, note, expected, monkeypatch):
    held = [SimpleNamespace(name="runs_to_completion", status="pass", backend="cuda", examples=1)]
    held += [SimpleNamespace(name=x, status="not run", backend="cuda", examples=0) for x in missing]
    report = SimpleNamespace(verdict="incomplete", properties=held, findings=[], note=note)

    def judge(request, limits, listen):
        listen(Compared(3, 0, 0))
        return report, SimpleNamespace(seconds=1.0)

    monkeypatch.setattr(verdicts, "judge_in_worker", judge)
    row = verdicts.judge_one("k", "fp16", "conftest.py", 100, 0)
    assert row["expected"] is expected
    assert "no bits are predicted" in verdicts.describe_judged(row)

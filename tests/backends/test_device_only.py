"""A kernel that the simulator cannot run, on a fake GPU: its judged properties and its report."""

import json
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from tests.backends.fake_gpu import NAMES, FakeGpu, flip, only_root, statuses
from tests.support.pytest_project import run_pytest, write_project

from gemmproof import Contract, KernelUnderTest, check, multiple_of
from gemmproof.cli import EXIT, main
from gemmproof.kernels import matmul_tma
from gemmproof.kernels.matmul_ws import matmul_ws
from gemmproof.properties.cases.case import Case

pytestmark = pytest.mark.filterwarnings("ignore:matmul_tma")
gluon = import_module("gemmproof.kernels.matmul_ws")
by_tma = import_module("gemmproof.kernels.matmul_tma")
CONTRACT = Contract(N=multiple_of(8), K=multiple_of(8), layouts=("row", "column"))
LAUNCHED = NAMES[:-1]  # all but equals_prediction
ROOT = Path(__file__).parents[2]


class GluonGpu(FakeGpu):
    """A fake device whose Gluon kernel computes as matmul_tma's does; `own` counts its launches."""

    own = 0

    def call(self, function, tensors, index, choices, beat):
        def launch(*product):
            self.own += 1
            by_tma.launch_described(*product, "ieee")

        with patch.object(gluon, "_launch", launch):
            return super().call(function, tensors, index, choices, beat)


def judge(device, launch=True, **options):
    kernel = KernelUnderTest("ws", matmul_ws, CONTRACT, **options)
    return check(kernel, max_examples=6, launch=launch, device=device)


def in_fp32(wrapper):
    return lambda a, b: wrapper(a, b, torch.float32)


@pytest.mark.lane("full")
def test_a_stand_in_predicts_the_bits():
    device = GluonGpu()
    report = judge(device, device_only=True, predicted_by=matmul_tma)
    assert report.verdict == "pass", report
    assert device.own > 3
    assert tuple(statuses(report)) == NAMES
    assert {p.backend for p in report.properties} == {"cuda"}
    assert statuses(report)["equals_prediction"][1] >= 6
    equal, total = report.note.split("; ")[1].split(" predicted")[0].split(" of ")
    assert equal == total != "0"
    unseen = report.note.partition("not checked (Gluon): ")[2]
    assert unseen.split(", ")[:2] == ["compiles", "stays_in_bounds"]
    assert "equals_prediction" not in unseen


def test_other_bits_than_the_stand_in_gives_are_found():
    case = Case(16, 16, 16, fill="normal")
    kernel, other = in_fp32(matmul_ws), in_fp32(matmul_tma)
    registered = KernelUnderTest("ws", kernel, CONTRACT, device_only=True, predicted_by=other)
    wrong = GluonGpu(lambda call, c, tensors: flip(c))
    report = check(registered, case=case, launch=True, device=wrong)
    finding = only_root(report)
    assert (finding.property, finding.backend) == ("equals_prediction", "cuda")


@pytest.mark.lane("full")
def test_without_a_stand_in_the_rest_is_judged_and_what_is_not_is_named():
    """A target of `check` is not registered: the simulation detects that it is in Gluon."""
    report = judge(GluonGpu())
    assert report.verdict == "pass", report
    assert tuple(statuses(report)) == LAUNCHED
    assert report.note.split(", ")[-2:] == ["call_order", "equals_prediction"]
    wrong = judge(GluonGpu(lambda call, c, tensors: c + 1))
    assert "exact_on_integers" in {f.property for f in wrong.findings if f.cause is None}


@pytest.mark.lane("full")
def test_a_stand_in_that_is_wrong_accuses_nobody(texts):
    def out_of_bounds(a, b):
        return matmul_tma(a, b)[:, :1]

    report = judge(GluonGpu(), device_only=True, predicted_by=out_of_bounds)
    assert report.verdict == "incomplete"
    assert not report.findings
    reasons = [x for x in report.note.split("; ") if x.startswith("equals_prediction ")]
    texts("a stand-in that is wrong", reasons[0].partition(": the result")[0])


@pytest.mark.parametrize(
    ("launch", "note"),
    [
        (False, "it is not simulated (device_only): check it with --device cuda"),
        (True, "--device cuda: torch finds no CUDA GPU here; nothing was checked"),
    ],
)
def test_without_a_device_it_is_incomplete(launch, note):
    report = judge(None, launch, device_only=True)
    assert (report.verdict, report.note, report.findings) == ("incomplete", note, ())


@pytest.mark.lane("full")
def test_the_command_without_a_gpu_is_incomplete(monkeypatch, capsys, texts):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    target = str(ROOT / "kernels/matmul_ws.py:matmul_ws")
    command = ["check", target, "--device", "cuda", "--max-examples", "9"]
    assert main([*command, "--sizes", "N=16..:16,K=16..:16"]) == EXIT["incomplete"]
    verdict = capsys.readouterr().out.splitlines()[-1]
    texts("the verdict of a kernel for a GPU only, without one", verdict)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device_only": 1}, "got device_only=1, expected True or False"),
        ({"predicted_by": matmul_tma}, "expected a function of a and b, beside device_only=True"),
        ({"device_only": True, "predicted_by": 3}, "got predicted_by=3, expected a function"),
    ],
)
def test_nonsense_is_refused(options, message):
    with pytest.raises(ValueError, match="kernel ws: got ") as refused:
        KernelUnderTest("ws", matmul_ws, **options)
    assert message in str(refused.value)


SEEN = 'KernelUnderTest("seen", matmul), '
CONFTEST = f"""
def pytest_gemm_kernels():
    from gemmproof import KernelUnderTest
    from right import matmul
    return [{SEEN}KernelUnderTest("unseen", matmul, device_only=True)]
"""


# few cases do not exercise every property
FEW = ("--max-examples", "2", "--accept", "exercise")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_project(tmp_path, CONFTEST, "right")


@pytest.mark.lane("full")
def test_a_sign_off_without_a_gpu_leaves_it_out_and_says_so(project, capfd):
    message = "unseen: left out: registered as device_only, checked only with --device cuda"
    assert main(["signoff", *FEW, "--json", "report.json"]) == EXIT["pass"]
    out = capfd.readouterr().out.splitlines()
    assert message in out
    assert "signoff: pass (1 pass)" in [line.partition(";")[0] for line in out]
    report = json.loads(Path("report.json").read_text())
    assert [kernel["target"] for kernel in report["kernels"]] == ["seen"]
    assert report["left_out"] == ["unseen"]


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("seen", "options", "message"),
    [
        ("", [], "unseen: left out"),
        (SEEN, ["--kernel", "unseen"], "it is not simulated (device_only)"),
    ],
)
def test_a_sign_off_of_it_alone_is_incomplete(project, capfd, seen, options, message):
    Path("conftest.py").write_text(CONFTEST.replace(SEEN, seen))
    assert main(["signoff", "--max-examples", "2", *options]) == EXIT["incomplete"]
    assert message in capfd.readouterr().out


@pytest.mark.lane("full")
def test_pytest_without_a_gpu_leaves_it_out_and_says_so(project):
    status, out = run_pytest(project, "--gemm-max-examples", "12")
    assert status == 0, out
    why = "left out: registered as device_only, checked only with --gemm-device cuda"
    assert f"gemmproof: unseen {why}" in out
    assert "14 passed, 3 skipped" in out  # two were not exercised

"""`pytest --gemm-device cuda`, on a fake GPU: launches are items, and a fault fails its item."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.backends.fake_gpu import NAMES
from tests.support.lanes import first_of_each
from tests.support.pytest_project import ROOT, list_failed, run_pytest, write_project
from tests.texts import line_with

PATHS = (Path(__file__).parent, ROOT)
CONFTEST = """
import fake_gpu, torch
from gemmproof.backends import cuda_device

def fault(call, result, tensors):
    {fault}
    return result

cuda_device.find_gpu = lambda: fake_gpu.FakeGpu(fault)

def pytest_gemm_kernels():
    from gemmproof import Contract, KernelUnderTest
    import launched_kernels
    contract = Contract(layouts="any")
    return [KernelUnderTest(name, launched_kernels.plain, contract) for name in ("one", "two")]
"""
NO_GPU = "def pytest_gemm_kernels(): return []\n"


def run(folder: Path, conftest: str, *options: str) -> tuple[int, str]:
    write_project(folder, conftest)
    return run_pytest(folder, "--gemm-max-examples", "10", *options, paths=PATHS)


def failed(out: str) -> list[str]:
    return [name.partition("[")[2].rstrip("]") for name in list_failed(out)]


@pytest.mark.lane("full")
def test_what_is_launched_is_an_item(tmp_path):
    launched = ("--gemm-device", "cuda", "-v")
    status, out = run(tmp_path, CONFTEST.format(fault="pass"), *launched, "-k", "one")
    assert status == 0, out
    head = "gemmproof: launches on the fake GPU (sm_90, driver 1.2, torch "
    assert head in out
    items = re.findall(r"::test_gemm\[one-fp16-(\S+)\] PASSED", out)
    launched = [name for name in items if name.endswith("-on-cuda")]
    assert launched == [f"{name}-on-cuda" for name in NAMES]
    assert {"stays_in_bounds", "within_bound"} <= set(items)


@pytest.mark.lane("full")
def test_without_the_option_nothing_is_launched(tmp_path):
    status, out = run(tmp_path, CONFTEST.format(fault="1 / 0"), "-k", "one", "-v")
    assert status == 0, out
    assert "cuda" not in out
    assert "fake GPU" not in out


@pytest.mark.lane("full")
def test_other_bits_fail_the_prediction_alone(tmp_path, texts):
    """The ini line acts as the option does; the command replays the case on the same device."""
    wrong = (
        "result.view(torch.int32)[-1, -1] ^= tensors[0].shape[1] > 1 and result[-1, -1] % 1 != 0"
    )
    status, out = run(tmp_path, CONFTEST.format(fault=wrong), "-o", "gemm_device=cuda", "-k", "one")
    assert status == 1, out
    assert failed(out) == ["one-fp16-equals_prediction-on-cuda"]
    where = line_with(out, "as predicted for sm_90")
    shown = re.sub(r"of \d+ elements", "of <count> elements", where[where.index("as predicted") :])
    texts("an item of a bit that was not predicted", shown)
    assert "--gemm-case" in out


@pytest.mark.lane("full")
def test_what_fails_when_simulated_is_not_launched_and_no_item_of_it_passes(tmp_path, texts):
    conftest = CONFTEST.format(fault="1 / 0").replace("layouts=", "out='fp16', layouts=")
    status, out = run(tmp_path, conftest, "--gemm-device", "cuda", "-k", "one")
    assert status == 1
    names = failed(out)
    assert "one-fp16-runs_to_completion" in names
    assert sum(name.endswith("-on-cuda") for name in names) == 7
    shown = {line.lstrip("E ") for line in out.splitlines() if "nothing was launched" in line}
    texts("an item that is not launched", "\n".join(sorted(shown)))
    again = ("--gemm-device", "cuda", "-k", "one and on-cuda", "--gemm-case")
    status, out = run(tmp_path, conftest, *again, '{"M":1,"N":1,"K":1}')
    assert len(failed(out)) == 7, out


CUDA_ERROR = CONFTEST.format(
    fault="raise torch.AcceleratorError('CUDA error: illegal address of ' + str(os.getpid()))"
).replace("import ", "import os, ", 1)


@pytest.mark.lane("full")
def test_a_cuda_error_is_that_of_one_kernel_s_process(tmp_path):
    chosen = ("-k", "runs_to_completion and on-cuda")
    status, out = run(tmp_path, CUDA_ERROR, "--gemm-device", "cuda", *chosen)
    assert status == 1
    processes = re.findall(r"illegal address of (\d+)", out)
    assert len(set(processes)) == 2
    assert "left the device unusable" not in out


@pytest.mark.lane("full")
def test_a_cuda_error_in_pytest_s_process_accuses_its_own_kernel_alone(tmp_path):
    """A device that is left unusable does not fail the kernels that come later."""
    chosen = ("-k", "runs_to_completion or equals_prediction", "--gemm-in-process")
    status, out = run(tmp_path, CUDA_ERROR, "--gemm-device", "cuda", *chosen)
    assert status == 1
    assert failed(out) == [
        "one-fp16-runs_to_completion-on-cuda",
        "one-fp16-equals_prediction-on-cuda",
        "two-fp16-runs_to_completion-on-cuda",
        "two-fp16-equals_prediction-on-cuda",
    ]
    why = "not run: a CUDA error of one at fp16 left the device unusable in this process"
    assert f"runs_to_completion: {why}" in out


@pytest.mark.parametrize(
    ("option", "message"),
    first_of_each(
        [
            (("--gemm-device", "cuda"), "gemm_device: got 'cuda', but torch finds no GPU"),
            (("-o", "gemm_device=cuda"), "gemm_device: got 'cuda', but torch finds no GPU"),
            (("--gemm-device", "tpu"), "gemm_device: got 'tpu', expected one of: cpu cuda"),
        ]
    ),
)
def test_a_device_that_is_not_there_is_refused_in_one_line(tmp_path, option, message):
    status, out = run(tmp_path, NO_GPU, *option)
    assert status == 4
    (line,) = out.strip().splitlines()
    assert line.startswith(f"ERROR: {message}")

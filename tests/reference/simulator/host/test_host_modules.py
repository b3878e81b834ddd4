"""Modules and hooks that ask for a device, launch and measure while they are imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gemmproof.cli import EXIT, main
from gemmproof.fake_device import DeviceRequest, fake_device
from gemmproof.reference.fake_cuda import changes
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.simulator import run, simulate
from gemmproof.target import TargetError, load, load_file, parse

SCRIPT = """
import torch
import triton
import triton.language as tl
from torch.cuda import synchronize

DEVICE = triton.runtime.driver.active.get_active_torch_device()

@triton.jit
def double(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n, other=0.0), mask=i < n)


@torch.compile
def matmul(a, b):
    c = torch.empty_like(a)
    double[(1,)](a, c, a.numel(), S=16)
    synchronize()
    return c


a = torch.rand((4, 4), device=DEVICE)
assert torch.equal(matmul(a, a), 2 * a), "the launch did nothing"


@triton.testing.perf_report(triton.testing.Benchmark(
    x_names=["N"], x_vals=[2**20], line_arg="provider", line_vals=["triton"],
    line_names=["Triton"], ylabel="GB/s", plot_name="p", args={}))
def benchmark(N, provider):
    raise AssertionError("nothing is measured at import")


benchmark.run(show_plots=True, print_data=True)
"""


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Writes a module and gives its path."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "host_side_script.py") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_a_script_that_launches_and_measures_when_imported(write_module, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    function = load(parse(f"{write_module(SCRIPT)}:matmul"))
    assert os.environ["TRITON_INTERPRET"] == "1"
    a = torch.arange(16.0).reshape(4, 4)
    seen = run(function, a, a)
    assert torch.equal(seen.result, 2 * a)
    assert len(seen.launches) == 1


ASKS_AT_IMPORT = """
import torch
import triton

DEVICE = triton.runtime.driver.active.get_active_torch_device()
SMS = torch.cuda.get_device_properties(DEVICE).multi_processor_count
ON_HOPPER = torch.cuda.get_device_capability() >= (9, 0)


def matmul(a, b):
    assert a.device == DEVICE and a.is_cuda
    return torch.full((1,), SMS if ON_HOPPER else 0, device=DEVICE)
"""


def test_an_import_gets_the_answers_that_the_wrapper_gets(write_module):
    """And none of them persists."""
    before = torch.cuda.is_available()
    function = load(parse(f"{write_module(ASKS_AT_IMPORT)}:matmul"))
    assert torch.cuda.is_available() == before
    assert simulate(function, torch.zeros(1), torch.zeros(1)).tolist() == [132]


def test_an_import_that_asks_for_what_is_unknown(write_module, texts):
    path = write_module("import torch\n\nprint(torch.cuda.temperature())\n")
    with pytest.raises(TargetError) as caught:
        load_file(path)
    texts("an import that asks for what is unknown", str(caught.value), file=path.name)


HOLDS_CUBLAS = """
import torch

if torch.cuda.is_available():
    from triton._C.libtriton import nvidia

    cublas = nvidia.cublas.CublasLt(torch.empty(1 << 20, device="cuda", dtype=torch.uint8))


def by_cublas(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    cublas.matmul(a, b.T, c)
    return c


def by_torch(a, b):
    return a @ b
"""


@pytest.mark.lane("full")
def test_a_module_may_hold_a_library_that_no_kernel_needs(write_module, capsys, texts):
    """As Triton's tutorial on persistent products does, to compare with; nothing is known of it."""
    from triton._C.libtriton import nvidia

    real, path = nvidia.cublas.CublasLt, write_module(HOLDS_CUBLAS)
    a = torch.eye(4)
    assert torch.equal(simulate(load(parse(f"{path}:by_torch")), a, a), a)
    assert nvidia.cublas.CublasLt is real
    assert main(["check", f"{path.name}:by_cublas", "--max-examples", "2"]) == EXIT["error"]
    (message,) = capsys.readouterr().err.splitlines()
    texts("a library that no kernel needs", message)


def test_launches_at_import_that_take_long_are_told_with_a_remedy(write_module, monkeypatch, texts):
    monkeypatch.setattr("gemmproof.fake_device.SECONDS", 0.0)
    with pytest.raises(TargetError) as caught:
        load_file(write_module(SCRIPT))
    texts("launches at import that take long", str(caught.value))


def test_an_assertion_that_fails_at_import_is_passed_over(write_module):
    """The statements after it are executed, with their lines."""
    text = (
        SCRIPT.replace("2 * a), ", "3 * a), ") + "for x in [1]:\n    assert x < 1\nLAST = 1 / 1\n"
    )
    module = load_file(write_module(text))
    assert module.LAST == 1
    assert torch.equal(simulate(module.matmul, *[torch.ones(2, 2)] * 2), 2 * torch.ones(2, 2))
    with pytest.raises(TargetError, match=rf"py:{text.count(chr(10))}: .* ZeroDivisionError"):
        load_file(write_module(text.replace("1 / 1", "1 / 0"), "dividing.py"))


ASKING = """
import torch
import triton
import triton.language as tl

IS_HIP = triton.runtime.driver.active.get_current_target().backend == "hip"
OPTIONS = {"waves_per_eu": 2, "matrix_instr_nonkdim": 16, "kpack": 2} if IS_HIP else {}


@triton.jit
def fill(c, S: tl.constexpr):
    tl.store(c + tl.arange(0, S), 1.0)


def matmul(a, b):
    active = triton.runtime.driver.active.get_current_target()
    assert IS_HIP and (active.backend, active.arch, active.warp_size) == ("hip", "gfx942", 64)
    c = torch.empty((4, 4), device=a.device)
    fill[(1,)](c, S=16, num_stages=2, **OPTIONS)
    return c
"""


def test_a_module_sees_the_target(write_module, monkeypatch):
    monkeypatch.setattr(DeviceRequest, "target", "gfx942")
    module = load_file(write_module(ASKING))
    assert run(module.matmul, *[torch.ones(4, 4)] * 2, target="gfx942").result.sum() == 16


def test_a_worker_imports_for_the_target_of_its_request(write_module, capsys):
    path = write_module(ASKING)
    case = '{"M": 4, "N": 4, "K": 4, "dtype": "fp32"}'
    main(["check", f"{path.name}:matmul", "--target", "gfx942", "--case", case])
    printed = "".join(capsys.readouterr())
    assert "exact_on_integers" in printed
    assert "AssertionError" not in printed


def test_a_real_gpu_is_seen_only_by_launches_on_it(monkeypatch):
    """If there is a GPU, the fake device answers all the same unless launches need the GPU."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "the real one")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with fake_device():
        assert torch.cuda.get_device_name() == "NVIDIA H200"
    monkeypatch.setattr(DeviceRequest, "device", True)
    with fake_device():
        assert torch.cuda.get_device_name() == "the real one"


HOOK = """
import torch
from gemmproof import Contract, KernelUnderTest
from host_side_script import matmul


def pytest_gemm_kernels():
    assert torch.cuda.get_device_capability() >= (9, 0)
    table = torch.ones(2, device="cuda")
    assert table.is_cuda
    return [KernelUnderTest("doubled", matmul, Contract())]
"""


@pytest.mark.lane("full")
def test_a_hook_may_ask_for_a_device(write_module, capsys):
    write_module(SCRIPT)
    write_module(HOOK, "conftest.py")
    main(["signoff", "--max-examples", "1", "--jobs", "1"])
    printed = "".join(capsys.readouterr())
    assert "doubled" in printed
    assert "CUDA" not in printed


def test_the_command_says_what_is_unknown_in_one_line(write_module, capsys):
    text = SCRIPT.partition("\na = torch.rand")[0]
    path = write_module(text.replace("    synchronize()\n", "    torch.cuda.clock_rate()\n"))
    line = path.read_text().splitlines().index("    torch.cuda.clock_rate()") + 1
    assert main(["check", f"{path.name}:matmul"]) == EXIT["error"]
    messages = [x for x in "".join(capsys.readouterr()).splitlines() if "clock_rate" in x]
    unknown = "torch.cuda.clock_rate is not known to the fake device"
    assert len(messages) == 1
    assert f"{path.name}:{line}: {unknown}" in messages[0]


@pytest.mark.lane("full")
def test_triton_interpret_changes_nothing():
    """Kernels that were decorated for Triton's interpreter are simulated all the same."""
    tests = "test_wrappers.py::test_a_wrong_wrapper_around_a_right_kernel"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", tests],
        cwd=Path(__file__).parent,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "6 passed" in done.stdout, done.stdout


def test_no_answer_has_two_names():
    """torch._dynamo knows functions by the object, and refuses one that has two rules."""
    answers = [a for _, _, a in changes(GPUS["sm_90"]) if callable(a) and not isinstance(a, type)]
    torch_own = [
        a for owner, _, a in changes(GPUS["sm_90"]) if owner is torch.cuda and a in answers
    ]
    assert len(torch_own) == len({id(a) for a in torch_own}) > 20

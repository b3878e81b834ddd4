"""Commands run with their kernels on the simulator, and their calls are written as declarations."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.pytest_project import ROOT

LAYERS = """
import torch
import triton
import triton.language as tl


@triton.jit
def _mm(a, b, c, M, N, K, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        x = tl.load(a + rows * K + k + tl.arange(0, BLOCK)[None, :], mask=rows < M, other=0)
        y = tl.load(b + columns * K + k + tl.arange(0, BLOCK)[:, None], mask=columns < N, other=0)
        acc += tl.dot(x, y)
    tl.store(c + rows * N + columns, acc.to(tl.float16), mask=(rows < M) & (columns < N))


def linear(x, w):
    assert x.is_cuda
    c = torch.empty((x.shape[0], w.shape[0]), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(w.shape[0], 16))
    _mm[grid](x, w, c, x.shape[0], w.shape[0], x.shape[1], 16)
    return c


def many(xs, w):
    return [linear(x, w) for x in xs]


class Layer:
    def __init__(self, w):
        self.w = w

    def __call__(self, x):
        c = torch.empty((x.shape[0], self.w.shape[0]), device=x.device, dtype=x.dtype)
        _mm[1, 1](x, self.w, c, x.shape[0], self.w.shape[0], x.shape[1], 16)
        return c


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        c = torch.empty((x.shape[0], w.shape[0]), device=x.device, dtype=x.dtype)
        _mm[1, 1](x, w, c, x.shape[0], w.shape[0], x.shape[1], 16)
        return c
"""
TESTS = """
import pytest
import torch
from layers import Function, Layer, linear, many

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def make(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16)


@needs_gpu
@pytest.mark.parametrize("M", [16, 33])
def test_linear(M):
    x, w = make(M, 32), make(16, 32)
    torch.testing.assert_close(linear(x, w), x @ w.t(), atol=1e-2, rtol=1e-2)


def test_wrong():
    assert linear(make(1, 32), make(16, 32)).sum() is None


def test_others():
    many([make(1, 32)], make(16, 32))
    Layer(make(16, 32))(make(1, 32))
    Function.apply(make(1, 32), make(16, 32))
"""


def record(*arguments: str, folder: Path) -> tuple[int, str, str]:
    """Run the command in a folder; return its exit code, stdout and stderr."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "gemmproof", "record", "--quiet", *arguments]
    run = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    print(run.stdout, run.stderr)  # shown if the test fails
    return run.returncode, run.stdout, run.stderr


@pytest.fixture
def project(tmp_path):
    """Return a folder with a file of wrappers and a test of them."""
    (tmp_path / "layers.py").write_text(LAYERS)
    (tmp_path / "test_layers.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    return tmp_path


def test_tests_are_recorded_with_the_formula_though_one_fails(project):
    tests = ("pytest", "-q", "-p", "no:cacheprovider", "test_layers.py")
    code, out, _ = record("--output", "conftest.py", *tests, folder=project)
    assert code == 1
    assert "1 failed, 3 passed" in out
    assert "linear (layers.py): 4 calls, 3 shapes: formula read" in out
    assert "many" not in out  # it takes a list, and calls linear
    assert "Layer.__call__ (layers.py): 1 call, 1 shape: not declared: it is a method" in out
    assert "Function.forward (layers.py): 1 call, 1 shape: memory only, no formula: " in out
    assert "wrote conftest.py" in out
    text = (project / "conftest.py").read_text()
    assert 'Contract(formats=("fp16",), M="1..33", N="16", K="32")' in text
    assert "# N: always 16 in 4 calls" in text
    assert "lambda a, b: Function.apply(a, b)" in text
    from gemmproof.worker.load_kernel import list_kernels

    kernels = {kernel.name: kernel for kernel in list_kernels(str(project / "conftest.py"))}
    assert {name: kernel.memory_only for name, kernel in kernels.items()} == {
        "linear": False,
        "Function": True,
    }


@pytest.mark.lane("full")
def test_a_script_that_has_the_kernel_and_the_benchmark(project):
    bench = LAYERS + TESTS.partition("\n\n\n")[2].partition("@needs_gpu")[0]
    main = "\nif __name__ == '__main__':\n    print(linear(make(16, 32), make(16, 32)).shape)\n"
    (project / "bench.py").write_text(bench + main)
    code, out, err = record("python", "bench.py", folder=project)
    assert code == 0
    assert out.startswith('"""Registers the kernels that gemmproof checks')
    assert "from bench import linear" in out
    assert "torch.Size([16, 16])" in err
    assert "linear (bench.py): 1 call, 1 shape: formula read" in err


@pytest.mark.lane("full")
def test_an_interruption_leaves_what_was_recorded(project):
    loop = "from layers import linear\nfrom test_layers import make\nwhile True:\n"
    calls = "    linear(make(16, 32), make(16, 32))\n    print('called', flush=True)\n"
    (project / "bench.py").write_text(loop + calls)
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    options = ["--output", "c.py", "python", "bench.py"]
    command = [sys.executable, "-m", "gemmproof", "record", *options]
    process = subprocess.Popen(
        command, cwd=project, env=variables, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "called\n"
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=200)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + signal.SIGINT
    assert "interrupted by SIGINT; this is what was recorded until then" in out
    assert '"linear",' in (project / "c.py").read_text()


def test_refusals_take_one_line(project):
    (project / "conftest.py").write_text("")
    for arguments, text in (
        ((), "command: got none, expected one such as pytest tests/test_mm.py"),
        (("no-such-command",), "command: got 'no-such-command' (No such file or directory)"),
        (("--output", "conftest.py", "python", "-V"), "expected a new one, or --force"),
    ):
        code, out, err = record(*arguments, folder=project)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert text in err


def test_a_command_without_a_launch_says_so(project):
    code, out, err = record("python", "-c", "print('hello')", folder=project)
    assert (code, out) == (3, "")
    assert "no wrapper was recorded: it launched no Triton kernel" in err

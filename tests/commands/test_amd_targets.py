"""`--target gfx942` and `gfx950`: compiled as for AMD, judged as IEEE, no bits predicted."""

from pathlib import Path

import pytest
from tests.support.cli_project import refuse
from tests.support.pytest_project import HEAD

from gemmproof.cli import EXIT, main
from gemmproof.reference.gpus import UNMODELLED

KERNELS = """
import torch
import triton
import triton.language as tl
from triton.language.target_info import is_hip


@triton.jit
def kernel(a, b, c, M, N, K, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        x = k + tl.arange(0, B)
        left = tl.load(a + m[:, None] * K + x, (m[:, None] < M) & (x < K), 0.0)
        right = tl.load(b + x[:, None] * N + n, (x[:, None] < K) & (n < N), 0.0)
        acc += tl.dot(left, right)
    if is_hip():
        acc = acc * 2
    tl.store(c + m[:, None] * N + n, acc.to(c.dtype.element_ty), (m[:, None] < M) & (n < N))


def twice_on_amd(a, b):
    a, b = a.contiguous(), b.contiguous()
    M, N = a.shape[0], b.shape[1]
    c = a.new_empty((M, N))
    kernel[triton.cdiv(M, 16), triton.cdiv(N, 16)](a, b, c, M, N, a.shape[1], 16)
    return c
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Create a folder with a kernel that is wrong on AMD GPUs alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.py").write_text(KERNELS)


def note(target):
    reason = "dot products are computed in exact IEEE, no bits are predicted"
    return f"note: no model of the matrix cores of {target}: {reason}"


@pytest.mark.lane("full")
@pytest.mark.parametrize("target", UNMODELLED)
def test_a_right_kernel_passes_with_a_note(target, capsys):
    command = ["check", "gemmproof.kernels.matmul:matmul", "--max-examples", "4"]
    assert main([*command, "--target", target]) == EXIT["pass"]
    out = capsys.readouterr().out.splitlines()
    assert out[-2].startswith("matmul: pass")
    assert out[-1] == note(target)


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("target", "verdict"), [("gfx942", "fail"), ("gfx950", "fail"), ("sm_90", "pass")]
)
def test_what_is_wrong_on_amd_alone_is_found_there(project, target, verdict, capsys):
    command = ["check", "two.py:twice_on_amd", "--max-examples", "4", "--target", target]
    assert main(command) == EXIT[verdict]
    out = capsys.readouterr().out
    assert (f"--target {target} --case" in out) == (verdict == "fail")
    assert (note(target) in out) == (verdict == "fail")


def test_drift_is_refused_in_a_line(project, capsys, texts):
    message = refuse(["drift", "two.py:twice_on_amd", "--target", "gfx942"], capsys)
    texts("drift on a GPU without a model", message)


def test_signoff_ends_with_the_note(project, capsys):
    kernel = "K('twice', two.twice_on_amd, Contract(formats=('fp16',)))"
    Path("conftest.py").write_text(f"{HEAD}import two\n    return [{kernel}]\n")
    assert main(["signoff", "--max-examples", "2", "--target", "gfx950"]) == EXIT["fail"]
    out = capsys.readouterr().out.splitlines()
    assert out[-2:] == ["signoff: fail (1 fail)", note("gfx950")]

"""The prints of a kernel are shown for a single case, a line for each program, and nowhere else."""

from pathlib import Path

import torch
import triton
import triton.language as tl

from gemmproof.cli import main
from gemmproof.reference.simulator import simulate

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a, b, c, M, N, K, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    tl.device_print("sizes", M, N)
    print("rows:", m, K)
    tl.device_print("columns", n - 1, hex=True)
    tl.device_print("here")
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        x = k + tl.arange(0, B)
        left = tl.load(a + m[:, None] * K + x, (m[:, None] < M) & (x < K), 0.0)
        right = tl.load(b + x[:, None] * N + n, (x[:, None] < K) & (n < N), 0.0)
        acc += tl.dot(left, right)
    tl.device_print("acc", acc * 0 + 0.5)
    tl.store(c + m[:, None] * N + n, acc.to(c.dtype.element_ty), (m[:, None] < M) & (n < N))


def talks(a, b):
    a, b = a.contiguous(), b.contiguous()
    M, N = a.shape[0], b.shape[1]
    c = a.new_empty((M, N))
    kernel[triton.cdiv(M, 16), triton.cdiv(N, 16)](a, b, c, M, N, a.shape[1], 16)
    return c
"""


def run_check(tmp_path, monkeypatch, capsys, *options):
    monkeypatch.chdir(tmp_path)
    Path("talks.py").write_text(KERNELS)
    assert main(["check", "talks.py:talks", *options]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_single_case_shows_names_values_and_programs(tmp_path, monkeypatch, capsys, texts):
    case = ["--case", '{"M": 2, "N": 18, "K": 4}']
    out = run_check(tmp_path, monkeypatch, capsys, *case)
    rows = " ".join(map(str, range(16)))
    columns = " ".join(f"0x{(n - 1) % 2**32:08x}" for n in range(16))
    halves = " ".join(["[0.5 0.5 0.5 0.5 ... 0.5 0.5 0.5 0.5]"] * 4)
    places = {"rows": rows, "columns": columns, "halves": halves}
    texts("what a kernel printed", "\n".join([*out[:3], *out[3:10:2]]), **places)
    assert out[11] == ""


def test_long_output_is_cut(tmp_path, monkeypatch, capsys):
    out = run_check(tmp_path, monkeypatch, capsys, "--case", '{"M": 2, "N": 320, "K": 4}')
    assert [line[:4] for line in out[1:41]] == ["  | "] * 40
    assert out[41] == "  and 60 more lines"


def test_many_cases_show_nothing_of_it(tmp_path, monkeypatch, capsys):
    out = run_check(tmp_path, monkeypatch, capsys, "--max-examples", "2")
    assert not [line for line in out if "program (" in line]


@triton.jit
def loud(x, o, S: tl.constexpr):
    tl.static_print("at compile time", S)
    tl.device_print("on the device", S)
    tl.store(o + tl.arange(0, S), tl.load(x + tl.arange(0, S)))


def test_a_simulated_kernel_leaves_stdout_alone(capfd):
    def copied(x):
        o = torch.empty_like(x)
        loud[1,](x, o, 16)
        return o

    simulate(copied, torch.ones(16))
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")

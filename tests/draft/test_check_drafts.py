"""`gemmproof check` and `init` draft the declaration of a wrapper that takes other operands."""

import re
import shlex
from pathlib import Path

import pytest
from tests.draft.test_draft_command import LAYERS

from gemmproof.cli import EXIT, main

MORE = """

def turned(x, w):
    M, K = x.shape
    N, K2 = w.shape
    assert K == K2, "features differ"
    return linear(x, w, torch.zeros(N, device=x.device, dtype=x.dtype))


def sixteens(x, w, b):
    assert x.shape[1] % 16 == 0, "K must be a multiple of 16"
    return linear(x, w, b)


@triton.jit
def largest_kernel(x_ptr, w_ptr, y_ptr, M, K, xm, BK: tl.constexpr):
    m = tl.program_id(0)
    k = tl.arange(0, BK)
    x = tl.load(x_ptr + m * xm + k, mask=k < K, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + k, mask=k < K, other=0.0).to(tl.float32)
    tl.store(y_ptr + m, tl.max(tl.abs(x * w), axis=0))


def largest(x, w, scale: float):
    M, K = x.shape
    y = torch.empty(M, device=x.device, dtype=torch.float32)
    largest_kernel[(M,)](x, w, y, M, K, x.stride(0), BK=triton.next_power_of_2(K))
    return y


def packed(x, w, s):
    M, K = x.shape
    assert K == w.shape[0] * 2, "w has two elements in a byte"
    y = torch.empty((M, w.shape[1]), device=x.device, dtype=x.dtype)
    grid = triton.cdiv(M, 32), triton.cdiv(w.shape[1], 32)
    packed_kernel[grid](x, w, s, y, M, w.shape[1], K, BM=32, BN=32, BK=32)
    return y


@triton.jit
def packed_kernel(
    x_ptr, w_ptr, s_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :],
                    mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + (k[:, None] // 2) * N + n[None, :],
                    mask=(n[None, :] < N) & (k[:, None] < K), other=0)
        w = (w >> (k[:, None] % 2 * 4)) & 15
        acc += tl.dot(x, w.to(x.dtype))
    acc *= tl.load(s_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=mask)
"""
FEW = ["--no-proof", "--no-saved-cases", "--quiet", "--max-examples", "12"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("layers.py").write_text(LAYERS + MORE)


def check(name, capsys, *options):
    """Return the exit code and the output of a check."""
    code = main(["check", f"layers.py:{name}", *FEW, *options])
    return code, capsys.readouterr().out


def test_a_drafted_wrapper_is_judged_and_does_not_pass(capsys):
    code, out = check("linear", capsys)
    assert code == EXIT["draft"] == 4
    assert "\nlinear: draft; " in out or "\nlinear: draft: " in out
    assert "that nobody confirmed" in out
    command = out.splitlines()[-1]
    assert main([*shlex.split(command)[1:], *FEW]) == EXIT["pass"]
    assert "\nlinear: pass" in capsys.readouterr().out


def test_a_drafted_wrapper_that_loses_a_mask_fails(capsys):
    code, out = check("loses_a_mask", capsys)
    assert code == EXIT["fail"]
    assert "loses_a_mask does not stay in bounds" in out
    assert "c = (a @ b.T) + b_" in out


def test_two_operands_that_are_refused_as_a_and_b_are_drafted(capsys):
    code, out = check("turned", capsys)
    assert (code, "c = a @ b.T" in out) == (EXIT["draft"], True)


def test_a_wrapper_that_takes_a_and_b_is_not_drafted(capsys):
    code, out = check("plain", capsys)
    assert (code, "drafted:" in out) == (EXIT["pass"], False)


def test_a_wrong_product_of_a_and_b_keeps_its_findings(capsys):
    Path("layers.py").write_text(LAYERS.replace("linear(a, b.t(),", "linear(a, b.t() + b.t(),"))
    code, out = check("plain", capsys)
    assert (code, "drafted:" in out) == (EXIT["fail"], False)


def test_sizes_that_are_refused_are_left_out_with_the_reason(capsys):
    code, out = check("sixteens", capsys)
    assert code == EXIT["draft"]
    row = next(line for line in out.splitlines() if "K = 16..:16" in line)
    assert re.search(r"refused otherwise: .*K must be a multiple of 16", row)
    assert "--sizes K=16..:16" in out


def test_without_a_formula_only_memory_is_judged(capsys):
    code, out = check("largest", capsys)
    assert code == EXIT["draft"]
    assert "\nlargest: draft, memory only: values not judged" in out
    assert re.search(r"--memory-only +no formula: ", out)


def test_packed_integers_are_drafted(capsys):
    code, out = check("packed", capsys)
    assert code == EXIT["draft"], out
    assert "[K // 2, N]" in out
    assert "s[None, :]" in out or ") * s" in out


def test_what_cannot_be_drafted_is_asked_for(capsys):
    code, out = check("torn", capsys)
    assert code == EXIT["incomplete"]
    assert "declare x, w, labels with --call, --operand and --spec" in out


def test_init_writes_a_draft_that_no_test_passes_with(capsys):
    assert main(["init", "layers.py:linear"]) == EXIT["pass"]
    assert "then remove draft=True" in capsys.readouterr().out
    assert "draft=True" in Path("conftest.py").read_text()


@pytest.mark.lane("full")
def test_a_sign_off_refuses_a_draft(capsys):
    main(["init", "layers.py:linear"])
    usual = ["signoff", "--no-proof", "--quiet", "--max-examples", "12"]
    assert main(usual) == EXIT["fail"]
    assert "draft that nobody confirmed" in capsys.readouterr().out

"""`gemmproof draft` writes the options for a wrapper, or says what must be declared."""

import shlex
from pathlib import Path

import pytest
from tests.support.cli_project import refuse

from gemmproof.cli import EXIT, main

LAYERS = """
import torch, triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, xm, xk, wn, wk, ym, yn, LOSES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * xm + k[None, :] * xk,
                    mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n[None, :] * wn + k[:, None] * wk,
                    mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc += tl.dot(x, w)
    acc += tl.load(b_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    mask = (m[:, None] < M) & (n[None, :] < N)
    if LOSES:
        mask = m[:, None] < M
    tl.store(y_ptr + m[:, None] * ym + n[None, :] * yn, acc.to(y_ptr.dtype.element_ty), mask=mask)


def linear(x, w, b, LOSES=False):
    M, K = x.shape
    N, _ = w.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = triton.cdiv(M, 32), triton.cdiv(N, 32)
    strides = (*x.stride(), *w.stride(), *y.stride())
    linear_kernel[grid](x, w, b, y, M, N, K, *strides, LOSES=LOSES, BM=32, BN=32, BK=32)
    return y


def loses_a_mask(x, w, b):
    return linear(x, w, b, LOSES=True)


def plain(a, b):
    return linear(a, b.t(), torch.zeros(b.shape[1], device=a.device, dtype=a.dtype))


class Layer:
    def forward(self, x, w):
        return plain(x, w)

    @staticmethod
    def apply(x, w, b):
        return linear(x, w, b)


def idle(x, w):
    return torch.empty((x.shape[0], w.shape[1]), device=x.device, dtype=x.dtype)


def torn(x, w, labels):
    raise ValueError("labels must be sorted")
"""
DECLARED = [
    *("--call", "linear(a, b, b_)", "--operand", "b=fp16[N, K]", "--operand", "b_=fp16[N]"),
    *("--spec", "(a @ b.T) + b_"),
]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("layers.py").write_text(LAYERS)


def draft(name, capsys):
    """Return the exit code and the output of a draft."""
    code = main(["draft", f"layers.py:{name}", "--quiet"])
    return code, capsys.readouterr().out


def test_a_wrapper_with_a_bias_is_drafted(capsys, texts):
    code, out = draft("linear", capsys)
    assert code == EXIT["pass"]
    assert shlex.split(out.splitlines()[-1]) == [
        "gemmproof",
        "check",
        "layers.py:linear",
        *DECLARED,
    ]
    texts("the draft of a linear layer", out)


@pytest.mark.lane("full")
def test_what_is_drafted_can_be_checked(capsys):
    usual = ["--no-proof", "--no-saved-cases", "--quiet", "--max-examples", "30"]
    assert main(["check", "layers.py:linear", *DECLARED, *usual]) == EXIT["pass"]
    capsys.readouterr()
    arguments = shlex.split(draft("loses_a_mask", capsys)[1].splitlines()[-1])
    assert main([*arguments[1:], *usual]) == EXIT["fail"]
    assert "loses_a_mask does not stay in bounds" in capsys.readouterr().out


def test_a_function_of_a_class_is_called_by_its_full_name(capsys):
    code, out = draft("Layer.apply", capsys)
    assert (code, "Layer.apply(a, b, b_)" in out.splitlines()[-1]) == (EXIT["pass"], True)


def test_a_plain_product_needs_no_options(capsys):
    code, out = draft("plain", capsys)
    assert (code, out.splitlines()[-1]) == (EXIT["pass"], "  gemmproof check layers.py:plain")


def test_what_must_be_declared_is_named(capsys, texts):
    code, out = draft("torn", capsys)
    assert code == EXIT["incomplete"]
    texts("a wrapper that is not understood", out)


def test_a_result_that_no_kernel_stores_is_not_drafted(capsys):
    code, out = draft("idle", capsys)
    assert (code, "a result that no kernel stored" in out) == (EXIT["incomplete"], True)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("layers.py:none", "layers.py: got 'none', which is not there"),
        ("layers.py:linear_kernel", "got a Triton kernel, expected the wrapper that launches it"),
        ("nothing.py:linear", "got 'nothing.py' (no such file), expected a Python file"),
        ("layers.py:Layer.forward", "got a method, expected a function that makes the object"),
        ("layers.py:tl", "layers.py:tl: got module, expected a function"),
    ],
)
def test_a_target_without_a_wrapper_is_one_line(target, message, capsys):
    assert message in refuse(["draft", target, "--quiet"], capsys)

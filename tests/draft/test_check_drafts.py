"""`gemmproof check` and `init` draft the declaration of a wrapper that takes other operands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.draft.test_draft_command import LAYERS
from tests.support.pytest_project import ROOT

from gemmproof.cli import EXIT, main
from gemmproof.draft.candidates import CandidateCall, Candidates, TensorDraft
from gemmproof.draft.read_wrapper import read_wrapper

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


def test_an_autograd_function_is_drafted_by_its_class(capsys):
    more = """

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, scale=None):
        return plain(a, b)
"""
    Path("layers.py").write_text(LAYERS + more)
    code, out = check("Function", capsys)
    assert (code, "--call 'Function.apply(a, b, None)'" in out) == (EXIT["draft"], True)


def test_a_wrapper_that_takes_a_and_b_is_not_drafted(capsys):
    code, out = check("plain", capsys)
    assert (code, "drafted:" in out) == (EXIT["pass"], False)


def test_a_wrong_product_of_a_and_b_keeps_its_findings(capsys):
    Path("layers.py").write_text(LAYERS.replace("linear(a, b.t(),", "linear(a, b.t() + b.t(),"))
    code, out = check("plain", capsys)
    assert (code, "drafted:" in out) == (EXIT["fail"], False)


def test_a_wrapper_of_a_and_b_that_raises_for_some_sizes_is_not_drafted(capsys):
    raises = "\n\ndef raises(a, b):\n    assert a.shape[0] > 1, 'one row'\n    return plain(a, b)\n"
    Path("layers.py").write_text(LAYERS + raises)
    code, out = check("raises", capsys)
    assert (code, "one row" in out, "drafted:" in out) == (EXIT["fail"], True, False)


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
    example = ROOT / "docs" / "examples" / "int4_linear.py"
    assert main(["check", f"{example}:int4_linear", *FEW]) == EXIT["draft"]
    out = capsys.readouterr().out
    assert "b (qweight) = int32[K // 8, N]" in out
    assert "scales = fp16[-(-K // 64), N]" in out


def test_packed_integers_that_nothing_asserts_are_drafted(capsys):
    text = (ROOT / "docs" / "examples" / "int4_linear.py").read_text()
    asserted = '    assert qweight.shape[0] * 8 == K, "eight weights lie in a word"\n'
    assert asserted in text
    Path("layers.py").write_text(text.replace(asserted, ""))
    assert main(["draft", "layers.py:int4_linear", "--quiet"]) == EXIT["pass"]
    assert "b (qweight) = int32[-(-K // 8), N]" in capsys.readouterr().out


def test_a_factor_of_which_a_part_is_read_is_tried_as_packed():
    tensors = {"x": TensorDraft("fp16", ("M", "K")), "w": TensorDraft("int8", ("K", "N"))}
    call = CandidateCall(tensors, {}, {"M": 6, "N": 20, "K": 36}, ("x", "w"))
    candidates = Candidates(read_wrapper(check))
    assert candidates.repack(call, {"x": (6, 36), "w": (36, 20)}) == []
    packed = candidates.repack(call, {"x": (6, 36), "w": (18, 20)})
    assert [x.tensors["w"].sides for x in packed] == [("K // 2", "N")] * 2
    assert [x.tensors["w"].format for x in packed] == ["uint8", "int8"]


def test_a_formula_that_other_sizes_contradict_accuses_no_kernel(capsys):
    changes = """

def changes(x, w, b):
    return linear(x, w, b if x.shape[1] < 200 else b + b)
"""
    Path("layers.py").write_text(LAYERS + changes)
    code, out = check("changes", capsys)
    assert code == EXIT["draft"]
    assert "changes: draft, memory only: values not judged" in out
    assert "no formula: drafted at one size: c = (a @ b.T) + b_; at another c[" in out


def in_batches(x, w):
    batch_size, m, k = x.shape
    batch_size, k, n = w.shape
    return (x @ w).reshape(batch_size, m, n, k)[..., 0]


def test_the_first_of_three_dimensions_is_a_batch():
    first = next(Candidates(read_wrapper(in_batches)).list_calls())
    sides = [tensor.sides for tensor in first.tensors.values()]
    assert sides == [("batch", "M", "K"), ("batch", "K", "N")]


def test_what_cannot_be_drafted_is_asked_for(capsys):
    code, out = check("torn", capsys)
    assert code == EXIT["incomplete"]
    assert "declare x, w, labels with --call, --operand and --spec" in out


def test_init_writes_a_draft(capsys):
    assert main(["init", "layers.py:linear"]) == EXIT["pass"]
    assert "then remove draft=True" in capsys.readouterr().out
    assert "draft=True" in Path("conftest.py").read_text()


@pytest.mark.lane("full")
def test_a_sign_off_and_pytest_refuse_a_draft(capsys):
    main(["init", "layers.py:linear"])
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "completion"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "draft that nobody confirmed" in done.stdout
    usual = ["signoff", "--no-proof", "--quiet", "--max-examples", "12"]
    assert main(usual) == EXIT["fail"]
    assert "draft that nobody confirmed" in capsys.readouterr().out


WRAPPERS = """


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b=None):
        return linear(x, w, torch.zeros(w.shape[0], dtype=x.dtype) if b is None else b)


@torch.library.custom_op("drafted::operator", mutates_args=())
def operator(
    x: torch.Tensor,  # (M, K)
    w: torch.Tensor,  # (N, K)
    b: torch.Tensor,  # (N,)
) -> torch.Tensor:
    return linear(x, w, b)


def outer(first, second, n_added):
    return linear(first, second, n_added)


def in_columns(x, w, b):
    assert w.stride(0) == 1, "w must be column-major"
    return linear(x, w, b)


def in_bf16(x, w, scale, zero):
    assert x.dtype == torch.bfloat16
    assert scale.dtype == x.dtype and zero.dtype == x.dtype
    return linear(x, w, scale) + zero


@triton.jit
def parts_kernel(
    x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PARTS: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.program_id(2) * BK, K, BK * PARTS):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :],
                    mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None],
                    mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc += tl.dot(x, w)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.atomic_add(y_ptr + m[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=mask)


def in_parts(x, w):
    M, K = x.shape
    N, K2 = w.shape
    assert K == K2, "features differ"
    y = torch.zeros((M, N), device=x.device, dtype=x.dtype)
    grid = triton.cdiv(M, 32), triton.cdiv(N, 32), 2
    parts_kernel[grid](x, w, y, M, N, K, BM=32, BN=32, BK=32, PARTS=2)
    return y
"""


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("Function", ["Function.apply(a, b, None)", "b=fp16[N, K]", "a @ b.T"]),
        ("operator", ["operator(a, b, b_)", "b=fp16[N, K]", "b_=fp16[N]", "(a @ b.T) + b_"]),
        (
            "outer",
            ["outer(a, b, n_added)", "b=fp16[N, K]", "n_added=fp16[N]", "(a @ b.T) + n_added"],
        ),
        ("in_columns", ["in_columns(a, b.mT.contiguous().mT, b_)", "b=fp16[N, K]", "b_=fp16[N]"]),
        ("in_bf16", ["--dtype", "bf16", "b=bf16[N, K]", "scale=bf16[N]"]),
        ("in_parts", ["--accumulator", "fp16", "--any-order", "b=fp16[N, K]", "a @ b.T"]),
    ],
)
def test_what_public_wrappers_say_is_read(name, parts, capsys):
    Path("layers.py").write_text(LAYERS + WRAPPERS)
    assert main(["draft", f"layers.py:{name}", "--quiet"]) == EXIT["pass"]
    arguments = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert [part for part in parts if part not in arguments] == []

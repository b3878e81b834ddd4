"""The wrappers in a file are found without running it, in any style."""

from pathlib import Path

import pytest

from gemmproof.wrappers import find_wrappers

ROOT = Path(__file__).parents[2]
HEAD = """
raise SystemExit("nothing here is run")
import functools, torch, triton
import triton.language as tl

@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K):
    pass

@triton.autotune(configs=[], key=["M"])
@triton.jit
def tuned(a_ptr, b_ptr, c_ptr):
    pass
"""
STYLES = """
def plain(a, b):
    c = torch.empty((a.shape[0], b.shape[1]))
    kernel[(1,)](a, b, c)
    return c

@functools.cache
def decorated(x, weight, bias=None, *, out=None):
    tuned[lambda meta: (1,)](x.contiguous(), weight.t(), out)

def in_words(*, a, b):
    pass

def taken_apart(x: torch.Tensor, y: torch.Tensor):
    arguments = (x, y)
    kernel[1,](*arguments)

def handed_on(a, b):
    a, b = a.contiguous(), describe(b)
    return _helper(a, b, None)

def _helper(a, b, c):
    if a.is_cuda:
        with torch.cuda.device(a.device):
            kernel[(1,)](a, b, c)

def _private(a, b):
    kernel[(1,)](a, b, a.T)

def through_a_launcher(a, b):
    run_it(kernel, a, b.shape, b)

def of_three(a, b, scale, *, zero):
    kernel[(1,)](a, b.view(-1), scale, zero)

try:
    import other
except ImportError:
    def guarded(a, b):
        kernel[(1,)](a, b, a.new_empty(1))

class Holder:
    @staticmethod
    def static(a, b):
        kernel[(1,)](a, b, a.T)

    def method(self, a, b):
        kernel[(1,)](a, b, a.T)

class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        kernel[(1,)](a, b, a.T)

def differentiable(a, b):
    return _Product.apply(a, b)

async def waited_for(a, b):
    kernel[(1,)](a, b, a.T)

def _launch(which, a, b):
    which[(1,)](a, b, a.new_empty(1))

def _between(which, a, b):
    _launch(which, a, b)

def by_a_launcher(a, b):
    return _launch(kernel, a, b)

def by_another(a, b):
    return _between(tuned, a, b)

def by_one_elsewhere(a, b):
    return other.launch(tuned, a, b)
"""
OTHERS = """
TABLE = {"plain": 1}

def benchmark(M, N, K, provider):
    a, b = torch.randn((M, K)), torch.randn((K, N))
    c = torch.empty((M, N))
    kernel[(1,)](a, b, c, M, N, K)
    return plain(a, b)

def reference(a, b):
    return torch.matmul(a, b)

def from_a_table(a, b):
    return TABLE[a](a.shape, b)

def _time(which, M, N):
    which[(1,)](torch.empty(M), N)

def of_sizes(M, N):
    _time(kernel, M, N)

def of_one(a):
    kernel[(1,)](a, a, a)

def main():
    def nested(a, b):
        kernel[(1,)](a, b, a.T)
    nested(1, 2)
"""


def names_in(path, text):
    path.write_text(text)
    return [wrapper.name for wrapper in find_wrappers(path)]


def test_every_style_is_found_and_nothing_else(tmp_path):
    path = tmp_path / "styles.py"
    path.write_text(HEAD + STYLES + OTHERS)
    wrappers = {wrapper.name: wrapper for wrapper in find_wrappers(path)}
    assert list(wrappers) == [
        *("plain", "decorated", "taken_apart", "handed_on", "through_a_launcher", "of_three"),
        *("guarded", "Holder.static", "differentiable", "waited_for"),
        *("by_a_launcher", "by_another", "by_one_elsewhere"),
    ]
    assert wrappers["of_three"].needs == ("scale", "zero")
    assert wrappers["decorated"].needs == ()
    lines = path.read_text().splitlines()
    assert all(f"def {w.name.rpartition('.')[2]}(" in lines[w.line - 1] for w in wrappers.values())


def test_functions_whose_kernels_lie_elsewhere_are_told_apart(tmp_path):
    path = tmp_path / "elsewhere.py"
    assert names_in(path, HEAD + OTHERS) == []
    path.write_text("def matmul(a, b):\n    return go(a.contiguous(), b.stride(0))\n")
    assert [(w.name, w.launches) for w in find_wrappers(path)] == [("matmul", False)]


def test_a_private_one_is_listed_where_there_is_no_other(tmp_path):
    alone = "def _matmul(a, b):\n    kernel[(1,)](a, b, a.T)\n"
    assert names_in(tmp_path / "private.py", HEAD + alone) == ["_matmul"]


@pytest.mark.parametrize("name", ["matmul", "matmul_streamk", "matmul_tma", "bmm", "gemm"])
def test_the_kernels_of_this_repository_are_found(name):
    assert [w.name for w in find_wrappers(ROOT / "kernels" / f"{name}.py")] == [name]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"def f(:\n", "bad.py:1: got invalid syntax, expected Python"),
        (b"x = 1\n\xff\xfe\n", "bad.py:2: got (unicode error) 'utf-8' codec can't decode byte"),
        (b"x = 1\x00\n", "bad.py: got source code string cannot contain null bytes, expected"),
        (b"x = " + b"(" * 5000, "bad.py:1: got too many nested parentheses, expected Python"),
        (b"x = " + b"-" * 60000 + b"1", "bad.py: got "),
    ],
)
def test_what_is_no_python_is_one_line(data, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_bytes(data)
    with pytest.raises(ValueError, match=r"expected Python") as mistake:
        find_wrappers(Path("bad.py"))
    assert str(mistake.value).startswith(line)
    assert "\n" not in str(mistake.value)


def test_other_codings_marks_and_long_files_are_read(tmp_path):
    text = HEAD + STYLES
    path = tmp_path / "coded.py"
    path.write_bytes(b"# -*- coding: latin-1 -*-\nname = 'caf\xe9'\n" + text.encode())
    assert len(find_wrappers(path)) == 13
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert len(find_wrappers(path)) == 13
    chain = "".join(f"def f{i}(a, b):\n    return f{i + 1}(a, b)\n" for i in range(50))
    chain += "def f50(a, b):\n    kernel[1,](a, b, a.T)\n"
    path.write_text(HEAD + chain + "x = [1, 2]\n" * 10_000)
    assert len(find_wrappers(path)) == 51

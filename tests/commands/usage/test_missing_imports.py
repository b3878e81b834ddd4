"""A file that cannot be loaded here, or has no function to call: one line with the next step."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.cli_project import refuse
from tests.support.pytest_project import EXAMPLES

from gemmproof.cli import main

FILES = {
    "bare": "number = 1\n",
    "extension": (
        "from torch.utils.cpp_extension import load_inline\n"
        "load_inline(name='mm', cpp_sources='', cuda_sources='', functions=['mm'])\n"
    ),
    "shared": "import torch\ntorch.ops.load_library('libmm.so')\n",
    "missing": "from absent.utils import register\n",
    "compiled": "import absent_cuda\n",
    "data": "weights = open('weights.pt')\n",
    "classes": (
        "import torch\n\n\nclass Layer(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x\n\n\n"
        "class Product(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, a, b):\n        return a\n"
    ),
    "stubbed": (
        "import right\nfrom absent import Base, flags\nfrom absent.utils import register\n\n\n"
        "@register\ndef helper(x):\n    return x\n\n\n@register('name', own=1)\nclass Own(Base):\n"
        "    pass\n\n\nIS_FAST = bool(flags.FAST) and Base | None\n\n\n"
        "def right_one(a, b):\n    if isinstance(a, Base):\n        return None\n"
        "    return helper(right.matmul(a, b))\n\n\n"
        "def uses(a, b):\n    return right.matmul(a, b) if flags.FAST else None\n"
    ),
}
MAIN = 'put it under `if __name__ == "__main__":`'
STEPS = [
    ("bare.py", "launches a kernel: write one, or name the function that launches, as path/to/"),
    ("extension.py:mm", f"only Triton kernels are checked, a CUDA extension is not built: {MAIN}"),
    ("shared.py:mm", f"a library of CUDA code is not there: {MAIN}"),
    ("missing.py:mm", "install absent, or give --stub absent if the wrapper does not use it"),
    ("compiled.py:mm", "install absent_cuda, or give --stub absent_cuda if the wrapper does not"),
    ("data.py:mm", f"run it in the folder that has the file, or {MAIN}"),
    ("classes.py:Layer", "got a class, expected a call that makes its object, such as --call"),
    ("classes.py:Layer.forward", "such as --call 'Layer(...).forward(a)'"),
    ("classes.py:Product", "a function of torch.autograd, expected --call 'Product.apply(a, b)'"),
    ("classes.py:Product.forward", "expected --call 'Product.apply(a, b)'"),
]


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """Return a folder with the files and a right kernel, the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    shutil.copy(EXAMPLES / "right.py", tmp_path)
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.mark.parametrize(("target", "step"), STEPS)
def test_what_cannot_be_loaded_says_what_to_do_next(target, step, files, capsys):
    assert step in refuse(["check", target], capsys)


FEW = ("--max-examples", "2", "--no-saved-cases", "--no-proof", "--quiet")


def test_a_stand_in_lets_an_import_succeed(files, capsys):
    assert main(["check", "stubbed.py:right_one", "--stub", "absent", *FEW]) == 0
    assert "right_one: pass" in capsys.readouterr().out


def test_a_stand_in_that_the_wrapper_uses_is_one_line(files, capsys):
    line = refuse(["check", "stubbed.py:uses", "--stub", "absent", *FEW], capsys)
    expected = "the wrapper uses absent.flags.FAST, for which --stub absent has a stand-in: install"
    assert f"stubbed.py:26: {expected} absent instead" in line

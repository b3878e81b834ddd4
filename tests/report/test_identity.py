"""The hash of a source: it changes with all that a wrapper can reach, and with nothing else."""

import functools
import sys
import time

import pytest

from gemmproof.identity import describe, trace
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.record import Identity
from gemmproof.target import load_file

FILES = {
    "kernels.py": '''
"""Kernels."""
import functools

import helper
import helper as other
from constants import *
from helper import add as plus, table
from shapes import round_up
import triton

TILE = 32
CONFIGS = [TILE, 64]
REGISTERED = {}
REGISTERED["matmul"] = CONFIGS
helper.prepare(2)
UNUSED = 1


def beside(a):
    return a  # nobody calls it


@triton.jit
def kernel(a, CONFIG=CONFIGS):
    return inner(a)


@triton.jit
def inner(a):
    return a


class Shape:
    def side(self):
        return SIDE


def wrapper(a, b):
    from lazy import late
    return plus(a, b), helper.scale(a), other.deep.down(b), round_up(a), STAR, late, kernel, Shape()


def make(function):
    def call(a, b):
        return function(a, b)
    return call


closed = make(wrapper)
partly = functools.partial(wrapper, 1)
''',
    "helper.py": """
import deep
factor = 3

def add(a, b):
    return table(a)

def table(a):
    return a

def scale(a):
    return a * factor

def prepare(n):
    return n

def unasked(a):
    return a
""",
    "deep.py": "def down(b):\n    return b\n\ndef up(b):\n    return b\n",
    "constants.py": "STAR = 1\nSIDE = 2\nOTHER = 3\n",
    "lazy.py": "import kernels\nlate = 5\nearly = 6\n",
    "shapes/__init__.py": "from .rounding import round_up\nfrom .cutting import cut\n",
    "shapes/rounding.py": "from . import steps\n\ndef round_up(a):\n    return a + steps.STEP\n",
    "shapes/steps.py": "STEP = 1\nBACK = 2\n",
    "shapes/cutting.py": "def cut(a):\n    return a\n",
}


def list_loaded():
    """Return the modules of FILES that are loaded."""
    names = {name.removesuffix(".py").partition("/")[0] for name in FILES}
    return [name for name in sys.modules if name.partition(".")[0] in names]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that writes the files, with one text changed, and digests a function."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def find(function="wrapper", file="", old="", new=""):
        for name, text in FILES.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            assert file != name or old in text
            path.write_text(text.replace(old, new) if file == name else text)
        for name in list_loaded():
            monkeypatch.delitem(sys.modules, name)
        sys.dont_write_bytecode = True
        from gemmproof import identity

        identity.find_file.cache_clear()
        module = load_file(tmp_path / "kernels.py")
        return Identity(source=trace(getattr(module, function))).digest

    yield find
    for name in list_loaded():
        del sys.modules[name]


REACHED = [
    ("kernels.py", "return plus(a, b)", "return plus(b, a)"),
    ("kernels.py", "TILE = 32", "TILE = 16"),
    ("kernels.py", "return inner(a)", "return inner(2 * a)"),
    ("kernels.py", "def inner(a):\n    return a", "def inner(a):\n    return -a"),
    ("kernels.py", "helper.prepare(2)", "helper.prepare(3)"),
    ("helper.py", "return n", "return -n"),
    ("kernels.py", "return SIDE", "return SIDE + 1"),
    ("helper.py", "return table(a)", "return table(b)"),
    ("helper.py", "def table(a):\n    return a", "def table(a):\n    return 0"),
    ("helper.py", "factor = 3", "factor = 4"),
    ("deep.py", "def down(b):\n    return b", "def down(b):\n    return 1"),
    ("constants.py", "STAR = 1", "STAR = 9"),
    ("constants.py", "SIDE = 2", "SIDE = 9"),
    ("lazy.py", "late = 5", "late = 9"),
    ("shapes/rounding.py", "a + steps", "a - steps"),
    ("shapes/steps.py", "STEP = 1", "STEP = 9"),
]
BESIDE = [
    ("kernels.py", "UNUSED = 1", "UNUSED = 2"),
    ("kernels.py", "return a  # nobody calls it", "return 0"),
    ("kernels.py", "\nTILE = 32", "# a comment\n\n\nTILE = 32"),
    ("helper.py", "def unasked(a):\n    return a", "def unasked(a):\n    return 0"),
    ("deep.py", "def up(b):\n    return b", "def up(b):\n    return 0"),
    ("constants.py", "OTHER = 3", "OTHER = 4"),
    ("lazy.py", "early = 6", "early = 7"),
    ("shapes/cutting.py", "return a", "return 0"),
    ("shapes/steps.py", "BACK = 2", "BACK = 3"),
]


def test_what_is_reached_changes_the_hash_and_nothing_else_does(project):
    before = project()
    assert [x for x in REACHED if project("wrapper", *x) == before] == []
    assert [x for x in BESIDE if project("wrapper", *x) != before] == []
    assert project() == before


@pytest.mark.parametrize("function", ["closed", "partly"])
def test_a_closure_and_a_partial_reach_what_they_hold(project, function):
    before = project(function)
    assert project(function, *REACHED[3]) != before
    assert project(function, *BESIDE[1]) == before


def test_nothing_of_a_library_is_a_part():
    import torch

    assert trace(torch.nn.functional.relu, functools.partial(max)) == {}


def test_a_function_that_was_made_at_run_time_is_known_by_its_code():
    functions = [eval(f"lambda a, b: a + {n}") for n in (1, 2, 1)]
    first, other, again = (trace(function) for function in functions)
    assert first == again != other
    assert len(first) == 1


def test_a_file_that_was_written_after_its_import_is_not_what_runs(project, texts):
    project()
    kernel = KernelUnderTest("k", sys.modules["kernels"].wrapper)
    assert describe(kernel, time.time() + 60).source
    identity = describe(kernel, time.time() - 60)
    assert (identity.source, identity.digest) == ({}, "")
    texts("a file that was written after its import", identity.lack)


class Odd:
    """An object that raises when it is inspected."""

    def __call__(self, a, b):
        raise AssertionError

    def __getattr__(self, name):
        raise RuntimeError(name)


def test_an_object_that_cannot_be_looked_at_says_so(texts):
    identity = describe(KernelUnderTest("k", Odd()))
    assert identity.source == {}
    texts("an object that cannot be looked at", identity.lack)

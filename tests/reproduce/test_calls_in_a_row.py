"""Bugs that need several calls: the written test makes these calls and compares the results."""

from __future__ import annotations

import re

import pytest
from tests.reproduce.written_tests import RIGHT, find_first, require_formatted, run_pytest

from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import Contract
from gemmproof.properties.finding import Finding
from gemmproof.properties.kernel import KernelUnderTest, Operand
from gemmproof.reproduce.bug import ALWAYS, ENDS, NEVER, Bug, Place, Unreproducible
from gemmproof.reproduce.find import find_bug
from gemmproof.reproduce.write import write_test
from gemmproof.target import Calling, load_file

ORDER, AGAIN = {"compare": "order"}, {"calls": 3}
# the body of a wrapper, whose module keeps `count` and `kept`; its case; its test's message
WRAPPERS = {
    "counts": (
        "count[0] += 1\n    return matmul(a, b) + (count[0] > 2)",
        Case(1, 1, 2, **AGAIN),
        "c[0, 0]: got 1.0, expected 0.0 as in call 1",
    ),
    "raises": (
        "count[0] += 1\n    assert count[0] < 2, 'called again'\n    return matmul(a, b)",
        Case(1, 1, 1, **AGAIN),
        "AssertionError: called again",
    ),
    "widens": (
        "count[0] += 1\n    c = matmul(a, b)\n    return c.float() if count[0] > 1 else c",
        Case(1, 1, 1, **ORDER),
        "c has another dtype or shape than in call 1",
    ),
    "stale": (
        "return kept.setdefault((a.shape, b.shape), matmul(a, b)).clone()",
        Case(1, 1, 2, **ORDER),
        "c[0, 0]: got 0.0, expected ",
    ),
    "packs": (
        "return matmul(a, kept.setdefault(b.data_ptr(), b.clone()))",
        Case(1, 1, 1, **ORDER),
        "c[0, 0]: got 0.0, expected ",
    ),
    "strides": (
        "return matmul(a.as_strided(a.shape, kept.setdefault(0, a.stride())), b)",
        Case(2, 1, 1, **ORDER),
        "c[1, 0]: got ",
    ),
    "writes": (
        "count[0] += 1\n    if count[0] > 1:\n        a *= 2\n    return matmul(a, b)",
        Case(1, 1, 1, **AGAIN),
        "c[0, 0]: got ",
    ),
    "leaves": (
        "count[0] += 1\n    c = matmul(a, b)\n    if count[0] > 1:\n        a += 1\n    return c",
        Case(1, 1, 1, **AGAIN),
        "memory of a: got offsets [0] overwritten",
    ),
    "updates": (
        "count[0] += 1\n    c += matmul(a, b) * count[0]",
        Case(1, 1, 1, **AGAIN),
        "c[0, 0]: got ",
    ),
    "rows": (
        "half = 7 if a.shape[0] > 2 else 0\n"
        "    return matmul(a[:, :half], b[:half]) + matmul(a[:, half:], b[half:])",
        Case(2, 1, 15, fill="normal", compare="rows"),
        " as in call 1",
    ),
}
UPDATED = Operand("fp16", ("M", "N"), use="updated")


def text_of(name: str, body: str) -> str:
    more = ", c" if name == "updates" else ""
    return f"{RIGHT}\n\ncount, kept = [0], {{}}\n\n\ndef {name}(a, b{more}):\n    {body}\n"


def state_bug_of(folder, name: str) -> Bug:
    body, case, _ = WRAPPERS[name]
    (folder / f"wrong_{name}.py").write_text(text_of(name, body))
    launch = getattr(load_file(folder / f"wrong_{name}.py"), name)
    contract = Contract(layouts="any", batch_invariant=True, K="0..")
    more = {}
    if name == "updates":
        more = {"operands": {"c": UPDATED}, "spec": lambda a, b, c: a @ b + c}
    kernel = KernelUnderTest(name, launch, contract, **more)
    return find_bug(kernel, find_first(kernel, case), None, 30.0, lambda: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def bugs(folder):
    """Return the bugs; write tests for them and for right wrappers of the same names."""
    bugs = {name: state_bug_of(folder, name) for name in WRAPPERS}
    for name, bug in bugs.items():
        body = "c += matmul(a, b)" if name == "updates" else "return matmul(a, b)"
        (folder / f"right_{name}.py").write_text(text_of(name, body))
        calling = Calling(spec="a @ b + c" if name == "updates" else None)
        for module in (f"wrong_{name}", f"right_{name}"):
            text = write_test(bug, Place(".", module, name), calling, "gemmproof check ...", [])
            (folder / f"test_{module}.py").write_text(text)
    return bugs


@pytest.fixture(scope="module")
def out(folder, bugs):
    """Return pytest's output for all these tests."""
    return run_pytest(folder)[1]


@pytest.mark.triton("interpreter")
@pytest.mark.lane("full")
@pytest.mark.parametrize("name", WRAPPERS)
def test_the_wrong_wrapper_fails_as_it_is_said_and_the_right_one_passes(name, out):
    (message,) = re.findall(rf"^FAILED test_wrong_{name}\.py::\S+(.*)$", out, re.MULTILINE)
    assert WRAPPERS[name][2] in message
    assert f"PASSED test_right_{name}.py::" in out, out


@pytest.mark.lane("full")
def test_no_call_is_made_in_vain(bugs):
    labels = {
        "counts": ["the first call", "the same call again"],
        "raises": ["the first call"],
        "widens": ["the call by itself"],
        "stale": ["other elements"],
        "packs": ["other elements"],
        "strides": ["M=2 N=1 K=2 fp16, a row, b row, fill index seed 1"],
        "writes": ["the first call"],
        "leaves": ["the first call"],
        "updates": ["the first call"],
        "rows": ["M=7"],
    }
    assert {name: [call.label for call in bug.before] for name, bug in bugs.items()} == labels
    others = {"raises": ENDS, "widens": ENDS, "leaves": NEVER}
    assert {name: bug.shown for name, bug in bugs.items() if bug.shown != ALWAYS} == others
    assert {name for name, bug in bugs.items() if bug.rows} == {"rows"}


def test_they_are_laid_out_as_ruff_does_it(folder, bugs):
    require_formatted(folder)


# each element is stored by one program, and from the second call on by two
TWICE = RIGHT.replace("kernel[grid]", "kernel[(*grid, 1 + len(kept))]")
TWICE = TWICE.replace("    return c", "    kept[0] = 1\n    return c") + "\n\nkept = {}\n"
TUNED = """import triton
import triton.language as tl
import torch

configs = [triton.Config({"BLOCK": n}) for n in (16, 32)]


@triton.autotune(configs=configs, key=["K"])
@triton.jit
def add(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + offs, mask=offs < K, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + offs, mask=offs < K, other=0.0).to(tl.float32)
    tl.atomic_add(c_ptr, tl.sum(a * b, axis=0))


def once(a, b):
    c = torch.zeros((1, 1), device=a.device)
    add[(1,)](a, b, c, a.shape[1])
    return c
"""


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        (
            TWICE,
            "matmul",
            "only accesses show it, and neither their order nor undefined lanes are those of a",
        ),
        (TUNED, "once", "only trial runs of a tuner show it, and a test pins one configuration"),
    ],
    ids=["accesses", "trial runs"],
)
def test_what_no_plain_run_shows_is_refused_with_the_reason(text, name, why, tmp_path):
    path = tmp_path / f"its_{name}_alone.py"
    path.write_text(text)
    contract = Contract(M=1, N=1)
    kernel = KernelUnderTest(name, getattr(load_file(path), name), contract)
    finding = find_first(kernel, Case(1, 1, 2, **AGAIN))
    with pytest.raises(Unreproducible, match=why):
        find_bug(kernel, finding, None, 30.0, lambda: None)


def test_calls_on_other_operands_are_refused():
    finding = Finding("symmetries", "not_negated", "c[0, 0]: ...", Case(1, 1, 1, compare="negated"))
    kernel = KernelUnderTest("f", print)
    with pytest.raises(Unreproducible, match="of symmetries, which compares calls on other"):
        find_bug(kernel, finding, None, 30.0, lambda: None)

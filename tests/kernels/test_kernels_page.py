"""docs/reference/kernels.md has every kernel and its signature; its examples run."""

import ast
import doctest
import inspect
import re
import warnings
from pathlib import Path

import pytest
import torch

from gemmproof import kernels
from gemmproof.kernels import KERNELS, fused, quantized
from gemmproof.kernels.tables import VARIABLE
from gemmproof.reference.simulator import run

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "kernels.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMES = sorted({*kernels.__all__, *fused.__all__, *quantized.__all__, *KERNELS})
FOUND = {name: KERNELS.get(name, getattr(kernels, name, None)) for name in NAMES}
FUNCTIONS = {name: value for name, value in FOUND.items() if inspect.isfunction(value)}
SIGNATURES = dict(re.findall(r"^(\w+)(\(.*\)) -> \w", TEXT, re.MULTILINE))
LAUNCH_NOTHING = {"choose_kernel", "gemm", "pack_int4"}  # by themselves
ON_GPU = [x for x in re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S) if "# on a GPU" in x]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_every_name(name):
    """Kernels have a row in the table of all kernels and in that of checks and proofs."""
    assert f"`{name}`" in TEXT
    if name in FUNCTIONS and name not in LAUNCH_NOTHING:
        for title in ("## All kernels", "### Checks and proofs"):
            table = TEXT.partition(f"{title}\n")[2].partition("\n#")[0]
            rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
            assert f"`{name}`" in " ".join(rows)


def list_parameters(signature):
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_are_those_of_the_functions(name):
    """Names, kinds and defaults; plain kernels without one share that of `matmul`."""
    shown = SIGNATURES[name if name in SIGNATURES or name not in KERNELS else "matmul"]
    scope = {"torch": torch}
    exec(f"def shown{shown}: ...", scope)
    expected = list_parameters(inspect.signature(FUNCTIONS[name]))
    assert list_parameters(inspect.signature(scope["shown"])) == expected


def test_every_signature_is_of_a_function():
    assert set(SIGNATURES) <= set(FUNCTIONS) <= set(SIGNATURES) | set(KERNELS)


def test_answers_and_errors_are_those_shown(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    scope = {"torch": torch, **FUNCTIONS}
    shown = doctest.DocTestParser().get_doctest(TEXT, scope, "kernels.md", str(PAGE), 0)
    assert len(shown.examples) >= 8
    printed = []
    assert doctest.DocTestRunner().run(shown, out=printed.append).failed == 0, "".join(printed)


@pytest.mark.parametrize("code", ON_GPU, ids=lambda code: re.search(r"import (\w+.*)", code)[1])
def test_examples_run_without_a_warning(code):
    """On the simulator, whose tensors are the host's; they leave a result c, y or out."""
    scope = {"torch": torch}

    def execute(a, b):
        exec(code.replace('"cuda"', '"cpu"'), scope)
        return next(scope[name] for name in ("c", "y", "out") if name in scope)

    ast.parse(code)
    nothing = torch.zeros(1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = run(execute, nothing, nothing, target="sm_90")
    assert seen.faults == []
    assert seen.launches
    assert seen.result.isfinite().all()

"""A mutant is loaded where its file stood: under its name, with inspect seeing the same text."""

import subprocess
import sys

import pytest

LOOK = """
import inspect, sys
from gemmproof.mutation.load import replace_source
from gemmproof.target import load, parse
path, text, target = sys.argv[1:]
replace_source(path, text)
function = load(parse(target))
print(function(1, 2), function.__module__, inspect.getsource(function).splitlines()[-1].strip())
"""


@pytest.mark.lane("full")
@pytest.mark.parametrize("target", ["package/inner.py:f", "package.outer:f", "alone.py:f"])
def test_in_place(tmp_path, target):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    text = "from .names import ONE\n\ndef f(a, b):\n    return a + ONE\n"
    (tmp_path / "package" / "names.py").write_text("ONE = 1\n")
    (tmp_path / "package" / "inner.py").write_text(text)
    (tmp_path / "package" / "outer.py").write_text("from .inner import f\n")
    (tmp_path / "alone.py").write_text("def f(a, b):\n    return a + b\n")
    file = "alone.py" if "alone" in target else "package/inner.py"
    before = (tmp_path / file).read_text()
    # bytecode of the original lies beside it
    words = [sys.executable, "-c", LOOK, file]
    for changed in (before, before.replace("+", "-")):
        words[4:] = [changed, target]
        told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        name = "alone" if "alone" in target else "package.inner"
        result = eval(changed.rpartition("return ")[2], {"a": 1, "b": 2, "ONE": 1})
        line = changed.splitlines()[-1].strip()
        assert told.stdout.split(maxsplit=2) == [str(result), name, f"{line}\n"]
    assert (tmp_path / file).read_text() == before

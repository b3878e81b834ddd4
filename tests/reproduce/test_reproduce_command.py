"""`gemmproof reproduce`: the case it selects, the test it writes, and refusals in one line."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from tests.reproduce.written_tests import RIGHT, ROOT
from tests.support.cli_project import refuse
from tests.texts import line_with

from gemmproof.cli import main
from gemmproof.engine import saved_cases

FEW = ("--max-examples", "40")


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # other tests in this process may have imported the examples from their own folder
    for name in ("no_k_mask", "right"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [x for x in sys.path if Path(x).name != "examples"])
    saved_cases._warn_once.cache_clear()
    Path("pyproject.toml").touch()
    shutil.copy(ROOT / "docs" / "examples" / "no_k_mask.py", tmp_path)
    Path("right.py").write_text(RIGHT)


@pytest.mark.lane("full")
@pytest.mark.triton("interpreter")
def test_the_page_shows_what_is_printed_and_written(capsys):
    page = (ROOT / "docs" / "how-to" / "reproduce-a-bug.md").read_text()
    (command, shown), *_ = re.findall(r"<!-- output: (.+?) -->\n```text\n(.*?)```", page, re.DOTALL)
    (test,) = re.findall(r"<!-- test -->\n```python\n(.*?)```", page, re.DOTALL)
    assert main([*shlex.split(command)[1:], *FEW]) == 0
    assert capsys.readouterr().out == shown
    text = Path("test_bug.py").read_text()
    assert text.endswith(f"\n{test}")
    for line in (
        'KERNELS = "."',
        "# Hypothesis: @example(case=Case(M=1, N=1, K=1, dtype='fp16'))",
        "# gemmproof:  gemmproof check no_k_mask.py:matmul --case"
        """ '{"M":1,"N":1,"K":1,"dtype":"fp16"}'""",
        "# On a GPU: it may pass: it depends on the memory behind the operands. NaN lies there in",
    ):
        assert line in text.splitlines()
    message = "test_bug.py: the file exists; use --force to overwrite it"
    assert (
        refuse(["reproduce", "no_k_mask.py:matmul"], capsys) == f"gemmproof reproduce: {message}\n"
    )
    assert Path("test_bug.py").read_text() == text


@pytest.mark.lane("full")
def test_a_kept_case_comes_first_and_stdout_has_the_test(capsys, texts):
    wrong = "import right\ndef matmul(a, b):\n    c = right.matmul(a, b)\n    c[33:] += 1\n"
    Path("wrong.py").write_text(f"{wrong}    return c\n")
    assert main(["check", "wrong.py:matmul", "--no-proof", "--max-examples", "60"]) == 1
    capsys.readouterr()
    # a single drawn case does not show it
    assert main(["reproduce", "wrong.py:matmul", "--max-examples", "1", "-o", "-"]) == 0
    out, err = capsys.readouterr()
    compile(out, "test_bug.py", "exec")
    texts("the case of a written test", line_with(out, "# Case: "))
    texts("where a written test shows wrong values", line_with(err, "values show it"))
    assert not Path("test_bug.py").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["right.py:matmul", "--case", '{"M":2,"N":2,"K":2}'], "nothing to reproduce: this case"),
        (["right.py:matmul", "-o", "bug.txt"], "--output: got 'bug.txt', expected a name that"),
        (["right.py:matmul", "-o", "right.py"], "the target itself, expected another file"),
        (["right.py:matmul", "-o", "none/test_bug.py"], "--output: got 'none/test_bug.py' (No su"),
        (["right.py:matmul", "--case", "{}"], "case: got no M, expected M, N and K"),
    ],
)
def test_what_cannot_be_reproduced_is_one_line(args, message, capsys):
    assert message in refuse(["reproduce", *args], capsys)


ENDS = "\n\ndef ends(a, b):\n    import os\n\n    os._exit(3)\n"
NARROW = "\n\ndef narrow(a, b):\n    return matmul(a, b)[:, :1]\n"
OWN_END = "os._exit(3) was called"


@pytest.mark.triton("interpreter")
@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("wrapper", "name", "case", "interpreted", "other", "operands"),
    [
        (
            ENDS,
            "ends",
            '{"M":1,"N":1,"K":2}',
            f"the test ends there: {OWN_END}",
            "On a GPU: the call itself fails",
            2,
        ),
        (
            NARROW,
            "narrow",
            '{"M":1,"N":2,"K":1}',
            "the test fails: c has another shape",
            "On a GPU: the values show it",
            2,
        ),
    ],
    ids=["a call that ends its process", "a result of another shape"],
)
def test_what_the_written_test_does_is_told(
    wrapper, name, case, interpreted, other, operands, capsys
):
    Path("right.py").write_text(RIGHT + wrapper)
    assert main(["reproduce", f"right.py:{name}", "--case", case]) == 0
    out = capsys.readouterr().out
    assert f"Triton's interpreter: {interpreted}" in out
    assert other in out
    assert Path("test_bug.py").read_text().count("place(") == 1 + operands


@pytest.mark.triton("interpreter")
@pytest.mark.lane("full")
def test_the_page_shows_the_test_of_several_calls(capsys, texts):
    """State that the module keeps from the first try is gone in the second; both results agree."""
    page = (ROOT / "docs" / "how-to" / "reproduce-a-bug.md").read_text()
    parts = [rf"<!-- {name} -->\n```python\n(.*?)```" for name in ("wrapper", "several")]
    wrapper, shown = (re.findall(part, page, re.DOTALL)[0] for part in parts)
    Path("right.py").write_text(f"{RIGHT}\n\n{wrapper}")
    assert main(["reproduce", "right.py:adds", "--case", '{"M":1,"N":1,"K":1,"calls":3}']) == 0
    out = capsys.readouterr().out
    texts("where a test of several calls shows wrong values", line_with(out, "On a GPU"))
    texts("how a test of several calls fails", out.splitlines()[-1])
    written = Path("test_bug.py").read_text().splitlines()
    assert written[-len(shown.splitlines()) :] == shown.splitlines()


@pytest.mark.triton("interpreter")
@pytest.mark.lane("full")
def test_hostile_names_stay_in_comments_and_strings(capsys, texts):
    folder = Path('it"s\n\x1b[31m')
    folder.mkdir()
    (folder / "random.py").write_text((ROOT / "docs/examples/no_k_mask.py").read_text())
    case = '{"M":1,"N":1,"K":1}'
    assert main(["reproduce", f"{folder}/random.py:matmul", "--case", case]) == 0
    text = Path("test_bug.py").read_text()
    assert "\x1b" not in text
    assert "import importlib.util" in text  # another module has that name
    texts("how a written test fails", line_with(capsys.readouterr().out, "the test fails"))

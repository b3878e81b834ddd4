"""The README shows the actual output of the command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.support.lanes import first_of_each

from gemmproof.cli import main

ROOT = Path(__file__).parents[1]
OUTPUT = re.compile(r"^<!-- output: (.+?) -->\n```\n(.*?)```$", re.MULTILINE | re.DOTALL)
SHOWN = OUTPUT.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def normalize(text: str) -> str:
    """Take out seconds, and the digits of sums in fp64 that depend on the machine's BLAS."""
    text = re.sub(r"\d+\.\d s\)", "... s)", text).strip()
    return re.sub(r"\d+\.\d{12,}", lambda match: f"{float(match[0]):.12g}", text)


def list_outputs() -> list:
    """Return each output as parameters; compiled code belongs to one version of Triton."""
    compiled = pytest.mark.triton("compiled_in_readme")
    return [
        p._replace(marks=[*p.marks, compiled]) if " lowering " in p.values[0] else p
        for p in first_of_each(SHOWN)
    ]


def test_the_readme_shows_nine_answers():
    assert len(SHOWN) == 9


@pytest.mark.proves
@pytest.mark.parametrize(
    ("command", "shown"), list_outputs(), ids=[command for command, _ in SHOWN]
)
def test_the_readme_shows_what_is_printed(command, shown, monkeypatch, capsys):
    monkeypatch.chdir(ROOT / "docs" / "examples")
    main(shlex.split(command)[1:])
    assert normalize(capsys.readouterr().out) == normalize(shown)

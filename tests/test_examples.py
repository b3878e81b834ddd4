"""What the README shows is what the command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from lanes import first_of_each

from gemmproof.cli import main

ROOT = Path(__file__).parents[1]
OUTPUT = re.compile(r"^<!-- output: (.+?) -->\n```\n(.*?)```$", re.MULTILINE | re.DOTALL)
SHOWN = OUTPUT.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def without_seconds(text: str) -> str:
    return re.sub(r"\d+\.\d s\)", "... s)", text).strip()


def test_the_readme_shows_nine_answers():
    assert len(SHOWN) == 9


@pytest.mark.proves
@pytest.mark.parametrize(
    ("command", "shown"), first_of_each(SHOWN), ids=[command for command, _ in SHOWN]
)
def test_the_readme_shows_what_is_printed(command, shown, monkeypatch, capsys):
    monkeypatch.chdir(ROOT / "docs" / "examples")
    main(shlex.split(command)[1:])
    assert without_seconds(capsys.readouterr().out) == without_seconds(shown)

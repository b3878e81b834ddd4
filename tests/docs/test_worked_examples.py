"""The worked examples of a page: errors planted in a copy of this repository, and the outputs."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.docs.block_checks import DIGITS
from tests.docs.pages import ROOT, Block, read_blocks
from tests.docs.python_blocks import compare_lines

PAGE = ROOT / "docs" / "contributing" / "debug-a-verdict.md"
SAVED = re.compile(r"[Ss]ave (?:it|this) as `([\w.]+)`")
CHANGED = re.compile(r"\b[Ii]n `([\w./]+)`")
NOT_COMPARED = (
    re.compile(r"\b\d+\.\d s\b"),
    re.compile(r"\b\d+\.\d\ds(?: \(\d+:\d\d:\d\d\))?"),  # as pytest prints them
    re.compile(r"\b\d+(?= deselected)"),  # every new test of the file changes it
)
SPACE = r"\s+"
RUN = """#!/bin/sh
command=$1; shift
case $command in
    python) exec "$PYTHON" "$@" ;;
    test) exec "$PYTHON" -m pytest -p no:cacheprovider "$@" ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A block of an example, and the prose between it and the block above."""

    block: Block
    prose: str


def read_examples(page: Path, root: Path = ROOT) -> dict[str, list[Step]]:
    """Return the steps of each section, by its heading, without sections that have no block."""
    lines = page.read_text(encoding="utf-8").split("\n")
    examples: dict[str, list[Step]] = {}
    title, end = "", 0
    for block in read_blocks(page, root):
        prose = lines[end : block.line - 1]
        for line in prose:
            title = line.removeprefix("## ") if line.startswith("## ") else title
        examples.setdefault(title, []).append(Step(block, "\n".join(prose)))
        end = block.line + block.text.count("\n") + 1
    return examples


def follow(steps: list[Step], clone: Path) -> Iterator[str]:
    """Do the steps of an example in a clone; yield how the page differs from what happens."""
    printed = ""
    for step in steps:
        block = step.block
        if block.language == "text" and "lines of" in block.comments:
            yield from compare_lines(block, block.comments["lines of"])
        elif block.language == "text":
            yield from compare_printed(block, printed)
        elif block.language == "diff":
            yield from change(block, find_file(CHANGED, step), clone)
        elif file := find_file(SAVED, step) if block.language == "python" else "":
            (clone / file).write_text(block.text)
        else:
            printed = execute(block, clone)


def find_file(pattern: re.Pattern[str], step: Step) -> str:
    """Return the last file that the prose above a block names, or ""."""
    return (pattern.findall(step.prose) or [""])[-1]


def change(block: Block, file: str, clone: Path) -> Iterator[str]:
    """Apply a diff whose lines the file must have exactly once."""
    lines = block.text.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] != sign) for sign in "+-")
    path = clone / file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(before) != 1:
        yield block.report(f"got {text.count(before)} places in {file or 'no file'}, expected one")
        return
    path.write_text(text.replace(before, after), encoding="utf-8")


def execute(block: Block, clone: Path) -> str:
    """Run a block of shell or Python; return what it prints, without its errors."""
    environment = {
        **{name: value for name, value in os.environ.items() if not is_ours(name)},
        "PYTHON": sys.executable,
        "PYTHONPATH": str(clone / "src"),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "80",
    }
    program = ["/bin/bash", "-c"] if block.language == "sh" else [sys.executable, "-c"]
    done = subprocess.run(
        [*program, block.text],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    print(block.report(block.text), done.stdout, done.stderr, sep="\n")  # shown if the test fails
    return done.stdout


def is_ours(name: str) -> bool:
    """Return whether a variable of this process would change what a command prints."""
    return name.startswith(("GEMMPROOF_", "PYTEST_", "GITHUB_", "CI", "TRITON_"))


def compare_printed(block: Block, printed: str) -> Iterator[str]:
    """Compare without seconds; a line may be wrapped, and a line `...` stands for any lines."""
    shown, actual = normalize(block.text), normalize(printed)
    parts = [part.split() for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)]
    texts = [rf"\s*{SPACE.join(map(re.escape, tokens))}\s*\n" if tokens else "" for tokens in parts]
    if re.fullmatch("(?:.*\n)*".join(texts), actual):
        return
    lines = shown.splitlines(), actual.splitlines()
    difference = difflib.unified_diff(*lines, "shown", "printed", lineterm="")
    yield "\n".join([block.report("got another output"), *difference])


def normalize(text: str) -> str:
    """Replace numbers that differ from run to run, or in their last digits between machines."""
    text = DIGITS.sub(lambda match: f"{float(match[0]):.12g}", text)
    for pattern in NOT_COMPARED:
        text = pattern.sub("<number>", text)
    return text


@pytest.fixture
def clone(tmp_path) -> Path:
    """A clone of this repository as it is in the working tree, whose ./run makes nothing."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    folder = tmp_path / "gemmproof"
    for name in listed.split("\0")[:-1]:
        if (ROOT / name).exists() or (ROOT / name).is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    for command in ("init", "add"):  # for `git grep`
        subprocess.run(["git", command, "."], cwd=folder, check=True, capture_output=True)
    (folder / "run").write_text(RUN)
    return folder


EXAMPLES = read_examples(PAGE)


def list_titles() -> Iterator[Any]:
    """Yield the titles as parameters; an example may need Triton's interpreter."""
    for title, steps in EXAMPLES.items():
        interprets = any("TRITON_INTERPRET" in step.block.text for step in steps)
        marks = [pytest.mark.triton("interpreter")] if interprets else []
        yield pytest.param(title, marks=marks)


@pytest.mark.lane("full")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("title", [*list_titles()])
def test_the_outputs_of_an_example_are_what_is_printed(title, clone):
    if problems := list(follow(EXAMPLES[title], clone)):
        pytest.fail("\n".join(problems), pytrace=False)


SHOWN = "a line, wrapped\n  here (2 cases, 3.4 s)\n...\nlast"
PRINTED = "a line, wrapped here (2 cases, 12.0 s)\nmore\nlast\n"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (SHOWN, True),
        (f"...\n{SHOWN}\n...", True),
        (SHOWN.replace("2 cases", "3 cases"), False),
        (SHOWN.replace("...\n", ""), False),
        (SHOWN.replace("last", "las"), False),
        (SHOWN.replace("a line", "line"), False),
    ],
    ids=repr,
)
def test_an_output_that_differs_is_found(text, same):
    block = Block("page.md", 1, "text", f"{text}\n", {})
    assert (list(compare_printed(block, PRINTED)) == []) is same


def test_steps_are_followed_in_the_files_that_the_page_names(tmp_path):
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(
        "# Title\n## An example\nSave it as `x.py`:\n```python\na = 1\nprint(a)\n```\n"
        "In `x.py`, change a line:\n```diff\n-a = 1\n+a = 2\n print(a)\n```\n"
        "```sh\n$PYTHON x.py\n```\n```text\n2\n```\n"
        "```python\nimport x\n```\n```text\n3\n```\n"
        "## Another\n```diff\n-a = 1\n```\n"
    )
    examples = read_examples(page, tmp_path)
    assert list(examples) == ["An example", "Another"]
    (problem,) = follow(examples["An example"], tmp_path)
    assert problem.startswith("docs/page.md:23: got another output")
    (problem,) = follow(examples["Another"], tmp_path)
    assert problem.startswith("docs/page.md:27: got 0 places in no file")

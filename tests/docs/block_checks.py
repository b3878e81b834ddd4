"""Checks of the blocks of each language, and the list of blocks that other tests check."""

from __future__ import annotations

import difflib
import fnmatch
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from tests.docs.pages import ROOT, Block
from tests.docs.shell_lines import attempt
from tests.report.recipes import read_yaml

from gemmproof.cli import parse_options

LANGUAGES = ("python", "sh", "text", "console", "json", "toml", "yaml")
# pages, their languages, and a test that checks those blocks
EXEMPT = (
    ("docs/*.md", ("{toctree}", "{include}", "{eval-rst}"),
     "tests/docs/test_site.py::test_the_pages_alone_build"),
    ("docs/reference/properties/*.md", ("text", "diff"),
     "tests/commands/test_help_pages.py::test_a_wrong_line_is_found_and_its_repair_passes"),
    ("docs/how-to/reproduce-a-bug.md", ("python",),
     "tests/reproduce/test_reproduce_command.py::test_the_page_shows_what_is_printed_and_written"),
    ("docs/how-to/reproduce-a-bug.md", ("python",),
     "tests/reproduce/test_reproduce_command.py::test_the_page_shows_the_test_of_several_calls"),
    ("docs/contributing/debug-a-verdict.md", ("python", "text", "diff"),
     "tests/docs/test_worked_examples.py::test_the_outputs_of_an_example_are_what_is_printed"),
    ("docs/how-to/test-with-hypothesis.md", ("text",),
     "tests/docs/test_hypothesis_page.py::test_wrong_kernels_fail_as_the_page_shows"),
)  # fmt: skip
SECONDS = re.compile(r"\d+\.\d s\)")
DIGITS = re.compile(r"\d+\.\d{12,}")


def is_exempt(block: Block) -> bool:
    return any(
        fnmatch.fnmatchcase(block.page, pages) and block.language in languages
        for pages, languages, _ in EXEMPT
    )


def list_unchecked(blocks: list[Block]) -> Iterator[str]:
    """Yield the blocks that nothing checks."""
    for block in blocks:
        if is_exempt(block):
            continue
        if block.language not in LANGUAGES:
            got = f"language {block.language!r}" if block.language else "no language"
            yield block.report(f"got {got}, expected one of {' '.join(LANGUAGES)}")
        elif block.language == "text" and not {"output", "files of"} & set(block.comments):
            yield block.report("got text of nothing, expected <!-- output: COMMAND --> above it")
        elif block.language == "console" and not split_console(block):
            yield block.report("got no line that begins with $, expected a command")


# -- outputs ---------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Output:
    """A command and what a block shows of its output; None if it shows nothing."""

    block: Block
    command: str
    shown: str | None

    def __str__(self) -> str:
        return f"{self.block.page}:{self.command}"


def list_outputs(blocks: list[Block]) -> list[Output]:
    """Return the outputs of blocks in `text`, below a comment, and in `console`."""
    outputs = []
    for block in blocks:
        if block.language == "console":
            outputs += split_console(block)
        elif block.language == "text" and "output" in block.comments and not is_exempt(block):
            outputs.append(Output(block, block.comments["output"], block.text))
    return outputs


def split_console(block: Block) -> list[Output]:
    r"""Return each command of a block in `console`, `$ ...`, and the lines below it.

    A command is continued after a backslash at the end of its line.
    """
    parts = re.split(r"^\$ ((?:.*\\\n)*.*)\n", block.text, flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return [
        Output(block, re.sub(r"\\\n\s*", "", command), shown or None) for command, shown in pairs
    ]


def normalize(text: str) -> list[str]:
    """Take out seconds, and the digits of sums in fp64 that depend on the machine's BLAS."""
    text = SECONDS.sub("... s)", text).strip("\n")
    text = DIGITS.sub(lambda match: f"{float(match[0]):.12g}", text)
    return [line.rstrip() for line in text.split("\n")]


def compare_output(output: Output, printed: str) -> Iterator[str]:
    """Yield how a block differs from what its command printed.

    A line `...` in the block stands for any lines.
    """
    if output.shown is None:
        return
    shown, actual = normalize(output.shown), normalize(printed)
    pattern = "".join("(?:.*\n)*" if x == "..." else re.escape(f"{x}\n") for x in shown)
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in actual)):
        return
    difference = difflib.unified_diff(shown, actual, "shown", "printed", lineterm="")
    yield "\n".join([output.block.report(output.command), *difference])


def split_command(command: str) -> list[str]:
    """Return the arguments of `gemmproof`; raises ValueError for another program."""
    program, *argv = shlex.split(command)
    if program != "gemmproof":
        raise ValueError(f"got {program}, expected gemmproof")
    return argv


# -- lists of files --------------------------------------------------------------------------------
def check_files(block: Block, folder: str) -> Iterator[str]:
    """Check a list of files and folders below a folder, whose lines begin with their names.

    Names are separated by commas or up to two spaces, and from what a line says of them by more;
    what is indented is in the folder above. A line whose indentation is that of no name goes on.
    """
    folders = [(-1, ROOT / folder)]
    for number, line in enumerate(block.text.split("\n"), 1):
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        if not text or indent > folders[-1][0] + 4:
            continue
        while indent <= folders[-1][0]:
            folders.pop()
        above = folders[-1][1]
        names = re.findall(r"[^\s,]+", re.split(r" {3,}", text)[0])
        for name in names:
            if not is_there(above, name):
                yield block.report(f"got {name}, which is not in {above.relative_to(ROOT)}", number)
        folders.append((indent, above / names[0]))


def is_there(folder: Path, name: str) -> bool:
    return any(folder.glob(name.rstrip("/"))) or any(folder.glob(f"{name}.py"))


# -- data ------------------------------------------------------------------------------------------
def check_data(block: Block) -> Iterator[str]:
    """Yield what is wrong with a block in json, toml or yaml."""
    try:
        data = READERS[block.language](block.text)
    except (ValueError, AssertionError, IndexError, TypeError) as error:
        yield block.report(f"got broken {block.language}: {error}")
        return
    if block.language == "json":
        yield from check_json(block, data)
    if block.language == "toml":
        yield from check_toml(block, data)


READERS: dict[str, Callable[[str], Any]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": read_yaml,
}


def check_json(block: Block, data: Any) -> Iterator[str]:
    """Compare JSON with the schema of docs/schemas that `<!-- schema: NAME -->` names."""
    if not (name := block.comments.get("schema")):
        return
    path = ROOT / "docs" / "schemas" / f"{name.removesuffix('.json')}.json"
    if not path.is_file():
        yield block.report(f"got schema {name}, which is not in docs/schemas")
        return
    validator = jsonschema.Draft202012Validator(json.loads(path.read_text()))
    for error in validator.iter_errors(data):
        yield block.report(f"{error.json_path}: {error.message}")


def check_toml(block: Block, data: dict[str, Any]) -> Iterator[str]:
    """Parse [tool.gemmproof] as `check` and `signoff` would in this folder."""
    if "gemmproof" not in data.get("tool", {}):
        return
    path = Path.cwd() / "pyproject.toml"
    path.write_text(block.text)
    for argv in (["check", "kernels.py"], ["signoff"]):
        if message := attempt(lambda argv=argv: parse_options(argv)):
            yield block.report(message)
            break
    path.unlink()


def check_file(block: Block) -> Iterator[str]:
    """Compare a block with the file that `<!-- file: ../PATH -->` names, from its page."""
    file = block.comments.get("file", "")
    if not file.startswith(".."):
        return
    path = (ROOT / block.page).parent / file
    if not path.is_file():
        yield block.report(f"got {file}, which does not exist")
    elif path.read_text(encoding="utf-8") != block.text:
        yield block.report(f"got text that differs from {file}")

"""Blocks of shell: bash runs them with a recorder in place of programs, parsers judge the calls."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import shlex
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripts.command import make_parser
from tests.docs.pages import ROOT, Block

from gemmproof.cli import parse_options

# A program is not found, since PATH is empty: the handler writes its words, and the line in BLOCK.
RECORDER = """
command_not_found_handle() {
    local n line word
    for ((n = 0; n < ${#BASH_SOURCE[@]}; n++)); do
        if [[ ${BASH_SOURCE[n]} == "$BLOCK" ]]; then break; fi
    done
    line=${BASH_LINENO[n - 1]}
    printf '%s\\0' "$line" "$@" $'\\n' >&3
    for word in "${!GEMMPROOF_@}"; do printf '%s\\0' "$line" "$word" $'\\n' >&3; done
}
./run() { command_not_found_handle ./run "$@"; }
cd() { command_not_found_handle cd "$@"; }
exec() { "$@"; }
. "$BLOCK"
"""
# Programs of others, and those of their commands that pages show.
OTHERS = {
    "git": ("clone", "config", "diff", "push", "pull", "checkout", "commit", "add", "grep"),
    "pip": ("install",),
    "uv": ("pip", "sync", "venv", "run", "tool"),
    "source": None,
    "cat": None,
    "cp": None,
    "mkdir": None,
    "nvidia-smi": None,
    "nox": None,
}
OWN_TESTS = ("--full", "--accept-texts")  # options of this repository's conftest.py


@dataclass(frozen=True, slots=True)
class Call:
    """A program's call: its line in the block, its name and its arguments."""

    line: int
    argv: tuple[str, ...]


def list_calls(text: str) -> tuple[list[Call], str]:
    """Return the calls of a block, and what bash reports of it."""
    with tempfile.TemporaryDirectory() as folder:
        block = Path(folder, "block.sh")
        block.write_text(text)
        log = Path(folder, "log")
        with log.open("wb") as stream:
            done = subprocess.run(
                ["/bin/bash", "-c", f"exec 3>&{stream.fileno()}\n{RECORDER}"],
                cwd=folder,
                env={"PATH": "/nonexistent", "BLOCK": "./block.sh"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[stream.fileno()],
                text=True,
                check=False,
            )
        records = log.read_text().split("\n\0")[:-1]
    calls = [record.rstrip("\0").split("\0") for record in records]
    return [Call(int(line), tuple(argv)) for line, *argv in calls], done.stderr.strip()


def check_shell(block: Block, config: pytest.Config) -> Iterator[str]:
    """Yield what is wrong with the block's commands."""
    calls, errors = list_calls(block.text)
    if errors:
        yield block.report(f"bash: {errors.splitlines()[0]}")
    elif not calls:
        yield block.report("got no command, expected some")
    for call in calls:
        if message := check_call(call.argv, config):
            yield block.report(f"{shlex.join(call.argv)}: {message}", call.line)


def check_call(argv: tuple[str, ...], config: pytest.Config) -> str:
    """Return what is wrong with a call, or "" if nothing is."""
    program, *arguments = argv
    if program.startswith("GEMMPROOF_"):
        return "" if program in list_variables() else "got a variable that nothing reads"
    if program in OTHERS:
        commands = OTHERS[program]
        if commands is not None and (not arguments or arguments[0] not in commands):
            return f"expected one of {' '.join(commands)}"
        return check_extras(arguments) if program in ("pip", "uv") else ""
    if program not in PROGRAMS:
        return f"got program {program!r}, expected one of {' '.join((*PROGRAMS, *OTHERS))}"
    return PROGRAMS[program](arguments, config)


def list_variables() -> set[str]:
    """Return the environment variables that the package reads."""
    texts = (path.read_text() for path in (ROOT / "src").rglob("*.py"))
    kernels = (path.read_text() for path in (ROOT / "kernels").rglob("*.py"))
    return {name for text in (*texts, *kernels) for name in re.findall(r"\bGEMMPROOF_\w+", text)}


def check_extras(arguments: list[str]) -> str:
    """Check that our optional dependencies are in pyproject.toml."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name in re.findall(r"(?:^| )(?:gemmproof|\S*)\[([\w,-]+)\]", " ".join(arguments)):
        if unknown := set(name.split(",")) - set(known):
            return f"got extra {' '.join(sorted(unknown))}, expected one of {' '.join(known)}"
    return ""


def attempt(parse: Callable[[], object]) -> str:
    """Return the error that a parser printed, or "" if it accepted its arguments."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
        try:
            parse()
        except SystemExit as end:
            return "" if end.code in (0, None) else printed.getvalue().strip().split("\n")[-1]
        except (ValueError, pytest.UsageError) as error:
            return str(error).strip().split("\n")[0]
    return ""


def check_gemmproof(arguments: list[str], config: pytest.Config) -> str:
    """Parse the arguments; files that options read need not exist."""
    message = attempt(lambda: parse_options(list(arguments)))
    missing = re.search(r"argument (--[\w-]+): .*No such file or directory", message)
    if missing and missing[1] in arguments:
        at = arguments.index(missing[1])
        return check_gemmproof([*arguments[:at], *arguments[at + 2 :]], config)
    return message


def check_run(arguments: list[str], config: pytest.Config) -> str:
    """Check a call of ./run against the commands that it lists itself."""
    usage = (ROOT / "run").read_text()
    commands = re.findall(r"^#   \./run (\w+)", usage, re.MULTILINE)
    command, *rest = arguments or [""]
    if command not in commands:
        return f"got {command!r}, expected one of {' '.join(commands)}"
    if command == "test":
        return parse_pytest(rest, config)
    if command == "signoff":
        return check_gemmproof(["signoff", *rest], config)
    return check_python(rest, config)


def check_pytest(arguments: list[str], config: pytest.Config) -> str:
    if own := [word for word in arguments if word in OWN_TESTS]:
        return f"got {own[0]}, an option of ./run test"
    return parse_pytest(arguments, config)


def parse_pytest(arguments: list[str], config: pytest.Config) -> str:
    """Check options against those of pytest and of the plugins that are loaded here."""
    unknown: list[str] = []

    def parse() -> None:
        _, rest = config._parser.parse_known_and_unknown_args(list(arguments))
        unknown.extend(word for word in rest if word.startswith("-"))

    message = attempt(parse)
    return message or (f"got option {unknown[0]}, which pytest does not have" if unknown else "")


def check_python(arguments: list[str], config: pytest.Config) -> str:
    """Check a call of Python: `-m MODULE`, a script of this repository, or a file of the user."""
    if arguments[:1] == ["-m"]:
        module, *rest = arguments[1:]
        modules = {"pytest": check_pytest, "gemmproof": check_gemmproof, "nox": check_nox}
        if module in ("pip", "venv"):
            return ""
        if module not in modules:
            return f"got module {module}, expected one of pip venv {' '.join(modules)}"
        return modules[module](rest, config)
    script, *rest = arguments or [""]
    if not script.startswith("scripts/"):
        if script == "-c" or re.fullmatch(r"\w+\.py", script):
            return ""
        return f"got {script!r}, expected scripts/... or the name of a file"
    if not (ROOT / script).is_file():
        return f"got {script}, which does not exist"
    module = importlib.import_module(script.removesuffix(".py").replace("/", "."))
    if not hasattr(module, "COMMANDS"):
        return f"got {script}, which has no commands"
    return attempt(lambda: make_parser(None, module.COMMANDS).parse_args(rest))


def check_nox(arguments: list[str], config: pytest.Config) -> str:
    """Check that noxfile.py has the function, the Python and the torch of each session."""
    source = (ROOT / "noxfile.py").read_text()
    known = {*re.findall(r'^def (\w+)|"([\d.]+)"', source, re.MULTILINE), ("torch", "")}
    names = {function or version for function, version in known}
    if arguments[:1] not in ([], ["-s"]):
        return f"got {arguments[0]!r}, expected -s"
    for session in arguments[1:]:
        if unknown := set(re.findall(r"[\w.]+", session)) - names:
            return f"got {' '.join(sorted(unknown))}, which noxfile.py does not have"
    return ""


def check_cd(arguments: list[str], config: pytest.Config) -> str:
    """Check that a folder with a path exists; a bare name may be one of the reader's."""
    (folder,) = arguments
    missing = os.sep in folder and not (ROOT / folder).is_dir()
    return "got a folder that does not exist" if missing else ""


PROGRAMS = {
    "gemmproof": check_gemmproof,
    "./run": check_run,
    "pytest": check_pytest,
    "python": check_python,
    "cd": check_cd,
}

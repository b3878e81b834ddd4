"""The reference pages that are made from the declarations of options and fixtures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING
from itertools import groupby
from pathlib import Path

from scripts.docs.markdown import ROOT, fill, make_table, update

from gemmproof import plugin
from gemmproof.cli import COMMANDS
from gemmproof.options import CommandOptions, Option, iter_options
from gemmproof.pytest_plugin.options import PluginOptions

REFERENCE = ROOT / "docs" / "reference"
FIXTURES = (
    "gemm_benchmark",
    "gemm_report",
    "gemm_reproduce",
    "gemm_options",
    "gemm_reports",
    "gemm_workers",
)


def iter_pages() -> Iterator[tuple[Path, str]]:
    """Yield each page that is made here, and its text. Raises ValueError for missing help."""
    command_line = REFERENCE / "command-line.md"
    commands = "\n\n".join(map(format_command, COMMANDS))
    yield command_line, fill(command_line, {"commands": commands})
    plugin_page = REFERENCE / "pytest.md"
    tables = {"options": format_plugin_options(), "fixtures": format_fixtures()}
    yield plugin_page, fill(plugin_page, tables)


def make_pages(check: bool = False) -> int:
    """Write the command-line reference and the tables of the pytest page; with --check, compare."""
    return max(update(page, text, check) for page, text in iter_pages())


# -- options ---------------------------------------------------------------------------------------
def format_command(record: type[CommandOptions]) -> str:
    """Return the section of one command: its synopsis, its options by group, its examples."""
    command, options = record.command, [*iter_options(record)]
    arguments = (o for o in options if o.positional)
    positional = [o.label if o.default is MISSING else f"[{o.label}]" for o in arguments]
    synopsis = " ".join(["gemmproof", command.name, *positional, "[options]"])
    parts = [f"## {command.name}", f"`{synopsis}`", escape(command.description)]
    for title, members in groupby(options, key=lambda option: option.title):
        short = title.partition(":")[0].removeprefix("the ")
        heading = [f"### {command.name}: {short}"] if title else []
        parts += [*heading, tabulate(members, f"gemmproof {command.name}")]
    examples = "\n".join(["```sh", *command.examples, "```"])
    return "\n\n".join([*parts, examples, escape(f"Exit code: {command.exits}.")])


def tabulate(options: Iterable[Option], where: str, prefix: str = "--") -> str:
    """Return a table of options. Raises ValueError that names one without help."""
    rows = []
    for option in options:
        if not option.help.strip():
            raise ValueError(f"{where} {option.label}: got no help, expected a text")
        label = option.label if option.positional else f"{prefix}{option.name}"
        values = option.metavar if isinstance(option.metavar, tuple) else (option.metavar,)
        shown = label if option.positional else " ".join([label, *filter(None, values)])
        short = f"`{option.short}`, " if option.short else ""
        rows.append([f"{short}`{shown}`", escape(option.filled_help)])
        if option.negated:
            rows.append([f"`{prefix}no-{option.name}`", escape(option.negated)])
    return make_table(["option", "meaning"], rows)


def escape(text: str) -> str:
    """Return a text of plain help as Markdown: paragraphs, with its signs taken literally."""
    paragraphs = re.split(r"\n\s*\n", text.replace("%%", "%").strip())
    signs = re.compile(r"[\\`*<\[|]|\b_\B|\B_\b")
    return "\n\n".join(signs.sub(r"\\\g<0>", " ".join(part.split())) for part in paragraphs)


# -- the pytest plugin -----------------------------------------------------------------------------
def format_plugin_options() -> str:
    """Return the table of the plugin's options."""
    return tabulate(iter_options(PluginOptions), "pytest", "--gemm-")


def format_fixtures() -> str:
    """Return the table of fixtures. Raises ValueError that names one without a docstring."""
    rows = []
    for name in FIXTURES:
        fixture = getattr(plugin, name)
        text = inspect.getdoc(fixture._get_wrapped_function())
        if not text:
            raise ValueError(f"{name}: got no docstring, expected one: it is a public fixture")
        rows.append([f"`{name}`", text.partition("\n\n")[0].replace("\n", " ")])
    return make_table(["fixture", "meaning"], rows)

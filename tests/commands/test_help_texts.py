"""`--help`: every command is described and shown by an example, every option has a text."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from gemmproof.cli import COMMANDS, parse_options, parser
from gemmproof.options import iter_options
from gemmproof.pytest_plugin.options import PluginOptions
from gemmproof.signoff import verdict

WIDTH = 100
EVERY = {record.command.name: record for record in COMMANDS}


def split_example(example: str) -> list[str]:
    """Return the words of an example, or of the command whose output the shell evaluates."""
    arguments = shlex.split(example)
    return (
        shlex.split(arguments[1].removeprefix("$(").removesuffix(")"))
        if arguments[0] == "eval"
        else arguments
    )


def find_parser(name: str) -> argparse.ArgumentParser:
    actions = parser()._actions
    commands = next(a.choices for a in actions if isinstance(a, argparse._SubParsersAction))
    return commands[name]


@pytest.mark.parametrize("name", EVERY)
def test_a_command_is_described_and_its_examples_parse(name, monkeypatch):
    monkeypatch.setattr(verdict, "read_baseline", lambda path: path)
    command = EVERY[name].command
    assert command.help[:1].islower()
    assert re.fullmatch(r"[A-Z].*\.", command.description)
    assert 1 <= len(command.examples) <= 2
    for example in command.examples:
        program, *typed = split_example(example)
        assert (program, typed[0]) == ("gemmproof", name)
        assert isinstance(parse_options(typed), EVERY[name])


@pytest.mark.parametrize("name", EVERY)
def test_help_fits_and_ends_with_the_examples_and_exit_codes(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    text = find_parser(name).format_help()
    assert max(map(len, text.splitlines())) <= WIDTH
    command = EVERY[name].command
    *_, shown = text.partition("\nexamples:\n")
    assert shown.startswith("".join(f"  {x}\n" for x in command.examples) + "\nexit code: 0 ")


@pytest.mark.parametrize("name", EVERY)
def test_every_option_of_a_command_has_a_help_text(name):
    assert [a.option_strings or a.dest for a in find_parser(name)._actions if not a.help] == []


def test_every_option_of_the_plugin_has_a_help_text():
    assert [option.name for option in iter_options(PluginOptions) if not option.filled_help] == []


def test_a_help_text_is_a_phrase_without_a_full_stop():
    records = [*COMMANDS, PluginOptions]
    texts = {option.filled_help for record in records for option in iter_options(record)}
    assert [text for text in texts if text.endswith(".") or text != text.strip()] == []

"""Options, each declared once, as a field of a record.

A field that `option`, `flag` or `argument` declares is an option, one of `group` holds a record of
further options. From a record derive the arguments of argparse, the record that was typed, and the
arguments that would type it again; pytest_plugin/options.py derives the options of pytest.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar

Record = TypeVar("Record")
# options that had other names before, and their names now
RENAMED = {"--premise": "--check-model", "--kept": "--saved-cases", "--no-kept": "--no-saved-cases"}


@dataclass(frozen=True, slots=True)
class Command:
    """A command and the texts of its help."""

    name: str
    help: str
    description: str
    examples: tuple[str, ...]
    exits: str

    @property
    def epilog(self) -> str:
        """The examples, and what each exit code means."""
        shown = (f"  {line}" for line in self.examples)
        return "\n".join(["examples:", *shown, "", f"exit code: {self.exits}"])


class CommandOptions(Protocol):
    """The options of a command."""

    command: ClassVar[Command]


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option, the metadata of its field.

    `read` makes a value of its text and raises argparse.ArgumentTypeError, `write` is the reverse.
    An option without `metavar` is a flag; one with several takes as many values. `negated` is the
    help of its form `--no-NAME`, which stands for False. The values of a `repeated` option are a
    tuple, and with a `separator` several of them may be in one text; a `remainder` has all that
    follows. `is_output` is true of a file that is written. `field`, `default` and `title` are those
    of the field and of its group.
    """

    help: str
    metavar: str | tuple[str, ...] = ""
    read: Callable[[str], Any] = str
    write: Callable[[Any], str] = str
    name: str = ""
    short: str = ""
    negated: str = ""
    repeated: bool = False
    separator: str = ""
    positional: bool = False
    remainder: bool = False
    is_output: bool = False
    field: str = ""
    default: Any = None
    title: str = ""

    @property
    def label(self) -> str:
        """The option as messages name it: `--json`, or TABLE of an argument by position."""
        return str(self.metavar) if self.positional else f"--{self.name}"

    @property
    def filled_help(self) -> str:
        """The help, with the default at its end or in place of %(default)s."""
        if self.default in (None, (), MISSING) or self.default is False:
            return self.help
        values = self.default if self.repeated else (self.default,)
        default = " ".join(map(self.write, values))
        help = self.help if "default" in self.help else f"{self.help} (default %(default)s)"
        return help.replace("%(default)s", default)

    def spell(self, value: Any) -> list[str]:
        """Return the arguments that give the option a value other than its default."""
        if isinstance(value, bool):
            return [self.label if value else f"--no-{self.name}"]
        if self.positional:
            return [*value] if self.repeated else [self.write(value)]
        if isinstance(self.metavar, tuple):
            return [self.label, *map(self.write, value)]
        texts = [*map(self.write, value if self.repeated else [value])]
        texts = [self.separator.join(dict.fromkeys(texts))] if self.separator else texts
        # a separate argument that looks like an option is parsed as one
        pairs = ([f"{self.label}={x}"] if x.startswith("-") else [self.label, x] for x in texts)
        return [argument for pair in pairs for argument in pair]


# -- declarations --------------------------------------------------------------------------------
def option(
    metavar: str | tuple[str, ...],
    help: str,
    read: Callable[[str], Any] = str,
    default: Any = None,
    **more: Any,
) -> Any:
    """Declare a field that is an option with a value; a repeated one is a tuple."""
    default = () if more.get("repeated") and default is None else default
    return field(default=default, metadata={"option": Option(help, metavar, read, **more)})


def flag(help: str, default: bool = False, **more: Any) -> Any:
    """Declare a field that is true if its option is given."""
    return option("", help, default=default, **more)


def argument(metavar: str, help: str, default: Any = MISSING, **more: Any) -> Any:
    """Declare a field that is given by its position."""
    return option(metavar, help, default=default, positional=True, **more)


def group(defaults: Record) -> Record:
    """Declare a field that holds a record of further options, listed under its `title`, if any."""
    declared: Record = field(default=defaults, metadata={"group": True})
    return declared


# -- what derives from them ----------------------------------------------------------------------
def iter_options(record: Any, title: str = "") -> Iterator[Option]:
    """Yield the options of a record's class, or of an instance, whose values are the defaults."""
    for item in fields(record):
        default = item.default if isinstance(record, type) else getattr(record, item.name)
        if "group" in item.metadata:
            yield from iter_options(default, getattr(default, "title", title))
        elif "option" in item.metadata:
            declared: Option = item.metadata["option"]
            name = declared.name or item.name.replace("_", "-")
            yield replace(declared, name=name, field=item.name, default=default, title=title)


def add_options(parser: argparse.ArgumentParser, record: type) -> None:
    """Add the options of a record, each group under its title."""
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for declared in iter_options(record):
        if declared.title not in groups:
            groups[declared.title] = parser.add_argument_group(declared.title)
        _add(groups[declared.title], declared)


def _add(parser: argparse._ActionsContainer, declared: Option) -> None:
    add = partial(parser.add_argument, default=argparse.SUPPRESS, help=declared.filled_help)
    if declared.metavar:
        add = partial(add, metavar=declared.metavar, type=declared.read)
    if declared.positional:
        is_required = declared.default is MISSING
        nargs = "+" if declared.repeated else None if is_required else "?"
        add(declared.field, nargs=argparse.REMAINDER if declared.remainder else nargs)
        return
    if isinstance(declared.metavar, tuple):
        add = partial(add, nargs=len(declared.metavar))
    elif declared.repeated:
        add = partial(add, action="extend" if declared.separator else "append")
    elif not declared.metavar:
        add = partial(add, action="store_true")
    short = [declared.short] if declared.short else []
    add(*short, declared.label, dest=declared.field)
    if declared.negated:
        parser.add_argument(
            f"--no-{declared.name}",
            dest=declared.field,
            action="store_false",
            default=argparse.SUPPRESS,
            help=declared.negated,
        )


def make_record(defaults: Any, values: Mapping[str, Any]) -> Any:
    """Return the record of values by field; what is missing has its default.

    `defaults` is the class of the record, or an instance, whose values are the defaults.
    """
    given: dict[str, object] = {}
    for item in fields(defaults):
        if "group" in item.metadata:
            is_class = isinstance(defaults, type)
            inner = item.default if is_class else getattr(defaults, item.name)
            given[item.name] = make_record(inner, values)
        elif "option" in item.metadata and item.name in values:
            value = values[item.name]
            given[item.name] = tuple(value) if isinstance(value, list) else value
    return defaults(**given) if isinstance(defaults, type) else replace(defaults, **given)


def spell(record: Any) -> list[str]:
    """Return the arguments that differ from the defaults, in the order of the fields."""
    values = (declared.default for declared in iter_options(record))
    declared = zip(iter_options(type(record)), values, strict=True)
    return [text for o, value in declared if value != o.default for text in o.spell(value)]


def explain_renamed(name: str) -> str:
    """Return "which is now NAME" for an option that had another name before, else ""."""
    return f"which is now {RENAMED[name]}" if name in RENAMED else ""

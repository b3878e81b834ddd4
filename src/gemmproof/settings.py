"""A project's configuration: [tool.gemmproof], its options; and pytest's import path."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmproof.options import explain_renamed
from gemmproof.spelling import suggest

EXAMPLES = 100  # cases of each format, by default
# pytest's files in its own order, each with the tables or sections that it reads there
PYTEST_FILES = {
    "pytest.toml": ("pytest",),
    ".pytest.toml": ("pytest",),
    "pytest.ini": ("pytest",),
    ".pytest.ini": ("pytest",),
    "pyproject.toml": ("tool.pytest", "tool.pytest.ini_options"),
    "tox.ini": ("pytest",),
    "setup.cfg": ("tool:pytest",),
}


def find_settings(folder: Path) -> tuple[str, dict[str, object]]:
    """Return the nearest pyproject.toml with such a table, from a folder upwards, and the table.

    ("", {}) if there is none. Raises ValueError, in one line, for a file that cannot be read.
    """
    for above in (folder, *folder.parents):
        path = above / "pyproject.toml"
        if path.is_file():
            import tomllib

            try:
                table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
            except OSError as error:
                raise ValueError(f"{path}: got {error.strerror}, expected TOML") from None
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise ValueError(f"{path}: got broken TOML ({error}), expected TOML") from None
            if isinstance(table, dict) and "gemmproof" in table:
                if not isinstance(table["gemmproof"], dict):
                    got = table["gemmproof"]
                    raise ValueError(f"{path}: got tool.gemmproof = {got!r}, expected a table")
                return str(path), table["gemmproof"]
    return "", {}


def list_words(
    settings: Mapping[str, object],
    known: Collection[str],
    available: Collection[str],
    typed: Sequence[str],
) -> Iterator[str]:
    """Yield the settings as command-line arguments, to be put before those that were typed.

    `known` are the options of all commands, `available` those of the typed command; an option
    that was typed replaces the setting. Raises ValueError for an option that no command has.
    """
    for name, value in settings.items():
        option = f"--{name}"
        if renamed := explain_renamed(option):
            raise ValueError(f"got {name!r}, {renamed.replace('--', '')}")
        if option not in known:
            options = sorted(word.removeprefix("--") for word in known)
            close = suggest(name, options)
            raise ValueError(f"got {name!r}, expected one of {' '.join(options)}{close}")
        replaced = any(word == option or word.startswith(f"{option}=") for word in typed)
        if value is False and f"--no-{name}" in available:
            yield f"--no-{name}"  # a typed option comes after it, and overrides it
        if option not in available or replaced or value is False:
            continue
        for item in value if isinstance(value, list) else [value]:
            yield option if item is True else f"{option}={item}"


def find_pythonpath(folder: Path) -> list[str]:
    """Return the folders of pytest's setting `pythonpath`, from the file that pytest would read.

    Empty if there is no such file, or it cannot be read: pytest reports that.
    """
    for above in (folder, *folder.parents):
        for name, sections in PYTEST_FILES.items():
            for section in sections:
                if (table := _read_section(above / name, section)) is not None:
                    value: Any = table.get("pythonpath", [])
                    paths = shlex.split(value) if isinstance(value, str) else value
                    return [str(above / word) for word in paths if isinstance(word, str)]
    return []


def _read_section(path: Path, section: str) -> Mapping[str, object] | None:
    """Return a table of a TOML file, or a section of another one, or None if it is missing."""
    if not path.is_file():
        return None
    import tomllib
    from configparser import ConfigParser
    from configparser import Error as Malformed

    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".toml":
            parser = ConfigParser(interpolation=None, strict=False)
            parser.read_string(text)
            return dict(parser[section]) if section in parser else None
        table: Any = tomllib.loads(text)
        for word in section.split("."):
            table = table.get(word) if isinstance(table, dict) else None
    except (OSError, ValueError, Malformed):
        return None
    is_ours = isinstance(table, dict) and not (section == "tool.pytest" and "ini_options" in table)
    return table if is_ours else None

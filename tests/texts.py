"""Texts that users see, each an entry of texts.toml in the room of its tests."""

from __future__ import annotations

import fcntl
import re
import tomllib
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

FILE = "texts.toml"
SECONDS = re.compile(r"\b\d+\.\d s\b")  # as measured ones are printed


def replace_places(text: str, places: Mapping[str, str]) -> str:
    """Return the text with measured seconds, and each value of `places`, as `<name>`."""
    for name, value in sorted(places.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"<{name}>")
    return SECONDS.sub("<seconds> s", text)


def read_entries(path: Path) -> dict[str, str]:
    """Return the texts of a file by name: none if it does not exist."""
    return tomllib.loads(path.read_text()) if path.exists() else {}


def compare(path: Path, name: str, text: str, command: str) -> None:
    """Fail if the text is not that of the entry; `command` is the one that accepts it."""
    __tracebackhide__ = True
    entries = read_entries(path)
    if entries.get(name) != text:
        kept = entries[name].split("\n") if name in entries else []
        files = (f"{path.parent.name}/{path.name}: {name}", "actual text")
        diff = "\n".join(unified_diff(kept, text.split("\n"), *files, lineterm=""))
        raise AssertionError(f"{diff}\n\nto accept it: {command}")


def accept(path: Path, name: str, text: str) -> None:
    """Write the text as the entry: workers of pytest-xdist take turns."""
    entry = format_entry(name, text)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        entries = tomllib.loads(file.read()) | {name: text}
        if tomllib.loads(entry) != {name: text}:
            raise ValueError(f"{name}: TOML does not keep the text")
        file.truncate(0)
        file.write("\n".join(format_entry(*each) for each in sorted(entries.items())))


def format_entry(name: str, text: str) -> str:
    """Return the entry as TOML, its text as it is printed."""
    return f"\"{name}\" = '''\n{text}'''\n"


def line_with(text: str, part: str) -> str:
    """Return the only line of a text that has this part."""
    lines = [line for line in text.splitlines() if part in line]
    assert len(lines) == 1, (part, text)
    return lines[0]

"""Programs as JSON: a contradiction becomes a file that repeats it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import language
from .language import Program
from .truth import Witness

FOLDER = Path(__file__).parent / "contradictions"
RECORDS = {x.__name__: x for x in vars(language).values() if isinstance(x, type)}


def encode(x: Any) -> Any:
    """Return a record, or a part of one, as JSON data."""
    if isinstance(x, tuple | list):
        return [encode(y) for y in x]
    if isinstance(x, str | int | None):
        return x
    fields = {name: encode(getattr(x, name)) for name in x.__slots__}
    return {"record": type(x).__name__, **fields}


def decode(x: Any) -> Any:
    """Return the record that `encode` was given."""
    if isinstance(x, list):
        return tuple(decode(y) for y in x)
    if isinstance(x, Mapping):
        fields = {name: decode(y) for name, y in x.items() if name != "record"}
        return RECORDS[x["record"]](**fields)
    return x


def write(file: Path, program: Program, cause: str, witnesses: tuple[Witness, ...]) -> None:
    """Write a program, with the root cause and the sizes at which proved properties are false."""
    file.parent.mkdir(parents=True, exist_ok=True)
    seen = [
        {"property": x.property, "at": list(x.sizes), "text": x.text} for x in witnesses
    ]  # fmt: skip
    data = {
        "cause": cause,
        "witnesses": seen,
        "source": language.print_program(program).splitlines(),
        "program": encode(program),
    }
    file.write_text(json.dumps(data, indent=1) + "\n")


def read(file: Path) -> tuple[Program, dict[str, Any]]:
    """Return a saved program and the data of its file."""
    data = json.loads(file.read_text())
    return decode(data["program"]), data

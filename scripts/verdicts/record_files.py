"""The record on disk, a JSON file for each group of subjects; the differences between two."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

SCHEMA = 1
WIDTH = 100  # characters up to which a value is written on one line

Record = dict[str, object]  # what is recorded of each subject, by its key


class Unreadable(ValueError):
    """A record that cannot be compared: the message is one line."""


def write(folder: Path, record: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Write a record, a file for each group; files of groups that are gone are deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[str, Record] = {}
    for key, value in record.items():
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = value
    for old in folder.glob("*.json"):
        if old.stem not in groups:
            old.unlink()
    for group, subjects in groups.items():
        document = {"schema": SCHEMA, "settings": dict(settings), "subjects": subjects}
        text = f"{dump(document)}\n"
        (folder / f"{group}.json").write_text(text, encoding="utf-8")


def read(folder: Path) -> tuple[Record, Record]:
    """Return a record and its settings. Raises Unreadable."""
    record: Record = {}
    settings: Record | None = None
    for path in sorted(folder.glob("*.json")):
        document = _read_document(path)
        if settings not in (None, document["settings"]):
            got, expected = document["settings"], settings
            raise Unreadable(f"{path}: settings: got {got}, expected {expected} as in the others")
        settings = document["settings"]
        for name, value in document["subjects"].items():
            record[f"{path.stem}/{name}"] = value
    if settings is None:
        raise Unreadable(f"{folder}: got no file of a record, expected some: oracle.py record")
    return record, settings


def _read_document(path: Path) -> dict[str, Record]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Unreadable(f"{path}: got {error}, expected a record") from None
    if not isinstance(document, dict) or "schema" not in document:
        raise Unreadable(f"{path}: got no schema, expected {SCHEMA}")
    if document["schema"] != SCHEMA:
        raise Unreadable(f"{path}: schema: got {document['schema']!r}, expected {SCHEMA}")
    for name in ("settings", "subjects"):
        if not isinstance(document.get(name), dict):
            raise Unreadable(f"{path}: {name}: got {document.get(name)!r}, expected an object")
    return document


def dump(data: Any) -> str:
    """Return JSON with sorted keys, in which a value that fits is written on one line."""
    return "\n".join(_iter_lines(data, "", 0))


def _iter_lines(data: Any, head: str, depth: int) -> Iterator[str]:
    flat = json.dumps(data, sort_keys=True, ensure_ascii=False)
    pad = " " * depth
    opened = isinstance(data, dict | list) and bool(data)
    # a subject and its parts are always spread, so that a change is a change of few lines
    if not opened or (depth > 3 and len(pad) + len(head) + len(flat) < WIDTH):
        yield f"{pad}{head}{flat}"
        return
    is_list = isinstance(data, list)
    yield f"{pad}{head}{'[' if is_list else '{'}"
    items = [("", x) for x in data] if is_list else [
        (f"{json.dumps(name, ensure_ascii=False)}: ", data[name]) for name in sorted(data)
    ]  # fmt: skip
    for i, (name, value) in enumerate(items):
        *lines, last = _iter_lines(value, name, depth + 1)
        yield from lines
        yield f"{last}," if i < len(items) - 1 else last
    yield f"{pad}{']' if is_list else '}'}"


NAMING = ("property", "fault", "operand", "axis")  # the keys that distinguish findings of a list


def iter_differences(
    old: Mapping[str, Any], new: Mapping[str, Any], keys: Collection[str] | None = None
) -> Iterator[str]:
    """Yield a line for each difference of the subjects in `keys`, or of all."""
    for key in sorted({*old, *new} if keys is None else keys):
        if key not in new:
            yield f"{key}: in the record, but it is gone"
        elif key not in old:
            yield f"{key}: new, and not in the record"
        else:
            yield from _compare(key, old[key], new[key])


def _compare(where: str, old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    if isinstance(old, list) and isinstance(new, list):
        old, new = _label_items(old), _label_items(new)
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(x for x in new if x not in old)]:
            path = f"{where}: {name}"
            if name not in new:
                yield f"{path}: got nothing, expected {_show(old[name])}"
            elif name not in old:
                yield f"{path}: got {_show(new[name])}, expected nothing"
            else:
                yield from _compare(path, old[name], new[name])
        if old == new and [*old] != [*new]:
            yield f"{where}: got the order {', '.join(new)}, expected {', '.join(old)}"
        return
    yield f"{where}: got {_show(new)}, expected {_show(old)}"


def _label_items(items: list[Any]) -> dict[str, object]:
    """Return the items of a list by their key: findings by fault, others by position."""
    named: dict[str, object] = {}
    for i, item in enumerate(items):
        name = str(i)
        if isinstance(item, dict) and "fault" in item:
            name = " ".join(str(item[x]) for x in NAMING if x in item)
            same = sum(x == name or x.startswith(f"{name} #") for x in named)
            name = f"{name} #{same + 1}" if same else name
        named[name] = item
    return named


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:157]}..."

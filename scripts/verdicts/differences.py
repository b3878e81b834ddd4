"""The differences between two records, a line for each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

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

"""Which parts of a project changed between two sources, in one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SHOWN = 6  # names of each sort


def describe_source(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """What changed, was added and was removed, by module and name."""
    changed = [label for label in new if label in old and old[label] != new[label]]
    sorts = {
        "": changed,
        "new ": [label for label in new if label not in old],
        "gone ": [label for label in old if label not in new],
    }
    said = (f"{sort}{_list(labels)}" for sort, labels in sorts.items() if labels)
    return f"source changed: {'; '.join(said)}"


def _list(labels: Iterable[str]) -> str:
    known = list(labels)
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return f"{', '.join(known[:SHOWN])}{more}"


def group_by_module(source: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of the parts by their modules."""
    found: dict[str, list[str]] = {}
    for label in source:
        module, _, name = label.partition(":")
        found.setdefault(module, []).append(name)
    return found

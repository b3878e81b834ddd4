"""A mutation score for a sign-off: taken only where what was mutated is what was judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemmproof.mutation.record import EQUIVALENT, KILLED, SCHEMA, SURVIVED, UNSEEN
from gemmproof.report.facts import Identity
from gemmproof.signoff.baseline import read_json
from gemmproof.signoff.record import MutationScore

#: In the order of a score's fields.
_COUNTED = (KILLED, EQUIVALENT, SURVIVED, UNSEEN)
EXPECTED = "a record of `gemmproof mutate --json`"


@dataclass(frozen=True, slots=True)
class Mutated:
    """The record that a file holds, by the name of the kernel."""

    name: str
    kernels: Mapping[str, Mapping[str, Any]]

    def find(self, kernel: str, facts: Identity | None) -> tuple[MutationScore | None, str]:
        """The score of a kernel, or None and why it is not taken."""
        if kernel not in self.kernels:
            return None, f"{self.name} has no mutants of it"
        found = self.kernels[kernel]
        if not found["source"]:
            return None, f"{self.name} does not say of which source"
        if facts is None or not facts.source:
            return None, "its source is not known"
        if found["source"] != facts.digest:
            return None, f"{self.name} is of another source"
        if not found["whole"]:
            return None, f"{self.name} was cut short"
        counts = found["counts"]
        killed, equivalent, survivors, unseen = (counts[outcome] for outcome in _COUNTED)
        asked, reached = found["asked"], found["reached"]
        return MutationScore(killed, equivalent, survivors, unseen, asked, reached), ""


def read_mutation(name: str) -> Mutated:
    """The record in a file. Raises ValueError, in one line, for what is none."""
    data = read_json(name, EXPECTED)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or "kernels" not in data:
        raise ValueError(f"got {name!r} (no record of mutants), expected {EXPECTED}")
    try:
        found = Mutated(name, {one["target"]: {"source": "", **one} for one in data["kernels"]})
        for record in found.kernels.values():
            _require_counts(record)
    except (KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__} {error}"
        raise ValueError(
            f"got {name!r} (not as it is written: {why}), expected {EXPECTED}"
        ) from None
    return found


def _require_counts(record: Mapping[str, Any]) -> None:
    """Raise what malformed data make Python raise."""
    counts = (record["counts"][outcome] for outcome in _COUNTED)
    if not all(type(n) is int for n in (*counts, record["asked"], record["reached"])):
        raise TypeError("a count that is no integer")
    if not isinstance(record["source"], str) or type(record["whole"]) is not bool:
        raise TypeError("source or whole")

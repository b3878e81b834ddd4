"""A mutant: one place of one file replaced, and what it is called."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Mutant:
    """A file of the project with one place changed by an operator.

    `where` is "kernel" for what Triton compiles and "launch" for what launches it; `shown` is the
    file as a person in the current folder would name it; `text` is the whole file, changed.
    """

    file: str
    shown: str
    line: int
    operator: str
    where: str
    text: str
    diff: str

    @property
    def key(self) -> str:
        """A short name that stays while the change is the same, wherever in its file.

        Changes of equal lines of a file share it.
        """
        lines = [x for x in self.diff.splitlines()[2:] if not x.startswith("@@")]
        words = [self.operator, self.shown, *lines]
        return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """What a record says of it."""
        return {
            "key": self.key,
            "file": self.shown,
            "line": self.line,
            "operator": self.operator,
            "where": self.where,
            "diff": self.diff,
        }


def make_diff(before: str, after: str, shown: str) -> str:
    """The unified diff of two texts, without lines around what changed."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), shown, shown, lineterm="", n=0
    )
    return "\n".join(lines)

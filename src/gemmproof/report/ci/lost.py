"""What a baseline has against a run, for the reports that CI systems read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LostSince:
    """A change that speaks against a run: `kernel` is "" for all, `kind` a word of `--accept`.

    `is_refused`: it fails the run; else the run is incomplete.
    """

    kernel: str
    kind: str
    text: str
    is_refused: bool

    @property
    def words(self) -> str:
        """The change in one line."""
        where = f"{self.kernel}: " if self.kernel else ""
        return f"against the baseline: {where}{self.text}"

"""What became of the premises of a check, as a record, its JSON and its lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gemmproof.reference.provenance import say_count


@dataclass(frozen=True, slots=True)
class Premises:
    """The launches that were predicted for `target` ("" for none), compiled for it and compared.

    Of `launches` all but those `failed` were compiled, in `seconds`; of their `dots` so many
    `agreed`, so many `differ`, and the others the compiled program does not show. `contradicted`
    are lines with both sides, `unknown` lines that say why, each once. `untold` counts, of the dots
    that agreed, what could not be compared.
    """

    target: str
    launches: int
    dots: int
    agreed: int
    differ: int
    seconds: float = 0.0
    unknown: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    untold: Mapping[str, int] = field(default_factory=dict)

    @property
    def not_known(self) -> int:
        """How many dots the compiled programs do not show."""
        return self.dots - self.agreed - self.differ

    @property
    def is_kept(self) -> bool:
        """Whether every launch was compiled, and nothing is contradicted."""
        return not self.contradicted and not self.failed

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        lines = ("unknown", "contradicted", "failed")
        data = {name: getattr(self, name) for name in self.__slots__}
        return data | {name: list(data[name]) for name in lines} | {"untold": dict(self.untold)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Premises:
        """The record that `to_dict` gave. Raises ValueError naming what is wrong."""
        if set(data) != set(Premises.__slots__):
            got, expected = " ".join(sorted(data)), " ".join(Premises.__slots__)
            raise ValueError(f"report premises: got fields {got}, expected {expected}")
        lines = {name: tuple(data[name]) for name in ("unknown", "contradicted", "failed")}
        return Premises(**{**data, **lines})

    def say(self) -> str:
        """All of it in a line."""
        if not self.launches:
            return "premises: no dot was predicted, so none was compiled"
        compiled = self.launches - len(self.failed)
        head = f"premises: {say_count(compiled, 'launch')} compiled for {self.target}"
        words = [f"{self.agreed} of {say_count(self.dots, 'dot')} as predicted"]
        if self.differ:
            words.append(f"{self.differ} not")
        if lacking := self.not_known:
            words.append(f"{lacking} not known")
        if self.failed:
            words.append(f"{say_count(len(self.failed), 'launch')} not compiled")
        if len(words) == 1:
            return f"{head}, all as predicted"
        return f"{head}: {', '.join(words)}"

    def list_lines(self, most: int) -> Iterator[str]:
        """What is not as predicted, or not known: up to `most` lines of each kind."""
        for lines in (self.contradicted, self.failed, self.unknown):
            yield from (f"  {line}" for line in lines[:most])
            if len(lines) > most:
                yield f"  and {len(lines) - most} more: --json has all"

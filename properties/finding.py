"""What a property found: which fault, on which operand and axis, at which line, by which case."""

from __future__ import annotations

import builtins
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from gemmproof.properties.case import Case

Key = tuple[str, str, str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which a property does not hold.

    `fault` classifies it (out_of_bounds, tile_edge, last_k_block, ...). `operand` is "a", "b", "c"
    or a parameter's name, `axis` "M", "N", "K", "batch" or None. `where` is `file.py:31`, or None.
    `bound` is the allowed error where there is one. `message` is one line:
    `where: got X, expected Y`. `cause` names the property whose finding brings this one about,
    None for a root cause.
    """

    property: str
    fault: str
    message: str
    case: Case
    operand: str | None = None
    axis: str | None = None
    where: str | None = None
    got: str | None = None
    expected: str | None = None
    bound: float | None = None
    cause: str | None = None

    @builtins.property  # the field of that name hides it
    def key(self) -> Key:
        """What two findings of one fault have in common, whatever the case."""
        return (self.property, self.fault, self.operand, self.axis, self.where)

    def caused_by(self, property_name: str) -> Finding:
        """The same finding, as a consequence of a finding of `property_name`."""
        return replace(self, cause=property_name)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the case is the text that --case takes."""
        return {**asdict(self), "case": self.case.to_json()}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Finding:
        """The finding that `to_dict` wrote. Raises ValueError naming what is wrong."""
        known = [f.name for f in fields(Finding)]
        if not isinstance(data, dict) or set(data) != set(known):
            raise ValueError(f"finding: got {sorted(data)}, expected fields {' '.join(known)}")
        return Finding(**{**data, "case": Case.from_json(data["case"])})

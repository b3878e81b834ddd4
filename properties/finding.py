"""Findings: one failure of a property, with its message `where: got X, expected Y`."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gemmproof.properties.cases.case import Case

if TYPE_CHECKING:
    from gemmproof.properties.observation import ObservedCase
    from gemmproof.reference.arithmetic import Array

UNEXPECTED = "unexpected_pass"  # the fault of a property that holds, and was expected not to
Key = tuple[str, str, str, str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which a property does not hold.

    Attributes:
        property: The name of the property.
        fault: The kind of fault: out_of_bounds, tile_edge, last_k_block, ...
        message: One line, `where: got X, expected Y`.
        case: The smallest case that shows it.
        operand: "a", "b", "c", the name of a parameter, or None.
        axis: "M", "N", "K", "batch" or None.
        where: The source line as `file.py:31`, or None.
        got: The value that was observed, as text, or None.
        expected: The value that was expected, as text, or None.
        bound: The allowed error, or None.
        cause: The property whose finding causes this one, None for a root cause.
        backend: "simulator", "compiler" or "cuda".
        result: The name of the result whose elements are wrong, if there are several.
        file: The path of the file in `where`, or None.
        reproduce: The command that repeats it, in a report that is written.
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
    backend: str = "simulator"
    result: str = "c"
    file: str | None = None
    reproduce: str | None = field(default=None, compare=False)

    @builtins.property  # the field of that name hides it
    def key(self) -> Key:
        """The identity of a fault, which findings of different cases share."""
        return (self.backend, self.property, self.fault, self.operand, self.axis, self.where)

    def caused_by(self, property_name: str) -> Finding:
        """Return the same finding, as a consequence of a finding of `property_name`."""
        return replace(self, cause=property_name)


def list_by_cause(findings: Sequence[Finding]) -> list[tuple[Finding, list[Finding]]]:
    """List each root cause with its consequences, in order.

    A finding names the property that it follows from; of several such findings its cause is that of
    the same operand, or the first. If no root is left, the findings themselves are the roots.
    """
    roots = [f for f in findings if f.cause is None] or list(findings)
    groups: list[tuple[Finding, list[Finding]]] = [(root, []) for root in roots]
    for finding in findings:
        if finding not in roots:
            first = _trace_root(finding, roots, findings)
            next(under for root, under in groups if root == first).append(finding)
    return groups


def _trace_root(finding: Finding, roots: Sequence[Finding], findings: Sequence[Finding]) -> Finding:
    seen: set[Finding] = set()
    here = finding
    while here not in seen:
        seen.add(here)
        causes = [f for f in (*roots, *findings) if f.property == here.cause and f not in seen]
        alike = [f for f in causes if f.operand in (here.operand, finding.operand)]
        here = next(iter(alike or causes), here)
        if here in roots:
            return here
    return roots[0]


def find_reasons(findings: Sequence[Finding], expected: Mapping[str, str]) -> dict[Finding, str]:
    """Return the reasons of expected findings: `expected` has a reason for their own property.

    Or for that of their root cause, which covers its consequences.
    """
    reasons: dict[Finding, str] = {}
    for root, followers in list_by_cause(findings):
        why = expected.get(root.property)
        if why is not None:
            reasons |= dict.fromkeys(followers, f"follows from {root.property}: {why}")
        own = (f for f in (root, *followers) if f.property in expected)
        reasons |= {f: expected[f.property] for f in own}
    return reasons


def make_finding(
    observation: ObservedCase,
    property: str,
    fault: str,
    location: str | Mismatch = "",
    got: str | None = None,
    expected: str | None = None,
    note: str = "",
    **more: Any,
) -> Finding:
    """Make a finding of one observation: `location: got X, expected Y` and then `note`.

    A Mismatch as `location` means its first element of the result. `more` are further fields of
    Finding. A finding on a device names the device and its configuration.
    """
    if isinstance(location, Mismatch):
        name = observation.result_name
        location, more = (
            place_of(observation, location.at),
            {"operand": name, "result": name, **more},
        )
    message = f"{location}: got {got}, expected {expected}{note}"
    if not observation.is_simulated:
        message = f"{message} on the {observation.device}{observation.how}"
    fields_ = {"message": message, "backend": observation.backend, **more}
    return Finding(property, fault, case=observation.case, got=got, expected=expected, **fields_)


def place_of(observation: ObservedCase, at: tuple[int, ...]) -> str:
    """Format an element of the result: c[0, 1]."""
    return f"{observation.result_name}{list(at)}"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Elements of a result that are wrong: the first one, their count, and the result's size."""

    at: tuple[int, ...]
    count: int
    size: int

    @staticmethod
    def of(wrong: Array) -> Mismatch | None:
        """Return the marked elements, or None."""
        if not wrong.any():
            return None
        at = tuple(int(indices[0]) for indices in wrong.nonzero())
        return Mismatch(at, int(wrong.sum()), wrong.size)

    def counted(self, verb: str, elements: str = "elements") -> str:
        """Return "; 3 of 12 elements differ"."""
        return f"; {self.count} of {self.size} {elements} {verb}"

    def number(self, x: Array) -> str:
        """Format the element's value in another array, and its bits: NaNs differ only in these."""
        code = int(x.view(f"u{x.itemsize}")[self.at])
        return f"{x[self.at]} (0x{code:0{2 * x.itemsize}x})"

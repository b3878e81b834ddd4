"""Help on properties and faults: texts alone, without imports."""

from __future__ import annotations

from dataclasses import dataclass


# -- page ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Example:
    """A wrong line of a kernel, and its repair.

    Both stand in docs/examples/right.py, which has `right` once the edits `given` (old text, new
    text) are made; `given_words` says what those are. `options` are those of `check` under which
    the wrong line is found. `unjudged` says why no test runs it, "" where one does.
    """

    wrong: str
    right: str
    given: tuple[tuple[str, str], ...] = ()
    given_words: str = ""
    options: tuple[str, ...] = ()
    unjudged: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """What is to be known of one property.

    `claim` is a sentence; `judged` says how it is judged, `finding` is a line as it is reported,
    `causes` are usual causes, each with its fix, `options` what of the contract changes it, `docs`
    where more is said.
    """

    name: str
    claim: str
    judged: str
    finding: str
    causes: tuple[tuple[str, str], ...]
    example: Example
    options: tuple[str, ...]
    docs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FaultPage:
    """What is to be known of one kind of fault: which properties it breaks, what it says."""

    name: str
    properties: tuple[str, ...]
    says: str
    causes: tuple[tuple[str, str], ...]
    example: Example | None = None


def state(
    name: str, holders: tuple[str, ...], says: str, cause: str, fix: str, *more: tuple[str, str]
) -> FaultPage:
    """A page on a fault of these properties, with a cause and what mends it, and more of them."""
    return FaultPage(name, holders, says, ((cause, fix), *more))

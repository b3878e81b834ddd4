"""Help on properties and faults: texts only, without imports."""

from __future__ import annotations

from dataclasses import dataclass


# -- page ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Example:
    """A wrong line of a kernel, and its repair.

    Both apply to docs/examples/right.py, which has `right` after the edits `given` (old text, new
    text); `given_words` describes those. `options` are those of the check that shows it.
    `unjudged` is the reason why no test runs it, or "".
    """

    wrong: str
    right: str
    given: tuple[tuple[str, str], ...] = ()
    given_words: str = ""
    options: tuple[str, ...] = ()
    unjudged: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """The help on one property.

    `claim` is a sentence; `judged` describes how it is judged, `finding` is a line as it is
    reported, `causes` are usual causes, each with its fix, `options` the parts of the contract that
    change it, `docs` the further documentation.
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
    """The help on one kind of fault: the properties that it breaks, its meaning, its causes."""

    name: str
    properties: tuple[str, ...]
    says: str
    causes: tuple[tuple[str, str], ...]
    example: Example | None = None


def state(
    name: str, holders: tuple[str, ...], says: str, cause: str, fix: str, *more: tuple[str, str]
) -> FaultPage:
    """Make a page on a fault of these properties, with a cause and its fix, and more of them."""
    return FaultPage(name, holders, says, ((cause, fix), *more))

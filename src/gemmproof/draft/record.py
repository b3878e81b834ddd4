"""The draft of a declaration."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemmproof.target import Calling


@dataclass(frozen=True, slots=True)
class Guess:
    """A part of a draft, and its origin: read from the source, by name, refused otherwise."""

    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class DraftedOptions:
    """A draft: the values of the options that declare a wrapper, and the origin of each.

    `is_drafted`: a call was understood; else `reasons` are the most frequent ones why none was, and
    `asked` the parameters that must be declared. `is_plain`: the wrapper takes a[M, K] and b[K, N]
    alone and returns c[M, N], so that no draft is needed. `tried` counts the calls.
    """

    is_drafted: bool
    is_plain: bool
    tried: int
    dtype: str = ""
    batched: bool = False
    accumulator: str = "fp32"
    any_order: bool = False
    sizes: tuple[tuple[str, str], ...] = ()
    calling: Calling = field(default_factory=Calling)
    guesses: tuple[Guess, ...] = ()
    reasons: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

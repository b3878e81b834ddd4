"""Which of the simulated cases are launched too: few, and every kind among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gemmproof.properties.cases.case import Case

MOST_CASES = 24  # cases launched of each format; compiling them is what takes the time


def select_cases(cases: Iterable[Case]) -> list[Case]:
    """Up to MOST_CASES cases of each format, smallest first, with every configuration and layout.

    A case that shows a configuration, layout, fill or multiprocessor count for the first time
    comes before the rest, of which every n-th is taken.
    """
    groups: dict[str, list[Case]] = {}
    for case in dict.fromkeys(replace(c, compare=None, calls=1) for c in cases if not c.is_sampled):
        groups.setdefault(case.dtype, []).append(case)
    found: list[Case] = []
    for group in groups.values():
        seen: set[tuple[str, Any]] = set()
        new: list[Case] = []
        rest: list[Case] = []
        for case in group:
            facets = {(name, getattr(case, name)) for name in ("config", "fill", "sms")}
            facets |= set(case.layouts)
            (rest if facets <= seen else new).append(case)
            seen |= facets
        chosen = new[:MOST_CASES]
        if room := MOST_CASES - len(chosen):
            chosen += rest[:: max(1, -(-len(rest) // room))]
        found += sorted(chosen, key=lambda c: (c.M * c.N * c.K, c.M + c.N + c.K))
    return found

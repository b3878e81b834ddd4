"""Where judged cases lie beside the kernel's own tiles, and the bits of a few of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gemmproof.engine.judge import Judged
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import probe, smallest
from gemmproof.properties.contract import Contract
from gemmproof.report.facts import AXES, UNKNOWN, Bits, Coverage, join_residues

KEPT = 4  # cases of a format whose bits are kept, besides the smallest and the one of middle size


def cover(contract: Contract, judged: Sequence[Judged]) -> Coverage:
    """The coverage of the cases that some property bore on."""
    bore = [one for one in judged if one.applied]
    words = (join_residues(_name(one, axis) for axis in AXES) for one in bore)
    found = {fmt: _keep_bits(contract, fmt, bore) for fmt in contract.formats}
    return Coverage(dict(sorted(Counter(words).items())), {k: v for k, v in found.items() if v})


def _name(judged: Judged, axis: str) -> str:
    """What the size leaves beside the tile of the launch that multiplies, by its constexprs."""
    size = getattr(judged.case, axis)
    # a launch that only adds up or copies has tiles of another meaning
    launches = sorted(judged.launches, key=lambda launch: not launch.tiles)
    for launch in launches:
        for name in (f"BLOCK_{axis}", f"BLOCK_SIZE_{axis}"):
            block = launch.constexprs.get(name)
            if type(block) is int and block > 0:
                rest = size % block
                # the simpler name counts where two are true of a small tile
                return {block - 1: "BLOCK-1", 1: "1", 0: "0"}.get(rest, "other")
    return UNKNOWN


def _keep_bits(contract: Contract, fmt: str, judged: Iterable[Judged]) -> tuple[Bits, ...]:
    """The bits of cases that are the same in every run, as far as their sets have cases in common.

    Cases besides those that every check begins with are chosen by their own hash, not by their
    place: what a proof asks for comes first, and as much as there was time for. Of special data the
    bits of a NaN would be the machine's.
    """
    # whatever a case is compared with, and however often it is called: the first call is the same
    known = {
        replace(one.case, calls=1, compare=None): one.bits
        for one in judged
        if one.bits and one.case.dtype == fmt
    }
    always = [case for case in (smallest(contract, fmt), probe(contract, fmt)) if case in known]
    others = [
        case for case in known if case not in always and case.fill not in ("index", "special")
    ]
    chosen = [*always, *sorted(others, key=_hash)[:KEPT]]
    return tuple(Bits(case.to_json(), known[case]) for case in chosen)


def _hash(case: Case) -> str:
    return hashlib.sha256(case.to_json().encode()).hexdigest()

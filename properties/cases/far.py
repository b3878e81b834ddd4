"""Cases whose c has more than 2**31 elements, of small a and b; they are sampled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import WIDE
from gemmproof.properties.contract import Contract

MAX_GIVEN = 2**23  # elements of a and b: making more takes time
# (M, N, batch), of which a contract may admit one; about a third of c lies beyond 2**31 elements
PLACES = ((57344, 57344, 1), (65536, 49152, 1), (49152, 65536, 1))
BATCHES = ((34816, 32768, 3), (8192, 8192, 48), (2048, 2048, 800))


def list_far(case: Case, contract: Contract) -> Iterator[Case]:
    """The case with so large a c: of whole tiles, of ragged ones, of one batch and of several.

    None where the contract has no such sizes, or a and b would be large, too.
    """
    for places in (PLACES, BATCHES) if contract.batched else (PLACES,):
        for more in (0, -1):
            found = (_make_far(case, contract, place, more) for place in places)
            yield from [c for c in found if c is not None][:1]


def _make_far(
    case: Case, contract: Contract, place: tuple[int, int, int], more: int
) -> Case | None:
    M, N, batch = place
    sides = {"M": M + more, "N": N + 3 * more, "K": case.K}
    fitted: Any = contract.fit(sides | {"batch": batch} if contract.batched else sides)
    try:
        far = replace(case, **(fitted or {}))
    except ValueError:  # no case is that large
        return None
    given = (far.M + far.N) * far.K * (far.batch or 1)
    return far if math.prod(far.result_shape) > WIDE and given <= MAX_GIVEN else None

"""Related calls: what a case is compared with, and how each such call is made.

A case with `compare` is called once as it stands, and then its twins are: the same product with
negated, scaled, permuted, padded or transposed operands, with other numbers of rows, or after
calls with other arguments. Each relation has a file of its own that says which calls and what must
hold between the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gemmproof.properties import order, rows, symmetry
from gemmproof.properties.outcome import DIRTS, Asked, Outcome, Runner, Twin, attempt, taken
from gemmproof.properties.state import State

PLANS: dict[str, Callable[[Outcome], Iterator[Asked]]] = {
    order.COMPARE: order.asked,
    rows.COMPARE: rows.asked,
    **dict.fromkeys(symmetry.RELATIONS, symmetry.asked),
}


def run_twins(outcome: Outcome, run: Runner, state: State) -> None:
    """Make the calls that a case is to be compared with, where its own call gave a result."""
    compare = outcome.case.compare
    if compare is None or outcome.result is None:
        return
    state.restore()
    for asked in PLANS[compare](outcome):
        if compare != order.COMPARE:
            state.restore()
        seen, raised = attempt(outcome, asked.case, asked.a, asked.b, run, DIRTS[0], None)
        result, out = (None, None) if seen is None else taken(seen.result, asked.shape)
        outcome.twins += (Twin(asked, seen, raised, result, out),)

"""The work of a process, counted where it is done: budgets of work do not depend on load.

Even CPU time of the same work is longer on a slow or a busy machine: a budget in its seconds is
spent earlier there, and a verdict may be another one. A counted second is the work that takes about
a second of CPU time where the weights below were measured: by least squares over the proofs and
the checks of the corpora's kernels, on one core of an AMD EPYC. For most kernels it is between half
a second and one and a half there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

STEPS_PER_SECOND = 1_000_000
# the prover
TERM_STEPS = 4  # a polynomial, with the Python around it
SOLVER_STEPS = 1  # a unit of rlimit, z3's own count
DECISION_STEPS = 650  # a question about a symbolic size
REPLAY_STEPS = 12_000  # a call of a wrapper with plain sizes, whose launches are noted
TRIAL_STEPS = 15  # an atom's values in an evaluation over all lanes
TRIAL_LANE_STEPS = 0.002
# the simulator
VALUE_STEPS = 6  # a value, with the operation that made it
VALUE_LANE_STEPS = 0.03
PRODUCT_STEPS = 0.006  # a product of two elements in a dot
PROGRAM_STEPS = 0.1
LAUNCH_STEPS = 300
# both
TTIR_STEPS = 130  # a line of the TTIR to which Triton translates a kernel


class Meter:
    """The amount of each kind of work since the process started."""

    __slots__ = (
        "decisions", "launches", "products", "programs", "replays", "solver", "terms",
        "trial_lanes", "trials", "ttir", "value_lanes", "values",
    )  # fmt: skip

    def __init__(self) -> None:
        self.terms = self.solver = self.decisions = self.trials = self.trial_lanes = 0
        self.values = self.value_lanes = self.products = self.programs = 0
        self.launches = self.ttir = self.replays = 0


METER = Meter()


@contextmanager
def counted_apart() -> Iterator[None]:
    """Leave the work within out of the count afterwards: it has a limit of its own."""
    before = {name: getattr(METER, name) for name in Meter.__slots__}
    try:
        yield
    finally:
        for name, count in before.items():
            setattr(METER, name, count)


def counted_seconds() -> float:
    """Return all work of this process in counted seconds, as a clock reading."""
    x = METER
    prover = x.terms * TERM_STEPS + x.solver * SOLVER_STEPS + x.decisions * DECISION_STEPS
    prover += x.replays * REPLAY_STEPS
    trials = x.trials * TRIAL_STEPS + x.trial_lanes * TRIAL_LANE_STEPS
    values = x.values * VALUE_STEPS + x.value_lanes * VALUE_LANE_STEPS
    dots, programs = x.products * PRODUCT_STEPS, x.programs * PROGRAM_STEPS
    launches = x.launches * LAUNCH_STEPS + x.ttir * TTIR_STEPS
    return (prover + trials + values + dots + programs + launches) / STEPS_PER_SECOND

"""Every mutant is caught, for the right reason, at the smallest case that shows it."""

from __future__ import annotations

import statistics

import pytest
from tests.corpora.mutant import CLASSES, Mutant
from tests.corpora.mutants.table import MUTANTS
from tests.corpora.mutants.unflawed import KERNELS

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.kernel_check import check
from gemmproof.engine.observe import judge, observe_case
from gemmproof.properties.judges import memory_use
from gemmproof.properties.property_table import PROPERTIES

EXAMPLES = 100
# each operand has its own wrong mask, two lines to fix
TWO_LINES = ("first_k_tile_peeled", "even_k_means_divisible_by_16")
_SECONDS: dict[Mutant, float] = {}


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(m, id=f"{m.letter}-{m.name}", marks=pytest.mark.lane(m.lane)) for m in MUTANTS],
)
def test_a_mutant_is_caught_for_its_reason_at_its_smallest_case(mutant):
    report = check(mutant.kernel, max_examples=EXAMPLES, target=mutant.target)
    _SECONDS[mutant] = report.seconds
    assert report.verdict == "fail", f"{mutant.name} survives"
    first, *others = (f for f in report.findings if f.cause is None)
    assert first == report.findings[0]
    assert len(others) == (mutant.name in TWO_LINES), f"two causes: {first}, {others}"
    assert mutant.is_stated(first), f"got {first}, expected {mutant}"
    if first.property == "stays_in_bounds":
        assert first.where.partition(":")[0] in (
            f"{mutant.wrapper.partition(':')[0]}.py",
            "tiled.py",
        )
    assert first.property in {f.property for f in replay(mutant, first.case).findings}


def replay(mutant, case):
    """Judge one case as `check` does, without the search for what explains its findings."""
    return judge(observe_case(mutant.kernel, case, Simulator(mutant.target)))


@pytest.mark.lane("full")
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_a_mutant_without_its_flaw_is_right(kernel):
    report = check(kernel, max_examples=36 // len(kernel.contract.formats))
    assert [f.message for f in report.findings] == []
    assert report.verdict == "pass"


def test_mutants_cover_the_classes_and_are_all_different():
    assert len(MUTANTS) >= 45
    assert {m.letter for m in MUTANTS} >= set("ABCDEFGHIJKO")
    assert {m.letter for m in MUTANTS} <= set(CLASSES)
    assert len({m.wrapper for m in MUTANTS}) == len(MUTANTS)
    # each class, and each family of the class of operands and formulas, has one in the default lane
    classes = {m.letter if m.folder == "mutants" else m.right.name for m in MUTANTS}
    few = [m for m in MUTANTS if m.lane == "default"]
    assert sorted(m.letter if m.folder == "mutants" else m.right.name for m in few) == sorted(
        classes
    )


def test_each_property_but_the_mirrors_has_mutants():
    judged = {p.name for p in PROPERTIES if p.simulated} - {memory_use.NAME}
    assert judged <= {m.property for m in MUTANTS}


def test_times(capsys):
    """Prints the times of this run; what they ought to be is in docs/results/strength.md."""
    if _SECONDS:
        slowest = max(_SECONDS, key=lambda m: _SECONDS[m])
        with capsys.disabled():
            print(
                f"\n{len(_SECONDS)} mutants: median {statistics.median(_SECONDS.values()):.2f} s,"
                f" slowest {_SECONDS[slowest]:.2f} s ({slowest.name})"
            )

"""Every mutant is caught, for the right reason, at the smallest case that shows it."""

from __future__ import annotations

import inspect
import statistics

import pytest
from mutants import unflawed
from mutants.table import CLASSES, MUTANTS, Mutant

from gemmproof.engine.check import check
from gemmproof.properties import mirror
from gemmproof.properties.contract import Contract, KernelUnderTest
from gemmproof.properties.table import PROPERTIES

EXAMPLES = 100
_SECONDS: dict[Mutant, float] = {}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.letter}-{m.name}")
def test_a_mutant_is_caught_for_its_reason_at_its_smallest_case(mutant):
    report = check(mutant.kernel, max_examples=EXAMPLES, target=mutant.target)
    _SECONDS[mutant] = report.seconds
    assert report.verdict == "fail", f"{mutant.name} survives"
    first = report.findings[0]
    assert first.cause is None
    assert mutant.is_stated(first), f"got {first}, expected {mutant}"


UNFLAWED = {
    f: Contract()
    for f in vars(unflawed).values()
    if inspect.isfunction(f) and f.__module__ == unflawed.__name__
} | {
    unflawed.batch_strides_as_they_are: Contract(batched=True),
    unflawed.bytes_unpacked: Contract(formats=("int8",)),
    unflawed.single_precision_sums: Contract(formats=("fp16", "fp32", "int8")),
    unflawed.slices_of_whole_tiles: Contract(deterministic=False),
    unflawed.one_slice_whatever_m: Contract(batch_invariant=True),
}


@pytest.mark.parametrize("launch", UNFLAWED, ids=lambda f: f.__name__)
def test_a_mutant_without_its_flaw_is_right(launch):
    kernel = KernelUnderTest(launch.__name__, launch, UNFLAWED[launch])
    report = check(kernel, max_examples=36 // len(kernel.contract.formats))
    assert [f.message for f in report.findings] == []
    assert report.verdict == "pass"


def test_mutants_cover_the_classes_and_are_all_different():
    assert len(MUTANTS) >= 45
    assert {m.letter for m in MUTANTS} >= set("ABCDEFGHIJKO")
    assert {m.letter for m in MUTANTS} <= set(CLASSES)
    assert len({m.place for m in MUTANTS}) == len(MUTANTS)


def test_each_property_but_the_mirrors_has_mutants():
    judged = {p.name for p in PROPERTIES if p.simulated} - {mirror.NAME}
    assert judged <= {m.property for m in MUTANTS}


def test_times(capsys):
    """Prints the times of this run; what they ought to be is in docs/strength.md."""
    if _SECONDS:
        slowest = max(_SECONDS, key=lambda m: _SECONDS[m])
        with capsys.disabled():
            print(
                f"\n{len(_SECONDS)} mutants: median {statistics.median(_SECONDS.values()):.2f} s,"
                f" slowest {_SECONDS[slowest]:.2f} s ({slowest.name})"
            )

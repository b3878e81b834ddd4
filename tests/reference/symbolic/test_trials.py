"""Formulas evaluated at concrete sizes: the faults that they show, and those that they do not."""

import pytest
from tests.corpora import product_wrappers, tiled
from tests.corpora.mutants import split_k
from tests.corpora.mutants.table import MUTANTS
from tests.corpora.no_false_alarm.table import KERNELS
from tests.reference.symbolic.wrong import unsound_kernels
from tests.support.lanes import first_of_each
from tests.support.wide import wide

from gemmproof.properties.cases.case import Case
from gemmproof.properties.judges import exact_values, memory_use
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.cases_of_paths import seek, try_case
from gemmproof.properties.proof.domain import TraceCache, Untraced, iter_traced_paths, list_domains
from gemmproof.properties.proof.prove import ABOUT
from gemmproof.reference.work import counted_seconds

BOUNDS, FIT, HINTS, ONCE = memory_use.BOUNDS, memory_use.FIT, memory_use.HINTS, memory_use.ONCE
LANES, EXACT = memory_use.LANES, exact_values.EXACT


def list_traced(kernel):
    """The paths of a kernel in its first configuration, all of which are followed."""
    until, traced = counted_seconds() + 60, []
    for domain in list_domains(kernel):
        parts = next(iter_traced_paths(kernel, domain, None, TraceCache(), lambda: until))
        assert [part for part in parts if isinstance(part, Untraced)] == []
        traced += parts
    return traced


def named(function, **fields):
    return KernelUnderTest("kernel", function, wide(**fields))


# -- what is right ---------------------------------------------------------------------------------
RIGHT = {
    "a tile": named(tiled.plain),
    "a batch": named(tiled.batched, batched=True),
    "a sum over lanes": named(tiled.launch_column),
    "branches": named(unsound_kernels.branches),
    "carried": named(unsound_kernels.carried_from_trip_to_trip),
    "atomics": named(split_k.launch_atomic, deterministic=False),
    "a workspace": named(split_k.launch_with_workspace),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("layout", first_of_each(["row", "column", "padded"]))
def test_nothing_is_seen_in_what_is_right(name, layout):
    kernel = RIGHT[name]
    traced = list_traced(kernel)
    for sides in ((1, 1, 0), (1, 1, 1), (17, 1, 33), (2, 33, 18), (35, 34, 17)):
        batch = 3 if kernel.contract.batched else None
        case = Case(*sides, batch=batch).with_layout("a", layout)
        assert try_case(kernel, traced, case) == {}


RIGHT_BUT_UNUSUAL = (
    "rows_and_columns_wrapped",
    "addresses_clamped_and_one_load_unmasked",
    "undefined_rows_never_stored",
    "next_tile_loaded_past_the_end",
    "more_programs_than_tiles",
    "persistent_while_loop",
    "column_major_result",
    "batch_laid_out_innermost",
)


@pytest.mark.lane("full")
@pytest.mark.parametrize("name", first_of_each(RIGHT_BUT_UNUSUAL))
def test_nothing_is_certain_of_what_is_right_but_unusual(name):
    kernel = next(kernel for kernel in KERNELS if kernel.name == name)
    counterexamples = seek(kernel, list_traced(kernel), ABOUT, 20.0)
    assert {x: y for x, y in counterexamples.items() if y.is_certain or x == EXACT} == {}


# -- what is wrong ---------------------------------------------------------------------------------
# the smallest case of each, which is that of the corpus
WRONG = {
    "k_mask_admits_one_more": (BOUNDS, (1, 1, 1), True),
    "mask_does_not_advance": (BOUNDS, (1, 1, 17), True),
    "k_mask_loses_the_last": (EXACT, (1, 1, 1), False),
    "slices_overlap": (EXACT, (1, 1, 2), False),
    "slices_lose_the_remainder": (EXACT, (1, 1, 1), False),
    "last_row_not_stored": (ONCE, (1, 1, 1), True),
    "grid_of_the_other_block": (ONCE, (1, 33, 1), True),
    "store_to_wrapped_columns": (ONCE, (1, 1, 1), True),
    "no_store_without_k": (ONCE, (1, 1, 0), True),
    "column_taken_from_the_rows": (ONCE, (1, 17, 1), True),
    "k_assumed_to_be_many_tiles": (HINTS, (1, 1, 1), True),
    "offsets_said_to_be_constant": (HINTS, (2, 2, 2), False),
    "no_other_on_a": (LANES, (1, 1, 1), False),
}


def find_mutant(name):
    return next(mutant.kernel for mutant in MUTANTS if mutant.name == name)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_seen_at_its_smallest_case(name):
    broken, sides, certain = WRONG[name]
    kernel = find_mutant(name)
    counterexample = seek(kernel, list_traced(kernel), [broken], 20.0)[broken]
    assert (counterexample.case, counterexample.is_certain) == (Case(*sides), certain)
    seen = try_case(kernel, list_traced(kernel), counterexample.case)
    assert seen[broken].text == counterexample.text


FAR = {
    "row_offset_of_a_in_32_bits": {FIT: Case(3, 1, 1, layouts=(("a", "narrow"),))},
    "k_step_of_a_in_32_bits": {FIT: Case(1, 1, 17, layouts=(("a", "narrow_transposed"),))},
    # a row that runs into the next is seen where rows lie apart
    "a_assumed_contiguous": {
        BOUNDS: Case(2, 1, 1, layouts=(("a", "padded"),)),
        EXACT: Case(2, 1, 2, layouts=(("a", "column"),)),
    },
    # a path that names a long k is tried there
    "unrolled_steps_lose_the_last_tile": {EXACT: Case(1, 1, 256)},
}


@pytest.mark.parametrize("name", FAR)
def test_what_is_wrong_in_views_of_huge_parents_or_where_k_is_long_is_seen_there(name):
    kernel = find_mutant(name)
    counterexamples = seek(kernel, list_traced(kernel), list(FAR[name]), 20.0)
    assert {broken: counterexamples[broken].case for broken in FAR[name]} == FAR[name]
    assert FIT not in counterexamples or counterexamples[FIT].is_certain


def test_a_program_that_stores_what_another_did_is_seen_at_many_tiles():
    kernel = find_mutant("persistent_steps_overlap")
    seen = try_case(kernel, list_traced(kernel), Case(2113, 1, 1))
    assert seen[ONCE].is_certain
    assert try_case(kernel, list_traced(kernel), Case(1, 1, 1)) == {}


def test_no_case_is_tried_where_another_size_is_0():
    zeros = product_wrappers.zeros_where_k_is_small
    kernel = KernelUnderTest("zeros", zeros, wide(layouts="contiguous"))
    counterexamples = seek(kernel, list_traced(kernel), [EXACT], 30.0)
    assert counterexamples[EXACT].case == Case(1, 1, 1)

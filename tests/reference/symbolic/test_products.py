"""Products made in each way that the prover follows, and wrong ones that it must not prove."""

import pytest
from tests.corpora import product_kernels as kernels
from tests.corpora import product_sums as sums
from tests.corpora import product_wrappers as wrappers
from tests.support.lanes import first_of_each
from tests.support.wide import wide

from gemmproof.engine.kernel_check import check
from gemmproof.properties.cases.case import Case
from gemmproof.properties.judges import exact_values, memory_use
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import PROVED
from gemmproof.properties.proof import prove as prove_module
from gemmproof.properties.proof.prove import prove

SECONDS = 20.0
ANY_ORDER = {"deterministic": False}
RIGHT = {
    wrappers: {
        "rows_of_whole_tiles": {}, "padded_by_torch": {}, "copied_in_single_precision": {},
        "copied_into_the_result": {}, "slices_summed": {}, "made_unless_empty": {},
    },
    kernels: {
        "fetched_ahead": {}, "last_tile_behind_the_loop": {}, "copied_by_a_kernel": {},
        "slices_summed_by_a_kernel": {}, "reduced": {"N": "..60000"}, "scaled": {},
        "bias_of_zeros_by_torch": {},
    },
    sums: {
        "added_onto_zeros": ANY_ORDER, "cleared_before_each_trial": ANY_ORDER,
        "summed_in_a_row": {},
    },
}  # fmt: skip
# the sizes at which it is wrong, or None if integers of a case do not show it; what is admitted
WRONG = {
    wrappers: {
        "padded_with_ones": ((1, 1, 1), {}),
        "padded_with_what_was_there": (None, {}),
        "copied_one_to_the_right": ((1, 1, 1), {}),
        "half_of_it_copied": ((1, 1, 1), {}),
        "copied_and_cleared": ((1, 1, 1), {"M": "1.."}),
        "copied_upside_down": ((2, 1, 1), {}),
        "copied_transposed": ((2, 2, 2), {"where": "M == K"}),
        "changed_before_it_is_copied": ((1, 1, 1), {}),
        "one_operand_twice": ((2, 2, 2), {"where": "M == K and N == K"}),
        "copied_in_half_the_bits": (None, {}),
        "zeros_where_k_is_small": ((1, 1, 1), {}),
        "made_unless_it_is_one_row": ((1, 1, 1), {}),
        "a_row_between_two_launches": ((1, 1, 1), {"M": "1.."}),
        "rows_of_the_second_launch_shifted": ((4, 2, 1), {"M": "2.."}),
        "cleared_between_two_launches": ((2, 1, 1), {}),
        "half_of_it_made_single": ((2, 1, 1), {}),
        "rounded_before_it_is_widened": (None, {"out": "fp32"}),
        "doubled_by_what_returns_nothing": ((1, 1, 1), {}),
        "stored_as_other_bits": (None, {}),
        "copied_too_early": ((1, 1, 1), {}),
        "slices_summed_but_the_first": ((1, 1, 1), {}),
        "slices_of_which_one_is_never_made": ((1, 1, 1), {}),
        "slices_that_take_some_tiles_twice": ((1, 1, 40), {}),
        "slices_that_miss_some_tiles": ((1, 1, 60), {}),
        "slices_rounded_and_summed": (None, {}),
        "slices_summed_along_the_rows": ((3, 2, 1), {"M": "3..3"}),
    },
    kernels: {
        "first_tile_twice": ((1, 1, 17), {}),
        "two_tiles_ahead": ((1, 1, 17), {}),
        "one_operand_ahead": ((1, 1, 17), {}),
        "last_tile_left_out": ((1, 1, 1), {}),
        "last_tile_twice": ((1, 1, 1), {}),
        "tiles_that_take_turns": ((1, 1, 40), {}),
        "copied_from_one_row_down": ((1, 1, 1), {}),
        "half_of_it_copied_by_a_kernel": ((1, 1, 1), {}),
        "slices_stored_over_each_other": ((1, 1, 40), {}),
        "last_slice_dropped": ((1, 1, 40), {}),
        "first_slice_dropped": ((1, 1, 1), {}),
        "slices_doubled": ((1, 1, 1), {}),
        "slices_overlap": ((1, 1, 40), {}),
        "slices_leave_tiles_out": ((1, 1, 60), {}),
        "slices_kept_in_half": (None, {}),
        "largest_products": ((1, 1, 2), {}),
        "first_products_twice": ((1, 1, 2), {}),
        "times_two": ((1, 1, 1), {}),
        "plus_one": ((1, 1, 1), {}),
        "bias_of_ones": ((1, 1, 1), {}),
        "bias_of_anything": (None, {}),
    },
    sums: {
        "added_onto_ones": ((1, 1, 1), ANY_ORDER),
        "added_by_one_program_too_few": ((1, 1, 17), ANY_ORDER),
        "added_in_half": (None, ANY_ORDER),
        "added_twice": ((1, 1, 1), ANY_ORDER),
        "cleared_in_one_configuration": (None, ANY_ORDER),
        "tried_out_onto_zeros": (None, ANY_ORDER),
        "summed_but_the_last": ((1, 1, 40), {}),
        "first_part_three_times": ((1, 1, 1), {}),
        "summed_and_turned": ((2, 3, 1), {}),
        "summed_from_neighbours": ((2, 3, 1), {}),
    },
}


LEAKY = ("undefined_column_read_back", "undefined_column_read_back_from_a_copy")


@pytest.fixture(autouse=True)
def without_trials(monkeypatch):
    """Disable trials, whose cases would refute a wrong proof."""
    monkeypatch.setattr(prove_module, "seek", lambda *given: {})


def _name(value):
    return value if isinstance(value, str) else value.__name__


def _list(table):
    rows = [(module, name) for module in table for name in table[module]]
    return first_of_each(rows, lambda row: row[0])


def make(module, name, fields):
    return KernelUnderTest(name, getattr(module, name), wide(**{"layouts": "contiguous", **fields}))


@pytest.mark.parametrize(("module", "name"), _list(RIGHT), ids=_name)
def test_a_right_product_is_proved(module, name):
    kernel = make(module, name, RIGHT[module][name])
    proofs = prove(kernel, seconds=SECONDS)
    results = {broken: proofs.find(broken) for broken in (exact_values.EXACT, memory_use.LANES)}
    assert {broken: (x.status, x.why) for broken, x in results.items()} == dict.fromkeys(
        results, (PROVED, "")
    )


@pytest.mark.parametrize(("module", "name"), _list(WRONG), ids=_name)
def test_a_wrong_product_is_not_proved(module, name):
    sizes, fields = WRONG[module][name]
    kernel = make(module, name, fields)
    proof = prove(kernel, seconds=SECONDS).find(exact_values.EXACT)
    assert proof is None or proof.status != PROVED
    if sizes is not None:
        assert check(kernel, case=Case(*sizes), proof=False).findings


@pytest.mark.parametrize("name", LEAKY)
def test_undefined_lanes_that_are_read_back_are_not_proved_away(name):
    kernel = make(kernels, name, {})
    proof = prove(kernel, seconds=SECONDS).find(memory_use.LANES)
    assert proof is None or proof.status != PROVED
    report = check(kernel, case=Case(1, 1, 1), proof=False)
    assert memory_use.LANES in {finding.property for finding in report.findings}

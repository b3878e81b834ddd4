"""Each rule by which stores, products and hints are judged, broken, is noticed by a check."""

from dataclasses import replace

import pytest
from tests.reference.symbolic import engine_checks as checks

from gemmproof.properties.judges import exact_values, memory_use
from gemmproof.properties.proof import prove
from gemmproof.properties.proof import workspaces as stored_results
from gemmproof.properties.proof.cross_check import PathComparison
from gemmproof.reference.symbolic import lemmas, terms
from gemmproof.reference.symbolic import solver as solving
from gemmproof.reference.symbolic.interpreter import control, interpret, memory_rules
from gemmproof.reference.symbolic.interpreter import symbolic_values as machine_values
from gemmproof.reference.symbolic.obligations import contents, coverage, indices, product
from gemmproof.reference.symbolic.obligations import indices as programs
from gemmproof.reference.symbolic.obligations.indices import PROVED, Verdict
from gemmproof.reference.symbolic.terms import FALSE, TRUE, Atom, le, lt, symbol, term, walk

PROOF = Verdict(PROVED, "", None)
REBIND, BOX = control.rebind, contents.find_box
EXACT, LANES, ONCE, HINTS = exact_values.EXACT, memory_use.LANES, memory_use.ONCE, memory_use.HINTS
unproved = checks.unproved
D = symbol("d", is_natural=True)
SIDE = symbol("side", is_natural=True)
TILES = terms.make("floordiv", SIDE + 15, 16)


def no_trip_before(value, swaps):
    return value if len(swaps) == 1 else REBIND(value, swaps)


def whole_memory(solver, view, at):
    return replace(BOX(solver, view, at), inside=TRUE)


# -- checks of how programs are counted ------------------------------------------------------------
def tiles_have_one_program_each():
    """Grids of as many programs as tiles, where each tile has one program or not."""
    program, lane = Atom("symbol", "pid_x", 0, is_natural=True), lemmas.lane(0, 16)
    for grid, tile, expected in (
        (TILES, term(program), True),
        (TILES, TILES - 1 - program, True),
        (TILES, 2 * terms.make("floordiv", term(program), 2), False),
        (2 * TILES, terms.make("floordiv", term(program), 2), False),
    ):
        solver = solving.Solver(le(1, SIDE), {program: lt(term(program), grid)})
        store = machine_values.SymbolicAccess("store", None, SIDE, TRUE, TRUE, (16,), None)
        result = coverage.has_one_program_each(
            solver, [(store, [16 * tile + lane], [program])], [SIDE]
        )
        assert result == expected, (grid, tile)


def parts_are_of_one_tile():
    """Stores side by side are a tile; one over the other, or with a gap, they are not."""
    program, lane = Atom("symbol", "pid_x", 0, is_natural=True), lemmas.lane(0, 8)
    for begins, apart, whole in (((0, 8), True, True), ((0,), True, False), ((8, 8), False, False)):
        solver = solving.Solver(le(1, SIDE), {program: lt(term(program), TILES)})
        store = machine_values.SymbolicAccess("store", None, SIDE, TRUE, TRUE, (8,), None)
        stores = [(store, [16 * term(program) + n + lane], [program]) for n in begins]
        assert coverage.has_one_program_each(solver, stores, [SIDE]) == apart
        assert coverage.has_one_program_each(solver, stores, [SIDE], whole=True) == whole


def walks_come_to_each_number_once():
    """Programs that go on in strides, where their number is the stride, or that of the tiles."""
    program, trip = (Atom("symbol", *x, is_natural=True) for x in (("pid_x", 0), ("trip", 0, 1)))
    at, least = term(program) + 12 * term(trip), terms.make("min", term(12), TILES)
    for grid, number, expected in (
        (least, at, True),
        (term(12), terms.make("floordiv", at, D), True),
        (term(11), at, False),
        (term(13), at, False),
        (least, at + program, False),
        (least, at + trip, False),
    ):
        known = {program: lt(term(program), grid), trip: lt(at, TILES)}
        solver = solving.Solver(le(1, SIDE), known)
        result = indices.find_walk(solver, number)
        assert (result is not None) == expected, (grid, number)
        if result is not None:
            assert solver.known[result.number] == lt(term(result.number), TILES)
            assert not {program, trip} & set(walk(result.swap(number)))


def zeros_are_not_proved():
    """Zeros are judged even if a path without any access may be proved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prove, "_has_effect", lambda *given: True)
        unproved("zeros_where_k_is_small", EXACT)()


# -- rules --------------------------------------------------------------------------------
# the rule, its owner and name, its replacement, and the check that notices
MUTATIONS = {
    "what torch does to an operand": (
        contents.Contents, "_find_launch", lambda *given: 0,
        unproved("operand_doubled_by_torch", EXACT)),
    "what torch does to a result": (
        stored_results, "_uncopy", lambda call, view: call.args[0],
        unproved("doubled_by_torch", EXACT)),
    "what torch does between launches": (
        stored_results, "find_rewrite", lambda *given: "",
        unproved("cleared_between_two_launches", EXACT)),
    "any fill is one of zeros": (
        contents, "is_zeros", lambda call: True, unproved("bias_of_ones", EXACT)),
    "any copy keeps every number": (
        contents, "_keeps", lambda *given: True, unproved("copied_in_half_the_bits", EXACT)),
    "a box is all of its memory": (
        contents, "find_box", whole_memory, unproved("half_of_it_copied", EXACT)),
    "what is stored again is read": (
        contents.Contents, "is_alone", lambda *given: True,
        unproved("slices_stored_over_each_other", EXACT)),
    "what is read back is defined": (
        stored_results.StoredResults, "list_stores", lambda *given: [],
        unproved("undefined_column_read_back", LANES)),
    "what the same trip hands on": (
        control, "rebind", no_trip_before, unproved("first_tile_twice", EXACT)),
    "what runs over an axis is dropped": (
        contents, "_carry", lambda at, shape: (*at[:-1], at[-1] * 0),
        unproved("summed_from_neighbours", EXACT)),
    "whatever reduces adds": (
        memory_rules, "find_combination", lambda *given: "arith.addf",
        unproved("first_products_twice", EXACT, N="0..4096")),
    "any number is 1": (
        product, "is_number", lambda value, number: value.kind == "number",
        unproved("times_two", EXACT)),
    "half precision is wide": (
        product, "WIDE", ("f16", *product.WIDE), unproved("slices_kept_in_half", EXACT)),
    "zeros are right": (
        stored_results, "judge_zeros", lambda *given: PROOF,
        zeros_are_not_proved),
    "equal numbers are none": (
        coverage, "split_equal", lambda x, y: iter([FALSE]),
        unproved("every_tile_launched_twice", ONCE)),
    "the last tile has no elements": (
        indices, "make", lambda kind, x, y: terms.make(kind, x, y) - 1,
        checks.digits_are_of_their_number),
    "a result has no elements": (
        coverage, "new_element", lambda solver, shape, places: ([term(0)] * len(shape), FALSE),
        unproved("last_row_not_stored", ONCE)),
    "lanes that no term names": (
        coverage, "list_others", lambda *given: [],
        unproved("every_lane_stores_one_column", ONCE, N="1..1")),
    "programs that are no others": (
        programs, "list_programs", lambda *given: [], unproved("every_tile_launched_twice", ONCE)),
    "whatever is inverted is reached": (
        coverage, "reach", lambda *given: TRUE, unproved("last_row_not_stored", ONCE)),
    "as many programs as tiles, whichever these are": (
        coverage, "find_gap", lambda *given: "", tiles_have_one_program_each),
    "any number of programs": (
        coverage, "count_programs", lambda *given: TILES,
        tiles_have_one_program_each),
    "every tile is one program's": (
        coverage, "has_one_program_each", lambda *given: True,
        unproved("every_tile_launched_twice", ONCE)),
    "any part of a tile is another": (
        coverage, "_find_part", lambda access, at, sizes: (id(at),),
        parts_are_of_one_tile),
    "any number of programs walks": (
        indices, "count_programs", lambda *given: term(12),
        walks_come_to_each_number_once),
    "whatever else a walk names": (
        indices, "walk", lambda *what: iter(()),
        walks_come_to_each_number_once),
    "programs that nothing names are none": (
        prove, "is_program", lambda atom: False, unproved("every_tile_launched_twice", ONCE)),
    "what is known of another path": (
        prove, "list_parts", lambda conds: iter([FALSE]),
        unproved("every_tile_launched_twice", ONCE)),
    "whoever uses a hint is followed": (
        interpret.Machine, "forgo", lambda *given: None, unproved("step_of_pointers", HINTS)),
    "what was said of integers is forgotten": (
        interpret, "keep_hints", lambda machine, op, values, results: results,
        unproved("wider", HINTS)),
    "each lane of a run stands for itself": (
        interpret, "_format_lane", lambda machine, word, value, axis, cond: cond,
        unproved("begun_before", HINTS)),
    "loops say nothing of what they carry": (
        control, "claim_hints", lambda machine, op, value, argument: value,
        unproved("carried_but_not_held", HINTS)),
}  # fmt: skip


@pytest.mark.lane("full")
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_of_results_is_noticed(name, monkeypatch):
    monkeypatch.setattr(prove, "seek", lambda *given: {})
    monkeypatch.setattr(prove, "compare_path", lambda *given: PathComparison(1))
    MUTATIONS[name][-1]()
    checks.break_rule(monkeypatch, *MUTATIONS[name])

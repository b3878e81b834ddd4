"""Each rule of the prover, broken, is noticed by a check that passes while it is whole."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
from tests.reference.symbolic import engine_checks as checks

from gemmproof.properties.judges import exact_values, memory_use
from gemmproof.properties.proof import domain, prove
from gemmproof.properties.proof import workspaces as stored_results
from gemmproof.reference.symbolic import lemmas, solver, terms
from gemmproof.reference.symbolic.interpreter import (
    control,
    integer_rules,
    interpret,
    symbolic_values,
)
from gemmproof.reference.symbolic.interpreter import memory_rules as accesses
from gemmproof.reference.symbolic.interpreter.interpret import CONTROL, RULES, Machine
from gemmproof.reference.symbolic.obligations import coverage, in_bounds, indices, product
from gemmproof.reference.symbolic.obligations.indices import PROVED, Verdict
from gemmproof.reference.symbolic.terms import Poly, eq, le, lt, symbol, term, walk

PROOF = Verdict(PROVED, "", None)
DIVIDE_DIGITS = terms._divide_digits
FOLLOWS = solver.Solver.follows
RECALL = solver.Solver.recall
BLOCKS = Machine.blocks


def keep_all(self, access):
    self.accesses.append(access)


def edges_swapped(self, blocks, frame):
    for block in blocks:
        block.ops[-1].targets = block.ops[-1].targets[::-1]
    try:
        BLOCKS(self, blocks, frame)
    finally:
        for block in blocks:
            block.ops[-1].targets = block.ops[-1].targets[::-1]


def over_its_place(x, divisor):
    factor = next((c for m, c in x.terms.items() if m and 1 < c < divisor), 0)
    if not factor or divisor % factor:
        return DIVIDE_DIGITS(x, divisor)
    above = Poly({m: c // factor for m, c in x.terms.items() if c % factor == 0})
    below = Poly({m: c for m, c in x.terms.items() if c % factor})
    tiles = divisor // factor
    return terms.make("floordiv", above, tiles), factor * terms.make("mod", above, tiles) + below


def else_without_not(machine, op, frame):
    condition = machine.bools(frame.values[op.operands[0]]).cond
    results = []
    for region in op.regions:
        with machine.under(condition):
            results.append(machine.region(region, frame))
    pairs = zip(*results, strict=True) if op.types else ()
    return [interpret.choose(machine, condition, x, y) for x, y in pairs]


def swapped(function):
    return lambda machine, cond, x, y: function(machine, cond, y, x)


def defining(kind, changed):
    """`define` with other conditions for one kind of atom."""
    original = lemmas.define
    return lambda atom: changed(atom) if atom.kind == kind else original(atom)


def no_bound_of_remainders(x, d):
    q, r = (term(terms.Atom(kind, x, d)) for kind in ("floordiv", "mod"))
    yield eq(x, q * d + r)


def negative_remainders(x, d):
    q, r = (term(terms.Atom(kind, x, d)) for kind in ("div", "rem"))
    yield from (eq(x, q * d + r), le(0, r), lt(r, d))


def at_the_same_trip(what, swaps, *memo):
    if len(swaps) == 1:
        ((atom, value),) = swaps.items()
        if value == term(atom) - 1:
            return what
    return SUBSTITUTE(what, swaps, *memo)


def one_trip_more(machine, init, carried, after, trip, trips):
    return FINISH(machine, init, carried, after, trip, trips + 1)


def one_late(*given):
    lanes = RANGE(*given)
    return lanes.map(lambda x: x + 1, lanes.shape)


def nothing_left(offset, shape, strides):
    digits = [term(0)] * len(shape)
    rest = offset
    for axis, stride in enumerate(strides):
        digits[axis], rest = indices._divide(rest, stride)
    return tuple(digits)


def any_factor(factors, *rest, **named):
    wrong = (*factors, *(-x for x in factors))
    return LEMMAS(wrong, *rest, **named)


def aimed_at_all(goal, conds, *rest):
    return AIM(goal, conds, {x for cond in conds for x in walk(cond)})


def all_casts_stripped(value, *rest):
    while value.kind == "cast":
        value = value.parts[0]
    return CONTRACTIONS(value, *rest)


def precise(value, contents, product, *rest):
    return CONTRACTIONS(value, contents, replace(product, truncates=True), *rest)


SUBSTITUTE, FINISH = control.substitute, control._finish
LEMMAS, AIM = lemmas._Lemmas, lemmas.aim
CONTRACTIONS, COMPUTE = product.find_contractions, integer_rules.compute
BOUNDS, ONCE, LANES, HINTS = memory_use.BOUNDS, memory_use.ONCE, memory_use.LANES, memory_use.HINTS
EXACT = exact_values.EXACT
agrees, unproved = checks.agrees, checks.unproved

# the rule, its owner and name, its replacement, and the check that notices
MUTATIONS = {
    "remainders without r < d": (
        lemmas, "_define_floor", no_bound_of_remainders, checks.definitions_hold),
    "remainders of negatives are positive": (
        lemmas, "_define_truncated", negative_remainders, checks.definitions_hold),
    "nothing says that a least is one of two": (
        lemmas, "define", defining("min", lambda atom: iter(())), checks.definitions_hold),
    "a flag may be either": (
        lemmas, "define", defining("flag", lambda atom: iter(())), checks.definitions_hold),
    "min for max": (
        terms.OPERATIONS, "min", terms.OPERATIONS["max"], checks.terms_are_what_they_say),
    "choices swapped": (
        terms.OPERATIONS, "choice", lambda c, x, y: terms.np.where(c, y, x),
        checks.terms_are_what_they_say),
    "flags inverted": (
        terms.OPERATIONS, "flag", lambda cond: terms.np.where(cond, 0, 1),
        checks.terms_are_what_they_say),
    "mod of negatives towards zero": (
        terms.OPERATIONS, "mod", terms.OPERATIONS["rem"], checks.terms_are_what_they_say),
    "the largest remainder off by one": (
        terms, "_most", lambda kind, args: 1 if kind == "flag" else
        args[1].constant - 2 if kind == "mod" and args[1].constant else None,
        checks.terms_are_what_they_say),
    "what is at most the divisor is its own remainder": (
        Poly, "most", property(lambda self: 1 if self.is_natural else None),
        checks.terms_are_what_they_say),
    "comparisons let equals in": (
        symbolic_values, "lt", lambda x, y: le(x, y), checks.comparisons_are_of_their_sign),
    "negatives are small without sign": (
        symbolic_values, "every", lambda conds: list(conds)[-1],
        checks.comparisons_are_of_their_sign),
    "an inserted axis shifts no lane": (
        integer_rules, "insert_axis",
        lambda value, axis: replace(value, shape=(*value.shape[:axis], 1, *value.shape[axis:])),
        checks.lanes_move_as_arrays_do),
    "axes permuted the other way": (
        integer_rules, "permute",
        lambda value, order: PERMUTE(value, tuple(map(order.index, range(3)))),
        checks.lanes_move_as_arrays_do),
    "reshaped in another order": (
        integer_rules, "reshape", lambda value, shape: RESHAPE(PERMUTE(value, (2, 1, 0)), shape),
        checks.lanes_move_as_arrays_do),
    "lemmas multiply by what may be negative": (
        lemmas, "_Lemmas", any_factor, checks.lemmas_are_true),
    "aimed lemmas multiply by what may be negative": (
        lemmas, "aim", aimed_at_all, checks.lemmas_are_true),
    "quotients of negatives are rounded up": (
        terms, "_divide_negative", lambda x, d: (-terms.make("floordiv", -x, d), term(0)),
        checks.terms_are_what_they_say),
    "whatever is doubted follows": (
        solver.Solver, "_pick", lambda self, writer, facts, doubted: doubted,
        checks.solver_is_no_optimist),
    "what a kernel computes has the type that it needs": (
        integer_rules, "require_fit", lambda *given: None,
        unproved("widened_too_late", memory_use.FIT)),
    "a loop runs without trips": (
        Machine, "under", lambda self, cond: nullcontext(),
        checks.proved("last_column_of_its_own", BOUNDS, layouts="any")),
    "blocks of the copy engine begin anywhere": (
        accesses, "ALIGNMENT", 1, unproved("read_from_the_second_column", HINTS, layouts="any")),
    "rows that it stores to end anywhere": (
        accesses, "ALIGNMENT", 1, unproved("stored_past_rows", HINTS, layouts="any")),
    "rows are never padded": (
        coverage, "is_whole", lambda view: True, unproved("copied_through_padded_rows", ONCE)),
    "whatever is between rows is theirs": (
        in_bounds, "is_dense", lambda tensor: True, unproved(
            "padding_read", BOUNDS, layouts="any", K="1..")),
    "no size is 0": (
        domain, "_list_sizes", lambda contract: iter([
            {x: symbol(x, is_natural=True, least=1) for x in domain._list_axes(contract)}]),
        unproved("nothing_stored_without_k", ONCE)),
    "an unknown answer is yes": (
        solver.Solver, "follows", lambda self, *conds: solver.YES
        if FOLLOWS(self, *conds) != solver.NO else solver.NO, checks.solver_is_no_optimist),
    "all is ruled out": (
        solver.Solver, "is_ruled_out", lambda self, conds: True, checks.solver_is_no_optimist),
    "a bound says a stronger one": (
        solver, "is_said", lambda goal, given: goal.kind == "le", checks.solver_is_no_optimist),
    "what was proved of another kernel": (
        solver.Solver, "remembers", lambda self, *asked: True,
        unproved("padding_read", BOUNDS, layouts="any", K="1..")),
    "an answer of another contract": (
        solver.Solver, "recall", lambda self, what, decide, *conds: self.proved[what]
        if what in self.proved else self.proved.setdefault(what, decide()),
        checks.solver_is_no_optimist),
    "what names a solver's own symbol is kept": (
        solver.Solver, "recall", lambda self, what, decide, *conds: RECALL(self, what, decide),
        checks.solver_is_no_optimist),
    "a number of tiles is small": (
        lemmas.Knowledge, "_find_most", lambda self, size: 1, checks.solver_is_no_optimist),
    "a digit that reaches over its place": (
        terms, "_divide_digits", over_its_place, checks.terms_are_what_they_say),
    "what is left of an offset is dropped": (
        indices, "locate", nothing_left, checks.indices_are_of_their_offset),
    "an index by the wrong stride": (
        indices, "_divide", lambda whole, stride: (whole, term(0)),
        checks.indices_are_of_their_offset),
    "ranges begin one late": (
        RULES, "tt.make_range", one_late,
        agrees("branches")),
    "min for max in kernels": (
        integer_rules, "compute", lambda name, x, y: COMPUTE(
            {"arith.minsi": "arith.maxsi"}.get(name, name), x, y),
        agrees("carried_from_trip_to_trip")),
    "an if whose else is not negated": (
        CONTROL, "scf.if", else_without_not, agrees("branches")),
    "edges of a branch swapped": (Machine, "blocks", edges_swapped, agrees("branches")),
    "atomics are not kept": (
        RULES, "tt.atomic_rmw", lambda *given: None, agrees("half_of_it_zeroed")),
    "accesses of trial runs are kept": (Machine, "keep", keep_all, agrees("branches")),
    "a value of the same trip": (
        control, "substitute", at_the_same_trip, agrees("carried_from_trip_to_trip")),
    "behind the loop one trip late": (
        control, "_finish", one_trip_more, agrees("carried_from_trip_to_trip")),
    "what a trip adds is forgotten": (
        symbolic_values.LoopVariable, "fill", lambda self, added: self.init,
        agrees("carried_from_trip_to_trip")),
    "any step is the same for all trips": (
        control, "_is_constant", lambda *given: True, agrees("carried_from_trip_to_trip")),
    "32-bit steps are forgotten": (
        prove, "judge_fit", lambda *given, **named: iter(()),
        unproved("k_offset_of_b_in_32_bits", memory_use.FIT)),
    "whatever is added to is 0": (
        stored_results, "is_zeroed", lambda *given: True,
        unproved("half_of_it_zeroed", EXACT, deterministic=False)),
    "lanes rest on no bounds": (prove, "RESTS", {}, unproved("no_k_mask_on_b", LANES)),
    "a k that does not come": (
        product, "_judge_all", lambda *given: PROOF, unproved("k_mask_loses_the_last", EXACT)),
    "casts between are exact": (
        product, "find_contractions", all_casts_stripped, unproved("result_rounded_twice", EXACT)),
    "tf32 is exact": (
        product, "find_contractions", precise,
        unproved("single_precision_by_default", EXACT, formats=("fp32",))),
}  # fmt: skip
PERMUTE, RESHAPE, RANGE = integer_rules.permute, integer_rules.reshape, RULES["tt.make_range"]
CHECKS = {name: check for name, (*_, check) in MUTATIONS.items()}
# the same check of several rules is one
WHOLE = {(getattr(check, "__closure__", None) and name) or check.__name__: check
         for name, check in CHECKS.items()}  # fmt: skip


@pytest.mark.lane("full")
@pytest.mark.parametrize("name", WHOLE)
def test_a_check_passes_as_it_is(name):
    WHOLE[name]()


@pytest.mark.lane("full")
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_noticed(name, monkeypatch):
    checks.break_rule(monkeypatch, *MUTATIONS[name])

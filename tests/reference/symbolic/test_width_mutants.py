"""Rules about widths, lanes, limits and host code: each one, broken, is noticed by a check."""

import re
import types

import numpy as np
import pytest
from tests.corpora.tiled import plain
from tests.reference.symbolic import engine_checks as checks

from gemmproof.properties.contract import Contract
from gemmproof.properties.judges import exact_values, memory_use
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import cross_check, domain, prove
from gemmproof.properties.proof.cross_check import PathComparison
from gemmproof.properties.proof.workspaces import ADDED, StoredResults
from gemmproof.reference.symbolic import concrete, lemmas, terms, tracing
from gemmproof.reference.symbolic.concrete import IterationSpace
from gemmproof.reference.symbolic.interpreter import (
    control,
    integer_rules,
    interpret,
    memory_rules,
    symbolic_values,
)
from gemmproof.reference.symbolic.interpreter.interpret import RULES, Machine
from gemmproof.reference.symbolic.obligations import in_bounds, product, vectors
from gemmproof.reference.symbolic.terms import TRUE, evaluate, le, symbol, term
from gemmproof.reference.symbolic.tracing import host_values, replay, trace, traced_launches
from gemmproof.reference.ttir import FLIP

BOUNDS, ONCE, LANES = memory_use.BOUNDS, memory_use.ONCE, memory_use.LANES
FIT, HINTS, EXACT = memory_use.FIT, memory_use.HINTS, exact_values.EXACT
SOME = dict.fromkeys(("M", "N", "K"), "1..")
unproved, not_falsely_proved = checks.unproved, checks.not_falsely_proved
CLAIM, COMPARE, FILL = Machine.claim, RULES["arith.cmpi"], symbolic_values.LoopVariable.fill
REST, MAGNITUDE, MAKE = memory_rules._rest, integer_rules._find_magnitude, trace.make
JUDGE, JUDGE_ONE, ASSUME = prove._judge, StoredResults._judge_one, prove._assume_spans
AS_CONCRETE, WANTED = host_values.as_concrete, prove.WantedProduct
IS_CAUGHT = host_values._is_caught


# -- replacements ----------------------------------------------------------------------------------
def without_claim(text):
    def claim(self, kind, about, cond, number=None):
        if about != text:
            CLAIM(self, kind, about, cond, number)

    return claim


def ordered_alone(machine, op, values):
    """Require that operands fit only where they are ordered."""
    if op.keywords[0] not in ("eq", "ne"):
        return COMPARE(machine, op, values)
    require_fit, integer_rules.require_fit = integer_rules.require_fit, lambda *given: None
    try:
        return COMPARE(machine, op, values)
    finally:
        integer_rules.require_fit = require_fit


def still_given(self, added):
    value = FILL(self, added)
    if isinstance(value, symbolic_values.Ints):
        return symbolic_values.replace(value, is_given=self.init.is_given)
    return value


def in_any_lane(value, carried):
    if value.kind == "hole" and value.word == carried.word:
        return memory_rules._NOTHING
    return REST(value, carried)


def judge_after_launches(kernel, domain, machines, results, asker, before):
    return JUDGE(kernel, domain, machines, results, asker, asker.whole)


def assume_silently(book, *given):
    named = dict(book.assumed)
    conds = ASSUME(book, *given)
    book.assumed = named
    return conds


def list_all_spans(kernel, path, accesses):
    return [prove._limit_span(kernel, x) for x in prove._list_memories(accesses)]


def count_added(self, *given, **named):
    return (verdict for verdict in JUDGE_ONE(self, *given, **named) if verdict.why != ADDED)


def without(*names):
    """The patches of integers without those of some names."""
    return lambda: tuple(change for change in AS_CONCRETE() if change[1] not in names)


def select_in_step(number, counts):
    return {choice: number % count for choice, count in counts.items()}


def compare_agreeing(*given):
    comparison = cross_check.compare_path(*given)
    return comparison if comparison.difference else PathComparison(1)


class NeverRaised(Exception):
    """An exception that nothing raises."""


# -- checks of single functions --------------------------------------------------------------------
def magnitudes_are_bounds():
    """No number exceeds the bound of its term, and what has none has no bound."""
    machine = Machine({}, (term(1),) * 3)
    x, y = (symbol(name) for name in ("x", "y"))
    make = terms.make
    for number, most in (
        (x - y, 2**31 - 1),
        (3 * x * y, 3),
        (make("min", x, -y), 7),
        (make("max", y - x, x), 7),
        (make("choice", le(x, 0), 9 * x, y), 7),
        (make("choice", le(x, 0), 9 * x, y), 2**31 - 1),
        (make("choice", le(x, 0), y, 9 * x), 7),
        (make("floordiv", 5 * x, 2), 7),
        (make("mod", 7 * x, 5 * y + 1), 7),
    ):
        bound = integer_rules.find_magnitude(machine, number)
        for first in (-most, -1, 1, most):
            for second in (-most, 1, most):
                given = {x.atom: first, y.atom: second}
                value = int(evaluate(number, given))
                assert bound is None or abs(value) <= bound, (number, given)
    for name in ("trip", "address of a", "offset of a"):
        assert integer_rules.find_magnitude(machine, symbol(name)) is None


def limits_are_assumptions():
    """Each proof names the largest sizes and tensors that it is about."""
    kernel = KernelUnderTest("plain", plain, Contract(M="1..4096"))
    named = {"M at most 4096", "N, K at most 65536", "operands and results below 2**31 elements"}
    for proof in prove.prove(kernel).verdicts:
        assert proof.status == "proved"
        assert named <= set(proof.assumptions)


def numbers_have_any_size():
    """Formulas are evaluated exactly beyond 64 bits."""
    x, y = symbol("x"), symbol("y")
    numbers = np.arange(64)
    given = {x.atom: numbers, y.atom: numbers * 0}
    space = IterationSpace(Machine({}, (term(1),) * 3), given, (64,))
    assert (space.evaluate(le(1, 2**60 * x - y)) == (numbers > 0)).all()


# the rule, its owner and name, its replacement, and the check that notices
def caught_at_once(frame):
    """Look at the innermost frame alone."""
    own = {"f_code": frame.f_code, "f_lasti": frame.f_lasti, "f_globals": frame.f_globals}
    return IS_CAUGHT(types.SimpleNamespace(**own, f_locals={}, f_back=None))


def pick_any(machine, op, values):
    """Gather without a look at the index."""
    source, index = values
    axis = op.integer("axis")
    swaps = {lemmas.lane(axis, source.shape[axis]).atom: index.term}
    return symbolic_values.swap_lanes(source, swaps, op.types[0].shape)


MUTATIONS = {
    # -- widths ------------------------------------------------------------------------------------
    "64 bits hold any number": (
        integer_rules, "find_magnitude", lambda *given: 0,
        not_falsely_proved("row_above_48_bits", FIT)),
    "sizes are below 2**10": (
        integer_rules, "SIZES", 2**10, not_falsely_proved("row_above_48_bits", FIT)),
    "trips are few as sizes are": (integer_rules, "_LOOPS", (), magnitudes_are_bounds),
    "addresses are small as sizes are": (
        integer_rules, "_NOT_SIZES", ("?",), magnitudes_are_bounds),
    "any fraction is small": (
        integer_rules, "_find_magnitude", lambda machine, atom:
        1 if atom.kind in ("floordiv", "mod") else MAGNITUDE(machine, atom), magnitudes_are_bounds),
    "one side of a choice bounds both": (
        integer_rules, "_find_magnitude", lambda machine, atom:
        integer_rules.find_magnitude(machine, atom.args[-1])
        if atom.kind in ("min", "max", "choice") else MAGNITUDE(machine, atom),
        magnitudes_are_bounds),
    "negative terms reduce a magnitude": (
        integer_rules, "abs", lambda x: x, magnitudes_are_bounds),
    "an argument is given in every trip": (
        symbolic_values.LoopVariable, "fill", still_given,
        not_falsely_proved("cursor_in_32_bits", FIT)),
    "equal modulo 2**32 is equal": (
        RULES, "arith.cmpi", ordered_alone, unproved("doubled_if_a_product_is_zero", FIT)),
    "unequal modulo 2**32 is unequal": (
        RULES, "arith.cmpi", ordered_alone,
        unproved("stored_unless_a_product_is_zero", ONCE, **SOME)),
    "a shift by any number": (
        Machine, "claim", without_claim("a shift by less than the width"),
        unproved("shifted_by_k", FIT)),
    "an unknown number is the same without its high bits": (
        RULES, "arith.trunci",
        lambda machine, op, values: symbolic_values.replace(
            values[0], bits=op.types[0].dtype.bits),
        unproved("masked_by_its_low_bits", BOUNDS)),
    "quotients of constants are rounded as others": (
        integer_rules, "_claim_rounding", lambda *given: None,
        not_falsely_proved("quotient_of_a_negative_constant", EXACT)),
    "the last step of a loop fits": (
        Machine, "claim", without_claim("the counter of a loop"),
        not_falsely_proved("last_step_wraps", EXACT)),
    "a step fits as the counter before it": (
        control, "fits", lambda *given: TRUE, not_falsely_proved("last_step_wraps", BOUNDS)),
    "windows begin anywhere": (
        Machine, "claim", without_claim("where a window begins"),
        unproved("window_far_away", FIT)),
    "32 bits of a window hold any number": (
        memory_rules, "fits", lambda *given: TRUE, unproved("window_far_away", FIT)),
    "fp32 holds sums of integers": (
        product, "INTEGERS", product.WIDE, not_falsely_proved("int8_sums_in_fp32", EXACT)),
    "integers are small as those of floats": (
        prove, "WantedProduct", lambda shapes, truncates, largest, small:
        WANTED(shapes, truncates, 0, small), not_falsely_proved("int8_sums_in_fp32", EXACT)),
    "fp32 holds all integers of 25 bits": (
        product, "F32_INTEGERS", 2**25, not_falsely_proved("sums_of_1025_bytes_in_fp32", EXACT)),
    "formulas have 64 bits": (concrete, "_is_wide", lambda what: False, numbers_have_any_size),
    # -- lanes -------------------------------------------------------------------------------------
    "a carried number is in its own lanes": (
        memory_rules, "_rest", in_any_lane,
        not_falsely_proved("sums_transposed_by_every_step", EXACT)),
    "no lane of a carried number moves": (
        memory_rules, "_moves", lambda *given: False,
        unproved("undefined_lanes_moved_by_a_loop", LANES)),
    "every operation is lane by lane": (
        interpret, "_is_lanewise", lambda op: True,
        not_falsely_proved("undefined_scales_multiplied", LANES)),
    "a running product has a lane's own numbers": (
        interpret, "_LANEWISE", {*interpret._LANEWISE, "tt.scan"},
        not_falsely_proved("undefined_scales_multiplied", LANES)),
    "numbers of any lane are of their own": (
        Machine, "spread", lambda self, value: value,
        not_falsely_proved("undefined_scales_multiplied", LANES)),
    "what is flipped stays in its lanes": (
        RULES, FLIP, lambda machine, op, values: values[0],
        not_falsely_proved("sums_flipped_by_every_step", EXACT)),
    "what is gathered stays in its lanes": (
        RULES, "tt.gather", lambda machine, op, values: values[0],
        not_falsely_proved("undefined_scales_gathered", LANES)),
    "any index is one of the tile": (
        RULES, "tt.gather", pick_any, not_falsely_proved("scales_gathered_beyond_the_tile", LANES)),
    "the compiler keeps the order of a reshape": (
        RULES, "tt.reshape", lambda machine, op, values:
        integer_rules.reshape(values[0], op.types[0].shape),
        not_falsely_proved("tile_in_any_order", EXACT)),
    # -- limits ------------------------------------------------------------------------------------
    "grids have no limits": (
        Machine, "list_grids", lambda self: iter(()),
        not_falsely_proved("columns_on_the_second_axis", ONCE)),
    "all axes of a grid are long": (
        interpret, "GRID_LIMITS", (2**31 - 1,) * 3,
        not_falsely_proved("columns_on_the_second_axis", ONCE)),
    "a grid is judged after its launch": (
        prove, "_judge", judge_after_launches,
        not_falsely_proved("columns_on_the_second_axis", ONCE)),
    "assumptions about workspaces have no name": (
        prove, "_assume_spans", assume_silently,
        not_falsely_proved("workspace_step_in_32_bits", FIT)),
    "workspaces are below 2**31 elements": (
        prove, "list_spans", list_all_spans,
        not_falsely_proved("workspace_step_in_32_bits", FIT)),
    "atomics store": (
        StoredResults, "_judge_one", count_added,
        not_falsely_proved("columns_beyond_65536_not_added", ONCE)),
    "limits of sizes have no name": (
        domain.Domain, "list_limits", lambda *given: iter(()), limits_are_assumptions),
    "a path without accesses is right": (
        prove, "_has_effect", lambda *given: True, unproved("idle_for_many_rows", BOUNDS)),
    "a path without accesses is one of empty operands": (
        prove, "some", lambda conds: TRUE, unproved("idle_for_many_rows", BOUNDS)),
    # -- environment -------------------------------------------------------------------------------
    "tuners choose in step": (
        trace, "select", select_in_step, not_falsely_proved("parts_of_two_tuners", EXACT)),
    "as many configurations as the tuner with most": (
        domain, "count_combinations", lambda counts: max(counts.values(), default=1),
        not_falsely_proved("parts_of_two_tuners", EXACT)),
    "one number of multiprocessors": (
        prove, "_prove_for_others", lambda *given: "",
        not_falsely_proved("steps_of_four_multiprocessors", ONCE)),
    "no other GPU has another number": (
        prove, "list_other_counts", lambda target: (),
        not_falsely_proved("steps_of_four_multiprocessors", ONCE)),
    "no wrapper asks for the number": (
        prove, "asks_sms", lambda *given: False,
        not_falsely_proved("steps_of_four_multiprocessors", ONCE)),
    # -- vectors -----------------------------------------------------------------------------------
    "every vector is aligned": (
        in_bounds, "are_aligned", lambda *given: True,
        not_falsely_proved("wrapped_rows_said_to_be_a_run", HINTS)),
    "vectors begin at multiples": (
        vectors, "_is_aligned", lambda *given: True,
        not_falsely_proved("wrapped_rows_said_to_be_a_run", HINTS)),
    "every address is a multiple": (
        vectors, "_is_multiple", lambda *given: True,
        not_falsely_proved("wrapped_rows_said_to_be_a_run", HINTS)),
    "vectors have one element": (
        vectors, "_list_widths", lambda widening: [],
        not_falsely_proved("wrapped_rows_said_to_be_a_run", HINTS)),
    "hints widen nothing": (
        vectors, "_find", lambda *given: [],
        not_falsely_proved("wrapped_rows_said_to_be_a_run", HINTS)),
    # -- host code ---------------------------------------------------------------------------------
    "the representation of a size is the symbol's": (
        tracing, "as_concrete", without("__repr__"), unproved("if_representation", EXACT)),
    "a formatted size is the symbol": (
        tracing, "as_concrete", without("__format__"), unproved("if_formatted", EXACT)),
    "the text of a size is only shown": (
        host_values, "is_shown", lambda *given: True, unproved("if_text", EXACT)),
    "nobody reads a message that is caught": (
        host_values, "_is_caught", lambda frame: False, unproved("if_message_is_short", EXACT)),
    "a message is caught by its own function alone": (
        host_values, "_is_caught", caught_at_once,
        unproved("if_message_of_a_check_is_short", EXACT)),
    "torch asks for the text of a size": (
        host_values, "_find_asker", lambda frame: None, unproved("if_text", EXACT)),
    "a number made of a size is only shown": (
        tracing, "converts_to_show", lambda: True, unproved("if_number_is_large", EXACT)),
    "a size is in no table": (
        tracing, "as_concrete", without("__hash__"), unproved("if_key", EXACT)),
    "a size is no integer": (
        tracing, "as_concrete", without("isinstance"), unproved("if_instance", EXACT)),
    "the type of a size is the symbol's": (
        tracing, "as_concrete", without("type"), unproved("if_type", EXACT)),
    "a size is rounded to itself": (
        tracing, "as_concrete", without("__round__"), unproved("if_rounded_to_billions", EXACT)),
    "a size is not pickled": (
        tracing, "as_concrete", without("__reduce_ex__"), unproved("if_pickled", EXACT)),
    "a size is no JSON": (
        tracing, "as_concrete", without("default"), unproved("if_json", EXACT)),
    "a size is not inverted": (
        tracing, "as_concrete", without("__invert__"), unproved("if_inverted", EXACT)),
    "a size is not divided with its rest": (
        tracing, "as_concrete", without("__divmod__"), unproved("if_divided", EXACT)),
    "a size divides no number with its rest": (
        tracing, "as_concrete", without("__rdivmod__"), unproved("if_dividing", EXACT)),
    "a size is not raised to a power modulo another": (
        tracing, "as_concrete", without("__pow__"), unproved("if_raised_modulo_7", EXACT)),
    "a size has no numerator": (
        tracing, "as_concrete", without("numerator"), unproved("if_numerator", EXACT)),
    "a size has no bits": (
        tracing, "as_concrete", without("bit_count"), unproved("if_bits", EXACT)),
    "a comparison is not shifted": (
        tracing, "as_concrete", without("__lshift__"), unproved("if_bool_is_shifted", EXACT)),
    "a divisor is 0 only in the traced run": (
        tracing, "as_concrete", without("__floordiv__", "__rfloordiv__"),
        unproved("if_divisor_is_zero", EXACT)),
    "the address of an allocation is that of no memory": (
        tracing, "as_concrete", without("data_ptr"), unproved("if_allocation_is_aligned", EXACT)),
    "a distance is a difference": (
        trace, "make", lambda kind, x, *y: x if kind == "max" and y == (-x,) else MAKE(kind, x, *y),
        unproved("if_far_from_77", EXACT)),
    "what reading an element raises is the wrapper's": (
        traced_launches, "DataDependentOutputException", NeverRaised,
        unproved("if_element_is_zero", EXACT)),
    "what a stand-in lacks is refused by the wrapper": (
        tracing, "_STAND_INS", re.compile("never"),
        unproved("refuses_many_rows_as_a_stand_in", EXACT)),
}  # fmt: skip

# the same of the second lines of defence, of which the other one is off
COMPARED = {
    "no path is compared with the simulator": (
        prove, "compare_path", lambda *given: PathComparison(1),
        unproved("takes_another_grid", ONCE)),
    "a difference leaves nothing open": (
        prove, "_cross_check", lambda *given: None, unproved("takes_another_grid", ONCE)),
    "a call that differs is not one": (
        cross_check, "_compare", lambda *given: "", unproved("takes_another_grid", ONCE)),
    "a grid is all that is compared": (
        cross_check, "_compare_accesses", lambda *given: "", unproved("another_constant", ONCE)),
    "a path that is never compared is right": (
        prove, "compare_path", compare_agreeing,
        unproved("takes_another_grid_on_a_far_path", ONCE, **SOME)),
}  # fmt: skip
REPLAYED = {
    "no path is called again": (
        domain, "find_difference", lambda *given: None, unproved("takes_another_grid", ONCE)),
    "a path is called again at its own sizes alone": (
        domain, "MOST_REPLAYS", 1, unproved("takes_another_grid_for_many_rows", ONCE)),
    "no other sizes take a path": (
        domain, "_OTHERS", (), unproved("takes_another_grid_for_many_rows", ONCE)),
    "launches are not compared": (
        replay, "_compare_launches", lambda *given: None, unproved("takes_another_grid", ONCE)),
    "numbers are not compared": (
        replay._Comparison, "expect", lambda *given: None, unproved("takes_another_grid", ONCE)),
    "arguments are not compared": (
        replay._Comparison, "compare", lambda *given: None, unproved("another_constant", ONCE)),
    "memory is not compared": (
        replay._Comparison, "_compare_views", lambda *given: None,
        unproved("another_result", ONCE)),
    "the number of launches is not compared": (
        replay, "_compare", lambda *given: None, unproved("one_launch_more", ONCE)),
}  # fmt: skip


TABLES = (MUTATIONS, COMPARED, REPLAYED)


@pytest.mark.lane("full")
@pytest.mark.parametrize("name", [name for table in TABLES for name in table])
def test_a_broken_rule_is_noticed_and_the_whole_one_is_not(name, monkeypatch):
    """The rules are tested without the trials and comparisons that would catch a wrong proof."""
    table = next(table for table in TABLES if name in table)
    owner, attribute, broken, check = table[name]
    monkeypatch.setattr(prove, "seek", lambda *given: {})
    if table is not COMPARED:
        monkeypatch.setattr(prove, "compare_path", lambda *given: PathComparison(1))
    if table is not REPLAYED:
        monkeypatch.setattr(domain, "find_difference", lambda *given: None)
    check()
    if isinstance(owner, dict):
        monkeypatch.setitem(owner, attribute, broken)
    else:
        # `abs` is Python's own in the module
        monkeypatch.setattr(owner, attribute, broken, raising=attribute != "abs")
    monkeypatch.setattr(terms, "_atoms", {})  # atoms that were made before know their old sizes
    with pytest.raises(AssertionError):
        check()

"""Terms are simplified when they are made: their values stay those of the operation."""

import gc
import operator
import os
import random
import subprocess
import sys
import weakref

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gemmproof.reference.symbolic.interpreter.symbolic_values import ARITHMETIC, compare, compute
from gemmproof.reference.symbolic.lemmas import define, lane
from gemmproof.reference.symbolic.solver import NO, YES, Solver, Writer, ask, make_solver
from gemmproof.reference.symbolic.terms import (
    OPERATIONS,
    Cond,
    eq,
    evaluate,
    every,
    flag,
    le,
    lt,
    make,
    own_atoms,
    some,
    substitute,
    symbol,
    term,
    walk,
)

SIZES = (2, 16, 64)
DRAWS = 400  # terms of each kind


def draw_term(rng):
    """A sum of lanes and a size, some of them counted backwards."""
    total = rng.choice((0, 1, 15, 63, 128)) + symbol("M", is_natural=True) * rng.choice((0, 0, 32))
    for axis, size in enumerate(SIZES):
        total = total + lane(axis, size) * rng.choice((-32, -2, -1, 0, 1, 2, 16))
    return total


def draw_values(seed, count, most):
    """So many values of each lane, and of M below `most`."""
    rng = np.random.default_rng(seed)
    values = {lane(i, n).atom: rng.integers(0, n, count) for i, n in enumerate(SIZES)}
    return values | {symbol("M", is_natural=True).atom: rng.integers(0, most, count)}


@pytest.mark.parametrize("kind", ["floordiv", "mod", "div", "rem", "min", "max", "and", "shr"])
def test_a_simplified_term_is_what_the_operation_gives(kind):
    rng = random.Random(kind)
    values = draw_values(7, 64, 1000)
    for _ in range(DRAWS):
        x = draw_term(rng)
        y = draw_term(rng) if kind in ("min", "max") else rng.choice((1, 3, 4, 7, 16, 31, 32))
        given = evaluate(y, values) if kind in ("min", "max") else y
        plain = OPERATIONS[kind](evaluate(x, values) + np.zeros(64, np.int64), given)
        assert (evaluate(make(kind, x, y), values) == plain).all(), (x, y)


@pytest.mark.parametrize("kind", ["and", "or", "xor"])
def test_low_bits_and_no_bits_of_bits(kind):
    rng = random.Random(kind)
    values = draw_values(9, 64, 9)
    zeros = 0
    for _ in range(DRAWS):
        x, y = draw_term(rng), draw_term(rng)
        plain = OPERATIONS[kind](evaluate(x, values), evaluate(y, values)) + np.zeros(64, np.int64)
        low = make("mod", make(kind, x, y), 16)
        assert (evaluate(low, values) == plain % 16).all(), (x, y)
        for simplified, n in ((low, plain % 16), (make(kind, x, y), plain)):
            is_zero = evaluate(eq(simplified, 0), values) + np.zeros(64, np.bool_)
            assert (is_zero == (n == 0)).all(), (x, y)
            zeros += int(is_zero.sum())
    assert zeros


def test_bounds_that_are_plain_hold():
    rng = random.Random(1)
    values = draw_values(8, 4000, 3)
    bounded = 0
    for _ in range(DRAWS):
        x = draw_term(rng)
        x_values = evaluate(x, values)
        assert not x.is_natural or np.min(x_values) >= 0, x
        assert x.most is None or np.max(x_values) <= x.most, x
        bounded += x.most is not None
    assert bounded > 20


# -- drawn terms ---------------------------------------------------------------------------------
# A tree is a number, the name of a symbol, or the name of an operation with trees.
SYMBOLS = {"M": st.integers(0, 70), "N": st.integers(0, 70), "i": st.integers(0, 15)}
SYMBOLS |= {"x": st.integers(-70, 70), "y": st.integers(-3, 3)}


def divide(x, d):
    """Divide as C does, rounded towards zero."""
    return abs(x) // abs(d) * (1 if (x < 0) == (d < 0) else -1)


INTEGERS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "div": divide,
    "rem": lambda x, d: x - divide(x, d) * d,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shr": operator.rshift,
    "choice": lambda cond, x, y: x if cond else y,
    "flag": int,
}
CONDITIONS = {
    "le": operator.le,
    "lt": operator.lt,
    "eq": operator.eq,
    "ne": operator.ne,
    "both": lambda x, y: x and y,
    "either": lambda x, y: x or y,
    "not": operator.not_,
}
MAKERS = {
    "le": le,
    "lt": lt,
    "eq": eq,
    "ne": lambda x, y: ~eq(x, y),
    "both": lambda x, y: every((x, y)),
    "either": lambda x, y: some((x, y)),
    "not": operator.invert,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "flag": flag,
}
NUMBERS = st.sampled_from([0, 1, 2, 3, 16, 31, 32, 64, -1, -2, -7, -32]) | st.integers(-70, 70)
LEAVES = NUMBERS | st.sampled_from([*SYMBOLS])
BINARY = [name for name in INTEGERS if name not in ("shr", "choice", "flag")]
# a quotient of a sum by a number is simplified most
STEPS = st.sampled_from([1, 15, 16, 32, 64, -1, -3, -16, -64])
SCALED = st.tuples(st.just("mul"), st.sampled_from([*SYMBOLS]), STEPS)
SUMS = st.tuples(st.just("add"), SCALED, SCALED | STEPS)
DIVISORS = st.sampled_from([16, 32, 48, 64, 3, -16])
USUAL = st.tuples(st.sampled_from(["floordiv", "mod", "div", "rem"]), SUMS, DIVISORS)


def extend(trees):
    compared = st.tuples(st.sampled_from(["le", "lt", "eq", "ne"]), trees, trees)
    joined = st.tuples(st.sampled_from(["both", "either"]), compared, compared)
    conds = compared | joined | st.tuples(st.just("not"), joined)
    return (
        st.tuples(st.sampled_from(BINARY), trees, trees)
        | st.tuples(st.just("shr"), trees, st.integers(0, 6) | st.just("i"))
        | st.tuples(st.just("choice"), conds, trees, trees)
        | st.tuples(st.just("flag"), conds)
    )


TREES = st.recursive(LEAVES | USUAL, extend, max_leaves=7)
CONDS = st.tuples(st.sampled_from(["le", "lt", "eq", "ne"]), TREES, TREES)
DRAWN = st.fixed_dictionaries(SYMBOLS)


def make_symbols():
    """The term of each symbol; i is a lane of 16."""
    naturals = {name: symbol(name, is_natural=True) for name in "MN"}
    return naturals | {name: symbol(name) for name in "xy"} | {"i": lane(0, 16)}


def build(tree, symbols):
    """Return a tree as gemmproof makes it."""
    if not isinstance(tree, tuple):
        return symbols[tree] if isinstance(tree, str) else term(tree)
    name, *parts = tree
    parts = [build(part, symbols) for part in parts]
    return MAKERS[name](*parts) if name in MAKERS else make(name, *parts)


def calculate(tree, values):
    """Return the value of a tree in Python's own integers."""
    if not isinstance(tree, tuple):
        return values[tree] if isinstance(tree, str) else tree
    name, *parts = tree
    return {**INTEGERS, **CONDITIONS}[name](*(calculate(part, values) for part in parts))


def calculate_or_reject(tree, values):
    """The same; a division by zero has no value, and gemmproof claims that there is none."""
    try:
        return calculate(tree, values)
    except ZeroDivisionError:
        assume(False)


def assign(symbols, values):
    return {x.atom: values[name] for name, x in symbols.items()}


@settings(max_examples=200)
@given(tree=TREES | CONDS, values=DRAWN, names=st.sets(st.sampled_from([*SYMBOLS])))
def test_a_drawn_term_has_the_value_of_pythons_integers(tree, values, names):
    plain = calculate_or_reject(tree, values)
    with own_atoms():
        symbols = make_symbols()
        what, numbers = build(tree, symbols), assign(symbols, values)
        assert evaluate(what, numbers) == plain
        arrays = {atom: np.array([n, n]) for atom, n in numbers.items()}
        assert np.all(evaluate(what, arrays) == plain)
        some_known = {symbols[name].atom: term(values[name]) for name in names}
        assert evaluate(substitute(what, some_known), numbers) == plain
        if isinstance(what, Cond):
            assert evaluate(~what, numbers) != plain
        else:
            assert not what.is_natural or plain >= what.least
            assert what.most is None or plain <= what.most


@settings(max_examples=300)
@given(x=SUMS, divisor=DIVISORS, values=DRAWN)
@example(x=("add", "i", 1), divisor=16, values={"M": 0, "N": 0, "i": 15, "x": 0, "y": 0})
def test_a_drawn_quotient_and_its_remainder_are_those_of_integers(x, divisor, values):
    with own_atoms():
        symbols = make_symbols()
        for kind in ("floordiv", "mod", "div", "rem"):
            what = build((kind, x, divisor), symbols)
            got = evaluate(what, assign(symbols, values))
            assert got == calculate((kind, x, divisor), values), kind


@settings(max_examples=150)
@given(tree=TREES, values=DRAWN)
def test_what_defines_a_drawn_term_holds_at_its_value(tree, values):
    calculate_or_reject(tree, values)
    with own_atoms():
        symbols = make_symbols()
        numbers = assign(symbols, values)
        for atom in walk(build(tree, symbols)):
            for cond in define(atom):
                assert evaluate(cond, numbers), (atom, cond)


@settings(max_examples=60)
@given(tree=CONDS, values=DRAWN, names=st.sets(st.sampled_from([*SYMBOLS])))
def test_z3_and_the_solver_never_contradict_a_drawn_condition(tree, values, names):
    holds = calculate_or_reject(tree, values)
    with own_atoms():
        symbols = make_symbols()
        goal = build(tree, symbols)
        everything, known = (
            [eq(symbols[name], values[name]) for name in several] for several in (SYMBOLS, names)
        )
        right, wrong = (goal, ~goal) if holds else (~goal, goal)
        solver, z3_ = Solver(), make_solver(500_000)
        z3_.from_string(Writer(exact=True).write(solver.knowledge.close([right, *everything])))
        assert ask(z3_) != "unsat"
        assert solver.follows(wrong, *known) != YES
        if is_pinned(goal):
            assert solver.follows(right, *everything) != NO


# -- Triton's operations -------------------------------------------------------------------------
SIGNED = {"divsi": "div", "remsi": "rem", "minsi": "min", "maxsi": "max", "floordivsi": "floordiv"}
SIGNED |= {"andi": "and", "ori": "or", "xori": "xor", "shrsi": "shr"}
SIGNED |= {"addi": "add", "subi": "sub", "muli": "mul"}
UNSIGNED = {"divui": "div", "remui": "rem", "minui": "min", "maxui": "max", "shrui": "shr"}
ORDERS = ("lt", "le", "gt", "ge")
PREDICATES = {"eq": "eq", "ne": "ne"} | {f"{sign}{name}": name for sign in "su" for name in ORDERS}
WIDTH = 2**64


@settings(max_examples=60)
@given(x=TREES, y=LEAVES, values=DRAWN)
def test_an_operation_of_triton_has_its_value_or_none(x, y, values):
    first, second = calculate_or_reject(x, values), calculate(y, values)
    with own_atoms():
        symbols = make_symbols()
        numbers = assign(symbols, values)
        for name in ARITHMETIC:
            plain = name.removeprefix("arith.")
            if "div" in plain or "rem" in plain:
                assume(second != 0)
            if "sh" in plain and not 0 <= second < 16:
                continue
            number = compute(name, build(x, symbols), build(y, symbols))
            if number is None:
                assert plain == "shli" or plain in UNSIGNED
                continue
            got = evaluate(number, numbers)
            if plain == "shli":
                assert got == first << second
            elif plain in SIGNED:
                assert got == calculate((SIGNED[plain], first, second), {}), name
            else:
                unsigned = (first % WIDTH, second % WIDTH)
                assert got == calculate((UNSIGNED[plain], *unsigned), {}), name


@settings(max_examples=60)
@given(x=TREES, y=TREES, values=DRAWN)
def test_a_comparison_of_triton_is_true_where_that_of_integers_is(x, y, values):
    first, second = calculate_or_reject(x, values), calculate_or_reject(y, values)
    with own_atoms():
        symbols = make_symbols()
        for name, function in PREDICATES.items():
            cond = compare(name, build(x, symbols), build(y, symbols))
            if cond is None:
                assert name[0] == "u"
                continue
            got = evaluate(cond, assign(symbols, values))
            operands = (first % WIDTH, second % WIDTH) if name[0] == "u" else (first, second)
            assert got == getattr(operator, function)(*operands), name


def is_pinned(cond):
    """Return whether the definitions of all atoms leave them one value."""
    free = ("and", "or", "xor", "shr")
    quotients = ("floordiv", "mod", "div", "rem")
    return all(
        x.kind not in free and (x.kind not in quotients or (x.args[1].constant or 0) > 0)
        for x in walk(cond)
    )


def test_a_quotient_of_a_quotient_is_freed_at_once():
    """The definition of each names it: the garbage collector frees them, in one collection."""
    inner = make("floordiv", symbol("rows", is_natural=True) + 4, 7)
    outer = make("floordiv", inner + 2, 5)
    atoms = [inner.atom, outer.atom]
    for atom in atoms:
        assert any(atom in cond.term.atoms for cond in define(atom) if cond.term is not None)
    alive = list(map(weakref.ref, atoms))
    del inner, outer, atoms, atom
    gc.collect()
    assert [x() for x in alive] == [None, None]


def test_the_hash_of_a_condition_is_the_same_in_every_process():
    """It orders sets of conditions, and with them what z3 is asked."""
    code = """
from gemmproof.reference.symbolic.terms import FALSE, TRUE, eq, le, symbol
M, N = symbol("M"), symbol("N")
print([hash(x) for x in (FALSE, TRUE, eq(M, 0), le(M, N) & eq(N, 1), le(M, N) | eq(N, 1))])
"""
    seeds = (dict(os.environ, PYTHONHASHSEED=seed) for seed in "12")
    runs = [subprocess.check_output([sys.executable, "-c", code], env=env) for env in seeds]
    assert runs[0] == runs[1]

"""Requirements on the rules of the prover: checks that pass, and fail where a rule is wrong."""

import random

import numpy as np
import pytest
from tests.corpora import misleading_hints, product_kernels, product_sums, product_wrappers
from tests.corpora.false_proofs.table import ROWS
from tests.corpora.mutants.table import MUTANTS
from tests.corpora.no_false_alarm.table import KERNELS
from tests.reference.symbolic import agreement
from tests.reference.symbolic.wrong import (
    sneaky_kernels,
    unsound_addresses,
    unsound_hosts,
    unsound_kernels,
    unsound_widths,
)
from tests.support.wide import wide

from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import PROVED
from gemmproof.properties.proof import prove as proving
from gemmproof.properties.proof.cross_check import PathComparison
from gemmproof.reference.symbolic import lemmas, terms
from gemmproof.reference.symbolic import solver as solving
from gemmproof.reference.symbolic.interpreter import integer_rules, symbolic_values
from gemmproof.reference.symbolic.interpreter.interpret import RULES
from gemmproof.reference.symbolic.obligations import indices
from gemmproof.reference.symbolic.terms import eq, evaluate, le, lt, symbol, term, walk

X, Y, D = symbol("x"), symbol("y"), symbol("d", is_natural=True)
SECONDS = 20.0
PINNED = ("floordiv", "mod", "div", "rem", "min", "max", "choice", "flag")


def definitions_hold():
    """The definition of an atom holds for its value, and for no other if it has only one."""
    rng = random.Random(1)
    for kind in (*PINNED, "and"):
        args = {"choice": (le(X, Y), X, Y), "flag": (le(X, Y),)}.get(kind, (X, D))
        atom = terms.Atom(kind, *args)
        for _ in range(40):
            given = {X.atom: rng.randint(-40, 40), Y.atom: rng.randint(-9, 9)}
            given[D.atom] = rng.randint(1, 9)
            value = int(evaluate(term(atom), given))
            conds = list(lemmas.define(atom))
            assert all(bool(evaluate(cond, given)) for cond in conds), (kind, given)
            if kind in PINNED:
                other = {**given, atom: value + rng.choice((-1, 1))}
                assert not all(bool(evaluate(cond, other)) for cond in conds), (kind, given)
    rest = term(terms.Atom("mod", X, D))
    assert solving.Solver().follows(lt(rest, D), le(1, D)) == solving.YES


def terms_are_what_they_say():
    """Simplified terms have the value of the operation, and their declared bounds hold."""
    rng = random.Random(2)
    lanes = [lemmas.lane(i, 16) for i in range(2)]
    for kind in ("floordiv", "mod", "div", "rem", "min", "max", "and", "or", "xor", "shr"):
        for _ in range(60):
            poly = sum((rng.randint(-4, 8) * x for x in (*lanes, X)), term(rng.randint(-5, 20)))
            natural = rng.random() < 0.5
            poly = lanes[0] * rng.randint(0, 9) + lanes[1] if natural else poly
            poly = -poly if natural and rng.random() < 0.5 else poly
            by = rng.choice((1, 2, 3, 4, 8, 15, 16))
            if rng.random() < 0.3:  # a tile's number and a lane, of groups of tiles
                poly, by = 16 * rng.randint(1, 4) * X + rng.randint(1, 2) * lanes[1], 64
            simplified = terms.make(kind, poly, by)
            given = {x.atom: rng.randint(0, 15) for x in lanes} | {X.atom: rng.randint(-50, 50)}
            plain = int(evaluate(poly, given))
            expected = {
                "floordiv": plain // by, "mod": plain % by, "div": int(plain / by),
                "rem": plain - int(plain / by) * by, "min": min(plain, by), "max": max(plain, by),
                "and": plain & by, "or": plain | by, "xor": plain ^ by, "shr": plain >> by,
            }[kind]  # fmt: skip
            assert int(evaluate(simplified, given)) == expected, (kind, poly, by)
            assert not simplified.is_natural or expected >= 0
            assert not simplified.is_natural or expected >= simplified.least, (
                kind,
                simplified,
                simplified.least,
            )
            assert simplified.most is None or expected <= simplified.most, (
                kind,
                simplified,
                simplified.most,
            )
    cond = le(X, 3)
    for n in (2, 3, 4):
        chosen = terms.make("choice", cond, X, Y), terms.make("flag", cond)
        assert [int(evaluate(x, {X.atom: n, Y.atom: 7})) for x in chosen] == [
            n if n <= 3 else 7, int(n <= 3),
        ]  # fmt: skip


def comparisons_are_of_their_sign():
    signed = {"slt": np.less, "sle": np.less_equal, "sgt": np.greater, "sge": np.greater_equal}
    for x in (-2, 0, 1, 5):
        for y in (0, 1, 5):
            given = {X.atom: x, D.atom: y}
            for name, means in signed.items():
                assert bool(evaluate(symbolic_values.compare(name, X, D), given)) == bool(
                    means(x, y)
                )
                unsigned = symbolic_values.compare(f"u{name[1:]}", X, D)
                assert bool(evaluate(unsigned, given)) == bool(means(np.uint32(x % 2**32), y))


def lanes_move_as_arrays_do():
    """expand_dims, trans, reshape and make_range against numpy's."""

    def array(value):
        named = {
            x: np.arange(x.args[2]).reshape((-1,) + (1,) * (len(value.shape) - x.args[1] - 1))
            for x in walk(value.term)
            if x.is_leaf
        }
        return np.broadcast_to(evaluate(value.term, named), value.shape)

    sides = (2, 4, 8)
    lanes = [lemmas.lane(i, n) for i, n in enumerate(sides)]
    block = symbolic_values.Ints(lanes[0] * 100 + lanes[1] * 10 + lanes[2], sides)
    plain = array(block)
    for axis in range(4):
        assert (array(integer_rules.insert_axis(block, axis)) == np.expand_dims(plain, axis)).all()
    assert (array(integer_rules.permute(block, (1, 2, 0))) == plain.transpose(1, 2, 0)).all()
    assert (array(integer_rules.reshape(block, (8, 8))) == plain.reshape(8, 8)).all()
    assert RULES["tt.expand_dims"] is not None


def lemmas_are_true():
    rng = random.Random(3)
    p, q, r = (symbol(name, is_natural=True) for name in "pqr")
    for _ in range(60):
        given = {p.atom: rng.randint(0, 5), q.atom: rng.randint(0, 5), r.atom: rng.randint(0, 5)}
        given[X.atom] = rng.randint(-5, 5)
        conds = [le(p, q), le(q, r), le(X, p), le(p * r, q * r + 50), le(p * X, 200), le(q * X, 99)]
        true = [cond for cond in conds if bool(evaluate(cond, given))]
        assert all(bool(evaluate(cond, given)) for cond in lemmas.multiply(true))
        aimed = lemmas.aim(le(p * X + q * X, 7), true)
        assert all(bool(evaluate(cond, given)) for cond in aimed)


def solver_is_no_optimist():
    solver = solving.Solver()
    assert solver.follows(le(0, X * X)) == solving.YES  # by true products alone
    assert solver.follows(le(X, 4), le(X, 3)) == solving.YES
    assert solver.follows(le(X, 2), le(X, 3)) != solving.YES
    assert solver.follows(le(X * X, 8), le(X, 3), le(0, X)) != solving.YES
    hard = le(1, X * X * X + Y * Y * Y - 33 - D * D * D) | le(X * X * X + Y * Y * Y - D * D * D, 32)
    assert solver.follows(hard) != solving.YES
    assert not solver.is_ruled_out(solver.unfold(le(X, 3)))
    size = symbol("size", is_natural=True)
    tiles, solver = terms.make("floordiv", size + 127, 128), solving.Solver(lt(size, 2**30))
    assert solver.follows(lt(64 * tiles, 2**31)) == solving.YES
    assert solver.follows(lt(256 * tiles, 2**31)) != solving.YES
    kept = {}
    for least in (1, 0):  # symbols that solvers make have the same names, and are not the same
        solver = solving.Solver(proved=kept)
        own = solver.new_symbol("own")
        solver.known[own.atom] = le(least, own)
        solver.learn(le(own * D, 9))
        assert (solver.follows(le(1, own)) == solving.YES) == (least == 1)
    for least in (1, 0):
        solver = solving.Solver(le(least, D), proved=kept)
        assert (solver.follows(lt(X * D, Y * D), lt(X, Y)) == solving.YES) == (least == 1)
    x, y = (terms.make("floordiv", symbol(name, is_natural=True), 16) for name in "xy")
    assert solver.follows(le(D * x, D * y)) != solving.YES
    assert solver.follows(lt(D * x, D * y), lt(x, y), le(1, D)) == solving.YES
    trip, k = symbol("trip", is_natural=True), symbol("k", is_natural=True)
    packed = 8 * trip + terms.make("floordiv", lemmas.lane(0, 64), 8)
    whole, within = terms.make("floordiv", k, 8), lt(64 * trip + lemmas.lane(0, 64), k)
    below = lt(D * packed, D * whole)
    assert solver.follows(below, within, eq(terms.make("mod", k, 8), 0), le(1, D)) == solving.YES
    assert solver.follows(below, within, le(1, D)) != solving.YES
    assert solver.follows(lt(D * whole, D * packed), within, le(1, D)) != solving.YES


def digits_are_of_their_number():
    """Equal numbers have equal digits, and every index is that of an element."""
    rng = random.Random(4)
    lanes = [lemmas.lane(i, 8) for i in range(2)]
    for _ in range(40):
        x, y = (rng.choice((8, 16)) * term(z) + lane for z, lane in zip((X, Y), lanes, strict=True))
        conds = list(indices.split_equal(x, y))
        for at in np.ndindex(8, 8, 4, 4):
            given = dict(zip((*(z.atom for z in (*lanes, X, Y)),), at, strict=True))
            same = bool(evaluate(eq(x, y), given))
            assert not same or all(bool(evaluate(cond, given)) for cond in conds)
    for positions in (([8 * X + lanes[0]],), ([8 * X + lanes[0]], [4 * X + lanes[0]]), ([X],)):
        (index,), within = indices.new_element(solving.Solver(), [D], positions)
        tile, *below = (x for x in walk(index) if x.is_leaf)
        elements = set()
        for n, lane in np.ndindex(20, 8):
            given = {D.atom: 19, tile: n, **dict.fromkeys(below, lane)}
            if bool(evaluate(within, given)):
                elements.add(int(evaluate(index, given)))
        assert elements == set(range(19))


def indices_are_of_their_offset():
    rows, columns = symbol("rows", True), symbol("columns", True)
    strides = (symbol("s0", True), symbol("s1", True))
    offset = (X + 3) * strides[0] + Y * strides[1]
    located = indices.locate(offset, (rows, columns), strides)
    assert located[0] * strides[0] + located[1] * strides[1] == offset
    try:
        indices.locate(offset + 1, (rows, columns), strides)
    except indices.NotAffine:
        return
    raise AssertionError("an element along no axis")


def agrees(*names):
    """A check that formulas of kernels touch what the simulator does."""
    known = {kernel.name: kernel for kernel in KERNELS}

    def check():
        for name in names:
            kernel = known.get(name) or _own(name)
            compared = agreement.compare(kernel, 3, most=40, seconds=4.0)
            assert compared.differences == []
            assert compared.calls, compared.left

    return check


def proved(name, whole, **fields):
    """A check that a property of a right kernel is proved."""
    known = {kernel.name: kernel for kernel in KERNELS}

    def check():
        kernel = known.get(name) or _own(name, **fields)
        proof = proving.prove(kernel, seconds=20.0).find(whole)
        assert proof is not None
        assert proof.status == PROVED, proof

    return check


def unproved(name, broken, **fields):
    """A check that a property of a wrong kernel is not proved."""
    known = {mutant.name: mutant for mutant in MUTANTS}

    def check():
        kernel = known[name].kernel if name in known else _own(name, **fields)
        proof = proving.prove(kernel, seconds=SECONDS).find(broken)
        assert proof is None or proof.status != PROVED

    return check


def not_falsely_proved(name, broken):
    """A check that a false property of that corpus is not proved, or under its assumption."""
    (row,) = (row for row in ROWS if row.name == name)

    def check():
        proof = proving.prove(row.load(row.wrong), seconds=SECONDS).find(broken)
        excluded = row.assumption != "" and row.assumption in proof.assumptions
        assert proof.status != PROVED or excluded

    return check


_MODULES = (
    unsound_kernels,
    unsound_addresses,
    unsound_widths,
    unsound_hosts,
    sneaky_kernels,
    product_wrappers,
    product_kernels,
    product_sums,
    misleading_hints,
)


def _own(name, **fields):
    fields = {"layouts": "contiguous", **fields}
    module = next(module for module in _MODULES if hasattr(module, name))
    return KernelUnderTest(name, getattr(module, name), wide(**fields))


def break_rule(monkeypatch, owner, attribute, broken, check):
    """Put something else in place of a rule; the check must then fail."""
    if isinstance(owner, dict):
        monkeypatch.setitem(owner, attribute, broken)
    else:
        monkeypatch.setattr(owner, attribute, broken)
    # atoms that were made before know their old sizes
    monkeypatch.setattr(terms, "_atoms", {})
    # a trial or a comparison stops what a broken rule proves: the rule is tested alone
    monkeypatch.setattr(proving, "seek", lambda *given: {})
    monkeypatch.setattr(proving, "compare_path", lambda *given: PathComparison(1))
    with pytest.raises((AssertionError, KeyError, IndexError, ValueError)):
        check()

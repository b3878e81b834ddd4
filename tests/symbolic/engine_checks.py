"""What the rules of the prover must fulfil: checks that pass, and fail where a rule is wrong."""

from __future__ import annotations

import random

import agreement
import numpy as np
import unsound_kernels
from mutants.table import MUTANTS
from no_false_alarm.table import KERNELS
from wide import wide

from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import prove as proving
from gemmproof.properties.proof.verdict import PROVED
from gemmproof.reference.symbolic import definitions, lemmas
from gemmproof.reference.symbolic import solver as solving
from gemmproof.reference.symbolic.machine import integers, shapes, values
from gemmproof.reference.symbolic.machine.interpret import RULES
from gemmproof.reference.symbolic.obligations import coordinates
from gemmproof.reference.symbolic.terms import Atom, evaluate, le, lt, making, symbol, term, walk

X, Y, D = symbol("x"), symbol("y"), symbol("d", is_natural=True)
PINNED = ("floordiv", "mod", "div", "rem", "min", "max", "choice", "flag")


def definitions_hold():
    """What defines an atom holds of its value, and of no other where it has but one."""
    rng = random.Random(1)
    for kind in (*PINNED, "and"):
        args = {"choice": (le(X, Y), X, Y), "flag": (le(X, Y),)}.get(kind, (X, D))
        atom = Atom(kind, *args)
        for _ in range(40):
            given = {X.atom: rng.randint(-40, 40), Y.atom: rng.randint(-9, 9)}
            given[D.atom] = rng.randint(1, 9)
            value = int(evaluate(term(atom), given))
            conds = list(definitions.define(atom))
            assert all(bool(evaluate(cond, given)) for cond in conds), (kind, given)
            if kind in PINNED:
                other = {**given, atom: value + rng.choice((-1, 1))}
                assert not all(bool(evaluate(cond, other)) for cond in conds), (kind, given)
    rest = term(Atom("mod", X, D))
    assert solving.Solver().follows(lt(rest, D), le(1, D)) == solving.YES


def terms_are_what_they_say():
    """Simplified terms have the value of the operation; what is said of their size is true."""
    rng = random.Random(2)
    lanes = [definitions.lane(i, 16) for i in range(2)]
    for kind in ("floordiv", "mod", "div", "rem", "min", "max", "and", "or", "xor", "shr"):
        for _ in range(60):
            poly = sum((rng.randint(-4, 8) * x for x in (*lanes, X)), term(rng.randint(-5, 20)))
            natural = rng.random() < 0.5
            poly = lanes[0] * rng.randint(0, 9) + lanes[1] if natural else poly
            by = rng.choice((1, 2, 3, 4, 8, 15, 16))
            made = making.make(kind, poly, by)
            given = {x.atom: rng.randint(0, 15) for x in lanes} | {X.atom: rng.randint(-50, 50)}
            plain = int(evaluate(poly, given))
            wanted = {
                "floordiv": plain // by, "mod": plain % by, "div": int(plain / by),
                "rem": plain - int(plain / by) * by, "min": min(plain, by), "max": max(plain, by),
                "and": plain & by, "or": plain | by, "xor": plain ^ by, "shr": plain >> by,
            }[kind]  # fmt: skip
            assert int(evaluate(made, given)) == wanted, (kind, poly, by)
            assert not made.is_natural or wanted >= 0
            assert made.most is None or wanted <= made.most, (kind, made, made.most)
    cond = le(X, 3)
    for n in (2, 3, 4):
        chosen = making.make("choice", cond, X, Y), making.make("flag", cond)
        assert [int(evaluate(x, {X.atom: n, Y.atom: 7})) for x in chosen] == [
            n if n <= 3 else 7, int(n <= 3),
        ]  # fmt: skip


def comparisons_are_of_their_sign():
    signed = {"slt": np.less, "sle": np.less_equal, "sgt": np.greater, "sge": np.greater_equal}
    for x in (-2, 0, 1, 5):
        for y in (0, 1, 5):
            given = {X.atom: x, D.atom: y}
            for name, means in signed.items():
                assert bool(evaluate(integers.compare(name, X, D), given)) == bool(means(x, y))
                unsigned = integers.compare(f"u{name[1:]}", X, D)
                assert bool(evaluate(unsigned, given)) == bool(means(np.uint32(x % 2**32), y))


def lanes_move_as_arrays_do():
    """expand_dims, trans, reshape and make_range beside numpy's."""

    def array(value):
        named = {
            x: np.arange(x.args[2]).reshape((-1,) + (1,) * (len(value.shape) - x.args[1] - 1))
            for x in walk(value.term)
            if x.is_leaf
        }
        return np.broadcast_to(evaluate(value.term, named), value.shape)

    sides = (2, 4, 8)
    lanes = [definitions.lane(i, n) for i, n in enumerate(sides)]
    block = values.Ints(lanes[0] * 100 + lanes[1] * 10 + lanes[2], sides)
    plain = array(block)
    for axis in range(4):
        assert (array(shapes.insert_axis(block, axis)) == np.expand_dims(plain, axis)).all()
    assert (array(shapes.permute(block, (1, 2, 0))) == plain.transpose(1, 2, 0)).all()
    assert (array(shapes.reshape(block, (8, 8))) == plain.reshape(8, 8)).all()
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


def solver_is_no_optimist():
    solver = solving.Solver()
    assert solver.follows(le(X, 4), le(X, 3)) == solving.YES
    assert solver.follows(le(X, 2), le(X, 3)) != solving.YES
    assert solver.follows(le(X * X, 8), le(X, 3), le(0, X)) != solving.YES
    hard = le(1, X * X * X + Y * Y * Y - 33 - D * D * D) | le(X * X * X + Y * Y * Y - D * D * D, 32)
    assert solver.follows(hard) != solving.YES
    assert not solver.is_ruled_out(solver.unfold(le(X, 3)))


def indices_are_of_their_offset():
    rows, columns = symbol("rows", True), symbol("columns", True)
    strides = (symbol("s0", True), symbol("s1", True))
    offset = (X + 3) * strides[0] + Y * strides[1]
    found = coordinates.locate(offset, (rows, columns), strides)
    assert found[0] * strides[0] + found[1] * strides[1] == offset
    try:
        coordinates.locate(offset + 1, (rows, columns), strides)
    except coordinates.NoView:
        return
    raise AssertionError("an element along no axis")


def agrees(*names):
    """A check that formulas of kernels touch what the simulator does."""
    known = {kernel.name: kernel for kernel in KERNELS}

    def check():
        for name in names:
            kernel = known.get(name) or _own(name)
            found = agreement.compare(kernel, 3, most=40, seconds=4.0)
            assert found.differences == []
            assert found.calls, found.left

    return check


def unproved(name, broken, **words):
    """A check that a property of a wrong kernel is not proved."""
    known = {mutant.name: mutant for mutant in MUTANTS}

    def check():
        kernel = known[name].kernel if name in known else _own(name, **words)
        found = proving.prove(kernel, seconds=10.0).find(broken)
        assert found is None or found.status != PROVED

    return check


def _own(name, **words):
    words = {"layouts": "contiguous", **words}
    return KernelUnderTest(name, getattr(unsound_kernels, name), wide(**words))

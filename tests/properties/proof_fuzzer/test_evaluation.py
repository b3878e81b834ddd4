"""The evaluation of drawn programs, by itself and beside the simulator."""

import ast
import random

import pytest
from hypothesis import given, settings
from tests.properties.proof_fuzzer import saved
from tests.properties.proof_fuzzer.compare import load
from tests.properties.proof_fuzzer.draws import draw_program, programs
from tests.properties.proof_fuzzer.evaluate import BOUNDS, EXACT, FIT, ONCE, Call, Invalid, Unsure
from tests.properties.proof_fuzzer.language import (
    Allocate,
    Assign,
    For,
    Kernel,
    Launch,
    Program,
    Store,
    op,
    print_program,
)
from tests.properties.proof_fuzzer.simulated import find_differences
from tests.properties.proof_fuzzer.truth import fit, iter_strides


@settings(max_examples=15)
@given(programs())
def test_a_program_is_python_and_survives_its_file(program):
    ast.parse(print_program(program))
    assert saved.decode(saved.encode(program)) == program


def _element(value, *, size="K", before=()):
    """Return a program that stores `value` in c, of which only c[0, 0] is of interest."""
    body = (*before, Store("c_ptr", value, None))
    kernel = Kernel("kernel", ("c_ptr",), ("x",), (), body)
    launch = Launch("kernel", (1,), ("c", size), ())
    return Program((kernel,), (Allocate("c", ("M", "N")), launch))


def _evaluate(program, K, whole=True):
    call = Call(program, {"M": 1, "N": 1, "K": K}, {"a": (K, 1), "b": (1, 1)}, {}, whole=whole)
    outcome = call.evaluate()
    return call, outcome


@pytest.mark.parametrize(
    ("value", "size", "expected"),
    [
        (op("//", op("-", "x", 3), 2), 2, 0),  # C rounds towards zero
        (op("//", op("-", "x", 2), 2), 1, -1),  # a size of 1 is a constant, of which Python's floor
        (op("%", op("-", "x", 7), 4), 2, -1),
        (op("*", "x", 1 << 30), 2, -(2**31)),
        (op("*", op("int64", "x"), 1 << 30), 2, 2**31),
        (op("<<", "x", 31), 2, 0),
        (op("int32", op("*", op("int64", "x"), 1 << 31)), 3, -(2**31)),
        (op(">>", op("-", "x", 5), 1), 2, -2),
    ],
)
def test_integers_have_the_width_of_their_type(value, size, expected):
    call, _ = _evaluate(_element(value), size)
    assert call.memory["c"].contents[0] == expected


def test_a_loop_counter_wraps():
    inner = (Store("c_ptr", 0, None),)
    loop = For("k", 0, op("<<", "x", 15), 1 << 19, inner)
    kernel = Kernel("kernel", ("c_ptr",), ("x",), (), (loop,))
    wrapper = (Allocate("c", ("M", "N")), Launch("kernel", (1,), ("c", "K"), ()))
    for K, is_false in ((65520, False), (65521, True)):
        _, outcome = _evaluate(Program((kernel,), wrapper), K, whole=False)
        assert (FIT in outcome.violated) == is_false


def test_a_grid_has_limits():
    kernel = Kernel("kernel", ("c_ptr",), (), (), ())
    wrapper = (Allocate("c", ("M", "N")), Launch("kernel", (1, "K"), ("c",), ()))
    for K, expected in ((65535, set()), (65536, {ONCE, EXACT})):
        assert set(_evaluate(Program((kernel,), wrapper), K, whole=False)[1].violated) == expected


def test_types_that_do_not_match_are_not_valid():
    with pytest.raises(Invalid, match="out of range"):
        _evaluate(_element(op("*", "x", 1 << 40)), 2)
    loop = For("k", 0, "x", 1, (Assign("at", op("int64", "at")),))
    with pytest.raises(Invalid, match="changes its type"):
        _evaluate(_element(0, before=(Assign("at", op("+", "x", 0)), loop)), 2)


def _draw_call(seed):
    program, rng = draw_program(seed), random.Random(seed)
    sizes = rng.choice(((1, 1, 1), (2, 3, 1), (35, 1, 33), (17, 70, 16), (40, 33, 67)))
    sizes = fit(program.terms, sizes)
    strides = rng.choice(list(iter_strides(program.terms, sizes, True)))
    return program, sizes, strides, rng.randrange(2)


def _check_simulated(seeds):
    compared = 0
    for seed in seeds:
        program, sizes, strides, config = _draw_call(seed)
        differences = find_differences(program, sizes, strides, config, load(program))
        assert not differences, (seed, sizes, strides, differences)
        compared += differences is not None
    assert compared > len(seeds) * 0.9


def test_the_simulator_accesses_and_stores_the_same():
    _check_simulated(range(5000, 5012))


@pytest.mark.lane("full")
@pytest.mark.parametrize("first", range(6000, 6300, 50))
def test_the_simulator_accesses_and_stores_the_same_in_many_programs(first):
    _check_simulated(range(first, first + 50))


def test_what_the_first_and_last_programs_violate_all_programs_do():
    seen = set()
    for seed in range(7000, 7040):
        program, sizes, strides, _ = _draw_call(seed)
        parts = []
        for whole in (True, False):
            named = dict(zip("MNK", sizes, strict=True)), dict(zip("ab", strides, strict=True))
            call = Call(program, *named, {}, whole=whole)
            try:
                parts.append(set(call.evaluate().violated))
            except (Invalid, Unsure):
                break
        if len(parts) == 2:
            assert parts[1] <= parts[0], (seed, sizes, parts)
            seen |= parts[1]
    assert BOUNDS in seen

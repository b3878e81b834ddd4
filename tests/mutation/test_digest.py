"""What two kernels touch is compared lane by lane: what a mask leaves out, or a program, is not."""

from types import SimpleNamespace

import numpy as np

from gemmproof.mutation.digest import digest


def access(offsets, mask=None, programs=(0,), kind="load", operand="a"):
    return SimpleNamespace(
        kind=kind, operand=SimpleNamespace(name=operand), offsets=np.array(offsets),
        mask=None if mask is None else np.array(mask), programs=np.array(programs),
    )  # fmt: skip


def touched(*accesses, grid=(1, 1, 1), result=(1.0,)):
    call = SimpleNamespace(results=(np.array(result, np.float32),))
    trace = [("kernel", grid, accesses)]
    return digest(SimpleNamespace(raised=None, calls=(call,), trace=trace))


PLAIN = access([[0, 1]])


def test_what_is_masked_off_is_not_touched():
    assert touched(access([[0, 1]], [[True, False]])) == touched(access([[0, 9]], [[True, False]]))
    assert touched(PLAIN) != touched(access([[0, 1]], [[True, False]]))
    assert touched(PLAIN, access([[5, 6]], [[False, False]])) == touched(PLAIN)


def test_a_program_that_touches_nothing_is_none():
    two = access([[0, 1], [2, 3]], [[True, True], [False, False]], (0, 1))
    assert touched(two, grid=(2, 1, 1)) == touched(PLAIN)
    assert touched(access([[0, 1], [2, 3]], None, (0, 1)), grid=(2, 1, 1)) != touched(PLAIN)


def test_programs_are_those_of_the_grid():
    """Program 1 of a grid of 2 x 1 and of 1 x 2 are two."""
    second = access([[0, 1]], None, (1,))
    assert touched(second, grid=(2, 1, 1)) != touched(second, grid=(1, 2, 1))
    # one row of offsets stands for all programs
    assert touched(access([[0, 1]], None, (0, 1)), grid=(2, 1, 1)) == touched(
        access([[0, 1], [0, 1]], None, (0, 1)), grid=(2, 1, 1)
    )


def test_operand_kind_and_bits_count():
    assert touched(PLAIN) != touched(access([[0, 1]], operand="b"))
    assert touched(PLAIN) != touched(access([[0, 1]], kind="store"))
    assert touched(PLAIN)[1] == touched(PLAIN, result=(2.0,))[1]
    assert touched(PLAIN, result=(0.0,))[0] != touched(PLAIN, result=(-0.0,))[0]

"""Accesses of two kernels are compared by elements, not by their order or their programs."""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from gemmproof.mutate.case_search import digest


def access(offsets, mask=None, programs=(0,), kind="load", operand="a", private=False, start=0):
    storage = SimpleNamespace(private=private, start=0)
    view = SimpleNamespace(start=start, itemsize=2)
    return SimpleNamespace(
        kind=kind, operand=SimpleNamespace(name=operand, storage=storage, view=view),
        offsets=np.array(offsets), mask=None if mask is None else np.array(mask),
        programs=np.array(programs),
    )  # fmt: skip


def touched(*accesses, result=(1.0,), sampled=False):
    call = SimpleNamespace(results=(np.asarray(result, getattr(result, "dtype", np.float32)),))
    trace = [("kernel", (1, 1, 1), accesses)]
    case = SimpleNamespace(is_sampled=sampled)
    return digest(SimpleNamespace(case=case, raised=None, calls=(call,), trace=trace))


PLAIN = access([[0, 1]])


def test_what_is_masked_off_is_not_touched():
    assert touched(access([[0, 1]], [[True, False]])) == touched(access([[0, 9]], [[True, False]]))
    assert touched(PLAIN) != touched(access([[0, 1]], [[True, False]]))
    assert touched(PLAIN, access([[5, 6]], [[False, False]])) == touched(PLAIN)
    # one mask represents all programs, and one row of offsets
    assert touched(access([[0, 1], [2, 3]], [[True, False]], (0, 1))) == touched(access([[0, 2]]))


def test_order_tiles_and_programs_do_not_count():
    four = touched(access([[0, 1, 2, 3]]))
    assert touched(access([[2, 3], [0, 1]], None, (0, 1))) == four
    assert touched(access([[0, 1]]), access([[2, 3]]), access([[0, 3]])) == four
    assert touched(access([[0, 1]]), access([[0, 1]], start=4)) == four
    assert touched(access([[0, 1, 2]])) != four


def test_memory_of_the_wrapper_does_not_count():
    assert touched(PLAIN, access([[7]], operand="work", private=True)) == touched(PLAIN)


def test_a_case_of_few_programs_shows_nothing():
    assert touched(PLAIN, sampled=True) == touched(access([[7]]), result=(2.0,), sampled=True)


def test_operand_kind_and_bits_count():
    assert touched(PLAIN) != touched(access([[0, 1]], operand="b"))
    assert touched(PLAIN) != touched(access([[0, 1]], kind="store"))
    assert touched(PLAIN)[1] == touched(PLAIN, result=(2.0,))[1]
    assert touched(PLAIN, result=(0.0,))[0] != touched(PLAIN, result=(1e-45,))[0]


@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, "int8"])
def test_the_sign_of_a_zero_does_not_count(dtype):
    """A step over zeros turns -0, to which small products round, into 0: neither is wrong."""
    below, zero, above, negative = (np.array([x], dtype) for x in (-0.0, 0.0, 1.0, -1.0))
    assert touched(PLAIN, result=below) == touched(PLAIN, result=zero)
    assert len({touched(PLAIN, result=x) for x in (zero, above, negative)}) == 3

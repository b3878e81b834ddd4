"""Calls of wrappers on the simulator, the errors of bad ones, and the warning of pointers."""

import re
import warnings

import pytest
import torch

from gemmproof.reference.simulator import run


def integers(rows, columns, dtype=torch.float16, is_t=False):
    """A matrix of small integers, of dense rows or of dense columns."""
    rng = torch.Generator().manual_seed(rows + columns)
    x = torch.randint(-3, 4, (columns, rows) if is_t else (rows, columns), generator=rng).to(dtype)
    return x.T if is_t else x


def multiply(a, b, dtype=torch.float16):
    """The product, rounded once to a format, in doubles."""
    return (a.double() @ b.double()).to(dtype).double()


def run_quietly(wrapper, a, b, config=0, **options):
    """The simulator's observation of a call that may warn, without faults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = run(wrapper, a, b, target="sm_90", config=config, kwargs=options)
    assert seen.faults == []
    return seen


def is_within_roundings(c, expected, size, roundings):
    """Return whether c is off by its rounding, and by so many of fp32 of sums of `size`."""
    bound = torch.finfo(c.dtype).eps / 2 * expected.abs() + roundings * 2.0**-24 * size
    return bool(((c.double() - expected).abs() <= bound * (1 + 2**-7)).all())


def assert_refused(error, message, wrapper, *arguments, **options):
    """The call raises one line that begins with the wrapper's name and holds the message."""
    with pytest.raises(error, match=re.escape(message)) as caught:
        wrapper(*arguments, **options)
    assert str(caught.value).startswith(f"{wrapper.__name__}: got ")
    assert "\n" not in str(caught.value)


def assert_pointers_told(warned, file):
    """One warning, at a line of the file, says in a line that pointers are used."""
    (warning,) = warned
    assert "\n" not in str(warning.message)
    assert str(warning.message).endswith("; pointers are used")
    assert warning.filename == file

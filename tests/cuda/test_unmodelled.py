"""A dot of which the target has no model: no bits are demanded of a GPU, and the reason is told."""

from types import SimpleNamespace

import pytest

from gemmproof.backends.predict import _find_freedom


@pytest.mark.parametrize("exact", [False, True])
def test_its_bits_are_compared_only_where_sums_are_exact(exact):
    launch = SimpleNamespace(rounds=("dot",), atomics=False)
    case = SimpleNamespace(sums_are_exact=exact)
    free = _find_freedom(SimpleNamespace(launches=[launch], case=case), [])
    assert free == (None if exact else "a dot of which no model is verified")

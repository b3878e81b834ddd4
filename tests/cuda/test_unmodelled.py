"""A dot of which the target has no model: no bits are demanded of a GPU, and the reason is told."""

from types import SimpleNamespace

import pytest

from gemmproof.backends.predict import _find_freedom


@pytest.mark.parametrize(
    ("fill", "exact", "spec", "free"),
    [
        ("normal", False, None, True),
        ("normal", True, None, False),
        ("index", True, print, False),
        # of integers, but with scales that are no powers of two
        ("normal", True, print, True),
    ],
)
def test_its_bits_are_compared_only_where_sums_are_exact(fill, exact, spec, free):
    launch = SimpleNamespace(rounds=("dot",), atomics=False)
    case = SimpleNamespace(fill=fill, sums_are_exact=exact)
    observation = SimpleNamespace(launches=[launch], case=case, kernel=SimpleNamespace(spec=spec))
    freedom = _find_freedom(observation, [])
    assert freedom == ("a dot of which no model is verified" if free else None)

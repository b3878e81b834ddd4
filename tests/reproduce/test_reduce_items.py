"""Delta debugging: the remaining items fail, and none of them can be removed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmproof.reproduce.needed_calls import reduce_items


@given(st.integers(1, 60), st.sets(st.integers(0, 59), min_size=1, max_size=4))
def test_the_least_that_fails_is_left(count, needed):
    needed = {n % count for n in needed}
    assert reduce_items(range(count), lambda left: needed <= set(left)) == sorted(needed)


@given(st.integers(2, 40), st.data())
def test_none_of_what_is_left_can_be_left_out(count, data):
    most = data.draw(st.integers(1, count))

    def fails(left):  # any of them, if there are enough
        return len(left) >= most

    left = reduce_items(range(count), fails)
    assert len(left) == most


def test_what_never_matters_is_left_out_at_once():
    tried = []
    assert reduce_items(range(9), lambda left: tried.append(left) or True) == []
    assert tried == [[]]


@pytest.mark.parametrize("runs", [0, 1, 5, 20])
def test_a_search_that_has_no_more_time_gives_what_it_has(runs):
    tried = []

    def fails(left):
        tried.append(list(left))
        return None if len(tried) > runs else {3, 30} <= set(left)

    left = reduce_items(range(32), fails)
    assert {3, 30} <= set(left)
    assert len(tried) <= runs + 1

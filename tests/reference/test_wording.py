"""Counts with nouns, as in English."""

import pytest

from gemmproof.reference.provenance import format_count


@pytest.mark.parametrize(
    ("n", "noun", "text"),
    [
        (0, "case", "0 cases"),
        (1, "case", "1 case"),
        (2, "launch", "2 launches"),
        (3, "property", "3 properties"),
        (1, "property", "1 property"),
        (4, "more reason", "4 more reasons"),
    ],
)
def test_a_count_agrees_with_its_noun(n, noun, text):
    assert format_count(n, noun) == text

"""docs/reference/versions.md has a row for each recorded run, none with a failed test."""

from __future__ import annotations

import json
import re

from noxfile import PAIRS
from scripts.docs.recorded_runs import VERSIONS, VERSIONS_PAGE, make_versions_page


def test_the_page_is_made_of_its_data():
    assert make_versions_page(check=True) == 0


def test_each_row_is_a_supported_pair_and_no_test_failed():
    rows = json.loads(VERSIONS.read_text())
    assert rows
    for row in rows:
        torch, triton = (".".join(row[name].split(".")[:2]) for name in ("torch", "triton"))
        assert PAIRS[torch][0] == triton, row
        assert row["failed"] == 0, row
        assert row["passed"] > 8_000, row


def test_the_pairs_on_the_page_are_those_that_nox_runs():
    required = re.findall(
        r"^\| ([\d., ]+) \| Triton (\d+\.\d+)", VERSIONS_PAGE.read_text(), re.MULTILINE
    )
    pairs = {torch: triton for line, triton in required for torch in line.split(", ")}
    assert pairs == {torch: triton for torch, (triton, _) in PAIRS.items()}

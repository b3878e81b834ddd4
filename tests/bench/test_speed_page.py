"""docs/results/speed.md matches the record, and has no row that was wrong or not timed."""

import json

import pytest
from scripts.docs.recorded_runs import EVIDENCE, RUNS, make_speed_page

from gemmproof.bench.record import CONTROL, FASTER, NOISE, SLOWER, BenchReport
from gemmproof.properties.codec import decode


def test_the_page_shows_the_recordings():
    assert make_speed_page(check=True) == 0


@pytest.mark.parametrize("name", RUNS)
def test_recordings_are_whole(name):
    path = EVIDENCE / f"speed-{name}.json"
    report = decode(BenchReport, json.loads(path.read_text(encoding="utf-8")), "bench")
    assert {"device", "torch", "triton", "date"} <= set(report.facts)
    assert {row.verdict for row in report.rows} <= {CONTROL, FASTER, NOISE, SLOWER}
    for row in report.rows:
        # a formula's peer rounds intermediates, and some sums of few or odd rows have other orders
        may_differ = row.operands or name == "gemm-few"
        assert row.equal_bits is not False or may_differ, row.problem
        assert row.sets * row.set_bytes >= 2 * row.l2_bytes or row.sets >= 2, row.problem

"""A kernel that is interrupted while it is compiled counts as not judged, and leaves no files."""

import tempfile
from dataclasses import asdict
from pathlib import Path

import pytest

from gemmproof.engine.assemble import judge
from gemmproof.properties.contract import Contract
from gemmproof.target import parse
from gemmproof.worker.entry_points import CHECK
from gemmproof.worker.protocol import Request
from gemmproof.worker.supervisor import Limits, halt, resume

ONE = {"M": 64, "N": 64, "K": 64}


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("terms", "asked"),
    [({"fits": ("sm_80",)}, {}), ({}, {"check_model": True, "gpu": "sm_80"})],
    ids=["a promise", "a premise"],
)
def test_it_counts_as_not_judged_and_leaves_nothing(terms, asked, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(Path(__file__).parent)
    target = asdict(parse("claimed_kernels.py:right"))
    contract = Contract(**ONE, **terms).to_dict()
    request = Request(CHECK, "right", target=target, contract=contract, max_examples=1, **asked)
    seen = []

    def stop(event):
        if event["event"] == "model_check" or event.get("phase") == "compile":
            seen.append(event)
            halt()

    try:
        report, worker = judge(request, Limits(), stop)
    finally:
        resume()
    assert len(seen) == 1
    assert (worker.end, report.verdict, report.findings) == ("halted", "incomplete", ())
    assert list(tmp_path.iterdir()) == []

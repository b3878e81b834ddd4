"""A kernel that is interrupted while it is compiled counts as not judged, and leaves no files."""

import tempfile
from pathlib import Path

import pytest

from gemmproof.engine.assemble import judge
from gemmproof.engine.request import CheckRequest
from gemmproof.properties.contract import Contract
from gemmproof.target import KernelRef, parse
from gemmproof.worker.protocol import CaseStarted, ModelCheckStarted
from gemmproof.worker.supervisor import Limits, halt, resume

ONE = {"M": 64, "N": 64, "K": 64}


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("terms", "asked"),
    [({"fits": ("sm_80",)}, {}), ({}, {"check_model": True, "gpu": "sm_80"})],
    ids=["a promise", "an assumption"],
)
def test_it_counts_as_not_judged_and_leaves_nothing(terms, asked, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(Path(__file__).parent)
    target, contract = parse("claimed_kernels.py:right"), Contract(**ONE, **terms)
    kernel = KernelRef("right", target=target, contract=contract)
    request = CheckRequest(kernel, max_examples=1, **asked)
    seen = []

    def stop(event):
        compiles = isinstance(event, CaseStarted) and event.phase == "compile"
        if compiles or isinstance(event, ModelCheckStarted):
            seen.append(event)
            halt()

    try:
        report, worker = judge(request, Limits(), stop)
    finally:
        resume()
    assert len(seen) == 1
    assert (worker.end, report.verdict, report.findings) == ("halted", "incomplete", ())
    assert list(tmp_path.iterdir()) == []

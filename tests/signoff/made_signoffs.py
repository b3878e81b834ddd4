"""Handwritten reports and sign-offs of a kernel that holds, but for the changes of a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.report.reports_by_hand import notes

from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import Contract
from gemmproof.properties.finding import Finding
from gemmproof.report.record import (
    SCHEMA,
    Bits,
    Coverage,
    Identity,
    Limit,
    ProofResult,
    PropertyResult,
    Report,
)
from gemmproof.signoff.record import DriftClass, Inputs, Signoff
from gemmproof.signoff.verdict import sign

INPUTS = Inputs(target=None, device="cpu", seed=0, max_examples=100, proof=True)
PROVED = ProofResult("proved", "every M, N, K")
PROPERTIES = (
    PropertyResult("stays_in_bounds", "it does", "pass", 100, proof=PROVED),
    PropertyResult("within_bound", "it is", "pass", 90, ratio=0.5),
    PropertyResult("no_races", "none", "pass", 100),
)
LIMITS = (
    Limit("fp32", "--dtype fp32", "holds"),
    Limit("2**31 elements", "--huge", "limit", "wraps", None, "c fits while M * N < 2**31"),
)
FINDING = Finding("no_races", "race", "store of c: got two, expected one", Case(1, 1, 1))
WIDE_CLASS = DriftClass(
    "fp16", "sm_90", "fp32", "fp32 tensor core F=25 L=16", is_kept=True, keeps=23, reads=11
)
NARROW_CLASS = replace(
    WIDE_CLASS, declared="fp16", name="fp16 tensor core F=25 L=16", keeps=10
)  # as in a contract of fp16 sums
ODD = "<script>alert('1')</script>\n| \"quoted\" `code` [link](x) @all #1 \x1b[2J\udcff"


def contract(**terms: Any) -> dict[str, Any]:
    """Return a contract as a worker reports it."""
    document = Contract(**terms).to_dict()
    return {name: list(x) if isinstance(x, tuple) else x for name, x in document.items()}


def identity(text: str = "1", **terms: Any) -> Identity:
    """Return the identity of a wrapper whose text has this hash, under these contract terms."""
    return Identity({"mine:matmul": text, "mine:kernel": "2"}, {}, contract(**terms))


def report(
    name: str = "matmul", verdict: str = "pass", note: str | None = None, **others: Any
) -> Report:
    """Return the report of a kernel that holds, or of that verdict."""
    bits = {"fp16": (Bits('{"M":1}', "aa"), Bits('{"M":2}', "bb"))}
    usual = {
        "properties": PROPERTIES,
        "notes": notes(verdict, note),
        "findings": (),
        "limits": LIMITS,
        "identity": identity(),
        "coverage": Coverage({"0, 1, other": 3, "not known, 1, 0": 1}, bits),
        **others,
    }
    versions = {"python": "3", "triton": "1"}
    return Report(SCHEMA, name, seconds=1.0, versions=versions, **usual)


def signed(*reports: Report, **others: Any) -> Signoff:
    """Return the sign-off of some reports, as it is read back."""
    inputs = others.pop("inputs", INPUTS)
    signoff = sign(inputs, reports or (report(),), **others)
    return replace(signoff, hash="sha256:0")


def change(label: str, **others: Any) -> tuple[PropertyResult, ...]:
    """Return the properties with one of them changed."""
    return tuple(replace(p, **others) if p.label == label else p for p in PROPERTIES)

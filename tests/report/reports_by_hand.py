"""Handwritten reports on kernels that were not run, with findings in files that exist."""

from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.report.record import SCHEMA, Note, PropertyResult, Report

CLAIMS = {
    "stays_in_bounds": "every unmasked lane addresses an element of its operand",
    "within_bound": "|c - a b| is within what the accumulator allows",
}
CASE = Case(33, 1, 1, "fp16")


def finding(line=None, file="my_kernels.py", property="stays_in_bounds", **more):
    """Return a finding at this line."""
    where = None if line is None else f"{file.rpartition('/')[2]}:{line}"
    given = {
        "case": CASE,
        "message": f"load of a at {where}: rows 33..63 of a (M=33)",
        "operand": "a",
        **more,
    }
    path = None if line is None else file
    return Finding(property, "out_of_bounds", where=where, file=path, **given)


def notes(verdict, text=None):
    """Return the notes of a report of that verdict without findings."""
    return () if (verdict, text) == ("pass", None) else (Note(text or verdict, verdict),)


def report(*findings, target="my_kernels.py:matmul", verdict=None, note=None):
    """Return a report of these findings, or of a verdict without findings."""
    failed = {item.property for item in findings}
    results = tuple(
        PropertyResult(name, claim, "fail" if name in failed else "pass", 5)
        for name, claim in CLAIMS.items()
    )
    return Report(SCHEMA, target, results, findings, 0.1, {}, notes(verdict or "pass", note))


def reproduce(reports):
    """Return a command for each report."""
    return {r.target: lambda case, name=r.target: f"gemmproof check {name!r}" for r in reports}

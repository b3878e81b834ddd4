"""The only place that reads gemmproof's own objects, options and JSON for the record.

A renamed field or option is renamed here; the record keeps its keys, so that nothing differs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from scripts.verdicts.subjects import EXAMPLES, ROOT, CommandSubject, KernelSubject, Subject

from gemmproof.properties.codec import encode

SEED = 0
CASES = 12  # for each format: a search for changed verdicts, not for bugs
# fields that differ from run to run, or from version to version
_LEFT_OUT = ("seconds", "versions", "facts", "binary", "column", "hash", "date", "made", "coverage")
_SPENT = re.compile(r" \(\d+\.\d s\)|, \d+\.\d s(?=\))")
_LONG = re.compile(r"\b\d+\.\d{9,}(e[+-]?\d+)?")
_VERSION = re.compile(r"(gemmproof|triton|torch) \d+\.\d+[\w.+]*")


def preload() -> None:
    """Import all modules that a check imports lazily: the forked processes inherit them."""
    for name in _NEEDED:
        import_module(f"gemmproof.{name}")


_NEEDED = (
    "engine.kernel_check", "properties.address_map.explain_access", "properties.proof.prove",
    "properties.proof.offset_wraps",
)  # fmt: skip


def record_subject(subject: Subject, cases: int = CASES) -> dict[str, object]:
    """Return the verdict of gemmproof on a subject, as plain data."""
    if isinstance(subject, CommandSubject):
        return _run_command(subject)
    return _check_kernel(subject, cases)


def _check_kernel(subject: KernelSubject, cases: int) -> dict[str, object]:
    from gemmproof.engine.kernel_check import check

    report = check(
        subject.kernel, max_examples=cases, seed=SEED, target=subject.target, proof=True,
        limits=True,
    )  # fmt: skip
    return describe_report(encode(report))


def describe_report(report: Mapping[str, Any]) -> dict[str, object]:
    """Return the record of a report, given as the JSON that `check --json` writes."""
    from gemmproof.report.record import EXIT

    # addresses of operands differ in each run: they decide which paths have cases, and how many
    by_address = any("address of" in path for path in report["unvisited"])
    record = {
        "exit": EXIT[report["verdict"]],
        "note": _clean(report["note"] or ""),
        "properties": dict(_describe_property(x, not by_address) for x in report["properties"]),
        "findings": [_describe_finding(x) for x in report["findings"]],
        "expected": [_describe_finding(x) for x in report["expected"]],
        "limits": {x["name"]: _describe_limit(x) for x in report["limits"]},
        "unvisited": [] if by_address else sorted(map(_clean, report["unvisited"])),
    }
    return {name: x for name, x in record.items() if x not in ("", [], {})}


def _describe_property(
    result: Mapping[str, Any], with_cases: bool
) -> tuple[str, dict[str, object]]:
    proof = result["proof"] or {}
    record = {
        "status": result["status"],
        "cases": result["examples"] if with_cases else "",
        "proof": proof.get("status", ""),
        "scope": proof.get("scope", ""),
        "cut": proof.get("cut", ""),
    }
    backend = "" if result["backend"] == "simulator" else f" on {result['backend']}"
    return f"{result['name']}{backend}", {name: x for name, x in record.items() if x != ""}


def _describe_finding(finding: Mapping[str, Any]) -> dict[str, object]:
    record = {
        "property": finding["property"],
        "fault": finding["fault"],
        "operand": finding["operand"],
        "axis": finding["axis"],
        "line": finding["where"],
        "cause": finding["cause"],
        "case": _describe_case(finding["case"]),
        "text": _clean(finding["message"].splitlines()[0]),
    }
    return {name: x for name, x in record.items() if x is not None}


def _describe_limit(limit: Mapping[str, Any]) -> dict[str, object]:
    case = None if limit["case"] is None else _describe_case(limit["case"])
    record = {"status": limit["status"], "case": case, "text": _clean(limit["message"])}
    record["proof"] = limit["proof"]
    return {name: x for name, x in record.items() if x not in (None, "")}


def _describe_case(case: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={case[name]}" for name in case)


# -- commands ------------------------------------------------------------------------------------
def _run_command(subject: CommandSubject) -> dict[str, object]:
    argv = [sys.executable, "-P", "-m", "gemmproof", *subject.argv, "--quiet"]
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(argv, cwd=EXAMPLES, env=env, capture_output=True, text=True, check=False)
    record: dict[str, object] = {"exit": done.returncode}
    if subject.output == "json" and done.stdout.startswith(("{", "[")):
        # the text printed along with it repeats the answer
        return {**record, "answer": _describe_document(json.loads(done.stdout))}
    record["lines"] = _clean(done.stdout).splitlines()
    record["errors"] = _clean(done.stderr).splitlines()
    return {name: x for name, x in record.items() if x != []}


def _describe_document(data: Any) -> Any:
    """Return a JSON answer without excluded fields; reports in it are described as reports."""
    if isinstance(data, dict):
        if {"verdict", "properties", "findings", "limits"} <= set(data):
            return describe_report(data)
        return {name: _describe_document(x) for name, x in data.items() if name not in _LEFT_OUT}
    if isinstance(data, list):
        return [_describe_document(x) for x in data]
    return _clean(data) if isinstance(data, str) else data


def _clean(text: str) -> str:
    """Return a text without this checkout's path, times, versions and the last digits of numbers.

    Those depend on the order in which the machine's BLAS adds.
    """
    text = text.replace(f"{ROOT}/", "").replace(str(ROOT), ".")
    text = _LONG.sub(lambda m: f"{float(m[0]):.10g}", text)
    return _VERSION.sub(r"\1", _SPENT.sub("", text))

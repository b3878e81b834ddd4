"""An engine that only calls the kernel: it drives the supervisor without torch or the simulator.

A kernel that returns True has a finding.
"""

from types import SimpleNamespace

from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import encode
from gemmproof.properties.finding import Finding
from gemmproof.report.record import SCHEMA, PropertyResult, Report

ON = {"backend": "simulator"}
WRONG = ("stays_in_bounds", "out_of_bounds", "an element behind the end")
PROPERTIES = (
    SimpleNamespace(name="runs_to_completion", claim="every case ends in a result"),
    SimpleNamespace(name="stays_in_bounds", claim="every lane addresses an element"),
)


def check(
    kernel, *, max_examples, seed, target, case, listener, launch=False, device=None, limits=False,
    seconds=0, proof=True, proof_seconds=10.0, first=(), workdir=None,
):  # fmt: skip
    """Call the kernel for each case; an option that no engine has is a TypeError, as of `check`."""
    claims = [(p.name, p.claim, "simulator") for p in PROPERTIES]
    expected = kernel.contract.reasons
    listener({"event": "properties", "claims": claims, "expected": expected})
    listener({"event": "start", "examples": max_examples})
    findings = []
    fmt = kernel.contract.formats[0]
    for drawn in [*first, *(case or Case(i, 9, 9, fmt) for i in range(max_examples))]:
        listener({"event": "case", "case": drawn.to_json()})
        if kernel.launch(drawn, None) is True:
            findings.append(Finding(*WRONG, case=drawn))
            listener({"event": "finding", "finding": encode(findings[-1])})
        listener({"event": "judged", "examples": ["stays_in_bounds"], "ratios": {}, **ON})
    wrong = {finding.property for finding in findings}
    held = tuple(
        PropertyResult(p.name, p.claim, "fail" if p.name in wrong else "pass", max_examples)
        for p in PROPERTIES
    )
    verdict = "fail" if findings else "pass"
    report = Report(SCHEMA, kernel.name, verdict, held, tuple(findings[:1]), 0.0, {})
    if not launch:
        return report
    from gemmproof.backends.cuda import launch_cases

    return launch_cases(kernel, report, [], device, listener)


def holding(kernel, **options):
    """An engine that allocates 128 MiB before it begins."""
    block = bytearray(128 << 20)
    return check(kernel, **options) if block else None


def starving(kernel, **options):
    raise MemoryError

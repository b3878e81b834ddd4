"""An engine that only calls the kernel: it drives the supervisor without torch or the simulator.

A kernel that returns True has a finding.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.report.record import SCHEMA, PropertyResult, Report, mark_failures
from gemmproof.worker.protocol import CaseStarted, PartialReport, Started

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
    listener(Started(max_examples))
    findings, count = [], 0
    listener(PartialReport(_report(kernel, (), {})))
    fmt = kernel.contract.formats[0]
    for drawn in [*first, *(case or Case(i, 9, 9, fmt) for i in range(max_examples))]:
        listener(CaseStarted(drawn.to_json()))
        if kernel.launch(drawn, None) is True:
            findings.append(Finding(*WRONG, case=drawn))
        count += 1
        report = _report(kernel, findings[:1], {"stays_in_bounds": count})
        listener(PartialReport(report))
    report = _report(kernel, findings[:1], dict.fromkeys((p.name for p in PROPERTIES), count))
    if not launch:
        return report
    from gemmproof.backends.cuda import launch_cases

    return launch_cases(kernel, report, [], device, listener)


def _report(kernel, findings: Sequence[Finding], examples: Mapping[str, int]) -> Report:
    counts = ((p, examples.get(p.name, 0)) for p in PROPERTIES)
    held = (PropertyResult(p.name, p.claim, "pass" if n else "not run", n) for p, n in counts)
    properties = mark_failures(held, findings, kernel.contract.reasons)
    return Report(SCHEMA, kernel.name, properties, tuple(findings), 0.0, {})


def holding(kernel, **options):
    """An engine that allocates 128 MiB before it begins."""
    block = bytearray(128 << 20)
    return check(kernel, **options) if block else None


def starving(kernel, **options):
    raise MemoryError

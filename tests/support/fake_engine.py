"""An engine that only calls the kernel: it drives the supervisor without torch or the simulator."""

from types import SimpleNamespace

from gemmproof.properties.cases.case import Case
from gemmproof.report.report import SCHEMA, PropertyResult, Report

ON = {"backend": "simulator"}
PROPERTIES = (
    SimpleNamespace(name="runs_to_completion", claim="every case ends in a result"),
    SimpleNamespace(name="stays_in_bounds", claim="every lane addresses an element"),
)


def check(
    kernel,
    *,
    max_examples,
    seed,
    target,
    case,
    listener,
    launch=False,
    device=None,
    limits=False,
    seconds=0,
    proof=True,
    proof_seconds=10.0,
):
    claims = [(p.name, p.claim, "simulator") for p in PROPERTIES]
    listener({"event": "properties", "claims": claims})
    listener({"event": "start", "examples": max_examples})
    for i in range(max_examples):
        drawn = case or Case(i, 9, 9, kernel.contract.formats[0])
        listener({"event": "case", "case": drawn.to_json()})
        kernel.launch(drawn, None)
        listener({"event": "judged", "examples": ["stays_in_bounds"], "ratios": {}, **ON})
    held = tuple(PropertyResult(p.name, p.claim, "pass", max_examples) for p in PROPERTIES)
    report = Report(SCHEMA, kernel.name, "pass", held, (), 0.0, {})
    if not launch:
        return report
    from gemmproof.backends.cuda import launch_cases

    return launch_cases(kernel, report, [], device, listener)


def holding(kernel, **options):
    """An engine that holds 128 MiB of its own before it begins."""
    held = bytearray(128 << 20)
    return check(kernel, **options) if held else None


def starving(kernel, **options):
    raise MemoryError

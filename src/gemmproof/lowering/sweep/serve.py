"""What a worker does for `gemmproof lowering TARGET --sweep`: each variant is compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gemmproof.lowering.capture import CapturedLaunch
from gemmproof.lowering.serve import capture_case, choose_cases, lower_launch
from gemmproof.lowering.sweep.changes import list_changes
from gemmproof.lowering.sweep.variants import Variant, find_variants, list_unspecialised
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import LAYOUTS
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.target import TargetError
from gemmproof.worker.protocol import Listener, Request


def serve(
    request: Request, find_kernel: Callable[[Request], KernelUnderTest], emit: Listener
) -> None:
    """In the worker: the launches of the request's kernel, and each that differs by one change.

    The plan is that of lowering/serve.py. A launch is told with its `variant` (Variant.to_dict);
    `compiled` has the `notes`: a line on each change that is not compared.
    """
    emit({"event": "ready"})
    kernel = find_kernel(request)
    plan, gpu = request.plan, request.gpu or ""
    notes: list[str] = []
    layouts = LAYOUTS if request.target is not None else kernel.contract.layout_names

    def capture(case: Case) -> list[CapturedLaunch]:
        emit({"event": "advanced"})
        return capture_case(kernel, case, gpu, plan["every"])

    found: list[tuple[Case, Variant]] = []
    for case in choose_cases(request, kernel):
        changes = list(list_changes(case, kernel, layouts))
        variants = find_variants(case, changes, capture, notes)
        if not variants:
            raise TargetError(f"{kernel.name}: got no launch of a Triton kernel, expected one")
        found += [(case, variant) for variant in variants]
        notes += [x for v in variants if not v.change for x in list_unspecialised(v.launch)]
    for i, (case, variant) in enumerate(found):
        # what does not compile as it is has nothing to lose; it may have taken a worker with it
        begun = Path(plan["room"]) / f"{gpu}-{case.dtype}-{variant.base}.begun"
        if i < plan["done"] or begun.exists():
            continue
        if not variant.change:
            begun.touch()
        what = variant.change or "as it is"
        shown = f"{variant.launch.kernel} {case.dtype} for {gpu}: {what}"
        about = {"case": shown, "phase": "compile", "index": i, "of": len(found)}
        emit({"event": "case", **about})
        made = lower_launch(variant.launch, case.dtype, plan)
        emit({"event": "lowered", "lowering": made.to_dict(), "variant": variant.to_dict()})
        if not made.error:
            begun.unlink(missing_ok=True)
    emit({"event": "compiled", "launches": len(found), "notes": notes})

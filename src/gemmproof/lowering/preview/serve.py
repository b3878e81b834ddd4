"""What a worker does for `gemmproof lowering --dot`: each dot compiled, and what would help it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gemmproof.lowering.capture import capture_launches
from gemmproof.lowering.preview.dot import Dot, list_changes
from gemmproof.lowering.preview.kernel import launch
from gemmproof.lowering.record import FMA, UNKNOWN, LoweredLaunch
from gemmproof.lowering.serve import explain_capture, lower_launch
from gemmproof.reference.gpus import GPUS
from gemmproof.worker.protocol import Listener, Request


def serve(request: Request, emit: Listener) -> None:
    """In the worker: each dot of the request's plan, for its GPU.

    `plan`: `dots`, the fields of each; `room` for files; `done`, how many an earlier worker told
    of; `remedies`, whether changes are tried for those that miss the tensor cores.
    """
    emit({"event": "ready"})
    plan, gpu = request.plan, request.gpu or ""
    dots = [Dot(**{**fields, "tile": tuple(fields["tile"])}) for fields in plan["dots"]]
    for i, dot in enumerate(dots[plan["done"] :], plan["done"]):
        shown = f"{request.name} {dot.dtype} for {gpu}: {dot.warps} warps"
        about = {"case": shown, "phase": "compile", "index": i, "of": len(dots)}
        emit({"event": "case", **about})
        made = lower_dot(dot, gpu, plan)
        if plan["remedies"] and not made.error and is_without_cores(made):
            made = replace(made, remedies=tuple(_find_remedies(dot, gpu, plan, emit)))
        emit({"event": "lowered", "lowering": made.to_dict()})
    emit({"event": "compiled", "launches": len(dots)})


def lower_dot(dot: Dot, gpu: str, plan: dict[str, Any]) -> LoweredLaunch:
    """What one dot is compiled to."""
    with (
        explain_capture("--dot", gpu),
        capture_launches(gpu) as made,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        launch(dot)
    return lower_launch(made[0], dot.dtype, plan)


def is_without_cores(made: LoweredLaunch) -> bool:
    """Whether its dot became fused multiply-adds alone."""
    found = [x.unit for dot in made.dots for x in dot.instructions]
    return bool(found) and all(unit == FMA for unit in found)


def _find_remedies(dot: Dot, gpu: str, plan: dict[str, Any], emit: Listener) -> Iterator[str]:
    """What reaches the tensor cores with one thing changed; of each thing the smallest change.

    Each is compiled: nothing is concluded from a rule that the compiler may not keep. The GPU is
    changed where nothing else helps.
    """
    helped: set[str] = set()
    tried: dict[str, str] = {}
    for words, changed in list_changes(dot):
        what = words.partition("=")[0]
        if what in helped:
            continue
        emit({"event": "advanced"})
        tried[what] = words
        if named := _name_core(lower_dot(changed, gpu, plan)):
            helped.add(what)
            yield f"with {words}: {named}"
    if helped:
        return
    if tried:
        yield f"with {' or '.join(tried.values())}: no tensor core either"
    for other in GPUS.values():
        if other.is_amd == GPUS[gpu].is_amd and other.name != gpu:
            emit({"event": "advanced"})
            if named := _name_core(lower_dot(dot, other.name, plan)):
                yield f"for {other.name}: {named}"
                return


def _name_core(made: LoweredLaunch) -> str:
    """The first instruction of a tensor core, "" for none."""
    if made.error:
        return ""
    for one in (x for dot in made.dots for x in dot.instructions):
        if one.unit not in (FMA, UNKNOWN):
            m, n, k = one.shape or ("?", "?", "?")
            return f"{one.unit} m{m}n{n}k{k} of {one.a}"
    return ""

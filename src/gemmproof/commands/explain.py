"""`gemmproof explain`: a kernel's reads and writes, in closed form; or the page on a property."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from gemmproof.commands.check import request_of
from gemmproof.commands.output import answer, limits_of, refuse, show_end, undrawable, unwritable
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import decode, encode
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import EXIT
from gemmproof.report.text import STYLES, clean
from gemmproof.spelling import suggest
from gemmproof.target import TargetError
from gemmproof.terminal import progress
from gemmproof.worker.protocol import UNKNOWN_ENDS, WorkerExit
from gemmproof.worker.supervisor import watch


def run(options: argparse.Namespace) -> int:
    """Follow the target in a worker, print the address map, write the requested reports.

    A word that is no target is the name of a property or of a fault: its page is printed.
    """
    if is_word(options.target):
        return _explain_word(options)
    problem = unwritable(options, ("json", "svg")) or undrawable(options)
    if problem:
        return refuse(options, problem)
    try:
        request = request_of(options)
    except (TargetError, ValueError) as error:
        return refuse(options, str(error))
    config = options.config
    if config is None:
        config = Case.from_json(options.case).config if options.case else 0
    form = "svg" if options.svg else ""
    request = replace(request, ask="explain", config=config, format=form)
    with progress(request.name, options.quiet) as listener:
        worker = watch(request, limits_of(options), listener)
    if "explained" not in worker.events:
        return _without_answer(options, worker, request.name)

    from gemmproof.explain.text import lines, list_lines
    from gemmproof.properties.address_map import AddressMap

    explanation = decode(AddressMap, worker.events["explained"]["explanation"], "map")
    known = list_lines(explanation)
    written: dict[str, Writer] = {"json": lambda path: write_json(path, encode(explanation))}
    if not known:
        reasons = [*explanation.open, *(k.failed for k in explanation.kernels if k.failed)]
        reason = "; ".join(dict.fromkeys(reasons)) or "the wrapper launches no Triton kernel"
        text = f"gemmproof explain: {request.name}: nothing could be followed: {reason}"
        style = STYLES["incomplete"]
        return answer(options, EXIT["incomplete"], [(clean(text), style)], written, to_stderr=True)
    if options.line is not None and options.line not in known:
        there = " ".join(map(str, known))
        text = f"--line: got {options.line}, expected a line that loads or stores: {there}"
        return refuse(options, text)

    def draw_svg(path: Path) -> None:
        from gemmproof.explain.plot import draw

        draw(worker.events["explained"]["picture"], path)

    written["svg"] = draw_svg
    return answer(options, EXIT["pass"], lines(explanation, options.line), written)


def is_word(text: str) -> bool:
    """Return whether the text names a property or a fault: a target has a path, colon or dot."""
    return not set(":./") & set(text)


def _explain_word(options: argparse.Namespace) -> int:
    from gemmproof.explain.text import page_lines
    from gemmproof.properties.help import find_pages, read_faults, read_properties

    for name in ("svg", "case", "line", "config"):
        if getattr(options, name) is not None:
            got = f"--{name}: got the word {options.target!r} with it"
            return refuse(options, f"{got}, expected a TARGET")
    if problem := unwritable(options, ("json", "svg")):
        return refuse(options, problem)
    pages = find_pages(options.target)
    if len(pages) != 1:
        names = [page.name for page in pages] or list(read_properties())
        close = suggest(options.target, [*read_properties(), *read_faults()]) if not pages else ""
        expected = f"one of: {' '.join(names)}" + ("" if pages else ", a fault or a TARGET")
        return refuse(options, f"property: got {options.target!r}, expected {expected}{close}")
    (page,) = pages
    written: dict[str, Writer] = {"json": lambda path: write_json(path, encode(page))}
    return answer(options, EXIT["pass"], page_lines(page), written)


def _without_answer(options: argparse.Namespace, worker: WorkerExit, name: str) -> int:
    """Answer for a worker without an explanation: an error, or how the target died."""
    if "internal" in worker.events:
        show_end(options, worker.output)
    if failure := worker.explain_failure(name):
        return refuse(options, failure)
    text = f"gemmproof explain: {worker.where or name}: got {worker.how}, expected an address map"
    code = EXIT["incomplete" if worker.end in UNKNOWN_ENDS else "error"]
    return answer(options, code, [(clean(text), STYLES["fail"])], to_stderr=True)

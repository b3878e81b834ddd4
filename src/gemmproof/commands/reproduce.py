"""`gemmproof reproduce`: a failing case as a test file that needs nothing of ours."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from gemmproof.commands.check import calling_of, reproduce_line, request_of
from gemmproof.commands.console import answer, limits_of, refuse, show_end
from gemmproof.commands.init import find_import
from gemmproof.desk.progress import progress
from gemmproof.properties.compiled.promises import WITHOUT
from gemmproof.properties.finding import Finding, list_by_cause
from gemmproof.report.files import STDOUT, find_obstacle, replace_file
from gemmproof.report.report import EXIT, Report
from gemmproof.report.text import STYLES, clean
from gemmproof.reproduction.bug import Bug
from gemmproof.reproduction.words import Outcomes, tell_gpu
from gemmproof.reproduction.write import Place, write_test
from gemmproof.streams import say
from gemmproof.target import Target, TargetError, parse
from gemmproof.worker.kept import find_store
from gemmproof.worker.protocol import UNKNOWN_ENDS, Listener, Request, WorkerExit
from gemmproof.worker.supervisor import watch
from gemmproof.worker.verdict import judge

DEATHS = ("crash", "hang", "memory", "exit")  # of a worker, which would die again


def run(options: argparse.Namespace) -> int:
    """Find what fails, reduce it, try the test under Triton's interpreter, write it."""
    name = options.output
    try:
        target = parse(options.target)
        _require_room(name, target, options.force)
        request = replace(request_of(options), limits=False)
        # a test of one call shows none of what is compiled
        request = replace(request, contract={**request.contract, **WITHOUT})
    except (TargetError, ValueError) as mistake:
        return refuse(options, str(mistake))
    with progress(request.name, options.quiet) as listener:
        report = _find_failing(options, request, listener)
        finding = _choose(report)
        if finding is None:
            return _refuse_report(options, report)
        worker = _ask_bug(options, request, finding, listener)
    if "reproduced" not in worker.events:
        return _without_answer(options, worker, request.name)
    bug = Bug.from_dict(worker.events["reproduced"]["bug"])
    place, calling = _find_place(target, name), calling_of(options, target.name)
    line = reproduce_line(options, bug.case)
    path = str(_place_of(name))
    draft = write_test(bug, place, calling, line, [])
    words = tell_gpu(bug, _try_test(options, draft, path))
    text = write_test(bug, place, calling, line, words)

    def write(place: Path) -> None:
        place.write_text(text, encoding="utf-8")

    if why := replace_file(name, write):
        say(f"gemmproof reproduce: {name}: {why}, expected a file that can be written")
        return EXIT["incomplete"]
    said = [(clean(f"wrote {name}: {finding.message}"), "")] if name != STDOUT else []
    said += [(clean(f"  {line}"), "") for line in words]
    return answer(options, EXIT["pass"], said, to_stderr=name == STDOUT)


def _require_room(name: str, target: Target, force: bool) -> None:
    """Raise ValueError for a place where no test can be written."""
    if name == STDOUT:
        return
    path = Path(name)
    if path.suffix != ".py":
        raise ValueError(f"--output: got {name!r}, expected a name that ends in .py")
    if target.is_file and os.path.realpath(path) == os.path.realpath(target.place):
        raise ValueError(f"--output: got {name!r}, the target itself, expected another file")
    if os.path.lexists(path) and not force:
        raise ValueError(f"{name}: got a file that is there, expected none, or --force")
    if why := find_obstacle(name):
        raise ValueError(f"--output: got {name!r} ({why}), expected a file that can be written")


def _find_failing(options: argparse.Namespace, request: Request, listener: Listener) -> Report:
    """The report on the case that was asked for, on one that is kept, or on all that are drawn."""
    limits = limits_of(options)
    store = find_store(options.kept, request)
    for case in store.read(request.contract["formats"]) if store is not None else ():
        report = judge(replace(request, case=case), limits, listener)[0]
        if report.findings:
            return report
    return judge(request, limits, listener)[0]


def _choose(report: Report) -> Finding | None:
    """The first cause; one that a single call shows, if there is any."""
    roots = [root for root, _ in list_by_cause(report.findings)]
    alone = (root for root in roots if root.case.compare is None)
    return next(alone, roots[0]) if roots else None


def _refuse_report(options: argparse.Namespace, report: Report) -> int:
    if report.verdict == "incomplete":
        said = f"gemmproof reproduce: {options.target}: incomplete: {report.note}"
        code = EXIT["incomplete"]
        return answer(options, code, [(clean(said), STYLES["incomplete"])], to_stderr=True)
    if report.verdict == "error":
        return refuse(options, str(report.note))
    cases = "this case" if options.case else "every case that was drawn"
    return refuse(options, f"{options.target}: nothing to reproduce: {cases} holds")


def _ask_bug(
    options: argparse.Namespace, request: Request, finding: Finding, listener: Listener
) -> WorkerExit:
    plan = {"finding": finding.to_dict(), "calls": finding.fault not in DEATHS}
    asked = replace(request, ask="reproduce", case=None, plan=plan)
    return watch(asked, limits_of(options), listener)


def _without_answer(options: argparse.Namespace, worker: WorkerExit, name: str) -> int:
    if "internal" in worker.events:
        show_end(options, worker.output)
    if failure := worker.explain_failure(name):
        return refuse(options, failure)
    said = f"gemmproof reproduce: {worker.where or name}: got {worker.how}, expected a test"
    code = EXIT["incomplete" if worker.end in UNKNOWN_ENDS else "error"]
    return answer(options, code, [(clean(said), STYLES["fail"])], to_stderr=True)


def _try_test(options: argparse.Namespace, text: str, path: str) -> Outcomes | str:
    """What becomes of the test under Triton's interpreter, in a worker; or why nobody knows."""
    plan = {"text": text, "path": path}
    request = Request(ask="try", name="the test", plan=plan)
    limits = replace(limits_of(options), load=float(options.time_limit))
    worker = watch(request, limits)
    if "interpreted" in worker.events:
        outcomes: Outcomes = worker.events["interpreted"]["outcomes"]
        return outcomes
    return worker.how or str(worker.explain_failure("the test"))


def _find_place(target: Target, output: str) -> Place:
    """Where the test finds the wrapper: by import, or as a file where a module has its name."""
    root, module = find_import(target)
    folder = _place_of(output).parent
    if module is None:
        path = os.path.relpath(Path(target.place).resolve(), folder)
        return Place(path, None, target.function)
    kernels = None if root is None else os.path.relpath(root.resolve(), folder)
    return Place(kernels, module, target.function)


def _place_of(output: str) -> Path:
    return Path.cwd() / "test_bug.py" if output == STDOUT else Path(output).resolve()

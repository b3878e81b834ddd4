"""`gemmproof reproduce`: a failing case as a test file that does not need gemmproof."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gemmproof.commands import groups
from gemmproof.commands.init import find_import, is_taken
from gemmproof.commands.output import answer, answer_death, refuse
from gemmproof.engine.assemble import judge, judge_compiled
from gemmproof.engine.request import GUARANTEES, CheckRequest, Guarantees
from gemmproof.engine.saved_cases import find_store, list_formats
from gemmproof.options import Command, flag, group, option, spell
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import GUARANTEED
from gemmproof.properties.finding import UNEXPECTED, Finding, list_by_cause
from gemmproof.report.files import STDOUT, find_obstacle, replace_file
from gemmproof.report.record import EXIT, Report
from gemmproof.report.text import STYLES, clean
from gemmproof.reproduce.record import Outcome, ReproduceRequest, WrittenTest
from gemmproof.spelling import write_command
from gemmproof.target import Calling, Target, TargetError, parse
from gemmproof.terminal import progress, say
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.protocol import Listener
from gemmproof.worker.supervisor import watch

if TYPE_CHECKING:
    from gemmproof.reproduce.bug import Place, WrapperLocation
    from gemmproof.reproduce.write import Outcomes

DEATHS = ("crash", "hang", "exit")  # of a worker, which would die again

TASKS = "gemmproof.reproduce.task"


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """The options of `gemmproof reproduce`."""

    command: ClassVar = Command(
        "reproduce",
        help="write a failing case as a standalone test",
        description="Write a test file for a failing case of f(a, b) -> c, with as few"
        " nonzero elements as possible. The test needs only pytest, torch and triton.",
        examples=("gemmproof reproduce my_kernels.py:matmul -o test_bug.py",),
        exits="0 written, 2 bad usage or target, the file exists, or no test can show a"
        " failure, 3 incomplete",
    )

    choice: groups.KernelOptions = group(groups.KernelOptions())
    output: str = option(
        "FILE",
        "file to write the test to (default %(default)s; - for stdout)",
        default="test_bug.py",
        short="-o",
    )
    case: str | None = option(
        "JSON", "the case to reproduce (default: a saved case, or the first that fails)"
    )
    force: bool = flag("overwrite an existing file")
    search: groups.SearchOptions = group(groups.SearchOptions())
    saved_cases: str | bool | None = groups.saved_cases_option()
    quiet: bool = groups.quiet_flag()
    contract: groups.ContractOptions = group(groups.ContractOptions())
    calling: Calling = group(Calling())
    worker: groups.WorkerOptions = group(groups.WorkerOptions())

    @property
    def label(self) -> str:
        """The kernel as the messages name it."""
        return self.choice.target or self.choice.kernel[0]


@dataclass(frozen=True, slots=True)
class _TestRequest:
    """The request to check, the calling of the wrapper, and its import path in a test."""

    request: CheckRequest
    calling: Calling
    import_path: Place
    files: tuple[str, ...]  # that no test may overwrite


def run(options: ReproduceOptions) -> int:
    """Find a failing case, reduce it, try the test under Triton's interpreter, write it."""
    from gemmproof.reproduce.bug import Bug
    from gemmproof.reproduce.write import describe_gpu, write_test

    name, contract = options.output, options.contract
    try:
        given = groups.spell_declared(contract, options.calling)
        registered = groups.is_registered(options.choice, contract.dtype, given)
        asked = _ask_registered(options) if registered else _ask(options)
        _require_writable(name, asked.files, options.force)
    except (TargetError, ValueError) as error:
        return refuse(options, str(error))
    request = asked.request
    with progress(request.name, options.quiet) as listener:
        report, worker = _find_failing(options, request, listener)
        finding = _choose(report)
        if finding is None:
            report = judge_compiled(report, worker, request, options.worker.limits, listener)
            return _refuse_report(options, report, worker)
        worker = _ask_bug(options, request, finding, listener)
    bug = worker.read_result(Bug)
    if bug is None:
        return answer_death(options, worker, request.name, "a test")
    line = _write_replay(options, bug.case)
    draft = write_test(bug, asked.import_path, asked.calling, line, [])
    remarks = describe_gpu(bug, _try_test(options, draft, str(_place_of(name))))
    text = write_test(bug, asked.import_path, asked.calling, line, remarks)

    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    if reason := replace_file(name, write):
        say(f"gemmproof reproduce: {name}: {reason}, expected a file that can be written")
        return EXIT["incomplete"]
    output = [(clean(f"wrote {name}: {finding.message}"), "")] if name != STDOUT else []
    output += [(clean(f"  {line}"), "") for line in remarks]
    return answer(options, EXIT["pass"], output, to_stderr=name == STDOUT)


def _ask(options: ReproduceOptions) -> _TestRequest:
    """Return the request for TARGET. Raises TargetError or ValueError, in one line."""
    target = parse(options.label)
    declared = (options.contract, options.calling, options.search, options.case)
    request = groups.ask_check(target, *declared)
    files = (target.path,) if target.is_file else ()
    return _TestRequest(request, options.calling, _find_place(target, options.output), files)


def _ask_registered(options: ReproduceOptions) -> _TestRequest:
    """Return the request for --kernel. Raises TargetError or ValueError, in one line."""
    from gemmproof.reproduce.bug import WrapperLocation

    if options.case is not None:
        Case.from_json(options.case)
    choice, formats = options.choice, options.contract.dtype
    request = groups.ask_registered(choice, formats, options.search)
    worker = watch(f"{TASKS}:locate", request.kernel, options.worker.limits)
    location = worker.read_result(WrapperLocation)
    if location is None:
        raise TargetError(worker.explain_failure(request.name) or f"{request.name}: {worker.how}")
    import_path = _place_found(location, options.output)
    files = (choice.conftest, location.file)
    return _TestRequest(replace(request, case=options.case), Calling(), import_path, files)


def _write_replay(options: ReproduceOptions, case: Case) -> str:
    """Return the command that judges a case."""
    declared = groups.spell_declared(options.contract, options.calling)
    kernel = options.choice.arguments + declared
    command = "signoff" if options.choice.kernel else "check"
    return groups.replay(command, kernel, options.search.gpu, case)


def _require_writable(name: str, files: Iterable[str], force: bool) -> None:
    """Raise ValueError for an output where no test can be written."""
    if name == STDOUT:
        return
    path = Path(name)
    if path.suffix != ".py":
        raise ValueError(f"--output: got {name!r}, expected a name that ends in .py")
    for file in files:
        if os.path.realpath(path) == os.path.realpath(file):
            raise ValueError(f"--output: got {name!r}, the target itself, expected another file")
    if os.path.lexists(path) and not force:
        raise ValueError(f"{name}: the file exists; use --force to overwrite it")
    if reason := find_obstacle(name):
        raise ValueError(f"--output: got {name!r} ({reason}), expected a file that can be written")


def _find_failing(
    options: ReproduceOptions, request: CheckRequest, listener: Listener
) -> tuple[Report, WorkerExit]:
    """Return the report on the requested case, on a saved one, or on all that are drawn.

    It does not cover compiled code: a test of values cannot show that.
    """
    limits = options.worker.limits
    store = find_store(options.saved_cases, request)
    for case in store.read(list_formats(request.kernel)) if store is not None else ():
        judged = judge(replace(request, case=case), limits, listener, compiles=False)
        if judged[0].findings:
            return judged
    return judge(request, limits, listener, compiles=False)


def _choose(report: Report) -> Finding | None:
    """Return the first cause; one that a single call shows, if there is any.

    Expected failures are considered only if nothing else fails.
    """
    findings = [f for f in report.findings if f.fault != UNEXPECTED] or list(report.expected)
    roots = [root for root, _ in list_by_cause(findings)]
    alone = (root for root in roots if root.case.compare is None)
    return next(alone, roots[0]) if roots else None


def _refuse_report(options: ReproduceOptions, report: Report, worker: WorkerExit) -> int:
    label = options.label
    if claims := [f for f in (*report.findings, *report.expected) if f.property in GUARANTEED]:
        guarantees = worker.read_part(GUARANTEES, Guarantees)
        gpus = guarantees.gpus if guarantees else ()
        text = _describe_claims(options, [f for f in claims if f.fault != UNEXPECTED], gpus)
        if text:
            return refuse(options, clean(f"{label}: {text}"))
    if report.verdict == "incomplete":
        text = f"gemmproof reproduce: {label}: incomplete: {report.note}"
        code = EXIT["incomplete"]
        return answer(options, code, [(clean(text), STYLES["incomplete"])], to_stderr=True)
    if report.verdict == "error":
        return refuse(options, str(report.note))
    cases = "this case" if options.case else "every case that was drawn"
    return refuse(options, f"{label}: nothing to reproduce: {cases} holds")


def _describe_claims(
    options: ReproduceOptions, findings: list[Finding], gpus: Sequence[str]
) -> str:
    """Return which claims of compiled code fail, and the command that shows the first, or ""."""
    if not findings:
        return ""
    first, names = findings[0], list(dict.fromkeys(f.property for f in findings))
    argv = ["gemmproof", "lowering", *options.choice.arguments, *spell(options.calling)]
    mentioned = [gpu for gpu in gpus if re.search(rf"\b{gpu}\b", first.message)]
    argv += [argument for gpu in mentioned or gpus for argument in ("--target", gpu)]
    argv += ["--config", "all"] * bool(first.case.config)
    command = write_command([*argv, "--case", first.case.to_json()])
    fails = f"{' and '.join(names)} fail{'s' * (len(names) == 1)}"
    return f"no test of values shows that {fails}: {first.message}; see: {command}"


def _ask_bug(
    options: ReproduceOptions, request: CheckRequest, finding: Finding, listener: Listener
) -> WorkerExit:
    calls = finding.fault not in DEATHS
    asked = ReproduceRequest(request.kernel, request.gpu, finding, calls)
    return watch(f"{TASKS}:reproduce", asked, options.worker.limits, listener)


def _try_test(options: ReproduceOptions, text: str, path: str) -> Outcomes | str:
    """Return the test's outcomes under Triton's interpreter, or the reason why it failed to run."""
    limits = replace(options.worker.limits, load=float(options.worker.time_limit))
    worker = watch(f"{TASKS}:try_test", WrittenTest(text, path), limits, fresh=True)
    outcomes = worker.read_result(dict[str, Outcome])
    return outcomes or worker.how or str(worker.explain_failure("the test"))


def _find_place(target: Target, output: str) -> Place:
    """Return the test's import path of the wrapper; a file if another module has its name."""
    from gemmproof.reproduce.bug import Place

    root, module = find_import(target)
    folder = _place_of(output).parent
    if module is None:
        path = os.path.relpath(Path(target.path).resolve(), folder)
        return Place(path, None, target.function)
    kernels = None if root is None else os.path.relpath(root.resolve(), folder)
    return Place(kernels, module, target.function)


def _place_found(location: WrapperLocation, output: str) -> Place:
    """Return the import path of a registered wrapper."""
    from gemmproof.reproduce.bug import Place

    folder = _place_of(output).parent
    if not location.module or (location.root and is_taken(location.module, Path(location.file))):
        return Place(os.path.relpath(location.file, folder), None, location.function)
    kernels = os.path.relpath(location.root, folder) if location.root else None
    return Place(kernels, location.module, location.function)


def _place_of(output: str) -> Path:
    return Path.cwd() / "test_bug.py" if output == STDOUT else Path(output).resolve()

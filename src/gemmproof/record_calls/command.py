"""`gemmproof record`: the calls of a project's tests as declarations for conftest.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from gemmproof.commands import groups
from gemmproof.commands.output import answer, refuse, unwritable
from gemmproof.options import Command, argument, flag, group
from gemmproof.record_calls.declaration import RecordedDeclaration
from gemmproof.record_calls.process import STARTUP
from gemmproof.record_calls.record import FILE, QUIET, RecordedCall, RecordEvent, read_events
from gemmproof.record_calls.text import describe_calls, write_conftest
from gemmproof.report.files import replace_file
from gemmproof.report.record import EXIT
from gemmproof.report.text import Line, clean
from gemmproof.spelling import write_command
from gemmproof.terminal import Interrupted, progress, write_all

READ_FORMULA = "gemmproof.record_calls.task:read_formula"
PATIENCE = 5.0  # seconds that the command has to end after an interruption
ADDED = '-W "ignore:Module already imported so cannot be rewritten:pytest.PytestWarning"'


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The options of `gemmproof record`."""

    command: ClassVar = Command(
        "record",
        help="declare wrappers from the calls that your own tests make",
        description="Run a command, such as a project's tests, with its Triton kernels on the"
        " simulator, and write a conftest.py that declares each wrapper as it was called.",
        examples=(
            "gemmproof record pytest tests/test_mm.py",
            "gemmproof record --output conftest.py python bench.py",
        ),
        exits="0 declared, 2 bad usage, 3 nothing declared; that of the command if it fails",
    )

    output: str | None = groups.output_file("write the declarations to this file (default: stdout)")
    force: bool = flag("overwrite an existing file")
    quiet: bool = groups.quiet_flag()
    worker: groups.WorkerOptions = group(groups.WorkerOptions(time_limit=60))
    arguments: tuple[str, ...] = argument(
        "COMMAND", "the command and its arguments", (), repeated=True, remainder=True
    )


def run(options: RecordOptions) -> int:
    """Run the command, and write what was recorded: also if it fails or is interrupted."""
    command = options.arguments[options.arguments[:1] == ("--",) :]
    if not command:
        return refuse(options, "command: got none, expected one such as pytest tests/test_mm.py")
    if problem := unwritable(options):
        return refuse(options, problem)
    if options.output and os.path.lexists(options.output) and not options.force:
        text = f"--output: got {options.output!r} (the file exists), expected a new one, or --force"
        return refuse(options, text)
    with TemporaryDirectory(prefix="gemmproof-") as folder:
        try:
            # stdout is for the declarations alone
            stdout = sys.stderr.fileno() if options.output is None else None
            code, stop = _run_command(command, Path(folder), options.quiet, stdout)
        except OSError as error:
            return refuse(options, f"command: got {command[0]!r} ({error.strerror}), expected one")
        events = list(read_events(Path(folder, "record")))
    return _answer(options, command, events, code, stop)


def _run_command(
    command: Sequence[str], folder: Path, quiet: bool, stdout: int | None
) -> tuple[int, Interrupted | None]:
    """Return the command's exit code, and the signal that interrupted it."""
    (folder / "sitecustomize.py").write_text(STARTUP.format(folder=str(folder)))
    (folder / "record").touch()
    package = Path(__file__).parents[2]
    paths = [str(folder), str(package), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    pytest_options = " ".join([os.environ.get("PYTEST_ADDOPTS", ""), ADDED]).strip()
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTEST_ADDOPTS": pytest_options,
        FILE: str(folder / "record"),
        QUIET: str(int(quiet)),
    }
    # of all Pythons, the one that has gemmproof
    own = {"python": [], "python3": [], "pytest": ["-m", "pytest"]}
    first = [sys.executable, *own[command[0]]] if command[0] in own else [command[0]]
    process = subprocess.Popen([*first, *command[1:]], env=variables, stdout=stdout)
    try:
        return process.wait(), None
    except Interrupted as stop:
        # a terminal interrupts both; a process that goes on was not asked
        for number in (None, stop.number, signal.SIGKILL):
            if number is not None:
                process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                return process.wait(PATIENCE), stop
        return 128 + stop.number, stop


def _answer(
    options: RecordOptions,
    command: Sequence[str],
    events: Sequence[RecordEvent],
    code: int,
    stop: Interrupted | None,
) -> int:
    """Write the declarations, a line for each wrapper, and return the exit code."""
    declared = _declare(options, events)
    text = write_command(command)
    lines: list[Line] = [(clean(_describe(x)), "") for x in declared]
    lines += [(clean(x.failure), "") for x in events if x.failure]
    if not declared:
        lines.append((f"{text}: no wrapper was recorded: {_explain_none(events, code)}", ""))
    if stop is not None:
        lines.append((f"{text}: {stop}; this is what was recorded until then", ""))
    elif code:
        lines.append((f"{text}: ended with exit code {code}", ""))
    written = [x for x in declared if x.calling is not None]
    if written:
        folder = Path(options.output or "conftest.py").resolve().parent
        conftest = write_conftest(written, text, folder)
        if options.output is None:
            write_all(sys.stdout, conftest)
        elif reason := replace_file(options.output, lambda path: path.write_text(conftest)):
            return refuse(options, f"--output: got {options.output!r} ({reason})")
        else:
            lines.append((f"wrote {clean(options.output)}", ""))
    answer(options, 0, lines, to_stderr=options.output is None)
    if stop is not None:
        return 128 + stop.number
    return code % 256 or EXIT["pass" if written else "incomplete"]


def _explain_none(events: Iterable[RecordEvent], code: int) -> str:
    """Return why there is no declaration, and what to do next."""
    if any(x.failure for x in events):
        return "run it with the Python that has gemmproof"
    if code:
        return "it failed before a launch: apart from a GPU, it needs its data and packages here"
    none = "it launched no Triton kernel in a function that takes tensors"
    return f"{none}; run another test (pytest -rs shows why tests are skipped)"


def _describe(x: RecordedDeclaration) -> str:
    """Return the line about one wrapper."""
    head = f"{x.function} ({os.path.relpath(x.file)}): {describe_calls(x)}"
    if x.calling is None:
        return f"{head}: not declared: {x.reason}"
    how = f"memory only, no formula: {x.reason}" if x.calling.memory_only else "formula read"
    return f"{head}: {how}"


def _declare(options: RecordOptions, events: Sequence[RecordEvent]) -> list[RecordedDeclaration]:
    """Return the declaration of each wrapper; a formula is read in a separate worker."""
    from gemmproof.record_calls.task import RecordedWrapper
    from gemmproof.worker.supervisor import watch

    wrappers: dict[tuple[str, str], list[RecordedCall]] = defaultdict(list)
    paths: dict[tuple[str, str], tuple[str, ...]] = {}
    for event in events:
        if event.call is not None:
            key = event.call.file, event.call.function
            wrappers[key].append(event.call)
            paths[key] = event.path
    declared = []
    for key, calls in wrappers.items():
        request = RecordedWrapper(tuple(calls), paths[key])
        with progress(request.name, options.quiet) as listener:
            worker = watch(READ_FORMULA, request, options.worker.limits, listener)
        own = worker.read_result(RecordedDeclaration)
        declared.append(own if own is not None else _declare_without(calls, worker.how))
    return declared


def _declare_without(calls: Sequence[RecordedCall], reason: str) -> RecordedDeclaration:
    """Return the declaration of a wrapper whose worker died."""
    from dataclasses import replace

    from gemmproof.record_calls.declaration import declare_calls

    own = declare_calls(calls)
    return (
        own if own.calling is None else replace(own, reason=f"its formula was not read: {reason}")
    )

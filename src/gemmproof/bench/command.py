"""`gemmproof bench`: kernels on this machine's GPU compared with a peer, in one table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gemmproof.commands import groups
from gemmproof.commands.output import (
    answer,
    deliver,
    refuse,
    refuse_failure,
    undrawable,
    unwritable,
)
from gemmproof.options import Command, CommandOptions, argument, flag, group, option
from gemmproof.properties.codec import decode, encode
from gemmproof.properties.contract import Contract
from gemmproof.report.files import STDOUT, Writer, replace_file, write_json
from gemmproof.report.record import EXIT
from gemmproof.target import Calling, Target, TargetError, parse
from gemmproof.terminal import Interrupted, progress, say
from gemmproof.worker.ends import UNKNOWN_ENDS, WorkerExit
from gemmproof.worker.protocol import Event, PartialResult, Ready
from gemmproof.worker.supervisor import watch

if TYPE_CHECKING:
    from gemmproof.bench.record import BenchReport, BenchRequest, NamedTarget, TimedRow

MEASURE_TIMES = "gemmproof.bench.task:measure_times"

settle_option = partial(
    option, "S", "seconds of load before the rounds, to let the clocks settle",
    partial(groups.read_number, most=60, noun="seconds"),
    write=lambda seconds: str(seconds).removesuffix(".0"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The options of `gemmproof bench`."""

    command: ClassVar = Command(
        "bench",
        help="time kernels on this GPU against torch",
        description="Verify f(a, b) -> c, or a formula of further operands, and time it on"
        " the GPU, alternating with a peer. A wrapper that takes out= is given the tensor to"
        " write to.",
        examples=(
            "gemmproof bench my_kernels.py:matmul --shapes llama,4096x4096x4096",
            "gemmproof bench my_kernels.py:matmul --against my_kernels.py:matmul_old",
        ),
        exits="0 timed, 1 a wrong result, 2 bad usage or target, or no GPU, 3 incomplete",
    )

    targets: tuple[str, ...] = argument("TARGET", groups.TARGET, repeated=True)
    against: str | None = option(
        "PEER", "a TARGET, or one of torch's: matmul bmm scaled_mm scaled_mm_fast int_mm addmm"
        " addmm_relu addmm_gelu compile compile_relu compile_gelu compile_gelu_tanh compile_silu"
        " int4pack_mm (default: matmul, scaled_mm for fp8, int_mm for int8)"
    )  # fmt: skip
    shapes: str = option(
        "SHAPES",
        "suites, MxNxK or batchxMxNxK, separated by commas (default %(default)s):"
        " llama,16x8192x8192",
        default="square"
    )  # fmt: skip
    dtype: tuple[str, ...] = groups.formats_option(default=("fp16",))
    out_dtype: str | None = groups.out_format_option()
    accumulator: str = groups.accumulator_option()
    columns: bool = flag("store b column-major, as in x @ w.T")
    rounds: int = option(
        "N", "number of rounds, each of four timings in the order ABBA or BAAB", groups.positive, 20
    )
    settle: float = settle_option(default=2.0)
    json: str | None = groups.output_file(groups.JSON)
    svg: str | None = groups.output_file("draw the ratios (needs matplotlib)")
    calling: Calling = group(Calling())
    worker: groups.WorkerOptions = group(groups.WorkerOptions(time_limit=120))


def run(options: BenchOptions) -> int:
    """Time the targets in a worker, print the table, write the requested reports."""
    if problem := unwritable(options) or undrawable(options.svg, "bench"):
        return refuse(options, problem)
    report = measure(options, options)
    if isinstance(report, int):
        return report
    from gemmproof.bench.record import WRONG
    from gemmproof.bench.text import lines

    def draw_svg(path: Path) -> None:
        from gemmproof.bench.plot import draw

        draw(report, path)

    code = EXIT["fail" if any(row.verdict == WRONG for row in report.rows) else "pass"]
    return answer(options, code, lines(report), {"json": make_writer(report), "svg": draw_svg})


def make_writer(report: BenchReport) -> Writer:
    """Return a function that writes the report as JSON."""
    return partial(write_json, data=encode(report), indent=1)


def measure(options: BenchOptions, command: CommandOptions) -> BenchReport | int:
    """Return a worker's measurements, or the exit code after one line on why there are none.

    The JSON is written after each row: an interrupted run leaves what it measured. The line is
    that of the `command`, which may be another one that measures.
    """
    from gemmproof.bench.record import ROW, BenchReport, TimedRow

    try:
        request = request_of(options)
    except (TargetError, ValueError) as error:
        return refuse(command, str(error))
    rows: list[TimedRow] = []
    with progress(request.name) as listener:

        def listen(event: Event) -> None:
            listener(event)
            if isinstance(event, Ready):  # also of a worker that was restarted
                rows.clear()
            if isinstance(event, PartialResult) and event.name == ROW:
                rows.append(decode(TimedRow, event.value, ROW))
                # a failure is reported when the whole report is written
                if options.json not in (None, STDOUT):
                    replace_file(options.json, make_writer(BenchReport({}, (), tuple(rows))))

        # heartbeats show progress; all shapes together may take hours
        try:
            limits = replace(options.worker.limits, total=math.inf)
            worker = watch(MEASURE_TIMES, request, limits, listen)
        except Interrupted:
            _show_rows(command, rows)
            raise
    report = worker.read_result(BenchReport)
    return report or _without_report(command, worker, request.name, rows)


def request_of(options: BenchOptions) -> BenchRequest:
    """Return the request to measure. Raises TargetError or ValueError, in one line."""
    from gemmproof.bench.problems import read_problems
    from gemmproof.bench.record import BenchRequest, NamedTarget

    try:
        problems = read_problems(options.shapes)
    except ValueError as error:
        raise ValueError(f"--{error}") from None
    targets = [parse(text) for text in dict.fromkeys(options.targets)]
    names = _name(targets)
    options.calling.state(names[0])
    formats = tuple(dict.fromkeys(options.dtype))
    return BenchRequest(
        tuple(map(NamedTarget, targets, names)),
        _read_peer(options.against),
        Contract(formats, accumulator=options.accumulator),
        options.calling,
        tuple(problems),
        options.out_dtype,
        options.columns,
        options.rounds,
        options.settle,
    )


def _read_peer(text: str | None) -> NamedTarget | str | None:
    """Return a target with its name, or the name of a peer of torch's."""
    from gemmproof.bench.record import NamedTarget

    if text is None:
        return None
    if ":" in text:
        target = parse(text)
        return NamedTarget(target, str(target))
    from gemmproof.bench.peers import require_known

    require_known("--against", text)
    return text


def _name(targets: list[Target]) -> list[str]:
    """Return the name of each function; TARGET itself if two functions have the same name."""
    count = Counter(target.name for target in targets)
    return [t.name if count[t.name] == 1 else str(t) for t in targets]


def _without_report(
    options: CommandOptions, worker: WorkerExit, name: str, rows: Iterable[TimedRow]
) -> int:
    """Print the measurements before the worker failed or died, and one line on the reason."""
    _show_rows(options, rows)
    if failure := refuse_failure(options, worker, name):
        return failure
    assert worker.case is not None
    died = f"{worker.where or name}: {worker.how}"
    say(f"gemmproof {options.command.name}: {worker.case.case}: {died}")
    return EXIT["incomplete" if worker.end in UNKNOWN_ENDS else "error"]


def _show_rows(options: CommandOptions, rows: Iterable[TimedRow]) -> None:
    if measured := tuple(rows):
        from gemmproof.bench.text import tabulate

        deliver(options, tabulate(measured))

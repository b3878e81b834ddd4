"""`gemmproof signoff`: its options, and one judgement or one after each change."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from gemmproof.commands import groups
from gemmproof.commands.output import refuse_with_annotation
from gemmproof.options import Command, flag, group, option
from gemmproof.report.record import EXIT
from gemmproof.report.text import clean
from gemmproof.signoff.rules import ACCEPTED
from gemmproof.spelling import one_of
from gemmproof.target import Target
from gemmproof.terminal import say
from gemmproof.worker.supervisor import preload

if TYPE_CHECKING:
    from gemmproof.signoff.record import Signoff
    from gemmproof.signoff.verdict import Mutated, Timed


def _read_accepted(text: str) -> str:
    kind = text.partition(":")[0]
    if kind == "promise":
        raise argparse.ArgumentTypeError("got 'promise', which is now 'guarantee'")
    one_of(*ACCEPTED)(kind)
    return text


def _reader(name: str) -> Callable[[str], Any]:
    """Return a function that reads a file immediately: --json may name the same one."""

    def read(path: str) -> Any:
        from gemmproof.signoff import verdict

        try:
            return getattr(verdict, name)(path)
        except ValueError as error:
            raise argparse.ArgumentTypeError(clean(str(error))) from None

    return read


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The pages of a sign-off, and what it is compared with."""

    title: ClassVar = "the sign-off"
    html: str | None = groups.output_file("write the sign-off as a self-contained HTML page")
    markdown: str | None = groups.output_file(
        "write the sign-off as Markdown, for a comment on a pull request"
    )
    baseline: Signoff | None = option(
        "FILE", "compare with the --json of an earlier run, and refuse regressions",
        _reader("read_baseline")
    )  # fmt: skip
    accept: tuple[str, ...] = option(
        "KIND[:KERNEL]",
        f"accept gaps and regressions of this kind, repeatable: {' '.join(ACCEPTED)}",
        _read_accepted,
        repeated=True
    )  # fmt: skip
    drift: bool = flag(
        "measure the accumulator of each format, as `gemmproof drift` does (seconds per format)"
    )
    bench: Timed | None = option(
        "FILE", "add the ratios in the --json of `gemmproof bench`, if of the same source",
        _reader("read_bench")
    )  # fmt: skip
    mutation: Mutated | None = option(
        "FILE", "add the scores in the --json of `gemmproof mutate`, if of the same source",
        _reader("read_mutation")
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SignoffOptions:
    """The options of `gemmproof signoff`."""

    command: ClassVar = Command(
        "signoff",
        help="check every kernel of a project",
        description="Check every kernel that pytest_gemm_kernels() of conftest.py registers,"
        " and report whether the project can be signed off.",
        examples=(
            "gemmproof signoff --json signoff.json --html signoff.html",
            "gemmproof signoff --baseline signoff.json",
        ),
        exits="0 every property held, 1 findings, 2 bad usage or target, 3 incomplete or gaps",
    )

    conftest: str = groups.conftest_option()
    kernel: tuple[str, ...] = option("NAME", "only this kernel, repeatable", repeated=True)
    jobs: int | None = groups.jobs_option()
    fail_fast: bool = flag("stop at the first kernel with findings")
    watch: bool = flag("check again whenever a source file of the kernels changes")
    quiet: bool = groups.quiet_flag()
    search: groups.SearchOptions = group(groups.SearchOptions())
    judge: groups.JudgeOptions = group(groups.JudgeOptions())
    forms: groups.FormOptions = group(groups.FormOptions())
    pages: PageOptions = group(PageOptions())
    worker: groups.WorkerOptions = group(groups.WorkerOptions())


def run(options: SignoffOptions) -> int:
    """Judge the kernels, print the table, write the requested reports.

    If interrupted, it does so with the results so far. With --watch, again after each change.
    """
    from gemmproof.signoff.run import find_mistake, prepare

    if not options.watch:
        return prepare(options)()
    from gemmproof.watch import explain_no_watch, keep_judging

    if problem := explain_no_watch() or find_mistake(options):
        return refuse_with_annotation(options, problem)
    conftest = Target(options.conftest, "pytest_gemm_kernels", is_file=True)
    with preload(limits=options.worker.limits):
        reason = keep_judging(conftest, partial(prepare, options), options.quiet)
    say(f"gemmproof signoff: --watch: {reason}")
    return EXIT["incomplete"]

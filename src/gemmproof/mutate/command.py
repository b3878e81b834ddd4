"""`gemmproof mutate`: small changes of a kernel, and which of them its check detects."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from gemmproof.commands import groups
from gemmproof.commands.output import answer, refuse, unwritable
from gemmproof.engine.request import CheckRequest
from gemmproof.options import Command, flag, group, option
from gemmproof.report.files import Writer, read_record, write_json
from gemmproof.report.record import EXIT
from gemmproof.report.text import STYLES, clean
from gemmproof.spelling import suggest
from gemmproof.target import Calling, TargetError, parse
from gemmproof.terminal import Interrupted, say
from gemmproof.worker.supervisor import preload

if TYPE_CHECKING:
    from gemmproof.mutate.record import Baseline, MutantResult, Score


@dataclass(frozen=True, slots=True)
class MutateOptions:
    """The options of `gemmproof mutate`."""

    command: ClassVar = Command(
        "mutate",
        help="change a kernel in small ways and see which changes its check detects",
        description="Change the source and the launch of a kernel that passes, one change at"
        " a time, and report which changes its check detects.",
        examples=(
            "gemmproof mutate my_kernels.py:matmul --max-mutants 50",
            "gemmproof mutate --kernel matmul --min-score 0.9",
        ),
        exits="0 every mutant was checked, 1 a score is too low, 2 bad usage or target, 3"
        " some mutants were not checked",
    )

    choice: groups.KernelOptions = group(groups.KernelOptions())
    jobs: int | None = groups.jobs_option()
    max_mutants: int | None = option(
        "N", "check a random sample of this many mutants, drawn with --seed", groups.positive
    )
    operator: tuple[str, ...] = option(
        "NAME", "only mutants of this operator, as named in the results, repeatable", repeated=True
    )
    min_score: float | None = option(
        "X", "exit with code 1 if the score, from 0 to 1, is lower",
        partial(groups.read_number, most=1)
    )  # fmt: skip
    baseline: str | None = option(
        "FILE", "the --json of an earlier run: exit with code 1 if the score is lower"
    )
    json: str | None = groups.output_file("write all results (- for stdout)")
    search: groups.SearchOptions = group(groups.SearchOptions())
    proof: bool = flag(
        "for mutants that no case kills, try to prove each property for every size (default yes)",
        default=True, negated="check cases only, without proofs"
    )  # fmt: skip
    contract: groups.ContractOptions = group(groups.ContractOptions())
    calling: Calling = group(Calling())
    worker: groups.WorkerOptions = group(groups.WorkerOptions())


def run(options: MutateOptions) -> int:
    """Judge the mutants of each kernel, print the answer, write the record.

    If interrupted, it does so with the results so far.
    """
    from gemmproof.mutate.mutants import OPERATORS
    from gemmproof.mutate.record import MutationReport, exit_code, find_drops
    from gemmproof.mutate.text import summarise

    try:
        if problem := unwritable(options):
            raise ValueError(problem)
        baseline = _read_baseline(options.baseline)
        for name in options.operator:
            if name not in OPERATORS:
                known = f"one of: {', '.join(OPERATORS)}{suggest(name, OPERATORS)}"
                raise ValueError(f"--operator: got {name!r}, expected {known}")
        requests = list_requests(options)
    except (TargetError, ValueError) as error:
        return refuse(options, str(error))
    scores: list[Score] = []
    failures: list[str] = []
    stopped: Interrupted | None = None
    with preload(None, options.worker.limits):  # a mutant is imported only by its worker
        for request in requests:
            try:
                score, stopped = _mutate(options, request)
                scores.append(score)
            except TargetError as error:  # other kernels are still judged
                failures.append(f"gemmproof mutate: {error}")
            except Interrupted as stop:
                stopped = stop
            if stopped is not None:
                break
    if stopped is not None and not any(score.mutants for score in scores):
        raise stopped  # nothing to report, and no reason to replace a record
    drops = find_drops(scores, options.min_score, baseline)
    code = EXIT["error"] if failures and not drops else exit_code(scores, drops)
    whole = MutationReport(tuple(scores), tuple(drops))
    written: dict[str, Writer] = {"json": lambda path: write_json(path, whole)} if scores else {}
    lines = [line for score in scores for line in summarise(score)]
    lines += [(clean(line), STYLES["fail"]) for line in (*drops, *failures)]
    code = answer(options, code, lines, written, to_stderr=not scores)
    if stopped is not None:
        raise stopped
    return code


def list_requests(options: MutateOptions) -> list[CheckRequest]:
    """Return the requests for each kernel. Raises TargetError or ValueError, in one line."""
    choice, contract, search = options.choice, options.contract, options.search
    given = groups.spell_declared(contract, options.calling)
    if groups.is_registered(choice, contract.dtype, given, several=True):
        choices = [replace(choice, kernel=(name,)) for name in choice.kernel]
        requests = [groups.ask_registered(x, contract.dtype, search) for x in choices]
    else:
        target = parse(str(choice.target))
        requests = [groups.ask_check(target, contract, options.calling, search)]
    return [replace(request, proof=options.proof) for request in requests]


def _mutate(options: MutateOptions, request: CheckRequest) -> tuple[Score, Interrupted | None]:
    from gemmproof.mutate.run import mutate

    jobs = options.jobs or os.cpu_count() or 1
    shows = sys.stderr.isatty()

    def tell(done: int, of: int, mutant: MutantResult) -> None:
        if shows or done % 20 == 0 or done == of:
            say(f"{request.name}: {done} of {of} mutants checked")

    return mutate(
        request,
        options.worker.limits,
        jobs=jobs,
        most=options.max_mutants,
        operators=options.operator,
        tell=tell,
    )


def _read_baseline(name: str | None) -> Baseline | None:
    from gemmproof.mutate.record import Baseline, MutationReport

    if not name:
        return None
    try:
        return Baseline.of(read_record(MutationReport, name, "what mutate --json writes"))
    except ValueError as error:
        raise ValueError(f"--baseline: {error}") from None

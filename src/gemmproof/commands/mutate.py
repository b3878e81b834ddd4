"""`gemmproof mutate`: small changes of a kernel, and which of them its check detects."""

from __future__ import annotations

import argparse
import os
import sys

from gemmproof.commands.check import calling_of, contract_of
from gemmproof.commands.output import answer, limits_of, refuse, unwritable
from gemmproof.mutate.generate import OPERATORS
from gemmproof.mutate.record import (
    Baseline,
    MutantResult,
    MutationReport,
    Score,
    exit_code,
    find_drops,
)
from gemmproof.mutate.text import summarise
from gemmproof.options.registered import ask_registered, is_registered
from gemmproof.properties.codec import encode
from gemmproof.report.files import Writer, read_record, write_json
from gemmproof.report.record import EXIT
from gemmproof.report.text import STYLES, clean
from gemmproof.spelling import suggest
from gemmproof.target import TargetError, parse
from gemmproof.terminal import Interrupted, say
from gemmproof.worker.protocol import Request
from gemmproof.worker.supervisor import preload


def run(options: argparse.Namespace) -> int:
    """Judge the mutants of each kernel, print the answer, write the record.

    If interrupted, it does so with the results so far.
    """
    try:
        if problem := unwritable(options, ("json",)):
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
    with preload(None, limits_of(options)):  # a mutant is imported only by its worker
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


def list_requests(options: argparse.Namespace) -> list[Request]:
    """Return the requests for each kernel. Raises TargetError or ValueError, in one line."""
    if is_registered(options):
        return [_ask(options, **ask_registered(options, name)) for name in options.kernel]
    target = parse(options.target)
    calling = calling_of(options, target.name)
    contract = contract_of(options, target).to_dict()
    return [
        _ask(
            options,
            name=target.name,
            target=encode(target),
            contract=contract,
            calling=encode(calling),
        )
    ]


def _ask(options: argparse.Namespace, **of: object) -> Request:
    return Request(
        ask="mutate",
        max_examples=options.max_examples,
        seed=options.seed,
        gpu=options.gpu,
        proof=options.proof,
        **of,  # type: ignore[arg-type]
    )


def _mutate(options: argparse.Namespace, request: Request) -> tuple[Score, Interrupted | None]:
    from gemmproof.mutate.run import mutate

    jobs = options.jobs or os.cpu_count() or 1
    shows = sys.stderr.isatty()

    def tell(done: int, of: int, mutant: MutantResult) -> None:
        if shows or done % 20 == 0 or done == of:
            say(f"{request.name}: {done} of {of} mutants judged")

    return mutate(
        request,
        limits_of(options),
        jobs=jobs,
        most=options.max_mutants,
        operators=options.operator,
        tell=tell,
    )


def _read_baseline(name: str | None) -> Baseline | None:
    if not name:
        return None
    try:
        return Baseline.of(read_record(MutationReport, name, "what mutate --json writes"))
    except ValueError as error:
        raise ValueError(f"--baseline: {error}") from None

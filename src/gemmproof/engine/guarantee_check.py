"""The check of guarantees: the launches that are compiled, and their part of a report."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gemmproof.compiled.compile import (
    CapturedLaunch,
    Compiler,
    PlannedLaunch,
    capture_case,
    describe_launch,
)
from gemmproof.compiled.guarantees import LaunchPlan, conclude, label_launch
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import WHOLE, is_admitted, probe, smallest
from gemmproof.properties.contract import Contract, list_gpus, list_guaranteed
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.properties.wrapper_state import find_state
from gemmproof.reference.provenance import format_count, format_error
from gemmproof.reference.simulation import SimulatorError
from gemmproof.report.record import Report
from gemmproof.target import line_of

if TYPE_CHECKING:
    pass

# -- plan ----------------------------------------------------------------------------------------
USUAL, ODD, FEW_ROWS = (1024, 1024, 1024), (1023, 1023, 1023), (16, 1024, 1024)
LEAST_MOST = 64  # launches compiled of a format and a GPU, even if fewer cases are asked for
COLUMNS = "column"  # the other common layout of b


def list_cases(contract: Contract, dtype: str) -> Iterator[Case]:
    """Yield the cases of one format whose launches are compiled, the usual one first."""
    yielded: set[Case] = set()
    sizes = []
    for sides in (USUAL, ODD, None, FEW_ROWS, WHOLE):
        # with a side that is long by contract the others may be too large for a case
        with suppress(ValueError):
            sized = smallest(contract, dtype) if sides is None else probe(contract, dtype, sides)
            sizes.append(sized)
    simplest, columns = contract.layout_names[0], COLUMNS in contract.layout_names
    plain = [sized.with_layout("a", simplest).with_layout("b", simplest) for sized in sizes]
    for case in (*plain, *([plain[0].with_layout("b", COLUMNS)] if columns else ())):
        if case not in yielded and is_admitted(case, contract):
            yielded.add(case)
            yield case


def plan_launches(
    kernel: KernelUnderTest, target: str | None, case: Case | None, most: int
) -> tuple[LaunchPlan, list[PlannedLaunch]]:
    """Plan the launches to compile, at most `most` of a format and a GPU, and capture them.

    With a `case` only that one is planned, in its own configuration of a tuner.
    """
    planned: list[PlannedLaunch] = []
    calls: list[tuple[int, ...]] = []
    lacks: list[str] = []
    contract, most = kernel.contract, max(most, LEAST_MOST)
    formats = contract.formats if case is None else (case.dtype,)
    state = find_state(kernel.launch)
    for gpu in list_gpus(contract, target):
        for dtype in formats:
            numbers: dict[tuple[str, str], int] = {}
            excluded: set[tuple[str, str]] = set()
            for current in [case] if case else list_cases(contract, dtype):
                state.restore()  # what a wrapper caches for one GPU is not valid on another
                launches, reason = _capture(kernel, current, gpu)
                lacks += [reason] if reason else []
                call = []
                for launch in launches:
                    is_tuned = launch.configurations > 1
                    if case is not None and is_tuned and launch.index != case.config:
                        continue
                    key = launch.key
                    if key not in numbers and len(numbers) == most:
                        excluded.add(key)
                        continue
                    if key not in numbers:
                        numbers[key] = len(planned)
                        tuned = replace(current, config=launch.index) if is_tuned else current
                        record = describe_launch(launch, dtype, tuned.to_json())
                        planned.append(PlannedLaunch(label_launch(record), record, launch))
                    call.append(numbers[key])
                # a vector has a kernel without a dot; with K = 1 no loop over tiles is left
                if min(current.M, current.N, current.K) > 1:
                    calls.append(tuple(dict.fromkeys(call)))
            if excluded:
                got = f"{format_count(len(excluded), 'launch')} not compiled (limit {most})"
                lacks.append(f"{dtype} for {gpu}: {got}; raise --max-examples")
    state.restore()
    records = tuple(x.record for x in planned)
    return LaunchPlan(records, tuple(calls), tuple(lacks), contract.spills or 0), planned


def _capture(kernel: KernelUnderTest, case: Case, gpu: str) -> tuple[list[CapturedLaunch], str]:
    """Return the launches of a call, and the reason in a line if they are unknown, else ""."""
    try:
        return capture_case(kernel, case, gpu), ""
    except (ContractError, MemoryError):
        raise
    except Exception as error:  # a wrapper may raise anything
        text = str(error) if isinstance(error, SimulatorError) else format_error(error)
        where = line_of(error)
        prefix = f"{where}: " if where and not text.startswith(where) else ""
        return [], f"{prefix}got {text} at {case}, expected launches for {gpu}"


# -- compilation ---------------------------------------------------------------------------------
def add_guarantees(
    report: Report, kernel: KernelUnderTest, target: str | None, case: Case | None, most: int
) -> Report:
    """Add the outcome of the guarantees, compiled without limits, to the report of a check."""
    plan, launches = plan_launches(kernel, target, case, most)
    with tempfile.TemporaryDirectory(prefix="gemmproof-", ignore_cleanup_errors=True) as workdir:
        results = dict(enumerate(Compiler(Path(workdir)).compile(launches)))
    contract = kernel.contract
    promised, reasons = list_guaranteed(contract), contract.reasons
    return conclude(report, plan, results, promised, reasons, is_whole=case is None)

"""Which launches are compiled for a contract's claims: of which sizes, on which GPUs, how many.

Triton compiles a launch anew for arguments that equal 1 or that 16 divides, and a wrapper may
choose its tiles and its kernel by the sizes; so the usual sizes are compiled, such that 16 does not
divide, the smallest, and few rows, each as near as the contract admits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from gemmproof.engine.wrapper_state import keep_state
from gemmproof.lowering.capture import CapturedLaunch, capture_launches
from gemmproof.lowering.claims.record import LaunchPlan, PlannedLaunch
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import WHOLE, is_admitted, probe, smallest
from gemmproof.properties.cases.operands import operands
from gemmproof.properties.contract import Contract, list_gpus
from gemmproof.properties.kernel import KernelUnderTest, Misstated
from gemmproof.reference.provenance import say_count, tell_error
from gemmproof.reference.simulation import SimulatorError
from gemmproof.target import display_path, line_of

USUAL, ODD, FEW_ROWS = (1024, 1024, 1024), (1023, 1023, 1023), (16, 1024, 1024)
LEAST_MOST = 64  # of a format and a GPU that are compiled, whatever few cases are asked for
COLUMNS = "column"  # the other common layout of b


def list_cases(contract: Contract, dtype: str) -> Iterator[Case]:
    """The cases of one format whose launches are compiled, the usual one first."""
    seen: set[Case] = set()
    sizes = []
    for sides in (USUAL, ODD, None, FEW_ROWS, WHOLE):
        # beside a side that is long by contract others may be too much for a case
        with suppress(ValueError):
            one = smallest(contract, dtype) if sides is None else probe(contract, dtype, sides)
            sizes.append(one)
    simplest, columns = contract.layout_names[0], COLUMNS in contract.layout_names
    placed = [one.with_layout("a", simplest).with_layout("b", simplest) for one in sizes]
    for case in (*placed, *([placed[0].with_layout("b", COLUMNS)] if columns else ())):
        if case not in seen and is_admitted(case, contract):
            seen.add(case)
            yield case


def plan_launches(
    kernel: KernelUnderTest, target: str | None, case: Case | None, most: int
) -> tuple[LaunchPlan, list[CapturedLaunch]]:
    """What is to be compiled, and the launches themselves, at most so many of a format and a GPU.

    With a `case` it is that one alone, in its own configuration of a tuner.
    """
    planned: list[PlannedLaunch] = []
    captured: list[CapturedLaunch] = []
    calls: list[tuple[int, ...]] = []
    lacks: list[str] = []
    contract, most = kernel.contract, max(most, LEAST_MOST)
    formats = contract.formats if case is None else (case.dtype,)
    state = keep_state(kernel.launch)
    for gpu in list_gpus(contract, target):
        for dtype in formats:
            numbers: dict[tuple[str, str], int] = {}
            left_out: set[tuple[str, str]] = set()
            for one in [case] if case else list_cases(contract, dtype):
                state.restore()  # what a wrapper keeps of one GPU is not so on another
                made, lack = _capture(kernel, one, gpu)
                lacks += [lack] if lack else []
                call = []
                for launch in made:
                    is_tuned = launch.configurations > 1
                    if case is not None and is_tuned and launch.index != case.config:
                        continue
                    key = launch.key
                    if key not in numbers and len(numbers) == most:
                        left_out.add(key)
                        continue
                    if key not in numbers:
                        numbers[key] = len(captured)
                        captured.append(launch)
                        planned.append(_describe(launch, one))
                    call.append(numbers[key])
                # a vector has a kernel without a dot; of K = 1 nothing is left of a loop over tiles
                if min(one.M, one.N, one.K) > 1:
                    calls.append(tuple(dict.fromkeys(call)))
            if left_out:
                got = f"{say_count(len(left_out), 'launch')} more than {most}"
                lacks.append(f"{dtype} for {gpu}: got {got}, compiled with a larger --max-examples")
    state.restore()
    return LaunchPlan(tuple(planned), tuple(calls), tuple(lacks)), captured


def _capture(kernel: KernelUnderTest, case: Case, gpu: str) -> tuple[list[CapturedLaunch], str]:
    """What a call launches; and in a line why that is not known, "" where it is."""
    try:
        tensors = {name: x.tensor for name, x in operands(case, kernel).items()}
        with capture_launches(gpu) as made, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel.call(case, tensors)
    except Misstated:
        raise
    except MemoryError:
        raise
    except Exception as error:  # a wrapper may raise anything
        said = str(error) if isinstance(error, SimulatorError) else tell_error(error)
        where = line_of(error)
        place = f"{where}: " if where and not said.startswith(where) else ""
        return [], f"{place}got {said} at {case}, expected launches for {gpu}"
    return made, ""


def tell_configuration(launch: CapturedLaunch) -> str:
    """What a tuner chose for a launch, in words; "" where there is none to choose from."""
    if launch.configurations < 2:
        return ""
    told = [f"{name}={x}" for name, x in launch.configuration.items()]
    told += [f"{name}={getattr(launch.options, name)}" for name in ("num_warps", "num_stages")]
    return f"configuration {launch.index}: {' '.join(told)}"


def _describe(launch: CapturedLaunch, case: Case) -> PlannedLaunch:
    tuned = tell_configuration(launch)
    own = replace(case, config=launch.index if launch.configurations > 1 else case.config)
    name = f"{launch.kernel} {case.dtype} for {launch.gpu}{tuned and f', {tuned}'}"
    return PlannedLaunch(
        launch.gpu,
        launch.kernel,
        own.to_json(),
        tuned,
        str(launch.where) if launch.where.line else "",
        display_path(launch.where.file) if launch.where.line else "",
        name,
    )

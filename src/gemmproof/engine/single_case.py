"""One case of a kernel judged by itself, and the survey that cases are drawn around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemmproof.backends.simulate import SECONDS, Simulator
from gemmproof.engine.draw import survey_kernel
from gemmproof.engine.observe import CaseResult, judge, observe_case
from gemmproof.engine.request import JudgedCase
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Survey
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.properties.observation import UNKNOWN
from gemmproof.properties.wrapper_state import find_state
from gemmproof.reference.spec import SpecError


def survey(
    kernel: KernelUnderTest,
    dtype: str,
    target: str | None = None,
    seconds: float = SECONDS,
    start: Callable[[Case], Any] = lambda case: None,
) -> Survey | JudgedCase:
    """Return what the first runs of a kernel show, or the case with an operand that has no values.

    `start` is called with each case before it runs.
    """
    backend = Simulator(target, seconds=seconds)
    cases: list[Case] = []

    def judge_one(case: Case) -> CaseResult:
        start(case)
        cases.append(case)
        return judge(observe_case(kernel, case, backend))

    state = find_state(kernel.launch)
    try:
        return survey_kernel(kernel, dtype, judge_one)
    except (SpecError, ContractError) as error:
        return JudgedCase(cases[-1], unknown=f"{kernel.name}: {error}")
    finally:
        state.restore()


def judge_case(
    kernel: KernelUnderTest,
    case: Case,
    target: str | None = None,
    seconds: float = SECONDS,
    start: Callable[[Case], Any] = lambda case: None,
) -> JudgedCase:
    """Judge a case by every property that applies, as if no case came before it."""
    start(case)
    state = find_state(kernel.launch)
    try:
        result = judge(observe_case(kernel, case, Simulator(target, seconds=seconds)))
    except (SpecError, ContractError) as error:
        return JudgedCase(case, unknown=f"{kernel.name}: {error}")
    finally:
        state.restore()
    raised = result.raised
    unknown = raised.text if raised is not None and raised.kind in UNKNOWN else None
    return JudgedCase(case, result.findings, result.ratios, unknown, len(result.launches))

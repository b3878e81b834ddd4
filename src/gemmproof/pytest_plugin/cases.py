"""Hypothesis items: for each kernel and format, one test whose cases Hypothesis draws."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hypothesis import settings
    from hypothesis.strategies import SearchStrategy

    from gemmproof.engine.case_judge import CaseJudge
    from gemmproof.engine.request import JudgedCase
    from gemmproof.plugin import GemmItem
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.cases.generate import Survey
    from gemmproof.properties.finding import Finding
    from gemmproof.pytest_plugin.annotations import FailedItem
    from gemmproof.pytest_plugin.options import PluginOptions

EXAMPLES = 25  # under the profiles of Hypothesis itself, which have UNSET
UNSET = 100
BUILTIN = ("default", "ci")
STEERED = 1000  # examples from which Hypothesis is steered towards large errors and guards
# faults whose cases take the whole time limit, and the number of such cases that are tried
MOST_HANGS = 5
ENDS = ("crash", "exit", "hang")  # faults after which nothing else is known of a case
Workers = Callable[[], None]  # starts the process that workers are forked from, once


class FaultError(AssertionError):
    """A case has a fault. Each fault has its own subclass, so that Hypothesis shrinks it alone."""

    def __init__(self, case: Case, finding: Finding) -> None:
        super().__init__(finding.message)
        self.case, self.finding = case, finding


class CaseNotJudged(BaseException):
    """A case could not be judged. No Exception: Hypothesis would look for a smaller such case."""

    def __init__(self, reason: str, case: Case | None = None) -> None:
        super().__init__(reason)
        self.case = case


@cache
def _fault_class(*key: str | None) -> type[FaultError]:
    return type("FaultError", (FaultError,), {"key": key})


# -- test ----------------------------------------------------------------------------------------
@dataclass(slots=True, repr=False)
class CasesTest:
    """The cases of one kernel in one format: the judge of a run, and the answers that it gave."""

    item: GemmItem
    options: PluginOptions
    judge: CaseJudge | None = None
    survey: Survey | None = None
    ended: JudgedCase | None = None  # the case that ended the survey
    answers: dict[Case, JudgedCase] = field(default_factory=dict)

    @contextlib.contextmanager
    def open(self, start_workers: Workers) -> Iterator[None]:
        """Judge cases within this context. Raises CaseNotJudged if the kernel cannot be judged."""
        from gemmproof.engine.request import JudgedCase
        from gemmproof.properties.cases.generate import Survey

        self._require_taken()
        with self._open_judge(start_workers) as self.judge:
            survey = self.judge.survey()
            self.ended = survey if isinstance(survey, JudgedCase) else None
            if self.ended is not None and self.ended.unknown is not None:
                raise CaseNotJudged(self.ended.unknown)
            self.survey = Survey() if isinstance(survey, JudgedCase) else survey
            yield

    def _require_taken(self) -> None:
        """Raise CaseNotJudged if the kernel does not take the case that was asked for."""
        from gemmproof.properties.cases.case import Case

        if self.options.judge.case is None:
            return
        case = Case.from_json(self.options.judge.case)
        try:
            self.item.kernel.require_batch(case)
            self.item.kernel.require(case)
        except ValueError as error:
            raise CaseNotJudged(str(error)) from None

    def require_whole(self) -> None:
        """Raise FaultError if a case of the survey ended the worker, or no case launched a kernel.

        A case without a launch is no fault: an empty result needs none.
        """
        if self.ended is not None:
            self._require(self.ended)
        if self.answers and not any(judged.launches for judged in self.answers.values()):
            assert self.judge is not None
            case = max(self.answers, key=lambda case: case.rank)
            for finding in self.judge.report(case).findings:
                raise _fault_class(finding.property, finding.fault)(case, finding)
            raise CaseNotJudged("no case launched a kernel", case)

    def _open_judge(self, start_workers: Workers) -> contextlib.AbstractContextManager[CaseJudge]:
        from gemmproof.engine.case_judge import LocalJudge, open_worker
        from gemmproof.pytest_plugin.reports import is_local, make_request, narrow

        options = self.options
        if is_local(self.item, options):
            kernel, seconds = narrow(self.item), options.worker.time_limit
            return contextlib.nullcontext(LocalJudge(kernel, options.search.gpu, seconds))
        start_workers()
        request = replace(make_request(self.item, options), launch=False, check_model=False)
        return open_worker(request, options.worker.limits)

    def draw(self) -> SearchStrategy[Case]:
        """Return the strategy of the cases, which are drawn around what the survey shows."""
        from hypothesis import strategies as st

        from gemmproof.properties.cases import strategies
        from gemmproof.properties.cases.case import Case

        if self.options.judge.case is not None:
            return st.just(Case.from_json(self.options.judge.case))
        assert self.survey is not None
        return strategies.cases(self.item.kernel.contract, self.survey, self.item.format)

    def require(self, case: Case, steered: bool) -> None:
        """Judge a case. Raises FaultError for the first fault, CaseNotJudged if it is unknown."""
        from hypothesis import reject

        assert self.judge is not None
        if case not in self.answers:
            waits = [f for judged in self.answers.values() for f in judged.findings]
            if sum(finding.fault == "hang" for finding in waits) >= MOST_HANGS:
                reject()  # each further case could take as long
            self.answers[case] = self.judge.judge(case)
        if steered:
            self._steer(case, self.answers[case])
        self._require(self.answers[case], case)

    def _require(self, judged: JudgedCase, case: Case | None = None) -> None:
        if judged.unknown is not None:
            raise CaseNotJudged(judged.unknown, case)
        for fault in self._list_faults(judged):
            raise fault
        for finding in judged.findings:
            if finding.fault in ENDS:  # expected, and no other property was judged
                raise CaseNotJudged(finding.message, judged.case)

    def _list_faults(self, judged: JudgedCase) -> Iterator[FaultError]:
        """Yield the root causes of a case that the contract does not expect."""
        from gemmproof.properties.finding import find_reasons

        expected = find_reasons(judged.findings, self.item.kernel.contract.reasons)
        for finding in judged.findings:
            if finding.cause is None and finding not in expected:
                key = (finding.property, finding.fault, finding.operand, finding.where)
                assert judged.case is not None
                yield _fault_class(*key)(judged.case, finding)

    def list_hidden(self, shown: list[FaultError]) -> list[FaultError]:
        """Return the faults that only occurred behind others, each at its smallest drawn case."""
        hidden: dict[type[FaultError], FaultError] = {}
        for judged in self.answers.values():
            for fault in self._list_faults(judged):
                kind = type(fault)
                if kind not in hidden or fault.case.rank < hidden[kind].case.rank:
                    hidden[kind] = fault
        kinds = set(map(type, shown))
        return [fault for kind, fault in hidden.items() if kind not in kinds]

    def _steer(self, case: Case, judged: JudgedCase) -> None:
        """Have Hypothesis look for larger errors and for sizes nearer to a guard of the source."""
        from hypothesis import target

        from gemmproof.properties.cases.strategies import guard_distance

        assert self.survey is not None
        for name, ratio in judged.ratios.items():
            target(min(ratio, 1e6), label=f"error of {name}, as a share of its bound")
        if self.survey.constants:
            distance = guard_distance(case, self.survey)
            target(float(-distance), label="distance to a guard of the source, negative")


def make_test(test: CasesTest) -> Callable[[], None]:
    """Return the Hypothesis test of a kernel and a format, under the settings of the profile."""
    from hypothesis import given
    from hypothesis import strategies as st

    chosen = choose_settings(has_case=test.options.judge.case is not None)
    steered = chosen.max_examples >= STEERED

    def test_gemm_cases(case: Case) -> None:
        test.require(case, steered)

    # Hypothesis tells tests apart by their names: in its database, and to derandomise them
    test_gemm_cases.__name__ = f"test_gemm_cases_{test.item.kernel.name}_{test.item.format}"
    test_gemm_cases.__doc__ = "Every property holds in the cases that Hypothesis draws."
    hypothesis_test = chosen(given(case=st.deferred(lambda: test.draw()))(test_gemm_cases))
    return pytest.mark.usefixtures("gemm_workers")(hypothesis_test)


def choose_settings(has_case: bool) -> settings:
    """Return the settings of the profile that is loaded, with what a kernel needs.

    There is no deadline: each case has the time limit of its worker. Hypothesis' explain phase
    would explain the lines of gemmproof, not of the kernel.
    """
    from hypothesis import HealthCheck, Phase, settings

    profile = settings.default
    assert profile is not None
    is_builtin = any(profile is settings.get_profile(name) for name in BUILTIN)
    examples = profile.max_examples
    if is_builtin and examples == UNSET:  # a project may register a default of its own
        examples = EXAMPLES
    chosen = settings(
        profile,
        deadline=None,
        max_examples=examples,
        phases=[phase for phase in profile.phases if phase is not Phase.explain],
        suppress_health_check=[*profile.suppress_health_check, HealthCheck.too_slow],
    )
    # a profile may have no phase that draws, but a case that was asked for has to run
    once = settings(chosen, max_examples=1, database=None, phases=[Phase.generate])
    return once if has_case else chosen


# -- item ----------------------------------------------------------------------------------------
class CasesItem(pytest.Function):
    """The pytest item of a CasesTest."""

    test: CasesTest
    funcargs: dict[str, Any]
    gemm_failure: FailedItem | None = None  # for annotations

    def runtest(self) -> None:
        """Run the Hypothesis test. Fails with each fault as `check` describes it."""
        faults: list[FaultError] = []
        unjudged = None
        with contextlib.ExitStack() as closes:
            try:
                closes.enter_context(self.test.open(self.funcargs["gemm_workers"]))
                super().runtest()
                self.test.require_whole()  # no drawn case showed a fault
            except CaseNotJudged as error:
                unjudged = error
            except FaultError as fault:
                faults = [fault]
            except BaseExceptionGroup as group:
                faults = list(_list_leaves(group))
                if not all(isinstance(fault, FaultError) for fault in faults):
                    raise
            if faults:
                faults += self.test.list_hidden(faults)
            findings = _drop_consequences([self._explain(fault) for fault in faults])
        from gemmproof.pytest_plugin.annotations import make_failure

        if unjudged is not None:
            text = f"{self.test.item}: not judged: {unjudged}"
            if unjudged.case is not None:  # Hypothesis does not save it
                case = unjudged.case
                text += f"\n  case: {case}\n  reproduce:  {self._reproduce(case)}"
            self.gemm_failure = make_failure(self.nodeid, [], self._reproduce, text)
            pytest.fail(text, pytrace=False)
        if findings:
            self.gemm_failure = make_failure(self.nodeid, findings, self._reproduce, "")
            pytest.fail("\n\n".join(map(self._describe, findings)), pytrace=False)

    def _explain(self, fault: FaultError) -> Finding:
        """Return the finding of a fault as `check` reports it of the same case."""
        assert self.test.judge is not None
        findings = self.test.judge.report(fault.case).findings
        own = fault.finding
        same = (f for f in findings if (f.property, f.where) == (own.property, own.where))
        again = next(same, None)
        if again is None and not findings:  # a kernel that does not always do the same
            return replace(own, message=f"{own.message}; judged again, this case has no finding")
        return again or own

    def _describe(self, finding: Finding) -> str:
        """Return a finding as text, with the command and the line that repeat its case."""
        from gemmproof.properties.property_table import BY_NAME
        from gemmproof.report.text import clean, finding_text

        claim = BY_NAME[finding.property].claim
        text = finding_text(self.test.item.kernel.name, finding, claim, self._reproduce)
        return f"{text}\n  as an example:  @example(case={clean(repr(finding.case))})"

    def _reproduce(self, case: Case) -> str:
        from gemmproof.spelling import write_command

        gpu = self.config.getoption("gemm_target")
        argv = ["pytest", self.nodeid, *(["--gemm-target", gpu] if gpu else [])]
        return write_command([*argv, "--gemm-case", case.to_json()])


def _drop_consequences(findings: list[Finding]) -> list[Finding]:
    """Return the findings without those that follow from another one of them."""
    roots = {finding.property for finding in findings if finding.cause is None}
    return [finding for finding in findings if finding.cause not in roots]


def _list_leaves(group: BaseExceptionGroup[Any]) -> Iterator[Any]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _list_leaves(error)
        else:
            yield error


def make_item(
    collector: pytest.Collector, name: str, item: GemmItem, options: PluginOptions
) -> CasesItem:
    """Return the item of a kernel and a format."""
    test = CasesTest(item, options)
    node: CasesItem = CasesItem.from_parent(
        collector, name=f"{name}[{item.kernel.name}-{item.format}]", callobj=make_test(test)
    )
    node.test = test
    node.add_marker("gemm")
    return node


# -- storage -------------------------------------------------------------------------------------
def keep_storage_away(config: pytest.Config) -> None:
    """Let Hypothesis write nothing into the project if the profile has no database.

    It would still write the constants of the project's files to its storage.
    """
    from hypothesis import configuration, settings

    assert settings.default is not None
    if settings.default.database is not None:
        return
    folder = tempfile.TemporaryDirectory(prefix="gemmproof-hypothesis-")
    configuration.set_hypothesis_home_dir(Path(folder.name))
    config.add_cleanup(folder.cleanup)

"""A check that ends at its first finding: nothing is shrunk, and nothing tried beyond a promise."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.draw import list_cases
from gemmproof.engine.findings.dedupe import find_no_launch
from gemmproof.engine.judge import Judged, judge
from gemmproof.engine.observe import make_related_calls, observe
from gemmproof.engine.proof import NOTHING, Attempt
from gemmproof.engine.wrapper_state import State, keep_state
from gemmproof.mutation.digest import digest
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import probe
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges.memory_use import COMPILES
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import Observation

FEW = 12  # cases of each format, before more are drawn of any
ENOUGH = 40  # of what is proved right for every size: only rounding is left to differ
MOST_SPENT = 3  # cases that may run out of their time or memory


@dataclass(slots=True)
class Search:
    """A search under way: what calls the kernel, who listens, and every case judged so far.

    `shown` has what each case showed (digest.py), `under_way` is the last one's JSON.
    """

    kernel: KernelUnderTest
    backend: Simulator
    tell: Callable[[dict[str, Any]], None]
    examples: int
    seed: int
    judged: dict[Case, Judged] = field(default_factory=dict)
    shown: dict[Case, tuple[str, str]] = field(default_factory=dict)
    under_way: str = ""
    spent: int = 0

    @property
    def state(self) -> State:
        """What is put back before each case."""
        return keep_state(self.kernel.launch)

    def look(self, case: Case) -> Observation:
        """Observe a case alone, and keep what it shows."""
        self.under_way, index = case.to_json(), len(self.shown)
        self.tell({"event": "case", "phase": "draw", "index": index, "case": self.under_way})
        observation = self.call(case)
        self.shown[case] = digest(observation)
        return observation

    def call(self, case: Case) -> Observation:
        """Call the wrapper as a case says, and for what that is to be compared with."""
        self.state.restore()
        observation = observe(self.kernel, case, self.backend, traced=True)
        make_related_calls(observation, self.backend, self.state)
        return observation

    def judge(self, case: Case) -> Judged:
        """Judge a case, once."""
        if case not in self.judged:
            judged = self.judged[case] = judge(self.look(case))
            self.tell(judged.to_event(len(self.judged), 0.0))
        return self.judged[case]

    def find(self, examples: int, attempt: Attempt = NOTHING) -> Finding | None:
        """The first finding among so many cases of each format, or in what a proof asks for."""
        for dtype in self.kernel.contract.formats:
            for case in self._draw(dtype, examples, attempt):
                judged = self.judge(case)
                if attempt.is_spent_on(judged):
                    continue
                if judged.raised is not None and judged.raised.kind == "exhausted":
                    self.spent += 1  # other cases may need less
                elif not judged.applied:
                    return None  # what the simulator does not know says nothing
                if judged.findings:
                    roots = (f for f in judged.findings if f.cause is None)
                    return next(roots, judged.findings[0])
                if self.spent >= MOST_SPENT:
                    return None
        return next(iter(find_no_launch(list(self.judged.values()))), None)

    def never_compiles(self, finding: Finding) -> bool:
        """Whether no case of the finding's format, a usual one among them, compiles."""
        if finding.property != COMPILES:
            return False
        usual = self.judge(probe(self.kernel.contract, finding.case.dtype))
        own = [x for case, x in self.judged.items() if case.dtype == usual.case.dtype]
        return not any(x.launches and x.raised is None for x in own)

    def _draw(self, dtype: str, examples: int, attempt: Attempt) -> Iterator[Case]:
        rng = random.Random(f"{self.seed} {dtype}")
        besides = len(attempt.list_refuting(self.kernel, dtype)) + len(attempt.cases)
        cases = list_cases(self.kernel, self.judged, attempt, dtype, rng, self.examples)
        # a case may come twice; a contract may admit fewer than are asked for
        return islice(cases, examples + besides)

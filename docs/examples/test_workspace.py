"""Each call gives the right result, whatever the shapes of the calls before it."""

import workspace
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from gemmproof import Case, Contract, KernelUnderTest, observe
from gemmproof.strategies import sizes

KERNEL = KernelUnderTest("matmul", workspace.matmul, Contract(M="1..2", N="1..2", layouts=("row",)))


class Calls(RuleBasedStateMachine):
    @rule(size=sizes(KERNEL))
    def call(self, size):
        findings = observe(KERNEL, Case(**size), keep_state=True).findings
        assert not findings, findings[0].message

    def teardown(self):
        workspace._workspaces.clear()


TestCalls = Calls.TestCase
TestCalls.settings = settings(deadline=None, stateful_step_count=5)

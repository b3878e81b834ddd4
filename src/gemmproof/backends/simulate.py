"""The tile simulator as a backend: a wrapper is called with its launches simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import AllocatedOperand, Touched, find_changes
from gemmproof.properties.judges.exact_values import label_results
from gemmproof.properties.kernel import WRITTEN
from gemmproof.properties.observation import SIMULATOR, ObservedCase, axes_of, count_given, words_of
from gemmproof.reference.fake_cuda.multiprocessors import multiprocessors
from gemmproof.reference.simulation import Run
from gemmproof.reference.simulator import run
from gemmproof.reference.simulator.wrapper_lines import Lines, record_lines

Runner = Callable[..., Run]
SECONDS = 30.0  # counted (reference/work.py), for a call


class Simulator:
    """Calls wrappers on the tile simulator, for `target`, or with exact IEEE dots for None.

    A call may take `seconds`, counted. `lines` are those of the user's Python that have run.
    """

    name = SIMULATOR
    fills: tuple[str, ...] = ("nan", "ones", "zero")

    def __init__(
        self, target: str | None = None, runner: Runner = run, seconds: float = SECONDS
    ) -> None:
        self.target = target
        self.seconds = seconds
        self._run = runner
        self.lines: Lines = {}

    def allocate(self, operand: AllocatedOperand, case: Case) -> torch.Tensor:
        """Return the operand's own tensor."""
        return operand.tensor

    def call(
        self,
        observation: ObservedCase,
        case: Case,
        tensors: Mapping[str, torch.Tensor],
        number: int,
    ) -> Run:
        """Call the wrapper.

        The first call is traced if the kernel has a mirror or the observation's `trace` is a list.
        Tuners make trial runs in the first of several calls, as they do in a program.
        """
        own = case is observation.case
        trace: list[Any] | None = None
        if own and number == 0 and observation.kernel.mirror is not None and not case.is_sampled:
            observation.trace = []
        if own and number == 0:
            trace = observation.trace

        results = list(label_results(observation))

        def launch(*arguments: torch.Tensor) -> object:
            operands = dict(zip(tensors, arguments, strict=True))
            with multiprocessors(case.sms) as asked, record_lines(self.lines):
                result = observation.kernel.call(case, operands, len(results))
            if observation.kernel.memory_only:  # no formula says how many there are
                results[:] = observation.kernel.label_results(count_given(result))
            observation.asked_sms |= len(asked) > 0
            return result

        return self._run(
            launch,
            *tensors.values(),
            target=self.target,
            config=case.config,
            fill=self.fills[number],
            operands=dict(tensors),
            labels=dict(words_of(observation)),
            axes={name: axes_of(observation, name) for name in observation.kernel.tensors},
            written=[name for name, x in observation.operands.items() if x.use == WRITTEN],
            results=results,
            trace=trace,
            tries=own and number == 0 and case.calls > 1,
            seconds=self.seconds,
            **({"sampled": True} if case.is_sampled else {}),
        )

    def find_changes(self, operand: AllocatedOperand) -> list[Touched]:
        """Return what calls changed of an operand."""
        return find_changes(operand)

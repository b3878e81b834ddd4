"""The public observation of one case: results, accesses, programs and findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmproof.backends.simulate import SECONDS, Simulator
from gemmproof.engine.observe import judge, observe_case
from gemmproof.engine.observe import observe as observe_calls
from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.properties.kernel import KernelUnderTest, require_kernel, short
from gemmproof.properties.observation import ObservedCase, Raised
from gemmproof.properties.wrapper_state import find_state
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.simulation import (
    Exhausted,
    Launch,
    NotSimulated,
    SimulatorError,
    Unsupported,
)


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A load, a store or an atomic operation on one block, by the programs that ran it together.

    Attributes:
        kind: "load", "store" or "atomic".
        operand: "a", "b", "c" or the name of another operand; for memory that the wrapper
            allocated, the name of the kernel's parameter.
        where: The source line as `file.py:31`.
        launch: The index of the launch in the observation.
        programs: The program ids, an int64 array of shape (programs, 3).
        offsets: Offsets in elements from the first element of the operand, int64. The first axis is
            that of the programs, the others are those of the block.
        mask: The lanes that access memory, bool, of the shape of `offsets`.
        other: The value of masked lanes of a load, None if they are undefined.
    """

    kind: str
    operand: str
    where: str
    launch: int
    programs: np.ndarray
    offsets: np.ndarray
    mask: np.ndarray
    other: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """The record of one case of a kernel, whose wrapper was called on the tile simulator.

    Attributes:
        case: The case.
        result: What the first call returned, tensors on the CPU; None if it raised.
        launches: The kernel launches of all calls: their names, grids and constexprs, and more.
        accesses: The accesses of the first call in the order of their execution. Of a sampled case,
            whose result is too large to be computed, those of the programs that ran, with only the
            first and the last turns of a long loop.
        findings: The violated properties, root causes first.
        ratios: The largest error of the result, as a share of its bound, by property.
        error: The error that a call raised, in one line, or None.
    """

    case: Case
    result: Any
    launches: tuple[Launch, ...]
    accesses: tuple[Access, ...]
    findings: tuple[Finding, ...]
    ratios: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None

    @property
    def programs(self) -> int:
        """The number of programs of all launches."""
        return sum(math.prod(launch.grid) for launch in self.launches)


def observe(
    kernel: KernelUnderTest,
    case: Case,
    *,
    target: str | None = None,
    keep_state: bool = False,
    seconds: float = SECONDS,
) -> Observation:
    """Run one case of a kernel on the tile simulator, in this process, and judge it.

    Args:
        kernel: The kernel.
        case: The case. Its configuration counts modulo the number that a launched kernel has: a
            wrapper may choose between kernels of different numbers.
        target: The GPU whose dot products are predicted, such as "sm_90"; None for exact IEEE
            chains of fused multiply-adds.
        keep_state: Keep what earlier calls left in the wrapper's modules, such as a cache or a
            workspace. By default each case runs as if no call came before it, and leaves nothing.
            With it, a case makes no further calls for its `compare`.
        seconds: The counted seconds that a call may take.

    Returns:
        The observation. An error that the kernel or its wrapper raises is a finding.

    Raises:
        TypeError: `kernel` is not a KernelUnderTest, or `case` is not a Case.
        ValueError: The kernel does not take the case, or the target is unknown; one line.
        SimulatorError: The case cannot be judged: an operation is not supported (`Unsupported`,
            `NotSimulated` for a kernel in Gluon), or time or memory ran out (`Exhausted`).
    """
    require_kernel("observe", kernel)
    if not isinstance(case, Case):
        raise TypeError(f"observe: got {short(case)}, expected a Case")
    if target not in (None, *GPUS):
        known = " ".join(GPUS)
        raise ValueError(f"observe: got target {target!r}, expected one of {known}")
    kernel.require_batch(case)
    kernel.require(case)
    if kernel.device_only:
        raise NotSimulated(f"{kernel.name} is registered as device_only: only a GPU can run it")
    state, backend = find_state(kernel.launch), Simulator(target, seconds=seconds)
    if keep_state:
        observed = observe_calls(kernel, case, backend, traced=True)
    else:
        observed = observe_case(kernel, case, backend, traced=True)
        state.restore()
    if not observed.is_known:
        raise _make_error(observed.raised)
    result = judge(observed)
    return Observation(
        case,
        observed.calls[0].run.result if observed.calls else None,
        tuple(observed.launches),
        tuple(_list_accesses(observed)),
        result.findings,
        result.ratios,
        None if observed.raised is None else observed.raised.text,
    )


def _make_error(raised: Raised | None) -> SimulatorError:
    """Return the exception for an error that says nothing about the kernel."""
    assert raised is not None
    kinds = {"unsupported": Unsupported, "unseen": NotSimulated, "exhausted": Exhausted}
    error = kinds.get(raised.kind, SimulatorError)
    return error(raised.text)


def _list_accesses(observed: ObservedCase) -> Iterator[Access]:
    for number, (_, (x, y, _), touches) in enumerate(observed.trace or ()):
        for touch in touches:
            count = len(touch.programs)
            shape = (count, *touch.offsets.shape[1:])
            mask = np.True_ if touch.mask is None else touch.mask
            ids = np.asarray(touch.programs, np.int64)
            yield Access(
                touch.kind,
                touch.operand.name,
                str(touch.where or ""),
                number,
                np.stack([ids % x, ids // x % y, ids // (x * y)], axis=1),
                np.broadcast_to(touch.offsets, shape),
                np.broadcast_to(mask, shape),
                touch.other,
            )

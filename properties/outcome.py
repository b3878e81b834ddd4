"""One case run on the simulator: what went in, what came back, what was raised."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gemmproof.properties.case import Case
from gemmproof.properties.contract import KernelUnderTest
from gemmproof.properties.device import multiprocessors
from gemmproof.properties.operands import Operand, Touched, operands, touched
from gemmproof.properties.tensors import as_array, format_of_tensor
from gemmproof.reference.formats import Array, Format
from gemmproof.reference.observation import (
    CompileError,
    Fault,
    KernelError,
    LimitExceeded,
    Run,
    Unsupported,
)
from gemmproof.reference.provenance import is_ours, raising_line

# What memory that nobody has written holds, call after call.
DIRTS = ("nan", "ones", "zero")

Runner = Callable[..., Run]


@dataclass(frozen=True, slots=True)
class Raised:
    """What a call raised: `kind` is "raised", "compile_error", "kernel_error", "limit",
    "unsupported" or "internal".

    "internal" is an error of gemmproof itself, which says nothing about the kernel.
    """

    kind: str
    text: str
    where: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A call to be made besides a case's own: operands, the words for it, the shape of its c.

    `case` says how it is launched. `judged`: whether its result is compared; a call that is not
    only comes before one that is.
    """

    case: Case
    a: torch.Tensor
    b: torch.Tensor
    shape: tuple[int, ...]
    words: str
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Twin:
    """What a call besides the case's own gave: `run`, or None and what it `raised` instead.

    `result` is a storage array of format `out`, None while it has the wrong type, shape or dtype.
    """

    asked: Asked
    run: Run | None
    raised: Raised | None
    result: Array | None
    out: Format | None


@dataclass(slots=True)
class Outcome:
    """What one case gave: one Run per call, or what was raised instead.

    `result` is the first call's result as a storage array of format `out`; None while it has the
    wrong type, shape or dtype. `trace` is the simulator's, of the first call, where the kernel has
    a mirror. `asked_sms`: whether the wrapper asked for the device's properties. `twins` are the
    calls that the case is compared with. `memo` keeps what several properties derive from the same
    outcome.
    """

    kernel: KernelUnderTest
    case: Case
    target: str | None
    operands: tuple[Operand, Operand]
    runs: tuple[Run, ...] = ()
    raised: Raised | None = None
    trace: list[Any] | None = None
    asked_sms: bool = False
    touched: tuple[Touched, ...] = ()
    result: Array | None = None
    out: Format | None = None
    twins: tuple[Twin, ...] = ()
    memo: dict[str, Any] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether the case says anything: the simulator knew every operation and did not fail."""
        return self.raised is None or self.raised.kind not in ("unsupported", "internal")

    @property
    def faults(self) -> Iterable[Fault]:
        """The faults of every call, each once."""
        return dict.fromkeys(fault for run in self.runs for fault in run.faults)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that c must have."""
        return (*self.case.lead, self.case.M, self.case.N)


def execute(kernel: KernelUnderTest, case: Case, run: Runner, target: str | None) -> Outcome:
    """Run a case, `case.calls` times over different dirty memory; never raises for the kernel.

    The second and third call see the same tensors as the first, as in a program that calls again.
    """
    a, b = operands(case)
    outcome = Outcome(kernel, case, target, (a, b))
    runs = []
    for call in range(case.calls):
        trace: list[Any] | None = [] if kernel.mirror is not None and call == 0 else None
        seen, raised = attempt(outcome, case, a.tensor, b.tensor, run, DIRTS[call], trace)
        if seen is None:
            outcome.raised = raised
            break
        runs.append(seen)
        if trace is not None:
            outcome.trace = trace
    outcome.runs = tuple(runs)
    outcome.touched = (*touched(a), *touched(b))
    if runs and outcome.raised is None:
        outcome.result, outcome.out = taken(runs[0].result, outcome.shape)
    return outcome


def attempt(
    outcome: Outcome,
    case: Case,
    a: torch.Tensor,
    b: torch.Tensor,
    run: Runner,
    dirt: str,
    trace: list[Any] | None,
) -> tuple[Run | None, Raised | None]:
    """One call of the outcome's kernel, launched as `case` says: what was seen, or was raised."""

    def launch(*tensors: torch.Tensor) -> object:
        with multiprocessors(case.sms) as asked:
            result = outcome.kernel.launch(*tensors)
        outcome.asked_sms |= len(asked) > 0
        return result

    try:
        seen = run(
            launch,
            a,
            b,
            target=outcome.target,
            config=case.config,
            dirt=dirt,
            operands={"a": a, "b": b},
            trace=trace,
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit in a wrapper is the wrapper's fault too
        return None, _raised(error)
    return seen, None


def same_storage(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors share memory."""
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr() != 0


def taken(result: object, shape: tuple[int, ...]) -> tuple[Array | None, Format | None]:
    """A result of this shape as a storage array, and its format; None for anything else."""
    if not isinstance(result, torch.Tensor) or result.layout != torch.strided:
        return None, None
    fmt = format_of_tensor(result)
    if fmt is None or tuple(result.shape) != shape or result.device.type != "cpu":
        return None, None
    return as_array(result), fmt


def _raised(error: BaseException) -> Raised:
    frames = traceback.extract_tb(error.__traceback__)
    line = raising_line(error)
    where = None if line is None else str(line)
    text = _one_line(error)
    for kind, known in _KINDS.items():
        if isinstance(error, known):
            stated = getattr(error, "where", None)
            return Raised(kind, text, str(stated) if stated is not None else where)
    # torch raises through the simulator's own hooks: that is the wrapper's call, not our mistake
    hooked = bool(frames) and frames[-1].name in ("__torch_function__", "__torch_dispatch__")
    if frames and is_ours(frames[-1].filename) and not hooked:
        at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        return Raised("internal", f"{type(error).__name__} at {at}: {text}", where)
    return Raised(
        "raised", f"{type(error).__name__}: {text}" if text else type(error).__name__, where
    )


_KINDS: dict[str, type[Exception]] = {
    "unsupported": Unsupported,
    "compile_error": CompileError,
    "kernel_error": KernelError,
    "limit": LimitExceeded,
}


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:297]}..."

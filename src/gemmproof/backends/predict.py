"""The tile simulator's prediction for a case on a device, and the reasons why bits may be open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from gemmproof.backends.autotune import Choice, choose
from gemmproof.backends.simulate import Simulator
from gemmproof.engine.observe import CaseResult, judge, observe
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import ObservedCase
from gemmproof.reference.gpus import GPUS

# Operators of torch whose order of summation is the library's own on each device.
_SUMS = ("sum", "mean", "mm", "bmm", "addmm", "baddbmm", "dot", "mv", "cumsum", "prod", "norm")
# Those that torch computes otherwise on a GPU: approximations, as everywhere, and a division by a
# number of the host, which is a product with its reciprocal there.
_FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "rsqrt", "sin", "cos", "tan",
    "tanh", "sigmoid", "silu", "gelu", "erf", "erfc", "softmax", "log_softmax", "softplus", "mish",
    "elu", "hardswish", "hardsigmoid", "logsumexp", "native_layer_norm", "rms_norm",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prediction:
    """A case simulated for a device: the observation, its judgment, and its configurations.

    `lacks` is the reason why there is no model for it, None if there is one. `free` is what leaves
    the bits open although there is a model, None if nothing does. `unseen`: the simulator could not
    see the kernel's own launches, and the bits, if any, are those of its `predicted_by`.
    """

    observation: ObservedCase
    judged: CaseResult
    choices: list[Choice]
    lacks: str | None
    free: str | None
    unseen: bool = False

    @property
    def uses_atomics(self) -> bool:
        """True if a launch adds by atomics, in whatever order programs run."""
        return any(launch.atomics for launch in self.judged.launches)


def find_target(capability: tuple[int, int] | None) -> str | None:
    """Return the simulator's target with a capability, or None if there is no model of it."""
    return next((name for name, gpu in GPUS.items() if gpu.capability == capability), None)


def predict(
    kernel: KernelUnderTest, case: Case, target: str, sms: int, choices: list[Choice] | None = None
) -> Prediction:
    """Simulate one call for `target` with `sms` multiprocessors, tuned kernels in `choices`.

    If the simulator cannot see the launches, the prediction is that of `kernel.predicted_by`.
    """
    single = replace(case, calls=1, compare=None, sms=sms if case.sms is None else case.sms)
    seen = replace(kernel, mirror=None, device_only=False, predicted_by=None)
    prediction = _simulate(seen, single, case, target, choices)
    if not prediction.judged.is_unseen or kernel.predicted_by is None:
        return replace(prediction, unseen=prediction.judged.is_unseen)
    other = _simulate(replace(seen, launch=kernel.predicted_by), single, case, target, None)
    lacks = other.lacks
    if other.judged.findings:  # they are not findings of the kernel
        lacks = f"the kernel that predicts it is wrong: {other.judged.findings[0].message}"
        other = replace(other, judged=replace(other.judged, findings=()))
    return replace(other, lacks=lacks, choices=[], unseen=True)


def _simulate(
    kernel: KernelUnderTest, single: Case, case: Case, target: str, choices: list[Choice] | None
) -> Prediction:
    """Return the prediction from one call of the wrapper; its findings name `case`."""
    with choose(single.config, choices or ()) as chosen, _Watch() as watch:
        observation = observe(kernel, single, Simulator(target))
    raised = observation.raised
    lacks = None if raised is None or observation.is_known else raised.text
    judged = judge(observation)
    judged = replace(judged, findings=tuple(replace(f, case=case) for f in judged.findings))
    return Prediction(observation, judged, chosen, lacks, _find_freedom(observation, watch))


def _find_freedom(observation: ObservedCase, watch: _Watch) -> str | None:
    """Return which order a compiler, a scheduler or a library is free to choose, or None."""
    if watch.functions:
        return f"torch's {watch.functions[0]}, which a GPU computes otherwise"
    for launch in observation.launches:
        if {"/", "math"} & set(launch.rounds):
            return "a division or a function that the device approximates"
    case, formula = observation.case, observation.kernel.spec is not None
    # integers are exact in every fill, but not a formula's scales
    if case.fill == "index" or (case.sums_are_exact and not formula):
        return None
    for launch in observation.launches:
        rounds = set(launch.rounds)
        if "dot" in rounds:
            return "a dot without a verified model"
        if launch.atomics:
            return "the order of atomics"
        if rounds & {"reduce", "scan"}:
            return "the order of a reduction"
        if "fma" in rounds:
            return "a product and a sum that the compiler may fuse"
    return f"the order of torch's {watch.sums[0]}" if watch.sums else None


class _Watch(TorchDispatchMode):
    """Within this context, `sums` and `functions` record operators that a GPU rounds otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: list[str] = []
        self.functions: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in the simulator: torch would import its compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        if name in _SUMS:
            self.sums.append(name)
        elif name.strip("_") in _FUNCTIONS or _divides_by_number(name, args):
            self.functions.append(name.strip("_"))
        return func(*args, **(kwargs or {}))


def _divides_by_number(name: str, args: Any) -> bool:
    """Return whether an operator divides floats by a number, or by a tensor of no dimensions."""
    if name not in ("div", "div_", "true_divide", "true_divide_") or len(args) < 2:
        return False
    return args[0].is_floating_point() and getattr(args[1], "ndim", 0) == 0

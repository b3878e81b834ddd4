"""The observation of a case and its judgment, and the state that a wrapper keeps."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from gemmproof.properties import property_table as table
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import as_array, as_tensor, format_of_tensor, overwrite
from gemmproof.properties.cases.generate import Tile
from gemmproof.properties.cases.operands import (
    AllocatedOperand,
    Touched,
    find_unread,
    operands,
    stored_elements,
    tensors_of,
)
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import determinism, exact_values, host_results, memory_use
from gemmproof.properties.kernel import READ, ContractError, KernelUnderTest
from gemmproof.properties.observation import (
    UNKNOWN,
    Call,
    ObservedCase,
    Raised,
    Related,
    count_given,
    list_given,
)
from gemmproof.properties.wrapper_state import find_state
from gemmproof.reference.arithmetic import Array
from gemmproof.reference.provenance import is_interrupt, is_ours, raising_line, words_of
from gemmproof.reference.simulation import (
    BranchSides,
    CompileError,
    Exhausted,
    KernelError,
    Launch,
    LimitExceeded,
    NotSimulated,
    Run,
    SimulatorError,
    Unsupported,
    Where,
)
from gemmproof.reference.triton_hooks import count_combinations

# -- judge ---------------------------------------------------------------------------------------
Part = tuple[str, str]  # a property, and the part of it that is exercised separately, or ""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case judged by every property that applies; the observation's memory is not kept.

    `tiles` are those of the dots of all `launches`. `bits` is a hash of the first call's result,
    "" if it gave none. `asked_sms`: the wrapper asked for the number of multiprocessors.
    `followed`: every call was followed to its end; one of a sampled case may not be. `epilogues`
    are the undeclared operations on the host that continue what kernels computed. `exercised` are
    the properties that the case would show to be violated, each with its part or "", and `barred`
    those that it shows to be impossible to exercise, with the reason. `branches` are the lines of
    the kernels' branches, with the sides that were taken. `pairs` counts the other M at which the
    same rows were computed.
    """

    case: Case
    backend: str
    findings: tuple[Finding, ...]
    applied: frozenset[str]
    ratios: dict[str, float]
    raised: Raised | None
    tiles: tuple[Tile, ...]
    launches: tuple[Launch, ...]
    asked_sms: bool
    followed: bool
    epilogues: tuple[str, ...] = ()
    bits: str = ""
    exercised: frozenset[Part] = frozenset()
    barred: Mapping[Part, str] = field(default_factory=dict)
    branches: BranchSides = field(default_factory=dict)
    pairs: int = 0

    @property
    def is_unseen(self) -> bool:
        """True if the kernel is in a language that the simulator does not see."""
        return self.raised is not None and self.raised.kind == "unseen"

    @property
    def constants(self) -> list[tuple[str, Any]]:
        """The names and values of the constexprs of all launches."""
        return [pair for launch in self.launches for pair in launch.constexprs.items()]

    def require_config(self) -> None:
        """Raise ContractError for a configuration that none of the launched kernels has."""
        tuned = (launch for launch in self.launches if launch.written > 1)
        most = count_combinations({launch.choice: launch.written for launch in tuned})
        if 1 < most <= self.case.config:
            got = f"got {self.case.config}, expected one of the {most}: 0..{most - 1}"
            raise ContractError(f"case config: {got}")


def judge(observation: ObservedCase) -> CaseResult:
    """Return every finding of one observation, root causes first, consequences marked as such."""
    findings: list[Finding] = []
    applied, ratios = set[str](), dict[str, float]()
    exercised, barred = set[Part](), dict[Part, str]()
    for each in table.list_required(observation.kernel, not observation.is_simulated):
        if each.of_values and observation.kernel.memory_only:
            continue
        barred |= {(each.name, part): reason for part, reason in each.exercise.bar(observation)}
        value_changed = any(f.property not in table.HARMLESS for f in findings)
        shown = observation.split() if each.by_result else [observation]
        shown = [part for part in shown if each.applies(part)]
        if not shown or (each.sound and value_changed):
            continue
        if observation.case.is_sampled and not each.sampled:
            continue
        applied.add(each.name)
        for part in shown:
            assert each.judge is not None  # those without one are judged on no backend
            violations = list(each.judge(part))
            findings += (_with_cause(f, findings, observation) for f in violations)
            if violations or each.exercise.shows(part):
                exercised.add((each.name, each.exercise.part(part)))
            ratio = each.ratio(part) if each.ratio is not None else None
            if ratio is not None:
                ratios[each.name] = max(ratio, ratios.get(each.name, 0.0))
    return CaseResult(
        case=observation.case,
        backend=observation.backend,
        findings=tuple(findings),
        applied=frozenset(applied),
        ratios=ratios,
        raised=observation.raised,
        tiles=observation.tiles,
        launches=tuple(observation.launches),
        asked_sms=observation.asked_sms,
        followed=all(c.run.result is not None for c in observation.calls),
        epilogues=host_results.list_epilogues(observation),
        bits=_hash_bits(observation),
        exercised=frozenset(exercised),
        barred=barred,
        branches=_join_sides(observation),
        pairs=determinism.count_pairs(observation) if determinism.ROWS in applied else 0,
    )


def _join_sides(observation: ObservedCase) -> BranchSides:
    """Return the sides of branches that any launch of a case and its related calls took."""
    calls = [*observation.calls, *(x.call for x in observation.related if x.call is not None)]
    joined: dict[Where, tuple[bool, bool, bool]] = {}
    for launch in (launch for call in calls for launch in call.run.launches):
        for where, sides in launch.branches.items():
            was_true, was_false, is_loop = joined.get(where, sides)
            joined[where] = (was_true or sides[0], was_false or sides[1], is_loop or sides[2])
    return joined


def _hash_bits(observation: ObservedCase) -> str:
    """Return a hash of the first call's results: their types, shapes and bits."""
    results = observation.calls[0].results if observation.calls else ()
    if not results or observation.raised is not None:
        return ""
    digest = hashlib.sha256()
    for result in results:
        if result is None:
            return ""
        digest.update(f"{result.dtype} {result.shape} ".encode())
        digest.update(result.tobytes())
    return digest.hexdigest()[:16]


def _with_cause(finding: Finding, before: list[Finding], observation: ObservedCase) -> Finding:
    """Return the finding, marked as a consequence of an earlier one of this observation, if any.

    Only an out-of-bounds store changes which elements are stored. An out-of-bounds load explains a
    wrong value only through lanes that reach a store, and then the simulator reports so.
    """
    has_bad_store = any(
        fault.kind == "out_of_bounds" and fault.access != "load" for fault in observation.faults
    )
    if finding.cause is not None or (finding.property == memory_use.ONCE and not has_bad_store):
        return finding
    if finding.fault == "never_stored" and any(f.fault == "stored_twice" for f in before):
        return finding.caused_by(memory_use.ONCE)  # it was stored to another element
    known = {f.property for f in before}
    for cause in table.BY_NAME[finding.property].follows:
        if cause in known:
            return finding.caused_by(cause)
    return finding


# -- observe -------------------------------------------------------------------------------------
class Backend(Protocol):
    """A backend that calls wrappers: the simulator, or a device.

    `fills` are the names of the contents of uninitialised memory, call after call.
    """

    name: str
    target: str | None
    fills: tuple[str, ...]

    def allocate(self, operand: AllocatedOperand, case: Case) -> torch.Tensor:
        """Return the tensor that the wrapper is given for an operand."""

    def call(
        self,
        observation: ObservedCase,
        case: Case,
        tensors: Mapping[str, torch.Tensor],
        number: int,
    ) -> Run:
        """Call the wrapper for the number-th time (from 0) with the options of `case`."""

    def find_changes(self, operand: AllocatedOperand) -> list[Touched]:
        """Return what calls changed of an operand."""


def observe(
    kernel: KernelUnderTest,
    case: Case,
    backend: Backend,
    *,
    traced: bool = False,
    allocated: Mapping[str, AllocatedOperand] | None = None,
) -> ObservedCase:
    """Call a kernel `case.calls` times over different uninitialised memory.

    The later calls see the same tensors as the first, as in a program that calls again. `traced`:
    the simulator records every access of the first. `allocated` are operands in place of the case's
    own. Never raises for the kernel.
    """
    unused_operands = find_unread(kernel, case)
    allocated = operands(case, kernel, unused_operands) if allocated is None else allocated
    observation = ObservedCase(
        kernel, case, backend.target, allocated, unused_operands, backend.name
    )
    observation.trace = [] if traced else None
    exact_values.list_shapes(observation)  # a formula that fails is no fault of the kernel
    tensors = {name: backend.allocate(operand, case) for name, operand in allocated.items()}
    for number in range(case.calls):
        if number:
            _renew(observation, tensors)
        call, raised = _call(backend, observation, case, tensors, number)
        if call is None:
            observation.raised = raised
            break
        observation.calls += (call,)
    changes = (backend.find_changes(operand) for operand in allocated.values())
    observation.touched = tuple(change for group in changes for change in group)
    return observation


def observe_case(
    kernel: KernelUnderTest, case: Case, backend: Backend, *, traced: bool = False
) -> ObservedCase:
    """Observe a case and the calls that it is compared with, as if no case came before it."""
    state = find_state(kernel.launch)
    state.restore()
    observation = observe(kernel, case, backend, traced=traced)
    if case.compare is None or not observation.has_result:
        return observation
    state.restore()
    for asked in table.RELATED[case.compare](observation):
        if case.compare != "order":  # whose calls must see the state that earlier ones left
            state.restore()
        missing = kernel.tensors.keys() - asked.tensors.keys()
        if missing:
            asked = replace(asked, tensors={**tensors_of(asked.case, kernel), **asked.tensors})
        related = Related(asked, *_call(backend, observation, asked.case, asked.tensors, 0))
        observation.related += (related,)
        if related.raised is not None and related.raised.kind in UNKNOWN:  # nothing to compare with
            observation.raised, observation.related = related.raised, ()
            break
    return observation


def _call(
    backend: Backend,
    observation: ObservedCase,
    case: Case,
    tensors: Mapping[str, torch.Tensor],
    number: int,
) -> tuple[Call | None, Raised | None]:
    """Make one call; return it, or the error that it raised."""
    try:
        run = backend.call(observation, case, tensors, number)
    except CaseNotRunnable:
        raise
    except BaseException as error:  # sys.exit in a wrapper is the wrapper's fault too
        if is_interrupt(error):
            raise
        return None, describe_error(error)
    if case.is_sampled:  # such a result has no elements
        return Call(run, (None,), backend.fills[number]), None
    shapes = exact_values.list_shapes(observation)
    if observation.kernel.memory_only:
        shapes = (None,) * count_given(run.result)
    elif case is not observation.case:
        # a formula has no shape before it is evaluated, and a related call is only compared
        is_product = observation.kernel.spec is None
        shapes = (case.result_shape,) if is_product else (None,) * len(shapes)
    pairs = zip(list_given(run.result, len(shapes)), shapes, strict=True)
    any_format = observation.kernel.memory_only
    results = tuple(read_result(x, shape, any_format) for x, shape in pairs)
    return Call(run, results, backend.fills[number]), None


def _renew(observation: ObservedCase, tensors: Mapping[str, torch.Tensor]) -> None:
    """Restore the elements of operands that receive results to their values before the calls."""
    for name, operand in observation.operands.items():
        if operand.use != READ:
            before = as_tensor(stored_elements(operand).copy(), operand.dtype)
            overwrite(tensors[name], before.to(tensors[name].device))


class CaseNotRunnable(BaseException):
    """A case that a device cannot run, through no fault of the kernel; the message has the reason.

    No Exception, because a wrapper that catches those would never let this one out of a tuner.
    """


def read_result(
    result: object, shape: tuple[int, ...] | None, any_format: bool = False
) -> Array | None:
    """Return a result of this shape (None for any) as a storage array, or None if it is none.

    If it may have `any_format`, one that no GEMM result has is read as integers.
    """
    if not isinstance(result, torch.Tensor) or result.layout != torch.strided:
        return None
    if shape not in (None, tuple(result.shape)) or result.device.type != "cpu":
        return None
    if format_of_tensor(result) is None:
        bits = 8 * result.element_size()
        if not any_format or bits > 64:
            return None
        result = result.contiguous().view(getattr(torch, f"int{bits}"))
    return as_array(result)


_KINDS: dict[str, type[Exception] | tuple[type[Exception], ...]] = {
    "unseen": NotSimulated,
    "unsupported": Unsupported,
    "compile_error": CompileError,
    "kernel_error": KernelError,
    "limit": LimitExceeded,
    "exhausted": (Exhausted, MemoryError),
}


def describe_error(error: BaseException) -> Raised:
    """Return the error of a call, in one line, with the user's line."""
    text = words_of(error)
    text = text if len(text) <= 300 else f"{text[:297]}..."
    line = (error.where if isinstance(error, SimulatorError) else None) or raising_line(error)
    where, file = (None, None) if line is None else (str(line), line.file)
    for kind, raised in _KINDS.items():
        if isinstance(error, raised):
            return Raised(kind, text, where, file)
    frames = traceback.extract_tb(error.__traceback__)
    # torch raises through the simulator's hooks: that is an error of the wrapper, not ours
    hooked = bool(frames) and frames[-1].name in ("__torch_function__", "__torch_dispatch__")
    if frames and is_ours(frames[-1].filename) and not hooked:
        at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        return Raised("internal", f"{type(error).__name__} at {at}: {text}", where)
    name = type(error).__name__
    return Raised("raised", f"{name}: {text}" if text else name, where, file)

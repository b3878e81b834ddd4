"""The table of properties: claims that must hold of every GEMM kernel, root causes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gemmproof.properties.contract import GUARANTEED, list_guaranteed
from gemmproof.properties.exercise import (
    AGAIN,
    CALL,
    COMPILED,
    EXACT,
    HINT,
    LAUNCH,
    ORDER,
    PREDICTED,
    PROGRAMS,
    RELATION,
    ROUNDED,
    ROWS,
    SPECIAL,
    Exercise,
)
from gemmproof.properties.finding import Finding
from gemmproof.properties.help import read_claim
from gemmproof.properties.judges import (
    determinism,
    exact_values,
    host_results,
    memory_use,
    metamorphic,
)
from gemmproof.properties.judges.memory_use import judge_faults
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import ObservedCase, RelatedCall
from gemmproof.reference.formats import FORMATS


def _is_traced(observation: ObservedCase) -> bool:
    return len(observation.calls) > 0 and observation.is_known


def _is_known(observation: ObservedCase) -> bool:
    return observation.is_known


def _always(kernel: KernelUnderTest, launched: bool) -> bool:
    return True


def _has_floats(kernel: KernelUnderTest, launched: bool) -> bool:
    # sums of integers have no bound and no NaN
    return any(FORMATS[name].kind == "float" for name in kernel.contract.formats)


def _is_product(kernel: KernelUnderTest, launched: bool) -> bool:
    # a custom formula has other relations or none
    return kernel.spec is None


def _has_bound(kernel: KernelUnderTest, launched: bool) -> bool:
    return kernel.spec is not None or _has_floats(kernel, launched)


def _is_deterministic(kernel: KernelUnderTest, launched: bool) -> bool:
    # the order of atomics may change bits on a device; the simulator has one order
    return kernel.contract.deterministic or not launched


def is_predicted(kernel: KernelUnderTest, launched: bool = True) -> bool:
    """Return whether bits can be predicted: the simulator runs the kernel or its equivalent."""
    return not kernel.device_only or kernel.predicted_by is not None


@dataclass(frozen=True, slots=True)
class Property:
    """A claim that is true of a good kernel, and the judge that finds where it is not.

    `applies(observation)`: whether the property can be judged on an observation; `judge` yields the
    violations. `exercise`: what a case needs to show a violation, if there is one.
    `ratio(observation)` measures error over bound, if there is a bound. `follows` names properties
    whose findings, in the same case, cause findings of this one (engine/observe.py has the rules).
    `sound`: it is judged only if no finding can change a value, because otherwise the
    reference of its comparison is wrong too. `simulated`, `launched`: the backends that it is
    judged on. `by_result`: each of several results is judged separately. `sampled`: single programs
    show it, so that it is judged where only some of them ran. `required(kernel, launched)`: whether
    a kernel must have it there. `of_values`: it is about which values c should have, and is not
    judged of a kernel that asks for memory alone. Without a `judge` it is not judged on cases, but
    on the compiled launches (gemmproof/compiled/guarantees.py).
    """

    name: str
    judge: Callable[[ObservedCase], Iterator[Finding]] | None
    applies: Callable[[ObservedCase], bool] = _is_traced
    exercise: Exercise = LAUNCH
    ratio: Callable[[ObservedCase], float | None] | None = None
    follows: tuple[str, ...] = ()
    sound: bool = False
    by_result: bool = False
    required: Callable[[KernelUnderTest, bool], bool] = _always
    simulated: bool = True
    launched: bool = False
    sampled: bool = False
    of_values: bool = False

    @property
    def claim(self) -> str:
        """Return the sentence on it that its page opens with."""
        return read_claim(self.name)

    @property
    def exercises(self) -> str:
        """Return what exercises it, as the end of "no case had ..."."""
        return self.exercise.text


# properties whose violation gives a wrong address, or a lane that is not the compiled kernel's
ADDRESSES = (memory_use.BOUNDS, memory_use.FIT, memory_use.HINTS)
# properties whose violation alone changes no value
HARMLESS = (memory_use.BOUNDS, memory_use.HINTS)
# properties whose violation gives a wrong value
VALUES = (
    memory_use.FIT,
    memory_use.HINTS,
    memory_use.ONCE,
    memory_use.RACES,
    memory_use.LANES,
    memory_use.INPUTS,
    host_results.NAME,
)

PROPERTIES: tuple[Property, ...] = (
    Property(
        memory_use.COMPILES,
        memory_use.judge_compiles,
        applies=_is_known,
        sampled=True,
    ),
    Property(
        memory_use.ENDS,
        memory_use.judge_ends,
        applies=memory_use.ends_applies,
        exercise=CALL,
        launched=True,
        sampled=True,
    ),
    Property(
        memory_use.BOUNDS,
        judge_faults(memory_use.BOUNDS),
        follows=(memory_use.FIT,),
        sampled=True,
    ),
    Property(
        memory_use.FIT,
        judge_faults(memory_use.FIT),
        sampled=True,
    ),
    Property(
        memory_use.HINTS,
        judge_faults(memory_use.HINTS),
        exercise=HINT,
    ),
    Property(
        memory_use.RACES,
        judge_faults(memory_use.RACES),
        exercise=PROGRAMS,
        follows=(memory_use.BOUNDS,),
    ),
    Property(
        memory_use.ONCE,
        judge_faults(memory_use.ONCE),
        follows=ADDRESSES,
    ),
    Property(
        memory_use.LANES,
        judge_faults(memory_use.LANES),
        follows=(memory_use.FIT,),
    ),
    Property(
        memory_use.INPUTS,
        memory_use.judge_inputs,
        applies=_is_known,
        launched=True,
    ),
    Property(
        host_results.NAME,
        host_results.judge,
        applies=host_results.applies,
        of_values=True,
    ),
    Property(
        memory_use.NAME,
        memory_use.judge,
        applies=memory_use.applies,
        follows=(*ADDRESSES, memory_use.ONCE, memory_use.RACES, memory_use.LANES),
        required=lambda kernel, launched: kernel.mirror is not None,
    ),
    Property(
        exact_values.EXACT,
        exact_values.judge_exact,
        by_result=True,
        applies=exact_values.exact_applies,
        exercise=EXACT,
        follows=(*VALUES, memory_use.NAME),
        launched=True,
        of_values=True,
    ),
    Property(
        exact_values.BOUND,
        exact_values.judge_bound,
        by_result=True,
        applies=exact_values.bound_applies,
        exercise=ROUNDED,
        ratio=exact_values.largest_ratio,
        follows=(*VALUES, memory_use.NAME, exact_values.EXACT),
        required=_has_bound,
        launched=True,
        of_values=True,
    ),
    Property(
        determinism.SAME,
        determinism.judge_same,
        by_result=True,
        applies=determinism.same_applies,
        exercise=AGAIN,
        follows=VALUES,
        required=_is_deterministic,
        launched=True,
    ),
    Property(
        exact_values.NAME,
        exact_values.judge,
        applies=exact_values.applies,
        exercise=SPECIAL,
        sound=True,
        required=_has_floats,
        launched=True,
        of_values=True,
    ),
    Property(
        determinism.PREDICTED,
        determinism.judge_prediction,
        by_result=True,
        applies=determinism.prediction_applies,
        exercise=PREDICTED,
        follows=(
            memory_use.INPUTS,
            exact_values.EXACT,
            exact_values.BOUND,
            determinism.SAME,
            exact_values.NAME,
        ),
        required=is_predicted,
        simulated=False,
        launched=True,
    ),
    Property(
        metamorphic.NAME,
        metamorphic.judge,
        applies=metamorphic.applies,
        exercise=RELATION,
        sound=True,
        required=_is_product,
    ),
    Property(
        determinism.ORDER,
        determinism.judge_order,
        by_result=True,
        applies=determinism.order_applies,
        exercise=ORDER,
        sound=True,
    ),
    Property(
        determinism.ROWS,
        determinism.judge_rows,
        by_result=True,
        applies=determinism.rows_apply,
        exercise=ROWS,
        sound=True,
        required=lambda kernel, launched: kernel.contract.batch_invariant,
    ),
    *(Property(name, judge=None, exercise=COMPILED, simulated=False) for name in GUARANTEED),
)
BY_NAME = {p.name: p for p in PROPERTIES}

# relation of a case -> makes the further calls that the comparison needs
RELATED: dict[str, Callable[[ObservedCase], Iterator[RelatedCall]]] = {
    "order": determinism.call_in_order,
    "rows": determinism.call_at_other_m,
    **dict.fromkeys(metamorphic.RELATIONS, metamorphic.make_call),
}


def list_required(kernel: KernelUnderTest, launched: bool = False) -> tuple[Property, ...]:
    """List the properties required of a kernel on the simulator, or on a device if `launched`."""
    if kernel.device_only and not launched:
        return ()
    backend = (p for p in PROPERTIES if (p.launched if launched else p.simulated))
    return tuple(p for p in backend if p.required(kernel, launched))


def list_compiled(kernel: KernelUnderTest) -> tuple[Property, ...]:
    """List the properties required of a kernel's compiled launches."""
    return tuple(BY_NAME[name] for name in list_guaranteed(kernel.contract))


def list_unseen(kernel: KernelUnderTest) -> tuple[str, ...]:
    """List the properties that are not judged of a kernel that the simulator cannot run."""
    if not kernel.device_only:
        return ()
    judged = {p.name for p in list_required(kernel, launched=True)}
    simulated = replace(kernel, device_only=False, predicted_by=None)
    every = (*list_required(simulated), *list_required(simulated, launched=True))
    return tuple(dict.fromkeys(p.name for p in every if p.name not in judged))

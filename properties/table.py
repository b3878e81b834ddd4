"""The table of properties: what must hold of every GEMM kernel, root causes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gemmproof.properties import (
    completion,
    determinism,
    memory,
    metamorphic,
    mirror,
    special,
    values,
)
from gemmproof.properties.compiled.promises import PROMISED, list_promised
from gemmproof.properties.finding import Finding
from gemmproof.properties.help.pages import CLAIMS
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.memory import judge_faults
from gemmproof.properties.observation import Observation, RelatedCall
from gemmproof.reference.formats import FORMATS


def _is_traced(observation: Observation) -> bool:
    return len(observation.calls) > 0 and observation.is_known


def _is_known(observation: Observation) -> bool:
    return observation.is_known


def _always(kernel: KernelUnderTest, launched: bool) -> bool:
    return True


def _has_floats(kernel: KernelUnderTest, launched: bool) -> bool:
    # sums of integers have no bound and no NaN
    return any(FORMATS[name].kind == "float" for name in kernel.contract.formats)


def _is_product(kernel: KernelUnderTest, launched: bool) -> bool:
    # a formula of its own has other special values, and other relations or none
    return kernel.spec is None


def _is_special(kernel: KernelUnderTest, launched: bool) -> bool:
    return _has_floats(kernel, launched) and _is_product(kernel, launched)


def _has_bound(kernel: KernelUnderTest, launched: bool) -> bool:
    return kernel.spec is not None or _has_floats(kernel, launched)


def _is_deterministic(kernel: KernelUnderTest, launched: bool) -> bool:
    # the order of atomics may change bits on a device; the simulator has one order
    return kernel.contract.deterministic or not launched


def is_predicted(kernel: KernelUnderTest, launched: bool = True) -> bool:
    """Whether bits can be predicted: the simulator sees the kernel, or one that gives the same."""
    return not kernel.device_only or kernel.predicted_by is not None


@dataclass(frozen=True, slots=True)
class Property:
    """A claim that is true of a good kernel, and the judge that finds where it is not.

    `applies(observation)`: whether an observation can be judged by it; `judge` yields what is
    wrong. `ratio(observation)` measures error over bound, where there is a bound. `follows` names
    properties whose findings, in the same case, cause findings of this one (engine/judge.py says
    when). `sound`: it is judged only where nothing was found that can change a value, because what
    it compares with the result is wrong then too. `simulated`, `launched`: the backends that it is
    judged on. `by_result`: each of several results is judged by itself. `sampled`: single programs
    show it, so that it is judged where only some of them ran. `promised(kernel, launched)`: whether
    a kernel is held to it there. Without a `judge` it is judged by no case, but by what launches
    are compiled to (gemmproof/lowering/claims).
    """

    name: str
    claim: str
    judge: Callable[[Observation], Iterator[Finding]] | None
    applies: Callable[[Observation], bool] = _is_traced
    ratio: Callable[[Observation], float | None] | None = None
    follows: tuple[str, ...] = ()
    sound: bool = False
    by_result: bool = False
    promised: Callable[[KernelUnderTest, bool], bool] = _always
    simulated: bool = True
    launched: bool = False
    sampled: bool = False


# what makes a wrong address, or a lane that is not the compiled kernel's
ADDRESSES = (memory.BOUNDS, memory.FIT, memory.HINTS)
# what changes no value by itself
HARMLESS = (memory.BOUNDS, memory.HINTS)
# what makes a wrong value
VALUES = (memory.FIT, memory.HINTS, memory.ONCE, memory.RACES, memory.LANES, memory.INPUTS)

PROPERTIES: tuple[Property, ...] = (
    Property(
        completion.COMPILES,
        CLAIMS[completion.COMPILES],
        completion.judge_compiles,
        applies=_is_known,
        sampled=True,
    ),
    Property(
        memory.ENDS,
        CLAIMS[memory.ENDS],
        completion.judge_ends,
        applies=completion.ends_applies,
        launched=True,
        sampled=True,
    ),
    Property(
        memory.BOUNDS,
        CLAIMS[memory.BOUNDS],
        judge_faults(memory.BOUNDS),
        follows=(memory.FIT,),
        sampled=True,
    ),
    Property(
        memory.FIT,
        CLAIMS[memory.FIT],
        judge_faults(memory.FIT),
        sampled=True,
    ),
    Property(
        memory.HINTS,
        CLAIMS[memory.HINTS],
        judge_faults(memory.HINTS),
    ),
    Property(
        memory.RACES,
        CLAIMS[memory.RACES],
        judge_faults(memory.RACES),
        follows=(memory.BOUNDS,),
    ),
    Property(
        memory.ONCE,
        CLAIMS[memory.ONCE],
        judge_faults(memory.ONCE),
        follows=ADDRESSES,
    ),
    Property(
        memory.LANES,
        CLAIMS[memory.LANES],
        judge_faults(memory.LANES),
        follows=(memory.FIT,),
    ),
    Property(
        memory.INPUTS,
        CLAIMS[memory.INPUTS],
        memory.judge_inputs,
        applies=_is_known,
        launched=True,
    ),
    Property(
        mirror.NAME,
        CLAIMS[mirror.NAME],
        mirror.judge,
        applies=mirror.applies,
        follows=(*ADDRESSES, memory.ONCE, memory.RACES, memory.LANES),
        promised=lambda kernel, launched: kernel.mirror is not None,
    ),
    Property(
        values.EXACT,
        CLAIMS[values.EXACT],
        values.judge_exact,
        by_result=True,
        applies=values.exact_applies,
        follows=(*VALUES, mirror.NAME),
        launched=True,
    ),
    Property(
        values.BOUND,
        CLAIMS[values.BOUND],
        values.judge_bound,
        by_result=True,
        applies=values.bound_applies,
        ratio=values.largest_ratio,
        follows=(*VALUES, mirror.NAME, values.EXACT),
        promised=_has_bound,
        launched=True,
    ),
    Property(
        determinism.SAME,
        CLAIMS[determinism.SAME],
        determinism.judge_same,
        by_result=True,
        applies=determinism.same_applies,
        follows=VALUES,
        promised=_is_deterministic,
        launched=True,
    ),
    Property(
        special.NAME,
        CLAIMS[special.NAME],
        special.judge,
        applies=special.applies,
        sound=True,
        promised=_is_special,
        launched=True,
    ),
    Property(
        determinism.PREDICTED,
        CLAIMS[determinism.PREDICTED],
        determinism.judge_prediction,
        by_result=True,
        applies=determinism.prediction_applies,
        follows=(memory.INPUTS, values.EXACT, values.BOUND, determinism.SAME, special.NAME),
        promised=is_predicted,
        simulated=False,
        launched=True,
    ),
    Property(
        metamorphic.NAME,
        CLAIMS[metamorphic.NAME],
        metamorphic.judge,
        applies=metamorphic.applies,
        sound=True,
        promised=_is_product,
    ),
    Property(
        determinism.ORDER,
        CLAIMS[determinism.ORDER],
        determinism.judge_order,
        by_result=True,
        applies=determinism.order_applies,
        sound=True,
    ),
    Property(
        determinism.ROWS,
        CLAIMS[determinism.ROWS],
        determinism.judge_rows,
        by_result=True,
        applies=determinism.rows_apply,
        sound=True,
        promised=lambda kernel, launched: kernel.contract.batch_invariant,
    ),
    *(Property(name, CLAIMS[name], judge=None, simulated=False) for name in PROMISED),
)
BY_NAME = {p.name: p for p in PROPERTIES}

# what a case is compared with -> makes the calls that this takes besides its own
RELATED: dict[str, Callable[[Observation], Iterator[RelatedCall]]] = {
    "order": determinism.call_in_order,
    "rows": determinism.call_at_other_m,
    **dict.fromkeys(metamorphic.RELATIONS, metamorphic.make_call),
}


def list_required(kernel: KernelUnderTest, launched: bool = False) -> tuple[Property, ...]:
    """The properties that a kernel is held to where it is simulated, or where it is launched."""
    if kernel.device_only and not launched:
        return ()
    backend = (p for p in PROPERTIES if (p.launched if launched else p.simulated))
    return tuple(p for p in backend if p.promised(kernel, launched))


def list_compiled(kernel: KernelUnderTest) -> tuple[Property, ...]:
    """The properties that a kernel is held to by what its launches are compiled to."""
    return tuple(BY_NAME[name] for name in list_promised(kernel.contract))


def list_unseen(kernel: KernelUnderTest) -> tuple[str, ...]:
    """The properties that nobody judges of a kernel that the simulator does not see."""
    if not kernel.device_only:
        return ()
    known = {p.name for p in list_required(kernel, launched=True)}
    seen = replace(kernel, device_only=False, predicted_by=None)
    every = (*list_required(seen), *list_required(seen, launched=True))
    return tuple(dict.fromkeys(p.name for p in every if p.name not in known))

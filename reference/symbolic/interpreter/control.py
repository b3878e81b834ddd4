"""Rules of branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gemmproof.reference.symbolic.interpreter.integer_rules import fits, require_fit
from gemmproof.reference.symbolic.interpreter.interpret import (
    Invocation,
    Machine,
    NotInterpretable,
    choose,
    claim_hints,
    control,
    hints_of,
)
from gemmproof.reference.symbolic.interpreter.memory_rules import names_hole, sum_up
from gemmproof.reference.symbolic.interpreter.symbolic_values import (
    BlockWindow,
    Data,
    Ints,
    LoopVariable,
    Pointers,
    fixed_of,
    list_named,
    rebind,
    terms_of,
)
from gemmproof.reference.symbolic.terms import (
    FALSE,
    TRUE,
    Atom,
    Cond,
    Poly,
    every,
    le,
    lt,
    make,
    substitute,
    term,
    walk,
)
from gemmproof.reference.ttir import Op


# -- branches ------------------------------------------------------------------------------------
@control("tt.call")
def _call(machine: Machine, op: Op, frame: Invocation) -> list[Any]:
    callee = machine.functions.get(op.keywords[0])
    if callee is None:
        raise NotInterpretable(f"a call of {op.keywords[0]}, which the module lacks", machine.where)
    return machine.call(callee, [frame.values[x] for x in op.operands], machine.where)


@control("scf.if")
def _branch(machine: Machine, op: Op, frame: Invocation) -> list[Any]:
    condition = machine.bools(frame.values[op.operands[0]]).cond
    machine.part(condition)
    results: list[list[Any]] = []
    for region, cond in zip(op.regions, (condition, ~condition), strict=False):
        if cond == FALSE:
            results.append([])
            continue
        with machine.under(cond):
            results.append(machine.region(region, frame))
    if not op.types:
        return []
    if condition in (TRUE, FALSE):
        return results[0] if condition == TRUE else results[1]
    return [choose(machine, condition, x, y) for x, y in zip(*results, strict=True)]


# -- loops ---------------------------------------------------------------------------------------
Values = list[Any]
_OF_A_TRIP = ("lane", "trips")  # an inner while loop has another number of trips in each trip


@dataclass(slots=True)
class _Loop:
    """A loop being summarised: its trip, and the values that it carries.

    `body` runs one trip on the carried values and returns those for the next.
    """

    machine: Machine
    trip: Atom
    init: Values
    body: Callable[[Values], Values]

    def summarise(self) -> Values:
        """Return the carried values at the generic trip."""
        variables = [LoopVariable(x) for x in self.init]
        self.machine.suppressed += 1
        after = self.body([variable.value for variable in variables])
        self.machine.suppressed -= 1
        known: list[Any] = [None] * len(variables)
        swaps: dict[Atom, Poly] = {}
        for _ in range(len(variables) + 1):
            for i, (variable, new) in enumerate(zip(variables, after, strict=True)):
                if known[i] is None:
                    known[i] = self._resolve(variable, new, variables, swaps)
        for i, variable in enumerate(variables):
            if known[i] is None:
                known[i] = variable.unknown(self.machine)
        return known

    def _resolve(
        self,
        variable: LoopVariable,
        new: Any,
        variables: list[LoopVariable],
        swaps: dict[Atom, Poly],
    ) -> Any | None:
        """Return a carried value at the trip, or None if it is not known yet."""
        if isinstance(variable.init, Data) or isinstance(new, Data):
            return self._resolve_data(variable, new, variables, swaps)
        if fixed_of(variable.init) != fixed_of(new):
            raise NotInterpretable("a pointer or window that trips exchange", self.machine.where)
        own = set(variable.atoms)
        others = {x for other in variables for x in other.atoms} - set(swaps)
        terms, changed = terms_of(new), [term(0)] * len(variable.atoms)
        if len(terms) != len(variable.atoms):
            return None
        kept = [substitute(x, {a: p for a, p in swaps.items() if a not in own}) for x in terms]
        now = terms_of(variable.value)
        steps = [after - before for after, before in zip(kept, now, strict=True)]
        if all(_is_constant(step, others, self.trip) for step in steps):
            changed = [step * term(self.trip) for step in steps]
        elif not any(_is_of_a_trip(x) or x in others for p in kept for x in walk(p)):
            before = {self.trip: term(self.trip) - 1}
            first = le(term(self.trip), 0)
            changed = [
                make("choice", first, term(0), substitute(x, before) - y)
                for x, y in zip(kept, variable.first, strict=True)
            ]
        else:
            return None
        swaps.update(zip(variable.atoms, changed, strict=True))
        return _steps_of_trips(self.machine, variable.fill(changed), variable, new, self.trip)

    def _resolve_data(
        self,
        variable: LoopVariable,
        new: Any,
        variables: list[LoopVariable],
        swaps: dict[Atom, Poly],
    ) -> Data | None:
        """Return a number at the trip: that of the trip before, if independent of others."""
        if not isinstance(new, Data) or not isinstance(variable.init, Data) or names_hole(new):
            return variable.value
        named = set(walk(*list_named(new)))
        if any(x.is_leaf and x.args[0] in _OF_A_TRIP[1:] for x in named):
            return variable.value
        inner = {x for x in named if x.kind == "symbol" and x.args[0] == "trip"}
        if not inner <= set(self.machine.trips):  # whose range may differ between trips
            return variable.value
        if named & {x for other in variables for x in other.atoms} - set(swaps):
            return None
        before = {self.trip: term(self.trip) - 1}
        kept = rebind(rebind(new, swaps), before)
        first = le(term(self.trip), 0)
        return replace(
            variable.value, kind="choice", word="", parts=(variable.init, kept), cond=first
        )


def _is_constant(step: Poly, carried: set[Atom], trip: Atom) -> bool:
    """Return whether a step is the same for every trip and lane."""
    return not any(
        x in carried or x is trip or x.kind == "unknown" or (x.is_leaf and x.args[0] in _OF_A_TRIP)
        for x in walk(step)
    )


def _is_of_a_trip(atom: Atom) -> bool:
    return atom.kind == "symbol" and atom.args[0] == "trips"


def _steps_of_trips(
    machine: Machine, value: Any, variable: LoopVariable, new: Any, trip: Atom
) -> Any:
    """Return a pointer with the 32-bit steps that earlier trips added to it."""
    if not isinstance(value, Pointers) or not isinstance(new, Pointers):
        return value
    initial = set(variable.init.steps)
    earlier = machine.symbol("earlier")
    swap = {trip: earlier}
    past = lt(earlier, term(trip))
    steps = tuple(
        (substitute(step, swap), every((substitute(cond, swap), past)))
        for step, cond in new.steps
        if (step, cond) not in initial
    )
    return replace(value, steps=(*variable.init.steps, *steps))


def _finish(
    machine: Machine, init: Values, carried: Values, after: Values, trip: Atom, trips: Poly
) -> Values:
    """Return the values after the last of so many trips."""
    swap, last = {trip: trips}, {trip: trips - 1}
    none = le(trips, 0)
    results = []
    for first, value, new in zip(init, carried, after, strict=True):
        if isinstance(value, Data) and value.kind != "hole":
            results.append(choose(machine, none, first, rebind(machine.data(new), last)))
        elif isinstance(value, Data) or isinstance(new, Data):
            results.append(sum_up(machine, machine.data(first), value, machine.data(new), trip))
        elif value == first and terms_of(new) == terms_of(value):
            results.append(first)
        elif any(x.kind == "choice" for p in terms_of(value) for x in p.atoms):
            # the value that the last trip computed
            results.append(choose(machine, none, first, _swap(new, last)))
        else:
            results.append(_swap(value, swap))
    return results


def _swap(value: Any, swaps: dict[Atom, Poly]) -> Any:
    if isinstance(value, BlockWindow):
        base = _swap(value.base, swaps)
        starts = tuple(substitute(x, swaps) for x in value.starts)
        return replace(value, base=base, starts=starts)
    return value.map(lambda x: substitute(x, swaps), value.shape)


@control("scf.for")
def _for(machine: Machine, op: Op, frame: Invocation) -> Values:
    low, high, step = (machine.ints(frame.values[x]) for x in op.operands[:3])
    for bound in (low, high, step):
        machine.forgo(bound.hints)
        require_fit(machine, bound, "the bounds of a loop")
    machine.claim("fit", "the step of a loop", le(1, step.term))
    init = [frame.values[x] for x in op.operands[3:]]
    block = op.regions[0][0]
    trip = machine.symbol("trip").atom
    assert trip is not None
    index = low.term + step.term * term(trip)
    machine.enter_loop(lt(low.term, high.term))
    runs = lt(index, high.term)
    if runs == FALSE:
        return init
    machine.known[trip] = runs & le(1, step.term)
    if low.bits <= 32:
        machine.largest[trip] = 1 << low.bits
    with machine.under(runs):  # its last step must not wrap either
        machine.claim("fit", "the counter of a loop", fits(index + step.term, low.bits))

    def body(carried: Values) -> Values:
        values = [Ints(index, (), low.bits), *carried]
        frame.values.update(zip((name for name, _ in block.args), values, strict=True))
        with machine.under(runs):  # operations that do not name the trip run no sooner
            for i, (name, _) in enumerate(block.args):
                frame.values[name] = claim_hints(machine, op, values[i], f"_arg{i}")
            return machine.region(op.regions[0], frame)

    distance = high.term - low.term
    trips = make("floordiv", distance + step.term - 1, step.term)
    if not distance.is_natural:
        trips = make("max", trips, term(0))
    return _run(machine, trip, init, body, trips)


def _run(
    machine: Machine, trip: Atom, init: Values, body: Callable[[Values], Values], trips: Poly
) -> Values:
    init, carried, after = _follow(machine, trip, init, body)
    return _finish(machine, init, carried, after, trip, trips)


def _follow(
    machine: Machine, trip: Atom, init: Values, body: Callable[[Values], Values]
) -> tuple[Values, Values, Values]:
    """Return the first values, those at the generic trip and those after it; keep its accesses."""
    outer = machine.trips
    machine.trips = (*outer, trip)
    init = _as_data(machine, init, body)
    carried = _Loop(machine, trip, init, body).summarise()
    after = body(carried)
    for value, new in zip(carried, after, strict=True):
        machine.forgo(set(hints_of(new)) - set(hints_of(value)))
    machine.trips = outer
    return init, carried, after


def _as_data(machine: Machine, init: Values, body: Callable[[Values], Values]) -> Values:
    """Return the initial values, as data if a trip makes them so: integer sums begin at a 0."""
    if not any(isinstance(x, Ints) and x.shape for x in init):
        return init
    machine.suppressed += 1
    after = body([LoopVariable(x).value for x in init])
    machine.suppressed -= 1
    pairs = zip(init, after, strict=True)
    return [machine.data(x) if isinstance(new, Data) else x for x, new in pairs]


@control("scf.while")
def _while(machine: Machine, op: Op, frame: Invocation) -> Values:
    init = [frame.values[x] for x in op.operands]
    before, then = op.regions[0][0], op.regions[1][0]
    trip = machine.symbol("trip").atom
    count = machine.symbol("trips")
    assert trip is not None
    seen: list[tuple[Cond, Values]] = []

    def ask(carried: Values) -> tuple[Cond, Values]:
        frame.values.update(zip((name for name, _ in before.args), carried, strict=True))
        condition, *passed = machine.region(op.regions[0], frame)
        return machine.bools(condition).cond, passed

    def body(carried: Values) -> Values:
        goes_on, passed = ask(carried)
        seen.append((goes_on, passed))
        frame.values.update(zip((name for name, _ in then.args), passed, strict=True))
        with machine.under(goes_on):
            return machine.region(op.regions[1], frame)

    init, carried, after = _follow(machine, trip, init, body)
    last = _finish(machine, init, carried, after, trip, count)
    goes_on, passed = ask(last)
    atom = count.atom
    assert atom is not None
    again = seen[-1][0]
    before_last = substitute(again, {trip: count - 1})
    machine.known[atom] = ~goes_on & (le(count, 0) | before_last)
    machine.known[trip] = again
    # a trip is reached if the condition held at all trips before it
    earlier = substitute(again, {trip: term(trip) - 1})
    machine.claim("fit", "a while loop that ends once", le(term(trip), 0) | earlier | ~again)
    return passed

"""Runs of traced launches at given sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map_only

from gemmproof.reference.simulation import Where
from gemmproof.reference.symbolic.concrete import (
    Buffer,
    Count,
    IterationSpace,
    Numbers,
    OtherPath,
    Stores,
    Undetermined,
    element_offsets,
    keep,
    make_buffer,
    make_lattice,
    measure,
    run_loops,
)
from gemmproof.reference.symbolic.interpreter.integer_rules import fits
from gemmproof.reference.symbolic.interpreter.interpret import Claim, Machine
from gemmproof.reference.symbolic.interpreter.symbolic_values import SymbolicAccess
from gemmproof.reference.symbolic.lemmas import LANE
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, evaluate, le, term, walk
from gemmproof.reference.symbolic.tracing.trace import Path, TensorView, TorchCall, TracedLaunch

# -- torch's operations --------------------------------------------------------------------------
# operations that are the same on float64 as on any type that holds their numbers
_KNOWN = (
    "sum", "add", "add_", "mul", "mul_", "sub", "clone", "copy_", "_to_copy", "zeros", "zeros_like",
    "new_zeros", "zero_", "fill_", "ones", "full",
)  # fmt: skip


def calculate(call: TorchCall, find: Callable[[TensorView], Buffer], count: Count) -> None:
    """Execute a torch operation. Raises Undetermined if it is not known."""
    namespace, name, overload = (*call.name.split("."), "default")[:3]
    if namespace != "aten" or name not in _KNOWN or len(call.outputs) != 1:
        raise Undetermined("an operation that is not known")
    (view,) = call.outputs
    buffer, at = find(view), element_offsets(view, count)
    undefined = False

    def read(view: TensorView) -> torch.Tensor:
        nonlocal undefined
        source, offsets = find(view), element_offsets(view, count)
        if source.unclear:
            raise Undetermined(source.unclear)
        undefined |= bool(source.bad[offsets].any())
        return torch.from_numpy(source.data[offsets])

    args, kwargs = tree_map_only(Poly, count, (call.args, dict(call.kwargs)))
    first = args[:1] if name in ("copy_", "zero_", "fill_") else ()
    if first:  # it is not read
        args = (torch.zeros(tuple(map(count, first[0].shape)), dtype=torch.float64), *args[1:])
    args, kwargs = tree_map_only(TensorView, read, (args, kwargs))
    kwargs = {
        k: x for k, x in kwargs.items() if k not in ("dtype", "device", "layout", "pin_memory")
    }
    if name in ("zeros", "ones", "full", "new_zeros"):
        kwargs["dtype"] = torch.float64
    result = getattr(getattr(torch.ops.aten, name), overload)(*args, **kwargs).numpy()
    buffer.data[at] = keep(np.asarray(result, np.float64), view.dtype)
    buffer.bad[at] = undefined
    if not undefined:
        buffer.empty[at] = False
    if at.size == buffer.data.size:
        buffer.unclear = ""


# -- run -----------------------------------------------------------------------------------------
MOST_PROGRAMS = 2048
LAUNCH = "launch"
# violations: an offset or a number that does not fit, an address out of bounds, a false hint or
# assumption, an element stored twice or never, one that depends on an undefined lane
FIT, NARROW, STRAY, HINT, ASSUMED, TWICE, HOLE, UNDEFINED = (
    "fit", "narrow", "stray", "hint", "assumed", "twice", "hole", "undefined"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """A violation by a call: its kind, its evidence, and where it is."""

    kind: str
    text: str
    where: Where | None


@dataclass(slots=True)
class ConcreteRun:
    """One call of a wrapper on a path, with values for its symbols.

    `contents` are the numbers of operands, by name. If a grid has many programs, its corners are
    run, and the run `is_partial`.
    """

    path: Path
    machines: Sequence[Machine]
    values: Mapping[Atom, int]
    contents: Mapping[str, np.ndarray]
    violations: dict[Seen, None] = field(default_factory=dict)
    buffers: dict[int, Buffer] = field(default_factory=dict)
    elements: dict[int, np.ndarray] = field(default_factory=dict)
    is_partial: bool = False
    unclear: str = ""

    def run(self) -> None:
        """Follow the path. Raises OtherPath, or Undetermined if not even addresses are known."""
        if not bool(evaluate_at(self.path.condition, self.values)):
            raise OtherPath
        for call in self.path.operations:
            if call.name == LAUNCH:
                number = call.args[0]
                self._launch(self.path.launches[number], self.machines[number])
                if self.is_lost:
                    return
            elif not self.is_partial:
                self._calculate(call)
        for view in self.path.results:
            if isinstance(view, TensorView) and not self.is_partial:
                self._judge_result(view)

    @property
    def is_lost(self) -> bool:
        """True if there was a violation after which the formulas do not apply."""
        return any(x.kind in (FIT, NARROW, STRAY) for x in self.violations)

    def count(self, what: Poly) -> int:
        return int(evaluate_at(what, self.values))

    def see(self, kind: str, text: str, where: Where | None) -> None:
        self.violations[Seen(kind, text, where)] = None

    # -- launches --------------------------------------------------------------------------------
    def _launch(self, launch: TracedLaunch, machine: Machine) -> None:
        self._require_arguments(launch)
        grid = [self.count(n) for n in machine.grid]
        if not bool(evaluate_at(machine.launched, self.values)):
            raise Undetermined("a launch that is refused")
        if min(grid) < 1:
            return
        programs = self._list_programs(grid)
        for claim in {(x.cond, x.path): x for x in machine.claims}.values():
            self._judge_claim(machine, claim, programs)
        if self.is_lost:
            return
        stores = Stores()
        for access in machine.accesses:
            lattice = run_loops(
                make_lattice(machine, self.values, programs, access.shape), access.trips
            )
            here, at = self._judge_access(access, lattice)
            if access.kind != "load":
                stores.add(access, lattice, here, at)
        if not self.is_lost and not self.is_partial:
            self._store(stores, machine.launch)

    def _require_arguments(self, launch: TracedLaunch) -> None:
        """Raise Undetermined for an argument beyond 32 bits, for which Triton specialises again."""
        for x in launch.arguments:
            if isinstance(x, Poly) and x.constant is None and not -(2**31) <= self.count(x) < 2**31:
                raise Undetermined("an argument of more than 32 bits")

    def _list_programs(self, grid: list[int]) -> list[Any]:
        sides: list[Any] = [range(n) for n in grid]
        if np.prod(grid, dtype=np.float64) > MOST_PROGRAMS:
            self.is_partial = True
            sides = [sorted({0, n - 1}) for n in grid]
        at = list(itertools.product(*reversed(sides)))
        return [np.array(x, np.int64) for x in reversed(list(zip(*at, strict=True)))]

    def _judge_claim(self, machine: Machine, claim: Claim, programs: Any) -> None:
        """Record a claim that fails in some lane; ignore a hint that cannot be evaluated."""
        try:
            holds = self._holds(machine, claim, programs)
        except Undetermined:
            if claim.kind == "fit":  # the formulas depend on it
                raise
            return
        if not holds and claim.kind != "assert":
            kind = ASSUMED if claim.text == "tl.assume" else HINT
            self.see(NARROW if claim.kind == "fit" else kind, claim.text, claim.where)

    def _holds(self, machine: Machine, claim: Claim, programs: Any) -> bool:
        lanes = {x.args[1]: x.args[2] for x in walk(claim.cond, claim.path) if x.args[0] == LANE}
        shape = tuple(lanes.get(i, 1) for i in range(max(lanes, default=-1) + 1))
        lattice = make_lattice(machine, self.values, programs, shape)
        lattice = run_loops(lattice, _list_trips(machine, claim.cond, claim.path))
        wrong = ~_truth(lattice.evaluate(claim.cond)) & lattice.evaluate(claim.path)
        return not np.any(wrong & lattice.when)

    def _judge_access(
        self, access: SymbolicAccess, lattice: IterationSpace
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return which elements touch memory, and their offsets from the memory's first."""
        mask = _truth(lattice.evaluate(access.path)) & lattice.evaluate(access.mask) & lattice.when
        here = np.broadcast_to(mask, lattice.shape)
        offset = lattice.evaluate(access.term) + self.count(access.tensor.offset)
        at = np.broadcast_to(offset, lattice.shape)
        text = f"{access.kind} of {access.tensor.name}"
        for step, cond in access.steps:
            inner = lattice
            for atom in {x for x in walk(step, cond) if x.args[0] == "earlier"}:
                inner = inner.bind(atom, max(inner.axes[len(access.shape) + 1 :], default=1))
            wrong = ~_truth(inner.evaluate(fits(step, 32))) & inner.evaluate(cond) & here
            if np.any(wrong):
                self.see(FIT, f"offset of the {text}", access.where)
                return here, at
        touched = at[here]
        if touched.size and not self._is_inside(access.tensor, touched):
            self.see(STRAY, text, access.where)
        return here, at

    def _is_inside(self, tensor: TensorView, touched: np.ndarray) -> bool:
        """Return whether all are elements of an operand, or within another memory's allocation."""
        memory = tensor.memory
        if touched.min() < 0 or touched.max() >= measure(memory, self.count):
            return False
        if not memory.is_operand:
            return True
        if tensor.storage not in self.elements:
            self.elements[tensor.storage] = np.unique(element_offsets(tensor, self.count, own=True))
        own = self.elements[tensor.storage]
        if own.size == own[-1] + 1:
            return True
        touched = np.unique(touched)
        return bool(np.isin(touched, own, assume_unique=True).all())

    # -- numbers ---------------------------------------------------------------------------------
    def _buffer(self, view: TensorView) -> Buffer:
        if view.dtype != view.memory.dtype:
            raise Undetermined(f"{view.memory.dtype} read as {view.dtype}")
        if view.storage not in self.buffers:
            buffer = make_buffer(measure(view.memory, self.count), view.defined)
            if view.name in self.contents and view.memory.is_operand:
                buffer.data[element_offsets(view, self.count, own=True)] = self.contents[view.name]
            elif view.defined:
                buffer.unclear = f"what {view.name} holds"
            self.buffers[view.storage] = buffer
        return self.buffers[view.storage]

    def _store(self, stores: Stores, launch: int) -> None:
        written = {x.tensor.storage for x in stores.accesses}
        results = {x.storage: x for x in self.path.results if isinstance(x, TensorView)}

        def read(access: SymbolicAccess, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            if access.kind != "load" or access.tensor.storage in written:
                raise Undetermined("what a launch stores and reads")
            buffer = self._buffer(access.tensor)
            if buffer.unclear:
                raise Undetermined(buffer.unclear)
            if not buffer.data.size:
                return np.zeros(at.shape), np.ones(at.shape, np.bool_)
            at = at + self.count(access.tensor.offset) * (at >= 0)
            return buffer.data[at], buffer.bad[at]

        for storage in written:
            view = results.get(storage)
            own = None if view is None else element_offsets(view, self.count).ravel()
            twice = stores.find_twice(storage, own)
            if twice is not None and view is not None:
                self.see(TWICE, f"stored once in {twice.tensor.name}", twice.where)
        for access, number in stores.write(self._buffer, Numbers(read)):
            self.unclear = self.unclear or f"{access.where}: {number}"

    def _calculate(self, call: TorchCall) -> None:
        try:
            calculate(call, self._buffer, self.count)
        except Undetermined as error:
            self.unclear = self.unclear or f"{call.name}: {error}"
            for view in call.outputs:
                self._forget(view, f"{call.name}: {error}")

    def _forget(self, view: TensorView, reason: str) -> None:
        buffer = self.buffers.setdefault(view.storage, Buffer(*(np.zeros(0),) * 3))
        buffer.unclear = buffer.unclear or reason
        buffer.empty[...] = False  # any element may be written

    def read_result(self, view: TensorView) -> np.ndarray:
        """Return the numbers of a result. Raises Undetermined if they are not known."""
        buffer = self._buffer(view)
        if buffer.unclear:
            raise Undetermined(buffer.unclear)
        at = element_offsets(view, self.count)
        if buffer.bad[at].any():
            raise Undetermined("an undefined lane")
        return buffer.data[at]

    def _judge_result(self, view: TensorView) -> None:
        buffer = self._buffer(view)
        at = element_offsets(view, self.count)
        where = self.path.launches[-1].where if self.path.launches else None
        if buffer.empty.size and buffer.empty[at].any():
            self.see(HOLE, f"all of {view.name} stored", where)
        elif not buffer.unclear and buffer.bad[at].any():
            self.see(UNDEFINED, f"defined where {view.name} is stored", where)


def evaluate_at(what: Poly | Cond, values: Mapping[Atom, int]) -> Any:
    """Return the value of a term of sizes alone. Raises Undetermined for other symbols."""
    try:
        return evaluate(what, values)
    except KeyError as atom:
        raise Undetermined(f"{atom} has no value") from None


def _truth(x: Any) -> Any:
    return np.asarray(x, np.bool_)


def _list_trips(machine: Machine, *conds: Cond) -> list[Atom]:
    """Return the loops that conditions name, the outermost first."""
    trips: set[Atom] = set()
    waiting = list(walk(*conds))
    while waiting:
        atom = waiting.pop()
        if atom.kind == "symbol" and atom.args[0] == "trip" and atom not in trips:
            trips.add(atom)
            waiting += walk(machine.known.get(atom, le(0, term(0))))
    return sorted(trips, key=lambda x: x.number)

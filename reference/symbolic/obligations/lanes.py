"""No lane that a mask left undefined reaches an element that is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from gemmproof.reference.observation import Where
from gemmproof.reference.symbolic.machine.values import Access, Data
from gemmproof.reference.symbolic.obligations.verdict import OPEN, REFUTED, Verdict, ask
from gemmproof.reference.symbolic.solver import Solver
from gemmproof.reference.symbolic.terms import TRUE, Atom, Cond, every

# whether the memory that a load reads holds values by then; what launches stored into it
Defined = Callable[[Solver, Access], bool]
Stores = Callable[[Access], Iterable[Access]]


@dataclass(slots=True)
class Origins:
    """Looks through numbers for loads that a mask, or their memory, leaves undefined."""

    solver: Solver
    small: tuple[Atom, ...]
    is_defined: Defined
    list_stores: Stores
    seen: set[tuple[Data, Cond]] = field(default_factory=set)

    def judge_store(self, store: Access) -> Iterator[Verdict]:
        """Each load that a stored lane depends on has its mask on, or says what it gives."""
        if store.kind == "atomic" and not store.tensor.defined:
            yield Verdict(OPEN, f"onto {store.tensor.name}", store.where, "it begins undefined")
        if store.value is not None:
            words = f"defined where {store.tensor.name} is stored"
            given = every((store.path, store.mask))
            yield from self._judge(store.value, given, words, store.where)

    def _judge_earlier(self, store: Access) -> Iterator[Verdict]:
        """The same of what is read back: a lane of it need not reach a result."""
        for said in self.judge_store(store):
            if said.status == REFUTED:
                said = replace(said, status=OPEN, why="a lane may be undefined", model=None)
            yield said

    def judge_use(self, value: Data, path: Cond, where: Where | None) -> Iterator[Verdict]:
        """The same of a loaded integer by which the kernel finds its way."""
        yield from self._judge(value, path, "defined where it decides", where)

    def _judge(
        self, value: Data, given: Cond, words: str, where: Where | None
    ) -> Iterator[Verdict]:
        if (value, given) in self.seen:
            return
        self.seen.add((value, given))
        if value.kind == "undefined":
            yield Verdict(OPEN, words, where, "an undefined value")
        if value.kind == "hole":  # whatever an earlier trip left
            yield Verdict(OPEN, words, where, "a value that a loop carries")
        if value.kind == "load":
            load: Access = value.access
            said = f"{words}: load of {load.tensor.name}"
            if load.mask != TRUE and load.other is None:
                path = (given, load.path)
                yield ask(self.solver, said, load.where, load.mask, path, self.small)
            elif load.mask != TRUE and load.other is not None:
                yield from self._judge(load.other, given & ~load.mask, words, where)
            if not self.is_defined(self.solver, load):
                yield Verdict(OPEN, words, load.where, f"{load.tensor.name} begins undefined")
            for store in self.list_stores(load):
                yield from self._judge_earlier(store)
        for i, part in enumerate(value.parts):
            branch = given
            if value.kind == "choice":
                branch = given & (value.cond if i == 0 else ~value.cond)
            yield from self._judge(part, branch, words, where)

"""The search for a case that kills a mutant, and equivalence by programs and digests."""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.draw import list_cases
from gemmproof.engine.findings import find_no_launch
from gemmproof.engine.observe import CaseResult, judge, observe_case
from gemmproof.engine.proofs import NOTHING, ProofAttempt
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import probe
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges.memory_use import COMPILES
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import ObservedCase
from gemmproof.reference.simulator import launch as simulated
from gemmproof.reference.triton_hooks import swap
from gemmproof.worker.protocol import CaseStarted, Listener


# -- programs ------------------------------------------------------------------------------------
@contextmanager
def watch_programs(note: Callable[[str, str], object]) -> Iterator[None]:
    """Call `note` with each specialisation that is translated in the context, and its TTIR."""
    compile_program = simulated.compile_program

    def compile_and_note(src: Any, *args: Any, **options: Any) -> Any:
        program = compile_program(src, *args, **options)
        note(describe(src), program.text)
        return program

    with swap([(simulated, "compile_program", compile_and_note)]):
        yield


@contextmanager
def run_no_grids() -> Iterator[None]:
    """Translate kernels in the context without running them: their results stay undefined."""
    with swap([(simulated, "_launch", lambda *args: None)]):
        yield


def describe(src: Any) -> str:
    """Format a specialisation without its source: the kernel, its argument types, constants."""
    names = src.fn.arg_names
    constants = {
        ".".join([names[path[0]], *map(str, path[1:])]): _tell(value)
        for path, value in src.constants.items()
    }
    name = f"{src.fn.__module__}.{src.fn.__qualname__}"
    return f"{name} {sorted(src.signature.items())} {sorted(constants.items())}"


def _tell(value: Any) -> str:
    """Format a constant as text that is the same in every process."""
    inner = getattr(value, "value", value)
    return getattr(inner, "__qualname__", None) or str(inner)


@cache
def optimise(text: str) -> str:
    """Return a digest of a TTIR module after Triton's own passes, without lines of the source.

    Raises RuntimeError if they fail.
    """
    from triton._C.libtriton import ir, passes

    context = ir.context()
    ir.load_dialects(context)
    _load_backends(context)
    with tempfile.TemporaryDirectory(prefix="gemmproof-") as folder:
        path = Path(folder, "module.ttir")
        path.write_text(text)
        module = ir.parse_mlir_module(str(path), context)
    module.context = context
    manager = ir.pass_manager(context)
    passes.common.add_inliner(manager)
    passes.common.add_canonicalizer(manager)
    passes.ttir.add_combine(manager)
    passes.ttir.add_reorder_broadcast(manager)
    passes.common.add_cse(manager)
    passes.common.add_symbol_dce(manager)
    manager.run(module, "make_ttir")
    return hashlib.sha256(module.str_nodebug().encode()).hexdigest()[:24]


def _load_backends(context: Any) -> None:
    from triton.backends import backends

    for backend in backends.values():
        backend.compiler.load_dialects(None, context)


# -- digest --------------------------------------------------------------------------------------
def digest(observation: ObservedCase) -> tuple[str, str]:
    """Return digests of every call's results, and of the operand elements that the first touches.

    The observation is a traced one. The program that touches an element, the number of accesses and
    the tile are ignored, and so is the wrapper's own memory: they are how a kernel works, not its
    result. Zeros have no sign: no property asks for it (properties/judges/exact_values.py). A case
    of which few programs run has no digest: another order runs others.
    """
    if observation.case.is_sampled:
        return "", ""
    bits = hashlib.sha256(repr(observation.raised).encode())
    for call in observation.calls:
        for result in call.results:
            bits.update(b"none" if result is None else _drop_signs(result).tobytes())
    elements_by_access: dict[str, list[Any]] = defaultdict(list)
    for _, _, accesses in observation.trace or ():
        for access in accesses:
            if not access.operand.storage.private:
                elements_by_access[f"{access.kind} {access.operand.name}"].append(
                    _list_elements(access)
                )
    touched = hashlib.sha256()
    for key in sorted(elements_by_access):
        touched_elements = np.unique(np.concatenate(elements_by_access[key]))
        if touched_elements.size:
            touched.update(key.encode() + touched_elements.tobytes())
    return bits.hexdigest()[:16], touched.hexdigest()[:16]


def _drop_signs(result: Any) -> Any:
    """Return the result with 0 for -0."""
    return np.ascontiguousarray(np.where(result == 0, np.zeros((), result.dtype), result))


def _list_elements(access: Any) -> Any:
    """List the elements that unmasked lanes of any program address, from the storage's first."""
    offsets, mask = access.offsets, access.mask
    view, start = access.operand.view, access.operand.storage.start
    if mask is not None:
        offsets, mask = np.broadcast_arrays(offsets, mask)
        offsets = offsets[mask]
    return np.unique(offsets) + (view.start - start) // view.itemsize


# -- search --------------------------------------------------------------------------------------
FEW = 12  # cases of each format, before more are drawn of any
ENOUGH = 40  # cases of a kernel proved right for every size: only rounding can still differ
MOST_SPENT = 3  # cases that may run out of their time or memory


@dataclass(slots=True)
class Search:
    """A search in progress: the kernel, its backend, the listener, and every case judged so far.

    `shown` has the digest of each case, `under_way` is the last case's JSON.
    """

    kernel: KernelUnderTest
    backend: Simulator
    tell: Listener
    examples: int
    seed: int
    judged: dict[Case, CaseResult] = field(default_factory=dict)
    shown: dict[Case, tuple[str, str]] = field(default_factory=dict)
    under_way: str = ""
    spent: int = 0

    def look(self, case: Case) -> ObservedCase:
        """Observe one case, and keep its digest."""
        self.under_way = case.to_json()
        self.tell(CaseStarted(self.under_way, "draw", len(self.shown)))
        observation = observe_case(self.kernel, case, self.backend, traced=True)
        self.shown[case] = digest(observation)
        return observation

    def judge(self, case: Case) -> CaseResult:
        """Judge a case, once."""
        if case not in self.judged:
            self.judged[case] = judge(self.look(case))
        return self.judged[case]

    def find(self, examples: int, attempt: ProofAttempt = NOTHING) -> Finding | None:
        """Return the first finding among so many cases of each format, or in a proof's cases."""
        for dtype in self.kernel.contract.formats:
            for case in self._draw(dtype, examples, attempt):
                judged = self.judge(case)
                if attempt.is_spent_on(judged):
                    continue
                if judged.raised is not None and judged.raised.kind == "exhausted":
                    self.spent += 1  # other cases may need less
                elif not judged.applied:
                    return None  # an unsupported operation is no evidence
                if judged.findings:
                    roots = (f for f in judged.findings if f.cause is None)
                    return next(roots, judged.findings[0])
                if self.spent >= MOST_SPENT:
                    return None
        return next(iter(find_no_launch(list(self.judged.values()))), None)

    def never_compiles(self, finding: Finding) -> bool:
        """Return whether no case of the finding's format compiles, the usual one included."""
        if finding.property != COMPILES:
            return False
        usual = self.judge(probe(self.kernel.contract, finding.case.dtype))
        results = [x for case, x in self.judged.items() if case.dtype == usual.case.dtype]
        return not any(x.launches and x.raised is None for x in results)

    def _draw(self, dtype: str, examples: int, attempt: ProofAttempt) -> Iterator[Case]:
        rng = random.Random(f"{self.seed} {dtype}")
        extra = len(attempt.list_refuting(self.kernel, dtype)) + len(attempt.cases)
        cases = list_cases(self.kernel, self.judged, attempt, dtype, rng, self.examples)
        # a case may come twice; a contract may admit fewer than are asked for
        return islice(cases, examples + extra)

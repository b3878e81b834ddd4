"""The prover compared with the truth about a drawn program."""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import PROVED
from gemmproof.properties.proof.prove import prove

from .evaluate import BOUNDS, EXACT, FIT, LANES, ONCE
from .language import Program, print_program
from .truth import COUNTS, SPAN, Truth, Witness, find_truth

ABOUT = (BOUNDS, FIT, ONCE, LANES, EXACT)
WORKSPACE = "a workspace of"  # in the scope of a proof
COUNTED = re.compile(r"a GPU of ([^;]*?) multiprocessors")  # likewise
SECONDS = 3.0  # counted, for the proof of one program


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result for one program.

    `kind`: "right" or "wrong", "contradiction" (`witnesses` show that something proved is false),
    "grid" (the same, only because the launch is refused), "crash" (of the prover) or "invalid" (it
    does not compile). `is_right`: nothing false was found. `proved`: the properties that are
    proved, `reasons` why others are not; `scopes` those of the proofs.
    `seconds`: CPU time of the proof and of
    the truth.
    """

    kind: str
    proved: tuple[str, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    text: str = ""
    is_right: bool = False
    seconds: tuple[float, float] = (0.0, 0.0)
    reasons: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if all properties are proved."""
        return set(ABOUT) <= set(self.proved)


def load(program: Program, folder: Path | None = None) -> Any:
    """Return the wrapper of a program, from a file that stays as long as its source is read."""
    folder = folder or Path(tempfile.mkdtemp(prefix="proof_fuzzer_"))
    source = print_program(program)
    name = f"drawn_{abs(hash(source)):x}"
    file = folder / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.matmul


def under_test(program: Program, wrapper: Any) -> KernelUnderTest:
    """Return the kernel under the contract of its program."""
    terms = program.terms
    contract = Contract((terms.dtype,), terms.M, terms.N, terms.K, where=terms.where,
                        layouts=terms.layouts, huge=terms.huge, deterministic=True)  # fmt: skip
    return KernelUnderTest("drawn", wrapper, contract)


def list_counts(scopes: Iterable[str]) -> tuple[int, ...]:
    """List the numbers of multiprocessors that proofs are about: all, or those they assume."""
    assumed = [x[1] for x in map(COUNTED.search, scopes) if x is not None]
    counts = {int(n) for text in assumed for n in re.findall(r"\d+", text)}
    return tuple(n for n in COUNTS if n in counts) if assumed else COUNTS


def compare(program: Program, seconds: float = SECONDS, folder: Path | None = None) -> Comparison:
    """Prove a program, and look for sizes at which something is false that is proved."""
    began = time.process_time()
    kernel = under_test(program, load(program, folder))
    try:
        proofs = prove(kernel, None, seconds)
    except Exception:
        took = time.process_time() - began
        truth = find_truth(program)
        if truth.invalid:
            return Comparison("invalid", text=truth.invalid)
        return Comparison("crash", text=traceback.format_exc(), seconds=(took, 0.0))
    took = time.process_time() - began
    proved = tuple(x.property for x in proofs.verdicts if x.status == PROVED)
    scopes = tuple(
        dict.fromkeys(f"{x.scope}; {', '.join(x.assumptions)}" for x in proofs.verdicts if x.scope)
    )
    reasons = tuple(f"{x.property}: {x.why}" for x in proofs.verdicts if x.status != PROVED)
    began = time.process_time()
    about = [name for name in proved if name in ABOUT]
    truth: Truth = find_truth(program, about, list_counts(scopes))
    times = took, time.process_time() - began
    if truth.invalid:
        return Comparison("invalid", text=truth.invalid, seconds=times)
    false = truth.false
    if any(WORKSPACE in scope for scope in scopes):  # the proof names that it assumes a small one
        false = {name: x for name, x in false.items() if x.workspace <= SPAN}
    witnesses = tuple(false[name] for name in proved if name in false)
    kind = "wrong" if truth.false else "right"
    if witnesses:
        kind = "grid" if all(x.is_of_grid for x in witnesses) else "contradiction"
    text = ", ".join(f"{x.property} at {x.sizes}" for x in truth.false.values())
    return Comparison(kind, proved, witnesses, text, not truth.false, times, reasons, scopes)

"""Equal proofs come to equal ends: each begins in the state in which the first of a process does.

Three things outlive a proof and would change what the next one costs, hence where its budget ends:
the numbers of atoms, which are their hashes and order sets; what z3's context has learnt; and
Python's garbage collector, which frees atoms whose definition names them whenever enough objects
were made, by whatever code.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from gemmproof.reference.symbolic.smt import open_context
from gemmproof.reference.symbolic.terms.atoms import forget_atoms


@contextmanager
def fresh_state() -> Iterator[None]:
    """Make atoms anew, open a context of z3, and collect garbage only at the end: a decorator.

    Only the youngest generation is examined, where all that is: a whole collection takes 0.25 s
    with torch loaded.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    forget_atoms()
    open_context()
    try:
        yield
    finally:
        gc.collect(0)
        if was_enabled:
            gc.enable()

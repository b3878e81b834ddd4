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

from gemmproof.reference.symbolic.smt import own_context
from gemmproof.reference.symbolic.terms.atoms import own_atoms


@contextmanager
def fresh_state() -> Iterator[None]:
    """Make atoms anew, ask a new context of z3's, and collect garbage at the end: a decorator.

    Only the youngest generation is examined, where all that is: a whole collection takes 0.25 s
    with torch loaded.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with own_atoms(), own_context():
            yield
    finally:
        gc.collect(0)
        if was_enabled:
            gc.enable()

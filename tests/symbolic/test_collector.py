"""What a proof comes to does not depend on when Python collects garbage."""

import gc

from mutants.table import MUTANTS

from gemmproof.properties.proof.prove import prove
from gemmproof.reference.symbolic.terms import Atom

GROUPS = next(x.kernel for x in MUTANTS if x.name == "groups_of_k_rounded_down")


def _count_atoms():
    return sum(type(x) is Atom for x in gc.get_objects())


def test_no_atom_outlives_its_proof():
    gc.collect()
    before = _count_atoms()
    prove(GROUPS)
    assert _count_atoms() == before

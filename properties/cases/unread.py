"""Operands that a result does not depend on, as c where beta is 0: a kernel may not read them."""

from __future__ import annotations

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import operands, stored_elements
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.operand import WRITTEN
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.spec import Rules, evaluate


def find_unread(kernel: KernelUnderTest, case: Case) -> frozenset[str]:
    """The float operands that `spec` does not touch in this case.

    Only where something is to choose: a formula that never reads an operand is not asked again in
    each case. BLAS says of beta = 0 that c need not be set on entry.
    """
    if case.is_sampled or kernel.spec is None or not (kernel.choices or kernel.written):
        return frozenset()
    placed = operands(case, kernel)
    read = {name: x for name, x in placed.items() if x.use != WRITTEN}
    given: dict[str, object]
    given = {name: (stored_elements(x), x.dtype) for name, x in read.items()}
    given |= kernel.values_of(case)
    floats = [name for name, x in read.items() if FORMATS[x.dtype].kind == "float"]
    return frozenset(name for name in floats if _is_unread(kernel, given, name))


def _is_unread(kernel: KernelUnderTest, given: dict[str, object], name: str) -> bool:
    # every use of a bare object fails
    try:
        evaluate(lambda **named: kernel.calculate(named), {**given, name: object()}, Rules())
    except Exception:  # whatever the formula raises, it touched the operand
        return False
    return True

"""One symbolic program of a launch, for all of its grid."""

from __future__ import annotations

from typing import Any, TypeVar

from gemmproof.reference.symbolic.interpreter import (  # noqa: F401  they register their rules
    control,
    integer_rules,
    memory_rules,
)
from gemmproof.reference.symbolic.interpreter.interpret import Machine, NotInterpretable
from gemmproof.reference.symbolic.interpreter.memory_rules import NAN, ZERO
from gemmproof.reference.symbolic.interpreter.symbolic_values import (
    BlockWindow,
    Bools,
    Data,
    Ints,
    Pointers,
    Value,
)
from gemmproof.reference.symbolic.terms import Poly, eq, make, term
from gemmproof.reference.symbolic.tracing.trace import HostDescriptor, TensorView, TracedLaunch
from gemmproof.reference.ttir import DTYPES, Type

# -- runs of a launch ----------------------------------------------------------------------------
M = TypeVar("M", bound=Machine)


def follow(launch: TracedLaunch, number: int) -> Machine:
    """Interpret a launch for its accesses and claims.

    Raises NotInterpretable, with the kernel's line.
    """
    return follow_on(Machine, launch, number)


def follow_on(kind: type[M], launch: TracedLaunch, number: int) -> M:
    """Do the same on a machine of another kind. Raises NotInterpretable."""
    kernel = next((f for f in launch.functions.values() if f.public), None)
    if kernel is None:
        raise NotInterpretable("the module has no public function")
    machine = kind(launch.functions, launch.grid, number)
    machine.caller = launch.where
    kinds = [kind for _, kind in kernel.args]
    given = [name not in launch.typed for name in launch.parameters]
    machine.run(list(map(_value, launch.arguments, kinds, given)))
    return machine


def _point(view: TensorView) -> Pointers:
    own, seen = (DTYPES.get(name) for name in (view.memory.dtype, view.dtype))
    if own is None or seen is None or own.itemsize != seen.itemsize:
        message = f"{view.name} of {view.memory.dtype} read as {view.dtype}"
        raise NotInterpretable(message)
    return Pointers(view, term(0))


def _value(argument: Any, kind: Type, is_given: bool) -> Value:
    if isinstance(argument, TensorView):
        return _point(argument)
    if isinstance(argument, HostDescriptor):
        block, fill = tuple(argument.block_shape), NAN if "nan" in argument.padding else ZERO
        base = _point(argument.tensor)
        return BlockWindow(base, argument.shape, argument.strides, (), block, fill)
    if isinstance(argument, Poly | int) and not isinstance(argument, bool):
        number = term(argument)
        if kind.dtype.is_float:
            return Data("number", word=str(number.constant))
        if kind.dtype.bits == 1:
            return Bools(~eq(make("mod", number, 2), 0))
        return Ints(number, (), kind.dtype.bits, is_given)
    if isinstance(argument, bool):
        return Bools(eq(0, int(not argument)))
    return Data("number", word=str(argument))

"""Formulas of kernels, evaluated exactly with a bound."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic import Array
from gemmproof.reference.provenance import Heartbeat
from gemmproof.reference.spec import contraction, functions, names, operations
from gemmproof.reference.spec.array import Condition, Rules, SpecArray, constant, operand
from gemmproof.reference.spec.functions import erf, sigmoid
from gemmproof.reference.spec.operations import ACTIVITY, DeferredProduct, Gathered, spread


# -- evaluation ----------------------------------------------------------------------------------
class SpecError(ValueError):
    """A formula that cannot be evaluated, through no fault of the kernel."""


def evaluate(
    spec: Callable[..., Any], operands: Mapping[str, tuple[Array, str] | Any], rules: Rules
) -> tuple[SpecArray, ...]:
    """Evaluate `spec` on operands by name: one array for each result.

    An operand is a storage array with the name of its format, or a Python value. Raises SpecError,
    in one line, for any error that the spec raises, and for operations that have no known rule.
    """
    arguments = {
        name: operand(x[0], rules, x[1]) if isinstance(x, tuple) else x
        for name, x in operands.items()
    }
    with np.errstate(all="ignore"):
        try:
            result = spec(**arguments)
            results = result if isinstance(result, tuple) else (result,)
            if not results or isinstance(result, list):
                got = "a list" if results else "no result"
                raise TypeError(f"got {got}, expected an array or a tuple of arrays")
            results = tuple(map(spread, results))
            return tuple(x if isinstance(x, SpecArray) else constant(x, rules) for x in results)
        except Exception as mistake:
            message = " ".join(str(mistake).split()).removeprefix("spec: ")
            plain = isinstance(mistake, TypeError | ValueError | AttributeError)
            kind = "" if plain else type(mistake).__name__
            raise SpecError(f"spec: {': '.join(filter(None, (kind, message)))}") from mistake


# -- operators -----------------------------------------------------------------------------------
Function = Callable[..., Any]


def _comparison(holds: Function) -> Function:
    return lambda x, y: functions.compare(x, y, holds)


# numpy's function -> its implementation
_FUNCTIONS: Mapping[Any, Function] = {
    np.add: operations.add,
    np.subtract: operations.subtract,
    np.multiply: functions.times,
    np.divide: operations.divide,
    np.negative: operations.negative,
    np.positive: lambda x: x,
    np.matmul: contraction.matmul,
    np.einsum: contraction.einsum,
    np.square: functions.square,
    np.power: functions.power,
    np.absolute: functions.absolute,
    np.maximum: functions.maximum,
    np.minimum: functions.minimum,
    np.fmax: functions.fmax,
    np.fmin: functions.fmin,
    np.clip: functions.clip,
    np.max: functions.largest,
    np.min: functions.smallest,
    np.mean: functions.mean,
    np.exp: functions.exp,
    np.exp2: functions.exp2,
    np.log: functions.log,
    np.log2: functions.log2,
    np.tanh: functions.tanh,
    np.sqrt: functions.sqrt,
    np.rint: functions.rint,
    np.floor: functions.floor,
    np.ceil: functions.ceil,
    np.trunc: functions.trunc,
    np.where: functions.where,
    np.sum: operations.total,
    np.bitwise_and: functions.logic(functions.bitwise_and, operator.and_),
    np.bitwise_or: functions.logic(functions.bitwise_or, operator.or_),
    np.bitwise_xor: functions.logic(functions.bitwise_xor, operator.xor),
    np.logical_and: functions.of_truth(operator.and_),
    np.logical_or: functions.of_truth(operator.or_),
    np.logical_not: functions.of_truth(operator.invert),
    np.left_shift: functions.left_shift,
    np.right_shift: functions.right_shift,
    np.floor_divide: functions.floor_divide,
    np.remainder: functions.remainder,
    np.invert: functions.invert,
    np.greater: _comparison(np.greater),
    np.greater_equal: _comparison(np.greater_equal),
    np.less: _comparison(np.less),
    np.less_equal: _comparison(np.less_equal),
    np.equal: _comparison(np.equal),
    np.not_equal: _comparison(np.not_equal),
    np.reshape: operations.reshape,
    np.transpose: operations.transpose,
    np.swapaxes: operations.swapaxes,
    np.expand_dims: operations.expand_dims,
    np.squeeze: operations.squeeze,
    np.moveaxis: operations.moveaxis,
    np.ravel: operations.ravel,
    np.repeat: operations.repeat,
    np.tile: operations.tile,
    np.take: operations.take,
    np.split: operations.split,
    np.broadcast_to: operations.broadcast_to,
    np.concatenate: operations.concatenate,
    np.stack: operations.stack,
}

_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide,
    "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power,
}  # fmt: skip
_COMPARED = {
    "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_METHODS: Mapping[str, Any] = {
    "sum": operations.total,
    "mean": functions.mean,
    "max": functions.largest,
    "min": functions.smallest,
    "to": functions.to,
    "may_round": functions.may_round,
    "reshape": operations.reshape,
    "view": operations.reshape,
    "transpose": operations.transpose,
    "swapaxes": operations.swapaxes,
    "repeat": operations.repeat,
    "ravel": operations.ravel,
    "squeeze": operations.squeeze,
    "take": operations.take,
    "clip": functions.clip,
    "decode": functions.decode,
    "__neg__": operations.negative,
    "__abs__": functions.absolute,
    "__invert__": functions.invert,
    "__getitem__": operations.index,
    "T": property(lambda x: operations.transpose(spread(x))),
    "mT": property(lambda x: operations.swapaxes(spread(x), -1, -2)),
}


# What a formula may name, apart from its operands and sizes.
NAMES: Mapping[str, Any] = names.list_names(_FUNCTIONS)


def _find(function: Any) -> Function:
    if function not in _FUNCTIONS:
        expected = names.explain_unknown(function.__name__, (), NAMES)
        raise TypeError(f"spec: got np.{function.__name__}, {expected}")
    implementation = _FUNCTIONS[function]
    gathers = function in (np.matmul, np.multiply, np.sum)
    return _watched(implementation if gathers else _spread(implementation))


def _watched(function: Function) -> Function:
    def call(*args: Any, **options: Any) -> Any:
        Heartbeat.give(ACTIVITY)
        return function(*args, **options)

    return call


def _refuse_attribute(self: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    known = sorted({*_METHODS, "ndim", "shape"} - {n for n in _METHODS if n.startswith("__")})
    close = [f"{name}(x)"] if name in NAMES else difflib.get_close_matches(name, known, 1, 0.7)
    meant = f"did you mean {close[0]}? " if close else ""
    raise AttributeError(f"got .{name} of an array, {meant}expected one of {' '.join(known)}")


def _call_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    if method != "__call__" or options:
        usage = ", ".join([method, *options])
        raise TypeError(f"spec: got np.{ufunc.__name__} with {usage}, expected a plain call")
    return _find(ufunc)(*inputs)


def _call_function(self: Any, function: Any, types: Any, args: Any, options: Any) -> Any:
    return _find(function)(*args, **options)


def _reflected(function: Function) -> Function:
    return lambda x, y: function(y, x)


def _spread(function: Function) -> Function:
    return lambda *args, **options: function(*map(spread, args), **options)


def _of_number(method: Any) -> Any:
    """Return a method of arrays that a condition has as an array of 0 and 1."""
    if isinstance(method, property):
        return property(lambda x: method.fget(x.number))  # type: ignore[misc]
    return lambda x, *args, **options: method(x.number, *args, **options)


def install() -> None:
    """Install the operators of this module; once, when the package is imported."""
    for name in ("add", "sub", "mul", "truediv", "matmul", "floordiv", "mod"):
        setattr(Condition, f"__{name}__", _find(_BINARY[name]))
        setattr(Condition, f"__r{name}__", _reflected(_find(_BINARY[name])))
    for name in ("sum", "reshape", "transpose", "repeat", "squeeze", "T"):
        setattr(Condition, name, _of_number(_METHODS[name]))
    for kind in (SpecArray, Gathered, DeferredProduct):
        setattr(kind, "__getattr__", _refuse_attribute)  # noqa: B010
        for name, ufunc in _BINARY.items():
            setattr(kind, f"__{name}__", _find(ufunc))
            setattr(kind, f"__r{name}__", _reflected(_find(ufunc)))
        for name, ufunc in _COMPARED.items():
            setattr(kind, f"__{name}__", _find(ufunc))
        for name, method in _METHODS.items():
            if not hasattr(kind, name) or kind is SpecArray:
                plain = isinstance(method, property) or method is operations.total
                setattr(kind, name, method if plain else _spread(method))
    for called in (SpecArray, Gathered, DeferredProduct, Condition):
        setattr(called, "__array_ufunc__", _call_ufunc)  # noqa: B010
        setattr(called, "__array_function__", _call_function)  # noqa: B010


install()

__all__ = ["NAMES", "Rules", "SpecArray", "SpecError", "erf", "evaluate", "sigmoid"]

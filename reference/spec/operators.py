"""Gives SpecArray its operators and methods, and makes numpy's functions work on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gemmproof.reference.spec import arithmetic, contraction, functions, integers, moves
from gemmproof.reference.spec.array import SpecArray
from gemmproof.reference.spec.gather import Gathered, spread

Function = Callable[..., Any]


def _comparison(holds: Function) -> Function:
    return lambda x, y: functions.compare(x, y, holds)


# numpy's function -> ours
_FUNCTIONS: Mapping[Any, Function] = {
    np.add: arithmetic.add,
    np.subtract: arithmetic.subtract,
    np.multiply: arithmetic.multiply,
    np.divide: arithmetic.divide,
    np.negative: arithmetic.negative,
    np.positive: lambda x: x,
    np.matmul: contraction.matmul,
    np.square: functions.square,
    np.absolute: functions.absolute,
    np.maximum: functions.maximum,
    np.minimum: functions.minimum,
    np.clip: functions.clip,
    np.exp: functions.exp,
    np.tanh: functions.tanh,
    np.sqrt: functions.sqrt,
    np.rint: functions.rint,
    np.floor: functions.floor,
    np.where: functions.where,
    np.sum: arithmetic.total,
    np.bitwise_and: integers.bitwise_and,
    np.bitwise_or: integers.bitwise_or,
    np.bitwise_xor: integers.bitwise_xor,
    np.left_shift: integers.left_shift,
    np.right_shift: integers.right_shift,
    np.floor_divide: integers.floor_divide,
    np.remainder: integers.remainder,
    np.invert: integers.invert,
    np.greater: _comparison(np.greater),
    np.greater_equal: _comparison(np.greater_equal),
    np.less: _comparison(np.less),
    np.less_equal: _comparison(np.less_equal),
    np.equal: _comparison(np.equal),
    np.not_equal: _comparison(np.not_equal),
    np.reshape: moves.reshape,
    np.transpose: moves.transpose,
    np.swapaxes: moves.swapaxes,
    np.expand_dims: moves.expand_dims,
    np.squeeze: moves.squeeze,
    np.repeat: moves.repeat,
    np.broadcast_to: moves.broadcast_to,
    np.concatenate: moves.concatenate,
    np.stack: moves.stack,
}

_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide,
    "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift, "floordiv": np.floor_divide,
    "mod": np.remainder,
}  # fmt: skip
_COMPARED = {
    "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_METHODS: Mapping[str, Any] = {
    "sum": arithmetic.total,
    "to": functions.to,
    "may_round": functions.may_round,
    "reshape": moves.reshape,
    "view": moves.reshape,
    "transpose": moves.transpose,
    "swapaxes": moves.swapaxes,
    "repeat": moves.repeat,
    "clip": functions.clip,
    "decode": integers.decode,
    "__neg__": arithmetic.negative,
    "__abs__": functions.absolute,
    "__invert__": integers.invert,
    "__getitem__": moves.index,
    "T": property(lambda x: moves.transpose(spread(x))),
    "mT": property(lambda x: moves.swapaxes(x, -1, -2)),
}


def _find(function: Any) -> Function:
    if function not in _FUNCTIONS:
        known = " ".join(sorted({f.__name__ for f in _FUNCTIONS}))
        raise TypeError(f"spec: got np.{function.__name__}, expected one of {known}")
    found = _FUNCTIONS[function]
    return found if function is np.matmul else _spread(found)


def _call_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    if method != "__call__" or options:
        stated = ", ".join([method, *options])
        raise TypeError(f"spec: got np.{ufunc.__name__} with {stated}, expected a plain call")
    return _find(ufunc)(*inputs)


def _call_function(self: Any, function: Any, types: Any, args: Any, options: Any) -> Any:
    return _find(function)(*args, **options)


def _reflected(function: Function) -> Function:
    return lambda x, y: function(y, x)


def _spread(function: Function) -> Function:
    return lambda *args, **options: function(*map(spread, args), **options)


def install() -> None:
    """Give SpecArray what this module says; once, when the package is imported."""
    for kind in (SpecArray, Gathered):
        for name, ufunc in _BINARY.items():
            setattr(kind, f"__{name}__", _find(ufunc))
            setattr(kind, f"__r{name}__", _reflected(_find(ufunc)))
        for name, ufunc in _COMPARED.items():
            setattr(kind, f"__{name}__", _find(ufunc))
        for name, method in _METHODS.items():
            if not hasattr(kind, name) or kind is SpecArray:
                spreads = method if isinstance(method, property) else _spread(method)
                setattr(kind, name, spreads)
    for called in (SpecArray, Gathered, functions.Condition):
        setattr(called, "__array_ufunc__", _call_ufunc)  # noqa: B010
        setattr(called, "__array_function__", _call_function)  # noqa: B010

"""The names that a formula may use, and the text of a formula."""

from __future__ import annotations

import ast
import builtins
import difflib
import functools
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic import round_to, widen
from gemmproof.reference.formats import FORMATS, format_named
from gemmproof.reference.spec import activations, contraction, functions, groups, operations
from gemmproof.reference.spec.array import Condition, SpecArray
from gemmproof.reference.spec.operations import spread

SIZES = ("M", "N", "K", "batch")
# numpy's functions of arrays that no operand needs to be in
_PLAIN = ("arange", "zeros", "ones", "full", "eye", "pi", "inf", "nan")
BUILTINS = (
    "bool", "enumerate", "float", "int", "len", "list", "range", "reversed", "slice", "tuple",
    "zip", "True", "False", "None",
)  # fmt: skip
# functions that have an operator
_OPERATORS = (
    "absolute", "add", "bitwise_and", "bitwise_or", "bitwise_xor", "divide", "equal",
    "floor_divide", "greater", "greater_equal", "invert", "left_shift", "less", "less_equal",
    "multiply", "negative", "not_equal", "positive", "power", "remainder", "right_shift",
    "subtract",
)  # fmt: skip
# what other libraries call them
_SYNONYMS = {
    "amax": "max", "amin": "min", "cat": "concatenate", "clamp": "clip", "round": "rint",
    "repeat_interleave": "repeat", "permute": "transpose", "unsqueeze": "expand_dims",
    "mm": "matmul", "bmm": "matmul", "dot": "matmul", "cdiv": "-(-x // y)", "swish": "silu",
    "gather": "take", "index_select": "take", "pow": "**", "math": "exp, sqrt, tanh",
    "torch": "exp, where, take",
    "F": "gelu, relu, silu", "tl": "exp, maximum, where", "logistic": "sigmoid",
    **{own: f.name for f in FORMATS.values() if f.stored is f for own in (*f.spelled, f.dtype)},
}  # fmt: skip


def _is_ours(x: Any) -> bool:
    return hasattr(x, "rules")


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ours that takes plain numbers too, by the rules of the formula."""

    @functools.wraps(function)
    def call(x: Any, *more: Any, **options: Any) -> Any:
        if not _is_ours(x):
            name = function.__name__
            raise TypeError(f"spec: got {name} of {type(x).__name__}, expected an array")
        x = x.number if isinstance(x, Condition) else spread(x)
        return function(x, *more, **options)

    return call


def _reduction(name: str) -> Callable[..., Any]:
    """Return Python's sum, max or min, which also reduce an array, along `axis` if it is given.

    So max(x, 0) compares with 0, as in Python, and max(x, axis=0) is numpy's.
    """
    of_numbers, of_arrays = getattr(builtins, name), getattr(np, name)
    pairwise: Any = {"sum": operator.add, "max": np.maximum, "min": np.minimum}[name]

    def reduce(x: Any, *more: Any, **options: Any) -> Any:
        is_array = _is_ours(x) or isinstance(x, np.ndarray)
        if is_array and (name == "sum" or not more):
            return of_arrays(x, *more, **options)
        parts = [x, *more] if more and name != "sum" else [*x]
        if not any(map(_is_ours, parts)):
            return of_numbers(x, *more, **options)
        return functools.reduce(pairwise, parts)

    reduce.__name__ = name
    return reduce


def _rounding(name: str) -> Callable[[Any], Any]:
    """Return a rounding that the kernel must make, to the format of that name."""

    def call(x: Any) -> Any:
        if not _is_ours(x):
            return float(widen(round_to(np.asarray(x, np.float64), format_named(name))))
        return functions.to(x.number if isinstance(x, Condition) else spread(x), name)

    call.__name__ = name
    return call


def may_round(x: Any, name: str) -> SpecArray:
    """Return x, which the kernel may store in that format on the way, or may not."""
    return functions.may_round(x, name)


def list_names(of_numpy: Iterable[Any]) -> dict[str, Any]:
    """List what a formula may name, apart from its operands and sizes; `of_numpy` functions."""
    names: dict[str, Any] = {f.__name__: f for f in of_numpy}
    names |= {"abs": np.absolute, "np": np}
    names |= {name: getattr(np, name) for name in _PLAIN}
    names |= {name: getattr(builtins, name) for name in BUILTINS if hasattr(builtins, name)}
    names |= {name: _reduction(name) for name in ("sum", "max", "min")}
    own = (
        functions.erf, functions.rsqrt, functions.sigmoid, activations.gelu, activations.gelu_tanh,
        activations.relu, activations.silu, activations.softmax, groups.unpack, may_round,
    )  # fmt: skip
    names |= {f.__name__: _of_arrays(f) for f in own}
    names |= {"matmul": contraction.matmul_in, "segments": groups.segments}
    names |= {"repeat": operations.repeat, "take": operations.take}
    names |= {"rowwise_matmul": groups.rowwise_matmul, "decode": _of_arrays(functions.decode)}
    stored = (f.name for f in FORMATS.values() if f.stored is f and f.kind == "float")
    return names | {name: _rounding(name) for name in (*stored, "tf32")}


# -- text ----------------------------------------------------------------------------------------
def parse_formula(text: str) -> ast.Expression:
    """Parse a formula: an expression, possibly after assignments, separated by `;` or lines.

    Raises SyntaxError, or a ValueError for another statement.
    """
    body = ast.parse(text.strip()).body
    *assignments, last = body or [ast.Pass()]
    if not isinstance(last, ast.Expr):
        raise ValueError("expected an expression at the end")
    result: ast.expr = last.value
    for statement in reversed(assignments):
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            raise ValueError("expected assignments such as acc = a @ b before the expression")
        (target,) = statement.targets
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(x, ast.Name) for x in targets):
            raise ValueError("expected names on the left of =")
        names = [ast.arg(x.id) for x in targets if isinstance(x, ast.Name)]
        value = statement.value
        given = ast.Starred(value, ast.Load()) if isinstance(target, ast.Tuple) else value
        function = ast.Lambda(ast.arguments([], names, None, [], [], None, []), result)
        result = ast.Call(function, [given], [])
    return ast.fix_missing_locations(ast.Expression(result))


def find_names(tree: ast.AST) -> tuple[dict[str, None], set[str]]:
    """Return the names that an expression reads, in order, and those that it binds itself."""
    read: dict[str, None] = {}
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            bound |= {node.id} if isinstance(node.ctx, ast.Store) else set()
            read |= {node.id: None} if isinstance(node.ctx, ast.Load) else {}
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return read, bound


def require_known(
    tree: ast.Expression, operands: Collection[str], known: Mapping[str, Any]
) -> None:
    """Raise a one-line ValueError for a name that is no operand, size or function."""
    read, bound = find_names(tree)
    for name in read:
        if name not in bound | {*operands, *SIZES, *known}:
            expected = explain_unknown(name, [*operands, *SIZES], known)
            raise ValueError(f"got {name!r}, {expected}")


def explain_unknown(name: str, operands: Collection[str], known: Mapping[str, Any]) -> str:
    """Return the known names, and the one that was perhaps meant."""
    own = [*operands]
    shown = sorted({*known} - {*BUILTINS, *_OPERATORS})
    close = [_SYNONYMS[name]] if name in _SYNONYMS else []
    close += difflib.get_close_matches(name, [*own, *shown], 1, 0.7)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{meant}expected one of {' '.join([*own, *shown])}"

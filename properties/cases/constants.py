"""The numbers and the shapes in the source of a wrapper and its kernels, which cases aim at."""

from __future__ import annotations

import ast
import functools
import re
import types
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from gemmproof.reference.provenance import owner

MOST_FUNCTIONS = 200  # of a package, the nearest to the wrapper
MOST_VALUES = 16  # of one expression: configurations multiply
MOST_KEYS = 64  # of one table
_NUMBER = re.compile(r"\d+")
LEAST, LARGEST = 5, 2**26  # smaller values are drawn anyway; no case has more elements

Names = Mapping[str, frozenset[int]]

_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.FloorDiv: lambda x, y: x // y if y else 0,
    ast.LShift: lambda x, y: x << y if 0 <= y < 64 else 0,
    ast.Pow: lambda x, y: x**y if 0 <= y < 64 and abs(x) <= LARGEST else 0,
}
# functions whose arguments are compared, divide, or are the side of a tile
_COMPARING = ("min", "max", "minimum", "maximum", "clamp", "cdiv", "range", "arange")


def find_constants(wrapper: object, constexprs: Iterable[tuple[str, Any]] = ()) -> tuple[int, ...]:
    """Return the constants, nearest to the wrapper first; `constexprs` are of its launches."""
    keywords: list[tuple[str, Any]] = list(constexprs)
    functions = list(_walk(wrapper, keywords))
    constants: dict[int, None] = {}
    for function in functions:
        for node in _definitions(function.__code__.co_filename).get(_first_line(function), ()):
            constants |= dict.fromkeys(_compared(node, _names(function, node, keywords)))
    return tuple(n for n in constants if LEAST <= n <= LARGEST)


_NARROW = {"int8": 8, "uint8": 8, "int16": 16, "short": 16}  # uint16 holds every index of a side


def find_narrow_bits(wrapper: object) -> tuple[int, ...]:
    """Return 8 and 16 if the wrapper, or what it reaches, names integers of so many bits."""
    bits = {
        _NARROW[inner.attr]
        for function in _walk(wrapper, [])
        for node in _definitions(function.__code__.co_filename).get(_first_line(function), ())
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and inner.attr in _NARROW
    }
    return tuple(sorted(bits))


def find_shapes(wrapper: object) -> tuple[tuple[int, ...], ...]:
    """Return the two or three sizes of each key of a table that a wrapper reaches by name.

    A key is a tuple of integers, or text with as many of them.
    """
    shapes: dict[tuple[int, ...], None] = {}
    for function in _walk(wrapper, []):
        names = {name for code in _list_codes(function) for name in code.co_names}
        values = [function.__globals__.get(name) for name in sorted(names)]
        tables = [list(x) for x in (*values, *_cells(function).values()) if isinstance(x, dict)]
        for node in _definitions(function.__code__.co_filename).get(_first_line(function), ()):
            literals = (inner for inner in ast.walk(node) if isinstance(inner, ast.Dict))
            tables += [[_read_key(key) for key in table.keys] for table in literals]
        for key in (key for table in tables for key in table[:MOST_KEYS]):
            sizes = tuple(map(int, _NUMBER.findall(key))) if isinstance(key, str) else key
            is_shape = isinstance(sizes, tuple) and len(sizes) in (2, 3)
            if is_shape and all(type(n) is int and 0 < n <= LARGEST for n in sizes):
                shapes[sizes] = None
    return tuple(shapes)


def _read_key(key: ast.expr | None) -> Any:
    try:
        return None if key is None else ast.literal_eval(key)
    except ValueError:
        return None


def _walk(wrapper: object, keywords: list[tuple[str, Any]]) -> Iterator[types.FunctionType]:
    """Yield the functions a wrapper reaches by name, breadth first; collect partials' keywords."""
    waiting, seen, count = [wrapper], set(), 0
    while waiting and count < MOST_FUNCTIONS:
        value: Any = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, functools.partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
            keywords += value.keywords.items()
        elif isinstance(value, types.MethodType):
            waiting += [value.__func__, type(value.__self__)]
        elif isinstance(value, types.FunctionType):
            if owner(value.__code__.co_filename) != "library":
                count += 1
                yield value
                waiting += _named(value)
            else:  # a library's decorator
                waiting += [getattr(value, "__wrapped__", None)]
        elif isinstance(value, staticmethod | classmethod):
            waiting += [value.__func__]
        elif isinstance(value, type):
            waiting += [part for part in vars(value).values() if _is_code(part)]
        elif not isinstance(value, types.ModuleType):
            # an object, or the wrapper that triton.jit, autotune or functools.cache returns
            parts = vars(value) if hasattr(value, "__dict__") else {}
            waiting += [*(parts.get(name) for name in ("fn", "__wrapped__")), type(value)]


def _is_code(part: object) -> bool:
    return isinstance(part, types.FunctionType | staticmethod | classmethod)


def _named(function: types.FunctionType) -> list[Any]:
    """Return the values a function's code names: globals, members of modules, closure variables."""
    names = [name for code in _list_codes(function) for name in code.co_names]
    values = [function.__globals__[n] for n in dict.fromkeys(names) if n in function.__globals__]
    modules = [vars(value) for value in values if isinstance(value, types.ModuleType)]
    values += [module[n] for module in modules for n in dict.fromkeys(names) if n in module]
    candidates = (*values, *_cells(function).values())
    return [x for x in candidates if callable(x) or hasattr(x, "fn")]  # a tuner cannot be called


def _list_codes(function: types.FunctionType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of those that it defines."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        yield code
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]


def _cells(function: types.FunctionType) -> dict[str, Any]:
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return cells


def _first_line(function: types.FunctionType) -> int:
    return function.__code__.co_firstlineno


@functools.lru_cache(maxsize=64)
def _definitions(filename: str) -> Mapping[int, list[ast.AST]]:
    """Return the functions of a file by their first line, that of a decorator included."""
    definitions: dict[int, list[ast.AST]] = defaultdict(list)
    try:
        tree = ast.parse(Path(filename).read_bytes())
    except (OSError, SyntaxError, ValueError):  # code that was generated without a file
        return definitions
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min(part.lineno for part in (node, *node.decorator_list))
            definitions[first].append(node)
        elif isinstance(node, ast.Lambda):
            definitions[node.lineno].append(node)
    return definitions


def _names(
    function: types.FunctionType, node: ast.AST, keywords: Iterable[tuple[str, Any]]
) -> Names:
    """Return the integers that names stand for in a function: globals, defaults, locals."""
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    values = [
        *((n, x) for n, x in function.__globals__.items()),
        *_cells(function).items(),
        *zip(positional[len(positional) - len(defaults) :], defaults, strict=True),
        *(function.__kwdefaults__ or {}).items(),
        *keywords,
    ]
    names: dict[str, frozenset[int]] = defaultdict(frozenset)
    for name, value in values:
        number = getattr(value, "value", value)  # a tl.constexpr holds one
        if type(number) is int:
            names[name] |= {number}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
            names[inner.targets[0].id] |= _evaluate(inner.value, names)
    return names


def _evaluate(node: ast.AST, names: Names) -> frozenset[int]:
    """Return the integers that an expression of constants may be; none for anything else."""
    if isinstance(node, ast.Constant):
        return frozenset({node.value}) if type(node.value) is int else frozenset()
    if isinstance(node, ast.Name):
        return names.get(node.id, frozenset())
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return names.get(str(node.slice.value), frozenset())  # meta["BLOCK_M"]
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return frozenset().union(*(_evaluate(item, names) for item in node.elts))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        apply = _OPERATORS[type(node.op)]
        pairs = product(_evaluate(node.left, names), _evaluate(node.right, names))
        return frozenset(sorted({apply(x, y) for x, y in pairs})[:MOST_VALUES])
    return frozenset()


def _compared(node: ast.AST, names: Names) -> Iterator[int]:
    """Yield the values that a function's source compares with or divides by."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Compare):
            for side in (inner.left, *inner.comparators):
                yield from sorted(_evaluate(side, names))
        elif isinstance(inner, ast.BinOp):
            divisors = sorted(_evaluate(inner.right, names))
            if isinstance(inner.op, ast.FloorDiv | ast.Mod | ast.Div):
                yield from divisors
            elif isinstance(inner.op, ast.BitAnd):  # x & 15 is x % 16
                yield from (n + 1 for n in divisors if n & (n + 1) == 0)
            elif isinstance(inner.op, ast.RShift):
                yield from (1 << n for n in divisors if 0 <= n < 64)
        elif isinstance(inner, ast.Call):
            called = getattr(inner.func, "attr", getattr(inner.func, "id", ""))
            for argument in inner.args if called in _COMPARING else ():
                yield from sorted(_evaluate(argument, names))

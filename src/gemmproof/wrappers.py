"""The wrappers in a file that a target can name."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gemmproof.target import Target

Function = ast.FunctionDef | ast.AsyncFunctionDef
# attributes only of tensors: a launch in a function of sizes passes on two parameters, too
_OF_TENSORS = frozenset(
    (
        *("shape", "size", "stride", "dtype", "device", "dim", "ndim", "numel", "is_cuda", "T"),
        *("contiguous", "is_contiguous", "data_ptr", "view", "reshape", "to", "t", "mT"),
        *("element_size", "new_empty", "transpose", "unsqueeze"),
    )
)
# names that a launch passes on for a tensor, never for a size
_TENSOR = re.compile(r"[a-d]|[qkvwxy]|inputs?|outputs?|out|weights?|bias|scales?")
_LAUNCH, _UNKNOWN = "a launch", "unknown"  # callees that are not names of the file


@dataclass(frozen=True, slots=True)
class _Known:
    """Names in the file of tables of functions, and of kernels."""

    tables: set[str]
    kernels: set[str]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A function that can be judged: `name` as in a target, `needs` its further parameters.

    `launches`: it was seen to launch a kernel.
    """

    name: str
    line: int
    needs: tuple[str, ...] = ()
    launches: bool = True


@dataclass(frozen=True, slots=True)
class _CallSite:
    """A call: the parameters that are passed on, and whether a kernel of the file is, too."""

    callee: str
    given: set[str]
    has_kernel: bool

    def launches(self, launching: set[str]) -> bool:
        """Return whether a kernel is launched there, if these callees launch."""
        return self.has_kernel or self.callee in launching


@dataclass(slots=True)
class _Candidate:
    """A function of the file, and its calls.

    `tensors`: the number of parameters that are used, or declared, as tensors.
    """

    node: Function
    name: str
    parameters: list[str]
    calls: list[_CallSite] = field(default_factory=list)
    tensors: int = 0


def find_wrappers(path: Path) -> list[Wrapper]:
    """Return the wrappers in a file, in its order. Raises ValueError, in one line, if no Python.

    Left out, if there are others: those with a leading underscore, and functions called by
    others that take more than two tensors.
    """
    tree = _parse(path)
    known = _Known(_list_tables(tree), _list_kernels(tree))
    functions = {function.name: function for function in _list_functions(tree.body)}
    for function in functions.values():
        function.calls, function.tensors = (
            list(_list_calls(function, known)),
            _count_tensors(function, known.tables),
        )
    launching = {_LAUNCH}
    while more := {
        name
        for name, function in functions.items()
        if name not in launching
        and any(
            call.launches(launching) and (len(call.given) > 1 or function.tensors > 1)
            for call in function.calls
        )
    }:
        launching |= more
    seen = [
        function
        for name, function in functions.items()
        if name in launching and _has_tensors(function, functions)
    ]
    launches = bool(seen)
    seen = seen or [x for x in functions.values() if x.tensors > 1 and not _list_needs(x)]
    called = {call.callee for function in seen for call in function.calls}
    listed = [
        Wrapper(function.name, function.node.lineno, _list_needs(function), launches)
        for function in seen
        if _is_callable(function)
    ]
    public = [w for w in listed if not w.name.rpartition(".")[2].startswith("_")] or listed
    return [w for w in public if not w.needs or w.name not in called] or public


def count_required(target: Target) -> int | None:
    """Return how many arguments a target needs, by its file; None if that is not known."""
    path = Path(target.file)
    if not path.is_file():
        return None
    try:
        functions = {function.name: function for function in _list_functions(_parse(path).body)}
    except ValueError:
        return None
    function = functions.get(target.function)
    if function is None or function.node.args.vararg is not None:
        return None
    needs = _list_needs(function)
    first = len(function.parameters) - len(function.node.args.defaults)
    return min(first, 2) + len(needs)


def _parse(path: Path) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in the user's strings
            return ast.parse(path.read_bytes())
    except SyntaxError as error:
        location = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise ValueError(f"{location}: got {error.msg}, expected Python") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{path}: got {error or 'nesting too deep'}, expected Python") from None
    except OSError as error:
        raise ValueError(f"{path}: got {error.strerror}, expected to read it") from None


def _list_functions(body: Iterable[ast.stmt], prefix: str = "") -> Iterator[_Candidate]:
    """Yield functions that are attributes of the module: no nested ones, no methods of objects."""
    for node in body:
        if isinstance(node, Function):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            # autograd's functions are called by `apply`
            static = any(w.endswith(("staticmethod", "classmethod")) for w in decorators)
            if not any(map(_is_jit, node.decorator_list)):
                names = [x.arg for x in (*node.args.posonlyargs, *node.args.args)]
                own = names[1:] if prefix and "staticmethod" not in decorators else names
                if not prefix or static or node.name == "forward":
                    yield _Candidate(node, prefix + node.name, own if prefix else names)
        elif isinstance(node, ast.ClassDef) and not prefix:
            yield from _list_functions(node.body, f"{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for name in ("body", "orelse", "finalbody"):
                yield from _list_functions(getattr(node, name, ()), prefix)
            for handler in getattr(node, "handlers", ()):
                yield from _list_functions(handler.body, prefix)


def _list_tables(tree: ast.Module) -> set[str]:
    """Return names of literal dicts or lists: a call by a subscript of one is no launch."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict | ast.List | ast.Tuple)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _list_kernels(tree: ast.Module) -> set[str]:
    """Return the names of the functions that Triton compiles, and their aliases."""
    names = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, Function) and any(map(_is_jit, node.decorator_list))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.value, "id", None) in names:
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _is_jit(decorator: ast.expr) -> bool:
    return "jit" in ast.unparse(decorator).partition("(")[0]


def _list_calls(function: _Candidate, known: _Known) -> Iterator[_CallSite]:
    """Yield the calls in the body."""
    holders = {name: name for name in function.parameters}
    for node in ast.walk(function.node):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            _follow(node.targets[0], node.value, holders)
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call):
            callee, given = _label_callee(node.func, known.tables), list(_list_given(node))
            has_kernel = any(getattr(x, "id", None) in known.kernels for x in given)
            if callee is not None or has_kernel:
                passed = {p for x in given if (p := _trace(x, holders))}
                yield _CallSite(callee or _UNKNOWN, passed, has_kernel)


def _list_given(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args
    yield from (keyword.value for keyword in call.keywords)


def _follow(target: ast.expr, value: ast.expr, holders: dict[str, str]) -> None:
    """Record that a local name holds the result of a parameter's method."""
    if isinstance(target, ast.Name) and (parameter := _trace(value, holders)):
        holders[target.id] = parameter
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for left, right in zip(target.elts, value.elts, strict=False):
            _follow(left, right, holders)


def _trace(value: ast.expr, holders: dict[str, str]) -> str | None:
    """Return the parameter that an expression is, is a part of, or is a method's result of."""
    while True:
        match value:
            case ast.Name(id=name):
                return holders.get(name)
            case ast.Call(func=ast.Attribute(value=inner)) | ast.IfExp(body=inner):
                value = inner
            case ast.Call(func=ast.Name(), args=[inner, *_]):
                value = inner
            case ast.Attribute(value=inner, attr="T" | "mT" | "data"):
                value = inner
            case ast.Starred(value=inner):
                value = inner
            case _:
                return None


def _label_callee(func: ast.expr, tables: set[str]) -> str | None:
    """Return the callee of a call: a name of the file, or _LAUNCH for `kernel[grid](...)`."""
    match func:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=holder), attr="apply"):
            return f"{holder}.forward"
        case ast.Attribute(value=ast.Name(id=holder), attr=name):
            return f"{holder}.{name}"
        case ast.Subscript(value=ast.Name(id=name)) if name in tables:
            return None
        case ast.Subscript(slice=ast.Constant(value=str())):
            return None
        case ast.Subscript():
            return _LAUNCH
    return None


def _is_callable(function: _Candidate) -> bool:
    """Return whether the name can be called from outside: a method `forward` cannot."""
    return "." not in function.name or any(
        ast.unparse(word).endswith(("staticmethod", "classmethod"))
        for word in function.node.decorator_list
        if not function.name.endswith(".forward")
    )


def _has_tensors(
    function: _Candidate, functions: dict[str, _Candidate], above: tuple[str, ...] = ()
) -> bool:
    """Return whether a parameter is used, or declared, as a tensor, or all are only passed on.

    Parameters passed on with a kernel are classified by the function that takes both.
    """
    if function.tensors > 0:
        return True
    if any(call.callee == _LAUNCH and not call.has_kernel for call in function.calls):
        return False
    takers = {call.callee for call in function.calls if call.has_kernel}
    if not takers or takers - set(functions):
        return True
    known = [functions[name] for name in takers if name not in above]
    return any(_has_tensors(x, functions, (*above, function.name)) for x in known)


def _count_tensors(function: _Candidate, tables: set[str]) -> int:
    arguments = function.node.args
    declared = {
        x.arg
        for x in (*arguments.posonlyargs, *arguments.args)
        if x.annotation is not None and "Tensor" in ast.unparse(x.annotation)
    }
    used = {
        node.value.id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr in _OF_TENSORS
    }
    launched = {
        given.id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Call) and _label_callee(node.func, tables) == _LAUNCH
        for given in node.args
        if isinstance(given, ast.Name) and _TENSOR.fullmatch(given.id)
    }
    return len((declared | used | launched) & set(function.parameters))


def _list_needs(function: _Candidate) -> tuple[str, ...]:
    """Return the parameters after the first two that have no default."""
    arguments = function.node.args
    most = len(function.parameters) - len(arguments.defaults)
    alone = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return (*function.parameters[2:most], *(x.arg for x, default in alone if default is None))

"""The wrappers of a file that a target can name."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
# what only a tensor has: a launch within a function of sizes hands two of these on, too
_OF_TENSORS = frozenset(
    (
        *("shape", "size", "stride", "dtype", "device", "dim", "ndim", "numel", "is_cuda", "T"),
        *("contiguous", "is_contiguous", "data_ptr", "view", "reshape", "to", "t", "mT"),
        *("element_size", "new_empty", "transpose", "unsqueeze"),
    )
)
_LAUNCH, _UNKNOWN = "a launch", "unknown"  # callees that are no names of the file


@dataclass(frozen=True, slots=True)
class _Known:
    """Names of the file that hold tables of functions, and that are kernels."""

    tables: set[str]
    kernels: set[str]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A function that can be judged: `name` as a target has it, `needs` its further parameters.

    `launches`: it was seen to launch a kernel.
    """

    name: str
    line: int
    needs: tuple[str, ...] = ()
    launches: bool = True


@dataclass(frozen=True, slots=True)
class _Handing:
    """A call: the parameters that are handed on, and whether a kernel of the file is, too."""

    callee: str
    given: set[str]
    has_kernel: bool

    def launches(self, launching: set[str]) -> bool:
        """Whether a kernel is launched there, if these callees launch."""
        return self.has_kernel or self.callee in launching


@dataclass(slots=True)
class _Found:
    """A function of the file, and its calls.

    `tensors`: how many parameters are used, or declared, as tensors.
    """

    node: Function
    name: str
    parameters: list[str]
    calls: list[_Handing] = field(default_factory=list)
    tensors: int = 0


def find_wrappers(path: Path) -> list[Wrapper]:
    """The wrappers in a file, in its order. Raises ValueError, in one line, for what is no Python.

    Left out, where there are others: those with a leading underscore, and what others call that
    takes more than two tensors.
    """
    tree = _parse(path)
    known = _Known(_list_tables(tree), _list_kernels(tree))
    found = {one.name: one for one in _list_functions(tree.body)}
    for one in found.values():
        one.calls, one.tensors = list(_list_calls(one, known)), _count_tensors(one)
    launching = {_LAUNCH}
    while more := {
        name
        for name, one in found.items()
        if name not in launching
        and any(
            call.launches(launching) and (len(call.given) > 1 or one.tensors > 1)
            for call in one.calls
        )
    }:
        launching |= more
    seen = [one for name, one in found.items() if name in launching and _has_tensors(one, found)]
    launches = bool(seen)
    seen = seen or [x for x in found.values() if x.tensors > 1 and not _list_needs(x)]
    called = {call.callee for one in seen for call in one.calls}
    listed = [
        Wrapper(one.name, one.node.lineno, _list_needs(one), launches)
        for one in seen
        if _is_callable(one)
    ]
    public = [one for one in listed if not one.name.rpartition(".")[2].startswith("_")] or listed
    return [one for one in public if not one.needs or one.name not in called] or public


def _parse(path: Path) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on escapes in strings, which are not ours
            return ast.parse(path.read_bytes())
    except SyntaxError as mistake:
        place = f"{path}:{mistake.lineno}" if mistake.lineno else str(path)
        raise ValueError(f"{place}: got {mistake.msg}, expected Python") from None
    except (ValueError, RecursionError, MemoryError) as mistake:
        raise ValueError(f"{path}: got {mistake or 'nesting too deep'}, expected Python") from None
    except OSError as mistake:
        raise ValueError(f"{path}: got {mistake.strerror}, expected to read it") from None


def _list_functions(body: Iterable[ast.stmt], prefix: str = "") -> Iterator[_Found]:
    """Those that an attribute of the module names: no nested ones, no methods of objects."""
    for node in body:
        if isinstance(node, Function):
            words = [ast.unparse(one) for one in node.decorator_list]
            # autograd's functions are called by `apply`
            static = any(w.endswith(("staticmethod", "classmethod")) for w in words)
            if not any(map(_is_jit, node.decorator_list)):
                names = [x.arg for x in (*node.args.posonlyargs, *node.args.args)]
                own = names[1:] if prefix and "staticmethod" not in words else names
                if not prefix or static or node.name == "forward":
                    yield _Found(node, prefix + node.name, own if prefix else names)
        elif isinstance(node, ast.ClassDef) and not prefix:
            yield from _list_functions(node.body, f"{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for name in ("body", "orelse", "finalbody"):
                yield from _list_functions(getattr(node, name, ()), prefix)
            for handler in getattr(node, "handlers", ()):
                yield from _list_functions(handler.body, prefix)


def _list_tables(tree: ast.Module) -> set[str]:
    """Names that hold a literal dict or list: what is called by a subscript there is no launch."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict | ast.List | ast.Tuple)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _list_kernels(tree: ast.Module) -> set[str]:
    """Names of the functions that Triton compiles, and what else they are called."""
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


def _list_calls(one: _Found, known: _Known) -> Iterator[_Handing]:
    """What is called in the body."""
    holders = {name: name for name in one.parameters}
    for node in ast.walk(one.node):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            _follow(node.targets[0], node.value, holders)
    for node in ast.walk(one.node):
        if isinstance(node, ast.Call):
            callee, given = _label_callee(node.func, known.tables), list(_list_given(node))
            has_kernel = any(getattr(x, "id", None) in known.kernels for x in given)
            if callee is not None or has_kernel:
                handed = {p for x in given if (p := _trace(x, holders))}
                yield _Handing(callee or _UNKNOWN, handed, has_kernel)


def _list_given(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args
    yield from (keyword.value for keyword in call.keywords)


def _follow(target: ast.expr, value: ast.expr, holders: dict[str, str]) -> None:
    """Note that a local name holds what a method of a parameter makes."""
    if isinstance(target, ast.Name) and (parameter := _trace(value, holders)):
        holders[target.id] = parameter
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for left, right in zip(target.elts, value.elts, strict=False):
            _follow(left, right, holders)


def _trace(value: ast.expr, holders: dict[str, str]) -> str | None:
    """The parameter that an expression is, is a part of, or is a method's result of."""
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
    """Whom a call calls: a name of the file, or _LAUNCH for `kernel[grid](...)`."""
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


def _is_callable(one: _Found) -> bool:
    """Whether the name can be called from outside: a method `forward` is not."""
    return "." not in one.name or any(
        ast.unparse(word).endswith(("staticmethod", "classmethod"))
        for word in one.node.decorator_list
        if not one.name.endswith(".forward")
    )


def _has_tensors(one: _Found, found: dict[str, _Found], above: tuple[str, ...] = ()) -> bool:
    """Whether a parameter is used, or declared, as a tensor, or all are only handed on.

    What is handed on with a kernel is what the function that takes both has it for.
    """
    if one.tensors > 0:
        return True
    if any(call.callee == _LAUNCH and not call.has_kernel for call in one.calls):
        return False
    takers = {call.callee for call in one.calls if call.has_kernel}
    if not takers or takers - set(found):
        return True
    known = [found[name] for name in takers if name not in above]
    return any(_has_tensors(x, found, (*above, one.name)) for x in known)


def _count_tensors(one: _Found) -> int:
    arguments = one.node.args
    declared = {
        x.arg
        for x in (*arguments.posonlyargs, *arguments.args)
        if x.annotation is not None and "Tensor" in ast.unparse(x.annotation)
    }
    used = {
        node.value.id
        for node in ast.walk(one.node)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr in _OF_TENSORS
    }
    return len((declared | used) & set(one.parameters))


def _list_needs(one: _Found) -> tuple[str, ...]:
    """The parameters besides the first two that have no default."""
    arguments = one.node.args
    most = len(one.parameters) - len(arguments.defaults)
    alone = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return (*one.parameters[2:most], *(x.arg for x, default in alone if default is None))

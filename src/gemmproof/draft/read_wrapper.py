"""The kinds, ranks and shapes of a wrapper's parameters, as its source has them."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# Attributes by which a tensor is recognised.
_OF_TENSORS = frozenset({
    *("shape", "size", "stride", "dtype", "device", "dim", "ndim", "numel", "contiguous", "view"),
    *("is_contiguous", "T", "t", "mT", "is_cuda", "element_size", "data_ptr", "reshape"),
    *("new_empty", "new_zeros", "transpose", "to", "type", "unsqueeze", "squeeze", "flatten"),
    "permute",
})  # fmt: skip
_TENSOR_NAME = re.compile(
    r"^(a|b|c|x|y|w|q|k|v|inp|input|inputs|mat\d?|lhs|rhs|left|right|other|bias|residual)$"
    r"|weight|scale|bias|zero|tensor|indices|ids|hidden|activations?$|^[abxw]_",
    re.IGNORECASE,
)
_POINTER = re.compile(r"ptr|_desc|pointer", re.IGNORECASE)  # of a kernel's parameters
_SHAPE = re.compile(r"(\w+)\.(?:shape|size\(\))$")
_SIDE = re.compile(r"(\w+)\.(?:shape\[(-?\d+)\]|size\((?:dim=)?(-?\d+)\))$")
_NDIM = re.compile(r"(\w+)\.(?:ndim|dim\(\))$")
MOST_CALLEES = 2  # functions that are read one inside the other
Dim = tuple[str, int]  # a parameter, and one of its dimensions, counted from the first


@dataclass(slots=True)
class Parameter:
    """A parameter: `kind` is "tensor", "int", "float", "bool", "str", "dtype" or "unknown".

    `why` says where the kind comes from. `rank` is the number of dimensions, None if unknown.
    """

    name: str
    kind: str
    why: str
    required: bool
    default: Any = None
    rank: int | None = None
    keyword_only: bool = False


@dataclass(slots=True)
class WrapperSource:
    """The source of a wrapper, and what was read of it.

    `dtypes` are those that assertions admit, `alike` the parameter whose dtype another must have.
    `target` is what is called; if it is `positional`, as an autograd function, by position only.
    `sides` are names for dimensions: equal names are equal sizes; `lines` are where they were read.
    """

    function: Callable[..., Any]
    text: str
    parameters: dict[str, Parameter]
    sides: dict[Dim, str] = field(default_factory=dict)
    lines: dict[Dim, int] = field(default_factory=dict)
    dtypes: dict[str, list[str]] = field(default_factory=dict)
    alike: dict[str, str] = field(default_factory=dict)
    target: Callable[..., Any] = print
    positional: bool = False

    @property
    def tensors(self) -> list[Parameter]:
        return [p for p in self.parameters.values() if p.kind == "tensor"]

    def arrange(self, named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments by position, and by name those that follow an omitted one."""
        by_position: list[Any] = []
        by_name: dict[str, Any] = {}
        for at, (name, parameter) in enumerate(self.parameters.items()):
            if name not in named and not self.positional:
                continue
            if self.positional:
                by_position.append(named.get(name, parameter.default))
            elif parameter.keyword_only or len(by_position) < at:
                by_name[name] = named[name]
            else:
                by_position.append(named[name])
        return by_position, by_name


def read_wrapper(function: Callable[..., Any], depth: int = 0) -> WrapperSource:
    """Read a wrapper's signature, docstring and body, and the functions that it passes tensors to.

    Raises ValueError for a method, and for a function without its source.
    """
    target = function
    function = getattr(function, "_init_fn", function)  # of an operator of torch.library
    if forward := find_forward(function):
        target = getattr(function, "apply", function)
        function = forward
    plain = _unwrap(function)
    try:
        text = textwrap.dedent(inspect.getsource(plain))
        first = inspect.getsourcelines(plain)[1] - 1
    except (OSError, TypeError):
        raise ValueError(f"got {function!r} (no source), expected a function of Python") from None
    tree = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))
    source = WrapperSource(plain, text, {}, target=target, positional=forward is not None)
    used, integers = _list_used(tree), _list_passed_integers(tree, plain.__globals__)
    first_name = next(iter(inspect.signature(plain).parameters), "")
    if first_name == "self" or (first_name == "ctx" and forward is None):
        raise ValueError("got a method, expected a function that makes the object and calls it")
    signature = inspect.signature(plain).parameters
    for name, parameter in list(signature.items())[source.positional :]:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        kind, why = _classify(parameter, used)
        if name == "k" and kind == "tensor" and not {"q", "v"} & set(signature):
            kind = "int"
        if name in integers and why in ("its name", "its use"):
            kind, why = "int", "its use in a kernel"
        default = None if parameter.default is parameter.empty else parameter.default
        required = parameter.default is parameter.empty
        only = parameter.kind is parameter.KEYWORD_ONLY
        source.parameters[name] = Parameter(name, kind, why, required, default, None, only)
    _read_body(tree, source, first)
    _read_docstring(ast.get_docstring(tree) or "", source)
    if depth < MOST_CALLEES:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                _read_callee(node, source, depth)
    return source


def _unwrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that decorators, or an operator of torch.library, hold."""
    plain = inspect.unwrap(function)
    held = inspect.getclosurevars(plain).nonlocals if inspect.isfunction(plain) else {}
    inner = held.get("fn")
    return inner if plain.__name__ == "backend_fn" and inspect.isfunction(inner) else plain


def find_forward(function: Any) -> Callable[..., Any] | None:
    """Return the forward of an autograd function, or of its `apply`; None for another value."""
    import torch

    holder = function if inspect.isclass(function) else getattr(function, "__self__", None)
    if inspect.isclass(holder) and issubclass(holder, torch.autograd.Function):
        return holder.__dict__.get("forward") and holder.forward
    return None


def _read_callee(node: ast.Call, source: WrapperSource, depth: int) -> None:
    """Read what a function of Python, or an autograd function, does with a tensor it is given."""
    callee, skipped = _find_callee(node.func, source.function.__globals__)
    if callee is None:
        return
    try:
        other = read_wrapper(callee, depth + 1)
    except (ValueError, StopIteration, SyntaxError):
        return
    parameters = list(other.parameters.values())[skipped:]
    pairs = list(zip(node.args, parameters, strict=False))
    pairs += [
        (k.value, other.parameters[k.arg]) for k in node.keywords if k.arg in other.parameters
    ]
    for given, parameter in pairs:
        own = source.parameters.get(given.id) if isinstance(given, ast.Name) else None
        if own is None or parameter.kind != "tensor":
            continue
        if own.kind != "tensor" and own.why == "its name":
            own.kind, own.why = "tensor", f"its use in {callee.__name__}"
        own.rank = own.rank or parameter.rank
        for (name, dim), side in other.sides.items():
            if name == parameter.name and (own.name, dim) not in source.sides:
                source.sides[own.name, dim] = side


def _find_callee(func: ast.expr, known: Mapping[str, Any]) -> tuple[Callable[..., Any] | None, int]:
    """Return the function of Python that a call names, and how many parameters torch adds."""
    if isinstance(func, ast.Name):
        value = known.get(func.id)
        return (value, 0) if inspect.isfunction(value) else (None, 0)
    if (
        isinstance(func, ast.Attribute)
        and func.attr == "apply"
        and isinstance(func.value, ast.Name)
    ):
        forward = getattr(known.get(func.value.id), "forward", None)
        return (forward, 1) if inspect.isfunction(forward) else (None, 0)
    return None, 0


def _list_used(tree: ast.FunctionDef) -> dict[str, int]:
    """Return the names that are used as tensors are, with a line each."""
    used: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _OF_TENSORS:
            if isinstance(node.value, ast.Name):
                used.setdefault(node.value.id, node.lineno)
            continue
        is_launch = isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
        if is_launch and isinstance(node, ast.Call):
            for given in node.args[:1]:
                if isinstance(given, ast.Name):
                    used.setdefault(given.id, given.lineno)
    return used


def _list_passed_integers(tree: ast.FunctionDef, known: Mapping[str, Any]) -> set[str]:
    """Return the names that launches pass on for sizes, strides or options of a kernel."""
    passed: set[str] = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)):
            continue
        kernel = known.get(node.func.value.id) if isinstance(node.func.value, ast.Name) else None
        names = list(getattr(kernel, "arg_names", ()))
        if not any(_POINTER.search(n) for n in names):
            continue
        pairs = [*zip(names, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
        for name, given in pairs:
            is_tensor = name and (_POINTER.search(name) or _TENSOR_NAME.search(name))
            if isinstance(given, ast.Name) and not is_tensor:
                passed.add(given.id)
    return passed


def _classify(parameter: inspect.Parameter, used: dict[str, int]) -> tuple[str, str]:
    """Return a parameter's kind, and where that comes from."""
    annotation = parameter.annotation
    annotated = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    annotated = "" if annotation is parameter.empty else annotated or str(annotation)
    if "Tensor" in str(annotation):
        return "tensor", "its annotation"
    for kind in ("dtype", "bool", "int", "float", "str"):
        if re.search(rf"\b{kind}\b", annotated):
            return kind, "its annotation"
    if parameter.name in used:
        return "tensor", "its use"
    default = parameter.default
    if default is not parameter.empty and default is not None:
        kind = type(default).__name__
        return (
            kind if kind in ("int", "float", "bool", "str", "dtype") else "unknown"
        ), "its default"
    if "dtype" in parameter.name or parameter.name.endswith("_type"):
        return "dtype", "its name"
    if re.fullmatch(r"alpha|beta|gamma|eps|scaling|\w*_alpha|\w*factor|multiplier", parameter.name):
        return "float", "its name"
    if _TENSOR_NAME.search(parameter.name) and len(parameter.name) < 40:
        return "tensor", "its name"
    if re.search(r"config|cfg", parameter.name, re.IGNORECASE):
        return "unknown", "its name"
    if re.fullmatch(r"[MNKE]|num_\w+|n_\w+|\w*size\w*|\w*_k|top_?k", parameter.name):
        return "int", "its name"
    return ("unknown" if default is None else "tensor"), "its name"


# -- body ----------------------------------------------------------------------------------------
def _read_body(tree: ast.FunctionDef, source: WrapperSource, first: int) -> None:
    """Read unpacked shapes, asserted equalities and strides."""
    equal: list[tuple[ast.expr, ast.expr]] = []
    local: dict[str, Dim] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _read_assignment(target, node.value, source, local, first)
        elif isinstance(node, ast.Assert):
            _read_dtypes(node.test, source)
            equal += _list_equal(node.test, holds=True)
        elif isinstance(node, ast.If) and any(isinstance(x, ast.Raise) for x in node.body):
            equal += _list_equal(node.test, holds=False)
        elif isinstance(node, ast.Call):
            _read_call(node, source)
        elif isinstance(node, ast.Subscript):
            _note_rank(node, source)
    for left, right in equal:
        _read_equal(left, right, source, local)


def _read_dtypes(test: ast.expr, source: WrapperSource) -> None:
    """Read the dtypes that an assertion admits for parameters."""
    for node in ast.walk(test):
        if not isinstance(node, ast.Compare) or not isinstance(
            node.ops[0], ast.Eq | ast.In | ast.Is
        ):
            continue
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        name, dtype = left.partition(".")[::2]
        if dtype != "dtype" or name not in source.parameters:
            continue
        if right.endswith(".dtype"):
            source.alike[name] = right.removesuffix(".dtype")
        else:
            source.dtypes.setdefault(name, []).extend(re.findall(r"torch\.(\w+)", right))


def _read_assignment(
    target: ast.expr, value: ast.expr, source: WrapperSource, local: dict[str, Dim], first: int
) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, other in zip(target.elts, value.elts, strict=False):
            _read_assignment(part, other, source, local, first)
        return
    text = ast.unparse(value)
    if (shape := _SHAPE.match(text)) and isinstance(target, ast.Tuple):
        parameter = source.parameters.get(shape[1])
        if parameter is None or any(isinstance(x, ast.Starred) for x in target.elts):
            return
        parameter.rank = parameter.rank or len(target.elts)
        for i, element in enumerate(target.elts):
            if isinstance(element, ast.Name):
                _record_side(source, local, (shape[1], i), element.id, first + element.lineno)
    elif isinstance(value, ast.BinOp) and isinstance(target, ast.Name):
        packed, count = _find_side(value.left, source, local), _read_integer(value.right, source)
        if packed and count and isinstance(value.op, ast.Mult):
            local[target.id] = packed
            source.sides[packed] = f"{target.id} // {count}"
    elif (side := _SIDE.match(text)) and isinstance(target, ast.Name):
        parameter = source.parameters.get(side[1])
        if parameter is not None:
            at = int(side[2] or side[3])
            _record_side(source, local, (side[1], at), target.id, first + target.lineno)


def _record_side(
    source: WrapperSource, local: dict[str, Dim], dim: Dim, name: str, line: int
) -> None:
    """Record the name of a dimension; dimensions of one name are meant to be equal."""
    if name == "_":
        return
    local[name] = dim
    source.sides.setdefault(dim, name)
    source.lines.setdefault(dim, line)


def _list_equal(test: ast.expr, holds: bool) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the pairs that must be equal where a test holds, or where it must not."""
    if isinstance(test, ast.BoolOp):
        joining = ast.And if holds else ast.Or
        if isinstance(test.op, joining):
            for value in test.values:
                yield from _list_equal(value, holds)
    elif isinstance(test, ast.Compare):
        left = test.left
        for op, right in zip(test.ops, test.comparators, strict=True):
            if isinstance(op, ast.Eq if holds else ast.NotEq):
                yield left, right
            left = right


def _read_equal(
    left: ast.expr, right: ast.expr, source: WrapperSource, local: dict[str, Dim]
) -> None:
    """Give two dimensions that must be equal one name."""
    if isinstance(left, ast.Tuple) and isinstance(right, ast.Tuple):
        for part, other in zip(left.elts, right.elts, strict=False):
            _read_equal(part, other, source, local)
        return
    _read_packed(left, right, source, local)
    _read_packed(right, left, source, local)
    sides = [_find_side(x, source, local) for x in (left, right)]
    texts = [ast.unparse(x) for x in (left, right)]
    for text, other in ((texts[0], right), (texts[1], left)):
        shape, ndim = _SHAPE.match(text), _NDIM.match(text)
        if shape and isinstance(other, ast.Tuple) and shape[1] in source.parameters:
            source.parameters[shape[1]].rank = len(other.elts)
            for i, element in enumerate(other.elts):
                source.sides.setdefault((shape[1], i), ast.unparse(element))
        if ndim and isinstance(other, ast.Constant) and ndim[1] in source.parameters:
            source.parameters[ndim[1]].rank = int(str(other.value))
    if sides[0] is None or sides[1] is None:
        return
    first, second = (source.sides.setdefault(x, f"{x[0]}_{x[1]}") for x in sides if x)
    for dim, name in list(source.sides.items()):
        if name == second:
            source.sides[dim] = first


def _read_packed(
    whole: ast.expr, packed: ast.expr, source: WrapperSource, local: dict[str, Dim]
) -> None:
    """Read a dimension of packed elements: K == w.shape[0] * 8."""
    if not isinstance(packed, ast.BinOp):
        return
    for inner, factor in ((packed.left, packed.right), (packed.right, packed.left)):
        side, count = _find_side(inner, source, local), _read_integer(factor, source)
        own = _find_side(whole, source, local)
        if side is None or count is None or own is None:
            continue
        name = source.sides.setdefault(own, f"{own[0]}_{own[1]}")
        if isinstance(packed.op, ast.Mult):
            source.sides[side] = f"{name} // {count}"
        elif isinstance(packed.op, ast.FloorDiv) and inner is packed.left:
            source.sides[own] = f"{source.sides.get(side, name)} // {count}"
        return


def _read_integer(node: ast.expr, source: WrapperSource) -> int | None:
    """Return the value of a literal, a default or a global of the module; None if unknown."""
    value: Any = None
    if isinstance(node, ast.Constant):
        value = node.value
    elif isinstance(node, ast.Name):
        parameter = source.parameters.get(node.id)
        value = parameter.default if parameter else source.function.__globals__.get(node.id)
    return value if type(value) is int else None


def _find_side(node: ast.expr, source: WrapperSource, local: dict[str, Dim]) -> Dim | None:
    text = ast.unparse(node)
    if isinstance(node, ast.Name):
        return local.get(node.id)
    side = _SIDE.match(text)
    if side and side[1] in source.parameters:
        at, rank = int(side[2] or side[3]), source.parameters[side[1]].rank
        return side[1], at + rank if at < 0 and rank else at
    return None


def _read_call(node: ast.Call, source: WrapperSource) -> None:
    """Read the rank that x.stride(1) shows."""
    match = re.match(r"(\w+)\.(?:stride|size)\((-?\d+)\)$", ast.unparse(node))
    if match and match[1] in source.parameters:
        _at_least(source.parameters[match[1]], int(match[2]))


def _note_rank(node: ast.Subscript, source: WrapperSource) -> None:
    match = re.match(r"(\w+)\.(?:shape|stride\(\))\[(-?\d+)\]$", ast.unparse(node))
    if match and match[1] in source.parameters:
        _at_least(source.parameters[match[1]], int(match[2]))


def _at_least(parameter: Parameter, index: int) -> None:
    needed = index + 1 if index >= 0 else -index
    if needed > 1:
        parameter.rank = max(parameter.rank or 1, needed)


# -- docstring -----------------------------------------------------------------------------------
def _read_docstring(text: str, source: WrapperSource) -> None:
    """Read shapes that a docstring states: "x: (M, K)", "w of shape [N, K]"."""
    for line in source.text.split(":\n")[0].splitlines():  # comments beside the parameters
        if shape := re.search(r"^\s*(\w+)\b[^#]*#\s*[\[(]([^\])]*)[\])]", line):
            text += f"\n{shape[1]}: ({shape[2]})"
    text = re.sub(r"\(?(\w+(?: // \w+)?)\)? x \(?(\w+(?: // \w+)?)\)?", r"(\1, \2)", text)
    for name, parameter in source.parameters.items():
        if parameter.kind not in ("tensor", "unknown"):
            continue
        match = re.search(
            rf"(?<!\w){re.escape(name)}(?!\w)[^\n\[(]{{0,60}}[\[(]([^\[\]()\n]*)[\])]", text
        )
        if not match or not re.fullmatch(r"\s*[\w\s*/+,.-]+\s*", match[1]):
            continue
        sides = [side.strip() for side in match[1].split(",") if side.strip()]
        if not all(re.fullmatch(r"[A-Za-z_]\w*(\s*(//|/|\*)\s*\w+)?|\d+", s) for s in sides):
            continue
        if any(s in ("optional", "Tensor", "default", "int", "float", "bool") for s in sides):
            continue
        if parameter.kind == "unknown":
            parameter.kind, parameter.why = "tensor", "the docstring"
        parameter.rank = parameter.rank or len(sides)
        for i, side in enumerate(sides):
            if parameter.rank == len(sides):
                source.sides.setdefault((name, i), side)

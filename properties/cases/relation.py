"""A condition on the sizes of a case, stated as text: "K % 32 == 0 and M <= N"."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

_BINARY: Mapping[type, Callable[[int, int], int]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: lambda x, y: x // y if y else 0,
        ast.Mod: lambda x, y: x % y if y else 0,
    }
)
_COMPARED: Mapping[type, Callable[[int, int], bool]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)


def evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """What an expression over the sizes gives. Raises ValueError where it is none."""
    try:
        return int(_evaluate(_parse(text), text, sizes))
    except ValueError:
        names = ", ".join(sizes)
        raise ValueError(f"got {text!r}, expected sizes over {names} such as 'K // 128'") from None


def holds(relation: str, sizes: Mapping[str, int]) -> bool:
    """Whether the sizes meet the relation. Raises ValueError where it is none."""
    return bool(_evaluate(_parse(relation), relation, sizes))


def split(relation: str) -> list[str]:
    """The conditions that it joins by `and`; one after another they are easier to meet."""
    match _parse(relation):
        case ast.BoolOp(op=ast.And(), values=parts):
            return [ast.unparse(part) for part in parts]
    return [relation]


@cache
def _parse(relation: str) -> ast.expr:
    try:
        return ast.parse(relation, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(_refusal(relation)) from None


def _refusal(relation: str) -> str:
    example = "'K % 32 == 0 and M <= N'"
    return f"got {relation!r}, expected a condition on M, N, K and batch such as {example}"


def _evaluate(node: ast.expr, relation: str, sizes: Mapping[str, int]) -> int:
    def value(inner: ast.expr) -> int:
        return _evaluate(inner, relation, sizes)

    match node:
        case ast.Constant(value=int(n)) if abs(n) < 2**63:
            return n
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.BinOp() if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](value(node.left), value(node.right))
        case ast.UnaryOp(op=ast.Not()):
            return not value(node.operand)
        case ast.UnaryOp(op=ast.USub()):
            return -value(node.operand)
        case ast.BoolOp():
            parts = [value(part) for part in node.values]
            return all(parts) if isinstance(node.op, ast.And) else any(parts)
        case ast.Compare() if all(type(op) in _COMPARED for op in node.ops):
            terms = [value(term) for term in (node.left, *node.comparators)]
            pairs = zip(node.ops, terms, terms[1:], strict=False)
            return all(_COMPARED[type(op)](x, y) for op, x, y in pairs)
    raise ValueError(_refusal(relation))

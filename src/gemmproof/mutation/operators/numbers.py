"""Numbers: accumulators, casts, integer widths and constants."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gemmproof.mutation.operators.scope import Surroundings, is_called, name_of
from gemmproof.mutation.source import Edit

_WIDE = re.compile(r"(float|int)(32|64)")
_LITERAL = (ast.BinOp, ast.Compare)


def narrow_sum(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A sum that is rounded to fp16 after each product."""
    if isinstance(node, ast.Call) and is_called(node, "dot") and scope.compiled:
        above = scope.source.enclosing(node, ast.stmt)
        if isinstance(above, ast.Assign | ast.AugAssign) and above.value is node:
            target = above.targets[0] if isinstance(above, ast.Assign) else above.target
            name = scope.source.segment(target)
            into = f".to({name}.dtype)" if isinstance(above, ast.AugAssign) else ""
            kept = _accumulates(node, name) or isinstance(above, ast.AugAssign)
            half = _find_half(scope)
            text = f"{scope.source.segment(node)}.to({half})"
            if kept:
                yield scope.source.replace(node, text + (into or f".to({name}.dtype)"))


def narrow_type(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`tl.float16` for `tl.float32`, outside casts."""
    wide = _WIDE.fullmatch(node.attr) if isinstance(node, ast.Attribute) else None
    if wide is None or is_called(scope.source.parents[node], "to"):
        return
    assert isinstance(node, ast.Attribute)
    if name_of(node.value) in ("tl", "language"):
        module = scope.source.segment(node.value)
        yield scope.source.replace(node, f"{module}.{wide[1]}{int(wide[2]) // 2}")


def drop_cast(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`x.to(type)` without the cast; those to 64 bits are `drop_width`'s."""
    if _is_cast(node, scope) and not _is_wide(node, scope):
        yield _uncast(node, scope)


def drop_width(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`x.to(int64)` left in 32 bits."""
    if _is_cast(node, scope) and _is_wide(node, scope):
        yield _uncast(node, scope)


def move_cast(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`x.to(type) * y` cast after the product, where it may have wrapped or rounded."""
    if not _is_cast(node, scope):
        return
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    above = scope.source.parents[node]
    if isinstance(above, ast.BinOp):
        value = scope.source.operand(node.func.value)
        start, end = scope.source.span(above)
        inner, outer = scope.source.outer_span(node)
        before, after = scope.source.data[start:inner], scope.source.data[outer:end]
        kind = ", ".join(scope.source.segment(x) for x in node.args)
        yield Edit(start, end, f"({before.decode()}{value}{after.decode()}).to({kind})")


def move_constant(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """An integer of an expression one more or one less."""
    if not isinstance(node, ast.Constant) or type(node.value) is not int:
        return
    if isinstance(scope.source.parents[node], _LITERAL) and scope.source.segment(node).isdigit():
        for value in (node.value - 1, node.value + 1):
            if value >= 0:
                yield scope.source.replace(node, str(value))


def _accumulates(call: ast.Call, name: str) -> bool:
    given = [*call.args[2:3], *(k.value for k in call.keywords if k.arg == "acc")]
    return any(isinstance(x, ast.Name) and x.id == name for x in given)


def _find_half(scope: Surroundings) -> str:
    """How this file names fp16: by the module that its dots come from."""
    for node in ast.walk(scope.function):
        if is_called(node, "dot") and isinstance(node.func, ast.Attribute):
            return f"{scope.source.segment(node.func.value)}.float16"
    return "tl.float16"


def _is_cast(node: ast.AST, scope: Surroundings) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return called and scope.compiled and is_called(node, "to")


def _is_wide(node: ast.AST, scope: Surroundings) -> bool:
    assert isinstance(node, ast.Call)
    return "64" in "".join(scope.source.segment(x) for x in node.args)


def _uncast(node: ast.AST, scope: Surroundings) -> Edit:
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    return scope.source.replace(node, scope.source.operand(node.func.value))


RULES = {
    "sum narrowed": narrow_sum,
    "type narrowed": narrow_type,
    "cast dropped": drop_cast,
    "cast moved": move_cast,
    "64 bits dropped": drop_width,
    "constant moved": move_constant,
}

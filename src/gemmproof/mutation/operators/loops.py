"""Loops and order: bounds, steps, advances, the accumulator, groups of tiles."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gemmproof.mutation.operators.scope import Surroundings, find_keyword, is_called, name_of
from gemmproof.mutation.source import Edit


def drop_ceiling(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`cdiv(K, BLOCK_K)` rounded down."""
    if isinstance(node, ast.Call) and is_called(node, "cdiv") and len(node.args) == 2:
        x, y = (scope.source.operand(one) for one in node.args)
        yield scope.source.replace(node, f"({x} // {y})")


def move_loop(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A loop with one trip more or less at either end."""
    if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call):
        return
    call = node.iter
    if name_of(call.func) not in ("range", "static_range") or not scope.compiled or not call.args:
        return
    first = call.args[0] if len(call.args) > 1 else None
    last = call.args[1] if len(call.args) > 1 else call.args[0]
    step = scope.source.operand(call.args[2]) if len(call.args) > 2 else "1"
    for sign in "-+":
        text = f"{scope.source.outer_segment(last)} {sign} {step}"
        yield scope.source.replace_outer(last, text)
    if first is not None:
        zero = isinstance(first, ast.Constant) and first.value == 0
        text = step if zero else f"{scope.source.outer_segment(first)} + {step}"
        yield scope.source.replace_outer(first, text)


def drop_advance(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A pointer or an offset that stays where it is."""
    if not scope.compiled or scope.source.enclosing(node, ast.For | ast.While) is None:  # type: ignore[arg-type]
        return
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
        if not any(is_called(x, "dot") for x in ast.walk(node.value)):
            yield scope.source.replace(node, "pass")
    elif isinstance(node, ast.Assign) and is_called(node.value, "advance"):
        yield scope.source.replace(node, "pass")


def forget_sum(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`acc = dot(a, b)` for `acc += dot(a, b)` or `acc = dot(a, b, acc)`."""
    if not scope.compiled:
        return
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        if any(is_called(x, "dot") for x in ast.walk(node.value)):
            value = scope.source.segment(node.value)
            yield scope.source.replace(node, f"{scope.source.segment(node.target)} = {value}")
    elif isinstance(node, ast.Call) and is_called(node, "dot"):
        given = node.args[2] if len(node.args) > 2 else find_keyword(node, "acc")
        if given is not None:
            yield scope.source.drop_argument(given)


def drop_clamp(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`minimum(x, GROUP_M)` with either side alone."""
    names = ("minimum", "min", "maximum", "max")
    if isinstance(node, ast.Call) and name_of(node.func) in names and len(node.args) == 2:
        for side in node.args:
            yield scope.source.replace(node, scope.source.operand(side))


def change_order(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`pid // n` for `pid % n`, and the other way round: another tile for each program."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod | ast.FloorDiv):
        return
    if scope.compiled and "pid" in scope.source.segment(node.left):
        sign = "//" if isinstance(node.op, ast.Mod) else "%"
        x, y = (scope.source.operand(one) for one in (node.left, node.right))
        yield scope.source.replace(node, f"{x} {sign} {y}")


RULES = {
    "ceiling dropped": drop_ceiling,
    "loop bound moved": move_loop,
    "advance dropped": drop_advance,
    "sum not accumulated": forget_sum,
    "clamp dropped": drop_clamp,
    "order of tiles": change_order,
}

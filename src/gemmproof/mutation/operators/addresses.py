"""Addresses: axes, strides, blocks and program ids of the wrong kind, wraps and hints."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gemmproof.mutation.operators.scope import Surroundings, is_called
from gemmproof.mutation.source import Edit


def swap_axes(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`x[:, None]` for `x[None, :]`, and the other way round."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and scope.compiled:
        words = [scope.source.segment(x) for x in node.slice.elts]
        if len(words) == 2 and set(words) == {":", "None"}:
            yield scope.source.replace(node.slice, f"{words[1]}, {words[0]}")


def take_other_stride(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """The stride of another axis of the same operand."""
    if isinstance(node, ast.Name) and _is_factor(node, scope) and "stride" in node.id:
        other = scope.find_other_axis(node.id)
        if other is not None:
            yield scope.source.replace(node, other)


def drop_stride(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`offs * stride` as if the stride were 1."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and scope.compiled:
        for factor, rest in ((node.left, node.right), (node.right, node.left)):
            if isinstance(factor, ast.Name) and "stride" in factor.id:
                yield scope.source.replace(node, scope.source.operand(rest))


def take_other_block(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`pid_m * BLOCK_N`, `arange(0, BLOCK_N)`: the block of another axis."""
    if not isinstance(node, ast.Name) or not scope.compiled or "stride" in node.id:
        return
    above = scope.source.parents[node]
    divides = any(is_called(above, name) for name in ("cdiv", "arange", "range"))
    if node.id.isupper() and len(node.id) > 1 and (_is_factor(node, scope) or divides):
        other = scope.find_other_axis(node.id)
        if other is not None:
            yield scope.source.replace(node, other)


def take_other_pid(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`pid_n` where `pid_m` is meant, in a product, a sum or a quotient."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and scope.compiled:
        other = scope.find_other_axis(node.id) if "pid" in node.id else None
        if other is not None and isinstance(scope.source.parents[node], ast.BinOp):
            yield scope.source.replace(node, other)


def take_other_program_axis(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`program_id(1)` for `program_id(0)`."""
    for name in ("program_id", "num_programs"):
        if isinstance(node, ast.Call) and is_called(node, name):
            axis = node.args[0] if node.args else next((k.value for k in node.keywords), None)
            if isinstance(axis, ast.Constant) and axis.value in (0, 1, 2):
                yield scope.source.replace(axis, str((0, 1)[axis.value != 1]))


def drop_wrap(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`offs % M` without the wrap."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and scope.compiled:
        yield scope.source.replace(node, scope.source.operand(node.left))


def double_hint(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A hint that promises twice as much."""
    for name in ("multiple_of", "max_contiguous"):
        if isinstance(node, ast.Call) and is_called(node, name) and len(node.args) == 2:
            value = node.args[1]
            if isinstance(value, ast.Tuple | ast.List):
                texts = [f"{scope.source.operand(x)} * 2" for x in value.elts]
                yield scope.source.replace(value, f"({', '.join(texts)},)")
            else:
                yield scope.source.replace_outer(value, f"{scope.source.operand(value)} * 2")


def _is_factor(node: ast.AST, scope: Surroundings) -> bool:
    above = scope.source.parents[node]
    return isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult) and scope.compiled


RULES = {
    "axes swapped": swap_axes,
    "stride of another axis": take_other_stride,
    "stride dropped": drop_stride,
    "block of another axis": take_other_block,
    "pid of another axis": take_other_pid,
    "program axis": take_other_program_axis,
    "wrap dropped": drop_wrap,
    "hint doubled": double_hint,
}

"""Masks: a term or all of it dropped, a comparison or its bound moved, another axis, `other`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gemmproof.mutation.operators.scope import Surroundings, find_keyword, is_called
from gemmproof.mutation.source import Edit

ACCESSES = ("load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg")
_NEIGHBOURS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}


def drop_term(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`(m < M) & (n < N)` with either side alone."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        for side in (node.left, node.right):
            yield scope.source.replace(node, scope.source.outer_segment(side))


def drop_mask(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """An access without its mask, and without `other`, which means nothing then."""
    if isinstance(node, ast.Call) and any(is_called(node, name) for name in ACCESSES):
        dropped = [k for k in node.keywords if k.arg in ("mask", "other")]
        if any(k.arg == "mask" for k in dropped):
            start, end = scope.source.span(node)
            text = scope.source.data[start:end]
            for one in sorted(dropped, key=lambda k: -scope.source.span(k)[0]):
                cut = scope.source.drop_argument(one)
                text = text[: cut.start - start] + text[cut.end - start :]
            yield Edit(start, end, text.decode())


def move_comparison(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`<` for `<=`, and each comparison's neighbour."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return
    words = _NEIGHBOURS.get(type(node.ops[0]))
    if words is not None:
        start, end = (
            scope.source.outer_span(node.left)[1],
            scope.source.outer_span(node.comparators[0])[0],
        )
        between = scope.source.data[start:end].decode()
        yield Edit(start, end, between.replace(words[0], words[1], 1))


def move_bound(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`m < M` that ends one earlier."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and scope.compiled:
        bound = node.comparators[0]
        if isinstance(node.ops[0], ast.Lt | ast.LtE) and not isinstance(bound, ast.Constant):
            yield scope.source.replace_outer(bound, f"{scope.source.operand(bound)} - 1")


def take_other_size(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`m < M` held against another size."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and scope.compiled:
        bound = node.comparators[0]
        if isinstance(bound, ast.Name) and bound.id in scope.sizes:
            for size in scope.sizes:
                if size != bound.id:
                    yield scope.source.replace(bound, size)


def drop_other(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A masked load that leaves its other lanes undefined."""
    if isinstance(node, ast.Call) and is_called(node, "load"):
        given = find_keyword(node, "other")
        if given is not None:
            yield scope.source.drop_argument(given)


def fill_with_one(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A masked load that gives 1 for its other lanes."""
    if isinstance(node, ast.Call) and is_called(node, "load"):
        given = find_keyword(node, "other")
        if given is not None and isinstance(given.value, ast.Constant):
            yield scope.source.replace(given.value, "1.0" if "." in str(given.value.value) else "1")


RULES = {
    "mask term dropped": drop_term,
    "mask dropped": drop_mask,
    "comparison moved": move_comparison,
    "bound moved": move_bound,
    "mask of another axis": take_other_size,
    "other dropped": drop_other,
    "other is one": fill_with_one,
}

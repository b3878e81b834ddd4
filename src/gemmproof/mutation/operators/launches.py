"""The launch: the grid, the arguments, memory that must begin as zero, atomics."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from gemmproof.mutation.operators.scope import Surroundings, is_called, name_of
from gemmproof.mutation.source import Edit


def move_grid(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A grid with one program more or less along an axis."""
    for grid in _list_grids(node, scope):
        for side in grid.elts:
            if isinstance(side, ast.Starred) or _is_one(side):
                continue
            for sign in "-+":
                text = f"{scope.source.operand(side)} {sign} 1"
                yield scope.source.replace_outer(side, text)


def swap_grid(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A grid with two axes swapped."""
    for grid in _list_grids(node, scope):
        yield from _swap_neighbours(grid.elts, scope)


def swap_arguments(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """Two neighbours swapped among the sizes or the strides that a kernel is given."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) and not scope.compiled:
        for x, y in pairwise(node.args):
            if _kind(x) == _kind(y) != "":
                yield from _swap_neighbours([x, y], scope)
    elif isinstance(node, ast.Starred) and _kind(node.value) == "stride" and not scope.compiled:
        yield scope.source.replace(node, f"{scope.source.segment(node)}[::-1]")


def take_other_dimension(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`a.stride(1)` for `a.stride(0)`, `a.shape[1]` for `a.shape[0]`."""
    if scope.compiled:
        return
    index: ast.AST | None = None
    if isinstance(node, ast.Call) and name_of(node.func) in ("stride", "size") and node.args:
        index = node.args[0]
    elif isinstance(node, ast.Subscript) and name_of(node.value) == "shape":
        index = node.slice
    words = {"0": "1", "1": "0", "-1": "-2", "-2": "-1"}
    if index is not None and scope.source.segment(index) in words:
        yield scope.source.replace(index, words[scope.source.segment(index)])


def drop_zeros(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`torch.empty` for `torch.zeros`: what a kernel adds to is not defined."""
    if isinstance(node, ast.Call) and not scope.compiled:
        words = {"zeros": "empty", "zeros_like": "empty_like", "new_zeros": "new_empty"}
        if name_of(node.func) in words and isinstance(node.func, ast.Attribute):
            whole = scope.source.segment(node.func)
            text = whole.removesuffix(node.func.attr) + words[node.func.attr]
            yield scope.source.replace(node.func, text)


def drop_atomic(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A plain store where programs add to the same element."""
    if isinstance(node, ast.Call) and is_called(node, "atomic_add") and scope.compiled:
        kept = [k for k in node.keywords if k.arg == "mask"]
        words = [*map(scope.source.segment, node.args[:2])]
        words += [f"mask={scope.source.segment(x)}" for x in node.args[2:3]]
        words += map(scope.source.segment, kept)
        module = scope.source.segment(node.func).removesuffix("atomic_add")
        yield scope.source.replace(node, f"{module}store({', '.join(words)})")


def _list_grids(node: ast.AST, scope: Surroundings) -> Iterator[ast.Tuple]:
    """The tuples of this node that are a grid: `kernel[...]`, or what a grid's function returns."""
    if scope.compiled:
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
        if isinstance(node.func.slice, ast.Tuple):
            yield node.func.slice
    elif isinstance(node, ast.Lambda) and isinstance(node.body, ast.Tuple):
        yield from [node.body] * scope.makes_grid
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        yield from [node.value] * scope.makes_grid
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        yield from [node.value] * ("grid" in scope.source.segment(node.targets[0]))


def _swap_neighbours(nodes: list[ast.expr], scope: Surroundings) -> Iterator[Edit]:
    for x, y in pairwise(nodes):
        (start, middle), (until, end) = scope.source.outer_span(x), scope.source.outer_span(y)
        between = scope.source.data[middle:until].decode()
        words = (scope.source.outer_segment(y), scope.source.outer_segment(x))
        if words[0] != words[1]:
            yield Edit(start, end, f"{words[0]}{between}{words[1]}")


def _is_one(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _kind(node: ast.AST) -> str:
    """What an argument of a launch is: a stride, a size or something else."""
    if isinstance(node, ast.Call):
        return name_of(node.func) if name_of(node.func) in ("stride", "size") else ""
    if isinstance(node, ast.Subscript):
        return "size" if name_of(node.value) == "shape" else ""
    return "size" if isinstance(node, ast.Name) and node.id.isupper() else ""


RULES = {
    "grid moved": move_grid,
    "grid axes swapped": swap_grid,
    "arguments swapped": swap_arguments,
    "dimension of an operand": take_other_dimension,
    "zeros dropped": drop_zeros,
    "atomic dropped": drop_atomic,
}

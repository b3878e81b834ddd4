"""Mutation operators: addresses, launches, loops, masks and numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeGuard

from gemmproof.mutate.changed_source import Edit, Function, SourceFile

# -- scope ---------------------------------------------------------------------------------------
# the letter of an axis at the end of a name, and its replacements to try
_AXIS = re.compile(r"(.*_|^)([a-z]?)([mnkMNK])")
_OTHERS = {"m": "nk", "n": "mk", "k": "mn"}


@dataclass
class Surroundings:
    """The file and the function that a node is in.

    `compiled`: whether Triton compiles it; `makes_grid`: whether the function makes a grid.
    """

    source: SourceFile
    function: Function
    compiled: bool
    makes_grid: bool = False

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The function's parameters and variables, in the order of first occurrence."""
        arguments = self.function.args
        names = [x.arg for x in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        names += [n.id for n in ast.walk(self.function) if isinstance(n, ast.Name)]
        return tuple(dict.fromkeys(names))

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """The names that indices are compared with or that are divided into tiles."""
        expressions = []
        for node in ast.walk(self.function):
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                expressions += (
                    [node.comparators[0]] if isinstance(node.ops[0], ast.Lt | ast.LtE) else []
                )
            elif is_called(node, "cdiv") and node.args:
                expressions.append(node.args[0])
        names = dict.fromkeys(x.id for x in expressions if isinstance(x, ast.Name))
        return tuple(name for name in names if name.isupper() or len(name) == 1)

    def find_other_axis(self, name: str) -> str | None:
        """Return a name of this function that differs in its axis letter, or None."""
        match = _AXIS.fullmatch(name)
        if match is None:
            return None
        head, operand, axis = match.groups()
        for other in _OTHERS[axis.lower()]:
            letter = other.upper() if axis.isupper() else other
            if f"{head}{operand}{letter}" in self.names:
                return f"{head}{operand}{letter}"
        return None


def is_called(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    """Return whether a node calls a function of this name, in any module."""
    return isinstance(node, ast.Call) and get_name(node.func) == name


def get_name(node: ast.AST) -> str:
    """Return the last part of a dotted name, "" for other nodes."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def find_keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """Return the keyword argument of a call with this name, or None."""
    return next((k for k in call.keywords if k.arg == name), None)


Rule = Callable[[ast.AST, Surroundings], Iterator[Edit]]


# -- addresses -----------------------------------------------------------------------------------
def swap_axes(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`x[:, None]` for `x[None, :]`, and the other way round."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and scope.compiled:
        axes = [scope.source.segment(x) for x in node.slice.elts]
        if len(axes) == 2 and set(axes) == {":", "None"}:
            yield scope.source.replace(node.slice, f"{axes[1]}, {axes[0]}")


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
    """`pid_n` in place of `pid_m`, in a product, a sum or a quotient."""
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


ADDRESS_RULES = {
    "axes swapped": swap_axes,
    "stride of another axis": take_other_stride,
    "stride dropped": drop_stride,
    "block of another axis": take_other_block,
    "pid of another axis": take_other_pid,
    "program axis": take_other_program_axis,
    "wrap dropped": drop_wrap,
    "hint doubled": double_hint,
}


# -- launches ------------------------------------------------------------------------------------
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
    if isinstance(node, ast.Call) and get_name(node.func) in ("stride", "size") and node.args:
        index = node.args[0]
    elif isinstance(node, ast.Subscript) and get_name(node.value) == "shape":
        index = node.slice
    others = {"0": "1", "1": "0", "-1": "-2", "-2": "-1"}
    if index is not None and scope.source.segment(index) in others:
        yield scope.source.replace(index, others[scope.source.segment(index)])


def drop_zeros(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`torch.empty` for `torch.zeros`: the kernel adds to undefined values."""
    if isinstance(node, ast.Call) and not scope.compiled:
        replacements = {"zeros": "empty", "zeros_like": "empty_like", "new_zeros": "new_empty"}
        if get_name(node.func) in replacements and isinstance(node.func, ast.Attribute):
            whole = scope.source.segment(node.func)
            text = whole.removesuffix(node.func.attr) + replacements[node.func.attr]
            yield scope.source.replace(node.func, text)


def drop_atomic(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A plain store where programs add to the same element."""
    if isinstance(node, ast.Call) and is_called(node, "atomic_add") and scope.compiled:
        kept = [k for k in node.keywords if k.arg == "mask"]
        arguments = [*map(scope.source.segment, node.args[:2])]
        arguments += [f"mask={scope.source.segment(x)}" for x in node.args[2:3]]
        arguments += map(scope.source.segment, kept)
        module = scope.source.segment(node.func).removesuffix("atomic_add")
        yield scope.source.replace(node, f"{module}store({', '.join(arguments)})")


def _list_grids(node: ast.AST, scope: Surroundings) -> Iterator[ast.Tuple]:
    """Yield the tuples of this node that are a grid: `kernel[...]`, or a grid function's result."""
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
        swapped = (scope.source.outer_segment(y), scope.source.outer_segment(x))
        if swapped[0] != swapped[1]:
            yield Edit(start, end, f"{swapped[0]}{between}{swapped[1]}")


def _is_one(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _kind(node: ast.AST) -> str:
    """Classify an argument of a launch: a stride, a size or something else."""
    if isinstance(node, ast.Call):
        return get_name(node.func) if get_name(node.func) in ("stride", "size") else ""
    if isinstance(node, ast.Subscript):
        return "size" if get_name(node.value) == "shape" else ""
    return "size" if isinstance(node, ast.Name) and node.id.isupper() else ""


LAUNCH_RULES = {
    "grid moved": move_grid,
    "grid axes swapped": swap_grid,
    "arguments swapped": swap_arguments,
    "dimension of an operand": take_other_dimension,
    "zeros dropped": drop_zeros,
    "atomic dropped": drop_atomic,
}


# -- loops ---------------------------------------------------------------------------------------
def drop_ceiling(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`cdiv(K, BLOCK_K)` rounded down."""
    if isinstance(node, ast.Call) and is_called(node, "cdiv") and len(node.args) == 2:
        x, y = (scope.source.operand(argument) for argument in node.args)
        yield scope.source.replace(node, f"({x} // {y})")


def move_loop(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A loop with one trip more or less at either end."""
    if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call):
        return
    call = node.iter
    if get_name(call.func) not in ("range", "static_range") or not scope.compiled or not call.args:
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
    """A pointer or an offset that does not advance."""
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
        argument = node.args[2] if len(node.args) > 2 else find_keyword(node, "acc")
        if argument is not None:
            yield scope.source.drop_argument(argument)


def drop_clamp(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`minimum(x, GROUP_M)` with either side alone."""
    names = ("minimum", "min", "maximum", "max")
    if isinstance(node, ast.Call) and get_name(node.func) in names and len(node.args) == 2:
        for side in node.args:
            yield scope.source.replace(node, scope.source.operand(side))


def change_order(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`pid // n` for `pid % n`, and the other way round: another tile for each program."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod | ast.FloorDiv):
        return
    if scope.compiled and "pid" in scope.source.segment(node.left):
        sign = "//" if isinstance(node.op, ast.Mod) else "%"
        x, y = (scope.source.operand(side) for side in (node.left, node.right))
        yield scope.source.replace(node, f"{x} {sign} {y}")


LOOP_RULES = {
    "ceiling dropped": drop_ceiling,
    "loop bound moved": move_loop,
    "advance dropped": drop_advance,
    "sum not accumulated": forget_sum,
    "clamp dropped": drop_clamp,
    "order of tiles": change_order,
}


# -- masks ---------------------------------------------------------------------------------------
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
    """An access without its mask, and without `other`, which is meaningless then."""
    if isinstance(node, ast.Call) and any(is_called(node, name) for name in ACCESSES):
        dropped = [k for k in node.keywords if k.arg in ("mask", "other")]
        if any(k.arg == "mask" for k in dropped):
            start, end = scope.source.span(node)
            text = scope.source.data[start:end]
            for argument in sorted(dropped, key=lambda k: -scope.source.span(k)[0]):
                cut = scope.source.drop_argument(argument)
                text = text[: cut.start - start] + text[cut.end - start :]
            yield Edit(start, end, text.decode())


def move_comparison(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`<` for `<=`, and each comparison's neighbour."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return
    signs = _NEIGHBOURS.get(type(node.ops[0]))
    if signs is not None:
        start, end = (
            scope.source.outer_span(node.left)[1],
            scope.source.outer_span(node.comparators[0])[0],
        )
        between = scope.source.data[start:end].decode()
        yield Edit(start, end, between.replace(signs[0], signs[1], 1))


def move_bound(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`m < M` that ends one earlier."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and scope.compiled:
        bound = node.comparators[0]
        if isinstance(node.ops[0], ast.Lt | ast.LtE) and not isinstance(bound, ast.Constant):
            yield scope.source.replace_outer(bound, f"{scope.source.operand(bound)} - 1")


def take_other_size(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """`m < M` compared with another size."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and scope.compiled:
        bound = node.comparators[0]
        if isinstance(bound, ast.Name) and bound.id in scope.sizes:
            for size in scope.sizes:
                if size != bound.id:
                    yield scope.source.replace(bound, size)


def drop_other(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A masked load that leaves its other lanes undefined."""
    if isinstance(node, ast.Call) and is_called(node, "load"):
        argument = find_keyword(node, "other")
        if argument is not None:
            yield scope.source.drop_argument(argument)


def fill_with_one(node: ast.AST, scope: Surroundings) -> Iterator[Edit]:
    """A masked load that gives 1 for its other lanes."""
    if isinstance(node, ast.Call) and is_called(node, "load"):
        argument = find_keyword(node, "other")
        if argument is not None and isinstance(argument.value, ast.Constant):
            yield scope.source.replace(
                argument.value, "1.0" if "." in str(argument.value.value) else "1"
            )


MASK_RULES = {
    "mask term dropped": drop_term,
    "mask dropped": drop_mask,
    "comparison moved": move_comparison,
    "bound moved": move_bound,
    "mask of another axis": take_other_size,
    "other dropped": drop_other,
    "other is one": fill_with_one,
}


# -- numbers -------------------------------------------------------------------------------------
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
    if get_name(node.value) in ("tl", "language"):
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
    addends = [*call.args[2:3], *(k.value for k in call.keywords if k.arg == "acc")]
    return any(isinstance(x, ast.Name) and x.id == name for x in addends)


def _find_half(scope: Surroundings) -> str:
    """Return this file's name of fp16: by the module that its dots come from."""
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


NUMBER_RULES = {
    "sum narrowed": narrow_sum,
    "type narrowed": narrow_type,
    "cast dropped": drop_cast,
    "cast moved": move_cast,
    "64 bits dropped": drop_width,
    "constant moved": move_constant,
}

"""`and`, `or`, `not`, `a < b < c`, `assert` and `while`: what no object can overload.

Only a kernel that uses one of them is compiled anew, from its own source, with its own file and
line numbers; all other kernels run the very code object that the user's module made.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from functools import lru_cache

_AND, _OR, _NOT, _ASSERT, _WHILE = "__and_", "__or_", "__not_", "__assert_", "__while_"


def _special(node: ast.AST) -> bool:
    chain = isinstance(node, ast.Compare) and len(node.ops) > 1
    return chain or isinstance(node, ast.BoolOp | ast.Not | ast.Assert | ast.While)


@lru_cache(maxsize=512)
def code_of(function: types.FunctionType) -> types.CodeType:
    """The code to run for a kernel's function: its own, or a rewritten one.

    The rewritten code has the free variables of the original, in the original's order.
    """
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):  # no source: the code as it is
        return function.__code__
    if not any(_special(node) for node in ast.walk(tree)):
        return function.__code__
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        return function.__code__
    definition.decorator_list = []
    definition.args.defaults = []
    definition.args.kw_defaults = [None for _ in definition.args.kwonlyargs]
    definition.returns = None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    body = _Rewriter().visit(definition)
    maker = ast.parse(f"def maker({', '.join(function.__code__.co_freevars)}): pass").body[0]
    assert isinstance(maker, ast.FunctionDef)
    maker.body = [body]
    module = ast.Module([maker], [])
    ast.fix_missing_locations(module)
    ast.increment_lineno(module, first - 1)
    code = compile(module, function.__code__.co_filename, "exec", dont_inherit=True)
    found = _find(code, function.__code__.co_name)
    return found if found.co_freevars == function.__code__.co_freevars else function.__code__


def _find(code: types.CodeType, name: str) -> types.CodeType:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return next((c for c in inner if c.co_name == name), None) or next(
        _find(c, name) for c in inner
    )


class _Rewriter(ast.NodeTransformer):
    """Each special node becomes a call of the vocabulary's function of that name."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        parts: list[ast.expr] = [ast.Lambda(empty, value) for value in node.values]
        name = _AND if isinstance(node.op, ast.And) else _OR
        return ast.copy_location(_call(name, parts), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(_call(_NOT, [node.operand]), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`a < b < c` is `a < b and b < c`; a kernel's b has no side effects."""
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        left = [node.left, *node.comparators]
        pairs = [
            ast.Compare(x, [op], [y])
            for x, op, y in zip(left, node.ops, node.comparators, strict=False)
        ]
        return self.visit_BoolOp(ast.copy_location(ast.BoolOp(ast.And(), list(pairs)), node))

    def visit_While(self, node: ast.While) -> ast.AST:
        """Each turn passes through the vocabulary, so that `while True` meets the time limit."""
        self.generic_visit(node)
        node.test = ast.copy_location(_call(_WHILE, [node.test]), node.test)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        words = [node.test, node.msg or ast.Constant("")]
        return ast.copy_location(ast.Expr(_call(_ASSERT, words)), node)


def _call(name: str, args: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), args, [])

"""What a rule may know of the function around a node: its sizes, strides, names of other axes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from gemmproof.mutation.source import Edit, Function, SourceFile

# the letter of an axis at the end of a name, and the ones to try in its place
_AXIS = re.compile(r"(.*_|^)([a-z]?)([mnkMNK])")
_OTHERS = {"m": "nk", "n": "mk", "k": "mn"}


@dataclass
class Surroundings:
    """The file and the function that a node is in.

    `compiled`: whether Triton compiles it; `makes_grid`: whether a grid is made by it.
    """

    source: SourceFile
    function: Function
    compiled: bool
    makes_grid: bool = False

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The function's parameters and variables, in the order that they are first seen."""
        given = self.function.args
        found = [x.arg for x in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        found += [n.id for n in ast.walk(self.function) if isinstance(n, ast.Name)]
        return tuple(dict.fromkeys(found))

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """The names that indices are compared with or that are divided into tiles."""
        found = []
        for node in ast.walk(self.function):
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                found += [node.comparators[0]] if isinstance(node.ops[0], ast.Lt | ast.LtE) else []
            elif is_called(node, "cdiv") and node.args:
                found.append(node.args[0])
        names = dict.fromkeys(x.id for x in found if isinstance(x, ast.Name))
        return tuple(name for name in names if name.isupper() or len(name) == 1)

    def find_other_axis(self, name: str) -> str | None:
        """A name of this function that differs by the letter of its axis, None for none."""
        seen = _AXIS.fullmatch(name)
        if seen is None:
            return None
        head, operand, axis = seen.groups()
        for other in _OTHERS[axis.lower()]:
            letter = other.upper() if axis.isupper() else other
            if f"{head}{operand}{letter}" in self.names:
                return f"{head}{operand}{letter}"
        return None


def is_called(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    """Whether a node calls what has this name, in whatever module."""
    return isinstance(node, ast.Call) and name_of(node.func) == name


def name_of(node: ast.AST) -> str:
    """The last part of a dotted name, "" for what is none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def find_keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """The argument of a call that is given by this name."""
    return next((k for k in call.keywords if k.arg == name), None)


Rule = Callable[[ast.AST, Surroundings], Iterator[Edit]]

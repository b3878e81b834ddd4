"""How a wrapper is called, in the words of a command line: --call, --operand and --spec."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmproof.spelling import find_format

if TYPE_CHECKING:
    from gemmproof.properties.kernel import KernelUnderTest, OneOf, Operand

EXPECTED = (
    "NAME=FORMAT[AXIS, ...] with LOW..HIGH, optional, written, updated or any behind it,"
    " or NAME=VALUE|VALUE"
)
_TENSOR = re.compile(r"(\w+)\[([^\]]*)\]\s*(.*)")
_USES = ("written", "updated")


@dataclass(frozen=True, slots=True)
class Calling:
    """What --call, --operand and --spec say; plain text, so that a worker can be asked for it."""

    call: str | None = None
    operands: tuple[str, ...] = ()
    spec: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the wrapper is called f(a, b) and c is a b."""
        return self == Calling()

    def read(self) -> dict[str, Operand | OneOf]:
        """The operands by name. Raises ValueError, in one line."""
        found: dict[str, Operand | OneOf] = {}
        for text in self.operands:
            name, operand = read_operand(text)
            if name in found:
                raise ValueError(f"--operand: got {name} twice, expected it once")
            found[name] = operand
        return found

    def words(self) -> list[str]:
        """The options that say it, for a command line."""
        words = [word for text in self.operands for word in ("--operand", text)]
        words += ["--spec", self.spec] if self.spec is not None else []
        return [*words, "--call", self.call] if self.call is not None else words

    def state(self, name: str) -> KernelUnderTest:
        """A kernel with these operands and this formula, which nobody can call.

        Raises ValueError, in one line, for what no kernel can be.
        """
        from gemmproof.properties.kernel import KernelUnderTest

        operands = self.read()
        if self.call is not None:
            write_lambda("--call", self.call, ("a", "b", *operands))
        spec = None if self.spec is None else self._evaluate_spec(operands)
        return KernelUnderTest(name, print, operands=operands, spec=spec)

    def make_spec(self) -> Any:
        """The formula as a function, None where there is none."""
        return None if self.spec is None else self._evaluate_spec(self.read())

    def _evaluate_spec(self, operands: Mapping[str, Operand | OneOf]) -> Any:
        import numpy as np

        from gemmproof.reference import spec

        names = ["a", "b"]
        names += [n for n, x in operands.items() if getattr(x, "use", "") != "written"]
        known = {"np": np, "erf": spec.erf, "sigmoid": spec.sigmoid}
        builtins = {"abs": np.absolute, "float": float, "int": int, "len": len, "range": range}
        text = write_lambda("--spec", str(self.spec), names)
        return eval(compile(text, "--spec", "eval"), {**known, "__builtins__": builtins})


def read_operand(text: str) -> tuple[str, Operand | OneOf]:
    """The operand that an option states. Raises ValueError, in one line, for anything else."""
    from gemmproof.properties.kernel import OneOf, Operand, is_name

    name, equals, stated = text.partition("=")
    name, stated = name.strip(), stated.strip()
    if not equals or not is_name(name) or not stated:
        raise ValueError(f"--operand: got {text!r}, expected {EXPECTED}")
    found = _TENSOR.fullmatch(stated)
    if found is None:
        return name, OneOf(*(_read_value(word, text) for word in stated.split("|")))
    fmt, axes, behind = found.groups()
    words = [word.strip() for word in axes.split(",")] if axes.strip() else []
    if not all(words):
        raise ValueError(f"--operand: got an axis without a size in {text!r}, expected {EXPECTED}")
    sides = tuple(int(x) if x.isdecimal() else x for x in words)
    shape = sides[0] if len(sides) == 1 else sides
    more: dict[str, Any] = {}
    for word in behind.split():
        low, dots, high = word.partition("..")
        if word == "optional":
            more["optional"] = True
        elif word == "any":
            more["layouts"] = "any"
        elif word in _USES:
            more["use"] = word
        elif dots and all(re.fullmatch(r"-?\d{1,10}", n) for n in (low, high)):
            more["values"] = (int(low), int(high))
        else:
            raise ValueError(f"--operand: got {word!r} in {text!r}, expected {EXPECTED}")
    try:
        return name, Operand(find_format(fmt), shape, **more)
    except ValueError as mistake:
        raise ValueError(f"--operand {name}: {mistake}") from None


def _read_value(word: str, text: str) -> Any:
    if found := re.fullmatch(r"torch\.(\w+)", word.strip()):
        import torch

        value = getattr(torch, found[1], None)
        if isinstance(value, torch.dtype):
            return value
    try:
        return ast.literal_eval(word.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"--operand: got {word!r} in {text!r}, expected {EXPECTED}") from None


def write_lambda(option: str, text: str, names: Iterable[str]) -> str:
    """A lambda of these names that gives what the text says. Raises ValueError, in one line."""
    try:
        ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = getattr(error, "msg", None) or str(error)
        raise ValueError(f"{option}: got {text!r} ({what}), expected an expression") from None
    return f"lambda {', '.join(dict.fromkeys(names))}: {text.strip()}"


def bind_call(text: str, names: Iterable[str], known: Mapping[str, Any]) -> Any:
    """A function of a, b and the operands that makes the call in a module's names.

    Raises ValueError, in one line, for a name that means nothing there.
    """
    import builtins

    import torch

    words = write_lambda("--call", text, ("a", "b", *names))
    known = {"torch": torch, **known}
    tree = ast.walk(ast.parse(words, mode="eval"))
    stored = {n.arg for n in ast.walk(ast.parse(words)) if isinstance(n, ast.arg)}
    for name in (node.id for node in tree if isinstance(node, ast.Name)):
        if name not in stored and name not in known and not hasattr(builtins, name):
            raise ValueError(f"--call: got {name!r} in {text!r}, expected names of the target")
    return eval(compile(words, "--call", "eval"), known)

"""A family of production kernels: one that is right, and others of its kind that are wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.corpora.mutant import Mutant, parse

from gemmproof.properties.kernel import KernelUnderTest


@dataclass(frozen=True, slots=True)
class Family:
    """A family of kernels: its title, its right kernel, and the lines of its wrong ones.

    A line is as `mutant.parse` reads it: the function it names is a wrapper in the family's file,
    called with the right kernel's operands and judged by its contract and its spec. `also` are
    right kernels of other forms.
    """

    title: str
    right: KernelUnderTest
    lines: str
    also: tuple[KernelUnderTest, ...] = ()
    wrong: tuple[Mutant, ...] = field(init=False)

    def __post_init__(self) -> None:
        lines = self.lines.strip().splitlines()
        wrong = tuple(parse(line, Path(__file__).parent.name, self.right) for line in lines)
        object.__setattr__(self, "wrong", wrong)

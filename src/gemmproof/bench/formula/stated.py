"""Sets of the operands that a kernel states: made on the device, and filled from a seed."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gemmproof.bench.operands import Buffers, draw_uniform, make_buffers
from gemmproof.bench.problems import Problem
from gemmproof.properties.cases.data import TORCH_DTYPES, as_tensor
from gemmproof.properties.contract import ROLES
from gemmproof.properties.kernel import UPDATED, KernelUnderTest, Operand
from gemmproof.reference.arithmetic import Array, round_to
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.target import TargetError

_STORED = {TORCH_DTYPES[f.name]: f for f in FORMATS.values() if f.stored is f}


@dataclass(frozen=True, slots=True)
class Stated:
    """What a kernel takes on a problem with a and b in a format: shapes, values, and the formula.

    Of a OneOf it is the first value. `columns`: b is in column-major memory. Raises ValueError, in
    one line, for shapes that are none.
    """

    kernel: KernelUnderTest
    problem: Problem
    fmt: Format
    columns: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        """What the shapes are stated over."""
        lead = {} if self.problem.batch is None else {"batch": self.problem.batch}
        integers = {n: x for n, x in self.values.items() if type(x) is int}
        sides = {axis: int(getattr(self.problem, axis)) for axis in ("M", "N", "K")}
        return {**integers, **sides, **lead}

    @property
    def values(self) -> dict[str, Any]:
        """The Python values by name."""
        return {name: one.values[0] for name, one in self.kernel.choices.items()}

    @property
    def read(self) -> dict[str, Operand]:
        """The tensors that it states and reads; a and b are there if they are not as usual."""
        return {name: x for name, x in self.kernel.tensors.items() if not x.is_result}

    @property
    def axes(self) -> dict[str, tuple[str, tuple[str | int, ...]]]:
        """Of every tensor that is read: the name of its format, and the axes of its shape."""
        lead = () if self.problem.batch is None else ("batch",)
        usual = {name: (self.fmt.name, (*lead, *role.axes)) for name, role in ROLES.items()}
        return {**usual, **{name: (x.format, x.axes) for name, x in self.read.items()}}

    def describe(self) -> dict[str, str]:
        """Every operand that is stated, as reports show it: its format and axes, or its value."""
        said = {
            n: f"{x.format}[{', '.join(map(str, x.axes))}]" for n, x in self.kernel.tensors.items()
        }
        return {**said, **{name: repr(x) for name, x in self.values.items()}}

    def make(self, device: str) -> Buffers:
        """One set without data. Raises torch.OutOfMemoryError where there is no room for it."""
        usual = make_buffers(self.problem, self.fmt, device)
        made = {
            name: torch.empty(x.sides(self.sizes), dtype=TORCH_DTYPES[x.format], device=device)
            for name, x in self.read.items()
        }
        a, b = made.pop("a", usual.a), made.pop("b", usual.b)
        b = torch.empty_like(b.mT, memory_format=torch.contiguous_format).mT if self.columns else b
        return Buffers(a, b, {**made, **self.values})

    def fill(self, buffers: Buffers, seed: int) -> None:
        """Uniform data of a seed (operands.draw_uniform); what a function draws is copied.

        Raises TargetError, in one line, where such a function gives no array of that shape.
        """
        generator = torch.Generator(buffers.a.device).manual_seed(seed)
        known: dict[str, Any] = {**self.values, **self.sizes}
        for name, x in buffers.tensors.items():
            stated = self.read.get(name)
            if stated is None:
                draw_uniform(x, self.fmt, generator)
                continue
            if not callable(stated.values):
                draw_uniform(x, FORMATS[stated.format], generator, stated.values)
            else:
                try:
                    x.copy_(_draw(stated, tuple(x.shape), known, seed))
                except Exception as mistake:  # a function of theirs may raise anything
                    words = " ".join(f"{type(mistake).__name__}: {mistake}".split())
                    raise TargetError(f"operand {name} at {self.problem}: {words}") from None
            known[name] = x


def _draw(stated: Operand, sides: tuple[int, ...], known: dict[str, Any], seed: int) -> Any:
    """What the function of an operand draws, of what is known that it has a name for."""
    function: Any = stated.values
    takes = inspect.signature(function).parameters
    given = {
        name: to_storage(x) if isinstance(x, torch.Tensor) else x
        for name, x in known.items()
        if name in takes
    }
    made = np.asarray(function(np.random.default_rng(seed), sides, **given))
    if made.shape != sides:
        raise ValueError(f"got shape {made.shape}, expected {sides}")
    fmt = FORMATS[stated.format]
    return as_tensor(
        made.astype(fmt.storage) if fmt.kind == "int" else round_to(made, fmt), fmt.name
    )


def to_storage(x: torch.Tensor) -> Array:
    """A copy of the elements as a storage array, of any format that an operand may have."""
    fmt = _STORED[x.dtype]
    # as integers: few operations take fp8
    code = x.view(getattr(torch, f"int{8 * fmt.itemsize}")).contiguous().cpu()
    return code.numpy().view(fmt.storage)


def require_simple(kernel: KernelUnderTest) -> None:
    """Raise ValueError, in one line, for operands that calls on rotating buffers cannot have."""
    for name in kernel.written:
        stated = kernel.tensors[name]
        if stated.use == UPDATED or len(kernel.written) > 1:
            got = "updated" if stated.use == UPDATED else "a second one that is written"
            raise ValueError(
                f"operand {name}: got {got}, expected one result, which no call reads: calls are"
                " repeated"
            )

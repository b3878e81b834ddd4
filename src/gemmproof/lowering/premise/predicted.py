"""What a prediction assumes of a dot, in the compiler's words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gemmproof.reference.dot import DotModel
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.simulation import PredictedDot
from gemmproof.target import display_path


@dataclass(frozen=True, slots=True)
class Predicted:
    """A model that predicted a dot at a line, and whether it began at zero, onto a sum, or both.

    `tile` is (..., M, N, K), after the batch that a block holds.
    """

    where: str
    tile: tuple[int, ...]
    model: DotModel
    from_zero: bool
    onto_sum: bool

    @property
    def formats(self) -> tuple[str, str]:
        """What is multiplied, after widening."""
        model = self.model
        return name(model.as_format or model.a_format), name(model.as_format or model.b_format)

    @property
    def accumulator(self) -> str:
        """What is added in."""
        return name(self.model.acc_format)

    @property
    def precision(self) -> str:
        """How fp32 operands are multiplied, "" for others."""
        if self.model.split:
            return self.model.split
        return {"tf32": "tf32", "fp32": "ieee"}.get(self.model.a_format, "")

    @property
    def chain(self) -> int | None:
        """The elements of k that are summed from zero before they are added to the rest.

        None where the unit adds onto the sum itself.
        """
        return self.model.part or (self.tile[-1] if self.model.split else None)

    def __str__(self) -> str:
        """The model, as a report names it."""
        model, (a, b) = self.model, self.formats
        words = [f"{model.instruction} of {a} x {b} onto {self.accumulator}"]
        if model.unit.kind == "fused":
            words.append(f"{model.unit.L} of k at once")
        if model.as_format and not model.split:
            words.append(f"widened from {name(model.a_format)} x {name(model.b_format)}")
        if model.order:
            words.append(f"k in the order {_shorten(model.order)}")
        if model.split:
            words.append(f"split by {model.split}")
        if self.chain is not None:
            words.append(f"sums of {self.chain} of k from zero")
        elif self.onto_sum:
            words.append("onto the sum before it")
        if model.unit.saturates:
            words.append("saturating")
        return ", ".join(words)


def name(format_name: str) -> str:
    """A format as PTX names it: fp8e4m3 is e4m3, fp16 is f16, int8 is s8."""
    return FORMATS[format_name].ptx or format_name.replace("int", "s")


def _shorten(order: tuple[int, ...]) -> str:
    return f"{' '.join(map(str, order[:8]))} ..."


def join_predicted(dots: Iterable[PredictedDot]) -> list[Predicted]:
    """The models of each line and tile, once; that one began at zero is no model of its own.

    A dot whose sum is the constant zero at first has `from_zero` in its first trip alone.
    """
    found: dict[tuple[str, tuple[int, ...], DotModel], set[bool]] = {}
    for dot in dots:
        where = "" if dot.where is None else f"{display_path(dot.where.file)}:{dot.where.line}"
        model = replace(dot.model, from_zero=bool(dot.model.split))
        found.setdefault((where, dot.tile, model), set()).add(dot.from_zero)
    made = (Predicted(*key, True in starts, False in starts) for key, starts in found.items())
    return sorted(made, key=lambda x: (x.where, x.tile, str(x)))

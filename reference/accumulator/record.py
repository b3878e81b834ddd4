"""A kernel's accumulator as inferred from its results: a record, and its name in words."""

from __future__ import annotations

from dataclasses import dataclass

from gemmproof.reference.accumulator.probes import SEEN
from gemmproof.reference.formats import ACCUMULATORS, FORMATS

# Bits kept below the leading one, by the format that keeps them.
KEPT = {name: FORMATS[name].p - 1 for name in ACCUMULATORS}


@dataclass(frozen=True, slots=True)
class Accumulator:
    """How a kernel accumulates, inferred from its results.

    Widths are bits kept below the leading bit of the larger term: `width` while terms are added at
    once, `register` from one such step to the next, rounded by `rounding` ("chopped", "nearest").
    `block`: terms added at once, None where that varies; `order` of k: "ascending", "permuted"
    (`pattern` gives the groups of k in order) or "unknown". `promotion`: so many k at a time are
    summed from zero and added to a sum that keeps `carried` bits (0: never). `split`: into
    how many sums the whole K is divided, joined in `split_bits`. `downcast`: after every so many k
    the sum is rounded to `downcast_bits` (0: never). `read`, `reading`: significant bits of the
    operands that count, and how others are lost. `output`: how c is rounded to `out_format`.
    `zero_products`: whether 0 times a large number hides small terms; `last_place`: the exponent of
    the last bit kept near zero. None: could not be determined.
    """

    in_format: str
    out_format: str
    read: int
    reading: str
    block: int | None
    order: str
    width: int
    register: int
    rounding: str
    pattern: tuple[tuple[int, ...], ...] = ()
    promotion: int = 0
    carried: int | None = None
    split: int = 1
    split_bits: int | None = None
    downcast: int = 0
    downcast_bits: int | None = None
    output: str = "none"
    zero_products: bool | None = None
    last_place: int | None = None

    @property
    def name(self) -> str:
        """A few words: the format, the unit, and what is done to the sums around it."""
        parts = [self._base()]
        if self.promotion:
            what = "promoted" if self.register < (self.carried or 0) else "summed apart"
            parts.append(f"{what} every {self.promotion}")
        if self.split > 1:
            parts.append(f"split-K of {self.split} in {format_keeping(self.split_bits)}")
        if self.downcast:
            parts.append(f"rounded to {format_keeping(self.downcast_bits)} every {self.downcast}")
        if self.order == "permuted":
            parts.append("k permuted")
        if self.output == "truncated":
            parts.append("c truncated")
        return ", ".join(parts)

    def _base(self) -> str:
        if self.register >= SEEN:
            return f"wider than {SEEN} bits"
        kept = format_keeping(self.register)
        if kept == "e8m13":
            kept = "fp8"
        whole = FORMATS[self.in_format].stored.p
        if self.read < whole:
            kept = "tf32" if self.read == FORMATS["tf32"].p else f"{kept} of {self.read}-bit inputs"
            if self.read == FORMATS["tf32"].p and self.register != KEPT["fp32"]:
                kept += f" in {format_keeping(self.register)}"
        if self.block == 1 and self.rounding == "nearest":
            return f"{kept} fma chain"
        L = "varies" if self.block is None else self.block
        return f"{kept} tensor core F={self.width} L={L}"


def format_keeping(bits: int | None) -> str:
    """The format that keeps so many bits below the leading one, or the number of bits."""
    if bits is None:
        return "unknown bits"
    return next((name for name, kept in KEPT.items() if kept == bits), f"{bits} bits")

"""The property that a kernel accumulates as it declares: found by probes, measured against K."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.sizes import MAX_SIDE
from gemmproof.properties.finding import Finding
from gemmproof.properties.help.pages import CLAIMS
from gemmproof.properties.measure import DATA, Measure
from gemmproof.reference.accumulator import KEPT, SEEN, Accumulator, M, N, format_keeping
from gemmproof.reference.dot import DotModel, dot_model
from gemmproof.reference.dot.tensor_core import Unit
from gemmproof.reference.formats import FORMATS, FP8

NAME = "accumulator_as_declared"
CLAIM = CLAIMS[NAME]

# The format that a sum of so many kept bits is rounded to; fp8 units keep theirs in fp32's range.
_HELD = {bits: FORMATS[name].stored.name for name, bits in KEPT.items()}
# What fp32 operands are split into, by the bits that are then read of them.
_SPLITS = {23: ("tf32x3", "tf32"), 17: ("bf16x3", "bf16"), 24: ("bf16x6", "bf16")}


@dataclass(frozen=True, slots=True)
class Deviation:
    """One way in which a kernel's sums are worse than its contract says."""

    fault: str
    place: str
    got: str
    expected: str


@dataclass(frozen=True, slots=True)
class Drift:
    """What a kernel's sums are, beside what its contract declares.

    `gpu` is the target that was simulated, or the name of the device that launched. `accumulator`
    is None where the results are no products. `slope` is the power of K that the bias of data of
    one sign grows with, for the reader only: the verdict follows from the probes and the bound.
    """

    in_format: str
    gpu: str
    declared: str
    accumulator: Accumulator | None = None
    measures: tuple[Measure, ...] = ()
    slope: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an error beyond every bound is the text "Infinity"."""
        data = asdict(self)
        if self.accumulator is not None:
            data["accumulator"] = {"name": self.accumulator.name, **data["accumulator"]}
        for m in data["measures"]:
            m.update({k: "Infinity" for k, v in m.items() if v == float("inf")})
        return data

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Drift:
        """The drift that `to_dict` wrote."""
        found = data["accumulator"]
        if found is not None:
            known = {k: v for k, v in found.items() if k != "name"}
            found = Accumulator(**{**known, "pattern": tuple(map(tuple, found["pattern"]))})
        measures: Any = (
            {k: float("inf") if v == "Infinity" else v for k, v in m.items()}
            for m in data["measures"]
        )
        return Drift(
            **{**data, "accumulator": found, "measures": tuple(Measure(**m) for m in measures)}
        )


def judge(drift: Drift, sizes: tuple[int, ...]) -> Iterator[Finding]:
    """Where the sums are worse than declared; a finding of probes has the smallest K measured."""
    assert drift.accumulator is not None
    for deviation in deviations(drift.accumulator, drift.declared, drift.in_format):
        yield state_deviation(deviation, drift, min(sizes))
    worst = max(drift.measures, key=lambda m: m.ratio, default=None)
    if worst is not None and worst.ratio > 1:
        place = f"c at K={worst.K}, {DATA[worst.data]} data"
        got = f"an error of {worst.ratio:.3g} times the bound"
        expected = f"at most the bound of {drift.declared} sums"
        deviation = Deviation("beyond_bound", place, got, expected)
        yield state_deviation(deviation, drift, worst.K, worst.bound)


def state_deviation(
    deviation: Deviation, drift: Drift, K: int, bound: float | None = None
) -> Finding:
    """The finding that a deviation is."""
    place, got, expected = deviation.place, deviation.got, deviation.expected
    message = f"{place}: got {got}, expected {expected}"
    case = Case(M, N, min(K, MAX_SIDE), drift.in_format)
    more = {"operand": "c", "axis": "K", "got": got, "expected": expected}
    return Finding(NAME, deviation.fault, message, case, bound=bound, **more)


def declared_model(found: Accumulator, declared: str, in_format: str) -> DotModel:
    """The kernel's own order of summation, nowhere with fewer bits than `declared` keeps.

    It is for the bound: terms are grouped as the probes found, and only the widths are those
    promised. fp8 units that are too narrow count as promoted, at least after every step.
    """
    kept = KEPT[declared]
    held = max(kept, min(found.register, found.downcast_bits or SEEN, KEPT["fp32"]))
    base = dot_model(None, in_format)
    chopped = found.rounding == "chopped" and found.register < SEEN
    if found.block == 1 or (found.block is None and not chopped):
        acc_format = _HELD.get(held, "fp32")
        promoted = found.promotion
        return replace(base, acc_format=acc_format, BLOCK_K=promoted, from_zero=promoted > 0)
    # where the number of terms varies: one at a time is cut most often
    promoted, L = found.promotion, found.block or 1
    width = max(found.width, kept)
    if narrow_fp8(found, in_format) and kept > found.register:
        promoted, held, width = promoted or L, found.register, found.width
    rounding = "rne" if found.rounding == "nearest" or found.downcast else "rz"
    unit = Unit("fused", L, width, held, rounding)  # type: ignore[arg-type]
    model = replace(
        base,
        unit=unit,
        acc_format=_HELD.get(held, "fp32"),
        order=tuple(k for group in found.pattern for k in group),
        BLOCK_K=promoted,
        from_zero=promoted > 0,
    )
    if in_format == "fp32" and found.read in _SPLITS:
        split, piece = _SPLITS[found.read]
        return replace(model, split=split, as_format=piece)  # type: ignore[arg-type]
    return model


def declared_split(found: Accumulator, declared: str) -> tuple[int, str]:
    """How many shares of K the bound allows for, and the format that they are added in."""
    bits = max(KEPT[declared], min(found.split_bits or SEEN, KEPT["fp32"]))
    return found.split, _HELD.get(bits, "fp32")


def narrow_fp8(found: Accumulator, in_format: str) -> bool:
    """Whether the sums are those of the fp8 units of sm_89 and sm_90, which keep 13 bits."""
    return in_format in FP8 and found.register == KEPT["e8m13"]


def deviations(found: Accumulator, declared: str, in_format: str) -> list[Deviation]:
    """Where the accumulator that probes found keeps less than the declared one; more is no fault.

    An fp8 unit of 13 bits is within fp32 where its sums are added to fp32 ones every so many k.
    """
    kept = KEPT[declared]
    low = [
        Deviation(fault, place, _bits(bits), f"{kept} bits ({declared})")
        for fault, place, bits in _list_narrow(found, in_format, kept)
    ]
    whole = FORMATS[in_format].p
    if found.read < whole:
        what = "tf32" if found.read == FORMATS["tf32"].p else found.reading
        got = f"{found.read} significant bits ({what})"
        expected = f"all {whole} of {in_format}"
        low.append(Deviation("narrow_operands", "operands", got, expected))
    if found.output == "truncated":
        got = f"a truncated {found.out_format}"
        low.append(Deviation("truncated_output", "c", got, "one rounded to nearest"))
    return low


def find_kept(found: Accumulator, in_format: str) -> int:
    """The most bits that a contract may promise of these sums."""
    return next(n for n in range(SEEN, -1, -1) if not _list_narrow(found, in_format, n))


def _list_narrow(found: Accumulator, in_format: str, kept: int) -> list[tuple[str, str, int]]:
    """The sums that keep fewer bits: what fault that is, which sum, and its bits."""
    sums: list[tuple[str, str, int | None]] = []
    promoted = found.promotion > 0 and (found.carried or 0) >= kept
    if not (promoted and narrow_fp8(found, in_format)):
        every = f"sums of {found.promotion} k" if found.promotion else "the sum over k"
        sums.append(("narrow_accumulator", every, found.register))
    if found.promotion:
        place = f"the sum of sums of {found.promotion} k"
        sums.append(("narrow_accumulator", place, found.carried))
    if found.downcast:
        place = f"the sum after every {found.downcast} k"
        sums.append(("downcast_in_loop", place, found.downcast_bits))
    if found.split > 1:
        sums.append(("narrow_split", f"the sum of {found.split} shares of K", found.split_bits))
    return [(fault, place, n) for fault, place, n in sums if n is not None and n < kept]


def _bits(kept: int) -> str:
    name = format_keeping(kept)
    return f"{kept} bits" if name.endswith("bits") else f"{kept} bits ({name})"

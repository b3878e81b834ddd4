"""A bug as a test states it: operands element by element, a call, and what must come of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding

# Whether values show it on a GPU, as the simulator says: whatever lies around the operands; or as
# what lies there, or undefined lanes hold, decides; or not at all. Or the call does not return.
ALWAYS, BY_CHANCE, NEVER, ENDS = "always", "by chance", "never", "ends"
Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatedOperand:
    """A tensor of the case: zeros but for `elements`, `offset` elements into its memory.

    `dtype` is torch's name of it, `use` what a call does with it (operand.USES).
    """

    name: str
    dtype: str
    shape: Index
    strides: Index
    offset: int
    elements: tuple[tuple[Index, float], ...]
    use: str = "read"


@dataclass(frozen=True, slots=True)
class StatedCall:
    """A call that a test makes before the one of the case; `words` say which it is.

    `values` are as those of a Bug. It `shares` the tensors of the case, which have other elements
    for it where its `operands` say so; else it has tensors of its own.
    """

    words: str
    operands: tuple[StatedOperand, ...]
    values: dict[str, str] = field(default_factory=dict)
    shares: bool = False


@dataclass(frozen=True, slots=True)
class Bug:
    """What a test needs to show a finding.

    `values` are the words of Python values by name. `at` is the wrong element that is shown, None
    where the values show none; `wanted` are the elements that the test compares, with what they may
    be off by, () for all of an exact product. `result` is the number of the result among `results`,
    `written` the operands that a call leaves results in. `shown` is whether values show it, a word
    of the above; `exact` whether float64 holds the whole product. `kept` of `given` elements are
    not zero. `tuned` names the tuned kernels of the target's module, each with the number of the
    configuration that is to run. `room`: whether the results need memory around them as well.
    `before` are calls that are made first, in order. The result is to have the bits of the first of
    them where it is the `same`, at least in as many `rows` as both have; None for all of it.
    """

    finding: Finding
    operands: tuple[StatedOperand, ...]
    values: dict[str, str] = field(default_factory=dict)
    at: Index | None = None
    got: float | None = None
    wanted: tuple[tuple[Index, float, float], ...] = ()
    result: int = 0
    results: int = 1
    written: tuple[str, ...] = ()
    shown: str = NEVER
    exact: bool = False
    kept: int = 0
    given: int = 0
    tuned: dict[str, int] = field(default_factory=dict)
    room: bool = False
    before: tuple[StatedCall, ...] = ()
    same: bool = False
    rows: int | None = None

    @property
    def case(self) -> Case:
        """The case that it is a bug at."""
        return self.finding.case

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "finding": self.finding.to_dict()}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Bug:
        """The bug that `to_dict` gave."""
        stated: dict[str, Any] = {
            "finding": Finding.from_dict(data["finding"]),
            "operands": _read_operands(data["operands"]),
            "before": tuple(
                StatedCall(**{**one, "operands": _read_operands(one["operands"])})
                for one in data["before"]
            ),
            "at": None if data["at"] is None else tuple(data["at"]),
            "wanted": tuple((tuple(at), x, off) for at, x, off in data["wanted"]),
            "written": tuple(data["written"]),
        }
        return Bug(**{**data, **stated})


def _read_operands(data: list[dict[str, Any]]) -> tuple[StatedOperand, ...]:
    return tuple(
        StatedOperand(
            **{
                **one,
                "shape": tuple(one["shape"]),
                "strides": tuple(one["strides"]),
                "elements": tuple((tuple(at), x) for at, x in one["elements"]),
            }
        )
        for one in data
    )

"""What a kernel promises: the operands it accepts and the result it returns for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from gemmproof.properties.cases.layouts import ANY, BATCHED, CONTIGUOUS, HUGE, LAYOUTS
from gemmproof.properties.cases.relation import holds, split
from gemmproof.properties.cases.sizes import MAX_BATCH, MAX_SIDE, Sizes, neighbours
from gemmproof.properties.compiled.promises import require_compiled
from gemmproof.reference.formats import FLOAT_OPERANDS, FORMATS, OPERANDS, RESULTS


@dataclass(frozen=True, slots=True)
class Role:
    """What an operand is to the product: its name, its axes behind the batch, and its number.

    The number tells operands apart where data and paddings must differ.
    """

    name: str
    axes: tuple[str, str]
    number: int

    @property
    def k_axis(self) -> int:
        """Which of (batch, rows, columns) runs over K."""
        return 1 + self.axes.index("K")


# The operands of a product, in the order in which a wrapper takes them.
ROLES: Mapping[str, Role] = MappingProxyType(
    {"a": Role("a", ("M", "K"), 0), "b": Role("b", ("K", "N"), 1)}
)
ACCUMULATORS = tuple(dict.fromkeys(sum((FORMATS[name].promises for name in FLOAT_OPERANDS), ())))
AXES = ("M", "N", "K", "batch")
SizesWord = Sizes | int | range | str


def require(holds: bool, message: str) -> None:
    """Raise ValueError with the message unless it holds."""
    if not holds:
        raise ValueError(message)


@dataclass(frozen=True, slots=True)
class Contract:
    """The operands a kernel accepts and what its result promises; no case goes beyond it.

    `formats`: element formats of a and b; "tf32" is float32 operands whose low 13 bits the kernel
    may ignore. `M`, `N`, `K`, `batch`: the sizes of each axis: a number, a range, text such as
    "16..4096:16" (LOW..HIGH:STEP, each of which may be missing), or `multiple_of(16)`. `where`: a
    condition on them besides, as text ("K % 32 == 0 and M <= N") or a function of M, N and K.
    `batched`: operands are (batch, rows, columns). `layouts`: "contiguous" (row-major and dense),
    "any" (every view whose offsets stay below 2**31 elements) or names from layouts.LAYOUTS;
    `huge`: offsets from 2**31 elements too, of c and, with "any", of views. `accumulator`: the
    format that sums are kept in, from which every bound follows (int8 is always int32; "e8m13" is
    fp8 sums that never leave a unit of 13 bits). `out`: the format of the result, None for any.
    `deterministic`: the same bits in whatever order programs run. `batch_invariant`: the bits of a
    row of c do not depend on M.
    `symmetric`: c is a b, whose relations under negation and the like hold; False with a `spec`.
    `tensor_cores`: every dot is compiled to them; `spills`: bytes of a thread's registers that lie
    in memory, at most, None for no promise; `fits`: GPUs by name that the kernel compiles for, and
    has room on. They are judged on those GPUs, or else on the target.
    `expected`: the properties that are known not to hold, each with the reason; one that holds
    after all is a finding.

    Raises ValueError, in one line, for values that are unknown or contradict each other.
    """

    formats: tuple[str, ...] = ("fp16",)
    M: SizesWord = "1.."
    N: SizesWord = "1.."
    K: SizesWord = "1.."
    batch: SizesWord = "1.."
    where: str | Callable[[int, int, int], bool] | None = None
    batched: bool = False
    layouts: str | tuple[str, ...] = CONTIGUOUS
    huge: bool = False
    accumulator: str = "fp32"
    out: str | None = None
    deterministic: bool = True
    batch_invariant: bool = False
    symmetric: bool = True
    tensor_cores: bool = False
    spills: int | None = None
    fits: tuple[str, ...] = ()
    expected: Mapping[str, str] | tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        require(
            isinstance(self.formats, tuple) and len(self.formats) > 0,
            f"contract formats: got {self.formats!r}, expected a non-empty tuple of names",
        )
        for name in self.formats:
            require(
                isinstance(name, str) and name in OPERANDS,
                f"contract format: got {name!r}, expected one of {' '.join(OPERANDS)}",
            )
        for flag in ("batched", "huge", "deterministic", "batch_invariant", "symmetric"):
            value = getattr(self, flag)
            require(
                isinstance(value, bool), f"contract {flag}: got {value!r}, expected True or False"
            )
        self._check_layouts()
        self._check_numerics()
        self._check_sizes()
        require_compiled(self.tensor_cores, self.spills, self.fits)
        self._check_expected()

    def _check_expected(self) -> None:
        try:
            reasons = {name: " ".join(why.split()) for name, why in dict(self.expected).items()}
        except (AttributeError, TypeError, ValueError):
            reasons = {"": ""}
        require(
            all(isinstance(name, str) and name and why for name, why in reasons.items()),
            f"contract expected: got {self.expected!r}, expected properties, each with a reason",
        )
        # pairs have a hash, as all of a contract has
        object.__setattr__(self, "expected", tuple(sorted(reasons.items())))

    @property
    def reasons(self) -> dict[str, str]:
        """Why properties do not hold, by name, of those that are expected not to."""
        return dict(self.expected)

    def _check_layouts(self) -> None:
        names = (self.layouts,) if isinstance(self.layouts, str) else self.layouts
        shorthands = (ANY, CONTIGUOUS) if isinstance(self.layouts, str) else ()
        require(
            isinstance(names, tuple)
            and len(names) > 0
            and all(name in (*shorthands, *LAYOUTS) for name in names),
            f"contract layouts: got {self.layouts!r}, expected 'any', 'contiguous' or a tuple of"
            f" {' '.join(LAYOUTS)}",
        )
        require(
            self.batched or not set(names) & set(BATCHED),
            f"contract layouts: got {self.layouts!r} without a batch, expected batched=True",
        )

    def _check_numerics(self) -> None:
        require(
            isinstance(self.accumulator, str) and self.accumulator in ACCUMULATORS,
            f"contract accumulator: got {self.accumulator!r}, expected one of"
            f" {' '.join(ACCUMULATORS)}",
        )
        for name in self.formats:
            require(
                self.accumulator in ("fp32", *FORMATS[name].promises),
                f"contract accumulator: got {self.accumulator!r} for {name}, expected fp32",
            )
        require(
            self.out is None or (isinstance(self.out, str) and self.out in RESULTS),
            f"contract out: got {self.out!r}, expected one of {' '.join(RESULTS)}",
        )
        require(
            self.deterministic or not self.batch_invariant,
            "contract: got batch_invariant=True with deterministic=False, expected deterministic",
        )

    def _check_sizes(self) -> None:
        for axis in AXES:
            try:
                sizes = Sizes.of(getattr(self, axis), MAX_BATCH if axis == "batch" else MAX_SIDE)
            except ValueError as mistake:
                raise ValueError(f"contract {axis}: {mistake}") from None
            object.__setattr__(self, axis, sizes)
        if self.where is not None:
            try:
                found = any(self.fit(dict.fromkeys(AXES, n)) for n in (1, 16, 128, 1024))
            except Exception as mistake:
                raise ValueError(f"contract where: {mistake}") from None
            require(
                found, f"contract where: got {self.where!r}, which no size that was tried meets"
            )

    def sizes(self, axis: str) -> Sizes:
        """The sizes that an axis may have: M, N, K or batch."""
        sizes: Sizes = getattr(self, axis)
        return sizes

    def admits(self, sides: Mapping[str, int]) -> bool:
        """Whether a case may have these sizes, by axis; batch only where there is one."""
        return all(n in self.sizes(axis) for axis, n in sides.items()) and self._relates(sides)

    def _relates(self, sides: Mapping[str, int], part: str | None = None) -> bool:
        where = part or self.where
        if where is None:
            return True
        if isinstance(where, str):
            return holds(where, {"batch": 1, **sides})
        try:
            return bool(where(sides["M"], sides["N"], sides["K"]))
        except ArithmeticError:  # M % N with N = 0: no size that was meant
            return False

    def fit(self, sides: Mapping[str, int]) -> dict[str, int] | None:
        """Admitted sizes near the given ones, each the next smaller one where there is one.

        With a condition they are the first found that meet it: one axis as long as another, or an
        axis some steps longer or shorter, for one condition after another. None if none is found.
        """
        axes = {axis: self.sizes(axis) for axis in sides}
        near = {axis: axes[axis].fit(n) for axis, n in sides.items()}
        parts = split(self.where) if isinstance(self.where, str) else [None]
        for count in range(1, len(parts) + 1):
            candidates = itertools.chain([near], neighbours(near, axes))
            met = (x for x in candidates if all(self._relates(x, part) for part in parts[:count]))
            found = next(met, None)
            if found is None:
                return None
            near = found
        return near

    @property
    def layout_names(self) -> tuple[str, ...]:
        """The layouts that are drawn, simplest first."""
        if self.layouts == CONTIGUOUS:
            return ("row",)
        left_out: tuple[str, ...] = () if self.batched else BATCHED
        if self.layouts == ANY:
            left_out += () if self.huge else HUGE
            return tuple(name for name in LAYOUTS if name not in left_out)
        return tuple(name for name in LAYOUTS if name in self.layouts)

    def to_dict(self) -> dict[str, Any]:
        """The words of the contract as plain data, sizes as text; a function cannot be written."""
        words = {f.name: getattr(self, f.name) for f in fields(self)}
        words["expected"] = self.reasons
        return {name: str(w) if isinstance(w, Sizes) else w for name, w in words.items()}

    @staticmethod
    def from_dict(words: Mapping[str, Any]) -> Contract:
        """The contract that `to_dict` wrote, also after JSON, which knows lists only."""
        stated: dict[str, Any]
        stated = {k: tuple(w) if isinstance(w, list) else w for k, w in words.items()}
        return Contract(**stated)

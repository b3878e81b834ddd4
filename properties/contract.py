"""What a kernel promises: the operands it accepts and the result it returns for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gemmproof.properties.cases.layouts import ANY, BATCHED, CONTIGUOUS, LAYOUTS
from gemmproof.reference.formats import FLOAT_OPERANDS, FORMATS, OPERANDS


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
MAX_SIDE = 65536


def _is_side(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SIDE


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


@dataclass(frozen=True, slots=True)
class Contract:
    """The operands a kernel accepts and what its result promises; no case goes beyond it.

    `formats`: element formats of a and b; "tf32" is float32 operands whose low 13 bits the kernel
    may ignore. `layouts`: "any", "contiguous" (row-major and dense) or names from
    layouts.LAYOUTS. `batched`: operands are (batch, rows, columns). `accumulator`: the format that
    sums are kept in, from which every bound follows (int8 is always int32; "e8m13" is fp8 sums
    that never leave a unit of 13 bits). `deterministic`: the
    same bits in whatever order programs run. `batch_invariant`: the bits of a row of c
    do not depend on M. `min_side`, `max_side`: limits of M, N and K; `multiples`: what M, N and K
    are multiples of.

    Raises ValueError, in one line, for values that are unknown or contradict each other.
    """

    formats: tuple[str, ...] = ("fp16",)
    layouts: str | tuple[str, ...] = "any"
    batched: bool = False
    accumulator: str = "fp32"
    deterministic: bool = True
    batch_invariant: bool = False
    min_side: int = 0
    max_side: int = MAX_SIDE
    multiples: tuple[int, int, int] = (1, 1, 1)

    def __post_init__(self) -> None:
        _require(
            isinstance(self.formats, tuple) and len(self.formats) > 0,
            f"contract formats: got {self.formats!r}, expected a non-empty tuple of names",
        )
        for name in self.formats:
            _require(
                name in OPERANDS,
                f"contract format: got {name!r}, expected one of {' '.join(OPERANDS)}",
            )
        names = (self.layouts,) if isinstance(self.layouts, str) else self.layouts
        shorthands = (ANY, CONTIGUOUS) if isinstance(self.layouts, str) else ()
        _require(
            isinstance(names, tuple)
            and len(names) > 0
            and all(name in (*shorthands, *LAYOUTS) for name in names),
            f"contract layouts: got {self.layouts!r}, expected 'any', 'contiguous' or a tuple of"
            f" {' '.join(LAYOUTS)}",
        )
        _require(
            self.batched or not set(names) & set(BATCHED),
            f"contract layouts: got {self.layouts!r} without a batch, expected batched=True",
        )
        _require(
            self.accumulator in ACCUMULATORS,
            f"contract accumulator: got {self.accumulator!r}, expected one of"
            f" {' '.join(ACCUMULATORS)}",
        )
        for name in self.formats:
            _require(
                self.accumulator == "fp32" or self.accumulator in FORMATS[name].promises,
                f"contract accumulator: got {self.accumulator!r} for {name}, expected fp32",
            )
        for flag in ("batched", "deterministic", "batch_invariant"):
            value = getattr(self, flag)
            _require(
                isinstance(value, bool), f"contract {flag}: got {value!r}, expected True or False"
            )
        _require(
            self.deterministic or not self.batch_invariant,
            "contract: got batch_invariant=True with deterministic=False, expected deterministic",
        )
        _require(
            _is_side(self.min_side) and _is_side(self.max_side) and self.min_side <= self.max_side,
            f"contract sides: got min_side={self.min_side!r} max_side={self.max_side!r}, expected"
            f" 0 <= min_side <= max_side <= {MAX_SIDE}",
        )
        _require(
            isinstance(self.multiples, tuple)
            and len(self.multiples) == 3
            and all(_is_side(step) and step > 0 for step in self.multiples),
            f"contract multiples: got {self.multiples!r}, expected three positive integers"
            " for M, N and K",
        )
        for axis, step in zip("MNK", self.multiples, strict=True):
            _require(
                -(-self.min_side // step) * step <= self.max_side,
                f"contract {axis}: got no multiple of {step} within"
                f" {self.min_side}..{self.max_side}, expected at least one",
            )

    @property
    def layout_names(self) -> tuple[str, ...]:
        """The layouts that are drawn, simplest first."""
        if self.layouts == CONTIGUOUS:
            return ("row",)
        if self.layouts == ANY:
            return tuple(name for name in LAYOUTS if self.batched or name not in BATCHED)
        return tuple(name for name in LAYOUTS if name in self.layouts)


@dataclass(frozen=True, slots=True)
class KernelUnderTest:
    """A kernel to judge: `launch(a, b)` is its wrapper and returns c.

    `mirror` is what the kernel's specification says of its accesses; None where nobody wrote one.
    Raises ValueError in one line.
    """

    name: str
    launch: Callable[..., Any]
    contract: Contract = Contract()
    mirror: Any = None

    def __post_init__(self) -> None:
        _require(
            isinstance(self.name, str) and self.name != "",
            f"kernel name: got {self.name!r}, expected a non-empty string",
        )
        _require(
            callable(self.launch),
            f"kernel {self.name}: got launch={self.launch!r}, expected a function of a and b",
        )
        _require(
            isinstance(self.contract, Contract),
            f"kernel {self.name}: got contract={self.contract!r}, expected a Contract",
        )

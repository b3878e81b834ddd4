"""Records of one simulated call: operands, accesses, faults, and errors of the simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Where:
    """A line of the kernel's own source.

    `span`: the first line and column of a call that runs there, and those behind its last; None if
    they are not known, or if the line itself decides.
    """

    file: str
    line: int
    function: str
    span: tuple[int, int, int, int] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"


NOWHERE = Where("", 0, "")


@dataclass(frozen=True, slots=True)
class Fault:
    """A violation that an observer saw, gathered over all programs of a launch.

    `kind` is one of KINDS below. `operand` is "a", "b", "c" or the kernel's parameter name; `axis`
    is "M", "N", "K", "batch", a dimension's index as text, or None if no axis is responsible.
    `got` and `expected` are the two halves of a message `where: got X, expected Y`. `follows` is
    the kind of another fault of the same call that this one is a mere consequence of, else "".
    """

    kind: str
    kernel: str
    access: str
    operand: str
    axis: str | None
    where: Where
    got: str
    expected: str
    programs: int
    lanes: int
    follows: str = ""


# kind -> its meaning. One property covers each kind (properties/property_table.py).
KINDS = {
    "out_of_bounds": "an unmasked lane addresses no element of its operand",
    "stored_twice": "an element is stored more than once",
    "never_stored": "an element of the result is never stored",
    "undefined_stored": "an undefined lane is stored",
    "undefined_used": "an undefined lane decides an address, a mask or a branch",
    "wrapped_offset": "an offset left the range of its integer type",
    "false_hint": "a hint to the compiler does not hold",
    "bad_descriptor": "a tensor descriptor breaks the rules of the copy engine",
    "race": "two programs store to one element, or one reads what another stores, unordered",
    "failed_assert": "a device_assert of the kernel does not hold",
}


@dataclass(frozen=True, slots=True)
class PredictedDot:
    """A dot of a launch whose bits were predicted: its line, (..., M, N, K), how it was summed.

    `model` is the DotModel that predicted them; `from_zero`: it began at zero, not onto a sum.
    """

    where: Where | None
    tile: tuple[int, ...]
    model: Any
    from_zero: bool


# by line: its branches were true, were false, and one of them is that of a loop
BranchSides = Mapping[Where, tuple[bool, bool, bool]]


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: the kernel, its arguments, and its grid.

    `tiles` holds the (BLOCK_M, BLOCK_N, BLOCK_K) of every tl.dot that ran, without repeats;
    `configs` is the number of autotune configurations of the kernel here (1 if it is not
    autotuned), of those `written`, some of which its tuner may prune; launches with the same
    `choice` run in the same one.
    `rounds` names the float operations that round, other than dots: "+", "-", "*", "/", "reduce",
    "scan" and "math"; "fma" if a compiler may fuse a product and a sum; and "dot" if a dot of the
    target has no model, so that it was IEEE's. `integers` are the arguments that are integers.
    `dots` are those that a model of the target predicted, `compiled` what Triton was asked to
    compile: its source, target and options, and `reorders` the operations, with their lines, that
    leave the order of elements to the compiler. `has_hints`: the kernel's source has hints to the
    compiler or tensor descriptors; `uses_hints`: a program computed a value with one. `branches`
    are the lines of its branches and loops with the sides that its programs took.
    """

    kernel: str
    grid: tuple[int, int, int]
    constexprs: dict[str, object]
    config: int
    configs: int
    tiles: tuple[tuple[int, int, int], ...]
    atomics: bool
    where: Where
    rounds: tuple[str, ...] = ()
    integers: dict[str, int] = field(default_factory=dict)
    written: int = 1
    dots: frozenset[PredictedDot] = field(default=frozenset(), compare=False, repr=False)
    compiled: tuple[Any, Any, Any] | None = field(default=None, compare=False, repr=False)
    reorders: tuple[tuple[str, Where | None], ...] = ()
    choice: int = 0
    has_hints: bool = False
    uses_hints: bool = False
    branches: BranchSides = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class HostWork:
    """Elements of a result that an operation on the host computed, not a launched kernel.

    `kind` is "product", "formula" or "epilogue" (simulator/host_work.py), or "earlier" for elements
    that nothing wrote in this call. `operation` is torch's name of it, or "python"; `hit` marks the
    elements.
    """

    kind: str
    result: str
    operation: str
    where: Where
    hit: Any


@dataclass(slots=True)
class Run:
    """One simulated call: `result` is what the wrapper returned (tensors on the CPU).

    `host_work` is None if it is unknown.
    """

    result: Any = None
    launches: list[Launch] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    prints: list[str] = field(default_factory=list)
    host_work: list[HostWork] | None = None


class SimulatorError(Exception):
    """Base of the simulator's errors about a kernel; the message is one line with the location."""

    def __init__(self, message: str, where: Where | None = None) -> None:
        Exception.__init__(self, message, where)  # of no further base
        self.message, self.where = message, where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class Unsupported(SimulatorError):
    """The kernel uses an operation that the simulator does not know (exit code 2)."""


class NotSimulated(Unsupported):
    """The kernel is in a language that the simulator cannot run; only a GPU can check it."""


class KernelError(SimulatorError):
    """The kernel would not compile or could not run: a mistake of the kernel, hence a finding."""


class CompileError(KernelError):
    """Triton's own frontend refuses the kernel."""


class LimitExceeded(SimulatorError):
    """The kernel never ends: it waits for what cannot happen, or repeats itself."""


class Exhausted(SimulatorError):
    """Time or memory ran out before the kernel ended: nothing is known (exit code 3)."""

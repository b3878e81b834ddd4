"""The record of a traced wrapper, and torch's symbols as terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from gemmproof.reference.simulation import Where
from gemmproof.reference.symbolic.terms import (
    FALSE,
    TRUE,
    Atom,
    Cond,
    Poly,
    eq,
    every,
    flag,
    le,
    lt,
    make,
    some,
    term,
)
from gemmproof.reference.triton_hooks import select
from gemmproof.reference.ttir import Function


# -- record --------------------------------------------------------------------------------------
class NotKnown(Exception):
    """The reason why a wrapper, or one path of it, cannot be followed, in one line.

    `raised`: the wrapper's own code raised; its sizes were refused rather than not understood.
    `late`: there was no time to follow it.
    """

    def __init__(
        self, message: str, where: Where | None = None, raised: bool = False, late: bool = False
    ) -> None:
        super().__init__(message)
        self.message, self.where, self.raised, self.late = message, where, raised, late

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


@dataclass(frozen=True, slots=True)
class Symbolic:
    """An operand as it is declared: its torch dtype, its shape and its strides over symbols."""

    dtype: Any
    shape: tuple[Poly, ...]
    strides: tuple[Poly, ...]


@dataclass(slots=True)
class Memory:
    """One allocation, or an operand's memory, with its own logical view.

    `name`: the operand's; else "c" or "result[i]" where the wrapper returned (a view of) it; else
    "workspace#n". `offset`: where an operand begins within its allocation, of which torch knows.
    """

    number: int
    name: str
    dtype: str
    shape: tuple[Poly, ...]
    strides: tuple[Poly, ...]
    is_operand: bool = False
    offset: Poly = field(default_factory=lambda: term(0))

    def __hash__(self) -> int:
        return self.number


@dataclass(frozen=True, slots=True)
class TensorView:
    """A view of memory at one moment; `offset` counts its elements from the memory's first.

    `defined`: the memory held values by then, or may be taken to: an operand, or what torch
    computed or filled. False for torch.empty's, whatever launches have stored since.
    """

    memory: Memory
    dtype: str
    shape: tuple[Poly, ...]
    strides: tuple[Poly, ...]
    offset: Poly
    defined: bool

    @property
    def name(self) -> str:
        return self.memory.name

    @property
    def storage(self) -> int:
        """Equal for views of one allocation."""
        return self.memory.number

    @property
    def owner_shape(self) -> tuple[Poly, ...]:
        return self.memory.shape

    @property
    def owner_strides(self) -> tuple[Poly, ...]:
        return self.memory.strides


@dataclass(frozen=True, slots=True)
class HostDescriptor:
    """A TensorDescriptor that the host made; its sizes and strides follow it as arguments too."""

    tensor: TensorView
    shape: tuple[Poly, ...]
    strides: tuple[Poly, ...]
    block_shape: tuple[int, ...]
    padding: str


@dataclass(frozen=True, slots=True)
class SizedFloat:
    """A float that depends on the sizes, such as 1 / K; `text` are its formula."""

    text: str


@dataclass(slots=True)
class TracedLaunch:
    """One launch: the kernel as Triton's frontend compiles it, and its arguments.

    `arguments` has one item for each parameter of the public function of `functions`, in order: a
    TensorView, a HostDescriptor, a Poly for any integer, a float or a SizedFloat; `parameters` are
    their names in the kernel, "sa[0]" for an item of a tuple. An integer that depends on the sizes
    is a parameter of 32 bits: if it is 1, or more than 32 bits hold, Triton specialises again, and
    that specialisation is not this one, but those that are `typed` keep the type that the kernel
    declares. `constants` are by name. Launches with the same `choice` run in the same one of their
    tuner's `configs`.
    """

    kernel: str
    functions: dict[str, Function]
    parameters: list[str]
    arguments: list[Any]
    grid: tuple[Poly, Poly, Poly]
    constants: dict[str, object]
    options: dict[str, object]
    where: Where | None
    config: int
    configs: int
    choice: int = 0
    typed: frozenset[str] = frozenset()


@dataclass(slots=True)
class TorchCall:
    """An operation of torch on tensors other than a view or an allocation of undefined memory.

    `name` as in "aten.copy_.default"; tensors are TensorViews and sizes Polys wherever they occur.
    A launch is one too: "launch", with its index in `Path.launches`. `in_tuner`: it was
    done by a hook that Triton's tuner calls before each run of a configuration.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, object]
    outputs: tuple[TensorView, ...]
    where: Where | None
    in_tuner: bool = False


Guard = tuple[Cond, Where | None]


@dataclass(slots=True)
class Path:
    """The wrapper's behaviour for all sizes that meet `guards`, its decisions in order.

    `sizes` are those that it ran with, as `hints` are by their symbols; `failed` is the reason why
    the rest is not known. `variants` are, by a launch's index, the launches in each configuration
    of its tuner. `asks_sms`: the run read the number of multiprocessors.
    `dropped` are choices and configurations in which Triton refuses a kernel.
    """

    guards: list[Guard]
    launches: list[TracedLaunch] = field(default_factory=list)
    operations: list[TorchCall] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    sizes: Mapping[str, int] = field(default_factory=dict)
    failed: NotKnown | None = None
    variants: Mapping[int, list[TracedLaunch]] = field(default_factory=dict)
    asks_sms: bool = False
    hints: Mapping[Atom, int] = field(default_factory=dict)
    dropped: frozenset[tuple[int, int]] = frozenset()

    def take(self, config: int) -> Path | None:
        """Return the same path in another configuration, or None if it was not seen there."""
        launches, selected = list(self.launches), select(config, self.choices)
        for i, launch in enumerate(launches):
            if launch.configs > 1:
                if i not in self.variants:
                    return None
                launches[i] = self.variants[i][selected[launch.choice]]
        return replace(self, launches=launches)

    @property
    def choices(self) -> dict[int, int]:
        """The number of configurations of each choice that a tuner makes."""
        return {x.choice: x.configs for x in self.launches if x.configs > 1}

    @property
    def condition(self) -> Cond:
        """All guards, without the domain."""
        return every(cond for cond, _ in self.guards)

    def does_as(self, other: Path) -> bool:
        """Return whether two paths do the same, and end in the same way."""
        ends, others = (
            x.failed and (x.failed.message, x.failed.where, x.failed.raised) for x in (self, other)
        )
        return ends == others and (self.launches, self.operations, self.results) == (
            other.launches,
            other.operations,
            other.results,
        )


@dataclass(frozen=True, slots=True)
class Unvisited:
    """Sizes for which no path was run: those that meet `condition`, the last part a `decision`.

    `why`: "no sizes were found for it", and there may be none; "too many paths"; "out of time", if
    it is `late`; or "a call with sizes for it decided otherwise", as when a wrapper keeps something
    between calls.
    """

    condition: Cond
    decision: Cond
    where: Where | None
    why: str
    late: bool = False


@dataclass(frozen=True, slots=True)
class WrapperRun:
    """One run of the wrapper: its decisions in order, and the sizes that decided so, by name."""

    guards: tuple[Guard, ...]
    sizes: Mapping[str, int]

    @property
    def condition(self) -> Cond:
        return every(cond for cond, _ in self.guards)


@dataclass(slots=True)
class Trace:
    """All paths that were run. They and `unvisited` cover the domain; no two paths overlap.

    `runs` has one for each side of every decision, those that change nothing included, and `leaves`
    the path of each of them.
    """

    paths: list[Path]
    unvisited: list[Unvisited]
    runs: list[WrapperRun] = field(default_factory=list)
    leaves: list[Path] = field(default_factory=list)


# -- translate -----------------------------------------------------------------------------------
Names = Mapping[str, Poly]


class Untranslatable(Exception):
    """An expression that no term expresses; the message names it."""


# the same for every number of parts
_FOLDED = {
    "Max": "max",
    "Min": "min",
    "BitwiseFn_bitwise_and": "and",
    "BitwiseFn_bitwise_or": "or",
    "BitwiseFn_bitwise_xor": "xor",
}
_BINARY = {
    "FloorDiv": "floordiv",
    "CleanDiv": "floordiv",
    "IntTrueDiv": "",
    "Mod": "mod",
    "PythonMod": "mod",
}
_RELATIONS = {
    "Equality": eq,
    "Unequality": lambda x, y: ~eq(x, y),
    "LessThan": le,
    "StrictLessThan": lt,
    "GreaterThan": lambda x, y: le(y, x),
    "StrictGreaterThan": lambda x, y: lt(y, x),
}
_MOST_POWER = 8


def to_term(expr: Any, names: Names) -> Poly:
    """Return an integer expression as a term; `names` maps the symbols to their terms."""
    if isinstance(expr, int):
        return term(expr)
    kind = type(expr).__name__
    if getattr(expr, "is_Integer", False):
        return term(int(expr))
    if getattr(expr, "is_Symbol", False):
        return names[str(expr)]
    if kind in ("CeilToInt", "FloorToInt", "TruncToInt"):
        return _to_integer(kind, expr.args[0], names)
    if kind in ("Piecewise", "Where"):
        return _choose(kind, expr.args, names)
    if is_condition(expr):
        return flag(to_cond(expr, names))
    parts = [to_term(part, names) for part in expr.args if kind != "Pow"]
    if kind == "Abs":
        return make("max", parts[0], -parts[0])
    if kind == "Add":
        return reduce(lambda x, y: x + y, parts)
    if kind == "Mul":
        return reduce(lambda x, y: x * y, parts)
    if kind == "Pow":
        base, power = expr.args
        if power.is_Integer and 0 <= int(power) <= _MOST_POWER:
            return reduce(lambda x, y: x * y, [to_term(base, names)] * int(power), term(1))
    if kind in _FOLDED:
        return reduce(lambda x, y: make(_FOLDED[kind], x, y), parts)
    if _BINARY.get(kind):
        return make(_BINARY[kind], *parts)
    if kind == "CeilDiv":
        return -make("floordiv", -parts[0], parts[1])
    if kind == "ModularIndexing":
        return make("mod", make("floordiv", parts[0], parts[1]), parts[2])
    if kind == "RShift":
        return make("shr", *parts)
    if kind in ("LShift", "PowByNatural"):
        return _power(kind, *parts)
    if kind == "Identity":
        return parts[0]
    raise Untranslatable(f"{kind} of sizes" if len(str(expr)) > 80 else f"{expr}")


def _to_integer(kind: str, inner: Any, names: Names) -> Poly:
    """Return a quotient that is rounded to an integer: exact while a double holds the dividend."""
    if type(inner).__name__ not in ("IntTrueDiv", "FloatTrueDiv"):
        return to_term(_unfloat(inner), names)
    x, y = (to_term(_unfloat(part), names) for part in inner.args)
    if kind == "CeilToInt":
        return -make("floordiv", -x, y)
    return make("floordiv" if kind == "FloorToInt" else "div", x, y)


def _unfloat(expr: Any) -> Any:
    """Return an integer that was converted to a float, as it was."""
    if type(expr).__name__ == "ToFloat":
        return expr.args[0]
    if getattr(expr, "is_Float", False):
        if float(expr) == int(expr):
            return int(expr)
        raise Untranslatable(f"{expr}")
    return expr


def _choose(kind: str, parts: Any, names: Names) -> Poly:
    if kind == "Where":
        cond, x, y = parts
        return make("choice", to_cond(cond, names), to_term(x, names), to_term(y, names))
    (last, _), *rest = list(parts)[::-1]
    chosen = to_term(last, names)
    for x, cond in rest:
        chosen = make("choice", to_cond(cond, names), to_term(x, names), chosen)
    return chosen


def _power(kind: str, x: Poly, y: Poly) -> Poly:
    if kind == "LShift" and y.constant is not None and 0 <= y.constant < 64:
        return x * (1 << y.constant)
    if kind == "PowByNatural" and y.constant is not None and 0 <= y.constant <= _MOST_POWER:
        return reduce(lambda a, b: a * b, [x] * y.constant, term(1))
    raise Untranslatable(f"{kind} by a size")


def is_condition(expr: Any) -> bool:
    """Return whether an expression is boolean."""
    kind = type(expr).__name__
    known = ("And", "Or", "Not", "BooleanTrue", "BooleanFalse", *_RELATIONS)
    return isinstance(expr, bool) or kind in known


def to_cond(expr: Any, names: Names) -> Cond:
    """Return a boolean expression as a condition."""
    kind = type(expr).__name__
    if expr is True or kind == "BooleanTrue":
        return TRUE
    if expr is False or kind == "BooleanFalse":
        return FALSE
    if kind in _RELATIONS:
        x, y = expr.args
        if is_condition(x) or is_condition(y):
            return _RELATIONS[kind](*(flag(to_cond(part, names)) for part in (x, y)))
        return _RELATIONS[kind](*(to_term(_unfloat(part), names) for part in (x, y)))
    if kind in ("And", "Or"):
        return (every if kind == "And" else some)(to_cond(part, names) for part in expr.args)
    if kind == "Not":
        return ~to_cond(expr.args[0], names)
    raise Untranslatable(f"{expr}")

"""The contract of a kernel: sizes, formats, layouts, and guarantees of its compiled code."""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any

from gemmproof.properties.cases.layouts import ANY, BATCHED, CONTIGUOUS, HUGE, LAYOUTS
from gemmproof.reference.formats import FLOAT_OPERANDS, FORMATS, OPERANDS, RESULTS
from gemmproof.reference.gpus import DEFAULT, GPUS

# -- sizes ---------------------------------------------------------------------------------------
MAX_SIDE = 65536
MAX_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Sizes:
    """The multiples of `step` from `low` to `high`, both included.

    Raises a one-line ValueError if there are none, or if one is beyond 0..MAX_SIDE.
    """

    low: int = 1
    high: int = MAX_SIDE
    step: int = 1

    def __post_init__(self) -> None:
        whole = all(type(n) is int for n in (self.low, self.high, self.step))
        if not whole or not 0 <= self.low <= self.high <= MAX_SIDE or self.step < 1:
            raise ValueError(f"got {self}, expected sizes from 0 to {MAX_SIDE}, low before high")
        if self.ceil(self.low) > self.high:
            raise ValueError(f"got {self}, which is no size at all, expected at least one")

    @staticmethod
    def of(value: object, top: int = MAX_SIDE) -> Sizes:
        """Read sizes from a contract: a number, a range, text such as "16..4096:16", or Sizes.

        `top` is the largest. Raises ValueError for anything else.
        """
        sizes = Sizes._read(value, top)
        if sizes.high > top:
            raise ValueError(f"got {sizes}, expected at most {top}")
        return sizes

    @staticmethod
    def _read(value: object, top: int) -> Sizes:
        if isinstance(value, Sizes):
            return value
        if type(value) is int:
            return Sizes(value, value)
        if isinstance(value, range) and len(value) and value.step > 0 and not value[0] % value.step:
            return Sizes(value[0], value[-1], value.step)
        if isinstance(value, str):
            return Sizes._parse(value, top)
        raise ValueError(f"got {value!r}, expected a number, a range, text or multiple_of(n)")

    @staticmethod
    def _parse(text: str, top: int) -> Sizes:
        match = re.fullmatch(r"(\d{0,6})(\.\.)?(\d{0,6})(?::(\d{1,6}))?", text)
        if not match or not text:
            raise ValueError(f"got {text!r}, expected a number, LOW..HIGH, or LOW..HIGH:STEP")
        low, dots, high, step = match.groups()
        if low and not dots and not step:
            return Sizes(int(low), int(low))
        first = int(low) if low else int(step or 1)
        return Sizes(first, int(high) if high else top, int(step or 1))

    def __str__(self) -> str:
        return self.write(MAX_SIDE)

    def write(self, top: int) -> str:
        """Return the text that `of` reads with the same `top`, an end that is left out."""
        if self.low == self.high:
            return str(self.low)
        high = "" if self.high == top else self.high
        return f"{self.low}..{high}" + (f":{self.step}" if self.step != 1 else "")

    def __contains__(self, n: int) -> bool:
        return self.low <= n <= self.high and n % self.step == 0

    def ceil(self, n: int) -> int:
        """Return the smallest size that is at least n, or a number beyond `high` if none is."""
        return -(-max(n, self.low) // self.step) * self.step

    def fit(self, n: int) -> int:
        """Return the largest size that is at most n, or the smallest of all."""
        return max(self.ceil(self.low), min(n, self.high) // self.step * self.step)


def multiple_of(step: int, high: int = MAX_SIDE) -> Sizes:
    """Return the positive multiples of a number."""
    return Sizes(step, high, step)


def neighbours(sides: Mapping[str, int], sizes: Mapping[str, Sizes]) -> Iterator[dict[str, int]]:
    """Yield sides near these: one side up to 128 steps shorter or longer, or as long as another."""
    yield from _step(sides, sizes, range(1, 33))
    lengths = sides.values()
    equal = [{**sides, axis: sizes[axis].fit(n)} for axis in sides for n in lengths]
    equal += [{axis: sizes[axis].fit(n) for axis in sides} for n in lengths]
    yield from sorted(equal, key=lambda other: math.prod(other.values()))
    yield from _step(sides, sizes, range(33, 129))


def _step(
    sides: Mapping[str, int], sizes: Mapping[str, Sizes], steps: range
) -> Iterator[dict[str, int]]:
    for count in steps:
        for axis, n in sides.items():
            for other in (n - count * sizes[axis].step, n + count * sizes[axis].step):
                if other in sizes[axis]:
                    yield {**sides, axis: other}


# -- relations between sizes ---------------------------------------------------------------------
_BINARY: Mapping[type, Callable[[int, int], int]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: lambda x, y: x // y if y else 0,
        ast.Mod: lambda x, y: x % y if y else 0,
    }
)
_COMPARED: Mapping[type, Callable[[int, int], bool]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)


def evaluate_relation(text: str, sizes: Mapping[str, int]) -> int:
    """Evaluate an expression over the sizes. Raises ValueError if it is not one."""
    try:
        return int(_evaluate(_parse(text), text, sizes))
    except ValueError:
        names = ", ".join(sizes)
        raise ValueError(f"got {text!r}, expected sizes over {names} such as 'K // 128'") from None


def holds(relation: str, sizes: Mapping[str, int]) -> bool:
    """Return whether the sizes meet the relation. Raises ValueError if it is not one."""
    return bool(_evaluate(_parse(relation), relation, sizes))


def split(relation: str) -> list[str]:
    """Return the conditions that are joined by `and`, each of which is easier to meet alone."""
    match _parse(relation):
        case ast.BoolOp(op=ast.And(), values=parts):
            return [ast.unparse(part) for part in parts]
    return [relation]


@cache
def _parse(relation: str) -> ast.expr:
    try:
        return ast.parse(relation, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(_refusal(relation)) from None


def _refusal(relation: str) -> str:
    example = "'K % 32 == 0 and M <= N'"
    return f"got {relation!r}, expected a condition on M, N, K and batch such as {example}"


def _evaluate(node: ast.expr, relation: str, sizes: Mapping[str, int]) -> int:
    def value(inner: ast.expr) -> int:
        return _evaluate(inner, relation, sizes)

    match node:
        case ast.Constant(value=int(n)) if abs(n) < 2**63:
            return n
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.BinOp() if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](value(node.left), value(node.right))
        case ast.UnaryOp(op=ast.Not()):
            return not value(node.operand)
        case ast.UnaryOp(op=ast.USub()):
            return -value(node.operand)
        case ast.BoolOp():
            parts = [value(part) for part in node.values]
            decides = isinstance(node.op, ast.Or)  # as in Python, the value of the part itself
            return next((part for part in parts if bool(part) == decides), parts[-1])
        case ast.Compare() if all(type(op) in _COMPARED for op in node.ops):
            terms = [value(term) for term in (node.left, *node.comparators)]
            pairs = zip(node.ops, terms, terms[1:], strict=False)
            return all(_COMPARED[type(op)](x, y) for op, x, y in pairs)
    raise ValueError(_refusal(relation))


# -- guarantees of compiled code -----------------------------------------------------------------
TENSOR_CORES = "uses_tensor_cores"
SPILLS = "spills_no_more"
FITS = "fits_on_its_gpus"
# the backend that judges them: Triton's compiler, not a simulator or a device
COMPILER = "compiler"
# property -> whether a contract promises it
GUARANTEED: Mapping[str, Callable[[Contract], bool]] = MappingProxyType(
    {
        TENSOR_CORES: lambda contract: contract.tensor_cores,
        SPILLS: lambda contract: contract.spills is not None,
        FITS: lambda contract: len(contract.fits) > 0,
    }
)

# the fields of a contract that promises none of them
WITHOUT: Mapping[str, Any] = MappingProxyType({"tensor_cores": False, "spills": None, "fits": ()})


def require_compiled(tensor_cores: object, spills: object, fits: object) -> None:
    """Raise a one-line ValueError for invalid values of these fields of a contract."""
    if not isinstance(tensor_cores, bool):
        raise ValueError(f"contract tensor_cores: got {tensor_cores!r}, expected True or False")
    if spills is not None and (type(spills) is not int or spills < 0):
        expected = "bytes of a thread, from 0, or None"
        raise ValueError(f"contract spills: got {spills!r}, expected {expected}")
    known: tuple[Any, ...] = fits if isinstance(fits, tuple) else (None,)
    if any(not isinstance(name, str) or name not in GPUS for name in known):
        raise ValueError(f"contract fits: got {fits!r}, expected a tuple of {' '.join(GPUS)}")
    if len(set(known)) < len(known):
        raise ValueError(f"contract fits: got {fits!r}, expected each GPU once")


def list_guaranteed(contract: Contract) -> tuple[str, ...]:
    """List the properties of compiled code that a contract promises; others cost nothing."""
    return tuple(name for name, promises in GUARANTEED.items() if promises(contract))


def list_gpus(contract: Contract, target: str | None) -> tuple[str, ...]:
    """List the GPUs that all of them are judged on: those of `fits`, or else the target."""
    return contract.fits or (target or DEFAULT,)


# -- contract ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Role:
    """The role of an operand in the product: its name, its axes behind the batch, and its number.

    The number distinguishes operands where data and paddings must differ.
    """

    name: str
    axes: tuple[str, str]
    number: int

    @property
    def k_axis(self) -> int:
        """The index of K's axis among (batch, rows, columns)."""
        return 1 + self.axes.index("K")


# The operands of a product, in the order in which a wrapper takes them.
ROLES: Mapping[str, Role] = MappingProxyType(
    {"a": Role("a", ("M", "K"), 0), "b": Role("b", ("K", "N"), 1)}
)
ACCUMULATORS = tuple(
    dict.fromkeys(sum((FORMATS[name].declarable_sums for name in FLOAT_OPERANDS), ()))
)
AXES = ("M", "N", "K", "batch")
TOPS: Mapping[str, int] = MappingProxyType(
    {axis: MAX_BATCH if axis == "batch" else MAX_SIDE for axis in AXES}
)
SizesWord = Sizes | int | range | str


def require(holds: bool, message: str) -> None:
    """Raise ValueError with the message unless it holds."""
    if not holds:
        raise ValueError(message)


@dataclass(frozen=True, slots=True)
class Contract:
    """The operands that a kernel accepts and the guarantees of its result.

    No case goes beyond the contract. A wider contract is a stronger claim.

    Args:
        formats: Element formats of a and b. "tf32" is float32 operands whose low 13 bits the
            kernel may ignore.
        M: Sizes of the axis: a number, a range, text "LOW..HIGH:STEP" such as "16..4096:16" of
            which each part may be missing, or `multiple_of(16)`.
        N: Sizes, as of `M`.
        K: Sizes, as of `M`.
        batch: Sizes, as of `M`; used if `batched`.
        where: A further condition on the sizes, as text ("K % 32 == 0 and M <= N") or as a function
            of M, N and K.
        batched: Operands have the shapes (batch, M, K) and (batch, K, N).
        layouts: "contiguous" (row-major and dense), "any" (every view whose offsets stay below
            2**31 elements) or names from `properties.cases.layouts.LAYOUTS`.
        huge: Offsets from 2**31 elements on are accepted, too: of c and, with "any", of views.
        accumulator: The format of the sums, from which every bound follows. int8 always uses int32;
            "e8m13" is fp8 sums that stay in units of 13 bits.
        out: The format of the result, or None for any.
        deterministic: The bits do not depend on the order in which programs run.
        batch_invariant: The bits of a row of c do not depend on M.
        symmetric: c is a b, so that relations such as that under negation hold. False with a
            formula.
        tensor_cores: Every dot is compiled to tensor cores.
        spills: The largest number of bytes of a thread's registers that are spilled to memory, or
            None for no limit.
        fits: Names of GPUs whose shared memory and registers suffice for the compiled kernel.
            `tensor_cores` and `spills` are judged on these GPUs, or else on the target.
        host_epilogue: Names of operations that the wrapper may apply on the host: torch's names,
            such as "add" and "relu", or "python".
        expected: Properties that are known not to hold, each with the reason. A finding is reported
            if one of them holds.

    Raises:
        ValueError: A value is unknown, or values contradict each other; one line.
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
    host_epilogue: tuple[str, ...] = ()
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
        names = self.host_epilogue if isinstance(self.host_epilogue, tuple) else (None,)
        require(
            all(isinstance(name, str) and name.isidentifier() for name in names),
            f"contract host_epilogue: got {self.host_epilogue!r}, expected a tuple of names of"
            " torch's operations, such as ('add', 'relu')",
        )
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
        # pairs are hashable, as every field of a contract is
        object.__setattr__(self, "expected", tuple(sorted(reasons.items())))

    @property
    def reasons(self) -> dict[str, str]:
        """The reason of each property that is expected not to hold, by its name."""
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
                self.accumulator in ("fp32", *FORMATS[name].declarable_sums),
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
                sizes = Sizes.of(getattr(self, axis), TOPS[axis])
            except ValueError as mistake:
                raise ValueError(f"contract {axis}: {mistake}") from None
            object.__setattr__(self, axis, sizes)
        if self.where is not None:
            require(
                isinstance(self.where, str) or callable(self.where),
                f"contract where: got {self.where!r}, expected a condition, a function or None",
            )
            try:
                is_met = any(self.fit(dict.fromkeys(AXES, n)) for n in (1, 16, 128, 1024))
            except Exception as mistake:
                raise ValueError(f"contract where: {mistake}") from None
            require(
                is_met, f"contract where: got {self.where!r}, which no size that was tried meets"
            )

    def sizes(self, axis: str) -> Sizes:
        """Return the sizes that an axis may have: M, N, K or batch."""
        sizes: Sizes = getattr(self, axis)
        return sizes

    def admits(self, sides: Mapping[str, int]) -> bool:
        """Return whether a case may have these sizes, by axis; batch only if there is one."""
        return all(n in self.sizes(axis) for axis, n in sides.items()) and self._relates(sides)

    def _relates(self, sides: Mapping[str, int], part: str | None = None) -> bool:
        where = part or self.where
        if where is None:
            return True
        if isinstance(where, str):
            return holds(where, {"batch": 1, **sides})
        try:
            return bool(where(sides["M"], sides["N"], sides["K"]))
        except ArithmeticError:  # M % N with N = 0: not an intended size
            return False

    def fit(self, sides: Mapping[str, int]) -> dict[str, int] | None:
        """Return admitted sizes near these, each the next smaller one if there is one.

        With a condition they are the first that meet it: one axis as long as another, or an axis
        some steps longer or shorter, for one condition after another. None if no sizes do.
        """
        axes = {axis: self.sizes(axis) for axis in sides}
        near = {axis: axes[axis].fit(n) for axis, n in sides.items()}
        parts = split(self.where) if isinstance(self.where, str) else [None]
        for count in range(1, len(parts) + 1):
            candidates = itertools.chain([near], neighbours(near, axes))
            matches = (
                x for x in candidates if all(self._relates(x, part) for part in parts[:count])
            )
            candidate = next(matches, None)
            if candidate is None:
                return None
            near = candidate
        return near

    @property
    def layout_names(self) -> tuple[str, ...]:
        """The layouts that are drawn, simplest first."""
        if self.layouts == CONTIGUOUS:
            return ("row",)
        excluded: tuple[str, ...] = () if self.batched else BATCHED
        if self.layouts == ANY:
            excluded += () if self.huge else HUGE
            return tuple(name for name in LAYOUTS if name not in excluded)
        return tuple(name for name in LAYOUTS if name in self.layouts)

    def to_dict(self) -> dict[str, object]:
        """Return the fields as plain data, sizes as text; a function cannot be written."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["expected"] = self.reasons
        return values | {axis: self.sizes(axis).write(top) for axis, top in TOPS.items()}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Contract:
        """Read the contract that `to_dict` wrote, also after JSON, which knows lists only.

        Raises a one-line ValueError for anything else.
        """
        known = [f.name for f in fields(Contract)]
        for name in data:
            require(
                name in known, f"contract: got field {name!r}, expected fields {' '.join(known)}"
            )
        values: dict[str, Any]
        values = {
            k: tuple(value) if isinstance(value, list) else value for k, value in data.items()
        }
        return Contract(**values)

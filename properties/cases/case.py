"""One case: the complete description of a call of a kernel, on one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from gemmproof.properties.cases.layouts import BATCHED, LAYOUTS, ROW
from gemmproof.properties.codec import Describe, describe_object
from gemmproof.properties.contract import MAX_BATCH, MAX_SIDE, ROLES
from gemmproof.reference.formats import FORMATS, OPERANDS, Format

FILLS = (
    *("index", "normal", "positive", "cancelling", "wide", "subnormal", "ties"),
    *("zeros", "equal", "special"),
)
EXACT_FILLS = ("index", "zeros", "equal")  # whose sums no order rounds
# numbers that no integer format has
FLOAT_FILLS = ("subnormal", "ties", "special")
CALLS = (1, 3)
# relations that a further call of the same case must meet: table.RELATED makes the calls
COMPARE = (
    "negated",
    "scaled",
    "permuted_rows",
    "permuted_columns",
    "padded_k",
    "transposed",
    "order",
    "rows",
)
MAX_ELEMENTS = 2**26  # of a, b and c together: half a GiB at 8 bytes
MAX_RESULT = 2**32  # elements of c
MAX_SEED = 2**31 - 1
MAX_CONFIGS = 4096
MAX_SMS = 1024


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    """One call: its sizes, the layouts of its operands, their data and the options of its launch.

    A case whose c has more than MAX_ELEMENTS is sampled: only some programs of its launches run.

    Args:
        M: The rows of a and c.
        N: The columns of b and c.
        K: The columns of a and the rows of b.
        dtype: The format of a and b.
        batch: The number of matrices, None for a 2-D problem.
        layouts: Pairs of an operand and its layout, of those that are not row-major.
        fill: The kind of the data.
        seed: The seed of the data.
        config: The index of the autotune configuration. If several tuners choose, indices below the
            first tuner's number of configurations select the same index for each of them, and
            higher ones the other combinations.
        sms: The number of multiprocessors that the device reports; None for the target's number.
        calls: The number of calls of the wrapper, each over other uninitialised memory.
        compare: The relation of a further call that is compared with this one, or None.
        arguments: Pairs of an operand other than a and b and its layout, its value in Python's
            notation, or "None" if it is omitted, where that is not the default.

    Raises:
        ValueError: A value is out of range or unknown; one line.
    """

    M: int
    N: int
    K: int
    dtype: str = "fp16"
    batch: int | None = None
    layouts: tuple[tuple[str, str], ...] = ()
    fill: str = "index"
    seed: int = 0
    config: int = 0
    sms: int | None = None
    calls: int = 1
    compare: str | None = None
    arguments: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for side in "MNK":
            _require_int(side, getattr(self, side), 0, MAX_SIDE)
        if self.batch is not None:
            _require_int("batch", self.batch, 0, MAX_BATCH)
        _require_int("seed", self.seed, 0, MAX_SEED)
        _require_int("config", self.config, 0, MAX_CONFIGS)
        if self.sms is not None:
            _require_int("sms", self.sms, 1, MAX_SMS)
        _require_name("dtype", self.dtype, OPERANDS)
        _require_name("fill", self.fill, FILLS)
        layouts = tuple(n for n in LAYOUTS if self.batch is not None or n not in BATCHED)
        layouts_by_name = dict(self.layouts)
        for name, layout in layouts_by_name.items():
            _require_name("operand", name, tuple(ROLES))
            _require_name(name, layout, layouts)
        others = ((name, layouts_by_name.get(name, ROW)) for name in ROLES)
        object.__setattr__(self, "layouts", tuple(pair for pair in others if pair[1] != ROW))
        arguments = dict(self.arguments)
        for name, value in arguments.items():
            if not all(isinstance(part, str) for part in (name, value)) or not name.isidentifier():
                raise ValueError(
                    f"case arguments: got {_short({name: value})}, expected names and words"
                )
        object.__setattr__(self, "arguments", tuple(sorted(arguments.items())))
        if self.calls not in CALLS or isinstance(self.calls, bool):
            raise ValueError(f"case calls: got {self.calls!r}, expected 1 or 3")
        if self.compare is not None:
            _require_name("compare", self.compare, COMPARE)
        operand_count, result_count = self._counts
        limited = (
            ("a and b", operand_count)
            if self.is_sampled
            else ("a, b and c", operand_count + result_count)
        )
        for label, count, most in ((*limited, MAX_ELEMENTS), ("c", result_count, MAX_RESULT)):
            if count > most:
                raise ValueError(f"case: got {count} elements of {label}, expected at most {most}")

    def to_json(self) -> str:
        """Return one line; M, N, K and dtype always, other fields if they differ from the default.

        An operand's layout is stored under the operand's name.
        """
        return json.dumps(self.to_dict(), separators=(",", ":"))

    def to_dict(self) -> dict[str, object]:
        """Return what `to_json` writes, as plain data."""
        shown: dict[str, object] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "layouts":
                shown |= value
            elif f.name == "arguments":
                shown |= {f.name: dict(value)} if value else {}
            elif f.name in ("M", "N", "K", "dtype") or value != f.default:
                shown[f.name] = value
        return shown

    @staticmethod
    def from_json(text: str) -> Case:
        """Read a case from JSON. Raises a one-line ValueError for anything else."""
        try:
            data = json.loads(text, object_pairs_hook=_distinct, parse_int=_integer)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"case: got broken JSON ({error.msg} at column {error.colno}),"
                ' expected an object such as {"M":1,"N":1,"K":1}'
            ) from None
        except RecursionError:
            raise ValueError("case: got JSON nested without end, expected a flat object") from None
        return Case.from_dict(data)

    @staticmethod
    def from_dict(data: Any) -> Case:
        """Read a case from plain data. Raises a one-line ValueError for anything else."""
        if not isinstance(data, dict):
            raise ValueError(
                f'case: got {_short(data)}, expected an object such as {{"M":1,"N":1,"K":1}}'
            )
        known = [n for f in fields(Case) for n in (ROLES if f.name == "layouts" else (f.name,))]
        for name in data:
            if name not in known:
                raise ValueError(
                    f"case: got unknown field {_short(name)}, expected fields of {' '.join(known)}"
                )
        for side in "MNK":
            if side not in data:
                raise ValueError(f"case: got no {side}, expected M, N and K")
        layouts = tuple((name, data[name]) for name in ROLES if name in data)
        arguments = data.get("arguments", {})
        if not isinstance(arguments, dict):
            raise ValueError(f"case arguments: got {_short(arguments)}, expected an object")
        fields_ = {name: value for name, value in data.items() if name not in ROLES}
        return Case(**{**fields_, "arguments": tuple(arguments.items())}, layouts=layouts)

    @staticmethod
    def json_schema(describe: Describe) -> dict[str, object]:
        """Return the JSON Schema of what `to_dict` gives."""
        side = {"type": "integer", "minimum": 0, "maximum": MAX_SIDE}
        parts: dict[str, object] = {f.name: {"type": ["integer", "string"]} for f in fields(Case)}
        del parts["layouts"]
        parts |= {"M": side, "N": side, "K": side, "dtype": {"enum": list(OPERANDS)}}
        parts |= {name: {"enum": list(LAYOUTS)} for name in ROLES}
        parts["arguments"] = {"type": "object", "additionalProperties": {"type": "string"}}
        return describe_object(parts, ["M", "N", "K", "dtype"])

    def layout(self, operand: str) -> str:
        """Return the name of an operand's layout."""
        return dict(self.layouts).get(operand, ROW)

    def with_layout(self, operand: str, layout: str) -> Case:
        """Return the same case with another layout of one operand."""
        return replace(self, layouts=tuple({**dict(self.layouts), operand: layout}.items()))

    def with_sides(self, sides: Mapping[str, int]) -> Case:
        """Return the same case with other sizes along some axes."""
        size = {**self.sides, **sides}
        return replace(self, M=size["M"], N=size["N"], K=size["K"], batch=size.get("batch"))

    @property
    def format(self) -> Format:
        """The format of the operands."""
        return FORMATS[self.dtype]

    @property
    def sums_are_exact(self) -> bool:
        """True if no order of the sums rounds, so that every order gives the same bits."""
        return self.fill in EXACT_FILLS or self.format.kind == "int"

    @property
    def is_sampled(self) -> bool:
        """True if c has so many elements that only some programs of a launch run."""
        operand_count, result_count = self._counts
        return operand_count + result_count > MAX_ELEMENTS and result_count >= operand_count

    @property
    def _counts(self) -> tuple[int, int]:
        """The number of elements of a and b together, and of c."""
        batch = 1 if self.batch is None else self.batch
        return (self.M + self.N) * self.K * batch, self.M * self.N * batch

    @property
    def lead(self) -> tuple[int, ...]:
        """The leading axes of a, b and c: () or (batch,)."""
        return () if self.batch is None else (self.batch,)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape that c must have."""
        return (*self.lead, self.M, self.N)

    @property
    def sides(self) -> dict[str, int]:
        """The sizes by axis: M, N, K, and batch if there is one."""
        sides = {"M": self.M, "N": self.N, "K": self.K}
        return sides if self.batch is None else {**sides, "batch": self.batch}

    def shape_of(self, operand: str) -> tuple[int, int, int]:
        """Return the (batch, rows, columns) of an operand, with a batch of 1 if there is none."""
        rows, columns = (getattr(self, axis) for axis in ROLES[operand].axes)
        return (1 if self.batch is None else self.batch, rows, columns)

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sort key of a total order: the simpler of two cases has the smaller rank."""
        sides = tuple(side_rank(side) for side in (self.M, self.N, self.K, self.batch))
        ranks = tuple(_LAYOUT_RANK[self.layout(name)] for name in ROLES)
        return (
            self.config,
            sum(sides),
            sides,
            sum(ranks),
            (len(self.arguments), self.arguments),
            (ranks[:-1], FILLS.index(self.fill), self.seed, self.sms or 0, self.calls),
            -1 if self.compare is None else COMPARE.index(self.compare),
            OPERANDS.index(self.dtype),
        )

    def __str__(self) -> str:
        parts = [f"M={self.M} N={self.N} K={self.K} {self.dtype}"]
        if self.batch is not None:
            parts[0] = f"batch={self.batch} {parts[0]}"
        parts += [f"{name} {self.layout(name)}" for name in ROLES]
        parts += [_word(name, value) for name, value in self.arguments]
        if (self.fill, self.seed) != ("index", 0):
            parts.append(f"fill {self.fill} seed {self.seed}")
        if self.config:
            parts.append(f"config {self.config}")
        if self.sms is not None:
            parts.append(f"{self.sms} multiprocessor{'s' if self.sms > 1 else ''}")
        if self.calls != 1:
            parts.append(f"{self.calls} calls")
        if self.compare is not None:
            parts.append(f"compared with {self.compare}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        shown = {n: value for n, value in self.to_dict().items() if n not in ROLES}
        shown |= {"layouts": dict(self.layouts)} if self.layouts else {}
        shown |= {"arguments": dict(self.arguments)} if self.arguments else {}
        return f"Case({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # Hypothesis prints dataclasses in its own form unless this is defined
        printer.text(repr(self))


def side_rank(side: int | None) -> float:
    """Order sides by simplicity: no batch, then 1, then 0 (which is odd), then 2 and on."""
    return 0.0 if side is None else 1.5 if side == 0 else float(side)


_LAYOUT_RANK = {name: rank for rank, name in enumerate(LAYOUTS)}


def _word(name: str, value: str) -> str:
    return f"{name} {value}" if value in LAYOUTS else f"{name}={value}"


def _require_int(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"case {name}: got {_short(value)}, expected an integer {low}..{high}")


def _require_name(name: str, value: object, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"case {name}: got {_short(value)}, expected one of {' '.join(known)}")


def _short(value: object) -> str:
    shown = json.dumps(value, default=repr)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _integer(digits: str) -> int:
    # Python refuses integers of thousands of digits with advice about its own settings
    if len(digits) > 20:
        raise ValueError(f"case: got an integer of {len(digits)} digits, expected one within range")
    return int(digits)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"case: got field {_short(name)} twice, expected it once")
    return dict(pairs)

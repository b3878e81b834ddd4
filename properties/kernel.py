"""A kernel under test: its operands, its call, and the formula of its results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from gemmproof.properties.cases.layouts import ANY, BATCHED, CONTIGUOUS, HUGE, LAYOUTS, ROW, view
from gemmproof.properties.contract import ROLES, Contract, evaluate_relation, require
from gemmproof.reference.formats import FORMATS, Format

if TYPE_CHECKING:
    from gemmproof.properties.cases.case import Case

# -- operand -------------------------------------------------------------------------------------
Values = Callable[..., Any] | tuple[int, int] | None

READ, WRITTEN, UPDATED = USES = ("read", "written", "updated")
NONE = "None"  # a case's argument for an operand that is omitted


class ContractError(ValueError):
    """An operand that cannot be built as it is declared, through no fault of the kernel."""


def draw_ends(rng: Any, shape: tuple[int, ...], M: int) -> Any:
    """Draw where groups of M rows end, in ascending order; a number drawn twice is an empty one."""
    if not shape[0]:
        return []
    inner = rng.integers(0, M + 1, shape[0] - 1)
    return [*sorted(rng.choice(inner, len(inner)) if len(inner) else inner), M]


def draw_offsets(rng: Any, shape: tuple[int, ...], M: int) -> Any:
    """Draw where groups of M rows begin, and M."""
    return [0, *draw_ends(rng, (shape[0] - 1,), M)] if shape[0] else []


_DRAWN = {"offsets": draw_offsets, "ends": draw_ends}


@dataclass(frozen=True, slots=True, repr=False)
class Operand:
    """A tensor that the wrapper takes by name: its format, its shape and its possible elements.

    Args:
        format: The format of the elements.
        shape: An axis, or a tuple of up to three: numbers, or text over M, N, K, batch and the
            integers of a `OneOf`, such as "M" or "K // 128".
        values: None for data that distinguish each element from its neighbours (signed powers of
            two for floats, all values for integers); (low, high) for integers from low to high;
            "offsets" for where groups of rows begin, 0 first and M last, or "ends" for where they
            end; or a function of a numpy Generator, the shape and, by their names, sizes, values
            of a `OneOf` and operands declared before, which returns an array.
        use: "read", "written" for memory that the wrapper is to fill (as out=), or "updated" for
            memory that it reads and overwrites. Written and updated operands are results.
        optional: Some cases pass None.
        layouts: "contiguous", "any", or names from `properties.cases.layouts.LAYOUTS`.

    Raises:
        ValueError: A value that no operand can have; one line.
    """

    format: str
    shape: str | int | tuple[str | int, ...] = ()
    values: Any = None  # Values, once it is built
    use: str = READ
    optional: bool = False
    layouts: str | tuple[str, ...] = CONTIGUOUS

    def __post_init__(self) -> None:
        fmt = FORMATS.get(self.format) if isinstance(self.format, str) else None
        if fmt is None or fmt.stored is not fmt:
            known = " ".join(f.name for f in FORMATS.values() if f.stored is f)
            raise ValueError(f"operand format: got {self.format!r}, expected one of {known}")
        if len(self.axes) > 3:
            raise ValueError(f"operand shape: got {self.shape!r}, expected at most three axes")
        if not all(type(axis) is int or isinstance(axis, str) for axis in self.axes):
            raise ValueError(f"operand shape: got {self.shape!r}, expected numbers and text")
        if isinstance(self.values, str) and self.values in _DRAWN and fmt.kind == "int":
            object.__setattr__(self, "values", _DRAWN[self.values])
        if self.values is not None and not callable(self.values) and not self._is_range(fmt):
            raise ValueError(
                f"operand values: got {self.values!r} for {self.format}, expected (low, high),"
                " offsets or ends of an integer format, a function or None"
            )
        if self.use not in USES:
            raise ValueError(f"operand use: got {self.use!r}, expected one of {' '.join(USES)}")
        if not isinstance(self.optional, bool) or (self.optional and self.use != READ):
            raise ValueError(
                f"operand optional: got {self.optional!r} for one that is {self.use}, expected"
                " True of one that is read, or False"
            )
        names = (self.layouts,) if isinstance(self.layouts, str) else self.layouts
        layouts = (ANY, CONTIGUOUS) if isinstance(self.layouts, str) else tuple(LAYOUTS)
        if not isinstance(names, tuple) or not names or not set(names) <= set(layouts):
            raise ValueError(
                f"operand layouts: got {self.layouts!r}, expected 'any', 'contiguous' or a tuple of"
                f" {' '.join(LAYOUTS)}"
            )

    def __repr__(self) -> str:
        first = f"{self.format!r}, {self.shape!r}"
        names = ("values", "use", "optional", "layouts")
        usual = {f.name: f.default for f in fields(self)}
        own = {n: getattr(self, n) for n in names if getattr(self, n) != usual[n]}
        for word, drawn in _DRAWN.items():
            own |= {"values": word} if own.get("values") is drawn else {}
        return f"Operand({', '.join((first, *(f'{n}={x!r}' for n, x in own.items())))})"

    def _is_range(self, fmt: Format) -> bool:
        """Return whether the values are a lowest and a highest one that the format holds."""
        bounds = self.values
        pair = isinstance(bounds, tuple) and len(bounds) == 2 and fmt.kind == "int"
        if not pair or any(type(n) is not int for n in bounds):
            return False
        low, high = bounds
        signed = fmt.storage.kind == "i"
        bits = 8 * fmt.itemsize - signed
        return -(2**bits) * signed <= low <= high < 2**bits

    @property
    def axes(self) -> tuple[str | int, ...]:
        """The shape as a tuple."""
        return self.shape if isinstance(self.shape, tuple) else (self.shape,)

    @property
    def is_result(self) -> bool:
        """True if the call is to leave a result in it."""
        return self.use != READ

    def sides(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape at given sizes, by axis of the product."""
        values = {**sizes, "batch": sizes.get("batch", 1)}
        sides = tuple(n if isinstance(n, int) else evaluate_relation(n, values) for n in self.axes)
        if any(n < 0 for n in sides):
            at = " ".join(f"{axis}={n}" for axis, n in sizes.items())
            raise ValueError(f"got {self.shape!r}, which is {sides} at {at}, expected sizes from 0")
        return sides

    def list_layouts(self) -> tuple[str, ...]:
        """List its possible layouts, row-major and dense first, each with different strides."""
        named = self.layouts if isinstance(self.layouts, tuple) else tuple(LAYOUTS)
        shape, distinct = ((1, 1, 1, *(5, 6, 7)[: len(self.axes)])[-3:]), dict[Any, str]()
        for name in LAYOUTS if self.layouts != CONTIGUOUS else (ROW,):
            # a repeated element can be no set of indices, and no result
            repeats = name.startswith("expanded") or name == "shared"
            excluded = (name in HUGE and name not in self.layouts) or (
                name in BATCHED and len(self.axes) < 3
            )
            excluded |= repeats and (callable(self.values) or self.is_result)
            if name not in named or excluded:
                continue
            operand_view = view(name, (shape[0], shape[1], shape[2]), 2, 1)
            own = tuple(step for n, step in zip(shape, operand_view.strides, strict=True) if n > 1)
            distinct.setdefault((own, operand_view.first), name)
        return tuple(distinct.values())


def is_name(text: Any) -> bool:
    """Return whether a text can be the name of a parameter."""
    return isinstance(text, str) and text.isidentifier() and not iskeyword(text)


class OneOf:
    """A Python value that the wrapper takes by name, from several: alpha, a flag, a group's size.

    Cases take the first value unless another is requested.

    Args:
        *values: The values.

    Raises:
        ValueError: There is no value, or two values print alike; one line.
    """

    def __init__(self, *values: Any) -> None:
        self.values = values
        if not values:
            raise ValueError("OneOf: got no value, expected one or more")
        names = self.names
        if len(set(names)) < len(names):
            raise ValueError(f"OneOf: got {', '.join(names)}, expected different values")

    @property
    def names(self) -> tuple[str, ...]:
        """The values' names in cases."""
        return tuple(map(repr, self.values))

    def value(self, name: str) -> Any:
        """Return the value of that name. Raises ValueError for another name."""
        if name not in self.names:
            raise ValueError(f"got {name}, expected one of {' '.join(self.names)}")
        return self.values[self.names.index(name)]

    def __repr__(self) -> str:
        return f"OneOf({', '.join(self.names)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneOf) and other.names == self.names

    def __hash__(self) -> int:
        return hash(self.names)


def list_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """List the names of a function's parameters, none if it hides them."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def call_by_name(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Call a function with these arguments and those of `named` that it has a parameter for."""
    parameters = inspect.signature(function).parameters.values()
    if all(p.kind is not p.VAR_KEYWORD for p in parameters):
        takes = {p.name for p in parameters}
        named = {name: value for name, value in named.items() if name in takes}
    return function(*arguments, **named)


# -- kernel --------------------------------------------------------------------------------------
USUAL = Contract()


def _product(a: Any, b: Any) -> Any:
    return a @ b


def _no_formula() -> Any:
    raise AssertionError("memory_only: no formula is evaluated")


def list_tensors(returned: Any) -> list[Any]:
    """List the tensors in what a wrapper returned: in tuples, lists, mappings and dataclasses."""
    import torch

    if isinstance(returned, torch.Tensor):
        return [returned]
    if isinstance(returned, Mapping):
        returned = tuple(returned.values())
    elif is_dataclass(returned) and not isinstance(returned, type):
        returned = tuple(getattr(returned, item.name) for item in fields(returned))
    parts = returned if isinstance(returned, tuple | list) else ()
    return [tensor for part in parts for tensor in list_tensors(part)]


def is_triton(function: object) -> bool:
    """Return whether this is a Triton kernel, which a wrapper launches, or a tuner of one."""
    return type(function).__module__.partition(".")[0] == "triton"


def require_kernel(where: str, kernel: object) -> None:
    """Raise a one-line TypeError unless it is a KernelUnderTest."""
    if not isinstance(kernel, KernelUnderTest):
        raise TypeError(f"{where}: got {short(kernel)}, expected a KernelUnderTest")


def short(value: object) -> str:
    """Describe an argument of a wrong type, in a few words."""
    if isinstance(value, KernelUnderTest):  # its repr has the whole contract
        return f"the kernel {value.name}"
    name = getattr(value, "__name__", None)
    kind = "class" if isinstance(value, type) else "function"
    return f"the {kind} {name}" if callable(value) and name else repr(value)


@dataclass(frozen=True, slots=True)
class KernelUnderTest:
    """A kernel to judge: its wrapper, its contract, its further operands and its formula.

    Args:
        name: The name in reports.
        launch: The wrapper: `launch(a, b)` returns c.
        contract: What the kernel accepts and guarantees.
        mirror: The specification of the accesses, a function that returns the launches of a call
            (reference/mirrors), or None.
        operands: An `Operand` or a `OneOf` for each parameter of the wrapper other than a and b,
            by name. "a" and "b" are included if they have a format, shape or values of their own.
        spec: c as a function of a, b, the operands and the sizes M, N, K and batch, of those that
            it has parameters for, in numpy's terms (reference/spec lists them); a tuple of results
            in the order of those that the wrapper writes, then of those that it returns. None for
            a @ b.
        memory_only: Values are not judged: the results may have any shape, format and number, and
            no formula is evaluated, neither a @ b nor `spec`.
        device_only: The simulator cannot run the kernel (Gluon): it is judged on a GPU alone.
        predicted_by: A wrapper that gives the same bits as a `device_only` kernel, from which they
            are predicted, or None.
        draft: The operands and the formula are a draft that nobody confirmed: a check cannot pass.

    Raises:
        ValueError: A value is wrong; one line.
    """

    name: str
    launch: Callable[..., Any]
    contract: Contract = USUAL
    mirror: Any = None
    operands: Mapping[str, Operand | OneOf] = field(default_factory=dict)
    spec: Callable[..., Any] | None = None
    device_only: bool = False
    predicted_by: Callable[..., Any] | None = None
    memory_only: bool = False
    draft: bool = False

    def __post_init__(self) -> None:
        require(
            isinstance(self.name, str) and self.name != "",
            f"kernel name: got {self.name!r}, expected a non-empty string",
        )
        require(
            callable(self.launch),
            f"kernel {self.name}: got launch={self.launch!r}, expected a function of a and b",
        )
        require(
            not is_triton(self.launch),
            f"kernel {self.name}: got a Triton kernel, expected the wrapper f(a, b) -> c that"
            " launches it",
        )
        require(
            isinstance(self.contract, Contract),
            f"kernel {self.name}: got contract={self.contract!r}, expected a Contract",
        )
        require(
            self.spec is None or callable(self.spec),
            f"kernel {self.name}: got spec={self.spec!r}, expected a function",
        )
        for flag in ("device_only", "memory_only"):
            value = getattr(self, flag)
            require(
                isinstance(value, bool),
                f"kernel {self.name}: got {flag}={value!r}, expected True or False",
            )
        require(
            self.predicted_by is None or (self.device_only and callable(self.predicted_by)),
            f"kernel {self.name}: got predicted_by={self.predicted_by!r}, expected a function of a"
            " and b, beside device_only=True",
        )
        if self.memory_only:
            object.__setattr__(self, "spec", _no_formula)
        self._check_operands()
        if self.spec is None and set(ROLES) & set(self.operands):
            object.__setattr__(self, "spec", _product)
        if self.spec is not None:
            # the relations for negated, permuted and transposed operands need not hold of a formula
            object.__setattr__(self, "contract", replace(self.contract, symmetric=False))

    def _check_operands(self) -> None:
        require(
            isinstance(self.operands, Mapping),
            f"kernel {self.name}: got operands={self.operands!r}, expected Operands by name",
        )
        sizes = {"M": 16, "N": 16, "K": 16, "batch": 1}
        for name, operand in self.operands.items():
            require(
                isinstance(operand, Operand | OneOf)
                and is_name(name)
                and (name != "c" or (isinstance(operand, Operand) and operand.is_result))
                and name not in sizes,
                f"kernel {self.name}: got operand {name!r} of {operand!r}, expected an Operand or a"
                " OneOf by a parameter's name other than M, N, K and batch; c only for a result",
            )
            require(
                name not in ROLES
                or (
                    isinstance(operand, Operand) and not operand.optional and not operand.is_result
                ),
                f"kernel {self.name}: got {name} of {operand!r}, expected an Operand that is read",
            )
        for name, choice in self.choices.items():
            first = choice.values[0]
            sizes |= {name: first} if type(first) is int else {}
        for name, operand in self.tensors.items():
            try:
                operand.sides(sizes)
            except (ValueError, TypeError) as mistake:
                raise ValueError(f"kernel {self.name}: shape of {name}: {mistake}") from None
        read = [n for n, o in self.tensors.items() if o.use != WRITTEN and n not in ROLES]
        require(
            not read or self.spec is not None,
            f"kernel {self.name}: got operands without a formula, expected spec=lambda a, b,"
            f" {', '.join(read)}: ... or --spec, or memory_only=True to judge no values",
        )

    @property
    def tensors(self) -> dict[str, Operand]:
        """The operands that are tensors."""
        return {name: x for name, x in self.operands.items() if isinstance(x, Operand)}

    @property
    def choices(self) -> dict[str, OneOf]:
        """The operands that are Python values."""
        return {name: x for name, x in self.operands.items() if isinstance(x, OneOf)}

    @property
    def written(self) -> tuple[str, ...]:
        """The operands that a call leaves results in."""
        return tuple(name for name, x in self.tensors.items() if x.is_result)

    def label_results(self, count: int) -> tuple[str, ...]:
        """Return the results' names in messages: operands that are written, then c or result[i]."""
        returned = count - len(self.written)
        others = ("c",) if returned == 1 else (f"result[{i}]" for i in range(returned))
        return (*self.written, *others)

    def list_options(self) -> dict[str, tuple[str, ...]]:
        """Return a case's options for each operand other than a and b, the simplest first."""
        options = {name: choice.names for name, choice in self.choices.items()}
        for name, declared in self.tensors.items():
            if name not in ROLES:
                options[name] = declared.list_layouts() + ((NONE,) if declared.optional else ())
        return options

    def require_batch(self, case: Case) -> None:
        """Raise a one-line ValueError if only one of case and kernel has a batch."""
        if (case.batch is not None) != self.contract.batched:
            got, expected = ("no batch", "one") if case.batch is None else ("a batch", "none")
            raise ValueError(f"case: got {got}, expected {expected} for {self.name}")

    def require(self, case: Case) -> None:
        """Raise a one-line ValueError if a case has an invalid argument for an operand."""
        options = self.list_options()
        for name, value in case.arguments:
            if name not in options:
                known_names = " ".join(options) or "none"
                raise ValueError(f"case {name}: got an operand, expected one of: {known_names}")
            if value not in options[name]:
                raise ValueError(f"case {name}: got {value}, expected {' or '.join(options[name])}")

    def values_of(self, case: Case) -> dict[str, object]:
        """Return the Python values of a case by name, None for the tensors that it omits."""
        arguments = dict(case.arguments)
        values = {
            n: choice.value(arguments.get(n, choice.names[0])) for n, choice in self.choices.items()
        }
        omitted = (n for n, o in self.tensors.items() if o.optional and arguments.get(n) == NONE)
        return {**values, **dict.fromkeys(omitted)}

    def sizes_of(self, case: Case) -> dict[str, int]:
        """Return the names that shapes may use: the sides of a case, and its integers."""
        integers = {n: x for n, x in self.values_of(case).items() if type(x) is int}
        return {**integers, **case.sides}

    def call(self, case: Case, tensors: Mapping[str, Any], count: int = 1) -> Any:
        """Call the wrapper on a case: a and b as they are, all other arguments by name.

        Returns its `count` results, as a tuple if there are several: the operands that it writes
        first, then the returned values that are no such operand. With `memory_only` they are all
        tensors among those values.
        """
        named = {**tensors, **self.values_of(case)}
        a, b = (named.pop(name) for name in ROLES)
        returned = self.launch(a, b, **named)
        results = [tensors[name] for name in self.written]
        if not results and not self.memory_only:
            return returned
        returned_values = returned if isinstance(returned, tuple | list) else (returned,)
        if self.memory_only:
            returned_values = list_tensors(returned)
            count = len(results) + len(returned_values)
        written_ids = {id(x) for x in results}
        results += [x for x in returned_values if x is not None and id(x) not in written_ids][
            : max(0, count - len(results))
        ]
        if not results:
            return returned
        return results[0] if len(results) == 1 else tuple(results)

    def calculate(self, operands: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
        """Evaluate `spec`, or else the product, on the operands that it has a parameter for.

        M, N, K and batch are among `sizes`, of which it gets those that it has a parameter for.
        """
        spec = self.spec or _product
        known = {"batch": 1, **sizes}
        named = {n: known[n] for n in list_parameters(spec) if n in known and n not in operands}
        return call_by_name(spec, **operands, **named)

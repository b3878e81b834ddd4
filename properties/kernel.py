"""A kernel under test: its operands, its call, and the formula of its results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
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
NONE = "None"  # what a case says of an operand that is left out


class ContractError(ValueError):
    """An operand that no case can have as it is stated, through no fault of the kernel."""


@dataclass(frozen=True, slots=True, repr=False)
class Operand:
    """A tensor that the wrapper takes by name: its format, its shape, what its elements may be.

    `shape`: an axis, or a tuple of up to three: numbers, or text over M, N, K, batch and the
    integers of a OneOf such as "M" or "K // 128". `values`: None for data that tell each element
    from its neighbours (signed powers of two for floats, all values for integers), (low, high) for
    integers from low to high, or a function of a numpy Generator, the shape and, by their names,
    sizes, values of a OneOf and operands stated before, which returns an array. `use`: "read";
    "written" for memory that the wrapper is to fill, as out=; "updated" for what it reads and
    overwrites. The last two are results. `optional`: None is given in some cases. `layouts`:
    "contiguous", "any" view, or names from layouts.LAYOUTS.

    Raises ValueError, in one line, for what no operand can be.
    """

    format: str
    shape: str | int | tuple[str | int, ...] = ()
    values: Values = None
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
        if self.values is not None and not callable(self.values) and not self._is_range(fmt):
            raise ValueError(
                f"operand values: got {self.values!r} for {self.format}, expected (low, high) of"
                " an integer format, a function or None"
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
        words = ("values", "use", "optional", "layouts")
        usual = {f.name: f.default for f in fields(self)}
        said = (f"{n}={getattr(self, n)!r}" for n in words if getattr(self, n) != usual[n])
        return f"Operand({', '.join((first, *said))})"

    def _is_range(self, fmt: Format) -> bool:
        """Whether the values are a lowest and a highest one that the format holds."""
        stated = self.values
        pair = isinstance(stated, tuple) and len(stated) == 2 and fmt.kind == "int"
        if not pair or any(type(n) is not int for n in stated):  # type: ignore[union-attr]
            return False
        low, high = stated  # type: ignore[misc]
        signed = fmt.storage.kind == "i"
        bits = 8 * fmt.itemsize - signed
        return -(2**bits) * signed <= low <= high < 2**bits

    @property
    def axes(self) -> tuple[str | int, ...]:
        """The shape as a tuple."""
        return self.shape if isinstance(self.shape, tuple) else (self.shape,)

    @property
    def is_result(self) -> bool:
        """Whether the call is to leave a result in it."""
        return self.use != READ

    def sides(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape at given sizes, by axis of the product."""
        given = {**sizes, "batch": sizes.get("batch", 1)}
        sides = tuple(n if isinstance(n, int) else evaluate_relation(n, given) for n in self.axes)
        if any(n < 0 for n in sides):
            at = " ".join(f"{axis}={n}" for axis, n in sizes.items())
            raise ValueError(f"got {self.shape!r}, which is {sides} at {at}, expected sizes from 0")
        return sides

    def list_layouts(self) -> tuple[str, ...]:
        """The layouts that it may have, row-major and dense first; each with strides of its own."""
        named = self.layouts if isinstance(self.layouts, tuple) else tuple(LAYOUTS)
        shape, found = ((1, 1, 1, *(5, 6, 7)[: len(self.axes)])[-3:]), dict[Any, str]()
        for name in LAYOUTS if self.layouts != CONTIGUOUS else (ROW,):
            # one element that stands for many is no set of indices, and no result
            repeats = name.startswith("expanded") or name == "shared"
            lacks = (name in HUGE and name not in self.layouts) or (
                name in BATCHED and len(self.axes) < 3
            )
            lacks |= repeats and (callable(self.values) or self.is_result)
            if name not in named or lacks:
                continue
            place = view(name, (shape[0], shape[1], shape[2]), 2, 1)
            own = tuple(step for n, step in zip(shape, place.strides, strict=True) if n > 1)
            found.setdefault((own, place.first), name)
        return tuple(found.values())


def is_name(word: Any) -> bool:
    """Whether it can be the name of a parameter."""
    return isinstance(word, str) and word.isidentifier() and not iskeyword(word)


class OneOf:
    """A Python value that the wrapper takes by name, one of some: alpha, a flag, a group's size.

    Cases take the first where nothing asks for another. Raises ValueError, in one line.
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
        """What cases call the values."""
        return tuple(map(repr, self.values))

    def value(self, name: str) -> Any:
        """The value that a case calls so. Raises ValueError for another name."""
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
    """The names that a function has for its arguments, none where it hides them."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def call_by_name(function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
    """What a function returns for these arguments and those of `named` that it has a name for."""
    parameters = inspect.signature(function).parameters.values()
    if all(p.kind is not p.VAR_KEYWORD for p in parameters):
        takes = {p.name for p in parameters}
        named = {name: value for name, value in named.items() if name in takes}
    return function(*given, **named)


# -- kernel --------------------------------------------------------------------------------------
USUAL = Contract()


def _product(a: Any, b: Any) -> Any:
    return a @ b


def is_triton(function: object) -> bool:
    """Whether this is a Triton kernel, which a wrapper launches, or what tunes one."""
    return type(function).__module__.partition(".")[0] == "triton"


def require_kernel(place: str, kernel: object) -> None:
    """Raise TypeError, in one line, for what is no KernelUnderTest."""
    if not isinstance(kernel, KernelUnderTest):
        name = getattr(kernel, "__name__", None)
        got = f"the function {name}" if callable(kernel) and name else repr(kernel)
        raise TypeError(f"{place}: got {got}, expected a KernelUnderTest")


@dataclass(frozen=True, slots=True)
class KernelUnderTest:
    """A kernel to judge: `launch(a, b)` is its wrapper and returns c.

    `mirror` is what the kernel's specification says of its accesses, a function that states the
    launches of a call (reference/mirrors); None where nobody wrote one.
    `operands`: what the wrapper takes by name besides a and b, an Operand or a OneOf each; "a" and
    "b" stand there where they have a format, a shape or values of their own. `spec`: what c is, as
    a function of a, b and the operands in numpy's terms (reference/spec says which), a tuple of
    several results in the order of those that the wrapper writes, then of those that it returns;
    a @ b where it is None. `device_only`: the simulator sees nothing of it (Gluon), so that it is
    judged on a GPU alone; `predicted_by` is then a wrapper that gives the same bits, if there is
    one, from which they are predicted. Raises ValueError in one line.
    """

    name: str
    launch: Callable[..., Any]
    contract: Contract = USUAL
    mirror: Any = None
    operands: Mapping[str, Operand | OneOf] = field(default_factory=dict)
    spec: Callable[..., Any] | None = None
    device_only: bool = False
    predicted_by: Callable[..., Any] | None = None

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
        require(
            isinstance(self.device_only, bool),
            f"kernel {self.name}: got device_only={self.device_only!r}, expected True or False",
        )
        require(
            self.predicted_by is None or (self.device_only and callable(self.predicted_by)),
            f"kernel {self.name}: got predicted_by={self.predicted_by!r}, expected a function of a"
            " and b, beside device_only=True",
        )
        self._check_operands()
        if self.spec is None and set(ROLES) & set(self.operands):
            object.__setattr__(self, "spec", _product)
        if self.spec is not None:
            # negated, permuted and transposed operands say nothing of a formula of its own
            object.__setattr__(self, "contract", replace(self.contract, symmetric=False))

    def _check_operands(self) -> None:
        require(
            isinstance(self.operands, Mapping),
            f"kernel {self.name}: got operands={self.operands!r}, expected Operands by name",
        )
        sizes = {"M": 16, "N": 16, "K": 16, "batch": 1}
        for name, stated in self.operands.items():
            require(
                isinstance(stated, Operand | OneOf)
                and is_name(name)
                and (name != "c" or (isinstance(stated, Operand) and stated.is_result))
                and name not in sizes,
                f"kernel {self.name}: got operand {name!r} of {stated!r}, expected an Operand or a"
                " OneOf by a parameter's name other than M, N, K and batch; c only for a result",
            )
            require(
                name not in ROLES
                or (isinstance(stated, Operand) and not stated.optional and not stated.is_result),
                f"kernel {self.name}: got {name} of {stated!r}, expected an Operand that is read",
            )
        for name, one in self.choices.items():
            first = one.values[0]
            sizes |= {name: first} if type(first) is int else {}
        for name, stated in self.tensors.items():
            try:
                stated.sides(sizes)
            except (ValueError, TypeError) as mistake:
                raise ValueError(f"kernel {self.name}: shape of {name}: {mistake}") from None
        read = [n for n, o in self.tensors.items() if o.use != WRITTEN and n not in ROLES]
        require(
            not read or self.spec is not None,
            f"kernel {self.name}: got operands without a formula, expected spec=lambda a, b,"
            f" {', '.join(read)}: ... or --spec",
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
        """What messages call the results: operands that are written, then c or result[i]."""
        returned = count - len(self.written)
        others = ("c",) if returned == 1 else (f"result[{i}]" for i in range(returned))
        return (*self.written, *others)

    def list_options(self) -> dict[str, tuple[str, ...]]:
        """What a case may say of each operand besides a and b, the simplest first."""
        options = {name: one.names for name, one in self.choices.items()}
        for name, stated in self.tensors.items():
            if name not in ROLES:
                options[name] = stated.list_layouts() + ((NONE,) if stated.optional else ())
        return options

    def require_batch(self, case: Case) -> None:
        """Raise ValueError, in one line, if a case has a batch where the kernel has none."""
        if (case.batch is not None) != self.contract.batched:
            got, expected = ("no batch", "one") if case.batch is None else ("a batch", "none")
            raise ValueError(f"case: got {got}, expected {expected} for {self.name}")

    def require(self, case: Case) -> None:
        """Raise ValueError, in one line, if a case says of an operand what it cannot be."""
        options = self.list_options()
        for name, said in case.arguments:
            if name not in options:
                known = " ".join(options) or "none"
                raise ValueError(f"case {name}: got an operand, expected one of: {known}")
            if said not in options[name]:
                raise ValueError(f"case {name}: got {said}, expected {' or '.join(options[name])}")

    def values_of(self, case: Case) -> dict[str, Any]:
        """The Python values of a case by name, None for the tensors that it leaves out."""
        said = dict(case.arguments)
        values = {n: one.value(said.get(n, one.names[0])) for n, one in self.choices.items()}
        left_out = (n for n, o in self.tensors.items() if o.optional and said.get(n) == NONE)
        return {**values, **dict.fromkeys(left_out)}

    def sizes_of(self, case: Case) -> dict[str, int]:
        """What shapes of operands are stated over: the sides of a case, and its integers."""
        integers = {n: x for n, x in self.values_of(case).items() if type(x) is int}
        return {**integers, **case.sides}

    def call(self, case: Case, tensors: Mapping[str, Any], count: int = 1) -> Any:
        """Call the wrapper on a case: a and b as they are, everything else by its name.

        Returns its `count` results, a tuple of them where they are several: the operands that it
        writes first, then what it returns that is no such operand.
        """
        named = {**tensors, **self.values_of(case)}
        a, b = (named.pop(name) for name in ROLES)
        returned = self.launch(a, b, **named)
        results = [tensors[name] for name in self.written]
        if not results:
            return returned
        given = returned if isinstance(returned, tuple | list) else (returned,)
        known = {id(x) for x in results}
        results += [x for x in given if x is not None and id(x) not in known][
            : max(0, count - len(results))
        ]
        return results[0] if len(results) == 1 else tuple(results)

    def calculate(self, operands: Mapping[str, Any]) -> Any:
        """What `spec` gives for the operands that it has a name for."""
        assert self.spec is not None
        return call_by_name(self.spec, **operands)

"""A value of a kernel, for all running programs at once.

`data` has a leading axis over programs, of length 1 where every program holds the same, and then
the block's shape; a pointer's data are byte addresses. Two companions say what the hardware
cannot: `poison` (uint8, 0 for a defined lane) marks lanes that nothing defined by the bits of where
they came from, `exact` (present only after a wrap) is what an integer or an address would be in
unbounded arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.types import (
    int_range,
    is_float,
    is_int,
    is_pointer,
    itemsize,
    numpy_of,
    promote,
    type_of_number,
)

Number = bool | int | float
_NUMBERS = frozenset((bool, int, float))
_NUMBER_TYPES = (bool, int, float, np.bool_, np.integer, np.floating)


class Value:
    """One value: `data` (programs or 1, *shape), its Triton scalar type, poison, exact, base.

    `base` is the operand that a pointer was derived from, None for an address of unknown origin.
    `loaded` is the narrowest width in bits that the lanes had in memory (0: not from memory), and
    `fold` adds a dot's products onto another value, where the compiler would (dots.py).
    """

    __slots__ = ("base", "data", "dtype", "exact", "fold", "loaded", "poison")

    def __init__(
        self,
        data: np.ndarray,
        dtype: tl.dtype,
        poison: np.ndarray | None = None,
        exact: np.ndarray | None = None,
        base: Any = None,
        loaded: int = 0,
    ) -> None:
        if data.nbytes > execution.VALUE_BYTES:
            execution.too_wide(data)
        self.data = data
        self.dtype = dtype
        self.poison = poison
        self.exact = exact
        self.base = base
        self.loaded = loaded
        self.fold: Callable[[Value], Value] | None = None

    # -- what a kernel asks of a tensor ------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape[1:]

    @property
    def numel(self) -> int:
        return int(np.prod(self.shape))

    @property
    def type(self) -> Any:
        return tl.block_type(self.dtype, list(self.shape)) if self.shape else self.dtype

    @property
    def T(self) -> Value:  # noqa: N802 - Triton's own name
        return execution.vocabulary().trans(self)

    def __getattr__(self, name: str) -> Any:
        """Every function of the vocabulary is a method too (`x.to(...)`, `x.sum(0)`)."""
        if name.startswith("__"):
            raise AttributeError(name)
        function = execution.vocabulary().member(name)
        return lambda *args, **kwargs: function(self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    # -- decisions -----------------------------------------------------------------------------
    def __bool__(self) -> bool:
        return execution.decide(self)

    def __index__(self) -> int:
        raise execution.kernel_error(f"a constant integer is needed here, got a runtime {self!r}")

    __int__ = __index__

    def __iter__(self) -> Any:
        raise execution.kernel_error(f"a {self!r} cannot be iterated or unpacked in a kernel")

    __hash__ = object.__hash__

    def __getitem__(self, index: Any) -> Value:
        index = index if isinstance(index, tuple) else (index,)
        key: list[Any] = [slice(None)]
        for item in index:
            if item is not None and item != slice(None):
                raise execution.kernel_error(f"only ':' and None index a tensor, got {item!r}")
            key.append(np.newaxis if item is None else slice(None))
        if sum(item is not None for item in index) != len(self.shape):
            raise execution.kernel_error(
                f"index of {len(index)} entries for a {self!r}: got "
                f"{sum(i is not None for i in index)} ':', expected {len(self.shape)}"
            )
        return self.map(lambda part: part[tuple(key)])

    def map(self, view: Callable[[np.ndarray], np.ndarray]) -> Value:
        """The same value after a change of shape, applied to data and companions alike."""

        def apply(part: np.ndarray | None) -> np.ndarray | None:
            if part is None:
                return None
            whole = np.broadcast_to(part, part.shape[:1] + self.data.shape[1:])
            return view(whole)

        poison, exact = apply(self.poison), apply(self.exact)
        return Value(view(self.data), self.dtype, poison, exact, self.base, self.loaded)

    # -- operators -----------------------------------------------------------------------------
    def __add__(self, other: Any) -> Any:
        return binary("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return binary("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return binary("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return binary("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return binary("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return binary("*", other, self)

    def __truediv__(self, other: Any) -> Any:
        return binary("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return binary("/", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return binary("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return binary("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return binary("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return binary("%", other, self)

    def __and__(self, other: Any) -> Any:
        return binary("&", self, other)

    def __rand__(self, other: Any) -> Any:
        return binary("&", other, self)

    def __or__(self, other: Any) -> Any:
        return binary("|", self, other)

    def __ror__(self, other: Any) -> Any:
        return binary("|", other, self)

    def __xor__(self, other: Any) -> Any:
        return binary("^", self, other)

    def __rxor__(self, other: Any) -> Any:
        return binary("^", other, self)

    def __lshift__(self, other: Any) -> Any:
        return binary("<<", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return binary("<<", other, self)

    def __rshift__(self, other: Any) -> Any:
        return binary(">>", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return binary(">>", other, self)

    def __lt__(self, other: Any) -> Any:
        return binary("<", self, other)

    def __le__(self, other: Any) -> Any:
        return binary("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return binary(">", self, other)

    def __ge__(self, other: Any) -> Any:
        return binary(">=", self, other)

    def __eq__(self, other: Any) -> Any:
        return binary("==", self, other)

    def __ne__(self, other: Any) -> Any:
        return binary("!=", self, other)

    def __neg__(self) -> Any:
        if is_float(self.dtype):
            return Value(-self.data, self.dtype, self.poison)
        return binary("-", 0, self)

    def __pos__(self) -> Value:
        return self

    def __invert__(self) -> Value:
        if not is_int(self.dtype):
            raise execution.kernel_error(f"~ needs an integer, got {self!r}")
        exact = None if self.exact is None else ~self.exact
        return Value(~self.data, self.dtype, self.poison, exact)


# -- making values -------------------------------------------------------------------------------
def scalar(x: Number, dtype: tl.dtype | None = None) -> Value:
    """A uniform scalar of `dtype` (default: the type Triton gives the bare number)."""
    dtype = dtype or type_of_number(x)
    with np.errstate(all="ignore"):
        return Value(np.array([x]).astype(numpy_of(dtype)), dtype)


def is_number(x: Any) -> bool:
    """Whether `x` is a bare number, Python's or numpy's."""
    return type(x) in _NUMBERS or isinstance(x, _NUMBER_TYPES)


def lift(x: Any) -> Value:
    """`x` as a Value; raises KernelError where Triton would not take it as a tensor."""
    if isinstance(x, Value):
        return x
    if is_number(x):
        return scalar(x)
    raise execution.kernel_error(f"cannot use {x!r} of type {type(x).__name__} as a tensor")


def pad_rank(part: np.ndarray, ndim: int) -> np.ndarray:
    """Insert axes after the program axis so that blocks of other rank broadcast as in Triton."""
    missing = ndim - part.ndim
    return part.reshape(part.shape[:1] + (1,) * missing + part.shape[1:]) if missing > 0 else part


def union(*parts: np.ndarray | None) -> np.ndarray | None:
    """Lanes poisoned in any part, with the bits of every part."""
    found: np.ndarray | None = None
    for part in parts:
        if part is not None:
            if found is None:
                found = part
            else:
                ndim = max(found.ndim, part.ndim)
                found = pad_rank(found, ndim) | pad_rank(part, ndim)
    return found


def check_shapes(x: Value, y: Value) -> None:
    """Raise KernelError unless the blocks broadcast against each other."""
    for m, n in zip(reversed(x.shape), reversed(y.shape), strict=False):
        if m != n and m != 1 and n != 1:
            raise execution.kernel_error(
                f"shapes {list(x.shape)} and {list(y.shape)} do not broadcast"
            )


# -- arithmetic ----------------------------------------------------------------------------------
def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C division: the quotient is cut toward zero; by zero it is undefined (0 here, poisoned)."""
    safe = np.where(y == 0, np.ones_like(y), y)
    quotient = x // safe
    if x.dtype.kind == "i":
        rest = x - quotient * safe
        quotient = quotient + ((rest != 0) & ((x < 0) != (safe < 0))).astype(x.dtype)
    return quotient


def _remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C remainder: its sign is the dividend's; by zero it is undefined (0 here, poisoned)."""
    return np.fmod(x, np.where(y == 0, np.ones_like(y), y))


def _shift_left(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = x.dtype.itemsize * 8
    return np.where((y >= 0) & (y < bits), x << np.clip(y, 0, bits - 1), np.zeros_like(x))


def _shift_right(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = x.dtype.itemsize * 8
    far = np.where(x < 0, -np.ones_like(x), 0) if x.dtype.kind == "i" else np.zeros_like(x)
    return np.where((y >= 0) & (y < bits), x >> np.clip(y, 0, bits - 1), far).astype(x.dtype)


ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": _divide,
    "%": _remainder,
    "/": np.true_divide,
    "min": np.minimum,
    "max": np.maximum,
}
BITWISE = {
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": _shift_left,
    ">>": _shift_right,
}
COMPARE = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "min": min,
    "max": max,
}


def binary(op: str, x: Any, y: Any) -> Any:
    """`x op y` by Triton's rules: promotion, wrap at the type's width, C division.

    Raises KernelError where Triton would refuse to compile the expression.
    """
    if is_number(x) and is_number(y):
        return _PYTHON[op](x, y)
    if op in ("==", "!=") and (x is None or y is None):
        return op == "!="  # a tensor is never None
    x_number, y_number = is_number(x), is_number(y)
    a, b = lift(x), lift(y)
    if a.shape and b.shape and a.shape != b.shape:
        check_shapes(a, b)
    if is_pointer(a.dtype) or is_pointer(b.dtype):
        return _pointer(op, a, b)
    if op == "+" and (a.fold or b.fold) and a.dtype == b.dtype and a.shape == b.shape:
        return b.fold(a) if b.fold else a.fold(b)  # type: ignore[misc]
    dtype = _promoted(op, a, b, x_number, y_number)
    if op == "/" and is_int(dtype):
        dtype = tl.float32
    if op in BITWISE and is_float(dtype):
        raise execution.kernel_error(f"{op} needs integers, got {a!r} and {b!r}")
    if op == "//" and is_float(dtype):
        raise execution.kernel_error(f"// needs integers, got {a!r} and {b!r}")
    a = _number_as(x, dtype) if x_number else execution.vocabulary().convert(a, dtype)
    b = _number_as(y, dtype) if y_number else execution.vocabulary().convert(b, dtype)
    ndim = max(a.data.ndim, b.data.ndim)
    left, right = pad_rank(a.data, ndim), pad_rank(b.data, ndim)
    poison = union(a.poison, b.poison)
    if op in COMPARE:
        return Value(COMPARE[op](left, right), tl.int1, poison)
    if op in BITWISE:
        return _bitwise(op, a, b, left, right, dtype, poison)
    loaded = min((v.loaded for v in (a, b) if v.loaded), default=0)
    if is_float(dtype):
        return Value(_float(op, left, right, dtype), dtype, poison, loaded=loaded)
    if op in ("//", "%") and (right == 0).any():
        poison = union(poison, (right == 0) * execution.source("a division by zero"))
    return _integer(op, a, b, left, right, dtype, poison)


def _promoted(op: str, a: Value, b: Value, a_number: bool, b_number: bool) -> tl.dtype:
    try:
        return promote(a.dtype, b.dtype, a_number, b_number, op in ("/", "//", "%"))
    except TypeError as error:
        raise execution.kernel_error(f"{a!r} {op} {b!r}: {error}") from None


def _number_as(x: Number, dtype: tl.dtype) -> Value:
    if is_int(dtype):
        low, high = int_range(dtype)
        if not low <= x <= high:
            raise execution.kernel_error(f"scalar {x} is out of range for {dtype}")
    return scalar(x, dtype)


def _float(op: str, left: np.ndarray, right: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    if op == "%":
        return np.fmod(left, right)
    result = ARITHMETIC[op](left, right)
    return result if result.dtype == numpy_of(dtype) else result.astype(numpy_of(dtype))


def _bitwise(
    op: str,
    a: Value,
    b: Value,
    left: np.ndarray,
    right: np.ndarray,
    dtype: tl.dtype,
    poison: np.ndarray | None,
) -> Value:
    """Bit operations; a defined 0 under & and defined ones under | settle the other side's lane."""
    if poison is not None and op in "&|":
        settled = 0 if op == "&" else (True if dtype.is_int1() else -1)
        for mine, other, data in ((a.poison, b.poison, left), (b.poison, a.poison, right)):
            known = data == np.array(settled).astype(data.dtype)
            if mine is not None:
                known = known & (pad_rank(mine, known.ndim) == 0)
            if other is not None:
                poison = np.where(known, np.uint8(0), poison)
    result = BITWISE[op](left, right)
    loaded = min((v.loaded for v in (a, b) if v.loaded), default=0)
    exact = None
    if op == "<<" and not dtype.is_int1():
        exact = _exact(lambda p, q: p << np.clip(q, 0, 62), a, b, left, right, result, dtype)
    return Value(result, dtype, poison, exact, loaded=loaded)


def _integer(
    op: str,
    a: Value,
    b: Value,
    left: np.ndarray,
    right: np.ndarray,
    dtype: tl.dtype,
    poison: np.ndarray | None,
) -> Value:
    if dtype.is_int1():
        result = ARITHMETIC[op](left.astype(np.int8), right.astype(np.int8)) & 1
        return Value(result.astype(np.bool_), dtype, poison)
    result = ARITHMETIC[op](left, right)
    loaded = min((v.loaded for v in (a, b) if v.loaded), default=0)
    exact = _exact(ARITHMETIC[op], a, b, left, right, result, dtype)
    return Value(result, dtype, poison, exact, loaded=loaded)


def _exact(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray],
    a: Value,
    b: Value,
    left: np.ndarray,
    right: np.ndarray,
    result: np.ndarray,
    dtype: tl.dtype,
) -> np.ndarray | None:
    """The result in 64 bits where it differs from `result`, else None.

    An interval test on the operands settles nearly every case without a second pass.
    """
    if a.exact is None and b.exact is None:
        if dtype.int_bitwidth == 64 or _fits(function, left, right, dtype):
            return None
    ndim = result.ndim
    p = pad_rank(left if a.exact is None else a.exact, ndim).astype(np.int64)
    q = pad_rank(right if b.exact is None else b.exact, ndim).astype(np.int64)
    wide = function(p, q)
    return wide if (wide != result).any() else None


def _fits(function: Any, left: np.ndarray, right: np.ndarray, dtype: tl.dtype) -> bool:
    if function in (np.minimum, np.maximum, _divide, _remainder) or not left.size or not right.size:
        return True
    low, high = int_range(dtype)
    corners = [
        [int(left.min()), int(left.max())],
        [int(right.min()), int(right.max())],
    ]
    if function not in (np.add, np.subtract, np.multiply):  # a shift
        if corners[1][0] < 0 or corners[1][1] > 62:
            return False
        corners[1] = [1 << s for s in corners[1]]
        function = np.multiply
    pick = {np.add: int.__add__, np.subtract: int.__sub__, np.multiply: int.__mul__}[function]
    return all(low <= pick(p, q) <= high for p in corners[0] for q in corners[1])


def _pointer(op: str, a: Value, b: Value) -> Value:
    """Pointer plus or minus an integer, in elements; comparison of addresses."""
    if op in COMPARE:
        ndim = max(a.data.ndim, b.data.ndim)
        data = COMPARE[op](pad_rank(a.data, ndim), pad_rank(b.data, ndim))
        return Value(data, tl.int1, union(a.poison, b.poison))
    if op == "+" and is_pointer(b.dtype) and not is_pointer(a.dtype):
        a, b = b, a
    if op not in "+-" or not is_pointer(a.dtype) or not is_int(b.dtype):
        raise execution.kernel_error(f"no {op} between {a!r} and {b!r}")
    ndim = max(a.data.ndim, b.data.ndim)
    size = itemsize(a.dtype.element_ty)
    base, offs = pad_rank(a.data, ndim), pad_rank(b.data, ndim).astype(np.int64)
    move = np.add if op == "+" else np.subtract
    exact = None
    if a.exact is not None or b.exact is not None:
        true_base = base if a.exact is None else pad_rank(a.exact, ndim)
        true_offs = offs if b.exact is None else pad_rank(b.exact, ndim)
        exact = move(true_base, true_offs * size)
    moved = move(base, offs * size if size != 1 else offs)
    return Value(moved, a.dtype, union(a.poison, b.poison), exact, a.base)

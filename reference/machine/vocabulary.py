"""What `tl`, `triton` and Python's builtins are to a kernel that runs on the machine."""

from __future__ import annotations

import builtins
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from gemmproof.reference.machine import (
    access,
    atomics,
    blocks,
    control,
    elementwise,
    execution,
    hints,
    rebind,
    reduce,
    shapes,
)
from gemmproof.reference.machine.arithmetic import binary
from gemmproof.reference.machine.assembly import inline_asm_elementwise
from gemmproof.reference.machine.cast import cast, convert
from gemmproof.reference.machine.dots import dot
from gemmproof.reference.machine.scaled import dot_scaled
from gemmproof.reference.machine.value import Value, is_number, lift

trans = shapes.trans


def _to(
    input: Any, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False
) -> Value:
    """x.to(dtype), tl.cast."""
    return cast(input, dtype, fp_downcast_rounding, bitcast)


def _load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> Value:
    """tl.load; cache hints change nothing here."""
    if isinstance(pointer, blocks.BlockPointer):
        if mask is not None or other is not None:
            raise execution.kernel_error("tl.load of a block pointer takes no mask or other")
        return blocks.load_window(pointer, boundary_check, padding_option)
    if isinstance(pointer, blocks.Descriptor):
        raise execution.kernel_error("tl.load of a tensor descriptor, expected descriptor.load()")
    return access.load(lift(pointer), mask, other)


def _store(
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    """tl.store."""
    if isinstance(pointer, blocks.BlockPointer):
        if mask is not None:
            raise execution.kernel_error("tl.store to a block pointer takes no mask")
        return blocks.store_window(pointer, value, boundary_check)
    return access.store(lift(pointer), value, mask)


def _atomic(op: str) -> Callable[..., Value]:
    def function(
        pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
    ) -> Value:
        return atomics.atomic(op, lift(pointer), val, mask)

    return function


def _cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> Value:
    return atomics.atomic("cas", lift(pointer), val, None, lift(cmp))


def _poll(
    pointer: Any, expected_value: Any, sem: Any = None, scope: Any = None, timeout_ns: Any = None
) -> Value:
    """tl.atomic_poll: the part waits until every lane holds the expected value."""
    wanted = lift(expected_value)
    while True:
        seen = binary("==", atomics.atomic("or", lift(pointer), 0), wanted)
        if seen.data.all():
            return seen
        if len(execution.current().programs) > 1:
            raise execution.Diverged(seen.data.reshape(seen.data.shape[0], -1).all(axis=1))
        raise execution.Waiting


def _arithmetic(op: str) -> Callable[..., Any]:
    """tl.add and its kin; wraps are seen with or without sanitize_overflow."""
    return lambda x, y, sanitize_overflow=True: binary(op, x, y)


def _constexpr(x: Any = None) -> Any:
    return x.value if isinstance(x, tl.constexpr) else x


def _unwrapped(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _number(kind: Callable[[Any], Any]) -> Callable[..., Any]:
    def function(x: Any = 0) -> Any:
        if isinstance(x, Value):
            raise execution.kernel_error(f"{kind.__name__}() of a runtime value")
        return kind(x)

    return function


def _and(*parts: Callable[[], Any]) -> Any:
    """`and`: constants decide at once, tensors are combined lane by lane."""
    return _boolean("&", False, parts)


def _or(*parts: Callable[[], Any]) -> Any:
    """`or`: constants decide at once, tensors are combined lane by lane."""
    return _boolean("|", True, parts)


def _boolean(op: str, decisive: bool, parts: tuple[Callable[[], Any], ...]) -> Any:
    tensors, value = [], None
    for part in parts:
        value = part()
        if isinstance(value, Value):
            tensors.append(convert(value, tl.int1))
        elif bool(value) is decisive:
            return value
    return functools.reduce(functools.partial(binary, op), tensors) if tensors else value


def _while(test: Any) -> Any:
    execution.check_time()
    return test


def _not(x: Any) -> Any:
    return binary("^", convert(x, tl.int1), True) if isinstance(x, Value) else not x


LANGUAGE: dict[str, Any] = {
    **elementwise.MATH,
    "add": _arithmetic("+"),
    "sub": _arithmetic("-"),
    "mul": _arithmetic("*"),
    "program_id": shapes.program_id,
    "num_programs": shapes.num_programs,
    "arange": shapes.arange,
    "full": shapes.full,
    "zeros": shapes.zeros,
    "zeros_like": shapes.zeros_like,
    "broadcast": shapes.broadcast,
    "broadcast_to": shapes.broadcast_to,
    "expand_dims": shapes.expand_dims,
    "reshape": shapes.reshape,
    "view": shapes.reshape,
    "ravel": shapes.ravel,
    "permute": shapes.permute,
    "trans": shapes.trans,
    "squeeze": shapes.squeeze,
    "unsqueeze": shapes.unsqueeze,
    "join": shapes.join,
    "split": shapes.split,
    "interleave": shapes.interleave,
    "cat": shapes.cat,
    "flip": shapes.flip,
    "gather": shapes.gather,
    "histogram": shapes.histogram,
    "sort": reduce.sort,
    "topk": reduce.topk,
    "load": _load,
    "store": _store,
    **{f"atomic_{op}": _atomic(op) for op in atomics.COMBINE},
    "atomic_cas": _cas,
    "atomic_load": lambda pointer, mask=None, sem=None, scope=None: _load(pointer, mask),
    "atomic_store": lambda pointer, val, mask=None, sem=None, scope=None: atomics.atomic(
        "xchg", lift(pointer), val, mask
    ),
    "atomic_poll": _poll,
    "dot": dot,
    "dot_scaled": dot_scaled,
    "inline_asm_elementwise": inline_asm_elementwise,
    "condition": _unwrapped,
    "expect_zero": _unwrapped,
    "tuple": tuple,
    "gdc_wait": hints.nothing,
    "gdc_launch_dependents": hints.nothing,
    "cast": _to,
    "to": _to,
    "where": elementwise.where,
    "minimum": elementwise.minimum,
    "maximum": elementwise.maximum,
    "clamp": elementwise.clamp,
    "cdiv": elementwise.cdiv,
    "logical_and": elementwise.logical("&"),
    "logical_or": elementwise.logical("|"),
    "reduce": reduce.reduce,
    "associative_scan": reduce.associative_scan,
    "_reduce_with_indices": reduce.reduce_with_indices,
    "range": control.dynamic_range,
    "static_range": control.static_range,
    "assume": hints.assume,
    "device_assert": hints.device_assert,
    "static_assert": hints.static_assert,
    "device_print": hints.device_print,
    "static_print": hints.nothing,
    "multiple_of": hints.multiple_of,
    "max_contiguous": hints.max_contiguous,
    "max_constancy": hints.max_constancy,
    "make_block_ptr": blocks.make_block_ptr,
    "advance": blocks.advance,
    "make_tensor_descriptor": blocks.make_tensor_descriptor,
    "_experimental_make_tensor_descriptor": blocks.make_tensor_descriptor,
    "load_tensor_descriptor": lambda desc, offsets, **_: desc.load(offsets),
    "store_tensor_descriptor": lambda desc, offsets, value, **_: desc.store(offsets, value),
    "debug_barrier": hints.nothing,
    "constexpr": _constexpr,
    "tensor": Value,
    "to_tensor": lift,
    "_unwrap_if_constexpr": _unwrapped,
    "_constexpr_to_value": _unwrapped,
    "_promote_bfloat16_to_float32": reduce.bf16_to_fp32,
    "PropagateNan": tl.PropagateNan,
}

# What `tl.extra` and its libdevice hold beside the mathematics.
EXTRA: dict[str, Any] = {
    **elementwise.MATH,
    **{name: LANGUAGE[name] for name in ("gdc_wait", "gdc_launch_dependents")},
    "globaltimer": lambda: lift(0),
    "smid": lambda: shapes.program_id(0),
    "num_threads": lambda: 32 * execution.current().num_warps,
    "num_warps": lambda: execution.current().num_warps,
}
BUILTINS: dict[str, Any] = {
    **vars(builtins),
    "range": control.dynamic_range,
    "min": elementwise.fold("min"),
    "max": elementwise.fold("max"),
    "abs": elementwise.absolute,
    "print": hints.device_print,
    "__and_": _and,
    "__or_": _or,
    "__not_": _not,
    "__assert_": hints.device_assert,
    "__while_": _while,
}


def _cdiv(x: Any, y: Any) -> Any:
    return (
        elementwise.cdiv(x, y)
        if isinstance(x, Value) or isinstance(y, Value)
        else triton.cdiv(x, y)
    )


class Namespace:
    """A module of Triton as a kernel sees it: the machine's words, then types and constants."""

    def __init__(self, module: types.ModuleType, words: dict[str, Any]) -> None:
        self._module = module
        self._words = words

    def __getattr__(self, name: str) -> Any:
        if name in self._words:
            return self._words[name]
        try:
            found = getattr(self._module, name)
        except AttributeError:
            raise execution.kernel_error(f"{self._module.__name__} has no {name}") from None
        return known(found, f"{_short(self._module)}.{name}")


def _short(module: types.ModuleType) -> str:
    name = module.__name__
    for prefix, short in (("triton.language.extra", "tl.extra"), ("triton.language", "tl")):
        if name.startswith(prefix):
            return short + name[len(prefix) :]
    return name


def known(x: Any, name: str) -> Any:
    """A name found in Triton's own modules: a type, a constant, a jitted body to run, or unknown.

    What is unknown raises Unsupported when it is called, not when it is only mentioned.
    """
    if isinstance(x, types.ModuleType):
        return module_of(x)
    if isinstance(x, tl.constexpr):
        return x.value
    if rebind.is_jit(x) or rebind.is_constexpr_function(x):
        return function_of(x, name)
    if isinstance(x, tl.dtype) or inspect.isclass(x) or not callable(x):
        return x

    def unknown(*_: Any, **__: Any) -> Any:
        raise execution.unsupported(name)

    return unknown


def module_of(module: types.ModuleType) -> Any:
    """A module inside a kernel: Triton's are replaced, others are themselves."""
    name = module.__name__
    if name == "triton":
        return TRITON
    if name.startswith("triton.language.extra"):
        return Namespace(module, EXTRA)
    if name.startswith("triton.language"):
        return Namespace(module, LANGUAGE)
    return module


def function_of(x: Any, shown: str = "") -> Any:
    """A function imported by name from Triton, or a jitted function, Triton's or the user's."""
    name = getattr(x, "__name__", "")
    if getattr(x, "__module__", "").startswith("triton.language") and name in LANGUAGE:
        return LANGUAGE[name]
    if rebind.is_jit(x):
        return functools.partial(rebind.call, x)
    if rebind.is_constexpr_function(x):
        return functools.partial(_constexpr_call, x)
    return known(x, shown or f"tl.{name}")


def _constexpr_call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A constexpr_function is plain Python; on runtime values Triton's own ones still compute."""
    if any(isinstance(x, Value) for x in (*args, *kwargs.values())):
        return rebind.call(function, *args, **kwargs)
    return function(*args, **kwargs)


def member(name: str) -> Callable[..., Any]:
    """A function of the vocabulary used as a method of a tensor.

    Raises KernelError for a name that no tensor has and Unsupported for one that the machine lacks.
    """
    if name in LANGUAGE:
        return LANGUAGE[name]
    if hasattr(tl.tensor, name) or hasattr(tl, name):
        return getattr(TL, name) if hasattr(tl, name) else known(len, f"tensor.{name}")
    raise execution.kernel_error(f"a tensor has no attribute {name!r}")


TL = Namespace(tl, LANGUAGE)
TRITON = Namespace(
    triton,
    {"language": TL, "cdiv": _cdiv, "next_power_of_2": triton.next_power_of_2},
)

__all__ = [
    "BUILTINS",
    "LANGUAGE",
    "TL",
    "TRITON",
    "convert",
    "function_of",
    "is_number",
    "member",
    "module_of",
    "trans",
]

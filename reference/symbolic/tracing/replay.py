"""A traced path, run again with plain integers: its launches must be those that the terms give."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from triton.compiler.compiler import make_backend
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmproof.reference.fake_cuda import fake_gpu
from gemmproof.reference.fake_cuda.multiprocessors import multiprocessors
from gemmproof.reference.provenance import format_error
from gemmproof.reference.simulator.launch import intercept_launches
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, evaluate, term
from gemmproof.reference.symbolic.tracing.host_values import as_concrete
from gemmproof.reference.symbolic.tracing.symbolic_shapes import (
    Shapes,
    without_compiler,
    without_imports,
)
from gemmproof.reference.symbolic.tracing.trace import (
    HostDescriptor,
    Memory,
    NotKnown,
    Path,
    SizedFloat,
    Symbolic,
    TensorView,
    TracedLaunch,
)
from gemmproof.reference.symbolic.tracing.traced_launches import Watch, compile_traced, stand_in
from gemmproof.reference.triton_hooks import intercept, swap
from gemmproof.reference.work import METER

_OPTIONS = ("num_warps", "num_stages", "num_ctas")


class Differs(Exception):
    """A difference between a path's terms and a call with plain integers; the message names it."""

    def __init__(self, message: str, is_ours: bool = True) -> None:
        super().__init__(message)
        self.is_ours = is_ours


@dataclass(frozen=True, slots=True)
class Difference:
    """The text of a difference; `is_ours` if a wrapper that keeps nothing does not explain it."""

    text: str
    is_ours: bool


@dataclass(slots=True)
class PlainSizes:
    """The sizes of one call, in place of symbolic ones."""

    values: dict[Atom, int]
    failure: NotKnown | None = None
    sizing: bool = False

    def symbol(self, atom: Atom, hint: int) -> int:
        """Return the value of a symbol."""
        return self.values.setdefault(atom, hint)

    def integer(self, what: Poly) -> int:
        """Return the value of a term."""
        return int(evaluate(what, self.values))

    def term(self, x: Any) -> Poly:
        """Return an integer as a term."""
        return term(int(x))

    def decide(self, cond: Cond) -> bool:
        """Return whether a condition holds."""
        return bool(evaluate(cond, self.values))

    def fail(self, message: str, **_: Any) -> NotKnown:
        """Return the error for an unsupported step."""
        return NotKnown(message)


@dataclass(frozen=True, slots=True)
class PlainLaunch:
    """One launch: the kernel, its grid, its arguments by name and the options of the call."""

    kernel: str
    grid: tuple[Any, ...]
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]


class _Addresses(TorchFunctionMode):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "data_ptr" and args and isinstance(args[0], FakeTensor):
            return self.watch.address(args[0])
        return func(*args, **(kwargs or {}))


# -- the call ------------------------------------------------------------------------------------
Call = Callable[[Mapping[str, object]], Any]


def find_difference(
    call: Call,
    operands: Mapping[str, Symbolic],
    path: Path,
    values: Mapping[Atom, int],
    target: str | None,
    config: int = 0,
    sms: int | None = None,
) -> Difference | None:
    """Return how a call at sizes of a path differs from what the path says of it, or None.

    The tensors have no memory, so any sizes can be called. A path that ends with an exception of
    the wrapper must end so here.
    """
    at = _format(path, values)
    try:
        _compare(path, *_call(call, operands, dict(values), target, config, sms, path.dropped))
    except Differs as difference:
        return Difference(f"{difference} {at}", difference.is_ours)
    return None


def _format(path: Path, values: Mapping[Atom, int]) -> str:
    named = {str(atom): n for atom, n in values.items()}
    shown = (f"{name}={named[name]}" for name in ("batch", "M", "N", "K") if name in named)
    return f"at {' '.join(shown)}"


@without_compiler()
def _call(
    call: Call,
    operands: Mapping[str, Symbolic],
    values: dict[Atom, int],
    target: str | None,
    config: int,
    sms: int | None,
    dropped: Collection[tuple[int, int]],
) -> tuple[PlainSizes, list[PlainLaunch], Watch, list[Any] | Exception]:
    METER.replays += 1
    with without_imports():
        no_memory = Shapes(allow_non_fake_inputs=True)
    sizes = PlainSizes(values)
    watch = Watch(cast(Any, sizes), target, config)
    watch.env = None
    watch.choices.dropped.update(dropped)  # nothing is compiled here, so nothing is refused
    launches: list[PlainLaunch] = []
    with ExitStack() as stack:
        stack.enter_context(fake_gpu(target))
        stack.enter_context(multiprocessors(sms))
        stack.enter_context(swap(as_concrete()))
        stack.enter_context(swap(((fake_tensor.log, "disabled", True),)))
        stack.enter_context(swap(((logging.getLogger("torch.__trace"), "handlers", []),)))
        stack.enter_context(no_memory)
        tensors = {name: watch.operand(name, x) for name, x in operands.items()}
        stack.enter_context(watch)
        stack.enter_context(_Addresses(watch))
        stack.enter_context(_note_launches(watch, launches))
        try:
            return sizes, launches, watch, watch.label_results(call(tensors))
        except Exception as error:
            return sizes, launches, watch, error


@contextmanager
def _note_launches(watch: Watch, launches: list[PlainLaunch]) -> Iterator[None]:
    """Note every launch while active; none is compiled."""

    def run(original: Any, kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup:  # its result tells of the compiled kernel
            named = {name: stand_in(x) for name, x in kwargs.items()}
            return original(kernel, *map(stand_in, args), grid=grid, warmup=warmup, **named)
        for hook in kernel.pre_run_hooks:
            hook(*args, **kwargs)
        defaults = {p.name: p.default for p in kernel.params if p.has_default}
        given = {**defaults, **dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
        bound = {name: x for name, x in given.items() if name in kernel.arg_names}
        sizes = grid({**given}) if callable(grid) else grid
        sizes = tuple(sizes) if isinstance(sizes, tuple | list) else (sizes,)
        usual = make_backend(driver.active.get_current_target()).parse_options({})
        options = {name: given.get(name, getattr(usual, name)) for name in _OPTIONS}
        arguments = {leaf: x for name, value in bound.items() for leaf, x in _flatten(name, value)}
        viewed = {name: _view(watch, x) for name, x in arguments.items()}
        launches.append(PlainLaunch(kernel.fn.__name__, (*sizes, 1, 1)[:3], viewed, options))
        return None

    def describe(original: Any, descriptor: Any) -> None:
        if isinstance(descriptor.base, FakeTensor):  # which Triton exempts
            assert descriptor.base.data_ptr() % 16 == 0, "base must be 16-byte aligned"
        original(descriptor)

    with (
        intercept_launches(cast(Any, watch), compile_traced),
        intercept(launch=run, describe=describe),
    ):
        yield


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield an argument's items by the names that a trace gives them."""
    if isinstance(value, tuple | list):
        for i, item in enumerate(value):
            yield from _flatten(f"{name}[{i}]", item)
        return
    yield name, value
    if isinstance(value, TensorDescriptor):
        yield from _flatten(f"{name}.shape", list(value.shape))
        yield from _flatten(f"{name}.strides", list(value.strides))


def _view(watch: Watch, x: Any) -> Any:
    """Return a tensor as it is at the launch; later the wrapper may change its sizes."""
    if isinstance(x, torch.Tensor):
        return watch.view(x)
    base = getattr(x, "base", None)
    if not isinstance(base, torch.Tensor):
        return getattr(x, "value", x)
    if isinstance(x, TensorDescriptor):
        return HostDescriptor(
            watch.view(base),
            tuple(map(term, x.shape)),
            tuple(map(term, x.strides)),
            tuple(x.block_shape),
            str(getattr(x, "padding", "zero")),
        )
    return watch.view(base, x.dtype)


# -- comparison ----------------------------------------------------------------------------------
@dataclass(slots=True)
class _Comparison:
    """The comparison of a path with one call; `memories` are the call's by the path's."""

    values: Mapping[Atom, int]
    memories: dict[int, Memory]

    def at(self, what: Poly) -> int:
        return int(evaluate(what, self.values))

    def expect(self, what: str, path: Any, call: Any) -> None:
        if path != call:
            raise Differs(f"{what}: the path says {path}, a call with plain integers {call}")

    def compare(self, what: str, path: Any, call: Any) -> None:
        """Compare an argument or a result. Raises Differs."""
        if isinstance(path, TensorView):
            self._compare_views(what, path, call)
        elif isinstance(path, HostDescriptor):
            if not isinstance(call, HostDescriptor):
                raise Differs(f"{what}: a call with plain integers has no tensor descriptor")
            self._compare_views(what, path.tensor, call.tensor)
            for name in ("shape", "strides"):
                pairs = (getattr(path, name), getattr(call, name))
                self.expect(f"{what}.{name}", *([*map(self.at, x)] for x in pairs))
            self.expect(f"{what}.block_shape", path.block_shape, call.block_shape)
        elif isinstance(path, Poly):
            number = self.at(call) if isinstance(call, Poly) else call
            if isinstance(number, bool):
                number = int(number)
            if type(number) is not int:
                raise Differs(f"{what}: a call with plain integers has {number!r}")
            self.expect(what, self.at(path), number)
        elif isinstance(path, bool | int | str) or path is None:
            number = self.at(call) if isinstance(call, Poly) else call
            self.expect(what, path, number)
        elif isinstance(path, float):  # nan is equal to itself here
            self.expect(what, repr(path), repr(float(call)))
        elif isinstance(path, SizedFloat):
            self.expect(f"the type of {what}", float, type(call))

    def _compare_views(self, what: str, path: TensorView, call: Any) -> None:
        if not isinstance(call, TensorView):
            raise Differs(f"{what}: a call with plain integers has no tensor")
        self.expect(f"the type of {what}", path.dtype, call.dtype)
        for name in ("shape", "strides"):
            pairs = (getattr(path, name), getattr(call, name))
            self.expect(f"the {name} of {what}", *([*map(self.at, x)] for x in pairs))
        self.expect(f"the offset of {what}", self.at(path.offset), self.at(call.offset))
        memory = self.memories.setdefault(path.storage, call.memory)
        if memory is not call.memory or memory.is_operand != path.memory.is_operand:
            raise Differs(f"{what}: a call with plain integers has other memory")
        if path.memory.is_operand:
            self.expect(f"the operand of {what}", path.memory.name, call.memory.name)


def _compare(
    path: Path,
    sizes: PlainSizes,
    launches: list[PlainLaunch],
    watch: Watch,
    results: list[Any] | Exception,
) -> None:
    """Compare a path with a call. Raises Differs."""
    comparison = _Comparison(sizes.values, {})
    if path.failed is not None:
        if not isinstance(results, Exception):
            raise Differs(f"a call with plain integers returns, where the path {path.failed}")
        return
    if isinstance(results, Exception):
        is_ours = not isinstance(results, NotKnown)  # a tensor of an earlier call
        raise Differs(f"a call with plain integers raises {format_error(results)}", is_ours)
    names = [x.kernel for x in path.launches], [x.kernel for x in launches]
    comparison.expect("launches", *(", ".join(x) or "none" for x in names))
    for traced, launch in zip(path.launches, launches, strict=True):
        _compare_launches(comparison, traced, launch)
    comparison.expect("results", len(path.results), len(results))
    for i, (expected, got) in enumerate(zip(path.results, results, strict=True)):
        comparison.compare("c" if len(results) == 1 else f"result[{i}]", expected, got)
    numbers = [x.number for x in comparison.memories.values()]
    if len(set(numbers)) < len(numbers):
        raise Differs("a call with plain integers has the same memory for two tensors")


def _compare_launches(comparison: _Comparison, traced: TracedLaunch, launch: PlainLaunch) -> None:
    name = traced.kernel
    if not all(hasattr(n, "__index__") for n in launch.grid):
        raise Differs(f"{name}: a call with plain integers has the grid {launch.grid}")
    grid = tuple(map(comparison.at, traced.grid))
    comparison.expect(f"{name}: the grid", grid, tuple(int(n) for n in launch.grid))
    named = [*zip(traced.parameters, traced.arguments, strict=True), *traced.constants.items()]
    for parameter, value in named:
        if parameter not in launch.arguments:
            raise Differs(f"{name}: a call with plain integers has no {parameter}")
        comparison.compare(f"{name}: {parameter}", value, launch.arguments[parameter])
    for option, value in launch.options.items():
        comparison.expect(f"{name}: {option}", traced.options[option], value)

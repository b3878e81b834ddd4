"""Launches of a wrapper that runs over symbolic sizes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from triton.compiler.compiler import make_backend
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmproof.reference.simulation import CompileError
from gemmproof.reference.simulator.call import EMPTY
from gemmproof.reference.simulator.launch import Kernel, intercept_launches
from gemmproof.reference.symbolic.terms import Atom, Poly, eq, every, le, term, walk
from gemmproof.reference.symbolic.tracing.host_values import as_before
from gemmproof.reference.symbolic.tracing.memory_layouts import are_dense, lay_out
from gemmproof.reference.symbolic.tracing.symbolic_shapes import Decisions, here
from gemmproof.reference.symbolic.tracing.trace import (
    HostDescriptor,
    Memory,
    NotKnown,
    SizedFloat,
    Symbolic,
    TensorView,
    TorchCall,
    TracedLaunch,
)
from gemmproof.reference.triton_frontend import identify, make_ttir
from gemmproof.reference.triton_hooks import Choices, TunedLaunch, intercept, swap
from gemmproof.reference.ttir import TORCH, Function, ReadError, read_module

# -- stand-ins for Triton's types ----------------------------------------------------------------
_GENERIC = 37


class SizeStandIn(int):
    """A stand-in for an integer that depends on the sizes; it carries the original."""

    original: Any

    def __new__(cls, original: Any) -> SizeStandIn:
        instance = super().__new__(cls, _GENERIC)
        instance.original = original
        return instance


class FloatStandIn(float):
    """A stand-in for a float that depends on the sizes."""

    original: Any

    def __new__(cls, original: Any) -> FloatStandIn:
        instance = super().__new__(cls, 0.75)
        instance.original = original
        return instance


class TensorStandIn:
    """A stand-in for a tensor: its type and an address."""

    def __init__(self, original: Any) -> None:
        self.original, self.dtype = original, original.dtype

    @staticmethod
    def data_ptr() -> int:
        return 4096

    @staticmethod
    def ptr_range() -> int:
        return 1 << 40  # beyond 32 bits, so that nothing is assumed


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with each leaf of its tuples changed; a named tuple keeps its type."""
    if isinstance(value, tuple | list):
        items = [_map(item, change) for item in value]
        kind = type(value)
        return kind(*items) if hasattr(value, "_fields") else kind(items)
    return change(value)


def _map_values(named: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: _map(x, change) for name, x in named.items()}


def stand_in(value: Any) -> Any:
    """Return a launch argument as the binder takes it."""
    return _map(value, _stand_in)


def _stand_in(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        return SizeStandIn(value)
    if isinstance(value, torch.SymBool):
        return bool(value)
    if isinstance(value, torch.SymFloat):
        return FloatStandIn(value)
    if isinstance(value, torch.Tensor) or isinstance(getattr(value, "base", None), torch.Tensor):
        if not isinstance(value, TensorDescriptor):
            return TensorStandIn(value)
        duplicate = copy.copy(value)
        duplicate.base = TensorStandIn(value.base)
        duplicate.original = value
        return duplicate
    return value


def restore(value: Any) -> Any:
    """Return the original of a value that `stand_in` returned."""
    return _map(value, lambda x: getattr(x, "original", x))


# -- memory of the wrapper -----------------------------------------------------------------------
# allocations, for which torch asks only for the size in bytes
_SIZED = EMPTY | {f"aten::{name}" for name in ("zeros", "ones", "full", "new_zeros", "new_full")}
_RESIZING = ("aten::resize_", "aten::resize_as_")
_ALIGNED = 512  # CUDA's allocator
_OFFSET = 64  # of an operand in its allocation, in the first run


class Watch(TorchDispatchMode):
    """Records torch's operations on tensors, and every memory's own view.

    It stands for the session of a simulated call.
    """

    configs = written = 1
    tries = sampled = False
    terms = None

    def __init__(self, sizes: Decisions, target: str | None, config: int) -> None:
        super().__init__()
        self.sizes, self.target = sizes, f"symbolic {target}"
        # the symbols of all tensors of this call
        self.env: Any = sizes
        self.choices, self.chosen = Choices(config), (0, 0)
        self.launches: list[TracedLaunch] = []
        self.variants: dict[int, list[TracedLaunch]] = {}
        self.operations: list[TorchCall] = []
        self.tuning = 0  # number of Triton's tuners that are running
        self._memories: dict[int, Memory] = {}
        self._defined: set[int] = set()
        self._viewed: set[int] = set()
        # a freed tensor's storage number is reused for the next
        self._kept: list[torch.Tensor] = []

    def save(self) -> tuple[Any, ...]:
        """Return the state so far; operations but launches only change its last two items."""
        counted = len(self.launches), len(self.operations)
        return (*counted, self.sizes.failure), len(self._memories), frozenset(self._defined)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Discard what was recorded since."""
        (launches, operations, self.sizes.failure), _, defined = saved
        del self.launches[launches:], self.operations[operations:]
        self._defined = set(defined)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler (2 s) to switch it off

    def operand(self, name: str, declared: Symbolic) -> torch.Tensor:
        """Return a tensor without elements, as the operand is declared."""
        shape = [self.sizes.integer(n) for n in declared.shape]
        strides = [self.sizes.integer(n) for n in declared.strides]
        self.sizes.sizing = True
        try:
            tensor = torch.empty_strided(shape, strides, dtype=declared.dtype, device="cuda")
            atom = Atom("symbol", f"offset of {name}", is_natural=True)
            tensor = tensor.as_strided(shape, strides, self.sizes.symbol(atom, _OFFSET))
        finally:
            self.sizes.sizing = False
        dtype, own = TORCH[str(declared.dtype)], (declared.shape, declared.strides)
        number = len(self._memories)
        memory = Memory(number, name, dtype, *own, is_operand=True, offset=term(atom))
        self._keep(tensor, memory)
        self._defined.add(number)
        return tensor

    def _keep(self, tensor: torch.Tensor, memory: Memory) -> None:
        self._memories[_storage(tensor)] = memory
        self._kept.append(tensor)

    def view(self, tensor: torch.Tensor, dtype: Any = None) -> TensorView:
        """Return a tensor's current view, of another `dtype` if it is read as that."""
        memory = self._memory(tensor)
        mode = getattr(tensor, "fake_mode", None)
        if mode is not None and mode.shape_env is not self.env:
            raise self.sizes.fail("a tensor that was kept from an earlier call")
        terms = self.sizes.term
        self._viewed.add(memory.number)
        return TensorView(
            memory,
            _name(dtype or tensor.dtype),
            tuple(map(terms, tensor.shape)),
            tuple(map(terms, tensor.stride())),
            terms(tensor.storage_offset()) - memory.offset,
            memory.number in self._defined,
        )

    def _memory(self, tensor: torch.Tensor, defined: bool = True) -> Memory:
        memory = self._memories.get(_storage(tensor))
        if memory is None:
            number = len(self._memories)
            shape, strides = (
                tuple(map(self.sizes.term, x)) for x in (tensor.shape, tensor.stride())
            )
            memory = Memory(number, f"workspace#{number}", _name(tensor.dtype), shape, strides)
            self._keep(tensor, memory)
            if defined:
                self._defined.add(number)
        return memory

    def address(self, tensor: torch.Tensor) -> Any:
        """Return a tensor's first byte, a symbol: operands lie anywhere, the rest is aligned."""
        memory = self._memory(tensor)
        size = tensor.element_size()
        unit = size if memory.is_operand else _ALIGNED
        atom = Atom("symbol", f"address of {memory.name}", is_natural=True)
        first = self.sizes.symbol(atom, (memory.number + 1) * 2**20 // unit)
        offset = tensor.storage_offset() - self.sizes.integer(memory.offset)
        return unit * first + offset * size

    def is_contiguous(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor's elements are contiguous, decided as one question."""
        view = self.view(tensor)
        return self.sizes.decide(are_dense(view.shape, view.strides))

    def label_results(self, result: Any) -> list[Any]:
        """Return the wrapper's results, the memories named by their positions among them."""
        leaves = tree_leaves(result)
        tensors = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        for i in tensors:
            memory = self._memory(leaves[i])
            if memory.name.startswith("workspace#"):
                memory.name = "c" if len(tensors) == 1 else f"result[{tensors.index(i)}]"
        return [self._record(x) for x in leaves]

    def _record(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return self.view(x)
        return self.sizes.term(x) if isinstance(x, torch.SymInt | torch.SymBool) else x

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, schema, sizes = kwargs or {}, func._schema, self.sizes
        before = sizes.sizing
        sizes.sizing = schema.name in _SIZED
        try:
            result = _lay_out(sizes, func, args, kwargs)
            if result is None:
                result = func(*args, **kwargs)
        finally:
            sizes.sizing = before
        tensors = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        if any(x.is_neg() or x.is_conj() for x in tensors):
            raise sizes.fail(f"{func}: a view of negated or conjugate numbers")
        written = list(_list_written(schema, args, kwargs))
        tensors += [x for x in written if all(x is not y for y in tensors)]  # some return nothing
        empty = schema.name in EMPTY
        for tensor in tensors:
            self._memory(tensor, defined=not empty)
        if schema.name in _RESIZING:
            self._resize(args[0])
        views = any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
        views |= torch.Tag.inplace_view in func.tags
        if empty or views or func.namespace == "prim" or not tensors:
            return result
        if schema.is_mutable:
            self._define(written)
        call_args, call_kwargs = tree_map(self._record, (tuple(args), kwargs))
        outputs = tuple(map(self.view, tensors))
        self.operations.append(
            TorchCall(str(func), call_args, call_kwargs, outputs, here(), self.tuning > 0)
        )
        return result

    def _resize(self, tensor: torch.Tensor) -> None:
        """Take a new size for that of the whole allocation, if nothing was done in it before."""
        memory = self._memory(tensor)
        if memory.is_operand or memory.number in self._viewed:
            raise self.sizes.fail(f"the memory of {memory.name} is resized after it was used")
        memory.shape, memory.strides = (
            tuple(map(self.sizes.term, x)) for x in (tensor.shape, tensor.stride())
        )
        self._defined.discard(memory.number)

    def _define(self, written: list[torch.Tensor]) -> None:
        """Mark memories that are written whole as defined; partial writes may not define them."""
        for tensor in written:
            view = self.view(tensor)
            own = view.owner_shape, view.owner_strides
            if (view.shape, view.strides) == own and view.offset == term(0):
                self._defined.add(view.storage)


def _lay_out(sizes: Decisions, func: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of an operation without elements, or None; an error of ours ends the path.

    The wrapper would take it for torch's own refusal, which is a RuntimeError.
    """
    try:
        return lay_out(sizes, func, args, kwargs)
    except (TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        raise sizes.fail(f"{func} is not followed: {error}") from error


def _list_written(schema: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that an operation writes to."""
    bound = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
    for argument in schema.arguments:
        if argument.alias_info and argument.alias_info.is_write:
            leaves = tree_leaves(bound.get(argument.name))
            yield from (x for x in leaves if isinstance(x, torch.Tensor))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _name(dtype: Any) -> str:
    """Return TTIR's name of a torch or Triton type, or torch's if no kernel takes the type."""
    return TORCH.get(str(dtype)) or TORCH.get(f"torch.{dtype}") or str(dtype)


READ_ON_HOST = "elements of a tensor are read on the host"


class Answers(TorchFunctionMode):
    """Answers queries on tensors without memory that torch would split into many, or cannot."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if args and isinstance(args[0], FakeTensor):
            if name == "data_ptr":
                return self.watch.address(args[0])
            if name == "resize_as_" and len(args) == 2 and not kwargs:
                return args[0].resize_(args[1].shape)
            if name == "__get__" and func.__self__ is torch.Tensor.nbytes:
                return args[0].numel() * args[0].element_size()
            if name in ("contiguous", "is_contiguous") and len(args) == 1 and not kwargs:
                dense = self.watch.is_contiguous(args[0])
                if name == "is_contiguous":
                    return dense
                with self:
                    form = torch.contiguous_format
                    return args[0] if dense else args[0].clone(memory_format=form)
        try:
            return func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            # kept: the wrapper may catch it
            raise self.watch.sizes.fail(f"{READ_ON_HOST} ({error.func})") from error


# -- launches ------------------------------------------------------------------------------------
_MOST_MODULES = 256
_modules: dict[str, tuple[str, dict[str, Function]]] = {}


@dataclass(frozen=True, slots=True)
class _Text:
    """A kernel's TTIR, for callers that inspect the compiled kernel."""

    text: str


class TracedKernel(Kernel):
    """The stand-in for a compiled kernel, which records its launches in the running trace."""

    def __init__(self, src: Any, target: Any, options: Any, compiled: Any) -> None:
        text, self.functions = compiled
        super().__init__(src, target, options, cast(Any, _Text(text)))

    @property
    def compiled(self) -> NoReturn:
        """Refuse: sizes decide how a kernel is specialised, and so its registers."""
        watch = cast(Watch, self.session)
        raise watch.sizes.fail(f"{self.name}: its compiled code is queried, which sizes decide")

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> Any:
        return None

    def run(
        self, x: Any, y: Any, z: Any, stream: Any, function: Any, packed: Any,
        metadata: Any, enter: Any, exit: Any, *args: Any,
    ) -> None:  # fmt: skip
        _note(self, (x, y, z), args)


def compile_traced(src: Any, target: Any = None, options: Any = None, **_: Any) -> TracedKernel:
    """Compile a specialisation, in place of Triton's compiler."""
    backend = make_backend(target)
    given = dict(options or {})
    parsed = backend.parse_options({**given, "debug": True, "sanitize_overflow": False})
    key = f"{identify(src)} {target} {parsed}"
    if key not in _modules:
        try:
            with swap(as_before()):  # no size gets this far, and all of it checks types
                text = make_ttir(src, target, parsed)
                _modules[key] = text, read_module(text)
        except ReadError as error:
            raise NotKnown(f"{src.fn.__name__}: TTIR that is not understood: {error}") from None
        if len(_modules) > _MOST_MODULES:
            _modules.pop(next(iter(_modules)))
    return TracedKernel(src, target, backend.parse_options(given), _modules[key])


@contextmanager
def trace_launches(watch: Watch) -> Iterator[None]:
    """Record every launch of a Triton kernel in `watch` while active; none runs."""

    def run(original: Any, kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        constants = {p.name for p in kernel.params if p.is_constexpr}
        order = zip(kernel.arg_names, args, strict=False)
        positional = [_settle(watch.sizes, kernel, n, x) if n in constants else x for n, x in order]
        positional += args[len(positional) :]
        keywords = {
            name: x if name in kernel.arg_names and name not in constants
            else _settle(watch.sizes, kernel, name, x)
            for name, x in kwargs.items()
        }  # fmt: skip
        for hook in kernel.pre_run_hooks:
            hook(*positional, **keywords)

        def symbolic(bound: Any) -> Any:
            return grid({name: restore(x) for name, x in bound.items()})

        def compile_with(ones: set[Poly]) -> None:
            def change(x: Any) -> Any:
                is_one = type(x) is torch.SymInt and watch.sizes.term(x) in ones
                return 1 if is_one else _stand_in(x)

            given, named = _map(tuple(positional), change), _map_values(keywords, change)
            original(kernel, *given, grid=(1,), warmup=True, **named)

        with swap([(kernel, "pre_run_hooks", [])]):
            _refuse_ones(watch.sizes, (positional, *keywords.values()), compile_with)
            return original(
                kernel,
                *map(stand_in, positional),
                grid=symbolic if callable(grid) else grid,
                warmup=warmup,
                **_map_values(keywords, _stand_in),
            )

    def tune(launch: TunedLaunch) -> Any:
        watch.tuning += 1
        try:
            return launch.choose()
        finally:
            watch.tuning -= 1

    def prune(original: Any, tuner: Any, kwargs: Any, *args: Any) -> Any:
        """Require that its key decides what a tuner prunes: later calls may reuse its choice."""
        first = len(watch.sizes.decisions)
        configs = original(tuner, kwargs, *args)
        named = {**tuner.nargs, **kwargs}
        keys = [x for name in tuner.keys if type(x := named.get(name)) is torch.SymInt]
        known = {watch.sizes.term(x).atom for x in keys}
        for cond, where in watch.sizes.decisions[first:]:
            unknown = [x for x in walk(cond) if x.is_leaf and x not in known]
            if unknown and len(tuner.configs) > 1:
                name = unknown[0].args[0]
                raise watch.sizes.fail(f"a tuner prunes by {name}, which its key lacks", where)
        return configs

    def next_power_of_2(original: Any, n: Any) -> Any:
        """Decide between the powers, so that each is a path."""
        if not isinstance(n, torch.SymInt):
            return original(n)
        size, power = watch.sizes.term(n), 1
        if watch.sizes.decide(le(size, 0)):
            return 0
        while not watch.sizes.decide(le(size, power)):
            power *= 2
        return power

    def describe(original: Any, descriptor: Any) -> None:
        if isinstance(descriptor.base, FakeTensor):  # which Triton exempts
            assert descriptor.base.data_ptr() % 16 == 0, "base must be 16-byte aligned"
        original(descriptor)

    with (
        intercept(
            launch=run, tune=tune, prune=prune, next_power_of_2=next_power_of_2, describe=describe
        ),
        intercept_launches(cast(Any, watch), compile_traced),
        intercept(tune=lambda launch: _try_all(watch, launch)),
    ):
        yield


def _try_all(watch: Watch, launch: TunedLaunch) -> Any:
    """Make a launch in the chosen configuration, and record it in each other one.

    If a hook does more than set arguments, or a configuration is refused, these get separate runs
    of the wrapper. The chosen one comes last again, as after tuning.
    """
    first, done = len(watch.launches), len(watch.operations)
    result = launch.choose()
    configs, chosen = watch.configs, watch.chosen[1]
    if watch.tuning or configs < 2 or len(watch.operations) > done + 1:
        return result
    before = watch.save()
    try:
        for config in (*range(configs), chosen):
            watch.choices.forced = config
            launch.choose()
        if watch.save()[1:] == before[1:] and len(watch.operations) == done + configs + 2:
            watch.variants[first] = watch.launches[first + 1 : -1]
    except Exception:
        watch.variants.pop(first, None)
    watch.choices.forced = None
    watch.restore(before)
    return result


def _refuse_ones(
    sizes: Decisions, arguments: Any, compile_with: Callable[[set[Poly]], None]
) -> None:
    """Decide whether arguments are 1 that Triton refuses to compile as the constant 1.

    It refuses what constants lack: `K.to(tl.int64)`. Raises CompileError where they are.
    """
    terms = [sizes.term(x) for x in tree_leaves(arguments) if type(x) is torch.SymInt]
    ones = {x for x in terms if x.constant is None and sizes.known.implies(eq(x, 1)) is not False}
    refused = _find_refusals([ones] if ones else [], compile_with)
    alone = _find_refusals([{x} for x in terms if x in ones] if refused else [], compile_with)
    for chosen, error in alone or refused:
        if sizes.decide(every(eq(x, 1) for x in chosen)):
            raise error


def _find_refusals(
    choices: list[set[Poly]], compile_with: Callable[[set[Poly]], None]
) -> list[tuple[set[Poly], CompileError]]:
    refused = []
    for ones in choices:
        try:
            compile_with(ones)
        except CompileError as error:
            refused.append((ones, error))
    return refused


def _settle(sizes: Decisions, kernel: Any, name: str, value: Any) -> Any:
    """Return a constant of a kernel, which must be a number; a comparison is decided."""
    if isinstance(value, torch.SymBool):
        return bool(value)
    if isinstance(value, torch.SymInt):
        what = sizes.term(value)
        number = sizes.number(what)
        if number is None:
            message = f"{kernel.fn.__name__}: {name} is {what}, made a constant by the launch"
            raise sizes.fail(message)
        return number
    if isinstance(value, torch.SymFloat):
        raise sizes.fail(f"{kernel.fn.__name__}: {name} is a float that the sizes decide")
    if isinstance(value, tuple):
        items = [_settle(sizes, kernel, name, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _note(kernel: TracedKernel, grid: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    watch, src = cast(Watch, kernel.session), kernel.src
    name = kernel.name
    if any(isinstance(n, float | torch.SymFloat) for n in grid):
        raise watch.sizes.fail(f"{name}: a grid of floats")
    sizes = cast(tuple[Poly, Poly, Poly], tuple(watch.sizes.term(n) for n in grid))
    named = [
        leaf
        for parameter, value in zip(src.fn.arg_names, args, strict=True)
        for leaf in _flatten(watch, parameter, value, src.signature[parameter])
    ]
    public = next(f for f in kernel.functions.values() if f.public)
    if len(public.args) != len(named):
        message = f"{name}: {len(named)} arguments for {len(public.args)} parameters"
        raise watch.sizes.fail(message)
    where = here()
    watch.launches.append(
        TracedLaunch(
            name,
            kernel.functions,
            [parameter for parameter, _ in named],
            [argument for _, argument in named],
            sizes,
            {_parameter(src, k): getattr(x, "value", x) for k, x in src.constants.items()},
            {k: getattr(kernel.metadata, k) for k in ("num_warps", "num_stages", "num_ctas")},
            where,
            watch.chosen[1],
            watch.configs,
            watch.chosen[0],
            frozenset(x.name for x in src.fn.params if x.annotation_type),
        )
    )
    watch.operations.append(TorchCall("launch", (len(watch.launches) - 1,), {}, (), where))


def _parameter(src: Any, path: tuple[int, ...]) -> str:
    """Return the name of a parameter, or of an item of a parameter that is a tuple."""
    return str(src.fn.arg_names[path[0]]) + "".join(f"[{i}]" for i in path[1:])


def _flatten(watch: Watch, name: str, value: Any, signature: Any) -> Iterator[tuple[str, Any]]:
    """Yield what the kernel's function takes for one parameter: nothing, one item, or several."""
    if signature == "constexpr":
        return
    if isinstance(signature, tuple):
        for i, (item, inner) in enumerate(zip(value, signature, strict=True)):
            yield from _flatten(watch, f"{name}[{i}]", item, inner)
        return
    original = restore(value)
    if str(signature).startswith("tensordesc"):
        shape, strides = (
            tuple(map(watch.sizes.term, x)) for x in (original.shape, original.strides)
        )
        tensor, padding = watch.view(original.base), str(getattr(original, "padding", "zero"))
        yield name, HostDescriptor(tensor, shape, strides, tuple(original.block_shape), padding)
        yield from ((f"{name}.shape[{i}]", n) for i, n in enumerate(shape))
        yield from ((f"{name}.strides[{i}]", n) for i, n in enumerate(strides))
    elif str(signature).startswith("*"):
        base = original if isinstance(original, torch.Tensor) else original.base
        yield name, watch.view(base, original.dtype)
    elif isinstance(value, SizeStandIn):
        yield name, watch.sizes.term(original)
    elif isinstance(value, FloatStandIn):
        yield name, SizedFloat(str(original))
    else:
        yield name, float(value) if isinstance(value, float) else term(int(value))

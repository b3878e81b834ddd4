"""What a traced wrapper does to tensors: torch's operations in order, and whose memory is whose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from gemmproof.reference.simulator.call import EMPTY
from gemmproof.reference.symbolic.terms import Atom, term
from gemmproof.reference.symbolic.wrapper.decisions import Decisions, here
from gemmproof.reference.symbolic.wrapper.layouts import are_dense, lay_out
from gemmproof.reference.symbolic.wrapper.record import (
    Memory,
    Symbolic,
    TensorView,
    TorchCall,
    TracedLaunch,
)
from gemmproof.reference.ttir.dtypes import TORCH

# allocations, of which torch asks no more than how many bytes they take
_SIZED = EMPTY | {f"aten::{name}" for name in ("zeros", "ones", "full", "new_zeros", "new_full")}
_ALIGNED = 512  # CUDA's allocator
_OFFSET = 64  # of an operand in its allocation, in the first run


class Watch(TorchDispatchMode):
    """Notes torch's operations on tensors, and keeps every memory's own view."""

    def __init__(self, sizes: Decisions) -> None:
        super().__init__()
        self.sizes = sizes
        self.launches: list[TracedLaunch] = []
        self.variants: dict[int, list[TracedLaunch]] = {}
        self.operations: list[TorchCall] = []
        self.tuning = 0  # how many of Triton's tuners are running
        self._memories: dict[int, Memory] = {}
        self._defined: set[int] = set()
        # a tensor that is let go gives its storage's number to the next
        self._kept: list[torch.Tensor] = []

    def save(self) -> tuple[Any, ...]:
        """What was noted so far; the last two are all that operations leave but launches."""
        counted = len(self.launches), len(self.operations)
        return (*counted, self.sizes.failure), len(self._memories), frozenset(self._defined)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Forget what was noted since."""
        (launches, operations, self.sizes.failure), _, defined = saved
        del self.launches[launches:], self.operations[operations:]
        self._defined = set(defined)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler (2 s) to switch it off

    def operand(self, name: str, declared: Symbolic) -> torch.Tensor:
        """A tensor without elements as the operand is declared."""
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
        """A tensor as it is now; `dtype` where it is read as another one."""
        memory = self._memory(tensor)
        mode = getattr(tensor, "fake_mode", None)
        if mode is not None and mode.shape_env is not self.sizes:
            raise self.sizes.fail("a tensor that was kept from an earlier call")
        terms = self.sizes.term
        return TensorView(
            memory,
            _name(dtype or tensor.dtype),
            tuple(map(terms, tensor.shape)),
            tuple(map(terms, tensor.stride())),
            terms(tensor.storage_offset()) - memory.offset,
            memory.number in self._defined,
        )

    def _memory(self, tensor: torch.Tensor, defined: bool = True) -> Memory:
        found = self._memories.get(_storage(tensor))
        if found is None:
            number = len(self._memories)
            shape, strides = (
                tuple(map(self.sizes.term, x)) for x in (tensor.shape, tensor.stride())
            )
            found = Memory(number, f"workspace#{number}", _name(tensor.dtype), shape, strides)
            self._keep(tensor, found)
            if defined:
                self._defined.add(number)
        return found

    def address(self, tensor: torch.Tensor) -> Any:
        """A tensor's first byte, which is a symbol: operands lie anywhere, the rest is aligned."""
        memory = self._memory(tensor)
        size = tensor.element_size()
        unit = size if memory.is_operand else _ALIGNED
        atom = Atom("symbol", f"address of {memory.name}", is_natural=True)
        first = self.sizes.symbol(atom, (memory.number + 1) * 2**20 // unit)
        offset = tensor.storage_offset() - self.sizes.integer(memory.offset)
        return unit * first + offset * size

    def is_contiguous(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's elements follow each other, decided as one question."""
        view = self.view(tensor)
        return self.sizes.decide(are_dense(view.shape, view.strides))

    def name_results(self, result: Any) -> list[Any]:
        """What the wrapper returned, with the memories named by their places in it."""
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
            result = lay_out(sizes, func, args, kwargs)
            if result is None:
                result = func(*args, **kwargs)
        finally:
            sizes.sizing = before
        made = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        written = list(_list_written(schema, args, kwargs))
        made += [x for x in written if all(x is not y for y in made)]  # some return nothing
        empty = schema.name in EMPTY
        for tensor in made:
            self._memory(tensor, defined=not empty)
        views = any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
        if empty or views or func.namespace == "prim" or not made:
            return result
        if schema.is_mutable:
            self._define(written)
        given, named = tree_map(self._record, (tuple(args), kwargs))
        outputs = tuple(map(self.view, made))
        self.operations.append(TorchCall(str(func), given, named, outputs, here(), self.tuning > 0))
        return result

    def _define(self, written: list[torch.Tensor]) -> None:
        """A write to all of a memory defines it; to a part of it, it may not."""
        for tensor in written:
            view = self.view(tensor)
            own = view.owner_shape, view.owner_strides
            if (view.shape, view.strides) == own and view.offset == term(0):
                self._defined.add(view.storage)


def _list_written(schema: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """The tensors that an operation writes to."""
    given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
    for argument in schema.arguments:
        if argument.alias_info and argument.alias_info.is_write:
            leaves = tree_leaves(given.get(argument.name))
            yield from (x for x in leaves if isinstance(x, torch.Tensor))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _name(dtype: Any) -> str:
    """TTIR's name of a torch or Triton type; a type that no kernel takes keeps torch's."""
    return TORCH.get(str(dtype)) or TORCH.get(f"torch.{dtype}") or str(dtype)


class Answers(TorchFunctionMode):
    """Answers for tensors without memory what torch would ask in many questions, or cannot."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if args and isinstance(args[0], FakeTensor):
            if name == "data_ptr":
                return self.watch.address(args[0])
            if name in ("contiguous", "is_contiguous") and len(args) == 1 and not kwargs:
                dense = self.watch.is_contiguous(args[0])
                if name == "is_contiguous":
                    return dense
                with self:
                    form = torch.contiguous_format
                    return args[0] if dense else args[0].clone(memory_format=form)
        return func(*args, **kwargs)

"""The writers of memory: a launched kernel, or an operation of torch or Python on the host.

Each byte of each storage has a mark, the number of its last writer. Copies carry the marks over.
An operation that computes gives its result one mark, which follows from those of its operands.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from gemmproof.reference.fake_cuda.tensors import count_replays
from gemmproof.reference.provenance import calling_line, owner
from gemmproof.reference.simulation import NOWHERE, HostWork, Where
from gemmproof.reference.simulator.memory import (
    AddressSpace,
    Storage,
    StridedView,
    iter_dense,
    view_of,
)

# -- operators -----------------------------------------------------------------------------------
# Operators that move or convert elements and compute nothing.
_COPIES = re.compile(
    r"clone|copy|to_copy|cat|stack|index|index_select|index_copy|index_put|gather|take"
    r"|take_along_dim|masked_select|masked_fill|masked_scatter|where|scatter|\w+_scatter"
    r"|constant_pad_nd|repeat|repeat_interleave|flip|roll|tril|triu|embedding|index_fill|fill|zero"
)
# Arguments of these that hold elements; the others are indices, conditions and numbers.
_ELEMENTS = ("self", "src", "source", "values", "tensors", "other", "input", "weight", "value")
# Operators whose result does not depend on the previous elements of the memory that they write.
_OVERWRITES = ("copy", "fill", "zero")
# Operators that fill with a number among their arguments.
_FILLS = ("fill", "full", "full_like", "new_full", "index_fill", "scalar_tensor")
# Operators that take no more than the shape and the type of a tensor.
_CREATES = re.compile(r"(new_)?(empty|zeros|ones|full|rand)(_?\w+)?")
_SUMS = frozenset(["add", "sum", "index_add", "scatter_add", "segment_reduce"])
_REDUCTIONS = frozenset(["sum", "mean", "cumsum", "nansum"])
_PRODUCTS = re.compile(
    r"\w*mm|addmv|mv|v?dot|addr|ger|outer|inner|\w*linear|\w*convolution\w*|scaled_dot_product_\w+"
)
_MULTIPLIES = ("mul", "addcmul")
_SCALES = ("mul", "div")
# Operators that change the view of a tensor or its storage, not elements.
_RESHAPES = re.compile(r"set|resize|detach|t|transpose|squeeze|unsqueeze|as_strided|requires_grad")
_READERS = ("tolist", "numpy", "__array__", "__dlpack__")  # torch hides their reads
_WRITABLE = ("numpy", "__array__", "__dlpack__")  # of these Python may write the memory
_ADDRESSES = ("data_ptr", "untyped_storage", "storage")  # with which a wrapper may do both
FACTORS = frozenset(["a", "b"])  # the operands of the product
PYTHON = "python"  # the operation of values that lists, numbers and numpy arrays brought in


def _get_operator(func: Any) -> str:
    return str(func._schema.name.rpartition("::")[2].strip("_"))


# -- writers -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ByteWriter:
    """The last writer of bytes.

    `kind` is "nothing" (fills with constants, and memory that nothing has written), "kernel",
    "earlier" (before this call), "unknown", "operand", "epilogue" (operations on what kernels
    wrote), "formula" (operations on values of operands) or "product" (a product of them). `steps`
    are the operations of an epilogue, each with its line, and the last one of the others.
    `operands` are the names of those that it depends on, `multiplied`: a is multiplied by b.
    """

    kind: str
    steps: tuple[tuple[str, Where], ...] = ()
    operands: frozenset[str] = frozenset()
    multiplied: bool = False


NOTHING, KERNEL, EARLIER, UNKNOWN = range(4)
_KEPT = "memory of an earlier call"
_FIXED = (
    *(
        ByteWriter("nothing"),
        ByteWriter("kernel"),
        ByteWriter("earlier", operands=frozenset([_KEPT])),
    ),
    ByteWriter("unknown"),
)
_MOST_WRITERS = 255
_MOST_STEPS = 8  # of an epilogue that are told apart
_HARMLESS = ("nothing", "kernel", "operand")
MOST_MARKED = 2**28  # bytes of a storage; the writers of parts of a larger one are unknown


@dataclass(slots=True)
class Writers:
    """The writers of one call.

    `stored` is the mark of what the current launch stores, `argument_marks` are those of what it is
    called with. `read` are the marks of the values that Python has read, `exposed` the storages
    that it may write, each with its bytes after the last operation that was observed and the line
    that made it an array. `replays` is the number of replays of graphs before the call.
    """

    memory: AddressSpace
    known: list[ByteWriter] = field(default_factory=lambda: list(_FIXED))
    stored: int = KERNEL
    argument_marks: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    exposed: dict[Storage, tuple[np.ndarray, Where]] = field(default_factory=dict)
    replays: int = field(default_factory=count_replays)

    def number(self, writer: ByteWriter) -> int:
        """Return a writer's mark."""
        if writer not in self.known:
            if len(self.known) > _MOST_WRITERS:
                return UNKNOWN
            self.known.append(writer)
        return self.known.index(writer)

    def add_operand(self, name: str, storage: Storage) -> None:
        """Mark the memory of an operand, unless it shares that of another one."""
        if storage.writer is None:
            storage.writer = self.number(ByteWriter("operand", operands=frozenset([name])))

    # -- marks ---------------------------------------------------------------------------------
    def marks_of(self, tensor: torch.Tensor) -> set[int]:
        """Return the marks of a tensor's elements."""
        if not tensor.numel():
            return set()
        return self._marks_in(self.memory.storage_of(tensor), view_of(tensor))

    def _marks_in(self, storage: Storage, view: StridedView) -> set[int]:
        if storage.marks is None:
            return {EARLIER if storage.writer is None else storage.writer}
        marks = storage.elements_of(storage.marks, view)[..., 0]
        return {mark for mark in range(len(self.known)) if (marks == mark).any()}

    def mark(self, tensor: torch.Tensor, marks: int | torch.Tensor) -> None:
        """Set the marks of a tensor's elements, all alike or each its own."""
        storage = self.memory.storage_of(tensor)
        if not tensor.numel():
            return
        whole = tensor.numel() * tensor.element_size() == storage.data.size
        if isinstance(marks, int) and whole and tensor.is_contiguous():
            storage.writer, storage.marks = marks, None
        elif isinstance(marks, int) and self.marks_of(tensor) == {marks}:
            return
        elif (spread := _spread(storage)) is not None:
            flags = storage.elements_of(spread, view_of(tensor))
            flags[...] = marks if isinstance(marks, int) else marks.numpy()[..., None]

    def mark_store(self, storage: Storage, index: np.ndarray, size: int) -> None:
        """Mark elements, each of `size` bytes, that a kernel stored."""
        if storage.marks is None and storage.writer == self.stored:
            return
        if (spread := _spread(storage)) is not None:
            n = storage.data.size // size
            every_byte = int.from_bytes(bytes([self.stored]) * size, "little")
            spread[: n * size].view(f"u{size}")[index] = every_byte

    # -- launches ------------------------------------------------------------------------------
    def begin_launch(self, operands: list[Any]) -> None:
        """Choose the mark of what a launch stores: its own if it takes a product of the host."""
        self.settle(operand.storage for operand in operands)
        self.stored, self.argument_marks = KERNEL, set()
        for operand in operands:
            if operand.view.span:
                self.argument_marks |= self._marks_in(operand.storage, operand.view)
        if "product" in self._kinds(self.argument_marks) and len(self.known) <= _MOST_WRITERS:
            self.stored = len(self.known)
            self.known.append(self.known[KERNEL])

    def end_launch(self, computes: bool) -> None:
        """End a launch. A kernel that `computes` no product passes on that of the host."""
        if self.stored != KERNEL:
            arguments = (self.known[mark] for mark in sorted(self.argument_marks))
            steps = [step for x in arguments if x.kind == "product" for step in x.steps]
            alone = not computes and "kernel" not in self._kinds(self.argument_marks)
            kind = "product" if alone else "epilogue"
            self.known[self.stored] = ByteWriter(kind, tuple(dict.fromkeys(steps)))
        self.stored = KERNEL
        self.refresh(self.exposed)

    def _kinds(self, marks: Iterable[int]) -> set[str]:
        return {self.known[mark].kind for mark in marks}

    # -- Python --------------------------------------------------------------------------------
    def expose(self, tensor: torch.Tensor, writable: bool) -> None:
        """Record that Python reads a tensor, and that it may write it through an array."""
        self.read |= self.marks_of(tensor)
        storage = self.memory.storage_of(tensor)
        # what is written to an operand is another property's
        if writable and not storage.views and storage not in self.exposed:
            self.exposed[storage] = storage.data.copy(), calling_line()

    def settle(self, storages: Iterable[Storage]) -> None:
        """Mark the bytes that Python has changed through an array."""
        for storage in self.exposed.keys() & set(storages):
            before, where = self.exposed[storage]
            changed = storage.data != before
            if changed.any() and (spread := _spread(storage)) is not None:
                spread[changed] = self._from_python(where)
            self.refresh([storage])

    def refresh(self, storages: Iterable[Storage]) -> None:
        """Record the bytes that Python may change, as an observed operation left them."""
        for storage in storages:
            if storage in self.exposed:
                self.exposed[storage][0][...] = storage.data

    def _from_python(self, where: Where | None = None) -> int:
        """Return the mark of values from Python, which may depend on all that it has read.

        They continue what it has read of a kernel's, unless it has read both factors.
        """
        read = [self.known[mark] for mark in sorted(self.read) if mark != NOTHING]
        kinds = {writer.kind for writer in read}
        if not kinds or "unknown" in kinds:
            return UNKNOWN if kinds else NOTHING
        operands = frozenset[str]().union(*(writer.operands for writer in read))
        continues = kinds & {"kernel", "epilogue"} and not FACTORS <= operands
        steps = ((PYTHON, where or calling_line()),)
        return self.number(ByteWriter("epilogue" if continues else "formula", steps, operands))

    # -- operators of torch ----------------------------------------------------------------------
    def begin_operator(self, args: Any, kwargs: Any) -> None:
        """Mark what Python has changed of an operator's arguments."""
        if self.exposed:
            self.settle(self._storages((args, kwargs)))

    def _storages(self, values: Any) -> set[Storage]:
        return {self.memory.storage_of(x) for x in _tensors(values)}

    def note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Mark what an operator of torch has written."""
        schema, name = func._schema, _get_operator(func)
        named = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
        if name == "lift_fresh":  # torch's own mark of a tensor made of a list or an array
            self._lift(args[0])
            return
        if name == "local_scalar_dense":
            if args[0].dtype != torch.bool:  # the outcome of a test
                self.read |= self.marks_of(args[0])
            return
        if _RESHAPES.fullmatch(name) or (
            not schema.is_mutable and any(r.alias_info for r in schema.returns)
        ):
            return
        written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        targets = list(_tensors([named.get(key) for key in written]))
        outs = [key for key in written if key != "self" or name in _OVERWRITES]
        given = {key: x for key, x in named.items() if key not in outs}
        if not schema.is_mutable:
            storages = self._storages(list(given.values()))
            targets = [x for x in _tensors(result) if self.memory.storage_of(x) not in storages]
        if targets:
            self._write(func, name, named, given, targets)
            self.refresh(self._storages(targets))

    def _write(
        self, func: Any, name: str, named: Any, given: Any, targets: list[torch.Tensor]
    ) -> None:
        """Mark the targets of an operator; `given` are those of its arguments that it reads."""
        number = self._filled(name, given)
        if _COPIES.fullmatch(name) and not given.get("accumulate"):
            data = [x for key, x in given.items() if key in _ELEMENTS]
            marks = {m for x in _tensors(data) for m in self.marks_of(x)}
            if number is not None:
                marks.add(number)
            if len(marks) > 1 and any(self.known[m].kind not in _HARMLESS for m in marks):
                moved = self._move(func, name, named, number or NOTHING)
                for i, target in enumerate(targets):
                    self.mark(target, UNKNOWN if moved is None else moved[i])
                return
            number = self._pick(marks)
        elif number is None:
            parts = [] if _CREATES.fullmatch(name) else _tensors(list(given.values()))
            tensors = [self.marks_of(x) for x in parts]
            name = "index_add" if name == "index_put" else name
            number = self._combine(name, set().union(*tensors), _count_factors(name, tensors))
        for target in targets:
            self.mark(target, number)

    def _pick(self, marks: set[int]) -> int:
        """Return the mark of copied elements: a kernel's, or else an operand's, if any."""
        kernels = (mark for mark in marks if self.known[mark].kind == "kernel")
        return next(kernels, max(marks, default=NOTHING))

    def _filled(self, name: str, given: Any) -> int | None:
        """Return the mark of a number that fills memory, or None if the operator fills with none.

        A number other than zero may be computed from values that Python has read.
        """
        keys = ("value", "fill_value", "s")
        number = next((given[k] for k in keys if isinstance(given.get(k), int | float)), None)
        if name not in _FILLS or number is None:
            return None
        return self._from_python() if number else NOTHING

    def _lift(self, tensor: torch.Tensor) -> None:
        """Mark a tensor that was made of a list, a number or an array."""
        storage = self.memory.storage_of(tensor)
        if storage.writer is None:
            storage.writer = self._from_python() if storage.data.any() else NOTHING

    def _move(self, func: Any, name: str, named: Any, number: int) -> list[torch.Tensor] | None:
        """Return the marks that a copying operator moves, by running it on marks.

        `number` is the mark of a number that it fills with. Returns None if it takes no bytes.
        """

        def swap(x: Any) -> Any:
            return self._as_tensor(x) if isinstance(x, torch.Tensor) else x

        if name in ("clone", "to_copy"):
            return [self._as_tensor(named["self"])]
        keys = (*_ELEMENTS, "out")
        swapped = {k: tree_map(swap, x) if k in keys else x for k, x in named.items()}
        for key in ("value", "fill_value"):
            if isinstance(swapped.get(key), int | float):
                swapped[key] = number
        try:
            return list(_tensors(func(**swapped)))
        except (RuntimeError, TypeError, ValueError):
            return None

    def _as_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the marks of a tensor's elements, as a tensor of the same shape."""
        storage = self.memory.storage_of(tensor)
        if storage.marks is None or not tensor.numel():
            mark = EARLIER if storage.writer is None else storage.writer
            return torch.full(tensor.shape, mark, dtype=torch.uint8)
        return torch.from_numpy(storage.elements_of(storage.marks, view_of(tensor))[..., 0].copy())

    def _combine(self, name: str, marks: Iterable[int], factors: int) -> int:
        """Return the mark of what an operation computes from values with these marks.

        `factors` is the number of its operands that are more than constants.
        """
        present = [self.known[mark] for mark in sorted(set(marks))]
        kinds = {writer.kind for writer in present} - {"nothing"}
        if not kinds:
            return NOTHING
        if "unknown" in kinds:
            return UNKNOWN
        where = calling_line()
        operands = frozenset[str]().union(*(writer.operands for writer in present))
        multiplied = any(writer.multiplied for writer in present)
        is_product = factors > 1 and _PRODUCTS.fullmatch(name) is not None
        if is_product or (multiplied and name in _REDUCTIONS):
            return self.number(ByteWriter("product", ((name, where),), operands))
        has_kernel = bool(kinds & {"kernel", "epilogue"})
        if "product" in kinds and not (has_kernel and name in _SCALES):
            return self.number(next(writer for writer in present if writer.kind == "product"))
        if has_kernel:
            kept = ("epilogue", "product")
            steps = [step for w in present if w.kind in kept for step in w.steps]
            if name not in _SUMS or not kinds <= {"kernel", "epilogue"}:
                steps.append((name, where))
            if not steps:
                return KERNEL
            last = tuple(dict.fromkeys(steps))[-_MOST_STEPS:]
            return self.number(ByteWriter("epilogue", last, operands))
        multiplied |= name in _MULTIPLIES and factors > 1 and FACTORS <= operands
        return self.number(ByteWriter("formula", ((name, where),), operands, multiplied))

    # -- results -------------------------------------------------------------------------------
    def list_work(self, name: str, tensor: torch.Tensor) -> list[HostWork] | None:
        """Return what the host computed of a result, by operation and line; None if unknown."""
        self.settle([self.memory.storage_of(tensor)])
        if self.replays != count_replays():  # a graph that ran again wrote what was not observed
            return None
        marks = self._as_tensor(tensor).numpy()
        work: list[HostWork] = []
        for mark in sorted(self.marks_of(tensor)):
            writer = self.known[mark]
            if writer.kind == "unknown":
                return None
            if writer.kind in _HARMLESS:
                continue
            kind = writer.kind
            if kind == "formula" and not writer.operands & {*FACTORS, _KEPT}:
                kind = "epilogue"  # a bias or a residual where kernels store nothing
            for operation, where in writer.steps or (("", NOWHERE),):
                work.append(HostWork(kind, name, operation, where, marks == mark))
        return work


def _count_factors(name: str, tensors: list[set[int]]) -> int:
    """Return the number of operands of an operator that are more than constants."""
    factors = tensors[1:] if name.startswith(("add", "badd")) else tensors
    return sum(bool(marks - {NOTHING}) for marks in factors)


def _tensors(x: Any) -> Iterator[torch.Tensor]:
    return (t for t in iter_dense(x) if t.device.type == "cpu")


def _spread(storage: Storage) -> np.ndarray | None:
    """Return the marks of a storage, one a byte; None for a large one, whose writer is unknown."""
    if storage.data.size > MOST_MARKED:
        storage.writer = UNKNOWN
    elif storage.marks is None:
        writer = EARLIER if storage.writer is None else storage.writer
        # memory for zeros is committed as they are written
        storage.marks = np.zeros(storage.data.size, np.uint8)
        if writer != NOTHING:
            storage.marks[...] = writer
    return storage.marks


class PythonReads(TorchFunctionMode):
    """Records which values Python reads, and which memory it may write."""

    def __init__(self, writers: Writers) -> None:
        super().__init__()
        self.writers = writers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _READERS and isinstance(args[0], torch.Tensor):
            self.writers.expose(args[0], name in _WRITABLE)
        elif name in _ADDRESSES and owner(sys._getframe(1).f_code.co_filename) != "library":
            self.writers.expose(args[0], writable=True)
        return func(*args, **(kwargs or {}))

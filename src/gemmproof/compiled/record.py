"""The records of compiled launches, and the limits of a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemmproof.reference.gpus import GPU
from gemmproof.target import display_path

# -- dots ----------------------------------------------------------------------------------------
FMA = "fused multiply-adds"
UNKNOWN = "not recognised"

# parts of a worker's result: what is to be compiled; a launch's number, and its code or a failure
PLAN, RESULT = "plan", "result"

Place = tuple[str, int, int]  # file, line, column; ("", 0, 0) if unknown
UNKNOWN_PLACE: Place = ("", 0, 0)


def format_place(location: Place) -> str:
    """Format a line for a report, "" if the compiler keeps none."""
    return f"{display_path(location[0])}:{location[1]}" if location[0] else ""


@dataclass(frozen=True, slots=True)
class DotInstruction:
    """One kind of instruction that a dot was compiled to, and its count in the program.

    `shape` is (m, n, k) of one instruction, None for a fused multiply-add or if it is not
    recognised. `a` and `b` are the formats that it multiplies, `accumulator` the one it adds in; ""
    if that is not recognised. `operands` are the sources of a and b: "registers", "shared", "tensor
    memory". `from_zero` of them begin a sum: their accumulator is the constant 0; for `or_zero`
    that is decided at run time, as in the first trip of a loop.
    """

    name: str
    unit: str
    count: int
    shape: tuple[int, int, int] | None = None
    a: str = ""
    b: str = ""
    accumulator: str = ""
    operands: tuple[str, str] = ("", "")
    from_zero: int = 0
    or_zero: int = 0

    @property
    def is_core(self) -> bool:
        """True if it is one of the tensor cores, and recognised."""
        return self.unit not in (FMA, UNKNOWN)

    @property
    def label(self) -> str:
        """The unit and the shape."""
        m, n, k = self.shape or ("?", "?", "?")
        return f"{self.unit} m{m}n{n}k{k}"


def count_instructions(instructions: Iterable[DotInstruction]) -> tuple[DotInstruction, ...]:
    """Join instructions of the same kind, in the order in which the kinds appear."""
    counts: dict[DotInstruction, list[int]] = {}
    for x in instructions:
        total = counts.setdefault(replace(x, count=0, from_zero=0, or_zero=0), [0, 0, 0])
        for i, n in enumerate((x.count, x.from_zero, x.or_zero)):
            total[i] += n
    return tuple(
        replace(kind, count=count, from_zero=from_zero, or_zero=or_zero)
        for kind, (count, from_zero, or_zero) in counts.items()
    )


@dataclass(frozen=True, slots=True)
class CompiledDot:
    """A dot of the source or of an IR, and what it was compiled to; an IR has no `instructions`.

    `where` is its line, "" if the compiler keeps none, and `column` its place in it. `asked` are
    the formats of a, b and c and `precision` the one requested for fp32 operands; `tile` is (M, N,
    K) of it, after the batch of a block. `layouts` are those of a, b and c in the optimised IR.
    `promoted`: the number of fp32 additions of a thread that add sums of the tensor cores to others
    in the loop that makes them, and `promoted_k` the elements of k that such a sum has at most;
    None if there is no such addition. `implicit`: Triton made it of a sum of products, at a line of
    its own library.
    """

    where: str
    asked: tuple[str, str, str]
    tile: tuple[int, ...]
    precision: str
    layouts: tuple[str, str, str]
    instructions: tuple[DotInstruction, ...] = ()
    promoted: int = 0
    promoted_k: int | None = None
    column: int = 0
    implicit: bool = False

    @property
    def has_cores(self) -> bool:
        """True if any instruction is one of the tensor cores, or is not recognised."""
        return any(x.unit != FMA for x in self.instructions)


@dataclass(frozen=True, slots=True)
class MultiplyAdds:
    """The fused multiply-adds of floats at one line of a kernel that has no dot."""

    where: str
    instructions: tuple[DotInstruction, ...]


# -- launches ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """Accesses of global memory of one kind at one line: `bytes` wide for a thread, 0 for a tile.

    `kind` is "load", "store", "async copy" (cp.async), "tma load", "tma store", "lds load" (into
    shared memory, AMD) or "atomic".
    """

    where: str
    kind: str
    bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class SharedBuffer:
    """A buffer in shared memory: the line that it is for, as of a load, its shape and format."""

    where: str
    shape: tuple[int, ...]
    format: str


REGISTER_BYTES = 4  # of one thread


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that a thread and a block need, by the binary's own tables and ptxas.

    `stack` is the stack frame of a thread in bytes, of which the program itself declares
    `declared`. `spill_stores` and `spill_loads` are the bytes that a thread's instructions store
    and load for lack of registers, as `ptxas -v` reports them. `shared` is the size that the launch
    requests for a block, of the `shared_limit` that the target has for it; `static_shared` is the
    one in the binary's table (from Hopper on the KiB that the system itself keeps, which the limit
    excludes); `threads` is the size of a block. `accumulation_registers`, `scalar_registers` and
    `spilled_registers` are AMD's, `tensor_memory` is Blackwell's, in columns. None if the target
    does not report it.
    """

    registers: int | None
    stack: int | None
    declared: int
    shared: int
    shared_limit: int
    threads: int | None
    static_shared: int = 0
    accumulation_registers: int | None = None
    scalar_registers: int | None = None
    spilled_registers: int | None = None
    tensor_memory: int = 0
    spill_stores: int | None = None
    spill_loads: int | None = None

    @property
    def spills(self) -> int | None:
        """Bytes per thread that are stored to memory for lack of registers, None if not known."""
        if self.spilled_registers is not None:
            return REGISTER_BYTES * self.spilled_registers
        return self.spill_stores


@dataclass(frozen=True, slots=True)
class LoweredLaunch:
    """A launch for a target: its specialisation, and all facts of its compiled code.

    `specialised` is the specialisation of each argument: "1" (a constant), "16" (divisible by it)
    or "". `configuration` is the `index`-th of `configurations` of a tuner, `grid` that of the
    first of `launches` that compile to this. `case` is the JSON of a case that makes it,
    `launched_at` the wrapper's line that launches it and `defined_at` that of the kernel's `def`.

    `error` is the compiler's own message if there is no code, `where` the line that it names, and
    `tools_failed` whether that judges the tools and not the program; the facts are then empty.
    `dots` are those of the source with their instructions, `multiply_adds` those of a program that
    has no dot, `source_dots` and `optimised_dots` those
    of the IR before and after optimisation, `shared_buffers` the IR's buffers, of which a pipelined
    loop rotates through `buffers` (0 without). `specialised_warps`: whether some warps run other
    code than others; `has_calls`: whether the program calls a function. `binary` is the SHA-256 of
    the machine code with its tables; it and `resources` are missing if nothing was assembled.
    `seconds` is the CPU time of this compilation, none of it from a cache. `remedies`, of a
    preview: other settings that reach the tensor cores, if this dot does not.
    """

    target: str
    kernel: str
    dtype: str
    configuration: Mapping[str, Any]
    configurations: int
    grid: tuple[int, ...] | None
    launches: int
    specialised: Mapping[str, str]
    warps: int
    stages: int
    seconds: float = 0.0
    error: str = ""
    where: str = ""
    dots: tuple[CompiledDot, ...] = ()
    accesses: tuple[GlobalAccess, ...] = ()
    resources: Resources | None = None
    buffers: int = 0
    specialised_warps: bool = False
    unrecognised: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    binary: str = ""
    index: int = 0
    case: str = ""
    launched_at: str = ""
    defined_at: str = ""
    tools_failed: bool = False
    source_dots: tuple[CompiledDot, ...] = ()
    optimised_dots: tuple[CompiledDot, ...] = ()
    shared_buffers: tuple[SharedBuffer, ...] = ()
    has_calls: bool = False
    multiply_adds: tuple[MultiplyAdds, ...] = ()

    @property
    def constants(self) -> str:
        """The configuration as text."""
        return " ".join(f"{name}={x}" for name, x in self.configuration.items())

    @property
    def choice(self) -> str:
        """The configuration that a tuner chose, as text; "" if there is no choice."""
        if self.configurations < 2:
            return ""
        options = f"num_warps={self.warps} num_stages={self.stages}"
        return f"configuration {self.index}: {f'{self.constants} {options}'.lstrip()}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A launch that is not known to compile: the process that compiled it gave no answer.

    `launch` is its label and `reason` says why it has no binary; `internal`: gemmproof failed.
    """

    launch: str
    reason: str
    internal: bool = False

    def __str__(self) -> str:
        """Format the failure as a line."""
        return f"{self.launch}: not compiled: {self.reason}"


Result = LoweredLaunch | Failure


# -- limits of a GPU -----------------------------------------------------------------------------
MOST_COLUMNS = 512  # of tensor memory: PTX ISA, tcgen05.alloc


def list_excess(needs: Resources, gpu: GPU) -> Iterator[tuple[int, int, str]]:
    """Yield each need beyond its limit, with the limit and the unit."""
    threads = needs.threads or 0
    # the register file of an AMD GPU is measured in other units
    registers = 0 if gpu.is_amd else threads * (needs.registers or 0)
    for need, has, unit in (
        (needs.shared, needs.shared_limit, "bytes of shared memory"),
        (threads, gpu.block_threads, "threads"),
        (registers, gpu.registers, "registers"),
        (needs.tensor_memory, MOST_COLUMNS, "columns of tensor memory"),
    ):
        if need > has:
            yield need, has, unit

"""The records of compiled launches, and the limits of a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from gemmproof.reference.gpus import GPU

# -- record --------------------------------------------------------------------------------------
SCHEMA = 1
FMA = "fused multiply-adds"
UNKNOWN = "not recognised"


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


@dataclass(frozen=True, slots=True)
class DotLowering:
    """A dot of the source, and what it was compiled to.

    `where` is its line, "" if the compiler keeps none. `asked` are the formats of a, b and c in the
    source's own IR and `precision` the one it requests for fp32 operands; `tile` is (M, N, K) of
    it. `layouts` are those of a, b and c in the optimised IR. `promoted`: the number of fp32
    additions of a thread that add sums of the tensor cores to others in the loop that makes them,
    and `promoted_k` the elements of k that such a sum has at most; None if there is no such
    addition.
    """

    where: str
    asked: tuple[str, str, str]
    tile: tuple[int, ...]
    precision: str
    layouts: tuple[str, str, str]
    instructions: tuple[DotInstruction, ...]
    promoted: int = 0
    promoted_k: int | None = None

    @property
    def has_cores(self) -> bool:
        """True if any instruction is one of the tensor cores."""
        return any(x.unit != FMA for x in self.instructions)


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
class Resources:
    """The resources that a thread and a block need, by the binary's own tables.

    `stack` bytes of a thread are in memory, of which the program itself declares `declared`; the
    others are spilled registers. `shared` is the size that the launch requests for a block, of the
    `shared_limit` that the target has for it; `static_shared` is the one in the binary's table
    (from Hopper on the KiB that the system itself keeps, which the limit excludes); `threads` is
    the size of a block. `accumulation_registers`, `scalar_registers` and `spilled_registers` are
    AMD's, `tensor_memory` is Blackwell's, in columns. None if the target does not report it.
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

    @property
    def spills(self) -> int | None:
        """Bytes per thread that are in memory for lack of registers."""
        return None if self.stack is None else max(0, self.stack - self.declared)


@dataclass(frozen=True, slots=True)
class LoweredLaunch:
    """A launch, compiled for a target: its specialisation, and the compiled code.

    `specialised` is the specialisation of each argument: "1" (a constant), "16" (divisible by it)
    or "". `grid` is that of the first of `launches` that compile to this. `buffers` is how many a
    pipelined loop rotates through, 0 without; `specialised_warps` whether some warps run other code
    than others. `seconds` is the CPU time of this compilation, none of it from a cache. `error` is
    the compiler's own message if there is no code, and the facts are then empty. `binary` is the
    SHA-256 of the machine code with its tables. `remedies`, of a preview: other settings that reach
    the tensor cores, if this dot does not.
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
    dots: tuple[DotLowering, ...] = ()
    accesses: tuple[GlobalAccess, ...] = ()
    resources: Resources | None = None
    buffers: int = 0
    specialised_warps: bool = False
    unrecognised: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    binary: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> LoweredLaunch:
        """Rebuild the record that `to_dict` gave, also after JSON."""
        dots = tuple(read_dot(x) for x in data["dots"])
        accesses = tuple(GlobalAccess(**x) for x in data["accesses"])
        resources = data["resources"] and Resources(**data["resources"])
        records = {**data, "dots": dots, "accesses": accesses, "resources": resources}
        return _make(LoweredLaunch, records, ("grid", "unrecognised", "remedies"))


def read_dot(data: Mapping[str, Any]) -> DotLowering:
    """Rebuild the record that `asdict` gave, also after JSON."""
    instructions = [_make(DotInstruction, x, ("shape", "operands")) for x in data["instructions"]]
    return _make(
        DotLowering,
        {**data, "instructions": instructions},
        ("asked", "tile", "layouts", "instructions"),
    )


def _make(kind: Any, data: Mapping[str, Any], tuples: tuple[str, ...]) -> Any:
    """Make a record from plain data, in which JSON turned tuples into lists."""
    values = {f.name: data[f.name] for f in fields(kind)}
    for name in tuples:
        values[name] = None if values[name] is None else tuple(values[name])
    return kind(**values)


def document(name: str, lowerings: list[LoweredLaunch], failures: list[str]) -> dict[str, Any]:
    """Return the document that `--json` writes."""
    return {
        "schema": SCHEMA,
        "name": name,
        "launches": [lowering.to_dict() for lowering in lowerings],
        "failures": failures,
    }


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


def format_known(known: str) -> str:
    """Return the text for a specialisation of an argument."""
    return {"": "neither", "16": "divisible by 16", "1": "equal to 1"}[known]


@dataclass(slots=True)
class LoweredTarget:
    """The launches of a kernel on one target: the records, and a line on each failure.

    `variants` and `notes` are those of a sweep (lowering/task.py), the first one for each record.
    `mistake` is the reason, in a line, why nothing could be captured, and `output` the last output
    of a worker in which gemmproof itself failed.
    """

    gpu: str
    lowerings: list[LoweredLaunch] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    mistake: str = ""
    output: str = ""
    variants: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """True if every launch was compiled."""
        compiled = all(not lowering.error for lowering in self.lowerings)
        return compiled and not self.failures and not self.mistake

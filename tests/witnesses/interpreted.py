"""Run the wrappers under Triton's interpreter beside their mirrors and print what differs, as JSON.

A program, not a test module: the interpreter must be chosen before triton is imported.
    python tests/witnesses/interpreted.py CASES KERNEL...
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from types import SimpleNamespace
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton
from triton.runtime.interpreter import GridExecutor, TensorHandle, interpreter_builder

from gemmproof.reference.dot import dot_model
from gemmproof.reference.exact import exact_product
from gemmproof.reference.mirrors import launch_of, mirror_for
from gemmproof.reference.mirrors.access import Touch, first_difference
from gemmproof.reference.mirrors.run import run_grid, touches_of

# CPU arguments are used in place; copying them back onto themselves would touch every page of the
# huge parents below.
GridExecutor._restore_args_dev = lambda *_: None

DTYPES = {"fp16": torch.float16, "fp32": torch.float32, "int8": torch.int8}
LAYOUTS = ("row", "column", "padded", "sliced", "misaligned", "expanded_rows", "expanded_columns")
MAP_NORESERVE = 0x4000  # Linux; the mmap module names it from Python 3.13 on
EDGE = (1, 2, 15, 16, 17, 31, 32, 33, 47, 64, 65)


@dataclass(frozen=True, slots=True)
class Case:
    """One drawn call: sizes, format, the layouts of a, b and out, tile sizes, multiprocessors."""

    M: int
    N: int
    K: int
    dtype: str
    a: str
    b: str
    out: str
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    GROUP_M: int
    NUM_SMS: int


def drawn(seed: int) -> Case:
    """A case on and around the tile sizes; every fifth has no K at all or a single one."""
    rng = np.random.default_rng(seed)
    block = [int(x) for x in rng.choice((16, 32), 3)]
    M, N, K = (int(x) for x in rng.choice(EDGE, 3))
    K = (0, 1)[seed % 2] if seed % 5 == 0 else K
    a, b = (str(x) for x in rng.choice(LAYOUTS, 2))
    out = str(rng.choice([x for x in LAYOUTS if not x.startswith("expanded")]))
    dtype = str(rng.choice(list(DTYPES)))
    group, sms = int(rng.choice((1, 2, 3, 8))), int(rng.choice((1, 2, 3, 7)))
    return Case(M, N, K, dtype, a, b, out, *block, group, sms)


def view(layout: str, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A (rows, columns) view of fresh, dirty memory in the named layout."""
    if layout == "column":
        return view("row", columns, rows, dtype).T
    if layout == "expanded_rows":
        return view("row", 1, columns, dtype).expand(rows, columns)
    if layout == "expanded_columns":
        return view("row", rows, 1, dtype).expand(rows, columns)
    dirt = -77 if dtype.is_floating_point else 99
    parent = torch.full((2 * rows + 2, 3 * columns + 8), dirt, dtype=dtype)
    if layout == "padded":
        return parent[:rows, :columns]
    if layout == "sliced":
        return parent[1 : 1 + 2 * rows : 2, 2 : 2 + 3 * columns : 3]
    if layout == "misaligned":
        return parent.flatten()[1 : 1 + rows * columns].view(rows, columns)
    return torch.full((rows, columns), dirt, dtype=dtype)


def fill(x: torch.Tensor, seed: int) -> None:
    """Small integers, whose sums every accumulator and output format here holds exactly."""
    low, high = (-3, 4) if x.is_floating_point() else (-128, 128)
    values = np.random.default_rng(seed).integers(low, high, tuple(x.shape))
    for axis, stride in enumerate(x.stride()):
        if stride == 0:
            x, values = x.narrow(axis, 0, 1), values.take([0], axis)
    x.copy_(torch.from_numpy(values))


@contextmanager
def recorded(operands: dict[str, torch.Tensor]) -> Iterator[list[Touch]]:
    """Every load and store that the interpreter makes, in elements from its operand's start."""
    touches: list[Touch] = []
    load, store = interpreter_builder.create_masked_load, interpreter_builder.create_masked_store

    def note(kind, ptrs, mask, other):
        """Record an access; returns its mask, emptied when it leaves every operand."""
        address, lanes = ptrs.data.astype(np.int64), mask.data.astype(bool)
        name = next((n for n, x in operands.items() if inside(x, address[lanes])), None)
        x = operands[name or "a"]
        offsets = (address - x.data_ptr()) // x.element_size()
        value = None if other is None else float(other.data.flat[0])
        pid = tuple(int(i) for i in interpreter_builder.grid_idx)
        touches.append(Touch(kind, name or "no operand", offsets, lanes, value, pid))
        return mask if name else TensorHandle(np.zeros_like(mask.data), mask.dtype)

    def noted_load(ptrs, mask, other, *rest):
        return load(ptrs, note("load", ptrs, mask, other), other, *rest)

    def noted_store(ptrs, value, mask, *rest):
        return store(ptrs, value, note("store", ptrs, mask, None), *rest)

    with (
        patch.object(interpreter_builder, "create_masked_load", noted_load),
        patch.object(interpreter_builder, "create_masked_store", noted_store),
    ):
        yield touches


def inside(x: torch.Tensor, address: np.ndarray) -> bool:
    """Whether every address is that of a whole element between the first and the last."""
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    offset, rest = np.divmod(address - x.data_ptr(), x.element_size())
    return bool(((offset >= 0) & (offset <= last) & (rest == 0)).all())


def flat(x: torch.Tensor) -> np.ndarray:
    """The memory of a view from its first element to the end of its storage, as numpy."""
    length = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    return x.as_strided((max(length, 0),), (1,)).numpy()


def memory_of(x: torch.Tensor) -> bytes:
    """Every byte of a view's storage."""
    return torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()).numpy().tobytes()


def geometry(x: torch.Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
    return tuple(x.shape), tuple(x.stride())


def call(kernel: str, case: Case, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor):
    """Run the wrapper with the case's tile sizes; the interpreter's touches, and the launch."""
    module = import_module(f"gemmproof.kernels.{kernel}")
    names = getattr(module, f"{kernel}_kernel").fn.arg_names
    constants = {n: v for n, v in asdict(case).items() if n in names and n.isupper() and len(n) > 1}
    tuned = {n: v for n, v in constants.items() if n != "NUM_SMS"}
    device = SimpleNamespace(multi_processor_count=case.NUM_SMS)
    with (
        patch.object(getattr(module, f"{kernel}_kernel"), "configs", [triton.Config(tuned)]),
        patch.object(torch.cuda, "get_device_properties", lambda _: device),
        recorded({"a": a, "b": b, "c": out}) as touches,
    ):
        returned = getattr(module, kernel)(a, b, out.dtype, out=out)
    assert returned is out, f"{kernel}: got another tensor back, expected out"
    return touches, launch_of(geometry(a), geometry(b), geometry(out), constants)


def compare(kernel: str, case: Case) -> tuple[int, str | None]:
    """How many accesses were compared, and the first disagreement between the two witnesses."""
    dtype = DTYPES[case.dtype]
    a, b = (
        view(case.a, case.M, case.K, dtype),
        view(case.b, case.K, case.N, dtype),
    )
    out = view(case.out, case.M, case.N, torch.int32 if dtype == torch.int8 else dtype)
    fill(a, 1), fill(b, 2)
    exact = exact_product(a.numpy(), b.numpy())[0]
    mirrored = flat(out).copy()
    dirty = out.untyped_storage().clone()
    touches, launch = call(kernel, case, a, b, out)

    mirror = mirror_for(kernel)
    arrays = {"a": flat(a), "b": flat(b), "c": mirrored}
    runs = run_grid(mirror, launch, arrays, dot_model(None, case.dtype).dot)
    expected = [touch for run in runs.values() for touch in run.touches]
    difference = first_difference(touches, expected)
    if difference is None and flat(out).tobytes() != mirrored.tobytes():
        difference = "c: got other bits than the mirror stores"
    if difference is None and not (out.numpy().astype(exact.dtype) == exact).all():
        difference = "c: got other values than the exact product"
    before = torch.empty(0, dtype=out.dtype).set_(
        dirty, out.storage_offset(), out.shape, out.stride()
    )
    before.copy_(out)
    if difference is None and memory_of(before) != memory_of(out):
        difference = "memory around out: got other bytes than before the call"
    return len(touches), difference


def huge(kernel: str) -> list[str]:
    """Views of parents past 2**31 elements, by row stride, by row count and along K."""
    findings = []
    for strides in ((2**31 + 7, 1), (2**27 + 1, 1), (1, 2**27 + 1), (2**26 + 1, 2**25)):
        case = Case(34, 35, 36, "int8", "", "", "", 16, 32, 16, 2, 3)
        a = reserved(34, 36, strides, torch.int8)
        b = reserved(36, 35, strides, torch.int8)
        out = reserved(34, 35, strides, torch.int32)
        fill(a, 1), fill(b, 2)
        touches, launch = call(kernel, case, a, b, out)
        mirror = mirror_for(kernel)
        expected = [t for pid in mirror.pids(launch) for t in touches_of(mirror, launch, pid)]
        difference = first_difference(touches, expected)
        if difference is None and not (out.long() == a.long() @ b.long()).all():
            difference = "c: got other values than the exact product"
        if difference is not None:
            findings.append(f"{strides=}: {difference}")
    return findings


def reserved(rows: int, columns: int, strides: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """A view of address space of which only the pages in use take memory."""
    extent = (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    memory = mmap.mmap(-1, extent * dtype.itemsize, flags=flags)
    return torch.frombuffer(memory, dtype=dtype).as_strided((rows, columns), strides)


if __name__ == "__main__":
    report = {}
    for kernel in sys.argv[2:]:
        cases = []
        for seed in range(int(sys.argv[1])):
            accesses, difference = compare(kernel, drawn(seed))
            case = asdict(drawn(seed))
            cases.append({"case": case, "accesses": accesses, "difference": difference})
        report[kernel] = {"cases": cases, "huge": huge(kernel)}
    print(json.dumps(report))

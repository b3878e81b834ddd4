"""Loads that hints widen to vectors: launched on this machine's GPU, and compiled for a Hopper GPU.

    python scripts/gpu/vector_hints.py [--report FILE] [--jobs N] [--compile]

Each row is one launch in a process of its own, because a misaligned address ends the CUDA context.
A row records the bytes that each access of `a` has in PTX, how the launch ended, and how it ends
according to those bytes and the addresses of the lanes. `--compile` needs no GPU: it records the
bytes alone. The file needs torch, Triton and numpy only.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

BLOCK, N, K = 32, 32, 64
SECONDS = 120  # of one launch, with its compilation
EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence" / "vector-hints.json"


@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    ROWS: tl.constexpr, MASK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A product whose rows of a are wrapped, clamped or permuted, with or without a hint."""
    rm = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rn = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if ROWS == "wrapped":
        ram = rm % M
    elif ROWS == "wrapped, a multiple":
        ram = tl.multiple_of(rm % M, BLOCK)
    elif ROWS == "wrapped, contiguous":
        ram = tl.max_contiguous(rm % M, BLOCK)
    elif ROWS == "wrapped, hinted":
        ram = tl.max_contiguous(tl.multiple_of(rm % M, BLOCK), BLOCK)
    elif ROWS == "clamped, hinted":
        ram = tl.max_contiguous(tl.multiple_of(tl.where(rm < M, rm, 0), BLOCK), BLOCK)
    elif ROWS == "rotated, hinted":
        ram = tl.max_contiguous(tl.multiple_of((rm + 1) % M, BLOCK), BLOCK)
    else:
        tl.static_assert(ROWS == "permuted, hinted")
        ram = tl.max_contiguous(tl.multiple_of(rm // 8 * 8 % M + rm * 3 % 8, BLOCK), BLOCK)
    rk = tl.arange(0, BLOCK)
    a_ptrs = a_ptr + ram[:, None] * sam + rk[None, :] * sak
    b_ptrs = b_ptr + rk[:, None] * sbk + rn[None, :] * sbn
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        if MASK == "k":
            a = tl.load(a_ptrs, mask=rk[None, :] < K - k, other=0.0)  # load of a
        elif MASK == "rows and k":
            a_mask = (rm[:, None] < M) & (rk[None, :] < K - k)
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)  # load of a
        else:
            a = tl.load(a_ptrs)  # load of a
        b = tl.load(b_ptrs, mask=(rk[:, None] < K - k) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK * sak
        b_ptrs += BLOCK * sbk
    c_ptrs = c_ptr + rm[:, None] * scm + rn[None, :] * scn
    tl.store(c_ptrs, acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


# -- rows ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Row:
    """One launch. `lead` is the distance of a's columns (layout "column") or rows ("row")."""

    rows: str
    mask: str
    layout: str
    M: int
    dtype: str = "float16"
    lead: int = 64


def list_rows() -> Iterator[Row]:
    """Yield the launches: the form of the tutorials, its controls, and other hints and masks."""
    sides = (33, 35, 40, 48)
    for mask, layout, m in product(("k", "rows and k", "none"), ("column", "row"), sides):
        yield Row("wrapped, hinted", mask, layout, m)
    for layout, m in product(("column", "row"), sides):
        yield Row("wrapped", "k", layout, m)
    yield Row("wrapped, hinted", "k", "column", 35, lead=48)
    yield Row("wrapped, hinted", "k", "column", 35, lead=67)  # columns that begin anywhere
    for m in (35, 40, 48):
        yield Row("wrapped, hinted", "none", "column", m, lead=m)  # dense columns
    for m in (33, 34, 36):
        yield Row("wrapped, hinted", "k", "column", m, "float32")
    yield Row("wrapped, a multiple", "k", "column", 35)
    yield Row("wrapped, contiguous", "k", "column", 35)
    for m in (35, 40):
        yield Row("clamped, hinted", "k", "column", m)
    yield Row("rotated, hinted", "k", "column", 48)


def find_rows(row: Row) -> np.ndarray:
    """Return the row of a that each lane of each tile reads."""
    lanes = np.arange(-(-row.M // BLOCK) * BLOCK)
    name = row.rows.partition(",")[0]
    if name == "clamped":
        rows = np.where(lanes < row.M, lanes, 0)
    elif name == "rotated":
        rows = (lanes + 1) % row.M
    elif name == "permuted":
        rows = lanes // 8 * 8 % row.M + lanes * 3 % 8
    else:
        rows = lanes % row.M
    return rows.reshape(-1, BLOCK)


def expect(row: Row, width: int) -> str:
    """Return how a launch ends whose loads of a take `width` bytes, by the lanes' addresses."""
    size = getattr(torch, row.dtype).itemsize
    n = width // size
    if row.layout == "row" or n <= 1:
        return "ok"  # the vectors run along k, where lanes are consecutive
    rows = find_rows(row)
    active = np.arange(rows.size).reshape(rows.shape) < row.M
    masked = active if row.mask == "rows and k" else np.ones_like(active)
    groups = rows.reshape(-1, n)
    live = masked.reshape(-1, n)[:, 0]
    if (groups[live, 0] * size % width).any() or row.lead * size % width:
        return "misaligned address"
    loaded = groups[:, :1] + np.arange(n)
    wrong = (loaded != groups) & active.reshape(-1, n) & live[:, None]
    return "wrong values" if wrong.any() else "ok"


# -- launches ------------------------------------------------------------------------------------
def make_arguments(row: Row, device: str) -> tuple[list[Any], torch.Tensor, torch.Tensor]:
    """Return the kernel's arguments of one launch, and the views of a and b."""
    dtype = getattr(torch, row.dtype)
    generator = torch.Generator().manual_seed(1)
    shape = (K, row.lead) if row.layout == "column" else (row.M, K)
    parent = torch.randint(-4, 5, shape, generator=generator).to(device, dtype)
    a = parent.T[: row.M] if row.layout == "column" else parent
    b = torch.randint(-4, 5, (K, N), generator=generator).to(device, dtype)
    c = torch.zeros((row.M, N), dtype=torch.float32, device=device)
    return [a, b, c, row.M, N, K, *a.stride(), *b.stride(), *c.stride()], a, b


def read_widths(ptx: str) -> list[int]:
    """Return the bytes of each access on the lines of the source that load a."""
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    lines = {i for i, text in enumerate(source, 1) if text.endswith("# load of a")}
    widths, line = set(), 0
    for text in ptx.splitlines():
        if match := re.search(r"\.loc\s+\d+\s+(\d+)", text):
            line = int(match[1])
        elif line in lines:
            if match := re.search(r"\bld\.global\S*?(?:\.v(\d))?\.[bfsu](\d+)\b", text):
                widths.add(int(match[1] or 1) * int(match[2]) // 8)
            elif match := re.search(r"\bcp\.async\.c[ag]\.\S+ [^;]*?\], (0x\w+|\d+)", text):
                widths.add(int(match[1], 0))
    return sorted(widths)


def compile_row(row: Row) -> str:
    """Compile a launch for a Hopper GPU as the just-in-time compiler specialises it."""
    arguments, _, _ = make_arguments(row, "cpu")
    names = product_kernel.arg_names
    constants: dict[str, Any] = {"ROWS": row.rows, "MASK": row.mask, "BLOCK": BLOCK}
    signature, attributes = dict.fromkeys(constants, "constexpr"), {}
    short = {"float16": "*fp16", "float32": "*fp32"}
    for i, (name, x) in enumerate(zip(names, arguments, strict=False)):
        if isinstance(x, torch.Tensor):
            signature[name] = short[str(x.dtype).removeprefix("torch.")]
        elif x == 1:
            constants[name], signature[name] = 1, "constexpr"
            continue
        else:
            signature[name] = "i32"
        if isinstance(x, torch.Tensor) or x % 16 == 0:  # torch aligns what it allocates
            attributes[(i,)] = [["tt.divisibility", 16]]
    signature = {name: signature[name] for name in names}
    source = ASTSource(product_kernel, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]


def run_row(number: int, compiles: bool) -> dict[str, Any]:
    """Compile and launch one row; return what it records."""
    row = list(list_rows())[number]
    result: dict[str, Any] = asdict(row)
    if compiles:
        return {**result, "bytes": read_widths(compile_row(row))}
    arguments, a, b = make_arguments(row, "cuda")
    grid = (triton.cdiv(row.M, BLOCK), triton.cdiv(N, BLOCK))
    compiled = product_kernel[grid](*arguments, ROWS=row.rows, MASK=row.mask, BLOCK=BLOCK)
    result["bytes"] = read_widths(compiled.asm["ptx"])
    try:
        torch.cuda.synchronize()
        read = torch.from_numpy(find_rows(row).reshape(-1)[: row.M].astype(np.int64)).to(a.device)
        expected = (a[read].double() @ b.double()).float()
        result["outcome"] = "ok" if torch.equal(arguments[2], expected) else "wrong values"
    except Exception as error:
        match = re.search(r"CUDA error: ([\w ]+)", str(error))
        result["outcome"] = match[1] if match else str(error).splitlines()[0]
    return result


def run_alone(number: int, compiles: bool) -> dict[str, Any]:
    """Run one row in a process of its own."""
    command = [sys.executable, __file__, "--row", str(number), *["--compile"] * compiles]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError, subprocess.TimeoutExpired):
        row = list(list_rows())[number]
        return {**asdict(row), "bytes": [], "outcome": "the process ended without a result"}
    if not compiles:
        result["by_address"] = expect(list(list_rows())[number], max(result["bytes"], default=0))
    return result


def measure(report: Path, jobs: int, compiles: bool) -> int:
    """Run every row and write the report; return 1 if an outcome differs from its addresses'."""
    facts: dict[str, Any] = {}
    if compiles:
        facts["target"] = "sm_90, compiled only"
    else:
        facts["device"] = torch.cuda.get_device_name()
        facts["capability"] = list(torch.cuda.get_device_capability())
        facts["cuda"] = torch.version.cuda
    facts |= {"torch": torch.__version__, "triton": triton.__version__}
    facts |= {"python": platform.python_version(), "date": datetime.now(UTC).date().isoformat()}
    rows = []
    count = len(list(list_rows()))
    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(run_alone, range(count), [compiles] * count):
            rows.append(row)
            print(" ".join(f"{name}={x}" for name, x in row.items()), flush=True)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = "".join(f" {json.dumps(name)}: {json.dumps(x)},\n" for name, x in facts.items())
    report.write_text(f'{{\n{head} "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")
    if compiles:
        return 0
    good = sum(row.get("outcome") == row.get("by_address") for row in rows)
    print(f"{facts['device']}: {good} of {len(rows)} launches end as their addresses demand")
    return int(good < len(rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--report", type=Path, default=EVIDENCE)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--compile", action="store_true", help="record the widths alone")
    parser.add_argument("--row", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        print(json.dumps(run_row(options.row, options.compile)))
    else:
        sys.exit(measure(options.report, options.jobs, options.compile))

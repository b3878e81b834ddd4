"""Kernels under Triton's interpreter: their accesses, and the differences from their mirrors.

Imported in the interpreter's own process (tests/support/interpreter_process.py).
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import triton
from tests.support.interpreter_process import observe_accesses
from tests.support.simulator_cases import (
    DTYPES,
    LAYOUTS,
    Case,
    fill,
    make_view,
    operands_of,
    reserve,
)
from tests.support.simulator_kernels import multiply
from tests.witnesses.computed_mirrors import run_grid
from triton.runtime.interpreter import GridExecutor

from gemmproof.properties.codec import encode
from gemmproof.reference.bounds import exact_product
from gemmproof.reference.dot import dot_model
from gemmproof.reference.mirrored_launch import Touch, first_difference, launch_of
from gemmproof.reference.mirrors import MIRRORS

# CPU arguments are used in place; copying them back onto themselves would touch every page of the
# huge parents below.
GridExecutor._restore_args_dev = lambda *_: None

EDGE = (1, 2, 15, 16, 17, 31, 32, 33, 47, 64, 65)


def record(case: Case) -> dict[str, Any]:
    """The touches, as (pid, kind, addresses, mask, other) with flat arrays, and the results.

    `homes` are the first addresses of the storages of a, b and of each result.
    """
    touches: list[Any] = []

    def note(pid, kind, addresses, lanes, other):
        touches.append((pid, kind, addresses.reshape(-1), lanes.reshape(-1), other))
        return True

    a, b = operands_of(case)
    with observe_accesses(note):
        results = multiply(case, a, b)
    homes = [x.untyped_storage().data_ptr() for x in (a, b, *results)]
    return {"touches": touches, "homes": homes, "results": [x.numpy() for x in results]}


def draw_case(kernel: str, seed: int) -> Case:
    """A case on and around the tile sizes; every fifth has no K at all or a single one."""
    rng = np.random.default_rng(seed)
    block = [int(x) for x in rng.choice((16, 32), 3)]
    M, N, K = (int(x) for x in rng.choice(EDGE, 3))
    K = (0, 1)[seed % 2] if seed % 5 == 0 else K
    a, b = (str(x) for x in rng.choice(LAYOUTS, 2))
    out = str(rng.choice([x for x in LAYOUTS if not x.startswith("expanded")]))
    dtype = str(rng.choice(list(DTYPES)))
    group, programs = int(rng.choice((1, 2, 3, 8))), int(rng.choice((1, 2, 3, 7)))
    return Case(kernel, M, N, K, dtype, a, b, out, *block, group, programs)


def inside(x: torch.Tensor, address: np.ndarray) -> bool:
    """Return whether every address is that of a whole element between the first and the last."""
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


def call(case: Case, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Any:
    """Run the wrapper with the case's tile sizes; the interpreter's touches, and the launch.

    Touches are in elements from their operand's start; one outside of every operand is undone.
    """
    module = import_module(f"gemmproof.kernels.{case.kernel}")
    names = getattr(module, f"{case.kernel}_kernel").fn.arg_names
    sizes = encode(case) | {"NUM_SMS": case.PARTS}
    constants = {n: v for n, v in sizes.items() if n in names and n.isupper() and len(n) > 1}
    tuned = {n: v for n, v in constants.items() if n != "NUM_SMS"}
    device = SimpleNamespace(multi_processor_count=case.PARTS)
    operands = {"a": a, "b": b, "c": out}
    touches: list[Touch] = []

    def note(pid, kind, addresses, lanes, other):
        name = next((n for n, x in operands.items() if inside(x, addresses[lanes])), None)
        x = operands[name or "a"]
        offsets = (addresses - x.data_ptr()) // x.element_size()
        touches.append(Touch(kind, name or "no operand", offsets, lanes, other, pid))
        return name is not None

    with (
        patch.object(getattr(module, f"{case.kernel}_kernel"), "configs", [triton.Config(tuned)]),
        patch.object(torch.cuda, "get_device_properties", lambda _: device),
        observe_accesses(note),
    ):
        returned = getattr(module, case.kernel)(a, b, out.dtype, out=out)
    assert returned is out, f"{case.kernel}: got another tensor back, expected out"
    return touches, launch_of(geometry(a), geometry(b), geometry(out), constants)


def compare(case: Case) -> tuple[int, str | None]:
    """Return the number of compared accesses, and the first disagreement of the two witnesses."""
    a, b = operands_of(case)
    out = make_view(case.out, case.M, case.N, torch.int32 if case.dtype == "int8" else a.dtype)
    exact = exact_product(a.numpy(), b.numpy())[0]
    mirrored = flat(out).copy()
    dirty = out.untyped_storage().clone()
    touches, launch = call(case, a, b, out)

    arrays = {"a": flat(a), "b": flat(b), "c": mirrored}
    runs = run_grid(case.kernel, launch, arrays, dot_model(None, case.dtype).dot)
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


def find_huge(kernel: str) -> list[str]:
    """Views of parents past 2**31 elements, by row stride, by row count and along K."""
    findings = []
    for strides in ((2**31 + 7, 1), (2**27 + 1, 1), (1, 2**27 + 1), (2**26 + 1, 2**25)):
        case = Case(kernel, 34, 35, 36, "int8", BLOCK_N=32)
        a = reserve(34, 36, strides, torch.int8)
        b = reserve(36, 35, strides, torch.int8)
        out = reserve(34, 35, strides, torch.int32)
        fill(a, 1), fill(b, 2)
        touches, launch = call(case, a, b, out)
        (specified,) = MIRRORS[case.kernel].state(launch)
        expected = [touch for pid in specified.pids() for touch in specified.touches(pid)]
        difference = first_difference(touches, expected)
        if difference is None and not (out.long() == a.long() @ b.long()).all():
            difference = "c: got other values than the exact product"
        if difference is not None:
            findings.append(f"{strides=}: {difference}")
    return findings


def report(kernel: str, cases: int) -> dict[str, Any]:
    """The accesses and the first difference of each drawn case, and the findings in huge views."""
    drawn = [draw_case(kernel, seed) for seed in range(cases)]
    return {"cases": [(case, *compare(case)) for case in drawn], "huge": find_huge(kernel)}

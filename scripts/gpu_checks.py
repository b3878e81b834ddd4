"""What one kernel's wrapper must do on a GPU: exact values, derived bounds, strides, every config.

python scripts/gpu_checks.py KERNEL        prints one JSON line per check
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import torch
import triton

sys.path.insert(0, str(Path(__file__).parent.parent))

Finding = str | None
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
#: Input format and precision of each lane.
LANES: dict[str, tuple[torch.dtype, str]] = {
    "fp16": (torch.float16, "ieee"),
    "bf16": (torch.bfloat16, "ieee"),
    "fp32": (torch.float32, "ieee"),
    "tf32": (torch.float32, "tf32"),
    "fp8e4m3": (E4M3, "ieee"),
    "fp8e5m2": (E5M2, "ieee"),
    "int8": (torch.int8, "ieee"),
}
SHAPES = [(1, 1, 1), (129, 257, 65), (64, 32, 0), (300, 70, 77), (1, 515, 128), (257, 1, 31)]
LAYOUTS = ("row", "column", "padded", "sliced", "misaligned", "expanded")


def view(layout: str, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A (rows, columns) view of zeroed memory in the named layout."""
    if layout == "column":
        return view("row", columns, rows, dtype).T
    if layout == "expanded":
        return view("row", 1, columns, dtype).expand(rows, columns)
    size = (2 * rows + 2) * (3 * columns + 8)
    parent = torch.zeros(size, dtype=torch.uint8, device="cuda").to(dtype)
    parent = parent.view(2 * rows + 2, 3 * columns + 8)
    if layout == "padded":
        return parent[:rows, :columns]
    if layout == "sliced":
        return parent[1 : 1 + 2 * rows : 2, 2 : 2 + 3 * columns : 3]
    if layout == "misaligned":
        return parent.flatten()[1 : 1 + rows * columns].view(rows, columns)
    return parent.flatten()[: rows * columns].view(rows, columns)


def integers(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Fill x with integers whose sums no accumulator rounds (fp8 on Hopper: below 2**14)."""
    low, high = (-4, 5) if x.dtype.is_floating_point else (-128, 128)
    return fill(x, lambda g, shape: torch.randint(low, high, shape, generator=g), seed)


def normals(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Fill x with values of either sign in [0.5, 2): never subnormal, in any format."""

    def draw(g: torch.Generator, shape: tuple[int, ...]) -> torch.Tensor:
        sign = torch.randint(0, 2, shape, generator=g) * 2 - 1
        return sign * (0.5 + 1.5 * torch.rand(shape, generator=g))

    return fill(x, draw, seed)


def fill(x: torch.Tensor, draw: Callable[..., torch.Tensor], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    one = x[:1] if x.stride(0) == 0 else x
    one.copy_(draw(generator, tuple(one.shape)).to(x.dtype))
    return x


def error_bound(lane: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """|out - a b| allowed to an fp32 output on Hopper, element by element, for normal operands.

    A chain of J = ceil(K / L) fused steps that chop to F fraction bits and round toward zero to w
    loses at most J (L 2**-F + 2**-w) |A||B|: 16-bit L = 16, F = 25, w = 23; tf32 L = 8 after
    operands lose up to 2**-10 each; fp8 L = 32, F = w = 13 over at most two steps, then one fp32
    addition per block of at least 32. fp32 is an fma chain: K u |A||B| (Jeannerod and Rump 2013).
    """
    K = a.shape[1]
    size = a.double().abs() @ b.double().abs()
    if lane in ("fp16", "bf16"):
        return -(-K // 16) * 5 * 2.0**-23 * size
    if lane == "tf32":
        return (-(-K // 8) * 3 * 2.0**-23 + 2.0**-9) * size
    if lane == "fp32":
        return K * 2.0**-24 * size
    return (2 * 33 * 2.0**-13 + -(-K // 32) * 2.0**-24) * size


def checks(name: str) -> Iterator[tuple[str, Finding]]:
    """Every check of one kernel with what it found, None if nothing."""
    module = import_module(f"kernels.{name}")
    tuned, wrapper = getattr(module, f"{name}_kernel"), getattr(module, name)
    rotation = itertools.cycle(module.CONFIGS)

    def run(a, b, out_dtype=None, *, config=None, **options):
        """One configuration, the next in turn; one too large for the device is passed over."""
        tries = [config] if config else itertools.islice(rotation, len(module.CONFIGS))
        for chosen in tries:
            try:
                with patch.object(tuned, "configs", [chosen]):
                    return wrapper(a, b, out_dtype, **options)
            except triton.runtime.errors.OutOfResources as error:
                last = error  # the tuner passes over it too
        raise last

    for lane, (shape, layout) in itertools.product(LANES, zip(SHAPES, LAYOUTS, strict=True)):
        yield f"exact {lane} {shape} {layout}", exact(run, lane, shape, layout)
    for lane, shape in itertools.product(LANES, [(256, 384, 1000), (100, 77, 4100)]):
        yield f"bound {lane} {shape}", within_bound(run, lane, shape)
    for number, config in enumerate(module.CONFIGS):
        for lane in ("fp16", "fp8e4m3"):
            yield f"config {number} {lane}", exact(run, lane, (385, 515, 161), "row", config)
    yield "same bits in every config", one_result(run, module.CONFIGS)
    yield "output formats", output_formats(run, module.CONFIGS[0])
    yield "huge parents", huge(run)
    yield "fp8 promoted", promoted(run)
    yield "tf32 only on request", tf32_on_request(run)
    yield "NaN stays in its row", nan_row(run)


def exact(run, lane, shape, layout, config=None) -> Finding:
    """Integers come out exactly, three times over dirty memory, and nothing around out changes."""
    (M, N, K), (dtype, precision) = shape, LANES[lane]
    a, b = integers(view(layout, M, K, dtype), 1), integers(view(layout, K, N, dtype), 2)
    result = torch.int32 if dtype == torch.int8 else torch.float32
    out = view("row" if layout == "expanded" else layout, M, N, result)
    expected = a.double() @ b.double()
    memory = torch.empty(0, dtype=torch.uint8, device="cuda").set_(out.untyped_storage())
    for dirt in (0xFF, 0x00, 0x7F):
        memory.fill_(dirt)
        around = memory.clone()
        run(a, b, result, out=out, input_precision=precision, config=config)
        wrong = out.double() != expected
        if wrong.any():
            i, j = wrong.nonzero()[0].tolist()
            return f"c[{i}, {j}]: got {out[i, j].item()}, expected {expected[i, j].item()}"
        before = torch.empty(0, dtype=result, device="cuda")
        before.set_(around.untyped_storage(), out.storage_offset(), out.shape, out.stride())
        before.copy_(out)
        if not torch.equal(around, memory):
            return "memory around out: got other bytes, expected them untouched"
    return None


def within_bound(run, lane, shape) -> Finding:
    """Rounding alone separates the result from the float64 product."""
    (M, N, K), (dtype, precision) = shape, LANES[lane]
    make = integers if lane == "int8" else normals
    a, b = make(view("row", M, K, dtype), 3), make(view("padded", K, N, dtype), 4)
    result = torch.int32 if lane == "int8" else torch.float32
    out = run(a, b, result, input_precision=precision).double()
    error = (out - a.double() @ b.double()).abs()
    bound = torch.zeros_like(error) if lane == "int8" else error_bound(lane, a, b)
    if (error <= bound).all():
        return None
    i, j = divmod(int((error - bound).argmax()), N)
    return f"error of c[{i}, {j}]: got {error[i, j].item()}, expected up to {bound[i, j].item()}"


def one_result(run, configs) -> Finding:
    """fp16 is one chain over K in every configuration, so all give the same bits."""
    a, b = (normals(view("row", *s, torch.float16), 5) for s in ((257, 515), (515, 385)))
    results = [run(a, b, torch.float32, config=config) for config in configs]
    differ = [i for i, c in enumerate(results) if not torch.equal(c, results[0])]
    return f"configurations {differ}: got other bits than configuration 0" if differ else None


def output_formats(run, config) -> Finding:
    """One rounding to nearest of the fp32 result; fp8 saturates."""
    a, b = (normals(view("row", *s, torch.float16), 6) for s in ((65, 300), (300, 130)))
    whole = run(a, b, torch.float32, config=config)
    for dtype in (torch.float16, torch.bfloat16, E4M3, E5M2):
        out = run(a, b, dtype, config=config)
        if not torch.equal(out.view(torch.uint8), whole.to(dtype).view(torch.uint8)):
            return f"{dtype}: got other bits than the fp32 result rounded"
    big = torch.full((1, 16), 64.0, dtype=torch.float16, device="cuda")
    top = run(big, big.T, E4M3).item()
    return None if top == 448.0 else f"e4m3 overflow: got {top}, expected 448.0"


def huge(run) -> Finding:
    """Views whose last element lies past 2**31 elements, by row, by column and along K."""
    M, N, K, far = 34, 35, 70, 2**26 + 1
    for strides in (((1, far), (far, 1), (far, 1)), ((2 * far, 1), (1, 2 * far), (1, far))):
        a, b, out = (
            torch.empty_strided(size, stride, dtype=dtype, device="cuda")
            for size, stride, dtype in zip(
                ((M, K), (K, N), (M, N)),
                strides,
                (torch.int8, torch.int8, torch.int32),
                strict=True,
            )
        )
        integers(a, 7), integers(b, 8)
        run(a, b, out=out)
        if not (out.double() == a.double() @ b.double()).all():
            return f"{strides=}: got other values than the exact product"
        del a, b, out
        torch.cuda.empty_cache()
    return None


def promoted(run) -> Finding:
    """A sum of 20480 ones: a chain left in the fp8 unit stops at 16384."""
    a = torch.ones(64, 20480, device="cuda").to(E4M3)
    got = run(a, a[:64].T).unique().tolist()
    return None if got == [20480.0] else f"ones: got {got}, expected [20480.0]"


def tf32_on_request(run) -> Finding:
    """1 + 2**-20 survives by default and is cut to 1 in tf32."""
    a = torch.full((64, 16), 0.0, device="cuda")
    a[:, 0] = 1 + 2.0**-20
    b = torch.eye(16, 64, device="cuda")
    got = run(a, b)[0, 0].item(), run(a, b, input_precision="tf32")[0, 0].item()
    return None if got == (1 + 2.0**-20, 1.0) else f"ieee, tf32: got {got}, expected 1 + 2**-20, 1"


def nan_row(run) -> Finding:
    """A NaN in one row of a reaches that row of c and no other."""
    a, b = (normals(view("row", *s, torch.float16), 9) for s in ((70, 65), (65, 40)))
    a[69, 64] = float("nan")
    rows = run(a, b).isnan().all(1).nonzero().flatten().tolist()
    some = run(a, b).isnan().any(1).nonzero().flatten().tolist()
    return None if rows == some == [69] else f"rows with NaN: got {some}, expected [69]"


if __name__ == "__main__":
    for check, finding in checks(sys.argv[1]):
        print(json.dumps({"kernel": sys.argv[1], "check": check, "finding": finding}), flush=True)

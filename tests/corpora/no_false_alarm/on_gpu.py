"""Run the functions of one corpus module on this machine's GPU, on integers whose sums are exact.

    PYTHONPATH=tests/corpora python tests/corpora/no_false_alarm/on_gpu.py no_false_alarm.addressing
    PYTHONPATH=tests/corpora python tests/corpora/no_false_alarm/on_gpu.py mutants.k_tail

A right kernel is right at every shape and layout; a mutant is only shown to compile, at one shape
that is often benign. Needs torch and triton alone.
"""

from __future__ import annotations

import importlib
import inspect
import sys

import torch

INT8 = {
    "packed_bytes_interleaved",
    "weights_in_nibbles",
    "low_byte_unsigned",
    "bytes_swapped",
    "high_byte_shifted_by_seven",
    "int8_result_wraps",
}
SHAPES = [
    (33, 47, 50, "row", "column"),
    (17, 33, 64, "sliced", "row"),
    (1, 1, 1, "row", "row"),
    (5, 1, 300, "column", "sliced"),
    (64, 80, 0, "row", "row"),
]


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values as a dense, a column-major or a stepped view; gaps hold NaN or 77."""
    if layout == "row":
        return x.contiguous()
    if layout == "column":
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    wide = x.new_full((*x.shape[:-1], 2 * x.shape[-1] + 3), 77)
    if x.is_floating_point():
        wide.fill_(torch.nan)
    view = wide[..., 1 : 2 * x.shape[-1] + 1 : 2]
    view.copy_(x)
    return view


def wrong_at(function, shapes) -> list[str]:
    """What is wrong at which shape; each call is made twice."""
    name = function.__name__
    dtype = torch.int8 if name in INT8 else torch.float16
    dtype = torch.float32 if "fp32" in name or "tf32" in name else dtype
    lead = (2,) if "batch" in name else ()
    found = []
    for M, N, K, a_layout, b_layout in shapes:
        a = torch.randint(-5, 6, (*lead, M, K), device="cuda")
        b = torch.randint(-5, 6, (*lead, K, N), device="cuda")
        expected = a.double() @ b.double()
        for _ in range(2):
            c = function(laid_out(a.to(dtype), a_layout), laid_out(b.to(dtype), b_layout))
            torch.cuda.synchronize()
            if c.shape != expected.shape or not torch.equal(c.double(), expected):
                found.append(f"M={M} N={N} K={K} {a_layout} {b_layout}: other values")
                break
    return found


def main(place: str) -> int:
    module = importlib.import_module(place)
    failures = 0
    for name, function in vars(module).items():
        own = inspect.isfunction(function) and function.__module__ == module.__name__
        if not own or name.startswith("_"):
            continue
        try:
            found = wrong_at(function, SHAPES if place.startswith("no_false_alarm") else SHAPES[:1])
        except Exception as error:  # one kernel that does not compile must not hide the others
            found = [f"{type(error).__name__}: {str(error).strip()[-200:]}"]
        failures += len(found)
        print(place, name, "; ".join(found) or "right", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

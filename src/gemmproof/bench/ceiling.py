"""What the GPU reaches in this run: a large copy for bandwidth, a large product for arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from gemmproof.bench.formula.stated import Stated
from gemmproof.bench.legs import make_leg
from gemmproof.bench.peers.registry import make_peer
from gemmproof.bench.problems import Problem
from gemmproof.bench.records import GRAPH, Ceiling
from gemmproof.bench.roofline import find_peaks
from gemmproof.bench.rounds import Run
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.target import TargetError

COPIED = 2**30  # bytes, many times any cache
LARGE = (4096, 8192)  # sides of the products, of which the better one counts
TRIES = 5


def measure_ceiling(
    device: Any, fmt: Format, beat: Run, copied: int = COPIED, sides: Sequence[int] = LARGE
) -> Ceiling:
    """The bandwidth (bytes read and written) and the FLOP/s of torch's own product in a format.

    Where the GPU or torch has no product of this format, another peer may still be compared with.
    """
    beat()
    bandwidth = _time_copy(device, copied)
    device.release()
    rates = []
    for side in sides:
        beat()
        with suppress(TargetError):
            rates.append(_time_product(device, fmt, side))
        device.release()
    peaks = find_peaks(device.name, device.capability, device.figures, fmt)
    return Ceiling(fmt.name, bandwidth, max(rates, default=None), *peaks)


def _time_copy(device: Any, count: int) -> float:
    source = torch.zeros(count, dtype=torch.uint8, device=device.where)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    return 2 * count / _time_best(device, copy, 20)


def _time_product(device: Any, fmt: Format, side: int) -> float:
    problem = Problem(side, side, side)
    out = FORMATS["bf16" if fmt.is_fp8 else "int32" if fmt.kind == "int" else fmt.stored.name]
    stated = Stated(KernelUnderTest("product", torch.matmul), problem, fmt)
    peer = make_peer(None, stated, out)
    sets = [stated.make(device.where) for _ in range(2)]
    for seed, buffers in enumerate(sets):
        stated.fill(buffers, seed)
    leg = make_leg(peer, sets, problem.shapes[2], out, f"{problem} {fmt.name}", device)
    seconds = _time_best(device, leg.run(GRAPH), 10) / len(sets)
    return problem.flops / seconds


def _time_best(device: Any, run: Run, repeats: int) -> float:
    device.time(run, repeats)  # so that clocks have risen
    return min(device.time(run, repeats) for _ in range(TRIES))

"""What a GPU's own figures allow: units times clock, and bytes times clock."""

from __future__ import annotations

from typing import Any

from gemmproof.bench.problems import Problem
from gemmproof.bench.records import Ceiling
from gemmproof.reference.formats import Format
from gemmproof.reference.gpus import GPU, GPUS


def find_record(capability: tuple[int, int]) -> GPU | None:
    """The record of the GPUs of a compute capability of NVIDIA's, None for an unknown one."""
    return next((g for g in GPUS.values() if g.capability == capability and not g.is_amd), None)


def find_peaks(
    name: str, capability: tuple[int, int], figures: Any, fmt: Format
) -> tuple[float | None, float | None]:
    """The highest bytes/s and FLOP/s of a device by its figures, None for what is not known.

    Bytes: two transfers a clock of the memory over the width of its bus. FLOP: those of a
    multiprocessor and clock (reference/gpus.py) times the multiprocessors and the highest clock.
    What torch does not tell of the device is that of the record, if the card is the record's own.
    """
    record = find_record(capability)
    if record is None:
        return None, None
    own = record if record.card in name else None
    memory_clock = getattr(figures, "memory_clock_rate", 0) or (own.memory_clock if own else 0)
    bus = getattr(figures, "memory_bus_width", 0) or (own.bus_width if own else 0)
    clock = getattr(figures, "clock_rate", 0) or (own.clock if own else 0)
    rate = record.count_flops(fmt.name, fmt.itemsize)
    flops = clock * 1e3 * rate * figures.multi_processor_count
    return 2 * memory_clock * 1e3 * bus / 8 or None, flops or None


def share_of(
    problem: Problem,
    moved: int,
    seconds: float,
    bytes_per_second: float | None,
    flops_per_second: float | None,
) -> float | None:
    """The shortest time that both rates allow, over the time that it took; None if one is unknown.

    max(FLOP / rate, bytes / bandwidth), where the `moved` bytes of operands and result pass the
    memory once (Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009).
    """
    if bytes_per_second is None or flops_per_second is None:
        return None
    return max(problem.flops / flops_per_second, moved / bytes_per_second) / seconds


def share_of_ceiling(
    problem: Problem, moved: int, seconds: float, ceiling: Ceiling
) -> float | None:
    """The share of what the GPU reached in the same run."""
    return share_of(problem, moved, seconds, ceiling.copy_bytes, ceiling.product_flops)

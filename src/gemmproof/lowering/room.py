"""What a block of a compiled launch needs beyond what its GPU has: then it cannot be launched."""

from __future__ import annotations

from collections.abc import Iterator

from gemmproof.lowering.record import Resources
from gemmproof.reference.gpus import GPU

MOST_COLUMNS = 512  # of tensor memory: PTX ISA, tcgen05.alloc


def list_excess(needs: Resources, gpu: GPU) -> Iterator[tuple[int, int, str]]:
    """What is needed, what there is of it at most, and the words for it."""
    threads = needs.threads or 0
    # the register file of an AMD GPU is counted in other units
    held = 0 if gpu.is_amd else threads * (needs.registers or 0)
    for need, has, what in (
        (needs.shared, needs.shared_limit, "bytes of shared memory"),
        (threads, gpu.block_threads, "threads"),
        (held, gpu.registers, "registers"),
        (needs.tensor_memory, MOST_COLUMNS, "columns of tensor memory"),
    ):
        if need > has:
            yield need, has, what

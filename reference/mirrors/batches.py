"""Products of a batch: the tiles of one matrix after those of another."""

from __future__ import annotations

from gemmproof.reference.mirrors.call import MirrorCall, Part, StatedLaunch, look
from gemmproof.reference.mirrors.memory import Addresses
from gemmproof.reference.mirrors.schedule import order_grouped
from gemmproof.reference.mirrors.tile import compute_tile


def state_bmm(call: MirrorCall) -> list[StatedLaunch]:
    """Persistent programs. Descriptors, whose constants say how they lie, fetch of a batch."""
    launch, batch = call.launch, call.tensors["a"].shape[0]
    is_described = "A_IS_T" in call.constants
    steps = {name: call.tensors[name].strides[0] for name in "abc"}
    of_one = order_grouped(launch.num_pid_m, launch.num_pid_n, launch.GROUP_M)
    order = [(i, tile) for i in range(batch) for tile in of_one]

    def run(mem: Addresses) -> None:
        for i, tile in order[mem.pid[0] :: launch.NUM_SMS]:
            parts = {name: Part(name, i * step, is_described) for name, step in steps.items()}
            compute_tile(look(mem, **parts), tile, launch)

    return [StatedLaunch((min(launch.NUM_SMS, len(order)), 1, 1), run)]

"""The evaluation of a program compared with the simulator: accesses, results and faults."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch

from gemmproof.properties.judges.memory_use import PROPERTY_OF
from gemmproof.reference.simulation import CompileError
from gemmproof.reference.simulator.call import run

from .compare import load
from .evaluate import BOUNDS, LANES, ONCE, Call, Invalid, Unsure
from .language import Program

COMPARED = (BOUNDS, ONCE, LANES)


def find_differences(
    program: Program, sizes: tuple[int, int, int], strides: Any, config: int, wrapper: Any = None
) -> list[str] | None:
    """Return how the evaluation of a call differs from its simulation; None if it has no result."""
    tuned = {k.name: config for k in program.kernels if k.configs}
    named = dict(zip("MNK", sizes, strict=True)), dict(zip("ab", strides, strict=True))
    call = Call(program, *named, tuned, wants_accesses=True, largest=60)
    try:
        outcome = call.evaluate()
    except Unsure:
        return None
    except Invalid as why:
        try:
            run(wrapper or load(program), *_tensors(call), config=config)
        except CompileError:
            return None
        return [f"not valid: {why}, and yet it compiles"]
    trace: list[Any] = []
    simulated = run(wrapper or load(program), *_tensors(call), config=config, trace=trace)
    differences = _compare_accesses(outcome.accesses, trace)
    seen = {PROPERTY_OF.get(fault.kind) for fault in simulated.faults} & set(COMPARED)
    expected = set(outcome.violated) & set(COMPARED)
    if BOUNDS in expected | seen:  # what is read there may decide whether it is stored
        seen, expected = seen & {BOUNDS}, expected & {BOUNDS}
    if seen != expected:
        differences.append(f"false: got {sorted(expected)}, and in the simulation {sorted(seen)}")
    if not expected and outcome.result is not None:
        result = simulated.result.double().numpy()
        if not np.array_equal(result, outcome.result):
            at = tuple(np.argwhere(result != outcome.result)[0])
            differences.append(f"c{list(at)}: got {outcome.result[at]}, and {result[at]}")
    return differences


def _tensors(call: Call) -> list[torch.Tensor]:
    tensors = []
    for name in "ab":
        memory = call.memory[name]
        storage = torch.from_numpy(memory.contents).float()
        tensors.append(torch.as_strided(storage, memory.shape, memory.strides))
    return tensors


def _compare_accesses(accesses: list[Any], trace: list[Any]) -> list[str]:
    ours: Counter[Any] = Counter()
    for x in accesses:
        grid = trace[x.launch][1] if x.launch < len(trace) else (1, 1, 1)
        numbers = x.programs @ np.array([1, grid[0], grid[0] * grid[1]])
        programs = np.broadcast_to(numbers.reshape(-1, *[1] * (x.mask.ndim - 1)), x.mask.shape)
        for pair in zip(programs[x.mask].tolist(), x.offsets[x.mask].tolist(), strict=True):
            ours[x.launch, x.kind, x.tensor, *pair] += 1
    theirs: Counter[Any] = Counter()
    for number, (_, _, touches) in enumerate(trace):
        for x in touches:
            shape = np.broadcast_shapes(x.offsets.shape, () if x.mask is None else x.mask.shape)
            shape = (len(x.programs), *shape[1:])
            mask = np.broadcast_to(True if x.mask is None else x.mask, shape)
            offsets = np.broadcast_to(x.offsets, shape)
            ids = np.asarray(x.programs).reshape(-1, *[1] * (len(shape) - 1))
            programs = np.broadcast_to(ids, shape)
            name = x.operand.name.removesuffix("_ptr")
            for pair in zip(programs[mask].tolist(), offsets[mask].tolist(), strict=True):
                theirs[number, x.kind, name, *pair] += 1
    if ours == theirs:
        return []
    extra, missing = ours - theirs, theirs - ours
    return [f"accesses: {list(extra)[:3]} are not in the simulation, which has {list(missing)[:3]}"]

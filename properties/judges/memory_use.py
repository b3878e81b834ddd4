"""Judges of accesses, of calls that end, and of the mirror's accesses."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from gemmproof.properties.cases.data import format_of_tensor, share_memory
from gemmproof.properties.contract import AXES
from gemmproof.properties.finding import Finding, make_finding
from gemmproof.properties.judges.exact_values import list_shapes
from gemmproof.properties.kernel import READ
from gemmproof.properties.observation import ObservedCase, axis_named, introduce, word
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.mirrored_launch import (
    MirrorCall,
    MirrorTensor,
    Pid,
    Touch,
    first_difference,
)
from gemmproof.reference.simulation import Fault

# -- accesses ------------------------------------------------------------------------------------
Judge = Callable[[ObservedCase], Iterator[Finding]]

BOUNDS = "stays_in_bounds"
ONCE = "stores_each_element_once"
LANES = "undefined_lanes_never_stored"
HINTS = "every_hint_holds"
FIT = "offsets_fit"
RACES = "no_races"
ENDS = "runs_to_completion"
INPUTS = "leaves_inputs_untouched"

# kind of fault -> the property that it breaks
PROPERTY_OF: Mapping[str, str] = MappingProxyType(
    {
        "out_of_bounds": BOUNDS,
        "wrapped_offset": FIT,
        "stored_twice": ONCE,
        "never_stored": ONCE,
        "race": RACES,
        "undefined_stored": LANES,
        "undefined_used": LANES,
        "false_hint": HINTS,
        "bad_descriptor": HINTS,
        "failed_assert": ENDS,
    }
)


def judge_faults(name: str) -> Judge:
    """Return a judge that turns every fault that breaks property `name` into a finding."""

    def judge(observation: ObservedCase) -> Iterator[Finding]:
        for fault in observation.faults:
            if PROPERTY_OF.get(fault.kind) == name:
                yield _from_fault(name, fault, observation)

    return judge


def _from_fault(name: str, fault: Fault, observation: ObservedCase) -> Finding:
    where = str(fault.where) if fault.where.line else None
    label = introduce(observation, fault.operand)
    location = f"{fault.access} of {label}" if label else fault.access
    if where is not None:
        location = f"{location} at {where}"
    axis, note = axis_named(fault.axis) or fault.axis, ""
    if fault.kind == "wrapped_offset" and axis is None:
        axis = _longest_axis(fault.operand, observation)
        note = "" if axis is None else f"; the offset along {axis} needs 64 bits"
    more = {"operand": fault.operand or None, "axis": axis, "where": where}
    more |= {"cause": _cause(fault, observation), "file": fault.where.file or None}
    if fault.kind == "out_of_bounds":
        # an address outside an operand needs no expected value: rows 3..15 of a (M=3)
        more["message"] = f"{location}: {fault.got}"
    return make_finding(
        observation, name, fault.kind, location, fault.got, fault.expected, note, **more
    )


def _cause(fault: Fault, observation: ObservedCase) -> str | None:
    # a lane whose offset wrapped is not performed either, and the simulator reports out_of_bounds
    kinds = {other.kind for other in observation.faults}
    if fault.follows == "out_of_bounds" and fault.follows not in kinds:
        return FIT if "wrapped_offset" in kinds else None
    return PROPERTY_OF.get(fault.follows)


def _longest_axis(name: str, observation: ObservedCase) -> str | None:
    """Return the axis along which an operand reaches furthest: (size - 1) * stride."""
    operand = observation.operands.get(name)
    result = observation.calls[0].run.result
    axes: tuple[str, ...] = ("batch", "M", "N")
    if operand is not None:
        sides = zip(operand.view.shape, operand.view.strides, strict=True)
        axes = ("batch", *operand.role.axes)
    elif name == "c" and getattr(result, "shape", None) == observation.case.result_shape:
        sides = zip(result.shape, result.stride(), strict=True)
    else:
        return None
    reach = [(n - 1) * stride for n, stride in sides]
    axis = axes[-len(reach) :][reach.index(max(reach))]
    return axis if axis in AXES else None  # another operand's axis may be an expression


def judge_inputs(observation: ObservedCase) -> Iterator[Finding]:
    """Yield one finding per operand and kind of memory that changed."""
    nouns = {"element": "elements", "gap": "gap elements", "guard": "guard elements"}
    for change in observation.touched:
        if change.what == "view":
            got, expected = change.location, "the view it was given"
        else:
            location = change.location.removeprefix(change.operand)
            first = f"{word(observation, change.operand)}{location}"
            noun = nouns[change.what]
            many = f"{change.count} {noun} changed, first {first}"
            got = many if change.count > 1 else f"{noun.removesuffix('s')} {first} changed"
            expected = "none changed"
        label = introduce(observation, change.operand)
        location, fault = f"operand {label}", f"{change.what}_changed"
        yield make_finding(
            observation, INPUTS, fault, location, got, expected, operand=change.operand
        )


# -- completion ----------------------------------------------------------------------------------
COMPILES = "compiles"
# the frontend's error: a kernel, Triton's message, and the configuration if there are several
_REFUSED = re.compile(r"Triton refuses to compile (\S+): (.*?)(?: with \[([^]]*)\])?", re.DOTALL)
_judge_device_asserts = judge_faults(ENDS)


def judge_compiles(observation: ObservedCase) -> Iterator[Finding]:
    """Yield Triton's refusal of the kernel, quoted, at the line that it names."""
    raised = observation.raised
    if raised is not None and raised.kind == "compile_error":
        location = "the kernel" if raised.where is None else raised.where
        got = raised.text.removeprefix(f"{raised.where}: ")
        expected = "a kernel that compiles"
        if refused := _REFUSED.fullmatch(got):
            name, message, config = refused.groups()
            got = f'"{message}" from Triton\'s compiler'
            expected = f"{name} to compile" + (f" with {config}" if config else "")
        yield make_finding(
            observation, COMPILES, raised.kind, location, got, expected,
            where=raised.where, file=raised.file,
        )  # fmt: skip


def ends_applies(observation: ObservedCase) -> bool:
    """Return whether the end of the calls is known; of a sampled call, only that it raised."""
    return observation.is_known and (not observation.case.is_sampled or not observation.calls)


def judge_ends(observation: ObservedCase) -> Iterator[Finding]:
    """Yield what was raised or would stop the device, or the defects of the result."""
    yield from _judge_device_asserts(observation)
    raised = observation.raised
    if raised is None:
        judge_result = _judge_result if observation.is_simulated else _judge_device_result
        numbers, results = range(len(observation.calls)), observation.split()
        judged = (list(judge_result(result, n)) for n in numbers for result in results)
        yield from next(filter(None, judged), [])
    # unsupported operations and the simulator's own errors are no evidence about the kernel
    elif raised.kind in ("raised", "kernel_error", "limit"):
        call = f"call {len(observation.calls) + 1}" if observation.calls else "the call"
        location = call if raised.where is None else f"{call}, at {raised.where}"
        got = raised.text.removeprefix(f"{raised.where}: ")
        fault = "cuda_error" if is_cuda_error(raised.text) else raised.kind
        yield make_finding(
            observation, ENDS, fault, location, got, "a result",
            where=raised.where, file=raised.file,
        )  # fmt: skip


def is_cuda_error(text: str) -> bool:
    """Return whether an error, such as an illegal address, left the CUDA context unusable."""
    return any(sign in text for sign in ("CUDA error", "Triton Error [CUDA]", "AcceleratorError"))


def _judge_result(observation: ObservedCase, number: int) -> Iterator[Finding]:
    def wrong(fault: str, got: str, expected: str, operand: str | None = None) -> Finding:
        name = observation.result_name
        location = "the result" if name == "c" else name
        return make_finding(observation, ENDS, fault, location, got, expected, operand=operand)

    call = observation.calls[number]
    result = call.given
    if not isinstance(result, torch.Tensor):
        name = "None" if result is None else f"a {type(result).__name__}"
        yield wrong("wrong_type", name, "a tensor")
        return
    shape = list_shapes(observation)[observation.part]
    if shape is not None and tuple(result.shape) != shape:
        yield wrong("wrong_shape", f"shape {tuple(result.shape)}", f"{shape}")
    fmt = format_of_tensor(result)
    integers = observation.case.format.kind == "int" or observation.kernel.spec is not None
    is_format = fmt is not None and (integers or fmt.kind != "int")
    if not observation.kernel.memory_only and not (is_format and result.layout == torch.strided):
        expected = "an integer or float dtype" if integers else "a float dtype"
        yield wrong("wrong_dtype", str(result.dtype), expected)
    declared = observation.kernel.contract.out
    declared = declared if observation.part == 0 else None
    if fmt is not None and declared is not None and fmt.dtype != FORMATS[declared].dtype:
        expected = f"torch.{FORMATS[declared].dtype}, as promised"
        yield wrong("wrong_dtype", str(result.dtype), expected)
    if result.device.type != "cpu":
        yield wrong("wrong_device", str(result.device), "the inputs' device")
    for name, operand in observation.operands.items():
        is_own = observation.kernel.memory_only or not share_memory(result, operand.tensor)
        if operand.use == READ and result.numel() > 0 and not is_own:
            yield wrong("returned_input", f"a view of {name}", "memory of its own", name)


def _judge_device_result(observation: ObservedCase, number: int) -> Iterator[Finding]:
    if observation.calls[number].result is None:
        location, got = f"call {number + 1}", "another type, shape or format"
        shape = list_shapes(observation)[observation.part]
        expected = f"a tensor of shape {shape} as the simulated call gives"
        yield make_finding(observation, ENDS, "other_result", location, got, expected, operand="c")


# -- mirror --------------------------------------------------------------------------------------
NAME = "mirror_equals_source"


def applies(observation: ObservedCase) -> bool:
    """Return whether the call ended and launched something."""
    return (
        observation.trace is not None
        and observation.has_result
        and len(observation.calls[0].run.launches) > 0
    )


def judge(observation: ObservedCase) -> Iterator[Finding]:
    """Yield one finding: the first access, in program order, where source and mirror differ."""
    difference = find_difference(observation)
    if difference is not None:
        yield make_finding(observation, NAME, "access_differs", message=difference)


def find_difference(observation: ObservedCase) -> str | None:
    """Return where the first call first differs from its mirror, or None."""
    trace = observation.trace
    assert trace is not None
    declared = observation.kernel.mirror(describe_call(observation))
    if len(trace) != len(declared):
        return f"launches: got {len(trace)}, expected {len(declared)}"
    for (kernel, grid, accesses), launch in zip(trace, declared, strict=True):
        got = touches_by_program(grid, accesses)
        pids = dict.fromkeys(launch.pids())
        for pid in [*pids, *(pid for pid in got if pid not in pids)]:
            expected = launch.touches(pid) if pid in pids else ()
            difference = first_difference(got.get(pid, ()), expected)
            if difference is not None:
                where = f"{kernel}, " if len(declared) > 1 else ""
                return f"{where}pid {pid}, {difference}"
    return None


def describe_call(observation: ObservedCase) -> MirrorCall:
    """Describe the first call for its mirror."""
    run = observation.calls[0].run
    tensors = {name: operand.tensor for name, operand in observation.operands.items()}
    constants: dict[str, object] = {}
    for launch in run.launches:
        constants |= {**launch.integers, **launch.constexprs}
    tensors_by_name = {
        name: _describe_tensor(tensor) for name, tensor in {**tensors, "c": run.result}.items()
    }
    return MirrorCall(tensors_by_name, constants)


def _describe_tensor(x: torch.Tensor) -> MirrorTensor:
    is_integer = not (x.dtype.is_floating_point or x.dtype.is_complex)
    values = x.numpy() if is_integer else None
    return MirrorTensor(tuple(x.shape), x.stride(), x.data_ptr(), x.element_size(), values)


def touches_by_program(
    grid: tuple[int, int, int], accesses: Sequence[Any]
) -> dict[Pid, list[Touch]]:
    """Return the accesses of every program of a launch, in order.

    An access holds offsets and mask with a leading axis over `programs`, of length 1 if they
    are the same for all; programs are numbered with the grid's first axis innermost.
    """
    touches: dict[Pid, list[Touch]] = defaultdict(list)
    x, y, _ = grid
    for access in accesses:
        for row, program in enumerate(access.programs.tolist()):
            pid = (program % x, program // x % y, program // (x * y))
            offsets = access.offsets[row if len(access.offsets) > 1 else 0]
            mask = access.mask
            if mask is not None:
                mask = mask[row if len(mask) > 1 else 0]
            touch = Touch(access.kind, access.operand.name, offsets, mask, access.other, pid)
            touches[pid].append(touch)
    return dict(touches)

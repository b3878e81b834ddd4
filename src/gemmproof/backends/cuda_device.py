"""The CUDA device: its operands and its launches."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch

from gemmproof.backends.autotune import Choice, force, watch_tuners
from gemmproof.engine.observe import CaseNotRunnable
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import TORCH_DTYPES
from gemmproof.properties.cases.operands import POISON_FLOAT, POISON_INT, AllocatedOperand, Touched
from gemmproof.properties.cases.operands import find_changes as find_host_changes
from gemmproof.properties.judges.exact_values import list_shapes
from gemmproof.properties.observation import ObservedCase, count_given, list_given
from gemmproof.properties.wrapper_state import find_state
from gemmproof.reference.fake_cuda.multiprocessors import multiprocessors
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.simulation import Run
from gemmproof.worker.protocol import Advanced, Listener

# -- operands on the device ----------------------------------------------------------------------
CHUNK = 2**28  # bytes compared at once


@dataclass(frozen=True, slots=True)
class Placed:
    """An operand's whole storage on a device, as bytes, and the view of it that a kernel is given.

    Memory of a huge parent that the operand does not watch holds `poison` here.
    """

    operand: AllocatedOperand
    tensor: torch.Tensor
    storage: torch.Tensor
    poison: int


def allocate(operand: AllocatedOperand, dtype: str, device: torch.device) -> Placed:
    """Copy the operand to `device`. Raises torch.OutOfMemoryError if it does not fit."""
    poison = POISON_INT if FORMATS[dtype].kind == "int" else POISON_FLOAT
    storage = torch.full((operand.parent.nbytes,), poison, dtype=torch.uint8, device=device)
    width = operand.parent.itemsize
    for (start, stop), before in zip(operand.watched, operand.before, strict=True):
        storage[start * width : stop * width] = torch.from_numpy(before.view(np.uint8)).to(device)
    skip = 3 - operand.tensor.dim()
    view = operand.view
    elements = storage.view(TORCH_DTYPES[dtype])
    tensor = torch.as_strided(elements, view.shape[skip:], view.strides[skip:], view.first)
    return Placed(operand, tensor, storage, poison)


def find_changes(allocated: Placed) -> list[Touched]:
    """Return what launches changed of an operand since its copy, one entry per kind at most."""
    operand, width = allocated.operand, allocated.operand.parent.itemsize
    parent = operand.parent.view(np.uint8)
    for start, stop in operand.watched:
        here = slice(start * width, stop * width)
        parent[here] = allocated.storage[here].cpu().numpy()
    changes = find_host_changes(replace(operand, tensor=allocated.tensor))
    edges = [0, *chain.from_iterable(operand.watched), operand.view.extent]
    for start, stop in zip(edges[::2], edges[1::2], strict=True):  # unwatched memory
        for begin in range(start * width, stop * width, CHUNK):
            part = allocated.storage[begin : min(begin + CHUNK, stop * width)]
            wrong = part != allocated.poison
            if bool(wrong.any()):
                at = (begin + int(wrong.nonzero()[0])) // width - operand.view.first
                where = f"{operand.role.name} offset {at}"
                return [*changes, Touched(operand.role.name, "gap", where, int(wrong.sum()))]
    return changes


# -- launches ------------------------------------------------------------------------------------
# The contents of free memory, launch after launch: NaN in every float format, zeros, large numbers.
FILLS = (0xFF, 0x00, 0x7B)
CUDA = "cuda"


class Launches:
    """Calls a wrapper on `device`, its tuned launches in `choices`; None leaves that to the tuner.

    `ran` are the configurations that the first call ran in. Operands that do not fit there, and a
    configuration that does not, raise CaseNotRunnable.
    """

    name = CUDA
    fills: tuple[str, ...] = tuple(f"0x{byte:02x}" for byte in FILLS)

    def __init__(
        self, device: Any, target: str | None, choices: list[Choice] | None, emit: Listener
    ):
        self.device, self.target, self.choices, self.emit = device, target, choices, emit
        self.ran: list[Choice] = []
        self._allocated: dict[str, Placed] = {}
        self._failed = False

    def allocate(self, operand: AllocatedOperand, case: Case) -> torch.Tensor:
        """Copy the operand to the device's memory, between the same guards."""
        nbytes = operand.parent.nbytes
        try:
            if nbytes > self.device.free_bytes():
                raise torch.OutOfMemoryError
            allocated: Placed = self.device.allocate(operand, operand.dtype)
        except torch.OutOfMemoryError:
            raise CaseNotRunnable(f"an operand of {nbytes / 2**30:.1f} GiB") from None
        self._allocated[operand.role.name] = allocated
        return allocated.tensor

    def call(
        self,
        observation: ObservedCase,
        case: Case,
        tensors: Mapping[str, torch.Tensor],
        number: int,
    ) -> Run:
        """Call the wrapper, and wait for its launches."""
        if number == 0:
            find_state(observation.kernel.launch).restore()
        count = len(list_shapes(observation))

        def launch(*arguments: torch.Tensor) -> object:
            operands = dict(zip(tensors, arguments, strict=True))
            with multiprocessors(case.sms):
                return observation.kernel.call(case, operands, count)

        self.device.fill_uninitialised(FILLS[number])
        self._failed = True
        try:
            result, ran = self.device.call(
                launch, tuple(tensors.values()), case.config, self.choices, self._beat
            )
        except torch.OutOfMemoryError:
            raise CaseNotRunnable("operands that leave no memory for the result") from None
        self._failed = False
        self._beat()
        self.ran = self.ran or ran
        observation.device, observation.how = self.device.name, self._describe()
        count = count_given(result) if observation.kernel.memory_only else count
        kind = tensors["a"].device.type
        results = tuple(_fetch(x, kind) for x in list_given(result, count))
        return Run(result=results[0] if count == 1 else results)

    def _describe(self) -> str:
        """Describe the configuration it ran in; "" if nothing was tuned."""
        how = ", ".join(str(choice) for choice in self.ran if choice.among > 1)
        by = "the tuner's configuration" if self.choices is None else "configuration"
        return how and f", in {by} {how}"

    def find_changes(self, operand: AllocatedOperand) -> list[Touched]:
        """Return what launches changed of an operand; a failed call may leave memory unreadable."""
        return [] if self._failed else find_changes(self._allocated[operand.role.name])

    def _beat(self) -> None:
        self.emit(Advanced())  # compiling or measuring is no hang


def _fetch(result: object, kind: str) -> torch.Tensor | None:
    """Return a result in the host's memory, or None if it is no tensor of such a device."""
    fits = isinstance(result, torch.Tensor) and result.device.type == kind
    return result.detach().cpu() if fits else None  # type: ignore[attr-defined]


# -- device --------------------------------------------------------------------------------------
_RESERVE = 2**26  # bytes of cached memory, for a wrapper's allocations


class Gpu:
    """The current CUDA device of torch.

    `name`, `capability` (None if it is not NVIDIA's), `multiprocessors` and `facts` identify it;
    the tests have another object with the same names and methods, on the CPU.
    """

    def __init__(self) -> None:
        figures = torch.cuda.get_device_properties()
        nvidia = torch.version.cuda is not None
        self.name: str = torch.cuda.get_device_name()
        self.capability = (figures.major, figures.minor) if nvidia else None
        self.multiprocessors: int = figures.multi_processor_count
        self.facts = {
            "device": self.name,
            "driver": _read_driver(),
            "cuda": torch.version.cuda or "",
        }

    def free_bytes(self) -> int:
        """Return the bytes that operands may take."""
        torch.cuda.empty_cache()
        return int(0.8 * torch.cuda.mem_get_info()[0])

    def allocate(self, operand: AllocatedOperand, dtype: str) -> Placed:
        """Copy the operand to the device. Raises torch.OutOfMemoryError."""
        return allocate(operand, dtype, torch.device("cuda"))

    def fill_uninitialised(self, byte: int) -> None:
        """Fill all memory that the allocator holds free, so that torch.empty returns it."""
        small, large = (torch.empty(n, dtype=torch.uint8, device="cuda") for n in (2**20, _RESERVE))
        del small, large
        torch.cuda.synchronize()
        for segment in torch.cuda.memory_snapshot():
            address = segment["address"]
            for block in segment["blocks"]:
                if block["state"] == "inactive":
                    torch.as_tensor(_Memory(address, block["size"]), device="cuda").fill_(byte)
                address += block["size"]
        torch.cuda.synchronize()

    def call(
        self,
        function: Callable[..., Any],
        tensors: tuple[torch.Tensor, ...],
        index: int,
        choices: list[Choice] | None,
        beat: Callable[[], None],
    ) -> tuple[Any, list[Choice]]:
        """Return the wrapper's result, synchronized, and the configurations that it ran in.

        They are `choices`, then the index-th; if `choices` is None, the tuner's own, and `beat`
        is called before it measures one. Raises whatever the wrapper raises, and CaseNotRunnable.
        """
        with watch_tuners(beat) if choices is None else force(index, choices) as ran:
            try:
                result = function(*tensors)
            finally:
                torch.cuda.synchronize()  # an illegal address is reported here
        return result, ran


class _Memory:
    """Bytes at an address of the device, with the CUDA array interface."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "strides": None,
            "typestr": "|u1",
            "version": 3,
        }


def find_gpu() -> Gpu | None:
    """Return the device that torch would launch on, or None if there is none."""
    return Gpu() if torch.cuda.is_available() else None


def _read_driver() -> str:
    """Return the driver's version, "" if nvidia-smi does not report one."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    version = re.match(r"[\d.]+", answer.stdout)
    return version.group() if version else ""

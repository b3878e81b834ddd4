"""The CUDA device as the launches of a check need it: memory, calls, and what it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import torch

from gemmproof.backends.autotune import Choice, force, watch_tuners
from gemmproof.backends.on_device import Placed, place
from gemmproof.properties.cases.operands import PlacedOperand

_RESERVE = 2**26  # bytes of cached memory, for what a wrapper allocates


class Gpu:
    """The current CUDA device of torch.

    `name`, `capability` (None if it is not NVIDIA's), `multiprocessors` and `facts` say which one;
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

    def room(self) -> int:
        """The bytes that operands may take."""
        torch.cuda.empty_cache()
        return int(0.8 * torch.cuda.mem_get_info()[0])

    def place(self, operand: PlacedOperand, dtype: str) -> Placed:
        """The operand on the device. Raises torch.OutOfMemoryError."""
        return place(operand, dtype, torch.device("cuda"))

    def fill_uninitialised(self, byte: int) -> None:
        """Fill all memory that the allocator holds free, so that torch.empty hands it out."""
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
        """The wrapper's result, waited for, and the configurations that it ran in.

        They are `choices`, then the index-th; if `choices` is None, the tuner's own, and `beat`
        is called before it measures one. Raises whatever the wrapper raises, and PassedOver.
        """
        with watch_tuners(beat) if choices is None else force(index, choices) as made:
            try:
                result = function(*tensors)
            finally:
                torch.cuda.synchronize()  # an illegal address shows here
        return result, made


class _Memory:
    """Bytes at an address of the device, in the words of the CUDA array interface."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "strides": None,
            "typestr": "|u1",
            "version": 3,
        }


def find_gpu() -> Gpu | None:
    """The device that torch would launch on, None where there is none."""
    return Gpu() if torch.cuda.is_available() else None


def _read_driver() -> str:
    """The driver's version, "" where nvidia-smi does not tell."""
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

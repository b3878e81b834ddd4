"""The device that a wrapper believes in: a GPU on the CPU, with the answers of the target."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from gemmproof.reference.fake_cuda import answers
from gemmproof.reference.fake_cuda.streams import current_stream, do_bench
from gemmproof.reference.fake_cuda.tensors import CUDA, OnCpu, default_device
from gemmproof.reference.fake_cuda.unknown import refusal, told

# target -> (capability, multiprocessors, shared memory per block, name of a card that has it)
TARGETS: dict[str, tuple[tuple[int, int], int, int, str]] = {
    "sm_70": ((7, 0), 80, 98304, "Tesla V100"),
    "sm_75": ((7, 5), 40, 65536, "Tesla T4"),
    "sm_80": ((8, 0), 108, 166912, "NVIDIA A100"),
    "sm_86": ((8, 6), 84, 101376, "NVIDIA A10"),
    "sm_89": ((8, 9), 142, 101376, "NVIDIA L40S"),
    "sm_90": ((9, 0), 132, 232448, "NVIDIA H200"),
    "sm_100": ((10, 0), 148, 232448, "NVIDIA B200"),
    "sm_120": ((12, 0), 188, 101376, "NVIDIA RTX PRO 6000"),
    # Of AMD's the capability is what torch makes of the architecture's name.
    "gfx942": ((9, 4), 304, 65536, "AMD Instinct MI300X"),
    "gfx950": ((9, 5), 256, 163840, "AMD Instinct MI350X"),
}
DEFAULT = "sm_90"

# What only a launch on a device needs, of Triton's drivers and of their utilities.
_ONLY_THERE = (
    "launcher_cls map_python_to_cpp_type assemble_tensormap_to_arg allocate_default_profile_scratch"
)
_UTILITIES_ONLY_THERE = (
    "load_binary unload_module launch build_signature_metadata cuOccupancyMaxActiveClusters"
    " fill_tma_descriptor fill_tma_descriptor_tiled fill_tma_descriptor_im2col"
    " fill_1d_tma_descriptor fill_2d_tma_descriptor create_tdm_descriptor"
)


def is_amd(target: str) -> bool:
    """Whether the target is a GPU of AMD, which torch calls CUDA as well."""
    return target.startswith("gfx")


def _utilities(target: str) -> Any:
    """driver.active.utils: the figures of the device."""
    capability, sms, shared, _ = TARGETS[target]
    figures: dict[str, Any] = {
        "max_shared_mem": shared,
        "multiprocessor_count": sms,
        "max_num_regs": 65536,
        "warpSize": 32,
        "sm_clock_rate": 1980000,
        "mem_clock_rate": 3201000,
        "mem_bus_width": 6144,
    }
    if is_amd(target):
        arch = answers.properties(target, TARGETS[target]).gcnArchName
        figures |= {"warpSize": 64, "arch": arch, "max_threads_per_sm": 2048}
        figures |= {"sm_clock_rate": 2100000, "mem_clock_rate": 1300000, "mem_bus_width": 8192}
        figures["cooperativeLaunch"] = 1
    refused = {
        name: refusal(f"driver.active.utils.{name}", None) for name in _UTILITIES_ONLY_THERE.split()
    }
    return types.SimpleNamespace(
        **refused,
        get_device_properties=lambda device=0: dict(figures),
        get_device_capability=lambda device=0: capability,
        get_current_device=lambda: 0,
        set_current_device=lambda device: None,
        get_default_stream=lambda device=0: 0,
        is_stream_capturing=lambda stream=0: False,
        set_printf_fifo_size=lambda size: None,
    )


class _Driver:
    """Triton's active driver as a wrapper may ask it; it launches nothing."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.utils = _utilities(target)
        for name in _ONLY_THERE.split():
            setattr(self, name, refusal(f"driver.active.{name}", None))

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        if is_amd(self.target):
            return GPUTarget("hip", self.target, 64)
        major, minor = TARGETS[self.target][0]
        return GPUTarget("cuda", major * 10 + minor, 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        return None

    def get_current_stream(self, device: int = 0) -> int:
        return current_stream().cuda_stream

    def get_active_torch_device(self) -> torch.device:
        return CUDA

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return TARGETS[self.target][0]

    def get_benchmarker(self) -> Any:
        return do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.int32)

    def clear_cache(self, cache: Any) -> None:
        return None

    @classmethod
    def is_active(cls) -> bool:
        return True


@functools.cache
def _changes(target: str) -> tuple[answers.Change, ...]:
    from triton.runtime import driver

    active = _Driver(target)
    return (
        *answers.changes(target, TARGETS[target]),
        (driver, "_active", active),
        (driver, "_default", active),
    )


@contextmanager
def pretended(target: str | None = None) -> Iterator[None]:
    """Within it CUDA seems present, with the figures of `target` (default sm_90).

    Modules that ask for the device when they are imported, and wrappers that check `a.is_cuda`,
    run unchanged; no device that the machine may have is reached. What is not known is refused:
    Unsupported, with the line that asks. Raises ValueError for an unknown target.
    """
    target = target or DEFAULT
    if target not in TARGETS:
        raise ValueError(f"target: got {target!r}, expected one of {' '.join(TARGETS)}")
    with ExitStack() as stack:
        stack.enter_context(answers.swapped(_changes(target)))
        stack.enter_context(default_device())
        if "torch._dynamo" in sys.modules:  # what was compiled before shall run as it is written
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(OnCpu())
        try:
            yield
        except Exception as error:
            refused = told(error)
            if refused is None:
                raise
            raise refused from error

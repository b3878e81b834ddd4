"""The device that a wrapper believes in: a GPU on the CPU, with the answers of the target."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from gemmproof.reference.fake_cuda import answers
from gemmproof.reference.fake_cuda.libraries import list_libraries
from gemmproof.reference.fake_cuda.streams import current_stream, do_bench
from gemmproof.reference.fake_cuda.tensors import CUDA, OnCpu, default_device
from gemmproof.reference.fake_cuda.unknown import Facts, Table, explain_missing, refusal
from gemmproof.reference.gpus import DEFAULT, GPU, GPUS

# What Triton's drivers and their utilities have only for launches on a device.
_TO_LAUNCH = (
    "launcher_cls map_python_to_cpp_type assemble_tensormap_to_arg allocate_default_profile_scratch"
)
_UTILITIES_TO_LAUNCH = (
    "load_binary unload_module launch build_signature_metadata cuOccupancyMaxActiveClusters"
    " fill_tma_descriptor fill_tma_descriptor_tiled fill_tma_descriptor_im2col"
    " fill_1d_tma_descriptor fill_2d_tma_descriptor create_tdm_descriptor"
)


def _utilities(gpu: GPU) -> Any:
    """driver.active.utils: the figures of the device."""
    figures: dict[str, Any] = {
        "max_shared_mem": gpu.shared_memory,
        "multiprocessor_count": gpu.multiprocessors,
        "max_num_regs": 65536,
        "warpSize": gpu.warp_size,
        "sm_clock_rate": gpu.clock,
        "mem_clock_rate": gpu.memory_clock,
        "mem_bus_width": gpu.bus_width,
    }
    if gpu.is_amd:
        arch = answers.properties(gpu).gcnArchName
        figures |= {"arch": arch, "max_threads_per_sm": 2048, "cooperativeLaunch": 1}
    return Facts(
        "driver.active.utils",
        **_refusals("driver.active.utils", _UTILITIES_TO_LAUNCH),
        get_device_properties=lambda device=0: Table(
            "driver.active.utils.get_device_properties()", figures
        ),
        get_device_capability=lambda device=0: gpu.capability,
        get_current_device=lambda: 0,
        set_current_device=lambda device: None,
        get_default_stream=lambda device=0: 0,
        is_stream_capturing=lambda stream=0: False,
        set_printf_fifo_size=lambda size: None,
    )


def _driver(gpu: GPU) -> Any:
    """driver.active: what a wrapper may ask of it; it launches nothing."""
    from triton.backends.compiler import GPUTarget

    major, minor = gpu.capability
    kind, arch = ("hip", gpu.name) if gpu.is_amd else ("cuda", major * 10 + minor)
    return Facts(
        "driver.active",
        **_refusals("driver.active", _TO_LAUNCH),
        utils=_utilities(gpu),
        get_current_target=lambda: GPUTarget(kind, arch, gpu.warp_size),
        get_current_device=lambda: 0,
        set_current_device=lambda device: None,
        get_current_stream=lambda device=0: current_stream().cuda_stream,
        get_active_torch_device=lambda: CUDA,
        get_device_interface=lambda: torch.cuda,
        get_device_capability=lambda device=0: gpu.capability,
        get_benchmarker=lambda: do_bench,
        get_empty_cache_for_benchmark=lambda: torch.empty(0, dtype=torch.int32),
        clear_cache=lambda cache: None,
        is_active=lambda: True,
    )


def _refusals(owner: str, names: str) -> dict[str, Any]:
    return {name: refusal(f"{owner}.{name}", None) for name in names.split()}


@functools.cache
def _changes(gpu: GPU) -> tuple[answers.Change, ...]:
    from triton.runtime import driver

    active = _driver(gpu)
    drivers = ((driver, "_active", active), (driver, "_default", active))
    return (*answers.changes(gpu), *list_libraries(), *drivers)


@contextmanager
def fake_gpu(target: str | None = None) -> Iterator[None]:
    """Within it CUDA seems present, with the figures of `target` (gpus.DEFAULT where None).

    Modules that ask for the device when they are imported, and wrappers that check `a.is_cuda`,
    run unchanged; no device that the machine may have is reached. What the fake device does not
    know raises Unsupported with the caller's line, an unknown target ValueError.
    """
    target = target or DEFAULT
    if target not in GPUS:
        raise ValueError(f"target: got {target!r}, expected one of {' '.join(GPUS)}")
    with ExitStack() as stack:
        stack.enter_context(answers.swap(_changes(GPUS[target])))
        stack.enter_context(default_device())
        if "torch._dynamo" in sys.modules:  # what was compiled before runs uncompiled
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(OnCpu())
        try:
            yield
        except Exception as error:
            refused = explain_missing(error)
            if refused is None:
                raise
            raise refused from error

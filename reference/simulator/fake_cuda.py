"""The device that a wrapper believes in: CUDA on the CPU, with the answers of the target."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

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
}
DEFAULT = "sm_90"


class _OnCpu(TorchFunctionMode):
    """Every tensor is on the CPU and says that it is on the first CUDA device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        body = _custom_op(func)
        if body is not None:
            with self:
                return body(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "__get__":
            attribute = getattr(getattr(func, "__self__", None), "__name__", "")
            if attribute == "is_cuda":
                return True
            if attribute == "device":
                return torch.device("cuda", 0)
        if name in ("cuda", "cpu", "pin_memory") and args and isinstance(args[0], torch.Tensor):
            return args[0]
        if name == "get_device":
            return 0
        if name == "is_pinned":
            return False
        if _is_device(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if name in ("to", "type") and any(_is_device(x) for x in args):
            args = tuple("cpu" if _is_device(x) else x for x in args)
        if name == "_set_default_device" or name == "set_default_device":
            return None
        kwargs.pop("non_blocking", None) if name == "to" else None
        return func(*args, **kwargs)


def _custom_op(func: Any) -> Any:
    """The Python body of an operator made with torch.library (custom_op, triton_op), else None.

    It is called directly, so that what it allocates and launches is seen.
    """
    if not isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return None
    from torch._library.custom_ops import OPDEFS

    name = func._qualified_op_name if hasattr(func, "_qualified_op_name") else func.name()
    known = OPDEFS.get(name.split(".")[0])
    return None if known is None else known._init_fn


def _is_device(x: Any) -> bool:
    if isinstance(x, torch.device):
        return x.type == "cuda"
    return isinstance(x, str) and (x == "cuda" or x.startswith("cuda:"))


def _properties(target: str) -> Any:
    (major, minor), sms, shared, name = TARGETS[target]
    return types.SimpleNamespace(
        name=name,
        major=major,
        minor=minor,
        multi_processor_count=sms,
        total_memory=80 << 30,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared + 1024,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
        L2_cache_size=50 << 20,
        gcnArchName="",
        is_integrated=False,
        is_multi_gpu_board=False,
    )


class _Driver:
    """Triton's active driver as a wrapper may ask it; it launches nothing."""

    def __init__(self, target: str) -> None:
        self.target = target
        _, sms, shared, _ = TARGETS[target]
        figures = {
            "max_shared_mem": shared,
            "multiprocessor_count": sms,
            "max_num_regs": 65536,
            "warpSize": 32,
            "sm_clock_rate": 1980000,
            "mem_clock_rate": 3201000,
            "mem_bus_width": 6144,
        }
        self.utils = types.SimpleNamespace(
            get_device_properties=lambda device=0: dict(figures),
        )

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        major, minor = TARGETS[self.target][0]
        return GPUTarget("cuda", major * 10 + minor, 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        return None

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return TARGETS[self.target][0]

    def get_benchmarker(self) -> Any:
        return lambda call, *args, **kwargs: [1.0, 1.0, 1.0]

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.int32)

    def clear_cache(self, cache: Any) -> None:
        return None

    @classmethod
    def is_active(cls) -> bool:
        return True


def _stream() -> Any:
    event = types.SimpleNamespace(
        record=lambda *a, **k: None,
        synchronize=lambda *a, **k: None,
        wait=lambda *a, **k: None,
        elapsed_time=lambda *a, **k: 1.0,
        query=lambda *a, **k: True,
    )
    return types.SimpleNamespace(
        cuda_stream=0,
        stream_id=0,
        device=0,
        synchronize=lambda *a, **k: None,
        wait_stream=lambda *a, **k: None,
        wait_event=lambda *a, **k: None,
        record_event=lambda *a, **k: event,
        query=lambda *a, **k: True,
    )


@contextmanager
def pretended(target: str | None = None) -> Iterator[None]:
    """Within it CUDA seems present, with the figures of `target` (default sm_90).

    Modules that ask for the device when they are imported, and wrappers that check `a.is_cuda`,
    run unchanged. Raises ValueError for an unknown target.
    """
    target = target or DEFAULT
    if target not in TARGETS:
        raise ValueError(f"target: got {target!r}, expected one of {' '.join(TARGETS)}")
    from triton.runtime import driver

    capability, _, _, name = TARGETS[target]
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda device=None: capability,
        "get_device_properties": lambda device=None: _properties(target),
        "get_device_name": lambda device=None: name,
        "synchronize": lambda device=None: None,
        "set_device": lambda device: None,
        "init": lambda: None,
        "empty_cache": lambda: None,
        "current_stream": lambda device=None: _stream(),
        "default_stream": lambda device=None: _stream(),
        "Stream": lambda *a, **k: _stream(),
        "stream": lambda *a, **k: nullcontext(),
        "device": lambda *a, **k: nullcontext(),
        "device_of": lambda *a, **k: nullcontext(),
        "is_bf16_supported": lambda *a, **k: capability >= (8, 0),
        "is_current_stream_capturing": lambda: False,
    }
    with ExitStack() as stack:
        for word, answer in answers.items():
            stack.enter_context(patch.object(torch.cuda, word, answer))
        stack.enter_context(patch.object(torch.version, "cuda", torch.version.cuda or "12.8"))
        stack.enter_context(patch.object(driver, "_active", _Driver(target)))
        stack.enter_context(_OnCpu())
        yield

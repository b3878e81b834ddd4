"""The device that a wrapper sees: a CUDA driver without a GPU, in its answers."""

from __future__ import annotations

import functools
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ContextDecorator, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from triton.backends.compiler import GPUTarget

from gemmproof.reference.fake_cuda import tensors
from gemmproof.reference.fake_cuda.multiprocessors import DeviceFigures, DeviceProperties
from gemmproof.reference.fake_cuda.tensors import (
    CUDA,
    Facts,
    OnCpu,
    current_stream,
    default_device,
    do_bench,
    explain_lack,
    explain_missing,
    label_call,
    make_unknown,
    mark_result_host,
    no_device,
    refusal,
)
from gemmproof.reference.gpus import DEFAULT, GPU, GPUS
from gemmproof.reference.triton_hooks import Change, replace_device, swap

__all__ = ["changes", "explain_lack", "fake_gpu"]

# -- bindings ------------------------------------------------------------------------------------
_DEFAULT = "_set_default_tensor_type"
_KIND = "_accelerator_getAccelerator"  # asks which kind torch was built for


def refuse_bindings(answered: set[str]) -> Iterator[tuple[Any, str, Any]]:
    """Yield each function of torch._C with its refusal, except those that have an answer.

    The CPU build has hardly any of them, so a call of one is refused with either build. No two
    share a refusal: torch._dynamo knows each by its object, and refuses one twice.
    """
    yield torch._C, _DEFAULT, _refuse_cuda_type(torch._C._set_default_tensor_type)
    for name, value in vars(torch._C).items():
        if name in (*answered, _KIND) or not isinstance(value, types.BuiltinFunctionType):
            continue
        if name.startswith(("_cuda_", "_accelerator_")):
            yield torch._C, name, lambda *args, **kwargs: no_device()


def _refuse_cuda_type(original: Any) -> Any:
    """Return torch._C._set_default_tensor_type with types of CUDA tensors refused.

    The CUDA build of torch accepts them for the whole process: every tensor that is created later,
    also outside the fake device, would be created on CUDA.
    """

    def set_default(kind: Any) -> None:
        if getattr(kind, "__module__", "").startswith("torch.cuda"):
            raise make_unknown(label_call())
        original(kind)

    return set_default


# -- answers about the device --------------------------------------------------------------------
_PARTS = "memory random streams graphs nvtx profiler tunable jiterator nccl gds green_contexts"
_CUDA, _HIP = "12.8", "6.4.43484-123eb5128"


class NullContext(ContextDecorator, nullcontext[None]):
    """A context, and a decorator, that changes nothing: of a device, of a range, of a guard."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.idx, self.prev_idx = 0, 0


def always(answer: Any) -> Callable[..., Any]:
    """Return a function that returns `answer` for any arguments."""
    return lambda *args, **kwargs: answer


def _compile(model: Any = None, **kwargs: Any) -> Any:
    """Replace torch.compile, and leave every function unchanged."""
    return model if model is not None else lambda function: function


def _module(device: Any = None) -> Any:
    name = "cuda" if device is None else torch.device(device).type
    return getattr(torch, name)


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


def _table(*rows: tuple[str, Any]) -> dict[str, object]:
    """Return a table by name from (names, the replacement of each).

    No two names share a function: torch._dynamo knows each by its object, and refuses one twice.
    """
    return {name: _copy(answer) for names, answer in rows for name in names.split()}


def _copy(answer: Any) -> Any:
    if isinstance(answer, type) or not callable(answer):
        return answer
    return lambda *args, **kwargs: answer(*args, **kwargs)


_NOTHING: Any = always(None)
_MEMORY = _table(
    (
        "memory_allocated memory_reserved memory_cached max_memory_allocated max_memory_reserved"
        " max_memory_cached device_memory_used",
        always(0),
    ),
    ("memory_stats host_memory_stats", lambda device=None: defaultdict(int)),
    (
        "reset_peak_memory_stats reset_accumulated_memory_stats reset_peak_host_memory_stats"
        " reset_accumulated_host_memory_stats",
        _NOTHING,
    ),
)
_RANDOM = _table(
    ("manual_seed manual_seed_all", _seed),
    ("seed seed_all", torch.default_generator.seed),
    ("initial_seed", torch.default_generator.initial_seed),
    ("get_rng_state", lambda device=None: torch.default_generator.get_state()),
    ("get_rng_state_all", lambda: [torch.default_generator.get_state()]),
    ("set_rng_state", lambda state, device=None: torch.default_generator.set_state(state)),
    ("set_rng_state_all", lambda states: torch.default_generator.set_state(states[0])),
)
_STREAMS = _table(
    ("Stream ExternalStream", tensors.Stream),
    ("Event", tensors.Event),
    ("stream StreamContext", tensors.in_stream),
    ("current_stream", tensors.current_stream),
    ("default_stream", tensors.default_stream),
    ("get_stream_from_external", lambda pointer, device=None: tensors.Stream()),
    ("set_stream", tensors.set_stream),
    ("CUDAGraph", tensors.Graph),
    ("graph", tensors.capture),
    ("graph_pool_handle", always((0, 0))),
    ("is_current_stream_capturing", tensors.is_capturing),
    ("make_graphed_callables", tensors.make_graphed_callables),
)
_RANGES = _table(
    ("range_push range_pop range_start", always(0)),
    ("range_end mark start stop", _NOTHING),
    ("range profile", NullContext),
)
_BENCHES = _table(
    ("do_bench do_bench_cudagraph do_bench_proton do_bench_cudagraph_proton", tensors.do_bench),
)
_ACCELERATOR = _table(
    ("is_available", always(True)),
    ("device_count", always(1)),
    ("current_accelerator", always(torch.device("cuda"))),
    ("current_device_index current_device_idx", always(0)),
    ("set_device_index set_device_idx synchronize empty_cache empty_host_cache", _NOTHING),
    ("device_index", NullContext),
    ("current_stream", tensors.current_stream),
    ("set_stream", tensors.set_stream),
)


def _answer_queries(gpu: GPU) -> Callable[[list[str]], list[int]]:
    """Replace triton.testing.nvsmi, which models of a kernel's time ask for clocks, in MHz."""
    clocks = {"sm": gpu.clock // 1000, "memory": gpu.memory_clock // 1000}

    def query(attributes: list[str]) -> list[int]:
        units = [a.removeprefix("clocks.max.").removeprefix("clocks.current.") for a in attributes]
        for unit, attribute in zip(units, attributes, strict=True):
            if unit not in clocks:
                raise make_unknown(f"triton.testing.nvsmi([{attribute!r}])")
        return [clocks[unit] for unit in units]

    return query


def properties(gpu: GPU) -> Any:
    """Return the answer of torch.cuda.get_device_properties()."""
    shared, amd = gpu.shared_memory, gpu.is_amd
    return DeviceProperties(
        "torch.cuda.get_device_properties()",
        name=gpu.card,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        _own=gpu.multiprocessors,
        total_memory=gpu.memory,
        shared_memory_per_block=shared if amd else 49152,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared if amd else shared + 1024,
        regs_per_multiprocessor=gpu.registers,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=gpu.block_threads,
        warp_size=gpu.warp_size,
        L2_cache_size=gpu.l2_cache,
        gcnArchName=f"{gpu.name}:sramecc+:xnack-" if amd else gpu.card,
        clock_rate=gpu.clock,
        memory_clock_rate=gpu.memory_clock,
        memory_bus_width=gpu.bus_width,
        is_integrated=False,
        is_multi_gpu_board=False,
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
        uuid="00000000-0000-0000-0000-000000000000",
    )


def _of_cuda(gpu: GPU) -> dict[str, object]:
    """Return torch.cuda's own names, also those that a part of it defines."""
    since_ampere = gpu.capability >= (8, 0)

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return including_emulation or since_ampere

    own = _table(
        ("is_available is_initialized", always(True)),
        ("device_count", always(1)),
        ("current_device get_sync_debug_mode _exchange_device _maybe_exchange_device", always(0)),
        (
            "synchronize set_device init empty_cache ipc_collect check_error"
            " reset_max_memory_allocated reset_max_memory_cached"
            " set_per_process_memory_fraction set_sync_debug_mode",
            _NOTHING,
        ),
        ("get_device_capability", always(gpu.capability)),
        ("get_device_properties", lambda device=None: properties(gpu)),
        ("get_device_name", always(gpu.card)),
        ("device device_of", NullContext),
        ("is_bf16_supported", is_bf16_supported),
        ("is_tf32_supported", always(since_ampere and not gpu.is_amd)),
        ("get_arch_list", always([gpu.name])),
        ("get_gencode_flags memory_summary list_gpu_processes", always("")),
        ("get_per_process_memory_fraction", always(1.0)),
        ("get_allocator_backend", always("native")),
        ("can_device_access_peer", always(False)),
        ("mem_get_info", always((gpu.memory, gpu.memory))),
        ("memory_snapshot", lambda *args, **kwargs: []),
        ("_lazy_init", no_device),
    )
    return {**_MEMORY, **_RANDOM, **_STREAMS, **own}


@functools.cache
def changes(gpu: GPU) -> tuple[Change, ...]:
    """Return every attribute that is replaced while the fake device is active."""
    cuda, amd = _of_cuda(gpu), gpu.is_amd
    replacements: list[Change] = [
        (torch.cuda, "_sleep", _NOTHING),
        (torch.cuda, "_get_device_properties", _copy(cuda["get_device_properties"])),
        (torch._C, "_cuda_getCurrentRawStream", always(0)),
        # torch's own accepts no stream but torch's
        (torch.Tensor, "record_stream", _NOTHING),
        (torch.UntypedStorage, "device", tensors.STORAGE_DEVICE),
    ]
    replacements += refuse_bindings({name for owner, name, _ in replacements if owner is torch._C})
    for module in [
        torch.cuda,
        *(vars(torch.cuda)[p] for p in _PARTS.split() if p in vars(torch.cuda)),
    ]:
        known = {**cuda, **_RANGES} if module.__name__.endswith(("nvtx", "profiler")) else cuda
        replacements += _list_answered(module, known)
        replacements += _list_refused(module, known)
    accelerator = {
        **_ACCELERATOR,
        **_MEMORY,
        "get_memory_info": always((gpu.memory, gpu.memory)),
    }
    for name in ("torch.accelerator", "torch.accelerator.memory"):
        if name in sys.modules:
            replacements += _list_answered(sys.modules[name], accelerator)
    replacements += _list_answered(
        torch,
        {
            "compile": _compile,
            "get_device_module": _module,
            "Stream": tensors.Stream,
            "Event": tensors.Event,
            "Generator": tensors.Generator,
            "from_numpy": mark_result_host(torch.from_numpy),
            "frombuffer": mark_result_host(torch.frombuffer),
        },
    )
    replacements += _list_answered(
        torch.version, {"cuda": None if amd else _CUDA, "hip": _HIP if amd else None}
    )
    replacements += _list_answered(torch.backends.cuda, {"is_built": always(True)})
    # both call nvidia-smi, which may not be there
    tools = {"nvsmi": _answer_queries(gpu), "set_gpu_clock": refusal("set_gpu_clock", None)}
    replacements += replace_device(_driver(gpu), {**_BENCHES, **tools}, _handle_like)
    return tuple(replacements)


def _list_answered(module: Any, known: Mapping[str, object]) -> list[Change]:
    return [(module, name, answer) for name, answer in known.items() if hasattr(module, name)]


def _list_refused(module: Any, known: Mapping[str, object]) -> Iterator[Change]:
    """Yield functions and classes of a module that have no answer, except torch's old types."""
    for name, value in vars(module).items():
        if name.startswith("_") or name in known or name.endswith(("Tensor", "Storage", "Error")):
            continue
        if not str(getattr(value, "__module__", "")).startswith("torch.cuda"):
            continue
        if isinstance(value, type | types.FunctionType) and name != "cudaStatus":
            yield module, name, refusal(f"{module.__name__}.{name}", value)


# -- libraries -----------------------------------------------------------------------------------
def _handle_like(real: type) -> type:
    """Return a class constructed as `real` is; each of its methods is refused by name."""
    methods = {
        name: refusal(f"{real.__name__}.{name}", value)
        for name, value in vars(real).items()
        if not name.startswith("_") and callable(value)
    }
    constructor = {"__init__": lambda self, workspace: None, "__module__": real.__module__}
    return type(real.__name__, (), {**constructor, **methods})


# -- driver --------------------------------------------------------------------------------------
# Names of Triton's drivers and their utilities that serve only launches on a device.
_TO_LAUNCH = (
    "launcher_cls map_python_to_cpp_type assemble_tensormap_to_arg allocate_default_profile_scratch"
)
_UTILITIES_TO_LAUNCH = (
    "load_binary unload_module launch build_signature_metadata cuOccupancyMaxActiveClusters"
    " fill_tma_descriptor fill_tma_descriptor_tiled fill_tma_descriptor_im2col"
    " fill_1d_tma_descriptor fill_2d_tma_descriptor create_tdm_descriptor"
)


def _utilities(gpu: GPU) -> Any:
    """Return driver.active.utils: the figures of the device."""
    figures: dict[str, object] = {
        "max_shared_mem": gpu.shared_memory,
        "multiprocessor_count": gpu.multiprocessors,
        "max_num_regs": 65536,
        "warpSize": gpu.warp_size,
        "sm_clock_rate": gpu.clock,
        "mem_clock_rate": gpu.memory_clock,
        "mem_bus_width": gpu.bus_width,
    }
    if gpu.is_amd:
        arch = properties(gpu).gcnArchName
        figures |= {"arch": arch, "max_threads_per_sm": 2048, "cooperativeLaunch": 1}
    return Facts(
        "driver.active.utils",
        **_refusals("driver.active.utils", _UTILITIES_TO_LAUNCH),
        get_device_properties=lambda device=0: DeviceFigures(
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
    """Return driver.active, for a wrapper's queries; it launches nothing."""
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


def _refusals(owner: str, names: str) -> dict[str, object]:
    return {name: refusal(f"{owner}.{name}", None) for name in names.split()}


@contextmanager
def fake_gpu(target: str | None = None) -> Iterator[None]:
    """Make CUDA seem present, with the figures of `target` (gpus.DEFAULT if None).

    Modules that ask for the device when they are imported, and wrappers that check `a.is_cuda`,
    run unchanged; no device that the machine may have is reached. A query that the fake device
    cannot answer raises Unsupported with the caller's line, an unknown target ValueError.
    """
    target = target or DEFAULT
    if target not in GPUS:
        raise ValueError(f"target: got {target!r}, expected one of {' '.join(GPUS)}")
    with ExitStack() as stack:
        stack.enter_context(swap(changes(GPUS[target])))
        stack.enter_context(default_device())
        if "torch._dynamo" in sys.modules:  # functions compiled before run uncompiled
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(OnCpu())
        try:
            yield
        except Exception as error:
            refused = explain_missing(error)
            if refused is None:
                raise
            raise refused from error

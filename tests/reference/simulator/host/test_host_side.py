"""Queries of wrappers, modules and hooks to torch and Triton: answered or refused.

Whatever the fake device does not know ends as Unsupported, with the line that asks: an error
that only a missing GPU causes must not be blamed on a kernel.
"""

from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.simulation import Unsupported
from gemmproof.reference.simulator import run, simulate

A, B = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2)
HERE = Path(__file__).name


@triton.jit
def double(x, y, n, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n, other=0.0), mask=i < n)


def launch(a):
    """2 * a, by a launch."""
    c = torch.empty_like(a)
    double[(1,)](a, c, a.numel(), S=8)
    return c


# -- what is answered ----------------------------------------------------------------------------
def streams_and_events(a, b):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    start.record()
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() is side
        c = launch(a)
    with side:
        assert torch.cuda.current_stream() is side
    c.record_stream(side)
    end.record(side)
    end.wait(side)
    end.synchronize()
    torch.cuda.current_stream().wait_stream(side)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert start.query()
    assert start.elapsed_time(end) > 0
    assert isinstance(side, torch.cuda.Stream)
    assert isinstance(end, torch.cuda.Event)
    return c


def graph_captured_and_replayed(a, b):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
        assert torch.cuda.is_current_stream_capturing()
        c = launch(a)
    graph.replay()
    assert not torch.cuda.is_current_stream_capturing()
    return torch.cuda.make_graphed_callables(launch, (a,))(a) if c.sum() < 0 else c


def memory_figures(a, b):
    torch.cuda.reset_peak_memory_stats()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
    assert torch.cuda.memory_allocated() <= torch.cuda.max_memory_allocated()
    assert torch.cuda.memory.memory_reserved() + torch.cuda.memory_stats()["a.b"] >= 0
    return launch(a)


def benches(a, b):
    assert triton.testing.do_bench(lambda: launch(a), warmup=1, rep=1) > 0
    assert triton.testing.do_bench_cudagraph(lambda: launch(a)) > 0
    assert len(triton.testing.do_bench(lambda: launch(a), quantiles=[0.5, 0.2, 0.8])) == 3
    assert triton.runtime.driver.active.get_benchmarker()(lambda: launch(a), quantiles=[0.5]) > 0
    return launch(a)


def random_numbers(a, b):
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert generator.device == a.device
    x = torch.rand(4, device="cuda", generator=generator)
    generator.manual_seed(3)
    assert torch.equal(x, torch.rand(4, device="cuda", generator=generator))
    torch.cuda.manual_seed_all(0)
    torch.manual_seed(1)
    state = torch.cuda.get_rng_state()
    y = torch.rand(4, device=a.device)
    torch.cuda.set_rng_state(state)
    assert torch.equal(y, torch.rand(4, device=a.device))
    return launch(a)


@torch.no_grad()
def modes_and_ranges(a, b):
    compiled = torch.compile(launch, mode="max-autotune")
    decorated = torch.compile(fullgraph=True)(launch)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32
    with torch.autocast("cuda", dtype=torch.float16), torch.cuda.nvtx.range("product"):
        assert torch.is_autocast_enabled("cuda")
        c = compiled(a)
    torch.cuda.nvtx.range_push("again")
    torch.cuda.nvtx.range_pop()
    with torch.cuda.device(a.device), torch.cuda.device_of(a), torch.cuda.profiler.profile():
        assert torch.equal(c, decorated(a))
    return c


def accelerator(a, b):
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator().type == "cuda"
    assert torch.accelerator.device_count() == 1
    torch.accelerator.set_device_index(torch.accelerator.current_device_index())
    torch.accelerator.synchronize()
    assert torch.get_device_module() is torch.get_device_module("cuda") is torch.cuda
    assert torch.cuda.get_arch_list() == ["sm_90"]
    assert torch.version.cuda
    assert torch.version.hip is None
    return launch(a)


def devices_by_any_name(a, b):
    for device in ("cuda", "cuda:0", 0, torch.device("cuda"), torch.device("cuda", 0), a.device):
        x = torch.ones(2, device=device)
        assert x.is_cuda
        assert torch.ones(2).to(device).get_device() == 0
    with torch.device("cuda"):
        assert torch.ones(2).is_cuda
        assert torch.ones(2, device="cpu").device.type == "cpu"
    assert torch.nn.Linear(2, 2).cuda().weight.is_cuda
    assert a.type() == "torch.cuda.FloatTensor"
    return launch(a.to(0).cuda().to("cuda", non_blocking=True))


def host_and_device(a, b):
    """A copy on the host has a host device, and is another tensor."""
    host = a.cpu()
    host += 1
    assert not host.is_cuda
    assert host.device == torch.device("cpu")
    assert host.get_device() == -1
    for storage in (a.untyped_storage(), a.T[1:].untyped_storage(), a.storage()):
        assert (storage.device, storage.is_cuda) == (a.device, True)
    for storage in (host.untyped_storage(), torch.ones(2).untyped_storage()):
        assert (storage.device, storage.is_cuda) == (host.device, False)
    assert torch.UntypedStorage(4).device == host.device
    assert torch.equal(a.to("cpu") + 1, host)
    assert torch.ones(2).device.type == torch.from_numpy(host.numpy()).device.type == "cpu"
    assert (torch.ones(3, 3) @ torch.ones(3, 3)).T.device.type == "cpu"
    pinned = torch.ones(2, pin_memory=True).pin_memory()
    assert pinned.is_pinned()
    back = host.to("cuda", non_blocking=True)
    back -= 1
    assert back.is_cuda
    assert (back * torch.tensor(2.0)).is_cuda
    return launch(back)


def triton_answers(a, b):
    active = triton.runtime.driver.active
    assert active.get_current_target().backend == "cuda"
    assert tl.target_info.is_cuda()
    assert not tl.target_info.is_hip()
    figures = active.utils.get_device_properties(active.get_current_device())
    names = "max_shared_mem max_num_regs multiprocessor_count warpSize sm_clock_rate mem_bus_width"
    assert {*names.split(), "mem_clock_rate"} <= set(figures)
    active.clear_cache(active.get_empty_cache_for_benchmark())
    event = active.get_device_interface().Event(enable_timing=True)
    event.record(active.get_current_stream(0))
    assert active.get_active_torch_device() == a.device
    return launch(a)


@pytest.mark.parametrize(
    "wrapper",
    [streams_and_events, graph_captured_and_replayed, memory_figures, benches, random_numbers,
     modes_and_ranges, accelerator, devices_by_any_name, host_and_device, triton_answers],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_answered(wrapper):
    seen = run(wrapper, A, B)
    assert seen.faults == []
    assert torch.equal(seen.result, 2 * A)


def test_a_default_device_holds_among_wrappers_only():
    def sets(a, b):
        torch.set_default_device("cuda")
        return torch.ones(2).is_cuda

    def unsets(a, b):
        before = torch.ones(2).is_cuda
        torch.set_default_device(None)
        return before, torch.ones(2).is_cuda

    assert simulate(sets, A, B)
    assert torch.ones(2).device.type == torch.get_default_device().type == "cpu"
    assert simulate(unsets, A, B) == (True, False)
    assert simulate(unsets, A, B) == (False, False)


@pytest.mark.parametrize(
    ("target", "sms", "capability", "shared"),
    [("gfx942", 304, (9, 4), 65536), ("gfx950", 256, (9, 5), 163840)],
)
def test_amd(target, sms, capability, shared):
    def asks(a, b):
        active = triton.runtime.driver.active
        assert active.get_current_target() == triton.backends.compiler.GPUTarget("hip", target, 64)
        assert tl.target_info.is_hip()
        assert torch.version.cuda is None
        assert torch.version.hip
        assert torch.cuda.get_device_capability() == capability
        figures = torch.cuda.get_device_properties(0)
        assert figures.gcnArchName == f"{target}:sramecc+:xnack-"
        assert (figures.multi_processor_count, figures.warp_size) == (sms, 64)
        figures = active.utils.get_device_properties(0)
        assert (figures["max_shared_mem"], figures["warpSize"]) == (shared, 64)
        assert figures["arch"].split(":")[0] == target
        return launch(a)

    assert torch.equal(run(asks, A, B, target=target).result, 2 * A)


# -- and afterwards -----------------------------------------------------------------------------
def test_nothing_is_left_behind():
    before = [{name: id(value) for name, value in vars(m).items()} for m in (torch.cuda, torch._C)]
    kept = torch.Generator, torch.compile, torch.version.cuda, torch.Tensor.record_stream
    simulate(streams_and_events, A, B)
    simulate(host_and_device, A, B)
    with pytest.raises(Unsupported):
        run(lambda a, b: torch.cuda.utilization(), A, B)
    after = [{name: id(value) for name, value in vars(m).items()} for m in (torch.cuda, torch._C)]
    assert after == before
    now = torch.Generator, torch.compile, torch.version.cuda, torch.Tensor.record_stream
    assert now == kept
    assert A.untyped_storage().device == A.device

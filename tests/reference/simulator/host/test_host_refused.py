"""Parts of torch and Triton that the fake device does not know: refused, and never reached.

A build of torch with CUDA has functions that would reach a device, or change the process for good.
"""

from pathlib import Path

import pytest
import torch
import triton
from tests.reference.simulator.host.test_host_side import launch

from gemmproof.reference.fake_cuda import fake_gpu
from gemmproof.reference.simulation import Unsupported
from gemmproof.reference.simulator import run, simulate

A, B = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2)
HERE = Path(__file__).name

REFUSED = {
    "torch.cuda.utilization": lambda: torch.cuda.utilization(),
    "torch.cuda.power_draw": lambda: torch.cuda.power_draw(),
    "torch.cuda.MemPool": lambda: torch.cuda.MemPool(),
    "torch.cuda.cudart": lambda: torch.cuda.cudart(),
    "torch.cuda.tunable.enable": lambda: torch.cuda.tunable.enable(),
    "torch.cuda.nccl.version": lambda: torch.cuda.nccl.version(),
    "triton.testing.nvsmi": lambda: triton.testing.nvsmi(["power.draw"]),
    "driver.active.launcher_cls": lambda: triton.runtime.driver.active.launcher_cls(None, None),
    "Tensor.__cuda_array_interface__": lambda: torch.ones(2).cuda().__cuda_array_interface__,
    "'_cuda_anything'": lambda: torch._C._cuda_anything(),
    "torch.cuda.FloatTensor": lambda: torch.cuda.FloatTensor(2),
    "torch.cuda.memory._snapshot": lambda: torch.cuda.memory._snapshot(),
    "_record_memory_history": lambda: torch.cuda.memory._record_memory_history(),
    "torch.set_default_tensor_type": lambda: torch.set_default_tensor_type("torch.cuda.HalfTensor"),
}


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_name_file_and_line(name, texts):
    function = REFUSED[name]

    def asks(a, b):
        c = launch(a)
        function()
        return c

    with pytest.raises(Unsupported) as caught:
        run(asks, A, B)
    line = function.__code__.co_firstlineno
    where, _, why = str(caught.value).partition(": ")
    assert where == f"{HERE}:{line}"
    assert name in why
    texts("what the fake device does not know", why.partition(" (")[0].partition(" is ")[2])
    assert (caught.value.where.file, caught.value.where.line) == (__file__, line)


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_no_type_of_cuda_tensors_becomes_the_default():
    """The CUDA build of torch would accept it for the whole process, beyond the fake device."""
    sets = REFUSED["torch.set_default_tensor_type"]
    with pytest.raises(Unsupported) as caught:
        run(lambda a, b: sets(), A, B)
    assert caught.value.__cause__ is None  # torch was not asked
    assert torch._C._get_default_device() == "cpu"
    assert torch.ones(2).dtype == torch.float32


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_a_type_of_cpu_tensors_becomes_the_default():
    def sets(a, b):
        torch.set_default_tensor_type("torch.DoubleTensor")
        return torch.ones(2).dtype

    try:
        assert simulate(sets, A, B) == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_was_imported_from_torch_before_is_refused_too():
    """A function taken from torch before the device was faked still reaches no device."""
    early = torch.cuda.current_blas_handle
    with pytest.raises(Unsupported, match=r"torch\.cuda\.current_blas_handle is not known"):
        run(lambda a, b: early(), A, B)


def test_a_replay_over_other_values_is_refused():
    def replays(a, b):
        buffer, graph = a.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            c = launch(buffer)
        buffer.copy_(b.T)
        graph.replay()
        return c

    with pytest.raises(Unsupported, match=r"CUDAGraph\.replay"):
        run(replays, A, B)


def test_other_errors_stay_what_they_are():
    def wrong(a, b):
        return a @ a

    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        run(wrong, A, B)


def test_a_refusal_keeps_what_it_wraps():
    """torch's compiler asks for it while it is imported, which may be within a traced wrapper."""
    with fake_gpu():
        assert torch.cuda.use_mem_pool.__wrapped__ is not None

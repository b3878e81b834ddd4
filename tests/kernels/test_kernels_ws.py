"""matmul_ws: the calls that get it, its compiled code, and its report without a GPU."""

import re
from importlib import import_module
from unittest.mock import patch

import pytest
import torch
from tests.kernels.compiled import capture_launches
from tests.support.lanes import first_of_each

from gemmproof.cli import EXIT, main
from gemmproof.kernels.arguments import FLOAT_OUT, FP8
from gemmproof.kernels.descriptors import SHARED_MEMORY
from gemmproof.kernels.matmul_ws import BLOCK_K, BLOCK_M, matmul_ws

module = import_module("gemmproof.kernels.matmul_ws")


@pytest.mark.parametrize("size", first_of_each([1024, 2048]))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_groups_of_warps_have_registers_of_their_own(dtype, size):
    """And one product stays in flight while the next one is fetched."""
    with capture_launches("sm_90") as launches:
        a = torch.empty(size, 64, dtype=dtype, device="cuda")
        matmul_ws(a, a.T)
    (launch,) = launches
    assert launch.kernel == "matmul_ws_kernel"
    ptx = launch.compile().asm["ptx"]
    kind = {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    BLOCK_N = launch.constants["BLOCK_N"]
    assert f"wgmma.mma_async.sync.aligned.m64n{BLOCK_N}k16.f32.{kind}.{kind}" in ptx
    given = re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32\s+(\d+)", ptx)
    assert {str(module.GROUP_REGISTERS), str(module.FETCH_REGISTERS)} <= set(given)
    assert re.search(r"wgmma\.wait_group\.sync\.aligned\s+1", ptx)


@pytest.mark.parametrize(("M", "N", "BLOCK_N"), [(1024, 1024, 64), (2048, 2048, 128), (8, 8, 64)])
def test_few_tiles_are_narrow(M, N, BLOCK_N):
    a, b, c = (torch.zeros(s).half() for s in ((M, 64), (64, N), (M, N)))
    with (
        patch.object(module, "matmul_ws_kernel") as kernel,
        patch.object(module, "num_sms", lambda device: 132),
    ):
        module._launch(a, b, c, False, False)
    ((grid,),), ((*_, columns, _, _), options) = (
        kernel.__getitem__.call_args.args,
        kernel.__getitem__.return_value.call_args,
    )
    tiles = -(-M // BLOCK_M) * -(-N // BLOCK_N)
    assert (columns, grid) == (BLOCK_N, min(132, tiles))
    assert options["SLOTS"] * (BLOCK_M + BLOCK_N) * BLOCK_K * 2 < SHARED_MEMORY


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.zeros(8, 16).half(), torch.zeros(16, 8).half()),  # on no GPU
        (torch.zeros(8, 16), torch.zeros(16, 8)),
        (torch.zeros(8, 0).half(), torch.zeros(0, 8).half()),
    ],
)
def test_elsewhere_it_is_matmul_tma(a, b):
    with patch.object(module, "launch_tma") as called:
        result = matmul_ws(a, b)
    given_a, given_b, c, _ = called.call_args.args
    assert (given_a is a, given_b is b, c is result) == (True, True, True)
    assert (c.shape, c.dtype) == ((8, 8), a.dtype)


def test_elsewhere_a_bias_and_an_activation_are_matmul_fused():
    a, b, bias = torch.zeros(8, 16).half(), torch.zeros(16, 8).half(), torch.zeros(8)
    with patch.object(module, "matmul_fused", return_value="the result") as called:
        assert matmul_ws(a, b, torch.float32, bias=bias, activation="relu") == "the result"
    (given, options) = called.call_args
    assert (given[0] is a, given[1] is b, given[2] is bias) == (True, True, True)
    assert (options["activation"], options["out_dtype"]) == ("relu", torch.float32)


@pytest.mark.parametrize(("capability", "launched"), [((9, 0), 1), ((8, 0), 0), ((10, 0), 0)])
def test_it_is_launched_on_hopper_alone(capability, launched):
    """Its instructions exist on no other GPU, newer ones included."""
    a, b = torch.zeros(8, 16).half(), torch.zeros(16, 8).half()
    with (
        patch.object(torch.Tensor, "is_cuda", True),
        patch.object(torch.cuda, "get_device_capability", lambda device: capability),
        patch.object(module, "launch_tma") as other,
        patch.object(module, "_launch") as launch,
    ):
        matmul_ws(a, b)
    assert (launch.call_count, other.call_count) == (launched, 1 - launched)


@pytest.mark.parametrize("dtype", FLOAT_OUT, ids=str)
def test_a_result_that_it_cannot_store_is_left_to_matmul_tma(dtype):
    a, b = torch.zeros(16, 16).half(), torch.zeros(16, 16).half()
    with (
        patch.object(torch.Tensor, "is_cuda", True),
        patch.object(torch.cuda, "get_device_capability", lambda device: (9, 0)),
        patch.object(module, "num_sms", lambda device: 132),
        patch.object(module, "launch_tma") as other,
        patch.object(module, "matmul_ws_kernel") as kernel,
    ):
        matmul_ws(a, b, dtype)
    launched = kernel.__getitem__.call_count
    assert (launched, other.call_count) == ((0, 1) if dtype in FP8 else (1, 0))
    assert launched or other.call_args.args[2].dtype == dtype


@pytest.mark.lane("full")
def test_without_a_gpu_the_check_says_that_it_sees_nothing(capfd, texts):
    """Neither a verdict nor a finding: one line that says where to judge it."""
    status = main(["check", "kernels/matmul_ws.py:matmul_ws", "--dtype", "fp16"])
    out, err = capfd.readouterr()
    assert status == EXIT["error"]
    (line,) = [line for line in (out + err).splitlines() if "matmul_ws_kernel" in line]
    refusal = re.sub(r"py:\d+", "py:<line>", line.partition("; judged before")[0])
    texts("a kernel in Gluon without a GPU", refusal)

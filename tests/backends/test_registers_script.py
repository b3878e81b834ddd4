"""scripts/measure.py registers, with a driver that reads the binary as NVIDIA's cuobjdump does."""

import ctypes
import re
import subprocess

import pytest
import triton
from scripts.gpu import registers

ATTRIBUTES = {4: "REG", 3: "STACK", 1: "SHARED"}


class FakeCuda:
    """The functions of libcuda that the script calls; `wrong` is added to some attributes."""

    def __init__(self, workdir, reserved=1024, wrong=None, status=0):
        self.workdir, self.reserved, self.wrong, self.status = (
            workdir,
            reserved,
            wrong or {},
            status,
        )
        self.usage, self.dynamic, self.loaded = {}, 0, 0

    def cuInit(self, flags):
        return self.status

    def succeed(self, *arguments):
        return 0

    cuDeviceGet = cuDevicePrimaryCtxRetain = cuCtxSetCurrent = cuModuleGetFunction = succeed

    def cuDeviceGetAttribute(self, value, attribute, device):
        value._obj.value = {97: 232448, 111: self.reserved}[attribute.value]
        return 0

    def cuModuleLoadData(self, module, cubin):
        file = self.workdir / "loaded.cubin"
        file.write_bytes(cubin)
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(file)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.usage = {x: int(n) for x, n in re.findall(r"(\w+)(?:\[\d\])?:(\d+)", output)}
        self.loaded += 1
        return 0

    def cuModuleUnload(self, module):
        self.loaded -= 1
        return 0

    def cuFuncSetAttribute(self, function, attribute, value):
        assert attribute.value == 8
        self.dynamic = value.value
        return int(self.dynamic > 232448)

    def cuFuncGetAttribute(self, value, attribute, function):
        n = attribute.value
        number = {8: self.dynamic, 0: 128}.get(n)
        number = self.usage[ATTRIBUTES[n]] if number is None else number
        value._obj.value = number + self.wrong.get(n, 0)
        return 0


def compare(workdir, name="fp32 in full", fmt="", **options):
    cuda = FakeCuda(workdir, **options)
    row = registers.compare(name, fmt, "sm_90", registers.CudaDriver(cuda))
    assert cuda.loaded == 0
    return row


@pytest.mark.lane("full")
def test_what_the_driver_says_of_a_binary_is_what_was_read(tmp_path):
    row = compare(tmp_path)
    assert row["expected"]
    (launch,) = row["launches"]
    assert launch["spills"] == launch["local"][0] == launch["local"][1] > 0
    assert launch["max_threads"] == [128, 128]
    assert launch["dynamic_shared"][1] == launch["dynamic_shared"][0] > 0
    assert registers.describe(row).startswith("ok  fp32 in full : ")


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("attribute", "name"),
    [(0, "max_threads"), (1, "static_shared"), (3, "local"), (4, "registers")],
)
def test_a_fact_that_differs_is_told(attribute, name, tmp_path):
    row = compare(tmp_path, wrong={attribute: -8})
    assert not row["expected"]
    assert row["launches"][0]["differs"] == [name]
    assert f"dot_kernel {name}: got " in registers.describe(row)


def test_what_the_system_keeps_of_a_block_may_be_left_out(tmp_path):
    row = compare(tmp_path, wrong={0: 896, 1: -1024})
    assert row["expected"]
    assert row["launches"][0]["max_threads"] == [128, 1024]
    ours, theirs = row["launches"][0]["static_shared"]
    assert ours - theirs == 1024


@pytest.mark.lane("full")
def test_a_registered_kernel_is_compared_and_a_call_that_fails_is_told(tmp_path, monkeypatch):
    """Without a GPU the row reports that; on one the kernel is called."""
    monkeypatch.setattr(registers.DeviceRequest, "device", False)
    row = compare(tmp_path, "matmul_splitk", "fp16")
    assert row["expected"]
    assert [x["name"] for x in row["launches"]] == ["matmul_splitk_kernel"]
    assert row["launched"]["error"] in registers.describe(row)


def test_functions_of_a_call_must_be_those_that_were_read(tmp_path, monkeypatch):
    def call(kernel, case, binaries):
        function = {"name": "k", "registers": 3, "local": 0, "max_threads": 128}
        return {"functions": [function], "same_binaries": 0}

    monkeypatch.setattr(registers, "launch_kernel", call)
    row = compare(tmp_path, "matmul_splitk", "fp16")
    assert not row["expected"]
    assert "functions of a call: got" in registers.describe(row)


def test_a_driver_that_refuses_is_told_in_a_line(tmp_path):
    message = "cuInit: got status 100 of the CUDA driver, expected 0"
    with pytest.raises(RuntimeError, match=message):
        registers.CudaDriver(FakeCuda(tmp_path, status=100))


def test_a_binary_that_the_driver_refuses_leaves_the_others(tmp_path, monkeypatch, texts):
    monkeypatch.setattr(FakeCuda, "cuFuncSetAttribute", lambda *args: 1)
    row = compare(tmp_path)
    assert not row["expected"]
    texts("a binary that the driver refuses", registers.describe(row))


def test_the_driver_is_asked_by_its_own_library(monkeypatch):
    asked = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name: asked.append(name) or FakeCuda(None))
    assert registers.CudaDriver().shared_limit == 232448
    assert asked == ["libcuda.so.1"]

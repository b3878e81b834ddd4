"""Facts read from cubins, compared with those that the CUDA driver reports after loading them."""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import torch
from scripts.gpu.evidence import (
    Row,
    collect,
    list_kernels,
    list_tasks,
    place_evidence,
    refuse,
    require_gpu,
    run_each,
)
from scripts.gpu.sanitize import copy_to_device

from gemmproof.backends.autotune import force
from gemmproof.compiled.compile import (
    CapturedLaunch,
    capture_launches,
    compile_launch,
    describe_launch,
    join_launches,
)
from gemmproof.compiled.facts import read_facts
from gemmproof.fake_device import DeviceRequest
from gemmproof.lowering.record import Dot
from gemmproof.lowering.task import capture_explained, launch_dot, make_case
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import tensors_of
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.simulation import CompileError
from gemmproof.reference.triton_hooks import intercept
from gemmproof.target import TargetError

FORMATS = ("fp16", "fp8e4m3")
#: Dots that are short of registers, so that there are spills to compare.
DOTS = {
    "fp32 in full": Dot((64, 64, 32), "fp32", precision="ieee"),
    "a large tile": Dot((128, 256, 64), "fp16", warps=4),
    "few threads": Dot((128, 128, 32), "bf16", warps=1),
}


def compare_registers(
    kernel: str = "", format: str = "", jobs: int = 8, report: Path | None = None
) -> int:
    """Compare the facts of cubins that `gemmproof lowering` reads with those of the driver.

    Every registered kernel in fp16 and fp8, and a few dots that spill, are compiled as `lowering`
    compiles them; the driver loads each binary and reports its registers, local bytes, static and
    dynamic shared memory, and threads. Kernels are then called on this GPU, and the facts that
    Triton receives for the functions it loads are compared as well. Writes
    docs/evidence/registers.json where every kernel is compared, else only what --report FILE says.
    Exits with 1 where a fact differs.
    """
    require_gpu("registers")
    major, minor = torch.cuda.get_device_capability()
    gpu = f"sm_{major}{minor}"
    if gpu not in GPUS:
        refuse("registers", gpu, f"one of {' '.join(GPUS)}")
    tasks = [(*task, gpu) for task in list_tasks("registers", kernel, format, FORMATS)]
    if not kernel and not format:
        tasks += [(name, "", gpu) for name in DOTS]
    file = report or place_evidence("registers", kernel, format)
    return collect(run_each(compare, tasks, jobs), describe, file)


def compare(name: str, format: str, gpu: str, driver: CudaDriver | None = None) -> Row:
    """Compare the launches of one kernel, or of a dot without a format: facts read and reported."""
    row: Row = {"kernel": name, "format": format, "expected": False}
    try:
        return row | _compare(name, format, gpu, driver)
    except (TargetError, CompileError, RuntimeError) as error:  # the others go on
        failed = {"functions": [], "error": f"{type(error).__name__}: {error}"}
        return row | {"launches": [], "launched": failed}


def _compare(name: str, format: str, gpu: str, driver: CudaDriver | None) -> Row:
    kernel = case = None
    if format:
        kernel = next(x for x in list_kernels("registers") if x.name == name)
        case = make_case(kernel, format)
        launches = join_launches(capture_explained(kernel, case, gpu, every=False))
    else:
        with capture_launches(gpu) as launches:
            launch_dot(DOTS[name])
    driver = driver or CudaDriver()
    read, binaries = [], set()
    for launch in launches:
        facts, cubin = read_launch(launch)
        reported = driver.load(cubin, facts["name"], facts["dynamic_shared"])
        read.append(compare_facts(facts, reported, driver))
        binaries.add(hash_of(cubin))
    launched = launch_kernel(kernel, case, binaries) if kernel and case else {"functions": []}
    known = {(x["registers"][0], x["local"][0]) for x in read}
    ran = all((x["registers"], x["local"]) in known for x in launched["functions"])
    good = bool(read) and all(not x["differs"] for x in read) and ran
    return {"expected": good, "launches": read, "launched": launched}


def read_launch(launch: CapturedLaunch) -> tuple[dict[str, Any], bytes]:
    """Return what `lowering` reads of a launch, under the driver's names, and its binary."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = compile_launch(launch, Path(folder))
    needs = read_facts(describe_launch(launch), compiled.asm, compiled.metadata).resources
    assert needs is not None
    facts = {
        "name": compiled.metadata.name,
        "registers": needs.registers,
        "local": needs.stack,
        "static_shared": needs.static_shared,
        "dynamic_shared": needs.shared,
        "max_threads": needs.threads,
        "shared_limit": needs.shared_limit,
        "spills": needs.spills,
    }
    return facts, compiled.asm["cubin"]


def compare_facts(facts: dict[str, Any], reported: dict[str, int], driver: CudaDriver) -> Row:
    """Each fact as [read, reported], and the names of those that differ.

    The static shared memory that the driver reports may exclude the part that the system keeps of a
    block; the threads are the most that a launch may have.
    """
    reported = {**reported, "shared_limit": driver.shared_limit}
    pairs = {name: [facts[name], value] for name, value in reported.items()}
    differs = [name for name, (ours, theirs) in pairs.items() if ours != theirs]
    excluded = facts["static_shared"] - reported["static_shared"]
    agrees = {
        "static_shared": excluded == driver.shared_reserved,
        "max_threads": reported["max_threads"] > facts["max_threads"],
    }
    differs = [name for name in differs if not agrees.get(name)]
    return {"name": facts["name"], **pairs, "spills": facts["spills"], "differs": differs}


def launch_kernel(kernel: KernelUnderTest, case: Case, binaries: set[str]) -> Row:
    """Return Triton's facts on the functions of a real call, and the number of equal binaries."""
    DeviceRequest.device = True
    loaded: list[Any] = []
    device = torch.device("cuda")

    def keep(original: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = original(*args, **kwargs)
        loaded.append(compiled)
        return compiled

    try:
        tensors = {name: copy_to_device(x, device) for name, x in tensors_of(case, kernel).items()}
        with force(0), intercept(compile=keep):
            kernel.call(case, tensors)
        torch.cuda.synchronize()
    except Exception as error:  # of the machine or of the kernel: the binaries were compared
        text = " ".join(str(error).split())[:200]
        return {"functions": [], "error": f"{type(error).__name__}: {text}"}
    functions = []
    for function in loaded:
        function._init_handles()
        # Triton counts spills in units of four bytes
        functions.append(
            {"name": function.name, "registers": function.n_regs, "local": 4 * function.n_spills,
             "max_threads": function.n_max_threads}
        )  # fmt: skip
    same = sum(hash_of(function.asm["cubin"]) in binaries for function in loaded)
    return {"functions": functions, "same_binaries": same}


def hash_of(cubin: bytes) -> str:
    """Return the hash that identifies a binary."""
    return hashlib.sha256(cubin).hexdigest()


def describe(row: Row) -> str:
    """A line for the kernel, and one for each launch that differs."""
    read, ran = row["launches"], row["launched"]
    facts = ", ".join(f"{x['registers'][0]} registers, {x['local'][0]} B local" for x in read)
    called = f"; called: {ran.get('same_binaries')} of {len(ran['functions'])} the same binary"
    line = f"{'ok ' if row['expected'] else 'BAD'} {row['kernel']} {row['format']}: {facts}"
    line += called if ran["functions"] else f"; {ran['error']}" if "error" in ran else ""
    wrong = [
        f"{x['name']} {name}: got {x[name][0]}, the driver says {x[name][1]}"
        for x in read
        for name in x["differs"]
    ]
    if read and not row["expected"] and not wrong:
        wrong = [f"functions of a call: got {ran['functions']}, expected those"]
    return "\n    ".join([line, *wrong])


# -- the CUDA driver, by ctypes --------------------------------------------------------------------
LIBRARY = "libcuda.so.1"
# enumerations CUfunction_attribute and CUdevice_attribute of cuda.h
_MAX_THREADS, _STATIC_SHARED, _LOCAL, _REGISTERS, _MAX_DYNAMIC_SHARED = 0, 1, 3, 4, 8
_SHARED_LIMIT, _SHARED_RESERVED = 97, 111


class CudaDriver:
    """The driver with the first device's context; `library` stands in for libcuda in tests."""

    def __init__(self, library: Any = None) -> None:
        self._cuda = library or ctypes.CDLL(LIBRARY)
        self._device = ctypes.c_int()
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self.shared_limit = self._ask_device(_SHARED_LIMIT)
        self.shared_reserved = self._ask_device(_SHARED_RESERVED)

    def load(self, cubin: bytes, name: str, dynamic_shared: int) -> dict[str, int]:
        """Load a binary; return its function's facts. Raises RuntimeError if the driver refuses.

        `dynamic_shared` bytes are requested as by a launch.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        try:
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            self._call(
                "cuFuncSetAttribute", function, ctypes.c_int(_MAX_DYNAMIC_SHARED),
                ctypes.c_int(dynamic_shared),
            )  # fmt: skip
            asked = {
                "registers": _REGISTERS, "local": _LOCAL, "static_shared": _STATIC_SHARED,
                "dynamic_shared": _MAX_DYNAMIC_SHARED, "max_threads": _MAX_THREADS,
            }  # fmt: skip
            return {word: self._ask(function, number) for word, number in asked.items()}
        finally:
            self._call("cuModuleUnload", module)

    def _ask(self, function: ctypes.c_void_p, attribute: int) -> int:
        value = ctypes.c_int()
        self._call(
            "cuFuncGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), function
        )  # fmt: skip
        return value.value

    def _ask_device(self, attribute: int) -> int:
        value = ctypes.c_int()
        self._call(
            "cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), self._device
        )
        return value.value

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._cuda, name)(*args)
        if status:
            raise RuntimeError(f"{name}: got status {status} of the CUDA driver, expected 0")

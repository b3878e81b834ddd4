"""Configurations of kernels, compiled without a GPU: one in three for sm_90, in nine elsewhere.

GEMMPROOF_EVERY_CONFIGURATION=1 asks for all of them.
"""

import os
import pkgutil
import re
from importlib import import_module

import pytest
from tests.kernels.every_call import CASES, list_launches
from tests.support.triton_versions import holds
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from gemmproof import kernels
from gemmproof.compiled.assembly import read_cubin
from gemmproof.reference.gpus import GPUS

#: Where a thread may keep something in memory on Hopper: two accumulators hardly have room in the
#: widest tiles, nor has a GELU with results of fp32, nor have fused multiply-adds in some.
MAY_SPILL = {
    ("fp8e4m3", "matmul_grouped_kernel"),
    ("fp8e4m3", "matmul_swizzled_kernel"),
    ("fp8e4m3", "matmul_persistent_kernel"),
    ("fp8e4m3, scaled", "matmul_scaled_kernel"),
    ("fp16, all else of fp32", "matmul_ws_kernel"),
    ("fp32", "matmul_kernel"),
    ("fp32, batches", "bmm_kernel"),
    *([("fp32", "matmul_grouped_kernel")] if holds("stack_of_grouped") else []),
}
#: And the same of operands whose elements have addresses of 64 bits each, but for these.
NEVER_SPILL = ("matmul_scaled_pointer_kernel", "matmul_block_scaled_pointer_kernel")
#: Launches that Triton before 3.9, or before 3.8, compiles otherwise.
WIDE = (("sm_100", "tf32, described"), ("sm_100", "int8, described"))
NARROW = ("sm_100", "matmul_scaled_pointer_kernel", "strides of 64 bits")


def find_instruction(launch, label):
    """Return the instruction that a kernel should use, or None: warp groups from 64 rows on."""
    if "BLOCK_K" not in launch.constants or launch.kernel == "add_steps_kernel":
        return None
    if label.startswith("fp32"):
        return "fma.rn.f32"
    is_transposed = "PER_WORD" in launch.constants or launch.kernel == "matmul_splitk_kernel"
    rows = launch.constants["BLOCK_N" if is_transposed else "BLOCK_M"]  # b is on the left
    if (launch.gpu, launch.kernel, label) == NARROW and not holds("narrow_tiles_by_tcgen05"):
        return None
    whole = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma"}
    if label.startswith("int8") and not holds("int8_by_tcgen05"):
        whole["sm_100"] = "mma.sync"
    return whole[launch.gpu] if rows >= 64 else "mma.sync"


def judge(launch, label):
    """Return the faults of a launch, in a line each."""
    try:
        compiled = launch.compile()
    except Exception as error:  # whatever Triton and ptxas raise
        return [f"{launch}, {label}: got {' '.join(str(error).split())}, expected it to compile"]
    expectations = [*expect(launch, label, compiled)]
    if launch.gpu == "sm_90":
        expectations += expect_on_hopper(launch, label, compiled)
    return [
        f"{launch}, {label}: got {got}, expected {expected}"
        for holds, got, expected in expectations
        if not holds
    ]


def expect(launch, label, compiled):
    """Yield for every GPU whether a condition holds, the actual value, and the expected one."""
    ptx, shared, limit = (
        compiled.asm["ptx"],
        compiled.metadata.shared,
        GPUS[launch.gpu].shared_memory,
    )
    is_wide = (launch.constants.get("BLOCK_N"), launch.constants.get("SUBTILES")) == (256, 2)
    exceeds = is_wide and (launch.gpu, label) in WIDE and not holds("wide_tiles_on_sm_100")
    yield shared <= limit or exceeds, f"{shared} bytes of shared memory", f"up to {limit}"
    instruction = find_instruction(launch, label)
    yield instruction is None or instruction in ptx, "another instruction", instruction
    if launch.descriptors:
        rank = re.search(r"\[(.*?)\]", launch.descriptors[0])[1].count(",") + 1
        for space in ("shared", "global")[: len(launch.descriptors) - 1]:
            copy = f"cp.async.bulk.tensor.{rank}d.{space}"
            yield copy in ptx, "no copy engine", copy


def expect_on_hopper(launch, label, compiled):
    """Yield conditions on registers and shared memory, and on the promotion of fp8 sums."""
    stack = read_cubin(compiled.asm["cubin"], launch.kernel).stack
    is_stretched = label == "strides of 64 bits" and launch.kernel not in NEVER_SPILL
    may_spill = is_stretched or (label, launch.kernel) in MAY_SPILL
    yield may_spill or stack == 0, f"{stack} bytes of stack", "none"
    instruction = find_instruction(launch, label)
    if instruction is None:
        return
    stages = launch.options.num_stages - (instruction == "mma.sync")  # which has one in registers
    least = 2 * launch.fetched * stages // launch.options.num_stages
    shared = compiled.metadata.shared
    if label.startswith("fp16"):
        yield shared >= least, f"{shared} bytes for {stages} stages", f"{least}: all fetched ahead"
    if launch.constants.get("PROMOTE"):
        # one fp32 addition for each element of the accumulator
        additions = len(re.findall(r"add(?:\.rn)?\.f32", compiled.asm["ptx"]))
        m, n = launch.constants["BLOCK_M"], launch.constants["BLOCK_N"]
        least = m * n // (32 * launch.options.num_warps)
        yield additions >= least, f"{additions} additions", f"{least}: sums of fp8 promoted"


@pytest.mark.lane("full")
@pytest.mark.parametrize(("gpu", "label"), CASES)
def test_what_is_launched_compiles_and_fits(gpu, label):
    """Into shared memory, and on Hopper into registers, to the instructions that should be used."""
    launches = list_launches(gpu)[label]
    assert launches
    if "GEMMPROOF_EVERY_CONFIGURATION" not in os.environ:
        launches = launches[:: 3 if gpu == "sm_90" else 9]
    wrong = [line for launch in launches for line in judge(launch, label)]
    assert not wrong, "\n".join(wrong)


def list_functions(kind):
    """Those of a kind in all files of the package, each once."""
    modules = pkgutil.walk_packages(kernels.__path__, "gemmproof.kernels.")
    objects = {id(x): x for m in modules for x in vars(import_module(m.name)).values()}
    return [x for x in objects.values() if isinstance(x, kind)]


@pytest.mark.lane("full")
def test_every_kernel_is_among_them():
    """On Hopper, where those for other GPUs are compiled too."""
    names = {x.fn.__name__ for x in list_functions(JITFunction)}
    names |= {x.base_fn.__name__ for x in list_functions(Autotuner)}
    launched = {x.kernel for some in list_launches("sm_90").values() for x in some}
    assert launched == {x for x in names if x.endswith("_kernel")}


@pytest.mark.parametrize("tuner", list_functions(Autotuner), ids=lambda x: x.base_fn.__name__)
def test_every_configuration_of_a_tuner_is_among_them(tuner):
    launched = [
        (x.constants, x.options)
        for some in list_launches("sm_90").values()
        for x in some
        if x.kernel == tuner.base_fn.__name__
    ]
    for config in tuner.configs:
        assert any(
            config.kwargs.items() <= constants.items()
            and (config.num_warps, config.num_stages) == (options.num_warps, options.num_stages)
            for constants, options in launched
        ), config

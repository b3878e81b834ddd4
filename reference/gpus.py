"""GPUs, one record each: the figures that a card reports, and the units of its tensor cores.

Standard library only: options are parsed without numpy. Steps, F and the fp8 units are those of
MMA-Sim (arXiv 2511.10909; PyPI mmasim 2.1.1) and of Khattak and Mikaitis (arXiv 2512.07004),
checked against their GPU recordings. FLOP a clock are those of NVIDIA's architecture whitepapers.
Threads of a block are those of the CUDA C++ Programming Guide (technical specifications by compute
capability) and, for AMD, of LLVM's AMDGPU backend (getMaxFlatWorkGroupSize).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Literal

_16_BIT = ("fp16", "bf16")
_FP8 = ("fp8e4m3", "fp8e5m2")
_AMPERE = (*_16_BIT, "tf32", "int8", "fp64")
_WARPGROUP = (*_16_BIT, "tf32", *_FP8, "int8")


@dataclass(frozen=True, slots=True)
class TensorCore:
    """The units behind one instruction, for operands of `formats`.

    One step of floats takes `step_bytes` of each row of the operands with the accumulator, of which
    each addend keeps `F` fraction bits below the largest exponent. `fp8`: "narrow" units keep those
    of e8m13 of every addend and of the result (stored in an fp32 register); "emulated" is compiled
    to two fp16 instructions and one addition.
    """

    instruction: str
    formats: tuple[str, ...]
    step_bytes: int
    F: int
    fp8: Literal["native", "narrow", "emulated"] = "native"


@dataclass(frozen=True, slots=True)
class GPU:
    """A GPU: its name as a target, and the figures of a card with that GPU.

    `cores`: those of the instruction that Triton prefers first, () if the matrix cores have no
    model. Without `triton_uses_cores` Triton's dots become fused multiply-adds, without
    `triton_uses_fp64_cores` those of fp64. `shared_memory` is that of a block, in bytes, and
    `block_threads` its maximum of threads; clocks are in kHz. For dense products a multiprocessor
    performs `core_flops` a clock in its matrix cores if elements are one byte wide, half of it for
    two bytes and so on, and `fp32_flops` a clock without them; 0 if not declared here.
    """

    name: str
    capability: tuple[int, int]
    card: str
    multiprocessors: int
    shared_memory: int
    cores: tuple[TensorCore, ...] = ()
    triton_uses_cores: bool = True
    triton_uses_fp64_cores: bool = False
    core_flops: int = 0
    fp32_flops: int = 256
    memory: int = 80 << 30
    warp_size: int = 32
    block_threads: int = 1024
    registers: int = 65536
    l2_cache: int = 50 << 20
    clock: int = 1980000
    memory_clock: int = 3201000
    bus_width: int = 6144

    @property
    def is_amd(self) -> bool:
        """True for a GPU of AMD, which torch calls CUDA as well."""
        return self.name.startswith("gfx")

    def core(self, instruction: str) -> TensorCore | None:
        """Return the units behind an instruction, or None if the GPU does not have them."""
        return next((c for c in self.cores if c.instruction == instruction), None)

    def count_flops(self, name: str, width: int) -> int:
        """Return FLOP a clock and multiprocessor in a format of `width` bytes; 0 without units."""
        if any(name in core.formats for core in self.cores):
            return self.core_flops // width
        return self.fp32_flops if name == "fp32" else 0


# torch derives an AMD GPU's capability from the name of its architecture
_amd = partial(GPU, warp_size=64, fp32_flops=0, registers=131072, l2_cache=4 << 20, clock=2100000,
               memory_clock=1300000, bus_width=8192)  # fmt: skip
_GPUS = (
    GPU("sm_70", (7, 0), "Tesla V100", 80, 98304,
        (TensorCore("mma", ("fp16",), 8, 23),), triton_uses_cores=False, core_flops=2048,
        fp32_flops=128),
    GPU("sm_75", (7, 5), "Tesla T4", 40, 65536,
        (TensorCore("mma", ("fp16", "int8"), 16, 24),), triton_uses_cores=False,
        core_flops=2048, fp32_flops=128),
    GPU("sm_80", (8, 0), "NVIDIA A100", 108, 166912, (TensorCore("mma", _AMPERE, 16, 24),),
        triton_uses_fp64_cores=True, core_flops=4096, fp32_flops=128),
    GPU("sm_86", (8, 6), "NVIDIA A10", 84, 101376, (TensorCore("mma", _AMPERE, 16, 24),),
        core_flops=2048),
    GPU("sm_89", (8, 9), "NVIDIA L40S", 142, 101376,
        (TensorCore("mma", (*_AMPERE, *_FP8), 16, 24, fp8="narrow"),), core_flops=2048),
    GPU("sm_90", (9, 0), "NVIDIA H200", 132, 232448,
        (TensorCore("wgmma", _WARPGROUP, 32, 25, fp8="narrow"),
         TensorCore("mma", (*_AMPERE, *_FP8), 32, 25, fp8="emulated")),
        triton_uses_fp64_cores=True, core_flops=8192),
    GPU("sm_100", (10, 0), "NVIDIA B200", 148, 232448,
        (TensorCore("tcgen05", _WARPGROUP, 32, 25),
         TensorCore("mma", (*_AMPERE, *_FP8), 32, 25, fp8="emulated")),
        triton_uses_fp64_cores=True, core_flops=16384),
    GPU("sm_120", (12, 0), "NVIDIA RTX PRO 6000", 188, 101376,
        (TensorCore("mma", (*_AMPERE, *_FP8), 32, 25),), core_flops=2048),
    _amd("gfx942", (9, 4), "AMD Instinct MI300X", 304, 65536, memory=192 << 30),
    _amd("gfx950", (9, 5), "AMD Instinct MI350X", 256, 163840, memory=288 << 30),
)  # fmt: skip
GPUS: Mapping[str, GPU] = MappingProxyType({gpu.name: gpu for gpu in _GPUS})
DEFAULT = "sm_90"
COUNTS = tuple(sorted({gpu.multiprocessors for gpu in _GPUS}))  # of multiprocessors

# Targets whose dot products are predicted; kernels are compiled for the others too.
TARGETS = tuple(gpu.name for gpu in _GPUS if gpu.cores)
UNMODELLED = tuple(gpu.name for gpu in _GPUS if not gpu.cores)

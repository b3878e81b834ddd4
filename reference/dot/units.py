"""Which unit accumulates a dot: what the tensor cores of gpus.py do with given formats."""

from gemmproof.reference.dot.fdpa import Unit
from gemmproof.reference.formats import FORMATS, FP8
from gemmproof.reference.gpus import GPUS, TARGETS, TensorCore

# The k order of an emulated fp8 mma: low element pairs of all registers, then the high pairs.
_LOW_PAIRS = tuple(k for t in range(4) for k in (4 * t, 4 * t + 1, 16 + 4 * t, 17 + 4 * t))
EMULATION_ORDER = (*_LOW_PAIRS, *(k + 2 for k in _LOW_PAIRS))


def default_instruction(target: str | None, in_format: str) -> str:
    """What Triton picks for a large tile."""
    if target in TARGETS:
        for core in GPUS[target].cores:
            if in_format in core.formats:
                return core.instruction
    return "fma" if target is None or in_format in ("fp32", "fp64") else "mma"


def unit_for(target: str | None, in_format: str, acc_format: str, instruction: str) -> Unit:
    """The unit that accumulates; ValueError names the value that has none."""
    if target is not None and target not in TARGETS:
        raise ValueError(f"target: got {target!r}, expected None or one of {' '.join(TARGETS)}")
    fmt = FORMATS[in_format]
    if acc_format not in fmt.sums:
        raise ValueError(
            f"acc_format: got {acc_format!r} for {in_format}, expected {' or '.join(fmt.sums)}"
        )
    if instruction == "fma":
        return Unit("integer" if fmt.kind == "int" else "fma")
    if target is None:
        raise ValueError(
            f"instruction: got {instruction!r} without a target, expected fma or a target"
        )
    core = GPUS[target].core(instruction)
    if core is None:
        known = " ".join(core.instruction for core in GPUS[target].cores)
        raise ValueError(
            f"instruction: got {instruction!r} on {target}, expected one of {known} fma"
        )
    if in_format not in core.formats:
        raise ValueError(
            f"in_format: got {in_format!r} for {instruction} on {target}, "
            f"expected one of {' '.join(core.formats)}"
        )
    if in_format == "int8":
        return Unit("integer", L=32, saturates=instruction == "mma")
    return Unit("fma") if in_format == "fp64" else _fused(core, in_format, acc_format)


def _fused(core: TensorCore, in_format: str, acc_format: str) -> Unit:
    acc, F = FORMATS[acc_format], core.F
    # 5 below the least exponent of the accumulator, and lower by the bits kept beyond fp32's own
    e_zero = acc.emin - 5 - (F - 23)
    fraction = acc.p - 1
    fp8 = core.fp8 if in_format in FP8 else "native"
    if fp8 == "narrow":
        F = FORMATS["e8m13"].p - 1
        fraction = min(fraction, F)
    L = core.step_bytes // FORMATS["fp16" if fp8 == "emulated" else in_format].itemsize
    return Unit("fused", L, F, fraction, "rne" if acc_format == "fp16" else "rz", e_zero)


def is_emulated(target: str | None, in_format: str, instruction: str) -> bool:
    """Whether the instruction is compiled to fp16 ones from zero, then one addition of c."""
    core = GPUS[target].core(instruction) if target is not None else None
    return core is not None and core.fp8 == "emulated" and in_format in FP8

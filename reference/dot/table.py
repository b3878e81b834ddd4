"""The accumulating units of every target and instruction, as a table.

L, F, rounding and e_zero of the fused units are those of MMA-Sim (arXiv 2511.10909; PyPI mmasim
2.1.1) and of Khattak and Mikaitis (arXiv 2512.07004), checked against their GPU recordings.
"""

from gemmproof.reference.dot.fdpa import Unit
from gemmproof.reference.formats import FORMATS

TARGETS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
INSTRUCTIONS = ("wgmma", "mma", "tcgen05", "fma")

# Operand bytes that one fused step takes per row: L = bytes / itemsize.
_STEP_BYTES = {"sm_70": 8, "sm_75": 16, "sm_80": 16, "sm_86": 16, "sm_89": 16}
_STEP_BYTES |= {"sm_90": 32, "sm_100": 32, "sm_120": 32}

# Fraction bits below the largest exponent that an addend keeps.
_F = {"sm_70": 23, "sm_75": 24, "sm_80": 24, "sm_86": 24, "sm_89": 24}
_F |= {"sm_90": 25, "sm_100": 25, "sm_120": 25}

# fp8 units that keep 13 bits of every addend and of the result (stored in an fp32 register).
_NARROW_FP8 = {("sm_89", "mma"), ("sm_90", "wgmma")}

# Targets whose fp8 mma.sync is compiled to two fp16 ones and one addition.
_EMULATED_FP8 = {("sm_90", "mma"), ("sm_100", "mma")}

# The k order of that emulation: low element pairs of all registers, then the high pairs.
_LOW_PAIRS = tuple(k for t in range(4) for k in (4 * t, 4 * t + 1, 16 + 4 * t, 17 + 4 * t))
EMULATION_ORDER = (*_LOW_PAIRS, *(k + 2 for k in _LOW_PAIRS))

_FP8 = ("fp8e4m3", "fp8e5m2")
_16_BIT = ("fp16", "bf16")
_SINCE_AMPERE = (*_16_BIT, "tf32", "int8", "fp64")

# Input formats of each tensor-core instruction.
_INPUTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("sm_70", "mma"): ("fp16",),
    ("sm_75", "mma"): ("fp16", "int8"),
    ("sm_80", "mma"): _SINCE_AMPERE,
    ("sm_86", "mma"): _SINCE_AMPERE,
    ("sm_89", "mma"): (*_SINCE_AMPERE, *_FP8),
    ("sm_90", "mma"): (*_SINCE_AMPERE, *_FP8),
    ("sm_90", "wgmma"): (*_16_BIT, "tf32", "int8", *_FP8),
    ("sm_100", "mma"): (*_SINCE_AMPERE, *_FP8),
    ("sm_100", "tcgen05"): (*_16_BIT, "tf32", "int8", *_FP8),
    ("sm_120", "mma"): (*_SINCE_AMPERE, *_FP8),
}

_FMA_INPUTS = ("fp16", "bf16", "tf32", "fp32", "fp64", *_FP8)


def default_instruction(target: str | None, in_format: str) -> str:
    """What Triton picks for a large tile."""
    if target is None or in_format == "fp32":
        return "fma"
    if in_format == "fp64":
        return "mma" if in_format in _INPUTS.get((target, "mma"), ()) else "fma"
    for instruction in ("wgmma", "tcgen05"):
        if (target, instruction) in _INPUTS:
            return instruction
    return "mma"


def unit_for(target: str | None, in_format: str, acc_format: str, instruction: str) -> Unit:
    """The unit that accumulates; ValueError names the value that has none."""
    if target is not None and target not in TARGETS:
        raise ValueError(f"target: got {target!r}, expected None or one of {' '.join(TARGETS)}")
    if instruction not in INSTRUCTIONS:
        raise ValueError(
            f"instruction: got {instruction!r}, expected one of {' '.join(INSTRUCTIONS)}"
        )
    _check_accumulator(in_format, acc_format)
    if instruction == "fma":
        if in_format == "int8":
            return Unit("integer")
        if in_format not in _FMA_INPUTS:
            raise ValueError(
                f"in_format: got {in_format!r}, expected one of {' '.join(_FMA_INPUTS)} int8"
            )
        return Unit("fma")
    if target is None:
        raise ValueError(
            f"instruction: got {instruction!r} without a target, expected fma or a target"
        )
    _check_inputs(target, in_format, instruction)
    if in_format == "int8":
        return Unit("integer", L=32, saturates=instruction == "mma")
    if in_format == "fp64":
        return Unit("fma")
    return _fused(target, in_format, acc_format, instruction)


def _fused(target: str, in_format: str, acc_format: str, instruction: str) -> Unit:
    half = acc_format == "fp16"
    F = _F[target]
    # the smallest exponent of the accumulator's format, minus the bits kept beyond its own
    e_zero = (-19 if half else -131) - (F - 23)
    L = _STEP_BYTES[target] // FORMATS[in_format].itemsize
    fraction = 10 if half else 23
    if in_format in _FP8:
        if (target, instruction) in _NARROW_FP8:
            F, fraction = 13, min(fraction, 13)
        if (target, instruction) in _EMULATED_FP8:
            L = _STEP_BYTES[target] // FORMATS["fp16"].itemsize
    return Unit("fused", L, F, fraction, "rne" if half else "rz", e_zero)


def is_emulated(target: str | None, in_format: str, instruction: str) -> bool:
    """Whether the instruction is compiled to fp16 ones from zero, then one addition of c."""
    return in_format in _FP8 and (target, instruction) in _EMULATED_FP8


def _check_inputs(target: str, in_format: str, instruction: str) -> None:
    if (target, instruction) not in _INPUTS:
        known = [i for t, i in _INPUTS if t == target]
        raise ValueError(
            f"instruction: got {instruction!r} on {target}, expected one of {' '.join(known)} fma"
        )
    if in_format not in _INPUTS[target, instruction]:
        raise ValueError(
            f"in_format: got {in_format!r} for {instruction} on {target}, "
            f"expected one of {' '.join(_INPUTS[target, instruction])}"
        )


def _check_accumulator(in_format: str, acc_format: str) -> None:
    allowed: tuple[str, ...] = ("fp32",)
    if in_format == "int8":
        allowed = ("int32",)
    elif in_format == "fp64":
        allowed = ("fp64",)
    elif in_format in ("fp16", *_FP8):
        allowed = ("fp32", "fp16")
    if acc_format not in allowed:
        raise ValueError(
            f"acc_format: got {acc_format!r} for {in_format}, expected {' or '.join(allowed)}"
        )

"""The instruction that Triton chooses for a dot, and its result."""

from dataclasses import replace

from gemmproof.reference.dot import DotModel, Split, dot_model
from gemmproof.reference.formats import FORMATS, FP8
from gemmproof.reference.gpus import GPUS, TARGETS, TensorCore

_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")

# The compiler's value of max_num_imprecise_acc=None in an fp8 dot on a target with wgmma.
_NEVER_PROMOTED = 1 << 30
_WGMMA_FP8_K = 32
_INT8_TCGEN05 = (3, 8)  # the first Triton that emits it for int8 dots; before, mma, which clamps


class NoModel(ValueError):
    """Triton compiles the dot, but the order in which its products are summed is unknown."""


def triton_dot(
    target: str | None,
    in_format: str | tuple[str, str],
    acc_format: str | None = None,
    *,
    BLOCK_M: int,
    BLOCK_N: int,
    BLOCK_K: int,
    num_warps: int = 4,
    input_precision: str | None = None,
    max_num_imprecise_acc: int | None = None,
    acc_passed: bool = True,
    ndim: int = 2,
    loaded_bits: int | None = None,
    joined: bool = False,
) -> DotModel:
    """Model `acc = tl.dot(a, b, acc)`, or `acc += tl.dot(a, b)` when not acc_passed.

    Its `dot` takes one BLOCK_K or a whole K loop alike; with acc None it is `tl.dot(a, b)`. fp32
    operands follow input_precision (tf32 if None). ndim: 3 for batched operands. loaded_bits:
    the width in memory of operands that the kernel itself widened (8 for int8 weights): it
    permutes k in mma.sync. joined: an operand is a result of tl.join, which also permutes. target
    None is the IEEE chain whatever the tile, of the operands as input_precision cuts or splits
    them.
    Raises ValueError naming a value that Triton refuses, and NoModel if there is no model.
    """
    a_format, b_format = (in_format, in_format) if isinstance(in_format, str) else in_format
    precision = "tf32" if input_precision is None else input_precision
    if precision not in _PRECISIONS:
        raise ValueError(
            f"input_precision: got {precision!r}, expected None or one of {' '.join(_PRECISIONS)}"
        )
    if target not in (None, *TARGETS):
        raise ValueError(f"target: got {target!r}, expected None or one of {' '.join(TARGETS)}")
    computed: str | tuple[str, str] = a_format if a_format == b_format else (a_format, b_format)
    split: Split = ""
    if computed == "fp32":
        computed, split = _fp32_inputs(target, precision)
    if target is None:
        return _split_operands(dot_model(None, computed, acc_format), split, BLOCK_K)
    gpu = GPUS[target]
    fp8 = a_format in FP8 and b_format in FP8
    takes_e4m3 = any("fp8e4m3" in core.formats for core in gpu.cores)
    if fp8 and "fp8e4m3" in (a_format, b_format) and not takes_e4m3:
        raise ValueError(f"in_format: got fp8e4m3 on {target}, expected fp8e5m2: Triton refuses it")
    if a_format == "int8" and not gpu.triton_uses_cores:
        raise ValueError(f"in_format: got int8 on {target}, expected a float: Triton refuses it")
    promotion = imprecise_acc(target, in_format, max_num_imprecise_acc, BLOCK_K)
    bits = 8 * FORMATS[a_format].itemsize
    instruction = triton_instruction(
        target,
        bits,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        num_warps=num_warps,
        ndim=ndim,
        avoid_wgmma=fp8 and acc_format in (None, "fp32") and promotion < _WGMMA_FP8_K,
    )
    if a_format == "int8" and instruction == "tcgen05" and get_version() < _INT8_TCGEN05:
        instruction = "mma"
    mma = gpu.core("mma")
    # either way doubles have the bits of a chain of fused multiply-adds
    if computed == "fp32" or (computed == "fp64" and not gpu.triton_uses_fp64_cores):
        instruction = "fma"
    if joined and instruction == "mma" and a_format != "int8":
        # 3.6 and 3.7 take half the width in memory, and 3.8 and 3.9 do where joins are two deep
        raise NoModel(f"operands of tl.join on {target}: versions of Triton lay them out otherwise")
    native = mma is not None and a_format in mma.formats and mma.fp8 != "emulated"
    if fp8 and instruction == "mma" and not native:
        model = replace(
            dot_model(target, "fp16", acc_format, "mma"),
            a_format=a_format,
            b_format=b_format,
            as_format="fp16",
            order=_loaded_order(mma, 8, 16, BLOCK_K),
        )
    else:
        model = dot_model(target, computed, acc_format, instruction)
        if instruction == "mma" and loaded_bits is not None and loaded_bits < bits:
            model = replace(model, order=_loaded_order(mma, loaded_bits, bits, BLOCK_K))
    from_zero = not (acc_passed or folds(promotion))
    part = 0
    if fp8 and instruction == "wgmma" and model.acc_format == "fp32" and promotion <= BLOCK_K:
        part = -(-promotion // _WGMMA_FP8_K) * _WGMMA_FP8_K
    model = replace(model, part=part, from_zero=from_zero, BLOCK_K=BLOCK_K)
    return _split_operands(model, split, BLOCK_K)


def get_version() -> tuple[int, ...]:
    """Return the first two numbers of the installed Triton's version."""
    import triton

    return tuple(int(part) for part in triton.__version__.split(".")[:2])


def _split_operands(model: DotModel, split: Split, BLOCK_K: int) -> DotModel:
    """Return the model for fp32 operands, each split into pieces of the given model's format."""
    if not split:
        return model
    return replace(
        model, a_format="fp32", b_format="fp32", as_format=model.a_format, split=split,
        from_zero=True, BLOCK_K=BLOCK_K,
    )  # fmt: skip


def imprecise_acc(
    target: str | None, in_format: str | tuple[str, str], given: int | None, BLOCK_K: int
) -> int:
    """Resolve max_num_imprecise_acc as the compiler does.

    None is 0, but 2**30 for two fp8 operands if there is wgmma. ValueError if Triton refuses the
    value.
    """
    formats = (in_format, in_format) if isinstance(in_format, str) else in_format
    fp8 = all(f in FP8 for f in formats)
    if given is None:
        return _NEVER_PROMOTED if fp8 and target and GPUS[target].core("wgmma") else 0
    if given < 0 or (fp8 and given > BLOCK_K):
        raise ValueError(f"max_num_imprecise_acc: got {given}, expected 0 .. BLOCK_K = {BLOCK_K}")
    return given


def folds(promotion: int) -> bool:
    """Return whether `acc += tl.dot(a, b)` becomes `tl.dot(a, b, acc)`: only without promotion.

    The dot must start at zero and have no other use.
    """
    return promotion == 0


def triton_instruction(
    target: str,
    bits: int,
    *,
    BLOCK_M: int,
    BLOCK_N: int,
    BLOCK_K: int,
    num_warps: int = 4,
    ndim: int = 2,
    avoid_wgmma: bool = False,
) -> str:
    """Return wgmma, tcgen05, mma or fma, by the tile; bits is the width of an operand element.

    avoid_wgmma: for an fp8 dot onto fp32 whose promotion interval is shorter than one wgmma.
    """
    gpu = GPUS[target]
    if not gpu.triton_uses_cores:
        return "fma"
    large = ndim == 2 and BLOCK_M % 64 == 0 and BLOCK_N % 8 == 0 and BLOCK_K * bits >= 256
    large &= bits < 64
    if gpu.core("wgmma") and large and num_warps % 4 == 0 and not avoid_wgmma:
        if bits == 8 and BLOCK_N % 16:
            raise NoModel(
                f"BLOCK_N: got {BLOCK_N} for 8-bit operands on {target}, expected a multiple of "
                "16: Triton 3.6 and 3.9 choose different instructions"
            )
        return "wgmma"
    if gpu.core("tcgen05") and large and num_warps in (4, 8):
        return "tcgen05"
    return "mma"


def _loaded_order(
    mma: TensorCore | None, loaded_bits: int, bits: int, BLOCK_K: int
) -> tuple[int, ...]:
    """Return kwidth_order, or raise NoModel if one step is not the whole instruction and BLOCK_K is
    half a group."""
    if bits > 32:
        raise NoModel(f"loaded_bits: got {loaded_bits} of doubles, whose order of k is not known")
    order = kwidth_order(loaded_bits, bits, BLOCK_K)
    if len(order) * loaded_bits == 128 and mma is not None and mma.step_bytes < 32:
        raise NoModel(f"BLOCK_K: got {BLOCK_K}, expected a multiple of {2 * BLOCK_K} for this GPU")
    return order


def kwidth_order(loaded_bits: int, bits: int, BLOCK_K: int) -> tuple[int, ...]:
    """Return the order in which mma.sync takes k if operands were loaded as narrower elements.

    A thread holds w = 32 / loaded_bits neighbours in k, so within 8 w of k instruction r takes
    k = t w + r E + e for its lower half and 4 w more for its upper, E = 32 / bits, t < 4, e < E.
    A BLOCK_K of 4 w has no upper 4 w: instruction r takes k = t w + 2 r E + e and E more (as an
    H200 does; its results do not distinguish the two halves of an instruction).
    Raises NoModel for any other BLOCK_K.
    """
    w, E = 32 // loaded_bits, 32 // bits
    if BLOCK_K % (8 * w) and BLOCK_K != 4 * w:
        raise NoModel(
            f"BLOCK_K: got {BLOCK_K} for {loaded_bits}-bit operands widened to {bits}, "
            f"expected {4 * w} or a multiple of {8 * w}"
        )
    upper, step = (4 * w, E) if BLOCK_K % (8 * w) == 0 else (E, 2 * E)
    return tuple(
        half * upper + t * w + r * step + e
        for r in range(w // step)
        for half in range(2)
        for t in range(4)
        for e in range(E)
    )


def _fp32_inputs(target: str | None, precision: str) -> tuple[str, Split]:
    """Return the format that fp32 operands are computed in, and their split."""
    if precision == "bf16x3":
        return "bf16", "bf16x3"
    if precision == "bf16x6":
        return "bf16", "bf16x6"
    if precision == "ieee" or (target is not None and not GPUS[target].triton_uses_cores):
        return "fp32", ""
    return "tf32", "tf32x3" if precision == "tf32x3" else ""

"""The results of inline assembly for arrays, its types, and the numbers that tests feed it."""

import ml_dtypes
import numpy as np
from tests.support.rational import same_bits

from gemmproof.reference.ptx import compile_asm

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
I32 = np.dtype("i4")
LETTERS = {1: "r", 2: "h", 4: "r", 8: "l"}  # by bytes
SCALARS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
WORDS = np.array(
    [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xDEADBEEF, 0x00FF8001, 0xFFFF0000],
    np.uint32,
)
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 2.5], np.float32)
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


def integer_dtype(t):
    """The numpy dtype of PTX's u32, s16 and their like."""
    return np.dtype(f"{'i' if t[0] == 's' else 'u'}{int(t[1:]) // 8}")


def canonical(x, name):
    """x in the PTX type of that name, its NaN the device's."""
    with np.errstate(all="ignore"):
        y = x.astype(SCALARS[name])
    y.view(f"u{y.itemsize}")[np.isnan(x)] = NAN[name]
    return y


def run(asm, *args, out, pack=1, constraints=None):
    """The one result of `asm` for the arrays args, with a register class by size.

    An instruction without operands takes the result, then args in order.
    """
    out = np.dtype(out)
    if constraints is None:
        sizes = [d.itemsize for d in (out, *(a.dtype for a in args))]
        constraints = "=" + ",".join("r" if pack > 1 else LETTERS[size] for size in sizes)
    if not asm.endswith((";", "}")):
        asm += " " + ", ".join(f"${i}" for i in range(len(args) + 1)) + ";"
    return compile_asm(asm, constraints, [a.dtype for a in args], [out], pack).run(list(args))[0]


def check(asm, *args, gives, **layout):
    """The one result of `asm` has the dtype and the bits of the array `gives`."""
    same_bits(run(asm, *args, out=gives.dtype, **layout), gives)


def draw_integers(count=200, seed=0, dtype=np.uint32):
    """Random integers, and those at the edges."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    inner = rng.integers(info.min, info.max, count, dtype, endpoint=True)
    edges = np.array([info.min, info.min + 1, 0, 1, info.max - 1, info.max], dtype)
    return np.concatenate([edges, inner, rng.permutation(edges)])

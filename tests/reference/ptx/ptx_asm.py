"""One result of inline assembly for arrays, its types, and the numbers that tests feed it."""

import ml_dtypes
import numpy as np

from gemmproof.reference.ptx import compile_asm

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
I32, U32, I64, U64 = (np.dtype(d) for d in ("i4", "u4", "i8", "u8"))
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
LETTERS = {1: "r", 2: "h", 4: "r", 8: "l"}  # by bytes
SCALARS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
WORDS = np.array(
    [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xDEADBEEF, 0x00FF8001, 0xFFFF0000],
    np.uint32,
)
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 2.5], np.float32)
NAN = {F16: 0x7FFF, BF16: 0x7FFF, F32: 0x7FFFFFFF, F64: 0x7FFFFFFFFFFFFFFF}


def ask(asm, *args, out, pack=1, constraints=None):
    """The one result of `asm` for the arrays args, with a register class by size."""
    out = np.dtype(out)
    if constraints is None:
        letters = [
            "r" if pack > 1 else LETTERS[d.itemsize] for d in (out, *(a.dtype for a in args))
        ]
        constraints = "=" + ",".join(letters)
    return compile_asm(asm, constraints, [a.dtype for a in args], [out], pack)(list(args))[0]


def same_bits(got, wanted):
    """Bitwise equality, so that NaN payloads and signs of zeros count."""
    wanted = np.asarray(wanted)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(
        got.view(f"u{got.itemsize}"), np.ascontiguousarray(wanted).view(f"u{got.itemsize}")
    )


def words(count=200, seed=0, dtype=np.uint32):
    """Random integers beside those at the edges."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    drawn_ = rng.integers(info.min, info.max, count, dtype, endpoint=True)
    edges = np.array([info.min, info.min + 1, 0, 1, info.max - 1, info.max], dtype)
    return np.concatenate([edges, drawn_, rng.permutation(edges)])

"""The recorded dots: which code path, which formats, which data; inputs follow from a key alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmproof.reference.arithmetic import round_to
from gemmproof.reference.formats import FORMATS

M, N = 64, 32
KINDS = ("normal", "positive", "wide", "cancel", "zeros", "tiny", "special", "raw")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded product: M x K times K x N in one Triton kernel.

    `path` names the code path for people. `spelling`: "pass" for tl.dot(a, b, acc), "add" for
    acc += tl.dot(a, b). `init`: acc starts from a matrix c rather than from zero. `upcast`: the
    kernel widens its operands to fp16 first.
    """

    path: str
    a_format: str
    b_format: str
    acc_format: str
    BLOCK_M: int
    BLOCK_K: int
    num_warps: int
    K: int
    kind: str
    precision: str | None = None
    max_num_imprecise_acc: int | None = None
    spelling: str = "pass"
    init: bool = False
    upcast: bool = False

    @property
    def name(self) -> str:
        """The key of the output in the archive."""
        parts = (
            self.path, self.a_format, self.b_format, self.acc_format, self.BLOCK_M, self.BLOCK_K,
            self.num_warps, self.K, self.kind, self.precision, self.max_num_imprecise_acc,
            self.spelling, int(self.init), int(self.upcast),
        )  # fmt: skip
        return "-".join(str(p) for p in parts)


def _paths() -> list[tuple[str, dict[str, object]]]:
    """Code paths on sm_90, each as the fields that make Triton take it."""
    wgmma = {"BLOCK_M": 64, "num_warps": 4}
    mma = {"BLOCK_M": 16, "num_warps": 1}
    half = {"acc_format": "fp32"}
    paths: list[tuple[str, dict[str, object]]] = []
    for fmt in ("fp16", "bf16"):
        same = {"a_format": fmt, "b_format": fmt, "BLOCK_K": 64, **half}
        paths += [("wgmma", {**same, **wgmma}), ("mma", {**same, **mma})]
        paths += [("wgmma-init", {**same, **wgmma, "init": True})]
    fp16 = {"a_format": "fp16", "b_format": "fp16", "BLOCK_K": 32, "acc_format": "fp16"}
    paths += [("wgmma-half", {**fp16, **wgmma}), ("mma-half", {**fp16, **mma})]
    fp32 = {"a_format": "fp32", "b_format": "fp32", "BLOCK_K": 32, **half}
    for precision in ("tf32", "tf32x3", "ieee"):
        paths += [(f"wgmma-{precision}", {**fp32, **wgmma, "precision": precision})]
    paths += [("mma-tf32", {**fp32, **mma, "precision": "tf32"})]
    paths += [("mma-tf32x3", {**fp32, **mma, "precision": "tf32x3"})]
    for a, b in (("fp8e4m3", "fp8e4m3"), ("fp8e5m2", "fp8e5m2"), ("fp8e4m3", "fp8e5m2")):
        fp8 = {"a_format": a, "b_format": b, "BLOCK_K": 128, **half}
        paths += [
            ("wgmma", {**fp8, **wgmma}),
            ("wgmma-init", {**fp8, **wgmma, "init": True}),
            ("wgmma-add", {**fp8, **wgmma, "spelling": "add"}),
            ("wgmma-mni32", {**fp8, **wgmma, "max_num_imprecise_acc": 32}),
            ("wgmma-mni64-add", {**fp8, **wgmma, "max_num_imprecise_acc": 64, "spelling": "add"}),
            ("mma-upcast", {**fp8, **mma}),
            ("upcast", {**fp8, **mma, "upcast": True}),
            ("upcast-wgmma", {**fp8, **wgmma, "upcast": True}),
        ]
        if a == b:
            paths += [("wgmma-half", {**fp8, **wgmma, "acc_format": "fp16"})]
            paths += [("mma-half", {**fp8, **mma, "acc_format": "fp16"})]
    int8 = {"a_format": "int8", "b_format": "int8", "BLOCK_K": 64, "acc_format": "int32"}
    paths += [("wgmma", {**int8, **wgmma}), ("mma", {**int8, **mma})]
    return paths


def cases() -> list[Recorded]:
    """Every recorded product: each path with each kind of data, a few of them chained to K=4096."""
    recorded = []
    for path, fields in _paths():
        kinds = ("raw",) if fields["a_format"] == "int8" else KINDS
        for kind in kinds:
            recorded.append(Recorded(path=path, K=256, kind=kind, **fields))  # type: ignore[arg-type]
        for kind in ("normal", "wide") if len(kinds) > 1 else ():
            recorded.append(Recorded(path=path, K=4096, kind=kind, **fields))  # type: ignore[arg-type]
    return recorded


# -- inputs ------------------------------------------------------------------------------------
def random_words(key: int, n: int) -> np.ndarray:
    """n random 64-bit random_words of Philox, whose stream numpy keeps stable."""
    return np.random.Philox(key=key).random_raw(n)


def _uniform(key: int, n: int) -> np.ndarray:
    """n float64 values in (-1, 1)."""
    return (random_words(key, n) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


def operand(kind: str, fmt: str, key: int, shape: tuple[int, int]) -> np.ndarray:
    """A matrix of `fmt`'s storage dtype, by kind of data (KINDS)."""
    n = shape[0] * shape[1]
    spec = FORMATS[fmt]
    if kind == "raw":
        unsigned = np.dtype(f"u{spec.itemsize}")
        return random_words(key, n).astype(unsigned).view(spec.storage).reshape(shape)
    x = _uniform(key, n)
    if kind in ("normal", "cancel", "special"):
        x = (x + _uniform(key + 1, n) + _uniform(key + 2, n)) * 1.7
    if kind == "positive":
        x = np.abs(x)
    spread = {"fp8e4m3": 3, "fp8e5m2": 6, "fp16": 6}.get(fmt, 12)
    if kind in ("wide", "zeros"):
        x = np.ldexp(x, (random_words(key + 3, n) % np.uint64(2 * spread + 1)).astype(int) - spread)
    if kind == "zeros":
        pick = random_words(key + 4, n) % np.uint64(4)
        big = 2.0 ** min(40, spec.emax - 1)
        x = np.where(pick == 0, 0.0, np.where(pick == 1, x * big**0.5, x))
    if kind == "tiny":
        low = max(spec.emin, -75)
        x = np.ldexp(x, low + (random_words(key + 5, n) % np.uint64(12)).astype(int) - 3)
    if kind == "special":
        pick = random_words(key + 6, n) % np.uint64(200)
        top = np.inf if spec.has_inf else np.nan
        for i, value in enumerate((top, -top, np.nan, 0.0, -0.0, spec.eta, -3 * spec.eta)):
            x = np.where(pick == i, value, x)
    return np.asarray(round_to(x.reshape(shape), spec, saturate=kind != "special"))


def inputs(case: Recorded) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a (M, K), b (K, N) and the initial accumulator c (M, N), as storage arrays."""
    key = 1 + 101 * KINDS.index(case.kind) + 7 * case.K
    a = operand(case.kind, case.a_format, key, (M, case.K))
    b = operand(case.kind, case.b_format, key + 50, (case.K, N))
    if case.kind == "cancel":
        half = case.K // 2
        a[:, half:] = (-a[:, :half].astype(np.float32)).astype(a.dtype)
        b[half:] = b[:half]
        flip = random_words(key + 60, half) % np.uint64(8) == 0
        b[half:][flip] = b[:half][flip][:, ::-1]
    acc = FORMATS[case.acc_format]
    if acc.kind == "int":
        c = random_words(key + 70, M * N).astype(np.uint32).view(np.int32).reshape(M, N)
    else:
        c = operand("raw" if case.kind == "raw" else "normal", case.acc_format, key + 70, (M, N))
    return a, b, c

"""Error bounds: how far an output may lie from the exact product, element by element."""

import numpy as np

from gemmproof.reference.dot import DotModel
from gemmproof.reference.exact import exact_product, magnitude_product
from gemmproof.reference.formats import FORMATS, Array, Format, format_named, widen

# A relative guard for the few roundings made while the bound itself is computed in float64.
_OUTWARD = 1.0 + 2.0**-40


def gemm_bound(
    a: Array, b: Array, model: DotModel, out_format: Format | str, *, c: Array | None = None
) -> Array:
    """The largest |out - (c + a @ b)| that `model` and one rounding to `out_format` allow.

    a (..., M, K), b (..., K, N), c (..., M, N) or None; float64 (..., M, N), and Inf where the
    exact result may leave the finite range of the output. The exact product is that of
    `exact_product`, whose own error is part of the bound:
    T = E + (u_out (|c + a b| + E) + eta_out / 2) + E_ref.
    """
    out = format_named(out_format) if isinstance(out_format, str) else out_format
    exact, reference_error = exact_product(a, b)
    size = magnitude_product(a, b)
    if c is not None:
        exact, size = exact + widen(c), size + np.abs(widen(c))
    if FORMATS[model.acc_format].kind == "int":
        return np.zeros(size.shape)
    error = _ieee_error(a.shape[-1], size, FORMATS[model.acc_format])
    return with_output(error + reference_error, exact, FORMATS[model.acc_format], out)


def _ieee_error(K: int, size: Array, acc: Format) -> Array:
    """|acc - exact| <= K u (|c| + |a||b|) + K eta, for every order of the sum.

    Jeannerod and Rump (SIMAX 34, 2013) for products and sums each rounded, in any tree, so split-K,
    blocked loops and atomics in `acc` are admitted. A fused node RN(s + p), s a float with n
    roundings over S = sum|p_i|, keeps the claim: its rounding is at most |p| (s is itself a
    float) and at most u|s + p|; if |p| <= u S the first gives n u S + u S, else the second gives
    n u S + u (S + n u S + |p|) < (n + 1) u (S + |p|). Below the normal range an addition is
    exact and a product or fused node is off by at most eta / 2.
    """
    return K * acc.u * size + K * acc.eta


def with_output(error: Array, exact: Array, acc: Format, out: Format) -> Array:
    """Add the rounding of the accumulator to the output format, once, to nearest.

    |RN(x) - x| <= u |x| + eta / 2 with |x| <= |exact| + error; exactly 0 when the format holds
    every value of the accumulator.
    """
    magnitude = np.abs(exact) + error
    if out.p < acc.p or out.emin > acc.emin:
        error = error + out.u * magnitude + out.eta / 2
    return np.where(magnitude * _OUTWARD < out.max, error * _OUTWARD, np.inf)

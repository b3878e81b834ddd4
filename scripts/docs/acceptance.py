"""Faulty matrix products, judged by acceptance rules in public use and by the derived bound.

THE CONSTANTS BELOW ARE OTHER PEOPLE'S RULES UNDER TEST. gemmproof itself has no tolerance constant:
its own rule is the last one, and takes its limit from reference/bounds.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scripts.docs.markdown import ROOT, make_table, update_tables

from gemmproof.reference.arithmetic import Array, round_float, round_to, widen
from gemmproof.reference.bounds import exact_product, gemm_bound
from gemmproof.reference.dot import dot_model

PAGE = ROOT / "docs" / "explanation" / "acceptance-rules.md"
TARGET, SEED, EVERY = "sm_90", 0, 64


@dataclass(frozen=True, slots=True)
class Problem:
    """A product of standard normal operands and all that a rule may look at; float64 (M, N).

    reference: the exact product rounded once to the output format, the best that a rule can be
    given. framework: what a library returns, fp32 fused multiply-adds rounded once. bound: the
    derived |out - exact|. K: terms in a sum. format: of operands and output.
    """

    exact: Array
    reference: Array
    framework: Array
    bound: Array
    K: int
    format: str


#: Rules that accept or reject an output, as their sources state them; NaN is never accepted.
Rule = Callable[[Array, Problem], Any]


def near(out: Array, p: Problem, absolute: float, relative: float) -> Array:
    """The elementwise test of torch.isclose, against the reference."""
    return np.abs(out - p.reference) <= absolute + relative * np.abs(p.reference)


def is_similar(out: Array, p: Problem) -> bool:
    x, y = out, p.reference
    return 1 - 2 * (x * y).sum() / (x * x + y * y).sum() < 1e-5


def is_near_by_rms(out: Array, p: Problem) -> bool:
    scale = np.sqrt((p.reference**2).mean())
    error = np.abs(out - p.reference) / np.maximum(np.abs(p.reference), scale)
    return error.max() <= 2e-2 and np.sqrt((error**2).mean()) <= 4e-3


def is_near_as_framework(out: Array, p: Problem) -> bool:
    worst, theirs = (np.abs(x - p.exact).max() for x in (out, p.framework))
    return worst < 2 * theirs + 1e-5


# torch.testing.assert_close, by format: pytorch, torch/testing/_comparison.py, _DTYPE_PRECISIONS
RELATIVE = {"fp16": 1e-3, "bf16": 1.6e-2}
RULES: dict[str, Rule] = {
    # torch.testing.assert_close without arguments
    "assert_close": lambda out, p: near(out, p, 1e-5, RELATIVE[p.format]).all(),
    # 1e-2 absolute, 0 relative, the defaults of triton.testing.assert_close:
    # triton-lang.org/main/python-api/generated/triton.testing.assert_close.html
    "abs 1e-2": lambda out, p: near(out, p, 1e-2, 0.0).all(),
    # 1e-2 absolute and relative for 16-bit formats: KernelBench, src/kernelbench/eval.py
    "abs+rel 1e-2": lambda out, p: near(out, p, 1e-2, 1e-2).all(),
    # torch.allclose(..., 1.0 absolute), its default 1e-5 relative: triton, python/tutorials/
    # 09-persistent-matmul.py, run_test
    "abs 1.0": lambda out, p: near(out, p, 1.0, 1e-5).all(),
    # 0.1 % of all elements may differ by more: tilelang, tilelang/utils/tensor.py,
    # torch_assert_close
    "0.1 % free": lambda out, p: (~near(out, p, 1e-3, 1e-2)).sum() <= int(out.size * 0.001),
    # 1 - 2 x.y / (x.x + y.y) below 1e-5: DeepGEMM, deep_gemm/testing/numeric.py, calc_diff;
    # the limit from tests/test_bf16.py
    "calc_diff": is_similar,
    # the error over max(|reference|, its root mean square): worst 2e-2, root mean square 4e-3;
    # triton, python/triton_kernels/triton_kernels/testing.py, assert_close
    "RMS": is_near_by_rms,
    # no worse than twice the worst error of torch in the same format, and 1e-5: quack,
    # tests/test_linear.py, test_gemm
    "2x framework": is_near_as_framework,
    # 1e-4 K absolute, and assert_close's relative part: FlagGems, src/flag_gems/testing/__init__.py
    "1e-4 K": lambda out, p: near(out, p, 1e-4 * p.K, RELATIVE[p.format]).all(),
    # ours: every element within what its accumulator and one rounding allow it
    "derived": lambda out, p: (np.abs(out - p.exact) <= p.bound).all(),
}


def outputs(
    M: int, N: int, K: int, fmt: str, target: str | None = TARGET
) -> tuple[Problem, dict[str, Array]]:
    """A problem, and its output as float64: of a right kernel first, then with each fault.

    The right kernel accumulates in fp32 as `target` does and rounds once. What is not written
    is zero, as fresh memory often is.
    """
    rng = np.random.default_rng(SEED)
    a, b = (round_to(rng.standard_normal(shape), fmt) for shape in ((M, K), (K, N)))
    model = dot_model(target, fmt)
    exact = exact_product(a, b)[0]
    problem = Problem(
        exact,
        widen(round_to(exact, fmt)),
        widen(round_to(dot_model(None, fmt).dot(a, b), fmt)),
        gemm_bound(a, b, model, fmt),
        K,
        fmt,
    )
    acc = model.dot(a, b)
    right = round_to(acc, fmt)

    def changed(index: tuple[int | slice, ...], value: Array | float) -> Array:
        out = widen(right)
        out[index] = value
        return widen(round_to(out, fmt))

    def accumulated_in(narrow: str) -> Array:
        acc = np.zeros((M, N), np.float32)
        for k in range(0, K, EVERY):
            acc = model.dot(a[:, k : k + EVERY], b[k : k + EVERY], acc)
            acc = round_to(acc, narrow).astype(np.float32)
        return widen(round_to(acc, fmt))

    shorter = widen(round_to(model.dot(a[-1:, :-1], b[:-1]), fmt))
    return problem, {
        "none: a right kernel": widen(right),
        "corner element is 0": changed((-1, -1), 0.0),
        "corner element + 0.5": changed((-1, -1), widen(right)[-1, -1] + 0.5),
        "last column not written": changed((slice(None), -1), 0.0),
        "last row not written": changed((-1,), 0.0),
        "last k dropped in the last row": changed((slice(-1, None),), shorter),
        f"fp16 accumulator, every {EVERY} k": accumulated_in("fp16"),
        f"bf16 accumulator, every {EVERY} k": accumulated_in("bf16"),
        "store truncates": widen(round_float(acc, fmt, "rz")),
    }


def compare_rules(size: int, fmt: str) -> str:
    """Tabulate which rule rejects which output, and the error of each as a share of the bound."""
    problem, results = outputs(size, size, size, fmt)
    rows = []
    for name, out in results.items():
        accepted, rejected = ("**missed**", "found") if rows else ("", "**false alarm**")
        marks = [accepted if accepts(out, problem) else rejected for accepts in RULES.values()]
        share = np.abs(out - problem.exact) / problem.bound
        rows.append([name, *marks, f"{share.max():.3g}", f"{(share > 1).sum():,}"])
    head = ["fault", *RULES, "worst error / bound", "outputs beyond it"]
    return make_table(head, rows, ["---", *(":-:" for _ in RULES), "--:", "--:"])


def make_page(size: int = 1024, check: bool = False, out: Path | None = None) -> int:
    """Make the tables of docs/explanation/acceptance-rules.md: which rule rejects which fault.

    --size is M, N and K. Takes half a minute on one core.
    """
    began = time.monotonic()
    tables = {fmt: compare_rules(size, fmt) for fmt in ("fp16", "bf16")}
    seconds = time.monotonic() - began
    tables["run"] = f"M = N = K = {size}, standard normal operands, seed {SEED}; {seconds:.0f} s."
    return update_tables(PAGE, tables, check, out)

"""Kernels in the manner of public projects, and their reports."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from scripts.docs.markdown import fill, make_table, update
from tests.corpora.families.table import FAMILIES, RIGHT
from tests.corpora.no_false_alarm.table import KERNELS

from gemmproof.engine.kernel_check import check
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.record import Report

PAGE = Path(__file__).parents[2] / "docs" / "public-kernels.md"
WRONG = 2  # wrong kernels of a family that the page shows


class Style(NamedTuple):
    """A manner in which public kernels are written: its name, where it is found, one of ours."""

    name: str
    found_in: str
    kernel: Callable[[], KernelUnderTest]


def _own(name: str) -> Callable[[], KernelUnderTest]:
    wrapper = getattr(import_module("gemmproof.kernels"), name)
    return lambda: KernelUnderTest(name, wrapper)


def _corpus(name: str, contract: Contract | None = None) -> Callable[[], KernelUnderTest]:
    kernel = next(kernel for kernel in KERNELS if kernel.name == name)
    return lambda: KernelUnderTest(name, kernel.launch, contract or Contract())


def _family(name: str) -> Callable[[], KernelUnderTest]:
    kernel = next(kernel for kernel in RIGHT if kernel.name == name)
    return lambda: kernel


UNORDERED = Contract(deterministic=False)
STYLES = (
    Style("tiles in groups of rows", "Triton's tutorial 3", _own("matmul_grouped")),
    Style("persistent programs", "Triton's tutorial 9", _own("matmul_persistent")),
    Style("a compiler's template", "PyTorch Inductor", _corpus("compiler_template")),
    Style("tiles remapped to chiplets", "AITER", _corpus("tiles_remapped_to_chiplets")),
    Style("stream-K with fix-up", "tritonBLAS", _corpus("stream_k_with_fix_up")),
    Style(
        "split K, atomics", "applied-ai (GPTQ, split K)", _corpus("atomics_onto_zeros", UNORDERED)
    ),
    Style("split K, workspace, bias", "AITER", _family("split_k_mm")),
    Style("fp8, scales of rows and columns", "vLLM, torchao", _family("scaled_mm")),
    Style("fp8, scales of blocks", "DeepSeek-V3, vLLM, SGLang", _family("block_scaled_mm")),
    Style("fp8, saturated result", "torchao", _family("fp8_mm")),
    Style("int8, scales and zero points", "bitsandbytes, torchao", _family("int8_mm")),
    Style("mxfp8, dot_scaled", "Triton's tutorial 10", _family("mxfp8_mm")),
    Style("int8 weights", "GemLite", _family("w8a16_mm")),
    Style("int4 weights in groups", "AutoGPTQ, vLLM (AWQ)", _family("w4a16_mm")),
    Style("bias and activation", "kernl, xFormers", _family("linear")),
    Style("residual added", "FlagGems (addmm)", _family("addmm")),
    Style("alpha, beta, c in place", "BLAS's gemm", _family("gemm")),
    Style("gate and up projections", "fused feed-forward layers", _family("swiglu")),
    Style("experts", "vLLM and SGLang (fused MoE)", _family("fused_moe")),
    Style("grouped", "Triton's tutorial 8, torchtitan", _family("grouped_mm")),
    Style("LoRA adapters", "vLLM (Punica)", _family("lora_mm")),
    Style("matrix times vector", "FlagGems (mv)", _family("gemv")),
    Style("bmm with a shared matrix", "FlagGems, Inductor", _family("bmm_flat")),
)


def make_page(examples: int = 20, check: bool = False, out: Path | None = None) -> int:
    """Judge a kernel of each style by --examples cases and make docs/public-kernels.md's tables."""
    reports = {style: judge(style, examples) for style in STYLES}
    styles, limits = tabulate(reports), tabulate_limits(reports)
    tables = {"styles": styles, "limits": limits, "wrong": show_wrong()}
    return update(PAGE, fill(PAGE, tables), check, out)


def judge(style: Style, examples: int) -> Report:
    """Check the style's kernel without options, limits included; return the report."""
    return check(style.kernel(), max_examples=examples, limits=True)


def tabulate(reports: dict[Style, Report]) -> str:
    """A table with a row for each style: the declared operands, the verdict, and its figures."""
    cells = []
    for style, report in reports.items():
        kernel = style.kernel()
        operands = ", ".join(f"`{name}`" for name in kernel.operands) or "none"
        held = sum(p.status == "pass" for p in report.properties)
        ratio = max((p.ratio or 0.0 for p in report.properties), default=0.0)
        stopped = sum(limit.status == "limit" for limit in report.limits)
        verdict = f"{report.verdict}, {held} of {len(report.properties)}"
        row = [style.name, style.found_in, operands, verdict, f"{ratio:.2f}", str(stopped)]
        cells.append([*row, f"{report.seconds:.1f}"])
    heads = ("style", "found in", "operands", "verdict, properties", "error/bound", "limits", "s")
    return make_table(heads, cells)


def tabulate_limits(reports: dict[Style, Report]) -> str:
    """A table of every limit, with the text of the check."""
    cells = []
    for style, report in reports.items():
        for limit in report.limits:
            if limit.status == "limit":
                message = limit.message.replace("|", "\\|")
                message = message if len(message) <= 110 else f"{message[:107]}..."
                cells.append([style.name, limit.name, message, f"`{limit.option}`"])
    return make_table(("style", "beyond the contract", "what happens", "option"), cells)


def show_wrong() -> str:
    """A table of the findings on wrong kernels of each family."""
    cells = []
    for family in FAMILIES:
        for mutant in family.wrong[:WRONG]:
            findings = check(mutant.kernel, target=mutant.target).findings
            message = findings[0].message.replace("|", "\\|") if findings else "missed"
            cells.append([family.title, f"`{mutant.name}`", message])
    return make_table(("family", "what is wrong", "what is said"), cells)

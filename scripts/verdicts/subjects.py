"""The subjects of the record, all kernels of the corpora and some commands, and their verdicts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

from tests.corpora.families.table import FAMILIES
from tests.corpora.mutants import unflawed
from tests.corpora.mutants.table import MUTANTS, SURVIVORS
from tests.corpora.no_false_alarm.table import KERNELS
from tests.support.wide import wide

from gemmproof.properties.codec import encode
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest, Operand

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
SUBSET = 60  # kernels of the full test lane


@dataclass(frozen=True, slots=True)
class KernelSubject:
    """A kernel to be checked; `key` is "group/name", and a group is a file of the record."""

    key: str
    kernel: KernelUnderTest
    target: str | None = None


@dataclass(frozen=True, slots=True)
class CommandSubject:
    """A command line to be run in docs/examples; `output` is "text", or "json" with --json -."""

    key: str
    argv: tuple[str, ...]
    output: str


Subject = KernelSubject | CommandSubject


def list_subjects() -> list[Subject]:
    """Return every subject in one order, each key once."""
    subjects: dict[str, Subject] = {}
    for subject in (*_iter_kernels(), *_iter_commands()):
        if subject.key in subjects:
            raise ValueError(f"{subject.key}: got two subjects of that name, expected one")
        subjects[subject.key] = subject
    return list(subjects.values())


def pick_subset(keys: Iterable[str], count: int = SUBSET) -> set[str]:
    """Return `count` keys of kernels, chosen by their names: a new kernel replaces one at most."""
    kernels = (key for key in keys if not key.startswith("commands/"))
    return set(sorted(kernels, key=lambda key: (crc32(key.encode()), key))[:count])


# -- kernels -------------------------------------------------------------------------------------
def _iter_kernels() -> Iterator[KernelSubject]:
    wrong_of_families = {id(mutant) for family in FAMILIES for mutant in family.wrong}
    for mutant in (*MUTANTS, *SURVIVORS):
        group = "families" if id(mutant) in wrong_of_families else "mutants"
        module = mutant.wrapper.partition(":")[0]
        yield KernelSubject(f"{group}/{module}:{mutant.name}", mutant.kernel, mutant.target)
    for family in FAMILIES:
        for kernel in (family.right, *family.also):
            yield KernelSubject(f"families/right:{kernel.name}", kernel)
    for kernel in unflawed.KERNELS:
        yield KernelSubject(f"mutants/unflawed:{kernel.name}", kernel)
    for kernel in KERNELS:
        yield KernelSubject(f"no_false_alarm/{kernel.name}", kernel)
    for kernel in load_file("own_kernels", ROOT / "conftest.py").pytest_gemm_kernels():
        yield KernelSubject(f"kernels/{kernel.name}", kernel)
    yield from _iter_tutorials()
    yield from _iter_examples()


def _iter_tutorials() -> Iterator[KernelSubject]:
    dense = wide(layouts="contiguous")
    bf16 = wide(formats=("bf16",), layouts="contiguous")
    for target, contract, name in (
        ("masked_everywhere:matmul", bf16, "bf16"),
        ("masked_everywhere:matmul", dense, "dense"),
        ("cast_on_store:matmul", bf16, "bf16"),
        ("step_by_step:matmul", dense, "dense"),
        ("step_by_step:persistent", dense, "dense"),
        ("any_layout:matmul", dense, "dense"),
    ):
        module, _, function = target.partition(":")
        launch = getattr(import_module(f"tests.corpora.tutorials.{module}"), function)
        yield KernelSubject(f"tutorials/{target}:{name}", KernelUnderTest(target, launch, contract))


def _iter_examples() -> Iterator[KernelSubject]:
    contracts = {
        "right": wide(),
        "dense_only": wide(layouts="contiguous"),
        "half_sums": wide(layouts="contiguous"),
        "no_k_mask": wide(layouts="contiguous"),
        "unmasked_row": wide(layouts="contiguous"),
    }
    for name, contract in contracts.items():
        launch = load_file(f"example_{name}", EXAMPLES / f"{name}.py").matmul
        yield KernelSubject(f"examples/{name}", KernelUnderTest(name, launch, contract))
    operands = {
        "scale_a": Operand("fp32", "M"),
        "scale_b": Operand("fp32", "N"),
        "bias": Operand("bf16", "N", optional=True),
    }
    for name in ("scaled", "scale_of_columns"):
        launch = load_file(f"example_{name}", EXAMPLES / f"{name}.py").scaled_mm
        own = Contract(("fp8e4m3",))
        kernel = KernelUnderTest(name, launch, own, operands=operands, spec=_scale)
        yield KernelSubject(f"examples/{name}", kernel)


def _scale(a, b, scale_a, scale_b, bias):  # type: ignore[no-untyped-def]
    return (a @ b) * scale_a[:, None] * scale_b + (0 if bias is None else bias)


def load_file(name: str, path: Path) -> ModuleType:
    """Import the module of that name from a file."""
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# -- commands ------------------------------------------------------------------------------------
_SCALED = (
    "--dtype", "fp8e4m3", "--operand", "scale_a=fp32[M]", "--operand", "scale_b=fp32[N]",
    "--operand", "bias=bf16[N] optional",
    "--spec", "(a @ b) * scale_a[:, None] * scale_b + (0 if bias is None else bias)",
)  # fmt: skip
_OWN = "gemmproof.kernels"
_COMMANDS: dict[str, tuple[str, ...]] = {
    "check/as_a_script": ("as_a_script.py:matmul", "--max-examples", "12"),
    "check/no_such_function": ("right.py:matmull",),
    "check/one_case": ("no_k_mask.py:matmul", "--case", '{"M": 3, "N": 5, "K": 7}'),
    "contract/dense_only": ("dense_only.py:matmul", "--max-examples", "6"),
    "contract/no_k_mask": ("no_k_mask.py:matmul", "--max-examples", "6"),
    "explain/bmm": (f"{_OWN}.bmm:bmm",),
    "explain/dense_only": ("dense_only.py:matmul",),
    "explain/matmul": (f"{_OWN}.matmul:matmul",),
    "explain/no_k_mask": ("no_k_mask.py:matmul",),
    "explain/scaled": ("scaled.py:scaled_mm", *_SCALED),
    "explain/unmasked_row": ("unmasked_row.py:matmul",),
    "lowering/half_sums": ("half_sums.py:matmul", "--target", "sm_80"),
    "lowering/matmul": (f"{_OWN}.matmul:matmul", "--target", "sm_90"),
    "lowering/right": ("right.py:matmul", "--target", "sm_90", "--target", "sm_75"),
    "reproduce/half_sums": ("half_sums.py:matmul", "-o", "-"),
    "reproduce/no_k_mask": ("no_k_mask.py:matmul", "-o", "-"),
    "reproduce/right": ("right.py:matmul", "-o", "-", "--max-examples", "4"),
    "reproduce/scale_of_columns": ("scale_of_columns.py:scaled_mm", "-o", "-", *_SCALED),
    "signoff/families": (
        "--conftest", str(ROOT / "tests" / "corpora" / "registered.py"), "--max-examples", "4",
        "--kernel", "addmm", "--kernel", "linear",
    ),
    "signoff/kernels": (
        "--conftest", str(ROOT / "conftest.py"), "--max-examples", "4",
        "--kernel", "matmul_swizzled", "--kernel", "matmul_scaled_int8",
    ),
}  # fmt: skip
_WITH_JSON = ("check", "explain", "lowering", "signoff")


def _iter_commands() -> Iterator[CommandSubject]:
    for key, arguments in _COMMANDS.items():
        command = key.partition("/")[0]
        output = "json" if command in _WITH_JSON else "text"
        more = ("--json", "-") if output == "json" else ()
        yield CommandSubject(f"commands/{key}", (command, *arguments, *more), output)


# -- verdicts as plain data ------------------------------------------------------------------------
# a renamed field or option of gemmproof is renamed here; the record keeps its keys
SEED = 0
CASES = 12  # for each format: a search for changed verdicts, not for bugs
# fields that differ from run to run, or from version to version
_LEFT_OUT = ("seconds", "versions", "facts", "binary", "column", "hash", "date", "made", "coverage")
_SPENT = re.compile(r" \(\d+\.\d s\)|, \d+\.\d s(?=\))")
_LONG = re.compile(r"\b\d+\.\d{9,}(e[+-]?\d+)?")
_VERSION = re.compile(r"(gemmproof|triton|torch) \d+\.\d+[\w.+]*")
_NEEDED = (
    "engine.kernel_check", "properties.address_map.explain_access", "properties.proof.prove",
    "properties.proof.offset_wraps",
)  # fmt: skip


def preload() -> None:
    """Import all modules that a check imports lazily: the forked processes inherit them."""
    for name in _NEEDED:
        import_module(f"gemmproof.{name}")


def record_subject(subject: Subject, cases: int = CASES) -> dict[str, object]:
    """Return the verdict of gemmproof on a subject, as plain data."""
    if isinstance(subject, CommandSubject):
        return _run_command(subject)
    return _check_kernel(subject, cases)


def _check_kernel(subject: KernelSubject, cases: int) -> dict[str, object]:
    from gemmproof.engine.kernel_check import check

    report = check(
        subject.kernel, max_examples=cases, seed=SEED, target=subject.target, proof=True,
        limits=True,
    )  # fmt: skip
    return describe_report(encode(report), _decides_by_addresses(subject.kernel))


def _decides_by_addresses(kernel: KernelUnderTest) -> bool:
    """Return whether a wrapper, or what it calls, asks for the alignment of a tensor."""
    import ast

    from gemmproof.identity import list_reached

    return any("data_ptr() %" in ast.unparse(part.node) for part in list_reached(kernel.launch))


def describe_report(report: Mapping[str, Any], by_address: bool) -> dict[str, object]:
    """Return the record of a report, given as the JSON that `check --json` writes.

    `by_address`: addresses of operands, which differ in each run, decide which paths have cases.
    """
    from gemmproof.report.record import EXIT

    record = {
        "exit": EXIT[report["verdict"]],
        "note": _clean(report["note"] or ""),
        "properties": dict(_describe_property(x, not by_address) for x in report["properties"]),
        "findings": [_describe_finding(x) for x in report["findings"]],
        "expected": [_describe_finding(x) for x in report["expected"]],
        "limits": {x["name"]: _describe_limit(x) for x in report["limits"]},
        "unvisited": [] if by_address else sorted(map(_clean, report["unvisited"])),
    }
    return {name: x for name, x in record.items() if x not in ("", [], {})}


def _describe_property(
    result: Mapping[str, Any], with_cases: bool
) -> tuple[str, dict[str, object]]:
    proof = result["proof"] or {}
    record = {
        "status": result["status"],
        "cases": result["examples"] if with_cases else "",
        "proof": proof.get("status", ""),
        "scope": proof.get("scope", ""),
        "cut": proof.get("cut", ""),
    }
    backend = "" if result["backend"] == "simulator" else f" on {result['backend']}"
    return f"{result['name']}{backend}", {name: x for name, x in record.items() if x != ""}


def _describe_finding(finding: Mapping[str, Any]) -> dict[str, object]:
    record = {
        "property": finding["property"],
        "fault": finding["fault"],
        "operand": finding["operand"],
        "axis": finding["axis"],
        "line": finding["where"],
        "cause": finding["cause"],
        "case": _describe_case(finding["case"]),
        "text": _clean(finding["message"].splitlines()[0]),
    }
    return {name: x for name, x in record.items() if x is not None}


def _describe_limit(limit: Mapping[str, Any]) -> dict[str, object]:
    case = None if limit["case"] is None else _describe_case(limit["case"])
    record = {"status": limit["status"], "case": case, "text": _clean(limit["message"])}
    record["proof"] = limit["proof"]
    return {name: x for name, x in record.items() if x not in (None, "")}


def _describe_case(case: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={case[name]}" for name in case)


def _run_command(subject: CommandSubject) -> dict[str, object]:
    argv = [sys.executable, "-P", "-m", "gemmproof", *subject.argv, "--quiet"]
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(argv, cwd=EXAMPLES, env=env, capture_output=True, text=True, check=False)
    record: dict[str, object] = {"exit": done.returncode}
    if subject.output == "json" and done.stdout.startswith(("{", "[")):
        # the text printed along with it repeats the answer
        return {**record, "answer": _describe_document(json.loads(done.stdout))}
    record["lines"] = _clean(done.stdout).splitlines()
    record["errors"] = _clean(done.stderr).splitlines()
    return {name: x for name, x in record.items() if x != []}


def _describe_document(data: Any) -> Any:
    """Return a JSON answer without excluded fields; reports in it are described as reports."""
    if isinstance(data, dict):
        if {"verdict", "properties", "findings", "limits"} <= set(data):
            return describe_report(data, by_address=True)  # which kernels are so is not known
        return {name: _describe_document(x) for name, x in data.items() if name not in _LEFT_OUT}
    if isinstance(data, list):
        return [_describe_document(x) for x in data]
    return _clean(data) if isinstance(data, str) else data


def _clean(text: str) -> str:
    """Return a text without this checkout's path, times, versions and the last digits of numbers.

    Those depend on the order in which the machine's BLAS adds.
    """
    text = text.replace(f"{ROOT}/", "").replace(str(ROOT), ".")
    text = _LONG.sub(lambda m: f"{float(m[0]):.10g}", text)
    return _VERSION.sub(r"\1", _SPENT.sub("", text))

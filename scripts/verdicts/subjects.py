"""The subjects of the record: every kernel of the corpora, and a selection of commands."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from zlib import crc32

from tests.corpora.families.table import FAMILIES
from tests.corpora.mutants import unflawed
from tests.corpora.mutants.table import MUTANTS, SURVIVORS
from tests.corpora.no_false_alarm.table import KERNELS
from tests.support.wide import wide

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
    for kernel in _load("own_kernels", ROOT / "conftest.py").pytest_gemm_kernels():
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
        launch = _load(f"example_{name}", EXAMPLES / f"{name}.py").matmul
        yield KernelSubject(f"examples/{name}", KernelUnderTest(name, launch, contract))
    operands = {
        "scale_a": Operand("fp32", "M"),
        "scale_b": Operand("fp32", "N"),
        "bias": Operand("bf16", "N", optional=True),
    }
    for name in ("scaled", "scale_of_columns"):
        launch = _load(f"example_{name}", EXAMPLES / f"{name}.py").scaled_mm
        own = Contract(("fp8e4m3",))
        kernel = KernelUnderTest(name, launch, own, operands=operands, spec=_scale)
        yield KernelSubject(f"examples/{name}", kernel)


def _scale(a, b, scale_a, scale_b, bias):  # type: ignore[no-untyped-def]
    return (a @ b) * scale_a[:, None] * scale_b + (0 if bias is None else bias)


def _load(name: str, path: Path) -> ModuleType:
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

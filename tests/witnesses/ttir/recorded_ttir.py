"""Launches whose TTIR is recorded in recordings/ as older Tritons made it, and their replay."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import lzma
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from tests.witnesses.ttir import ttir_kernels_memory  # noqa: F401 - registers its cases
from tests.witnesses.ttir.ttir_cases import CASES, Case

from gemmproof import kernels
from gemmproof.reference import triton_hooks
from gemmproof.reference.simulation import Run
from gemmproof.reference.simulator import launch as launched_kernel
from gemmproof.reference.simulator import run

ROOT = Path(__file__).parents[3]
FOLDER = Path(__file__).parent / "recordings"
_TRITON = str(Path(triton.__file__).parent)
_fresh = itertools.count()


def wrappers() -> dict[str, Callable[..., Any]]:
    """Functions of a and b: this repository's kernels, the examples and the tutorials."""
    ours = ("matmul", "matmul_grouped", "matmul_swizzled", "matmul_persistent")
    functions = {f"kernels.{name}": getattr(kernels, name) for name in ours}
    for name in ("no_k_mask", "right", "unmasked_row"):
        file = ROOT / "docs" / "examples" / f"{name}.py"
        functions[f"examples.{file.stem}"] = _module(file).matmul
    for file in sorted((ROOT / "tests" / "corpora" / "tutorials").glob("*.py")):
        module = importlib.import_module(f"tests.corpora.tutorials.{file.stem}")
        functions[f"tutorials.{file.stem}"] = module.matmul
    functions["tutorials.step_by_step.persistent"] = module.persistent
    return functions


def _module(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launches() -> dict[str, tuple[Callable[..., Any], list[torch.Tensor]]]:
    """All that is recorded, by name: a function and what it is called with."""
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=draw).half() for shape in ((40, 64), (64, 72)))
    calls = {name: (function, [a, b]) for name, function in wrappers().items()}
    return calls | {case.name: (case.launch, case.tensors()) for case in CASES}


def case_named(name: str) -> Case | None:
    return next((case for case in CASES if case.name == name), None)


@contextmanager
def translate_with(make_ttir: Callable[..., str]) -> Iterator[None]:
    """Let `make_ttir` stand for Triton's frontend, also for kernels that ran before."""
    device = triton_hooks._Device
    with (
        mock.patch.object(launched_kernel, "make_ttir", make_ttir),
        mock.patch.object(launched_kernel, "_programs", OrderedDict()),
        mock.patch.object(triton_hooks, "_Device", lambda key: device(f"{key} {next(_fresh)}")),
    ):
        yield


def record(function: Callable[..., Any], tensors: list[torch.Tensor]) -> list[str]:
    """The TTIR of each kernel that a call launches, without this machine's paths."""
    texts: list[str] = []
    plain = launched_kernel.make_ttir
    with translate_with(lambda *a: texts.append(plain(*a)) or texts[-1]):
        run(function, *tensors)
    return [t.replace(_TRITON, "TRITON").replace(f"{ROOT}/", "") for t in texts]


def replay(texts: list[str], function: Callable[..., Any], tensors: list[torch.Tensor]) -> Run:
    """A call whose kernels are these, in the order in which it launches them."""
    rest = iter(texts)
    with translate_with(lambda *_: next(rest).replace("TRITON", _TRITON)):
        seen = run(function, *tensors)
    assert next(rest, None) is None
    return seen


def read(file: Path) -> dict[str, list[str]]:
    """A recording: the TTIR of each launch by its name."""
    recorded: dict[str, list[str]] = json.loads(lzma.decompress(file.read_bytes()))
    return recorded

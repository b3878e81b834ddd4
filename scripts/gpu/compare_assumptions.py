"""Every kernel's predictions, compared with Triton's code for each GPU that has a model; no GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

from scripts.gpu.evidence import CONFTEST, ROOT, Row, collect, list_kernels, refuse, run_each

from gemmproof.backends.simulate import Simulator
from gemmproof.compiled.assumptions import AssumptionCheck
from gemmproof.engine.observe import observe
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import encode
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.gpus import TARGETS

WHOLE = {"M": 128, "N": 128, "K": 256, "batch": 2}
ODD = {"M": 65, "N": 67, "K": 131, "batch": 2}
SETS = ("conftest", "families", "no_false_alarm", "tutorials")
SECONDS = 300.0  # of a compilation, on a machine that is busy
TUTORIALS = (
    ("masked_everywhere", "matmul"),
    ("cast_on_store", "matmul"),
    ("step_by_step", "persistent"),
    ("any_layout", "matmul"),
)


def compare_assumptions(
    set: str = "",
    kernel: str = "",
    target: str = "",
    jobs: int = 2,
    report: Path | None = None,
) -> int:
    """Compile the predicted launches for each NVIDIA GPU, and compare each dot with its model.

    Every kernel that conftest.py registers (--set conftest), and the right ones of tests/corpora
    (families, no_false_alarm, tutorials), in each format of its contract, in each configuration, on
    sizes of whole tiles and on odd ones, for each target that has a model. Writes
    docs/evidence/assumptions.json where all are compared, else what --report FILE says.
    Exits with 1 where a model is contradicted. Needs no GPU.
    """
    if set not in ("", *SETS) or target not in ("", *TARGETS):
        refuse("assumptions", f"--set {set} --target {target}", f"{' '.join(SETS)}; {TARGETS}")
    sets = [set] if set else SETS
    names = [(key, name) for key in sets for name in _kernels(key) if kernel in ("", name)]
    targets = (target,) if target else TARGETS
    tasks = [(*named, gpu) for named in names for gpu in targets]
    own = ROOT / "docs" / "evidence" / "assumptions.json"
    whole = not (set or kernel or target)
    rows: list[Row] = []

    def keep() -> Iterator[Row]:
        for row in run_each(compare, tasks, jobs, None):
            rows.append(row)
            yield row

    status = collect(keep(), describe, report or (own if whole else None), device=False)
    for line in table(rows):
        print(line)
    return status


@cache
def _kernels(set: str) -> dict[str, KernelUnderTest]:
    """The kernels of a set, by name."""
    if set == "conftest":
        kernels = list_kernels("assumptions", CONFTEST)
    elif set == "families":
        kernels = list(import_module("tests.corpora.families.table").RIGHT)
    elif set == "no_false_alarm":
        kernels = list(import_module("tests.corpora.no_false_alarm.table").KERNELS)
    else:
        contract = import_module("tests.support.wide").wide(layouts="contiguous")
        kernels = []
        for module, function in TUTORIALS:
            launch = getattr(import_module(f"tests.corpora.tutorials.{module}"), function)
            kernels.append(KernelUnderTest(f"{module}:{function}", launch, contract))
    return {kernel.name: kernel for kernel in kernels if not kernel.device_only}


def compare(set: str, name: str, target: str) -> Row:
    """Return the outcome of the predictions of one kernel for one target, over all its formats."""
    kernel = _kernels(set)[name]
    assumptions = AssumptionCheck(lambda event: None, SECONDS, every=True)
    refused: Counter[str] = Counter()
    for dtype in kernel.contract.formats:
        _note_launches(kernel, dtype, target, assumptions, refused)
    assumptions.check_noted()
    check = assumptions.conclude()
    assert check is not None
    facts = encode(check)
    del facts["seconds"]
    return {
        "set": set,
        "kernel": name,
        "formats": list(kernel.contract.formats),
        "expected": check.is_kept,
        **facts,
        "target": target,
        "not_known": check.not_known,
        "not_simulated": dict(refused),
    }


def _note_launches(
    kernel: KernelUnderTest,
    dtype: str,
    target: str,
    assumptions: AssumptionCheck,
    refused: Counter[str],
) -> None:
    """Record the launches of each configuration on whole tiles, and of the first on odd sizes."""
    sides = [x for x in (_admit(kernel, WHOLE), _admit(kernel, ODD)) if x is not None]
    for position, sizes in enumerate(sides):
        config, configs = 0, 1
        while config < configs:
            case = Case(**sizes, dtype=dtype, config=config, fill="normal")
            observation = observe(replace(kernel, mirror=None), case, Simulator(target))
            if observation.raised is not None:
                refused[observation.raised.text[:200]] += 1
            assumptions.note(target, observation.launches)
            if not position:
                configs = max([configs, *(x.configs for x in observation.launches)])
            config += 1


def _admit(kernel: KernelUnderTest, largest: dict[str, int]) -> dict[str, int] | None:
    """Return the admitted sizes, at most `largest` where possible, or None if there are none."""
    contract = kernel.contract
    axes = ("M", "N", "K", "batch") if contract.batched else ("M", "N", "K")
    admitted = {}
    for axis in axes:
        sizes = contract.sizes(axis)
        below = (n for n in range(largest[axis], 0, -1) if n in sizes)
        admitted[axis] = next(below, sizes.low)
    return admitted if contract.admits(admitted) else None


def describe(row: Row) -> str:
    """A line for the counts, then the contradicted, failed and unknown predictions."""
    head = (
        f"{row['set']:14} {row['kernel']:40} {row['target']:7}"
        f" {row['launches']:4} launches {row['agreed']:4} of {row['dots']:4} dots as predicted"
    )
    more = [x for key in ("contradicted", "failed", "unknown") for x in row[key][:3]]
    return "\n    ".join([head, *more])


def table(rows: list[Row]) -> Iterator[str]:
    """The counts by target."""
    heads = ("launches", "dots", "agreed", "not known", "contradicted", "failed")
    yield " | ".join(("target ", *heads))
    for target in dict.fromkeys(row["target"] for row in rows):
        selected = [row for row in rows if row["target"] == target]
        counts = [sum(row[key] for row in selected) for key in ("launches", "dots", "agreed")]
        counts += [sum(row[key] for row in selected) for key in ("not_known", "differ")]
        counts.append(sum(len(row["failed"]) for row in selected))
        cells = (f"{n:{len(head)}}" for n, head in zip(counts, heads, strict=True))
        yield " | ".join((f"{target:7}", *cells))

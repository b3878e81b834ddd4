"""`gemmproof lowering --sweep`: launches with other specialisations, and their losses."""

import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lowering import lowered_kernels, swept_kernels
from tests.lowering.lower import capture, label, run_task
from tests.report.schemas import validate
from tests.texts import line_with

from gemmproof import Contract, multiple_of
from gemmproof.cli import main
from gemmproof.compiled import compile
from gemmproof.compiled.record import GlobalAccess, LoweredLaunch, Resources
from gemmproof.lowering import text
from gemmproof.lowering.record import LaunchRequest
from gemmproof.lowering.task import (
    alter,
    capture_explained,
    compile_sweep,
    find_variants,
    list_case_changes,
)
from gemmproof.lowering.text import compare
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import LAYOUTS
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.files import write_json
from gemmproof.target import KernelRef, Target, display_path

SIZES = {"M": 16, "N": 32, "K": 64}


def find(wrapper, gpu="sm_80", contract=None, case=None, layouts=LAYOUTS):
    """Return the variants of a wrapper, by their change, and the notes; nothing is compiled."""
    kernel = KernelUnderTest("k", wrapper, contract or Contract())
    notes = []

    def call(case):
        return capture_explained(kernel, case, gpu, every=False)

    case = case or Case(64, 64, 64)
    changes = list(list_case_changes(case, kernel, layouts))
    return {v.change: (v, launch) for v, launch in find_variants(case, changes, call, notes)}, notes


def ask(wrapper, workdir, gpu="sm_80"):
    """Return the results of a worker for a target, and its events."""
    kernel = KernelUnderTest("k", wrapper, Contract())
    ref = KernelRef("k", target=Target("k.py", "k", is_file=True))
    return run_task(compile_sweep, workdir, LaunchRequest(ref, None, SIZES, {}, False, gpu), kernel)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    return ask(swept_kernels.narrow, tmp_path_factory.mktemp("swept"))


def test_each_argument_is_changed_alone_by_a_case_where_one_does():
    variants, notes = find(lowered_kernels.right)
    alone = {
        next(iter(v.arguments)): (v.change, v.altered)
        for v, _ in variants.values()
        if len(v.arguments) == 1 and "" in next(iter(v.arguments.values()))
    }
    assert notes == []
    assert alone == {
        "M": ("M=63", False),
        "K": ("K=61, a padded", False),
        "stride_am": ("a padded", False),
        "stride_bk": ("b padded", False),
        "a_ptr": ("a misaligned", False),
        "b_ptr": ("b misaligned", False),
        **{
            name: (f"{name} neither", True)
            for name in ("c_ptr", "N", "stride_ak", "stride_bn", "stride_cm", "stride_cn")
        },
    }
    assert variants["K=63"][0].arguments == {"K": ("16", ""), "stride_am": ("16", "")}
    assert variants["a column"][0].arguments == {"stride_am": ("16", "1"), "stride_ak": ("1", "16")}


@pytest.mark.parametrize("gpu", ["sm_80", "gfx942"])
def test_a_launch_that_is_altered_is_the_one_that_a_real_call_makes(gpu):
    (base,), (real,) = (capture(lowered_kernels.right, gpu, odd=odd) for odd in (False, True))
    altered = alter(base, "stride_am", "")
    assert altered.key == real.key != base.key
    assert alter(altered, "stride_am", "16").key == base.key
    assert alter(base, "stride_ak", "").specialised["stride_ak"] == ""
    assert base.specialised["stride_ak"] == "1"
    assert alter(base, "a_ptr", "").specialised["a_ptr"] == ""


def test_what_is_not_divisible_is_tried_where_it_is():
    variants, _ = find(lowered_kernels.right, case=Case(63, 64, 1))
    assert variants["M=64"][0].arguments == {"M": ("", "16")}
    assert variants["K=3"][0].arguments["K"] == ("1", "")


def test_what_a_kernel_asks_not_to_specialise_is_left_alone():
    variants, notes = find(swept_kernels.narrow)
    assert not any("K" in v.arguments for v, _ in variants.values())
    assert [n for n in notes if "a must have rows" in n]


def test_changes_are_those_that_a_contract_admits():
    contract = Contract(K=multiple_of(16), M="32..")
    variants, _ = find(lowered_kernels.right, contract=contract, layouts=("row", "column"))
    named = {name for name, (v, _) in variants.items() if not v.altered}
    assert named == {"", "M=63", "N=63", "N=1", "a column", "b column"}


def test_a_batch_is_swept_too():
    seen = []

    def call(a, b):
        seen.append((a.shape[0], a.stride(0)))
        return lowered_kernels.right(a[0], b[0])

    variants, _ = find(call, contract=Contract(batched=True), case=Case(64, 64, 64, batch=4))
    assert (3, 64 * 64) not in seen
    assert {(16, 64 * 64), (1, 64 * 64), (4, 0), (4, 64)} <= set(seen)
    assert variants["a padded"][0].arguments == {"stride_am": ("16", "")}


def test_another_kernel_is_compared_and_other_launches_are_told(texts):
    variants, notes = find(swept_kernels.chooses)
    others = [v for v, launch in variants.values() if launch.kernel == "wide_kernel"]
    assert all(v.constants == {"kernel": ("narrow_kernel", "wide_kernel")} for v in others)
    assert "a misaligned" in [x for v in others for x in (v.change, *v.also)]
    texts("a change that makes several launches", line_with("\n".join(notes), "M=1:"))


@pytest.mark.lane("full")
def test_a_worker_compiles_each_variant(swept, tmp_path, texts):
    target, events = swept
    # planned again when it is known which bases compile
    assert list(map(label, events[:4])) == ["plan", "case", "result", "plan"]
    assert len(events[3].value["variants"]) == len(target.lowerings)
    numbers = [(x.index, x.of) for x in events if label(x) == "case"]
    assert numbers == [(i, len(target.lowerings)) for i in range(len(target.lowerings))]
    (launch,) = text.collect_sweep([target])
    variants = {x.variant.change: x for x in launch.variants}
    padded = variants["K=63"]  # the kernel disables the specialisation of K itself
    assert "a padded" in padded.variant.also
    assert padded.variant.arguments == {"stride_am": ("16", "")}
    assert not padded.same_binary
    # at its own line, or that of the next load, where the compiler may put it
    changes = padded.difference.changes
    texts("the copies of a line before a change", changes[0].partition(" -> ")[0])
    assert "2 loads of 2 bytes" in " ".join(changes[:2])
    losses = padded.difference.losses
    texts("the losses of a stride that is odd", "\n".join(losses))
    texts("the losses of a c that is not aligned", *variants["c_ptr neither"].difference.losses)
    assert variants["c_ptr neither"].variant.altered
    path = tmp_path / "sweep.json"
    write_json(path, text.report_sweep("k", [target], []))
    document = validate("sweep", path)
    padded = next(x for x in document["sweep"][0]["variants"] if x["change"] == "K=63")
    assert (padded["arguments"], padded["same_binary"]) == ({"stride_am": ["16", ""]}, False)
    assert tuple(padded["losses"]) == losses


def test_the_screen_groups_what_costs_the_same(swept, texts):
    shown = [line for line, _ in text.sweep_lines("k", [swept[0]], 1.5)]
    texts("the heading of a launch that is varied", shown[0])
    assert shown[2].split()[3:] == ["a_ptr", "b_ptr", "c_ptr", "stride_am"]
    assert sum(line.startswith("  costs") for line in shown) < len(swept[0].lowerings) - 1
    at = next(i for i, line in enumerate(shown) if line.startswith("    K=63"))
    changed = re.search(r"registers \((\w+) (\w+) -> (\w+)", shown[at])
    assert changed.groups() == ("stride_am", "16", "neither")
    texts("a size that is not specialised", line_with("\n".join(shown), "specialisation"))
    refused = line_with("\n".join(shown), "a must have rows")
    texts("changes that a wrapper refuses", refused, path=display_path(swept_kernels.__file__))
    assert "1 not compiled" not in shown[-1]


def test_what_does_not_compile_as_it_is_is_not_swept(tmp_path, texts):
    target, events = ask(lowered_kernels.shallow, tmp_path)
    assert len(target.lowerings) == 1
    assert list(map(label, events)) == ["plan", "case", "result", "plan"]
    shown = [line for line, _ in text.sweep_lines("k", [target], 1.0)]
    texts("a launch without a binary has no changes", shown[-1])


def test_a_base_that_ends_its_compiler_is_not_swept(tmp_path, monkeypatch, texts):
    monkeypatch.setattr(compile, "compile_launch", lambda *args: os._exit(1))
    target, _ = ask(lowered_kernels.right, tmp_path)
    assert target.lowerings == []
    (failure,) = target.failures
    texts("a launch that ends its compiler", failure)


NEEDS = Resources(64, 0, 0, 1000, 2000, 128, spill_stores=0, spill_loads=0)
ASYNC = GlobalAccess("k.py:3", "async copy", 16, 8)
BASE = LoweredLaunch(
    "sm_80", "k", "fp16", {}, 1, (1,), 1, {}, 4, 3, resources=NEEDS,
    accesses=(ASYNC, GlobalAccess("k.py:4", "load", 2, 1), GlobalAccess("k.py:9", "store", 16, 4)),
)  # fmt: skip


def change(at, **fields):
    accesses = list(BASE.accesses)
    accesses[at] = replace(accesses[at], **fields)
    return replace(BASE, accesses=tuple(accesses))


@pytest.mark.parametrize(
    ("after", "losses"),
    [
        (BASE, ()),
        (change(0, count=3), ()),
        (change(1, bytes=16), ()),
        # narrower at its line, though another was as narrow before
        (change(0, kind="load", bytes=2),
         ("loads no longer use asynchronous copies", "loads of 16 bytes become loads of 2 bytes")),
        (change(0, kind="load"), ("loads no longer use asynchronous copies",)),
        (change(0, bytes=1), ("loads of 16 bytes become loads of 1 byte",)),
        # at another line, where the pipeliner moved it
        (change(0, where="k.py:7", kind="load", bytes=4),
         ("loads no longer use asynchronous copies", "loads of 16 bytes become loads of 4 bytes")),
        (change(0, where="k.py:7"), ()),
        (change(2, bytes=4), ("stores of 16 bytes become stores of 4 bytes",)),
        (replace(BASE, resources=replace(NEEDS, stack=32, spill_stores=24)),
         ("24 bytes spilled instead of 0",)),
        (replace(BASE, resources=replace(NEEDS, registers=255)), ()),
        (replace(BASE, resources=replace(NEEDS, shared=3000)),
         ("3000 of 2000 bytes of shared memory: does not fit",)),
    ],
)  # fmt: skip
def test_losses(after, losses):
    assert compare(BASE, after).losses == losses
    assert compare(BASE, BASE).changes == compare(BASE, BASE).needs == ()


def test_the_copy_engine_may_be_lost_to_another_kernel(texts):
    tiles = replace(BASE, accesses=(GlobalAccess("k.py:3", "tma load", 0, 2),))
    comparison = compare(tiles, replace(BASE, kernel="plain"))
    texts("the losses of another kernel", "\n".join(comparison.losses))
    texts("the changes to another kernel", "\n".join(comparison.changes[:2]))


@pytest.mark.lane("full")
def test_the_command(capsys, tmp_path, monkeypatch, texts):
    monkeypatch.chdir(Path(__file__).parent)
    path = tmp_path / "sweep.json"
    options = f"swept_kernels.py:chooses --sweep --sizes M=16,N=32,K=64 --json {path} --quiet"
    assert main(["lowering", *shlex.split(options), "--target", "sm_80"]) == 0
    shown = capsys.readouterr().out
    kernels = re.search(r"(\w+) instead of (\w+)", shown)
    assert kernels.groups() == ("wide_kernel", "narrow_kernel")
    targets = re.search(r"\d+ changes compared for (.*?): ", shown.splitlines()[-1])
    assert targets[1] == "sm_80"
    document = validate("sweep", path)
    (launch,) = document["sweep"]
    assert launch["launch"]["kernel"] == "narrow_kernel"
    assert {x["launch"]["kernel"] for x in launch["variants"]} == {"narrow_kernel", "wide_kernel"}
    assert list(document["notes"]) == ["sm_80"]
    assert main(["lowering", "--dot", "16", "16", "16", "--sweep", "--quiet"]) == 2
    texts("a sweep of a dot", capsys.readouterr().err)

"""Models compared with real compiles: right ones agree, and each changed assumption is named."""

from dataclasses import replace

import pytest
import torch
from tests.lowering import lowered_kernels as kernels
from tests.lowering.lower import FORMATS

from gemmproof.compiled.assumptions import (
    AGREED,
    CONTRADICTED,
    compare,
    join_lines,
    join_predicted,
    lower_to_ptx,
)
from gemmproof.compiled.compile import CapturedLaunch, PlannedLaunch, describe_launch
from gemmproof.reference.dot import dot_model
from gemmproof.reference.simulator import run

pytestmark = pytest.mark.lane("full")  # each test compiles its launches


def promoted(a, b):
    """Promote twice for each block of k."""
    return kernels.launch(a, b, tile=(64, 64, 64), every=32)


def split(a, b):
    return kernels.launch(a, b, precision="tf32x3")


def split_by_pieces(a, b):
    """Split bf16 products, to which the compiler gives the line of an operand."""
    return kernels.launch(a, b, precision="bf16x3")


def batched_split(a, b):
    return kernels.batched(a, b, precision="tf32x3")


LAUNCHES = {
    "wgmma": (kernels.right, "fp16", "sm_90"),
    "promoted": (promoted, "fp8e4m3", "sm_90"),
    "never promoted": (kernels.right, "fp8e4m3", "sm_90"),
    "widened": (kernels.flat, "fp8e4m3", "sm_90"),
    "integers": (kernels.right, "int8", "sm_80"),
    "integers, by version": (kernels.right, "int8", "sm_100"),
    "tcgen05": (kernels.right, "fp16", "sm_100"),
    "fused": (kernels.flat, "fp16", "sm_70"),
    "split": (split, "fp32", "sm_90"),
    "split, elsewhere": (split_by_pieces, "fp32", "sm_80"),
    "split, in part elsewhere": (split, "fp32", "sm_100"),
    "widened, fused": (kernels.right, "fp8e5m2", "sm_75"),
    "batched": (kernels.batched, "fp16", "sm_90"),
    "batched, widened": (kernels.batched, "fp8e4m3", "sm_90"),
    "batched, widened, fused": (kernels.batched, "fp8e5m2", "sm_70"),
    "batched integers": (kernels.batched, "int8", "sm_100"),
    "batched, split": (batched_split, "fp32", "sm_80"),
}

#: A launch, a change of its model, and the aspect that is then reported to differ.
WRONG = {
    "unit": ("wgmma", lambda x: replace(x, instruction="mma"), "the unit"),
    "k step": (
        "wgmma", lambda x: replace(x, unit=replace(x.unit, L=32)), "k of a step",
    ),
    "formats": ("wgmma", lambda x: replace(x, a_format="bf16", b_format="bf16"), "formats"),
    "widening": ("widened", lambda x: replace(x, as_format=""), "formats"),
    "accumulator": (
        "wgmma", lambda x: replace(x, acc_format="fp16"), "the accumulator",
    ),
    "order": ("widened", lambda x: replace(x, order=()), "the order of k"),
    "order that nothing has": (
        "widened", lambda x: replace(x, order=tuple(range(16, 32)) + tuple(range(16))),
        "the order of k",
    ),
    "promotion": ("promoted", lambda x: replace(x, part=0), "promotion"),
    "promotion of none": ("never promoted", lambda x: replace(x, part=32), "promotion"),
    "promotion of more": ("promoted", lambda x: replace(x, part=64), "promotion"),
    "split": ("split", lambda x: replace(x, split="bf16x6"), "precision"),
    "no split": ("split", lambda x: replace(x, split="", a_format="tf32"), "precision"),
    "saturation": (
        "integers", lambda x: replace(x, unit=replace(x.unit, saturates=False)), "saturation",
    ),
    "batched unit": (
        "batched", lambda x: dot_model("sm_90", "fp16", instruction="wgmma"), "the unit",
    ),
    "batched order": ("batched, widened", lambda x: replace(x, order=()), "the order of k"),
    "batched split": ("batched, split", lambda x: replace(x, split="bf16x6"), "split"),
    "batched saturation": (
        "batched integers", lambda x: replace(x, unit=replace(x.unit, saturates=False)),
        "saturation",
    ),
    "widened sums": (
        "batched, widened, fused", lambda x: dot_model("sm_70", "fp16", "fp16", "fma"),
        "the accumulator",
    ),
    "fused sums": ("fused", lambda x: dot_model("sm_80", "fp16"), "the unit"),
}  # fmt: skip


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return the predicted and the compiled dots, by the name of their launch."""
    workdir, by_launch = tmp_path_factory.mktemp("assumptions"), {}
    for name, (wrapper, dtype, target) in LAUNCHES.items():
        a = torch.ones(64, 64).to(FORMATS[dtype])
        (launch,) = run(wrapper, a, a.clone(), target=target).launches
        captured = CapturedLaunch(target, *launch.compiled)
        planned = PlannedLaunch(name, describe_launch(captured), captured)
        lowered = lower_to_ptx(planned, workdir)
        by_launch[name] = launch.dots, join_lines(lowered.source_dots, lowered.dots)
    return by_launch


def judge(dots, compiled_dots, change=lambda model: model):
    changed = [replace(x, model=change(x.model)) for x in dots]
    return compare(join_predicted(changed), compiled_dots)


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_dot_is_compiled_to_what_predicted_it(name, compiled):
    dots, compiled_dots = compiled[name]
    assert dots
    assert [(x.status, x.line) for x in judge(dots, compiled_dots)] == [(AGREED, "")]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_model_is_contradicted(name, compiled):
    launch, change, aspect = WRONG[name]
    comparisons = judge(*compiled[launch], change)
    assert {x.status for x in comparisons} == {CONTRADICTED}
    assert all(aspect in x.line.partition("they differ in ")[2] for x in comparisons), comparisons


def test_sums_from_zero_that_were_predicted_to_go_on(compiled, texts):
    """The launch adds the sums itself; the changed model continues from the previous sum."""
    dots, compiled_dots = compiled["promoted"]
    onto = [replace(x, model=replace(x.model, part=0), from_zero=False) for x in dots]
    (comparison,) = compare(join_predicted(onto), compiled_dots)
    assert comparison.status == CONTRADICTED
    texts("sums that were predicted to go on", comparison.line.partition(": ")[2])


def test_a_line_has_both_sides(compiled, texts):
    dots, compiled_dots = compiled["promoted"]
    (comparison,) = judge(dots, compiled_dots, lambda x: replace(x, instruction="mma", part=0))
    where, _, rest = comparison.line.partition(": predicted as ")
    predicted, _, actual = rest.partition("; compiled to ")
    assert where.endswith("lowered_kernels.py:12")
    texts("what was predicted of another instruction", predicted)
    texts("what was compiled to another instruction", actual)


def test_what_a_launch_records_is_small(compiled):
    """There is one record per model and start, not one per trip or program."""
    assert all(len(dots) <= 2 for dots, _ in compiled.values())

"""The parts of a launch: cases, allocated operands, compared bits, targets, forced choices."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.backends import launched_kernels as kernels
from tests.backends.fake_gpu import CPU, launch
from triton.runtime.errors import OutOfResources

from gemmproof.backends.autotune import force
from gemmproof.backends.cuda import MOST_CASES, select_cases
from gemmproof.backends.cuda_device import allocate, find_changes
from gemmproof.backends.predict import _find_freedom, find_target, predict
from gemmproof.engine.observe import CaseNotRunnable
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import operands
from gemmproof.properties.judges.determinism import agree
from gemmproof.properties.kernel import KernelUnderTest


def test_the_share_has_every_configuration_and_layout_and_is_smallest_first():
    drawn = [Case(i, 7, 9) for i in range(200)]
    drawn += [Case(5, 5, 5, layouts=(("a", "sliced"),)), Case(6, 6, 6, config=3, compare="negated")]
    chosen = select_cases(drawn)
    assert len(chosen) <= MOST_CASES
    assert {c.layout("a") for c in chosen} == {"row", "sliced"}
    assert {c.config for c in chosen} == {0, 3}
    assert all(c.compare is None for c in chosen)
    volumes = [c.M * c.N * c.K for c in chosen]
    assert volumes == sorted(volumes)
    assert max(volumes) > 100 * 63


def test_a_nan_is_the_devices_nan_and_signed_zeros_differ():
    got = np.array([np.nan, 0.0, 1.0], np.float32)
    other = np.array([0xFFC00000, 0x80000000, 0x3F800000], np.uint32).view(np.float32)
    assert agree(got, other).tolist() == [True, False, True]


@pytest.mark.parametrize("layout", ["row", "sliced", "expanded", "misaligned"])
@pytest.mark.parametrize("dtype", ["fp16", "fp8e4m3", "int8"])
def test_a_placed_operand_is_the_operand(layout, dtype):
    a, _ = operands(Case(3, 4, 5, dtype, layouts=(("a", layout),))).values()
    there = allocate(a, dtype, CPU)
    assert there.tensor.stride() == a.tensor.stride()
    assert there.tensor.storage_offset() == a.tensor.storage_offset()
    assert np.array_equal(there.storage.numpy(), a.parent.view(np.uint8))
    assert there.tensor.untyped_storage().data_ptr() != a.tensor.untyped_storage().data_ptr()
    assert find_changes(there) == []
    there.storage[-1] ^= 1
    assert [(t.what, t.count) for t in find_changes(there)] == [("guard", 1)]


def test_a_change_far_from_the_rows_of_a_huge_parent(monkeypatch):
    monkeypatch.setattr("gemmproof.properties.cases.operands.SMALL", 100)
    a, _ = operands(Case(3, 4, 400, layouts=(("a", "padded"),))).values()
    gap = [(0, 64), (200, 300), (a.view.extent - 64, a.view.extent)]
    a = replace(
        a, watched=tuple(gap), before=tuple(a.parent.view("u2")[i:j].copy() for i, j in gap)
    )
    there = allocate(a, "fp16", CPU)
    assert find_changes(there) == []
    there.storage[2 * 500] ^= 1
    assert [(t.what, t.location) for t in find_changes(there)] == [("gap", "a offset 436")]


def test_capabilities_and_targets():
    assert find_target((9, 0)) == "sm_90"
    assert find_target((12, 0)) == "sm_120"
    assert find_target((10, 3)) is None
    assert find_target(None) is None


def test_a_launch_sees_the_multiprocessors_of_its_case(texts):
    """A kernel that splits K by their number has other bits at another number."""

    def by_number(a, b):
        assert torch.cuda.get_device_properties("cuda").multi_processor_count == len(a)
        return kernels.plain(a, b)

    report, *_ = launch(by_number, [Case(132, 5, 7), Case(7, 5, 7, sms=7)])
    assert report.verdict == "pass", report
    texts("what was launched with few multiprocessors", report.note)


class Tuner:
    """A minimal autotuner for a forced launch, whose kernel is too large for the device."""

    arg_names = ("a",)

    def __init__(self, count):
        self.configs = kernels.CONFIGS[:count]
        self.fn = self

    def prune_configs(self, kwargs):
        return self.configs

    def run(self, *args, **kwargs):
        raise OutOfResources(300, 200, "shared memory")


@pytest.mark.parametrize(("count", "raised"), [(2, CaseNotRunnable), (1, OutOfResources)])
def test_only_a_tuner_with_a_choice_passes_over_a_configuration(count, raised):
    from triton.runtime.autotuner import Autotuner

    with force(3) as choices, pytest.raises(raised):
        Autotuner.run(Tuner(count), 1)
    assert str(choices[0].config) == str(kernels.CONFIGS[1 if count == 2 else 0])
    assert choices[0].among == count


# -- a dot without a model on the target -----------------------------------------------------------
@pytest.mark.parametrize(
    ("fill", "exact", "spec", "free"),
    [
        ("normal", False, None, True),
        ("normal", True, None, False),
        ("index", True, print, False),
        # of integers, but with scales that are no powers of two
        ("normal", True, print, True),
    ],
)
def test_its_bits_are_compared_only_where_sums_are_exact(fill, exact, spec, free, texts):
    launch = SimpleNamespace(rounds=("dot",), atomics=False)
    case = SimpleNamespace(fill=fill, sums_are_exact=exact)
    observation = SimpleNamespace(launches=[launch], case=case, kernel=SimpleNamespace(spec=spec))
    freedom = _find_freedom(observation, SimpleNamespace(sums=[], functions=[]))
    assert (freedom is not None) is free
    if free:
        texts("why the bits of a dot are not compared", freedom)


# -- torch's own approximations --------------------------------------------------------------------
@pytest.mark.parametrize(
    ("operation", "function"),
    [
        (lambda c, a: c / 3, "div"),  # a product with the reciprocal on a GPU
        (lambda c, a: c.sigmoid_(), "sigmoid"),
        (lambda c, a: torch.softmax(c, dim=-1), "softmax"),
        (lambda c, a: c / a.abs().amax(dim=1, keepdim=True), None),
        (lambda c, a: c * 2, None),
    ],
)
def test_bits_of_functions_of_torch_are_not_predicted(operation, function):
    kernel = KernelUnderTest("mine", lambda a, b: operation(kernels.plain(a, b), a))
    free = predict(kernel, Case(5, 6, 7, fill="normal"), "sm_90", 132).free
    expected = None if function is None else f"torch's {function}, which a GPU computes otherwise"
    assert free == expected

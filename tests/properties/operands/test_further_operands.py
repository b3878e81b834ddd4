"""Further operands, and kernels with their own formula: right ones pass, faults are named."""

import re
from functools import partial

import numpy as np
import pytest
import torch
from tests.corpora.families.quantized import INT8, int8_mm
from tests.corpora.families.row_scales import FAMILY, scaled_mm

from gemmproof import Contract, KernelUnderTest, Operand, check, multiple_of
from gemmproof.kernels import matmul
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import operands as allocate
from gemmproof.properties.kernel import ContractError
from gemmproof.reference.spec import SpecError

OPERANDS, formula = FAMILY.right.operands, FAMILY.right.spec


def judge(launch, contract=None, operands=OPERANDS, spec=formula, **options):
    contract = contract or Contract(formats=("fp16",), out="bf16")
    kernel = KernelUnderTest("scaled_mm", launch, contract, operands=operands, spec=spec)
    return check(kernel, **{"max_examples": 30, **options})


@pytest.mark.lane("full")
@pytest.mark.parametrize("target", [None, "sm_90"])
def test_a_right_kernel_passes_in_every_format(target):
    contract = Contract(formats=("fp16", "bf16", "fp8e4m3"), out="bf16")
    report = judge(scaled_mm, contract, target=target)
    assert (report.verdict, report.findings) == ("pass", ())
    results = {p.name: p for p in report.properties}
    assert results["exact_on_integers"].examples > 30
    assert 0.1 < results["within_bound"].ratio <= 1
    assert results["special_values"].examples > 3
    # a formula has other relations between calls, or none
    assert "symmetries" not in results


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("flaw", "name", "fault", "operand", "message"),
    [
        ("forgotten", "exact_on_integers", "operand_forgotten", "scale_a", "as if scale_a were 1"),
        ("twice", "exact_on_integers", "operand_applied_twice", "scale_a", "were applied twice"),
        ("shifted", "exact_on_integers", "operand_shifted", "scale_a", "one ahead along M"),
        ("no_bias", "exact_on_integers", "operand_forgotten", "bias", "as if bias were 0"),
        ("no_mask", "stays_in_bounds", "out_of_bounds", "scale_b", "there is no mask"),
        ("overwritten", "leaves_inputs_untouched", "element", "scale_b", "scale_b[0]"),
    ],
)
def test_a_wrong_use_of_an_operand_is_named(flaw, name, fault, operand, message):
    first = judge(partial(scaled_mm, FLAW=flaw)).findings[0]
    assert (first.property, first.operand) == (name, operand)
    assert fault in first.fault
    assert message in first.message


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("change", "fault", "message"),
    [
        (
            lambda scale_a, scale_b, bias: (scale_a, scale_b**0, bias * 0),
            "operand_forgotten",
            "as if scale_b were 1 and bias were 0",
        ),
        (
            lambda scale_a, scale_b, bias: (scale_a**2, scale_b, bias * 0),
            "operands_misused",
            "as if scale_a were applied twice and bias were 0",
        ),
        # no pair of operands explains this fault
        (lambda scale_a, scale_b, bias: (scale_a * 3, scale_b * 5, bias * 7), "wrong_value", None),
    ],
)
def test_two_operands_misused_at_once_are_named(change, fault, message):
    def wrong(a, b, scale_a, scale_b, bias):
        return scaled_mm(a, b, *change(scale_a, scale_b, bias))

    root, *more = (f for f in judge(wrong).findings if f.cause is None)
    assert (root.property, root.fault) == ("exact_on_integers", fault)
    assert more == []
    assert message in root.message if message else "as if" not in root.message


@pytest.mark.lane("full")
def test_scales_of_integers_show_what_was_rounded_before_them():
    def rounded_first(a, b, scale_a, scale_b, zero):
        c = int8_mm(a, b, torch.ones_like(scale_a), torch.ones_like(scale_b), zero)
        return (c.float() * scale_a[:, None] * scale_b).bfloat16()

    right = INT8.right
    kernel = KernelUnderTest("k", rounded_first, right.contract, None, right.operands, right.spec)
    (finding,) = check(kernel, max_examples=30).findings
    assert (finding.property, finding.fault) == ("within_bound", "rounding")
    assert "bf16" in finding.message


@pytest.mark.lane("full")
def test_an_index_of_a_larger_case_comes_with_its_sizes():
    def cut(a, b, scale_a, scale_b, bias):
        return scaled_mm(a, b, scale_a, scale_b, torch.cat([bias[:-1], bias[-1:] * 0]))

    first = judge(cut).findings[0]
    index, sizes = re.search(
        r"as if bias were 0 from index (\d+) on along N(.*)", first.message
    ).groups()
    assert f" N={int(index) + 1} " in sizes
    assert first.case.N <= int(index)


def test_values_are_of_a_range_or_of_a_function():
    seen = []

    def gather(a, b, ids, zero):
        seen.append((ids.clone(), zero.clone()))
        return a @ b

    operands = {
        "ids": Operand("int32", "M", lambda rng, shape, M, N, K: np.sort(rng.integers(0, 4, M))),
        "zero": Operand("int8", ("-(-K // 16)", "N"), (0, 15)),
    }
    judge(gather, operands=operands, spec=lambda a, b, ids, zero: a @ b, max_examples=3)
    for ids, zero in seen:
        assert (torch.sort(ids).values == ids).all()
        assert zero.dim() == 2
        assert zero.numel() == 0 or (0 <= zero.min() <= zero.max() <= 15)


def test_offsets_and_ends_of_groups_ascend_to_m():
    operands = {"offsets": Operand("int32", 5, "offsets"), "ends": Operand("int32", 4, "ends")}
    kernel = KernelUnderTest("f", len, operands=operands, spec=len)
    drawn = []
    for seed in range(30):
        case = Case(9, 2, 2, seed=seed)
        given = allocate(case, kernel)
        offsets, ends = (given[name].tensor.tolist() for name in operands)
        assert (offsets[0], offsets[-1], ends[-1]) == (0, 9, 9)
        assert (offsets, ends) == (sorted(offsets), sorted(ends))
        drawn.append(offsets)
    assert {len(set(x)) < 5 for x in drawn} == {True, False}  # empty groups, or none
    written = repr(operands["offsets"])
    assert written == "Operand('int32', 5, values='offsets')"
    assert eval(written) == operands["offsets"]


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: Operand("int8", "M", "offset"), "operand values: got 'offset' for int8, expected"),
        (lambda: Operand("fp7", "M"), "operand format: got 'fp7', expected one of fp16"),
        (
            lambda: KernelUnderTest("f", len, operands={"s": Operand("fp32", "M +")}, spec=len),
            "kernel f: shape of s: got 'M +', expected sizes over M, N, K, batch such as",
        ),
        (lambda: Operand("fp32", (1, 2, 3, 4)), "expected at most three axes"),
        (lambda: Operand("fp32", "M", (0, 3)), "operand values: got (0, 3) for fp32, expected"),
        (lambda: Operand(["fp32"], "M"), "operand format: got ['fp32'], expected one of fp16"),
        (lambda: Operand("fp32", (1.5, None)), "operand shape: got (1.5, None), expected numbers"),
        (lambda: Operand("fp32", (True, np.int64(3))), "operand shape: got (True, np.int64(3))"),
        (
            lambda: KernelUnderTest("f", len, operands={"s": Operand("fp32", "-M")}, spec=len),
            "kernel f: shape of s: got '-M', which is (-16,) at M=16 N=16",
        ),
        (lambda: Operand("int8", "M", [0, 3]), "operand values: got [0, 3] for int8, expected (lo"),
        (lambda: Operand("int8", "M", (3, 0)), "operand values: got (3, 0) for int8, expected"),
        (lambda: Operand("int8", "M", (0, 200)), "operand values: got (0, 200) for int8, expected"),
        (lambda: Operand("int8", "M", (None, 1.5)), "operand values: got (None, 1.5) for int8"),
        (lambda: Contract(out=np.array(["fp16"])), "contract out: got array(['fp16']"),
        (lambda: Contract(accumulator=np.array(["fp32"])), "contract accumulator: got array(["),
        (lambda: Contract(formats=(np.array(["fp16"]),)), "contract format: got array(["),
        (lambda: KernelUnderTest("f", len, operands=None), "kernel f: got operands=None, expected"),
        (lambda: KernelUnderTest("f", len, operands={3: OPERANDS["bias"]}), "got operand 3 of Op"),
        (
            lambda: KernelUnderTest("f", len, operands={"lambda": OPERANDS["bias"]}, spec=len),
            "got operand 'lambda' of Op",
        ),
        (lambda: KernelUnderTest("f", len, operands={"s": 3}), "got operand 's' of 3, expected an"),
        (
            lambda: KernelUnderTest("f", len, operands=OPERANDS),
            "got operands without a formula, expected",
        ),
        (lambda: KernelUnderTest("f", len, spec=3), "kernel f: got spec=3, expected a function"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(construct, message):
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        construct()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (Operand("fp32", "M - N"), "operand s: got 'M - N', which is (-"),
        (Operand("fp32", "K * 99999999999"), "expected at most 67108864 elements"),
        (Operand("fp32", "M", lambda rng, shape: shape[7]), "operand s: IndexError: tuple index"),
        (Operand("fp32", "M", lambda rng, shape: rng.random(3)), "operand s: operand values: got"),
    ],
)
def test_an_operand_that_no_case_can_have_is_no_fault_of_the_kernel(declared, message):
    with pytest.raises(ContractError, match=re.escape(message)):
        judge(lambda a, b, s: matmul(a, b), operands={"s": declared}, spec=lambda a, b, s: a @ b)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (lambda a, b, s: a @ b + t, "spec: NameError: name 't' is not defined"),  # noqa: F821
        (lambda a, b, s: (a @ b)[5, :, :], "spec: "),
        (lambda a, b: a @ b / 0 @ None, "spec: "),
        (lambda a, b: (), "spec: got no result, expected an array or a tuple of arrays"),
        (lambda a, b: [a @ b], "spec: got a list, expected an array or a tuple of arrays"),
    ],
)
def test_a_formula_that_fails_is_no_fault_of_the_kernel(spec, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        judge(scaled_mm, operands={"s": Operand("fp32", "M")}, spec=spec)


@pytest.mark.parametrize("name", ["function", "spec", "kernel", "self"])
def test_an_operand_may_have_any_name(name):
    declared = {name: Operand("fp32", "M", lambda rng, shape: np.ones(shape)), **OPERANDS}
    launch = lambda a, b, scale_a, scale_b, bias, **_: scaled_mm(a, b, scale_a, scale_b, bias)  # noqa: E731
    assert judge(launch, operands=declared, max_examples=3).verdict == "pass"


@pytest.mark.lane("full")
def test_a_formula_or_a_shape_that_fails_beyond_the_contract_is_a_step_not_tried():
    def grouped(a, b, s):
        return a @ b * s[:, : a.shape[1] // 4].repeat(4, axis=1)[:, :1]

    kernel = KernelUnderTest(
        "k",
        lambda a, b, s: matmul(a, b),
        Contract(K=multiple_of(4)),
        operands={"s": Operand("fp32", ("M", "K // 4"), lambda rng, shape: np.ones(shape))},
        spec=grouped,
    )
    report = check(kernel, max_examples=3, limits=True)
    assert report.verdict == "pass"
    (step,) = (limit for limit in report.limits if limit.name.startswith("K not in"))
    assert (step.status, step.message[:5]) == ("not tried", "spec:")

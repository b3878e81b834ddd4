"""The engine: which cases it runs, what it tells, and which kernels it accuses of what."""

import json

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gemmproof.check import MORE, check
from gemmproof.kernels import matmul_persistent
from gemmproof.properties import strategies, table
from gemmproof.properties.case import Case
from gemmproof.properties.contract import Contract, KernelUnderTest
from gemmproof.properties.judged import judge
from gemmproof.properties.outcome import execute
from gemmproof.properties.shrink import shrunk
from gemmproof.properties.strategies import Survey, corners, smallest
from gemmproof.properties.tensors import as_array, as_tensor
from gemmproof.reference.exact import exact_product
from gemmproof.reference.formats import FORMATS, round_to
from gemmproof.reference.observation import (
    Fault,
    KernelError,
    Launch,
    LimitExceeded,
    Run,
    Unsupported,
    Where,
)
from gemmproof.results import Report

# -- the engine on a pretended simulator ---------------------------------------------------------
HERE = Where("/somewhere/kernels.py", 31, "matmul_kernel")
TILES = ((16, 32, 16),)


def right(a, b):
    c = exact_product(as_array(a), as_array(b))[0]
    if c.dtype == np.int64:
        return as_tensor(c.astype(np.int32), "int32")
    return as_tensor(round_to(c, FORMATS["fp32"]), "fp32")


def pretended(wrong=lambda a, b, config: [], configs=1, tiles=TILES):
    """A runner that launches nothing and finds the faults that `wrong(a, b, config)` states."""

    def run(function, *tensors, config=0, **options):
        result = function(*tensors)
        launch = Launch("k", (1, 1, 1), {}, config, configs, tiles, False, HERE)
        return Run(result=result, launches=[launch], faults=wrong(*tensors, config))

    return run


def stray(operand="a", axis="K", where=HERE):
    return Fault("out_of_bounds", "k", "load", operand, axis, where, "got", "expected", 1, 1)


def judged_by(run, launch=right, contract=None, **options):
    events = []
    kernel = KernelUnderTest("matmul", launch, contract or Contract())
    report = check(kernel, listener=events.append, _run=run, **options)
    return report, events


def cases_in(events, phase=None):
    return [
        Case.from_json(e["case"])
        for e in events
        if e["event"] == "case" and phase in (None, e["phase"])
    ]


def test_a_right_kernel_passes_every_property_that_applies():
    report, events = judged_by(pretended())
    assert report.verdict == "pass"
    assert report.findings == ()
    assert report.note is None
    names = [p.name for p in report.properties]
    absent = ("mirror_equals_source", "row_bits_at_any_m")  # nobody wrote or promised it
    assert names == [p.name for p in table.PROPERTIES if p.name not in absent]
    assert all(p.status == "pass" and p.examples > 0 for p in report.properties)
    assert {p.name: p.examples for p in report.properties}["stays_in_bounds"] == 100
    assert 0 < {p.name: p.ratio for p in report.properties}["within_bound"] <= 1
    assert Report.from_json(report.to_json()) == report
    assert events[0] == {"event": "start", "examples": 100}


def test_every_case_is_run_once_and_told_before_it_runs():
    order = []

    def run(function, *tensors, **options):
        order.append("run")
        return pretended()(function, *tensors, **options)

    kernel = KernelUnderTest("matmul", right)
    check(kernel, max_examples=60, listener=lambda e: order.append(e["event"]), _run=run)
    told = [what for what in order if what != "run"]
    assert told == ["start", *["case", "judged"] * 60]
    at = order.index("case")
    assert order[at : at + 3] == ["case", "run", "judged"]


def test_the_same_seed_draws_the_same_cases_and_no_case_twice():
    first, second, other = (cases_in(judged_by(pretended(), seed=seed)[1]) for seed in (0, 0, 1))
    assert first == second
    assert first != other
    assert len(set(first)) == len(first) == 100


def test_events_are_plain_json():
    _, events = judged_by(pretended(lambda a, b, config: [stray()]), max_examples=5)
    for event in events:
        assert json.loads(json.dumps(event)) == event
    assert {e["event"] for e in events} == {"start", "case", "judged", "finding"}


def test_every_configuration_and_every_format_is_run():
    contract = Contract(("fp16", "fp8e4m3", "int8"))
    report, events = judged_by(pretended(configs=5), contract=contract, max_examples=40)
    assert report.verdict == "pass"
    assert len(cases_in(events)) == 120
    for dtype in contract.formats:
        assert {c.config for c in cases_in(events) if c.dtype == dtype} == set(range(5))


def test_a_tiny_contract_ends_when_its_cases_are_used_up(monkeypatch):
    monkeypatch.setattr(strategies, "SEEDS", range(1, 3))
    contract = Contract(layouts="contiguous", min_side=1, max_side=1)
    report, events = judged_by(pretended(), contract=contract, max_examples=100_000)
    assert report.verdict == "pass"
    assert 10 < len(cases_in(events)) < 100


def test_after_a_finding_a_few_more_cases_are_drawn():
    _, events = judged_by(pretended(lambda a, b, config: [stray()]))
    assert len(cases_in(events, "draw")) == 1 + MORE


FAULTS = {
    # when the fault shows -> the smallest case that it shows in
    "always": (lambda a, b, config: True, Case(1, 1, 1)),
    "ragged k": (lambda a, b, config: a.shape[1] % 16 > 0, Case(1, 1, 1)),
    "long k": (lambda a, b, config: a.shape[1] > 16, Case(1, 1, 17)),
    "second tile": (lambda a, b, config: a.shape[0] > 16 and b.shape[1] > 32, Case(17, 33, 1)),
    "no k": (lambda a, b, config: a.shape[1] == 0, Case(1, 1, 0)),
    "steps": (lambda a, b, config: b.stride(1) > 1 and b.stride(0) > 1 and b.shape[1] > 1, None),
    "padding": (lambda a, b, config: a.stride(0) > a.shape[1] > 0 and a.shape[0] > 1, None),
    "configuration": (lambda a, b, config: config == 3, Case(1, 1, 1, config=3)),
    "repetition": (lambda a, b, config: a.stride(0) == 0 and a.shape[0] > 1, None),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shrinks_to_its_boundary(name):
    shows, expected = FAULTS[name]
    run = pretended(lambda a, b, config: [stray()] if shows(a, b, config) else [], configs=4)
    report, events = judged_by(run)
    assert report.verdict == "fail"
    (finding,) = report.findings
    assert finding.property == "stays_in_bounds"
    assert finding.case == expected or expected is None
    simple = {"fill": "index", "seed": 0, "calls": 1}
    assert {key: getattr(finding.case, key) for key in simple} == simple
    if name == "steps":
        assert (finding.case.a, finding.case.b) == ("row", "sliced")
        assert (finding.case.M, finding.case.N, finding.case.K) == (1, 2, 1)
    if name == "padding":
        assert (finding.case.a, finding.case.b) == ("padded", "row")
    if name == "repetition":
        assert (finding.case.a, finding.case.M) == ("expanded", 2)
    assert len(cases_in(events, "shrink")) <= 60
    replayed = judged_by(run, case=finding.case)[0]
    assert [f.key for f in replayed.findings] == [finding.key]
    assert replayed.findings[0].case == finding.case


def test_faults_that_differ_in_operand_axis_or_line_are_each_reported():
    other = Where("/somewhere/kernels.py", 40, "matmul_kernel")

    def wrong(a, b, config):
        return [stray("a"), stray("b", "K", other)] + [stray("b", "N")] * (b.shape[1] > 4)

    report, _ = judged_by(pretended(wrong))
    assert {(f.operand, f.axis, f.where, f.case.N) for f in report.findings} == {
        ("a", "K", "kernels.py:31", 1),
        ("b", "K", "kernels.py:40", 1),
        ("b", "N", "kernels.py:31", 5),
    }


def test_a_consequence_is_listed_after_causes_unless_it_also_comes_alone():
    def wrong(a, b, config):
        lanes = Fault(
            "undefined_stored", "k", "load", "a", "K", HERE, "g", "e", 1, 1, "out_of_bounds"
        )
        return [lanes, stray()]

    def nan(a, b):
        return torch.full((a.shape[0], b.shape[1]), torch.nan)

    report, _ = judged_by(pretended(wrong), nan)
    causes = [(f.property, f.cause) for f in report.findings]
    assert causes[0] == ("stays_in_bounds", None)
    assert ("undefined_lanes_never_stored", "stays_in_bounds") in causes
    assert ("exact_on_integers", "undefined_lanes_never_stored") in causes
    assert all(cause is not None for _, cause in causes[1:])

    def sometimes(a, b, config):
        return wrong(a, b, config) if a.shape[0] > 20 else []

    def mostly(a, b, config):
        return [] if a.shape[0] > 20 else wrong(a, b, config)

    for shows in (sometimes, mostly):
        report, _ = judged_by(pretended(shows), nan)
        alone = {f.property: f.cause for f in report.findings}
        assert alone["exact_on_integers"] is None


def test_a_value_beyond_the_bound_is_laid_to_integers_that_are_wrong_too():
    def launch(a, b):
        return right(a, b) + (1000 if a.shape[0] == 7 else 0)  # the corners of the fills

    report, _ = judged_by(pretended(), launch)
    causes = {f.property: f.cause for f in report.findings}
    assert causes == {"exact_on_integers": None, "within_bound": "exact_on_integers"}


def test_an_unknown_operation_ends_the_check_with_its_line():
    def run(function, *tensors, **options):
        raise Unsupported("tl.nonsense is not known", HERE)

    report, events = judged_by(run)
    assert report.verdict == "error"
    assert report.note == "kernels.py:31: tl.nonsense is not known; judged before: no property"
    assert len(cases_in(events)) == 1
    assert all(p.status == "not run" and p.examples == 0 for p in report.properties)


def test_an_unknown_operation_on_some_path_keeps_what_was_found_before():
    def run(function, *tensors, **options):
        if tensors[0].shape[0] > 16:
            raise Unsupported("tl.nonsense is not known", HERE)
        return pretended(lambda a, b, config: [stray()])(function, *tensors, **options)

    report, _ = judged_by(run)
    assert report.verdict == "fail"
    assert "judged before: compiles, runs_to_completion, stays_in_bounds" in report.note


def test_our_own_mistake_accuses_no_kernel():
    report, _ = judged_by(lambda *tensors, **options: table.BY_NAME["no such property"])
    assert report.verdict == "fail", "an error raised here is a wrapper's as far as frames tell"

    def broken(function, *tensors, **options):
        function(*tensors)
        raise_in_ours()

    report, _ = judged_by(broken)
    assert report.verdict == "error"
    assert report.note.startswith("gemmproof itself failed at M=1 N=1 K=1 fp16")
    assert report.findings == ()


def raise_in_ours():
    round_to(np.zeros(1), "no such format")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ValueError("M must be a multiple of 64"), "raised"),
        (SystemExit(0), "raised"),
        (KernelError("shapes differ", HERE), "kernel_error"),
        (LimitExceeded("a loop without end", HERE), "limit"),
    ],
)
def test_what_a_call_raises_is_a_finding_with_the_smallest_case(error, fault):
    def run(function, *tensors, **options):
        if tensors[0].shape[0] > 16:
            raise error
        return pretended()(function, *tensors, **options)

    report, _ = judged_by(run)
    (finding,) = report.findings
    assert (finding.property, finding.fault) == ("runs_to_completion", fault)
    assert finding.case == Case(17, 1, 1)


def test_a_wrapper_that_never_launches_is_found_and_one_that_sometimes_does_not_is_right():
    def without(function, *tensors, **options):
        return Run(result=function(*tensors))

    report, _ = judged_by(without, max_examples=20)
    (finding,) = report.findings
    assert (finding.property, finding.fault) == ("runs_to_completion", "no_launch")
    assert "got no kernel launch in" in finding.message

    def small(function, *tensors, **options):
        run = pretended() if tensors[0].shape[0] > 8 else without
        return run(function, *tensors, **options)

    assert judged_by(small, max_examples=40)[0].verdict == "pass"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_examples": 0}, "check: got max_examples=0, expected a positive integer"),
        ({"max_examples": True}, "expected a positive integer"),
        ({"seed": "x"}, "check: got seed='x', expected an integer"),
        ({"case": Case(1, 1, 1, batch=1)}, "check case: got batch=1, expected no batch for matmul"),
    ],
)
def test_arguments_out_of_range_are_refused(options, words):
    with pytest.raises(ValueError, match=words.replace("=", "\\=")):
        judged_by(pretended(), **options)


def test_a_case_replays_whatever_the_contract_says():
    case = Case(3, 4, 5, "bf16", a="narrow", calls=3)
    report, events = judged_by(pretended(), case=case, contract=Contract(layouts="contiguous"))
    assert report.verdict == "pass"
    assert cases_in(events) == [case]


def test_shrinking_never_leaves_the_contract():
    contract = Contract(min_side=3, multiples=(1, 16, 4), layouts=("column", "padded"))
    tried = []

    def fails(case):
        tried.append(case)
        return case.K >= 20

    start = Case(70, 64, 40, a="padded", b="padded", fill="wide", seed=9, calls=3)
    assert shrunk(start, contract, fails) == Case(3, 16, 20, a="column", b="column")
    assert all(c.M >= 3 and c.N % 16 == 0 and c.K % 4 == 0 for c in tried)


def test_shrinking_stops_when_told():
    start = Case(70, 64, 40)
    assert shrunk(start, Contract(), lambda case: None) == start


# -- real kernels on the real simulator ----------------------------------------------------------
BLOCK = 16


@triton.jit
def flawed_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    FLAW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    if a_ptr.dtype.element_ty == tl.int8:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    elif FLAW == "half_acc":
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tiles = tl.cdiv(K, BLOCK_K)
    if FLAW == "last_k_tile_dropped":
        tiles = K // BLOCK_K
    for tile in range(0, tiles):
        offs_k = tile * BLOCK_K + tl.arange(0, BLOCK_K)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        if FLAW == "no_row_mask":
            a_mask = offs_k[None, :] < K
        if FLAW == "no_column_mask":
            b_mask = offs_k[:, None] < K
        if FLAW == "no_k_mask":
            a_mask = offs_m[:, None] < M
            b_mask = offs_n[None, :] < N
        if FLAW == "k_mask_one_too_far":
            a_mask = (offs_m[:, None] < M) & (offs_k[None, :] <= K)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        if FLAW == "no_other":
            a = tl.load(a_ptrs, mask=a_mask)
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        elif FLAW == "other_is_one":
            a = tl.load(a_ptrs, mask=a_mask, other=1.0)
            b = tl.load(b_ptrs, mask=b_mask, other=1.0)
        else:
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        if FLAW == "bf16_operands":
            a = a.to(tl.bfloat16)
            b = b.to(tl.bfloat16)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=acc.dtype)
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if FLAW == "no_store_mask":
        c_mask = offs_n[None, :] < N
    if FLAW == "store_mask_too_tight":
        c_mask = (offs_m[:, None] < M - 1) & (offs_n[None, :] < N)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def flawed(flaw):
    """A wrapper whose kernel, or whose own code, has one flaw."""

    def matmul(a, b):
        (M, K), N = a.shape, b.shape[1]
        dtype = {torch.int8: torch.int32}.get(a.dtype, a.dtype)
        dtype = torch.int8 if flaw == "int8_result" else dtype
        c = torch.empty((M, N), device=a.device, dtype=dtype)
        strides = [*a.stride(), *b.stride(), *c.stride()]
        if flaw == "strides_of_a_swapped":
            strides[:2] = strides[1], strides[0]
        if flaw == "strides_of_b_assumed":
            strides[2:4] = N, 1
        if flaw == "strides_of_c_swapped":
            strides[4:] = strides[5], strides[4]
        rows = M // BLOCK if flaw == "grid_rounded_down" else triton.cdiv(M, BLOCK)
        grid = (rows, triton.cdiv(N, BLOCK), 2 if flaw == "launched_twice" else 1)
        if M and N and rows:
            block_k = 32 if a.element_size() == 1 else BLOCK
            flawed_kernel[grid](a, b, c, M, N, K, *strides, flaw, BLOCK, BLOCK, block_k)
        if flaw == "input_scaled":
            a.mul_(2)
        return c

    return matmul


FLAWS = {
    # flaw -> property, fault, operand, axis and smallest case of the first finding
    "no_row_mask": ("stays_in_bounds", "out_of_bounds", "a", "M", Case(1, 1, 1)),
    "no_column_mask": ("stays_in_bounds", "out_of_bounds", "b", "N", Case(1, 1, 1)),
    "no_k_mask": ("stays_in_bounds", "out_of_bounds", "a", "K", Case(1, 1, 1)),
    "k_mask_one_too_far": ("stays_in_bounds", "out_of_bounds", "a", "K", Case(1, 1, 1)),
    "no_store_mask": ("stays_in_bounds", "out_of_bounds", "c", "M", Case(1, 1, 1)),
    "strides_of_a_swapped": ("stays_in_bounds", "out_of_bounds", "a", "M", Case(1, 1, 2)),
    "strides_of_c_swapped": ("stays_in_bounds", "out_of_bounds", "c", None, None),
    "no_other": ("undefined_lanes_never_stored", "undefined_stored", "a", "K", Case(1, 1, 1)),
    "other_is_one": ("exact_on_integers", "k_tail", "c", "K", Case(1, 1, 1)),
    "last_k_tile_dropped": ("exact_on_integers", "last_k_block", "c", "K", Case(1, 1, 1)),
    "half_acc": ("within_bound", "rounding", "c", None, None),
    "bf16_operands": ("within_bound", "rounding", "c", None, Case(1, 1, 1, fill="normal")),
    "store_mask_too_tight": ("stores_each_element_once", "never_stored", "c", "M", Case(2, 1, 1)),
    "grid_rounded_down": ("stores_each_element_once", "never_stored", "c", "M", Case(17, 1, 1)),
    "launched_twice": ("stores_each_element_once", "stored_twice", "c", None, Case(1, 1, 1)),
    "input_scaled": ("leaves_inputs_untouched", "element_changed", "a", None, Case(1, 1, 1)),
    "int8_result": ("exact_on_integers", "wrapped", "c", None, Case(1, 1, 1, "int8")),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flawed_kernel_is_accused_of_its_flaw(flaw):
    contract = Contract(("int8",) if flaw == "int8_result" else ("fp16",))
    kernel = KernelUnderTest("matmul", flawed(flaw), contract)
    report = check(kernel)
    assert report.verdict == "fail"
    name, fault, operand, axis, case = FLAWS[flaw]
    first = report.findings[0]
    assert (first.property, first.cause) == (name, None)
    if case is not None:
        assert (first.fault, first.operand, first.axis) == (fault, operand, axis)
        assert first.case == case
    if name == "stays_in_bounds":
        assert first.where.startswith("test_check.py:")
    replayed = check(kernel, case=first.case)
    assert first.property in {f.property for f in replayed.findings}


def test_a_missing_k_mask_is_one_cause_and_all_else_its_consequence():
    report = check(KernelUnderTest("matmul", flawed("no_k_mask")))
    roots = [(f.property, f.operand, f.axis) for f in report.findings if f.cause is None]
    assert roots == [("stays_in_bounds", "a", "K"), ("stays_in_bounds", "b", "K")]
    assert {f.property for f in report.findings if f.cause is not None} == {
        "undefined_lanes_never_stored",
        "exact_on_integers",
        "within_bound",
        "same_bits_on_dirty_outputs",
    }


def test_swapped_strides_are_told_by_the_values_too():
    report = check(KernelUnderTest("matmul", flawed("strides_of_b_assumed")))
    told = [f for f in report.findings if f.fault == "wrong_strides"]
    assert [f.operand for f in told] == ["b"]
    assert {f.cause for f in report.findings if f.property == "within_bound"} == {told[0].property}


def test_a_kernel_is_not_accused_of_layouts_that_it_never_promised():
    launch = flawed("strides_of_b_assumed")
    assert check(KernelUnderTest("matmul", launch)).verdict == "fail"
    dense = Contract(layouts="contiguous")
    assert check(KernelUnderTest("matmul", launch, dense), max_examples=20).verdict == "pass"


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp8e4m3", "int8"])
def test_the_same_kernel_without_a_flaw_passes(dtype):
    report = check(KernelUnderTest("matmul", flawed("none"), Contract((dtype,))), max_examples=25)
    assert report.findings == ()
    assert report.verdict == "pass"


# -- right kernels of odd habits -----------------------------------------------------------------
@triton.jit
def split_k_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    SPLIT_K: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M, BLOCK_M), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BLOCK_M * SPLIT_K)):
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc += tl.dot(a, b)
        offs_k += BLOCK_M * SPLIT_K
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.atomic_add(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def split_k(a, b):
    """Three programs a tile add their share onto zeros, in fp32; the cast is torch's."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), 3)
    split_k_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), 16, 3)
    return c.to(a.dtype)


@triton.jit
def wrapped_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Offsets wrap modulo M and N, and tiles of a group are taken in a rotated order."""
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_in_group = GROUP_M * tl.cdiv(N, BLOCK_M)
    first_pid_m = pid // num_pid_in_group * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + pid % group_size_m
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_M + tl.arange(0, BLOCK_M)) % N
    offs_k = tl.arange(0, BLOCK_M)
    a_ptrs = a_ptr + offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_M), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_M)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_M, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_M, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_M * stride_ak
        b_ptrs += BLOCK_M * stride_bk
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_M + tl.arange(0, BLOCK_M)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def into(c, a, b):
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 16),)
    wrapped_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), 16, 3)
    return c


def fp8_out(a, b):
    return into(a.new_empty(a.shape[0], b.shape[1], dtype=torch.float8_e4m3fn), a, b)


def fp32_out(a, b):
    return into(a.new_empty(a.shape[0], b.shape[1], dtype=torch.float32), a, b)


def column_major_out(a, b):
    return into(torch.empty((b.shape[1], a.shape[0]), device=a.device, dtype=a.dtype).t(), a, b)


def transposed_problem(a, b):
    return into(a.new_empty(b.shape[1], a.shape[0]), b.t(), a.t()).t()


def padded_operands(a, b):
    """Copies into whole tiles of zeros, and returns a view of a larger result."""
    (M, K), N = a.shape, b.shape[1]
    up = [-(-side // 16) * 16 for side in (M, N, K)]
    wide_a, wide_b = a.new_zeros(up[0], up[2]), b.new_zeros(up[2], up[1])
    wide_a[:M, :K] = a
    wide_b[:K, :N] = b
    return into(a.new_empty(up[0], up[1]), wide_a, wide_b)[:M, :N]


def small_by_torch(a, b):
    if a.shape[0] < 8 or a.shape[1] == 0:
        return (a.float() @ b.float()).to(a.dtype)
    return into(a.new_empty(a.shape[0], b.shape[1]), a, b)


ODD = [
    split_k,
    fp8_out,
    fp32_out,
    column_major_out,
    transposed_problem,
    padded_operands,
    small_by_torch,
]


@pytest.mark.parametrize("launch", ODD, ids=lambda f: f.__name__)
def test_a_right_kernel_of_odd_habits_is_not_accused(launch):
    report = check(KernelUnderTest(launch.__name__, launch), max_examples=40)
    assert report.findings == ()
    assert report.verdict == "pass"


@triton.jit
def batched_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK_M: tl.constexpr):
    offs = tl.arange(0, BLOCK_M)
    pid = tl.program_id(0).to(tl.int64)
    offs_m, offs_n = tl.program_id(1) * BLOCK_M + offs, tl.program_id(2) * BLOCK_M + offs
    acc = tl.zeros((BLOCK_M, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_M):
        a_ptrs = a_ptr + pid * sa[0] + offs_m[:, None] * sa[1] + (k + offs)[None, :] * sa[2]
        b_ptrs = b_ptr + pid * sb[0] + (k + offs)[:, None] * sb[1] + offs_n[None, :] * sb[2]
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & ((k + offs)[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=((k + offs)[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + pid * sc[0] + offs_m[:, None] * sc[1] + offs_n[None, :] * sc[2]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def batched(stride_of_b):
    def bmm(a, b):
        (batch, M, K), N = a.shape, b.shape[2]
        c = a.new_empty(batch, M, N)
        strides = (stride_of_b(b), *b.stride()[1:])
        grid = (batch, triton.cdiv(M, 16), triton.cdiv(N, 16))
        batched_kernel[grid](a, b, c, M, N, K, a.stride(), strides, c.stride(), 16)
        return c

    return bmm


def test_a_batched_kernel_passes_and_one_that_forgets_a_batch_stride_does_not():
    contract = Contract(batched=True)
    right_one = KernelUnderTest("bmm", batched(lambda b: b.stride(0)), contract)
    assert check(right_one, max_examples=40).findings == ()
    report = check(KernelUnderTest("bmm", batched(lambda b: 0), contract))
    assert [f for f in report.findings if f.cause is None and f.operand == "b"]
    assert "a batch stride of 0" in report.findings[0].message
    assert report.findings[0].case.batch == 2


@triton.jit
def walking_kernel(c_ptr, N, tiles, NUM_SMS: tl.constexpr, STEP: tl.constexpr):
    # column tiles of c get zeros, as the product of a and b with K = 0 asks for
    for tile in range(tl.program_id(0), tiles, STEP):
        offs_n = tile * 16 + tl.arange(0, 16)
        tl.store(c_ptr + offs_n, tl.zeros((16,), tl.float32), mask=offs_n < N)


def walking(slip):
    def launch(a, b):
        sms = torch.cuda.get_device_properties(a.device).multi_processor_count
        (M, _), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=torch.float32)
        if M * N:
            walking_kernel[(sms,)](c, M * N, triton.cdiv(M * N, 16), sms, sms + slip)
        return c

    return launch


def test_few_multiprocessors_make_a_persistent_kernel_walk():
    contract = Contract(max_side=40, multiples=(1, 1, 64))  # K = 0 is all there is
    assert check(KernelUnderTest("walk", walking(0), contract), max_examples=60).verdict == "pass"
    report = check(KernelUnderTest("walk", walking(1), contract), max_examples=60)
    first = report.findings[0]
    assert (first.property, first.fault) == ("stores_each_element_once", "never_stored")
    assert first.case.sms in (1, 7)


def test_our_persistent_kernel_is_run_with_few_multiprocessors_and_its_mirror_is_told():
    made = corners(Contract(), Survey(asks_sms=True), "fp16")
    assert {case.sms for case in made} == {None, 1, 7}
    from gemmproof.reference.mirrors import mirror_for
    from gemmproof.reference.simulator import run

    kernel = KernelUnderTest("p", matmul_persistent, mirror=mirror_for("matmul_persistent"))
    case = Case(200, 300, 20, config=4, sms=7)
    outcome = execute(kernel, case, run, None)
    assert outcome.asked_sms
    assert outcome.runs[0].launches[0].grid[0] == 7
    assert judge(outcome).findings == ()


def test_the_smallest_case_is_one_by_one_by_one_where_that_is_admitted():
    assert smallest(Contract(), "fp16") == Case(1, 1, 1)
    assert smallest(Contract(multiples=(1, 16, 64)), "fp16") == Case(1, 16, 64)

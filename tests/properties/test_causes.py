"""One cause, one finding: which findings are joined, lines, and the names of operands."""

import os
import signal
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from tests.corpora.tiled import plain
from tests.support.fake_simulator import HERE, check_with, fake_run, right, stray_load

from gemmproof import Operand
from gemmproof.engine.findings import explain, join, judge_on_integers, label_axis
from gemmproof.engine.kernel_check import check
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import encode
from gemmproof.properties.contract import Contract
from gemmproof.properties.finding import Finding, list_by_cause
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import parameters_of
from gemmproof.reference.simulation import Fault, Where
from gemmproof.report.text import lines

SMALL, LARGE = Case(1, 1, 1), Case(1, 1, 17)


def finding(property, fault, operand="c", case=SMALL, **more):
    return Finding(property, fault, f"{property} {fault}", case, operand, **more)


STRAY_STORE = finding("stays_in_bounds", "out_of_bounds", where="k.py:9", axis="M")
STRAY_LOAD = finding("stays_in_bounds", "out_of_bounds", "a", where="k.py:5", axis="K")
TWICE = finding("stores_each_element_once", "stored_twice", where="k.py:9", case=LARGE)
NEVER = finding("stores_each_element_once", "never_stored", where="k.py:30", case=LARGE)
MISREAD = finding("exact_on_integers", "operand_strides", "a", case=LARGE)
ROUNDED = finding("within_bound", "rounding")
NAN_LOST = finding("special_values", "nan_lost", case=LARGE)
UNALIGNED = finding("every_hint_holds", "bad_descriptor", "a", expected="a multiple of 16 bytes")

JOINED = {
    "another axis of the same load": (STRAY_LOAD, replace(STRAY_LOAD, axis="M", case=LARGE)),
    "stored twice at the line that strays": (STRAY_STORE, TWICE),
    "never stored where others are stored twice": (TWICE, NEVER),
    "the wrong elements of the operand that is read astray": (STRAY_LOAD, MISREAD),
    "bits lost on integers and on numbers": (
        finding("exact_on_integers", "rounding"), ROUNDED,
    ),
    "a result rounded first, on integers and on numbers": (
        finding("exact_on_integers", "rounded_twice"), finding("within_bound", "rounded_twice"),
    ),
    "overflow of the narrow format": (
        ROUNDED, finding("special_values", "overflow", case=LARGE),
    ),
    "a number among special values, with fewer bits": (
        ROUNDED, finding("special_values", "wrong_value", case=LARGE),
    ),
    "special values where integers are wrong": (
        finding("exact_on_integers", "operand_forgotten", "bias"), NAN_LOST,
    ),
    "special values where index data are beyond the bound": (
        finding("within_bound", "wrong_value"), NAN_LOST,
    ),
    "the other descriptors of the call": (
        UNALIGNED, replace(UNALIGNED, operand="b", where="k.py:6"),
    ),
    "state that repeated calls show": (
        finding("undefined_lanes_never_stored", "undefined_stored", case=Case(1, 1, 1, calls=3)),
        finding("call_order", "stale", None),
    ),
}  # fmt: skip
APART = {
    "another line": (STRAY_LOAD, replace(STRAY_LOAD, where="k.py:6")),
    "another operand": (STRAY_LOAD, replace(MISREAD, operand="b")),
    "a wrong value of no operand": (STRAY_LOAD, finding("exact_on_integers", "last_k_block")),
    "stored twice at another line": (STRAY_STORE, replace(TWICE, where="k.py:12")),
    "never stored, and a load astray": (STRAY_LOAD, NEVER),
    "NaN lost, and bits": (ROUNDED, NAN_LOST),
    "NaN lost, and subnormal numbers": (
        finding("within_bound", "scattered", case=replace(SMALL, fill="subnormal")), NAN_LOST,
    ),
    "NaN lost, and another result": (
        finding("exact_on_integers", "everywhere", result="scale"), NAN_LOST,
    ),
    "a descriptor that breaks another rule": (
        UNALIGNED, replace(UNALIGNED, operand="b", expected="1"),
    ),
    "call order, and one call": (STRAY_LOAD, finding("call_order", "stale", None)),
    "another backend": (STRAY_LOAD, replace(STRAY_LOAD, axis="M", backend="cuda")),
}  # fmt: skip


def never(case):
    raise AssertionError("no case has to be run for this")


@pytest.mark.parametrize("why", JOINED)
def test_findings_of_one_cause_are_joined(why):
    root, other = JOINED[why]
    joined = join([root, other], never, never)
    assert joined == [root, other.caused_by(root.property)]


@pytest.mark.parametrize("why", APART)
def test_findings_of_two_causes_stay_two(why):
    pair = list(APART[why])
    assert join(pair, never, never) == pair


def test_the_simplest_of_one_fault_is_the_root_whatever_came_first():
    large = replace(STRAY_LOAD, axis="M", case=LARGE)
    assert join([large, STRAY_LOAD], never, never) == [
        STRAY_LOAD, large.caused_by("stays_in_bounds"),
    ]  # fmt: skip
    assert join([large, large], never, never) == [large]


def test_special_values_follow_from_what_itself_follows_from_a_load_astray():
    load = replace(STRAY_LOAD, operand="bias")
    moved = finding("within_bound", "operand_transposed", "bias")
    assert join([load, moved, NAN_LOST], never, never) == [
        load, moved.caused_by("stays_in_bounds"), NAN_LOST.caused_by("within_bound"),
    ]  # fmt: skip


def test_index_data_are_tried_with_a_few_seeds_where_they_draw_further_operands():
    without = KernelUnderTest("plain", plain)
    bias = {"bias": Operand("fp16", "N")}
    biased = replace(without, operands=bias, spec=lambda a, b, bias: a @ b + bias)
    beyond = finding("within_bound", "wrong_value", case=replace(SMALL, fill="normal", seed=5))
    judged = []

    def judge(case):  # the bias that seed 2 draws is the first that shows it
        judged.append(case)
        wrong = finding("exact_on_integers", "operand_forgotten", "bias", case)
        return SimpleNamespace(findings=[wrong] * (case.seed == 2))

    assert explain(beyond, biased, judge, never) == beyond.caused_by("exact_on_integers")
    assert judged == [replace(SMALL, seed=seed) for seed in (0, 5, 1, 2)]
    assert len(list(judge_on_integers(beyond.case, without, judge))) == 2


def test_an_axis_is_named_at_the_smallest_case_if_it_is_the_only_one(texts):
    drawn = replace(NEVER, axis="M", got="row 16 of c never stored", case=Case(17, 5, 1))
    small = replace(NEVER, case=SMALL)
    named = label_axis(small, drawn, [drawn])
    assert (named.axis, named.case) == ("M", SMALL)
    texts("the axis that a drawn case shows", named.message)
    assert label_axis(small, drawn, [drawn, replace(drawn, axis="N")]) == small
    assert label_axis(STRAY_LOAD, replace(STRAY_LOAD, axis="M"), [STRAY_LOAD]) == STRAY_LOAD


def test_what_follows_is_listed_under_its_own_cause():
    b = replace(STRAY_LOAD, operand="b", where="k.py:6")
    lanes = [
        finding("undefined_lanes_never_stored", "undefined_stored", name, cause="stays_in_bounds")
        for name in "ba"
    ]
    value = finding("exact_on_integers", "wrong_value", cause="undefined_lanes_never_stored")
    groups = list_by_cause([STRAY_LOAD, b, *lanes, value])
    assert groups == [(STRAY_LOAD, [lanes[1]]), (b, [lanes[0], value])]
    # a cause that is not among them, or a circle, hides nothing
    alone = [replace(value, cause="no_races"), replace(lanes[0], cause="exact_on_integers")]
    assert list_by_cause(alone) == [(alone[0], []), (alone[1], [])]
    assert list_by_cause([STRAY_LOAD, *alone]) == [(STRAY_LOAD, alone)]


def test_the_text_lists_consequences_under_the_finding(texts):
    def wrong(a, b, config):
        lanes = Fault(
            "undefined_stored", "k", "load", "a", "K", HERE, "g", "e", 1, 1, "out_of_bounds"
        )
        return [stray_load(), lanes, stray_load("b", "K", Where("/x/kernels.py", 40, "k"))]

    report, _ = check_with(fake_run(wrong), right)
    shown = [text for text, _ in lines(report, lambda case: "")]
    heads = [i for i, text in enumerate(shown) if text.startswith("matmul does not")]
    follows = shown.index("  consequences:")
    assert heads[0] < follows < heads[1]
    texts("a consequence below its finding", "\n".join(shown[follows : follows + 2]))


# -- names and lines ------------------------------------------------------------------------------
def linear(x, weight):
    return None


@pytest.mark.parametrize(
    ("launch", "names"),
    [
        (linear, {"a": "x", "b": "weight"}),
        (lambda a, b: None, {"a": "a", "b": "b"}),
        (lambda b, a: None, {"a": "a", "b": "b"}),
        (lambda c, d: None, {"a": "a", "b": "b"}),
        (lambda *both: None, {"a": "a", "b": "b"}),
        (lambda x, *, weight: None, {"a": "a", "b": "b"}),
        (lambda x, weight, bias=None: None, {"a": "x", "b": "weight"}),
        (max, {"a": "a", "b": "b"}),
    ],
)
def test_the_wrappers_names_of_its_operands(launch, names):
    assert parameters_of(launch) == names


@triton.jit
def linear_kernel(x_ptr, w_ptr, c_ptr, M, N, K, sxm, sxk, swk, swn, FLAW: tl.constexpr):
    rm = tl.program_id(0) * 16 + tl.arange(0, 16)
    rn = tl.program_id(1) * 16 + tl.arange(0, 16)
    acc = tl.zeros((16, 16), dtype=tl.float32)
    for k in range(0, K, 16):
        rk = k + tl.arange(0, 16)
        inside = (rm[:, None] < M) & ((rk[None, :] < K) | (FLAW == "K"))
        x = tl.load(x_ptr + rm[:, None] * sxm + rk[None, :] * sxk, mask=inside, other=0.0)
        column = rn % 16 if FLAW == "wrap" else rn
        column = column + 1 if FLAW == "shift" else column
        both = (rk[:, None] < K) & (column[None, :] < N)
        w = tl.load(w_ptr + rk[:, None] * swk + column[None, :] * swn, mask=both, other=0.0)
        acc = tl.dot(x, w, acc)
    c_ptrs, keep = c_ptr + rm[:, None] * N + rn[None, :], (rm[:, None] < M) & (rn[None, :] < N)
    if FLAW == "store" and M > 16:
        tl.store(c_ptrs, acc + 1, mask=keep)
    else:
        tl.store(c_ptrs, acc, mask=keep)


def flawed(flaw, after=lambda c: c):
    def linear(x, weight):
        (M, K), N = x.shape, weight.shape[1]
        c = torch.empty((M, N), device=x.device, dtype=torch.float32)
        grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
        if M and N:
            linear_kernel[grid](x, weight, c, M, N, K, *x.stride(), *weight.stride(), FLAW=flaw)
        return after(c)

    report = check(KernelUnderTest("linear", linear, Contract()), max_examples=60)
    assert encode(report)["names"] == {"a": "x", "b": "weight"}
    return [f for f in report.findings if f.cause is None]


def line_of(text):
    source, first = linear_kernel.raw_src, linear_kernel.starting_line_number
    lines = "".join(source).splitlines()
    return f"test_causes.py:{first + next(i for i, s in enumerate(lines) if text in s)}"


def test_messages_call_operands_as_the_wrapper_does():
    (root,) = flawed("K")
    assert root.operand == "a"
    assert root.message.startswith(f"load of x (a) at {line_of('x = tl.load')}: columns 1..15 of x")


def test_a_wrapped_load_is_recognised_with_its_line(texts):
    (root,) = flawed("wrap")
    assert (root.fault, root.operand, root.where) == (
        "operand_wrapped",
        "b",
        line_of("w = tl.load"),
    )
    rest = root.message[root.message.index("as if ") :]
    texts("an operand that is wrapped", rest, line=root.where)


@pytest.mark.lane("full")
def test_a_shifted_load_is_recognised_with_its_line(texts):
    (root,) = flawed("shift")
    assert (root.fault, root.operand, root.where) == (
        "operand_shifted",
        "b",
        line_of("w = tl.load"),
    )
    rest = root.message[root.message.index("as if ") :]
    texts("an operand that is shifted", rest, line=root.where)


def test_of_two_stores_the_one_that_stored_the_wrong_element_is_named():
    (root,) = flawed("store")
    assert root.case == Case(17, 1, 1)
    assert root.where == line_of("acc + 1")
    assert root.message.startswith(f"c[0, 0], stored at {root.where}: got")


@pytest.mark.lane("full")
def test_where_torch_made_the_result_the_line_is_of_what_it_was_made_of(texts):
    (root,) = flawed("shift", after=lambda c: c.to(torch.float16))
    assert root.where == line_of("w = tl.load")
    (root,) = flawed("", after=lambda c: c + 1)
    position = root.message.partition(": got")[0]
    texts("a result that torch made of what is stored", position, line=root.where)


@triton.jit
def flat_tile_kernel(a_ptr, b_ptr, c_ptr, M, N, K, MOVES: tl.constexpr, B: tl.constexpr):
    """A product whose tile is stored as a row of its elements."""
    lanes = tl.arange(0, B).to(tl.int64)
    rm, rn = tl.program_id(0) * B + lanes, tl.program_id(1) * B + lanes
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        rk = k + lanes
        a_mask = (rm[:, None] < M) & (rk[None, :] < K)
        b_mask = (rk[:, None] < K) & (rn[None, :] < N)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], a_mask, 0.0)
        b = tl.load(b_ptr + rk[:, None] * N + rn[None, :], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
    flat = tl.reshape(acc, (B * B,), can_reorder=MOVES)
    at = tl.arange(0, B * B).to(tl.int64)
    fm, fn = tl.program_id(0) * B + at // B, tl.program_id(1) * B + at % B
    mask = (fm < M) & (fn < N)
    tl.store(c_ptr + fm * N + fn, flat.to(c_ptr.dtype.element_ty), mask)


def store_flat(a, b, moves=True):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    flat_tile_kernel[grid](a, b, c, M, N, K, moves, 16)
    return c


def test_an_order_that_is_left_to_the_compiler_is_named():
    case = Case(17, 3, 5)
    kept = KernelUnderTest("kept", partial(store_flat, moves=False))
    assert check(kept, case=case).findings == ()
    (finding,) = check(KernelUnderTest("moved", store_flat), case=case, proof=False).findings[:1]
    assert (finding.property, finding.fault) == ("exact_on_integers", "wrong_value")
    assert "leaves the order of elements to the compiler" in finding.message
    assert "tl.reshape with can_reorder at test_causes.py:" in finding.message


# -- values that come and go -----------------------------------------------------------------------
def wrong_in(calls):
    """Return a wrapper that is wrong in these calls, as one may be that depends on an address."""
    numbers = (number for number in range(1_000_000))  # state that cannot be restored

    def wrapper(a, b):
        c = plain(a, b)
        if next(numbers) in calls:
            c[0, 0] += 1
        return c

    return KernelUnderTest("wrapper", wrapper, Contract())


def test_a_value_that_is_wrong_in_one_call_is_reported_without_a_line():
    report = check(wrong_in({0}), case=Case(2, 3, 4, "fp16"))
    (finding,) = (f for f in report.findings if f.property == "exact_on_integers")
    assert (report.verdict, finding.where) == ("fail", None)
    assert finding.message.endswith(
        "; not so when the call is repeated: it depends on an address, chance or kept state"
    )


def test_a_value_that_is_wrong_in_every_call_has_its_line():
    report = check(wrong_in(range(1_000_000)), case=Case(2, 3, 4, "fp16"))
    (finding,) = (f for f in report.findings if f.property == "exact_on_integers")
    assert finding.where is not None
    assert "repeated" not in finding.message


def test_an_interrupt_that_the_wrapper_raises_is_its_own_and_one_by_a_signal_is_the_user_s():
    def raises(a, b):
        raise KeyboardInterrupt

    def is_interrupted(a, b):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(9)

    report = check(KernelUnderTest("raises", raises, Contract()), max_examples=1)
    assert [(f.fault, f.got) for f in report.findings] == [("raised", "KeyboardInterrupt")]
    assert report.findings[0].where.startswith("test_causes.py:")
    with pytest.raises(KeyboardInterrupt):
        check(KernelUnderTest("is_interrupted", is_interrupted, Contract()), max_examples=1)

"""A whole run on a device that is the CPU: verified, then timed, and the verdicts of its rows."""

import json

import pytest
import torch
from tests.bench.fake_cuda_device import SMALL, FakeDevice, allocating, right, run

from gemmproof.bench import record
from gemmproof.bench.problems import Problem
from gemmproof.bench.record import EAGER, GRAPH, NOISE, RIGHT, WRONG, BenchReport, TimedRow
from gemmproof.properties.codec import decode, encode
from gemmproof.target import TargetError
from gemmproof.worker.protocol import CaseStarted, PartialResult


@pytest.mark.parametrize(
    ("cost", "verdict", "ratio"),
    [(0.01, record.FASTER, 2.0), (0.02, NOISE, 1.0), (0.04, record.SLOWER, 0.5)],
)
def test_a_kernel_is_timed_beside_the_peer_and_the_peer_beside_itself(cost, verdict, ratio):
    device = FakeDevice(right=cost)
    (control, row), events, _ = run(right, device=device)
    assert (control.kernel, control.verdict) == ("torch.matmul again", record.CONTROL)
    assert (control.floor, control.ratio.median) == ((1.0, 1.0), 1.0)
    assert (row.kernel, row.peer, row.verdict) == ("right", "torch.matmul", verdict)
    measured = (row.ratio.median, row.seconds, row.peer_seconds, row.tflops, *row.samples)
    tflops = SMALL.flops / cost / 1e12
    assert measured == pytest.approx((ratio, cost, 0.02, tflops, *(cost,) * 4))
    assert (row.how, row.equal_bits) == (GRAPH, True)
    assert row.sets * row.set_bytes > 2 * device.l2_bytes
    assert row.clocks["after"]["sm_clock_mhz"] == 1980.0
    assert [e.case for e in events if isinstance(e, CaseStarted)] == [
        "the ceiling of fp16",
        "some/thing 24x20x32 fp16",
    ]
    assert [e.value for e in events if isinstance(e, PartialResult)] == [control, row]


def test_the_rounds_of_a_run_are_abba_and_baab():
    device = FakeDevice()
    run(right, device=device, rounds=2)
    a, b = "torch.matmul", "right"
    legs = [x for x in device.order if x in (a, b)]
    assert legs[-8:] == [a, b, b, a, b, a, a, b]


def test_a_share_is_that_of_the_measured_ceiling():
    (control, row), _, (measured,) = run(right, device=FakeDevice(right=0.01))
    moved = 2 * (24 * 32 + 32 * 20 + 24 * 20)
    assert row.set_bytes == moved
    needed = max(SMALL.flops / measured.product_flops, moved / measured.copy_bytes)
    assert row.ceiling == pytest.approx(needed / 0.01)
    assert control.ceiling == pytest.approx(needed / 0.02)
    assert measured.copy_bytes == pytest.approx(2 * 2**16 / 1e-3)
    assert measured.product_flops == pytest.approx(2 * 32**3 / 0.02)
    # an unknown card of a known capability: its clocks are not invented
    assert (measured.peak_bytes, measured.peak_flops, row.roofline) == (None, None, None)


def test_kernels_share_the_buffers_and_one_control():
    rows, _, _ = run(right, allocating)
    assert [row.kernel for row in rows] == ["torch.matmul again", "right", "allocating"]
    assert rows[1].floor == rows[2].floor


def test_what_cannot_be_captured_is_timed_as_calls_on_both_sides_beside_a_control_alike():
    device = FakeDevice(uncapturable=("allocating",))
    rows, _, _ = run(right, allocating, device=device)
    control = "torch.matmul again"
    assert {(row.kernel, row.how.partition(" (")[0]) for row in rows} == {
        *((control, GRAPH), ("right", GRAPH), (control, EAGER), ("allocating", EAGER))
    }
    assert "operation not permitted when stream is capturing" in rows[-1].how
    assert device.replaying > 0
    device = FakeDevice(uncapturable=("matmul",))
    rows, _, _ = run(right, device=device)
    assert {row.how.partition(" (")[0] for row in rows} == {EAGER}


def one_wrong(a, b, out=None):
    c = torch.matmul(a, b, out=out)
    c[-1, -1] += 64
    return c


def unwritten(a, b, out=None):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype) if out is None else out
    c[:-1] = (a @ b)[:-1]
    return c


def wrong_on_the_timed_data(a, b, out=None):
    c = torch.matmul(a, b, out=out)
    if not torch.equal(a, a.round()):
        c[0, 0] = float("nan")
    return c


def wrong_in_a_later_buffer(a, b, out=None, seen=[]):  # noqa: B006 - the buffers that were met
    c = torch.matmul(a, b, out=out)
    seen += [x for x in (a.data_ptr(),) if x not in seen]
    c[0, 0] += 64 * (seen.index(a.data_ptr()) >= 5)
    return c


@pytest.mark.parametrize(
    ("function", "position"),
    [
        (one_wrong, "c[23, 19] of buffer 0: got "),
        (unwritten, "c[23, 0] of buffer 0: got nan, expected "),
        (wrong_on_the_timed_data, "c[0, 0] of buffer 0: got nan, expected a number"),
        (wrong_in_a_later_buffer, "c[0, 0] of buffer "),  # which one, the allocator decides
    ],
)
def test_what_is_wrong_is_not_timed(function, position):
    device = FakeDevice()
    rows, _, _ = run(function, right, device=device)
    bad = next(row for row in rows if row.kernel == function.__name__)
    assert (bad.verdict, bad.ratio, bad.seconds, bad.samples) == (WRONG, None, None, ())
    assert bad.wrong.startswith(f"{function.__name__} at some/thing 24x20x32 fp16, {position}")
    assert ("\n" in bad.wrong, "elements wrong" in bad.wrong) == (False, True)
    assert function.__name__ not in device.order
    assert next(row for row in rows if row.kernel == "right").verdict == NOISE  # the others are


def test_without_times_results_are_verified_only():
    device = FakeDevice()
    rows, _, ceilings = run(right, one_wrong, device=device, timed=False)
    assert [row.verdict for row in rows] == [RIGHT, WRONG]
    assert (device.order, ceilings) == ([], [])


def raising(a, b):
    raise NotImplementedError("not for me")


def other_format(a, b):
    return (a @ b).float()


REFUSED = [
    ([raising], {}, "calling raising at some/thing 24x20x32 fp16 raised NotImplementedError: not"),
    ([lambda a, b: (a @ b).T], {}, r"got a result of shape \(20, 24\), expected \(24, 20\)"),
    ([lambda a, b: None], {}, r"got NoneType, expected a tensor \(24, 20\)"),
    ([other_format], {}, "torch.matmul at .* got a result in fp16, expected fp32, the format of"),
    ([right], {"out": "bf16"}, "got a result in fp16, expected bf16, --out-dtype"),
    (
        [right, other_format],
        {"peer": right},
        r"other_format at .* expected fp16, the format of right",
    ),
    ([right], {"peer": one_wrong}, r"^their\.peer at some/thing .*c\[23, 19\] of buffer 0"),
]


@pytest.mark.parametrize(("functions", "options", "message"), REFUSED)
def test_what_cannot_be_compared_is_refused_in_one_line(functions, options, message):
    with pytest.raises(TargetError, match=message) as caught:
        run(*functions, **options)
    assert "\n" not in str(caught.value)


def test_batched_operands_have_three_axes():
    rows, _, _ = run(right, problems=[Problem(8, 8, 16, batch=3)])
    assert [row.batch for row in rows] == [3, 3]
    assert rows[1].problem == "3x8x8x16"


def test_operands_without_room_are_told_in_one_line(monkeypatch):
    def fails(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")

    monkeypatch.setattr(FakeDevice, "capture", fails)
    monkeypatch.setattr("tests.bench.fake_cuda_device.measure_small", lambda *_: None)
    with pytest.raises(TargetError, match="24x20x32 fp16: got CUDA out of memory, expected room"):
        run(right)


def test_rows_survive_json():
    rows, _, ceilings = run(right, one_wrong)
    for row in rows:
        assert decode(TimedRow, json.loads(json.dumps(encode(row))), "row") == row
    report = BenchReport({"device": "fake GPU"}, tuple(ceilings), tuple(rows))
    assert decode(BenchReport, json.loads(json.dumps(encode(report))), "bench") == report


# -- the peers of torch for a format, and its settings while it is timed ---------------------------
def int8_product(a, b):
    return a.int() @ b.int()


def test_int8_is_compared_with_what_torch_has_for_it():
    rows, _, _ = run(int8_product, formats=("int8",), problems=[Problem(32, 32, 32)])
    assert (rows[1].peer, rows[1].out_format, rows[1].verdict) == ("torch._int_mm", "int32", NOISE)


def fp8_product(a, b):
    return (a.float() @ b.float()).bfloat16()


def test_fp8_is_compared_with_scaled_mm_in_the_kernels_own_format(monkeypatch):
    asked = []

    def scaled(a, b, *, scale_a, scale_b, out_dtype, use_fast_accum):
        asked.append((b.stride(), float(scale_a), float(scale_b), out_dtype, use_fast_accum))
        return (a.float() @ b.float()).to(out_dtype)

    monkeypatch.setattr(torch, "_scaled_mm", scaled)
    rows, _, _ = run(fp8_product, formats=("fp8e4m3",), problems=[Problem(32, 32, 64)])
    assert (rows[1].peer, rows[1].out_format) == ("torch._scaled_mm", "bf16")
    assert asked[-1] == ((1, 64), 1.0, 1.0, torch.bfloat16, False)


def test_a_format_that_torch_has_no_product_of_can_have_another_peer(monkeypatch):
    def lacks(a, b, **options):
        raise RuntimeError("Multiplication of two Float8_e5m2 matrices is not supported")

    monkeypatch.setattr(torch, "_scaled_mm", lacks)
    where = {"formats": ("fp8e5m2",), "problems": [Problem(32, 32, 64)]}
    rows, _, (measured,) = run(fp8_product, peer=fp8_product, **where)
    assert (rows[1].verdict, rows[1].ceiling, measured.product_flops) == (NOISE, None, None)
    with pytest.raises(TargetError, match=r"calling torch\._scaled_mm at .* is not supported"):
        run(fp8_product, **where)


def test_torch_sums_in_fp32_while_it_is_timed_and_as_before_afterwards():
    seen = []

    def look(a, b):
        m = torch.backends.cuda.matmul
        seen.append((m.allow_fp16_reduced_precision_reduction, m.allow_tf32))
        return a @ b

    before = torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    assert before
    for fmt, tf32 in (("fp16", False), ("fp32", False), ("tf32", True)):
        run(look, formats=(fmt,))
        assert set(seen) == {(False, tf32)}
        seen.clear()
    assert torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction == before
    assert not torch.backends.cuda.matmul.allow_tf32

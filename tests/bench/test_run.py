"""A whole run on a device that is the CPU: verified, then timed, and what a row may say."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch
from fake_cuda_device import SMALL, FakeDevice, allocating, right, run

from gemmproof.bench import ceiling
from gemmproof.bench.problems import Problem
from gemmproof.bench.records import (
    CONTROL,
    EAGER,
    FASTER,
    GRAPH,
    NOISE,
    RIGHT,
    SLOWER,
    WRONG,
    BenchReport,
    TimedRow,
)
from gemmproof.target import TargetError


@pytest.fixture(autouse=True)
def _small_ceilings(monkeypatch):
    """The real ones take a GPU's time."""
    measure = ceiling.measure_ceiling
    monkeypatch.setattr(
        "gemmproof.bench.run.measure_ceiling",
        lambda device, fmt, beat: measure(device, fmt, beat, copied=2**16, sides=(16, 32)),
    )


@pytest.mark.parametrize(
    ("cost", "verdict", "ratio"), [(0.01, FASTER, 2.0), (0.02, NOISE, 1.0), (0.04, SLOWER, 0.5)]
)
def test_a_kernel_is_timed_beside_the_peer_and_the_peer_beside_itself(cost, verdict, ratio):
    device = FakeDevice(right=cost)
    (control, row), events, _ = run(right, device=device)
    assert (control.kernel, control.verdict) == ("torch.matmul again", CONTROL)
    assert (control.floor, control.ratio.median) == ((1.0, 1.0), 1.0)
    assert (row.kernel, row.peer, row.verdict) == ("right", "torch.matmul", verdict)
    assert row.ratio.median == pytest.approx(ratio)
    assert row.seconds == pytest.approx(cost)
    assert row.peer_seconds == pytest.approx(0.02)
    assert row.samples == pytest.approx((cost,) * 4)
    assert row.tflops == pytest.approx(SMALL.flops / cost / 1e12)
    assert row.how == GRAPH
    assert row.equal_bits
    assert row.sets * row.set_bytes > 2 * device.l2_bytes
    assert row.clocks["after"]["sm_clock_mhz"] == 1980.0
    assert [e["case"] for e in events if e["event"] == "case"] == [
        "the ceiling of fp16",
        "some/thing 24x20x32 fp16",
    ]
    assert [e["row"] for e in events if e["event"] == "timed"] == [control, row]


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
    # an unknown card of a known capability: its clocks are not made up
    assert (measured.peak_bytes, measured.peak_flops, row.roofline) == (None, None, None)


def test_kernels_share_the_buffers_and_one_control():
    rows, _, _ = run(right, allocating)
    assert [row.kernel for row in rows] == ["torch.matmul again", "right", "allocating"]
    assert rows[1].floor == rows[2].floor


def test_what_cannot_be_captured_is_timed_as_calls_on_both_sides_beside_a_control_alike():
    device = FakeDevice(uncapturable=("allocating",))
    rows, _, _ = run(right, allocating, device=device)
    hows = {(row.kernel, row.how.partition(" (")[0]) for row in rows}
    assert hows == {
        ("torch.matmul again", GRAPH),
        ("right", GRAPH),
        ("torch.matmul again", EAGER),
        ("allocating", EAGER),
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
    ("function", "place"),
    [
        (one_wrong, "c[23, 19] of buffer 0: got "),
        (unwritten, "c[23, 0] of buffer 0: got nan, expected "),
        (wrong_on_the_timed_data, "c[0, 0] of buffer 0: got nan, expected a number"),
        (wrong_in_a_later_buffer, "c[0, 0] of buffer "),  # which one, the allocator decides
    ],
)
def test_what_is_wrong_is_not_timed(function, place):
    device = FakeDevice()
    rows, _, _ = run(function, right, device=device)
    bad = next(row for row in rows if row.kernel == function.__name__)
    assert bad.verdict == WRONG
    assert bad.wrong.startswith(f"{function.__name__} at some/thing 24x20x32 fp16, {place}")
    assert bad.wrong.count("\n") == 0
    assert "elements wrong" in bad.wrong
    assert (bad.ratio, bad.seconds, bad.samples) == (None, None, ())
    assert function.__name__ not in device.order
    assert next(row for row in rows if row.kernel == "right").verdict == NOISE  # the others are


def test_without_times_results_are_verified_only():
    device = FakeDevice()
    rows, _, ceilings = run(right, one_wrong, device=device, timed=False)
    assert [row.verdict for row in rows] == [RIGHT, WRONG]
    assert (device.order, ceilings) == ([], [])


def test_a_wrong_peer_is_told_as_such():
    with pytest.raises(TargetError, match=r"^their\.peer at some/thing .*c\[23, 19\] of buffer 0"):
        run(right, peer=one_wrong)


def raising(a, b):
    raise NotImplementedError("not for me")


def wrong_shape(a, b):
    return (a @ b).T


def no_tensor(a, b):
    return None


def other_format(a, b):
    return (a @ b).float()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            raising,
            "calling raising at some/thing 24x20x32 fp16 raised NotImplementedError: not for me",
        ),
        (wrong_shape, r"got a result of shape \(20, 24\), expected \(24, 20\)"),
        (no_tensor, r"got NoneType, expected a tensor \(24, 20\)"),
        (other_format, "torch.matmul at .* got a result in fp16, expected fp32, the format of"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(function, message):
    with pytest.raises(TargetError, match=message) as caught:
        run(function)
    assert "\n" not in str(caught.value)


def test_results_have_the_format_that_was_asked_for():
    with pytest.raises(TargetError, match="got a result in fp16, expected bf16, --out-dtype"):
        run(right, out="bf16")
    with pytest.raises(TargetError, match=r"other_format at .* expected fp16, the format of right"):
        run(right, other_format, peer=right)


def test_batched_operands_have_three_axes():
    rows, _, _ = run(right, problems=[Problem(8, 8, 16, batch=3)])
    assert [row.batch for row in rows] == [3, 3]
    assert rows[1].problem == "3x8x8x16"


def test_operands_without_room_are_told_in_one_line(monkeypatch):
    def fails(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")

    monkeypatch.setattr(FakeDevice, "capture", fails)
    monkeypatch.setattr("gemmproof.bench.run.measure_ceiling", lambda *_: None)
    with pytest.raises(TargetError, match="24x20x32 fp16: got CUDA out of memory, expected room"):
        run(right)


def test_rows_survive_json():
    rows, _, ceilings = run(right, one_wrong)
    for row in rows:
        assert TimedRow.from_dict(json.loads(json.dumps(asdict(row)))) == row
    report = BenchReport({"device": "fake GPU"}, tuple(ceilings), tuple(rows))
    assert BenchReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report

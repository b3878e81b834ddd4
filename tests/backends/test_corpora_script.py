"""scripts/measure.py corpora, on the fake device: a kernel is judged by its declared terms."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scripts.command import run
from scripts.gpu import record, verdicts
from tests.backends.fake_gpu import FakeGpu, flip
from tests.witnesses.recorded.calls import bits_of, predict_call

from gemmproof.fake_device import DeviceRequest

RIGHT = [
    *("rows_in_two_launches", "batch_on_the_third_axis", "packed_bytes_interleaved"),
    *("gemm", "with_row_sums", "scaled_mm"),
]


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("kernel", "declared", "expected"),
    [
        *((kernel, "right", True) for kernel in RIGHT),
        ("k_tiles_rounded_down", "runs", True),
        ("k_tiles_rounded_down", "raises", False),
        ("loop_left_with_break", "raises", True),
        ("loop_left_with_break", "runs", False),
    ],
)
def test_a_kernel_is_as_stated(kernel, declared, expected, monkeypatch):
    monkeypatch.setattr(verdicts, "Gpu", FakeGpu)
    row = verdicts.launch_kernel(kernel, declared)
    assert row["expected"] == expected
    assert verdicts.describe_launched(row).startswith("ok " if expected else "BAD")


def test_a_wrong_kernel_is_not_as_a_right_one(monkeypatch):
    monkeypatch.setattr(verdicts, "Gpu", FakeGpu)
    (wrong,) = (m.kernel for m in verdicts.MUTANTS if m.name == "k_tiles_rounded_down")
    monkeypatch.setattr(verdicts, "KERNELS", [wrong])
    assert not verdicts.launch_kernel("k_tiles_rounded_down", "right")["expected"]


def test_tasks_can_be_sent_to_processes(monkeypatch):
    sent = []
    monkeypatch.setattr(
        verdicts, "run_each", lambda function, tasks, jobs: sent.extend(tasks) or []
    )
    monkeypatch.setattr(verdicts, "collect", lambda rows, describe, report: 0)
    verdicts.launch_corpora()
    assert pickle.loads(pickle.dumps(sent)) == sent
    right = [*verdicts.KERNELS, *verdicts.RIGHT]
    assert len(sent) == len(right) + len(verdicts.MUTANTS) + len(verdicts.SURVIVORS)
    assert len({kernel.name for kernel in right}) == len(right)


def test_a_device_that_gives_other_bits_is_not_as_stated(monkeypatch, texts):
    monkeypatch.setattr(verdicts, "Gpu", lambda: FakeGpu(lambda call, c, t: c + 1))
    row = verdicts.launch_kernel("rows_in_two_launches", "right")
    assert not row["expected"]
    case, _, message = row["found"][0].partition(": ")
    texts("the case of a launch whose bits are others", case)
    assert message.startswith("c[0, 0]")


def test_the_scripts_can_import_all_that_their_commands_need():
    from scripts import measure, pages

    assert {"ttir", "lane", "corpora"} <= set(measure.COMMANDS)
    assert {"strength", "versions", "schemas"} <= set(pages.COMMANDS)


def test_parameters_are_options(monkeypatch):
    given = []

    def command(page, size: int = 3, check: bool = False, out=None) -> int:
        given.append((str(page), size, check, out and str(out)))
        return size

    for args in (["p"], ["p", "--size", "5", "--check", "--out", "o"]):
        monkeypatch.setattr("sys.argv", ["script", "do", *args])
        run("A script.", {"do": command})
    assert given == [("p", 3, False, None), ("p", 5, True, "o")]


# -- the record of the registered kernels ----------------------------------------------------------
@pytest.fixture(autouse=True)
def restored_setting(monkeypatch):
    """Restore the setting that a recording changes for its process."""
    monkeypatch.setattr(DeviceRequest, "device", DeviceRequest.device)


@pytest.mark.parametrize("name", ["matmul-fp16", "bmm-bf16", "matmul_w4-fp16"])
def test_a_call_gives_the_bits_of_the_device(name, monkeypatch):
    monkeypatch.setattr(record, "Gpu", FakeGpu)
    row = record.launch_call(name)
    assert (row["free"], row["failed"]) == (None, None)
    expected = bits_of(predict_call(*record.find_calls()[name]).observation)
    assert np.array_equal(row["bits"], expected)
    monkeypatch.setattr(record, "Gpu", lambda: FakeGpu(lambda call, c, tensors: flip(c)))
    assert not np.array_equal(record.launch_call(name)["bits"], expected)


def test_a_call_whose_bits_are_the_devices_own_is_not_launched(monkeypatch, texts):
    monkeypatch.setattr(record, "Gpu", None)
    row = record.launch_call("matmul_fused_tiled-bf16")
    texts("why a call has bits of the device's own", row["free"])


def test_a_call_that_fails_is_told(monkeypatch):
    def fail(call, c, tensors):
        raise RuntimeError("no such device")

    monkeypatch.setattr(record, "Gpu", lambda: FakeGpu(fail))
    assert "no such device" in record.launch_call("matmul-fp16")["failed"]

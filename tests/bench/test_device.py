"""Calls of torch.cuda (events, graphs, streams) on fakes; clocks and peak figures."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from gemmproof.bench import clocks
from gemmproof.bench.clocks import CudaDevice, find_peaks, share_of
from gemmproof.bench.problems import Problem
from gemmproof.reference.formats import FORMATS


class FakeCuda:
    """A fake torch.cuda with its own clock: `log` is what happened, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.now = 0.0
        self.current = "default"
        cuda = self

        class Event:
            def __init__(self, enable_timing=False):
                assert enable_timing

            def record(self):
                self.at = cuda.now

            def synchronize(self):
                cuda.log.append("wait")

            def elapsed_time(self, other):
                return (other.at - self.at) * 1e3  # milliseconds

        class CUDAGraph:
            def replay(self):
                cuda.log.append("replay")
                cuda.now += 0.25

        self.Event, self.CUDAGraph = Event, CUDAGraph

    def synchronize(self):
        self.log.append("synchronize")

    def current_stream(self):
        return self.current

    def set_stream(self, stream):
        self.current = stream

    def Stream(self):
        return "side"

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextmanager
    def graph(self, graph):
        self.current = "capture"
        self.log.append("begin")
        yield  # as in torch: the stream is not restored if the body raises
        self.log.append("end")
        self.current = "default"

    def get_device_properties(self):
        return SimpleNamespace(major=9, minor=0, L2_cache_size=123, uuid="ab-cd")

    def get_device_name(self):
        return "NVIDIA Test"


@pytest.fixture
def cuda(monkeypatch) -> FakeCuda:
    fake = FakeCuda()
    names = [n for n in dir(fake) if not n.startswith("_") and n not in ("log", "now", "current")]
    for name in names:
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    return fake


def test_a_capture_is_replayed_and_the_events_time_it(cuda: FakeCuda) -> None:
    device = CudaDevice()
    assert (device.name, device.capability, device.l2_bytes) == ("NVIDIA Test", (9, 0), 123)
    run = device.capture(lambda: cuda.log.append(f"body on {cuda.current}"))
    assert cuda.log == ["synchronize", "begin", "body on capture", "end", "synchronize"]
    cuda.log.clear()
    assert device.time(run, 4) == 0.25
    assert cuda.log == ["replay"] * 4 + ["wait"]


def test_a_capture_that_fails_leaves_the_stream_as_it_was(cuda: FakeCuda) -> None:
    def body() -> None:
        raise RuntimeError("cannot be captured")

    with pytest.raises(RuntimeError, match="cannot be captured"):
        CudaDevice().capture(body)
    assert cuda.current == "default"


def test_calls_before_a_capture_run_on_a_stream_of_their_own(cuda: FakeCuda) -> None:
    CudaDevice().warm(lambda: cuda.log.append(cuda.current))
    assert cuda.log == ["synchronize", "side", "synchronize"]
    assert cuda.current == "default"


def test_clocks_are_read_under_load(cuda: FakeCuda) -> None:
    device = CudaDevice()
    run = device.capture(lambda: None)
    cuda.log.clear()
    reading = device.read_busy(lambda: {"at": list(cuda.log)}, run, 0.25)
    assert reading["at"] == ["replay", "wait", "replay"]
    assert cuda.log[-1] == "synchronize"


def smi(monkeypatch, answer: str, status: int = 0) -> list[list[str]]:
    asked: list[list[str]] = []

    def ask(command, **more):
        asked.append(command)
        return subprocess.CompletedProcess(command, status, answer, "")

    monkeypatch.setattr(clocks.subprocess, "run", ask)
    monkeypatch.setattr(clocks.shutil, "which", lambda name: "/bin/nvidia-smi")
    monkeypatch.setattr(clocks, "find_spec", lambda name: None)
    return asked


def test_nvidia_smi_is_asked_once_about_this_device(cuda, monkeypatch) -> None:
    asked = smi(monkeypatch, "1755, 61, 689.12\n")
    reading = clocks.read_clocks()
    assert reading == {
        "sm_clock_mhz": 1755.0,
        "temperature_c": 61.0,
        "power_w": 689.12,
        "source": "nvidia-smi",
    }
    (command,) = asked
    assert command[1:3] == ["-i", "GPU-ab-cd"]
    assert not any(word.startswith(("-lgc", "--lock", "-pm", "-pl")) for word in command)


def test_what_is_not_told_is_not_made_up(cuda, monkeypatch) -> None:
    smi(monkeypatch, "1755, [N/A], [N/A]\n")
    assert clocks.read_clocks() == {"sm_clock_mhz": 1755.0, "source": "nvidia-smi"}
    smi(monkeypatch, "[N/A], [N/A], [N/A]\n")
    assert clocks.read_clocks() == {"source": "not read"}
    smi(monkeypatch, "1755, 61, 689.12\n", status=9)
    assert clocks.read_clocks() == {"source": "not read"}
    monkeypatch.setattr(clocks.shutil, "which", lambda name: None)
    assert clocks.read_clocks() == {"source": "not read"}


def test_nvml_is_asked_first_where_its_bindings_are_installed(cuda, monkeypatch) -> None:
    smi(monkeypatch, "1, 2, 3\n")
    monkeypatch.setattr(clocks, "find_spec", lambda name: name == "pynvml")
    for name, value in (("clock_rate", 1755), ("temperature", 61), ("power_draw", 689120)):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    reading = clocks.read_clocks()
    assert (reading["source"], reading["power_w"]) == ("nvml", 689.12)

    def fails():
        raise RuntimeError("no permission")

    monkeypatch.setattr(torch.cuda, "temperature", fails)
    assert clocks.read_clocks()["source"] == "nvidia-smi"


H200 = SimpleNamespace(multi_processor_count=132)


def test_the_figures_of_an_h200_are_those_of_its_data_sheet() -> None:
    """4.8 TB/s, and 989 TFLOP/s at 1830 MHz (boost): from its memory and its highest clock."""
    bandwidth, flops = find_peaks("NVIDIA H200", (9, 0), H200, FORMATS["bf16"])
    assert bandwidth == 2 * 3201e6 * 6144 / 8
    assert flops == 132 * 4096 * 1980e6
    boosted = SimpleNamespace(multi_processor_count=132, clock_rate=1830000)
    assert find_peaks("NVIDIA H200", (9, 0), boosted, FORMATS["fp16"])[1] == pytest.approx(
        989.4e12, rel=1e-3
    )


@pytest.mark.parametrize(
    ("fmt", "factor"), [("fp8e4m3", 2), ("int8", 2), ("tf32", 0.5), ("fp32", 1 / 16)]
)
def test_rates_of_other_formats_follow_from_their_width(fmt: str, factor: float) -> None:
    rates = [find_peaks("NVIDIA H200", (9, 0), H200, FORMATS[name])[1] for name in (fmt, "fp16")]
    assert rates[0] == rates[1] * factor


def test_another_card_or_an_unknown_one_has_no_figures_made_up() -> None:
    assert find_peaks("NVIDIA H20", (9, 0), H200, FORMATS["fp16"]) == (None, None)
    assert find_peaks("NVIDIA X", (99, 0), H200, FORMATS["fp16"]) == (None, None)
    assert find_peaks("NVIDIA A100", (8, 0), H200, FORMATS["fp8e4m3"])[1] is None
    assert share_of(Problem(8, 8, 8), 384, 1.0, None, 1.0) is None


def test_the_roofline_is_the_slower_of_both_rates() -> None:
    square, row = Problem(64, 64, 64), Problem(1, 64, 64)
    assert share_of(square, 3 * 2 * 64**2, 2.0, 1e9, 2 * 64**3) == 0.5
    moved = 2 * (64 + 64 * 64 + 64)
    assert share_of(row, moved, 2.0, float(moved), 1e12) == 0.5

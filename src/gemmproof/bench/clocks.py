"""The clocks and the roofline of a GPU."""

from __future__ import annotations

import gc
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch

from gemmproof.bench.problems import Problem
from gemmproof.bench.record import Ceiling, Reading
from gemmproof.bench.statistics import Run
from gemmproof.reference.formats import Format
from gemmproof.reference.gpus import GPU, GPUS


# -- roofline ------------------------------------------------------------------------------------
def find_record(capability: tuple[int, int]) -> GPU | None:
    """Return the record of the GPUs of an NVIDIA compute capability, None if it is unknown."""
    return next((g for g in GPUS.values() if g.capability == capability and not g.is_amd), None)


def find_peaks(
    name: str, capability: tuple[int, int], figures: Any, fmt: Format
) -> tuple[float | None, float | None]:
    """Return the peak bytes/s and FLOP/s of a device by its figures, None for what is not known.

    Bytes: two transfers a clock of the memory over the width of its bus. FLOP: those of a
    multiprocessor and clock (reference/gpus.py) times the multiprocessors and the highest clock.
    Figures that torch does not report are those of the record, if the card is the record's own.
    """
    record = find_record(capability)
    if record is None:
        return None, None
    own = record if record.card in name else None
    memory_clock = getattr(figures, "memory_clock_rate", 0) or (own.memory_clock if own else 0)
    bus = getattr(figures, "memory_bus_width", 0) or (own.bus_width if own else 0)
    clock = getattr(figures, "clock_rate", 0) or (own.clock if own else 0)
    rate = record.count_flops(fmt.name, fmt.itemsize)
    flops = clock * 1e3 * rate * figures.multi_processor_count
    return 2 * memory_clock * 1e3 * bus / 8 or None, flops or None


def share_of(
    problem: Problem,
    moved: int,
    seconds: float,
    bytes_per_second: float | None,
    flops_per_second: float | None,
) -> float | None:
    """Return the shortest time that both rates allow, over the time taken; None if one is unknown.

    max(FLOP / rate, bytes / bandwidth), where the `moved` bytes of operands and result pass the
    memory once (Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009).
    """
    if bytes_per_second is None or flops_per_second is None:
        return None
    return max(problem.flops / flops_per_second, moved / bytes_per_second) / seconds


def share_of_ceiling(
    problem: Problem, moved: int, seconds: float, ceiling: Ceiling
) -> float | None:
    """Return the share of the rates that the GPU reached in the same run."""
    return share_of(problem, moved, seconds, ceiling.copy_bytes, ceiling.product_flops)


# -- clocks --------------------------------------------------------------------------------------
NOT_READ: Reading = {"source": "not read"}
_FIELDS = ("sm_clock_mhz", "temperature_c", "power_w")
_QUERY = "clocks.sm,temperature.gpu,power.draw"


def read_clocks() -> Reading:
    """Read the SM clock in MHz, the temperature in degrees Celsius, the power in watts, the source.

    Through NVML if its bindings are installed, else by one call of nvidia-smi; values that neither
    reports are omitted, and without any the source is "not read".
    """
    return _read_nvml() or _read_smi() or dict(NOT_READ)


def _read_nvml() -> Reading:
    if find_spec("pynvml") is None:
        return {}
    import torch

    try:
        values = (
            torch.cuda.clock_rate(),
            torch.cuda.temperature(),
            torch.cuda.power_draw() / 1e3,  # it gives milliwatts
        )
    except Exception:  # NVML fails for many reasons: no permission, no such query, another driver
        return {}
    return {**dict(zip(_FIELDS, map(float, values), strict=True)), "source": "nvml"}


def _read_smi() -> Reading:
    command = shutil.which("nvidia-smi")
    name = _label_device()
    if command is None or name is None:
        return {}
    arguments = [command, "-i", name, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(arguments, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if answer.returncode != 0:
        return {}
    readings = {}
    for field, text in zip(_FIELDS, answer.stdout.strip().split(","), strict=False):
        try:
            readings[field] = float(text)
        except ValueError:  # "[N/A]": this card does not report it
            continue
    return {**readings, "source": "nvidia-smi"} if readings else {}


def _label_device() -> str | None:
    """Return nvidia-smi's name of the current device, None if torch does not report it.

    Not its index: CUDA_VISIBLE_DEVICES gives other indices to torch than to nvidia-smi.
    """
    import torch

    uuid = getattr(torch.cuda.get_device_properties(), "uuid", None)
    return None if uuid is None else f"GPU-{str(uuid).removeprefix('GPU-')}"


# -- device --------------------------------------------------------------------------------------
Reader = Callable[[], Reading]


class CudaDevice:
    """The current CUDA device of torch.

    `name`, `where`, `l2_bytes`, `capability` and `figures` describe it; the tests have another
    object with the same names and methods, on the CPU.
    """

    where = "cuda"

    def __init__(self) -> None:
        self.figures: Any = torch.cuda.get_device_properties()
        self.name: str = torch.cuda.get_device_name()
        self.capability = (self.figures.major, self.figures.minor)
        self.l2_bytes = int(self.figures.L2_cache_size)

    def synchronize(self) -> None:
        """Wait for all launches; an illegal address is reported here."""
        torch.cuda.synchronize()

    def capture(self, body: Run) -> Run:
        """Return a run that replays what `body` launches, without the cost of the wrapper itself.

        `body` has run before, so that nothing is compiled or tuned within the capture. Raises
        whatever CUDA or the body raises if that cannot be captured.
        """
        torch.cuda.synchronize()
        stream = torch.cuda.current_stream()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                body()
        finally:
            # after a capture that fails torch leaves its own stream as the current one
            torch.cuda.set_stream(stream)
        torch.cuda.synchronize()

        def replay() -> None:
            graph.replay()

        return replay

    def warm(self, body: Run) -> None:
        """Run `body` on a separate stream, as a capture would, to initialize libraries."""
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            body()
        torch.cuda.synchronize()

    def time(self, run: Run, repeats: int) -> float:
        """Return the device seconds of one run, over `repeats` of them."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / repeats

    def read_busy(self, read: Reader, run: Run, seconds: float) -> Reading:
        """Return what `read` reports while runs of `seconds` are under way, after some of them.

        A GPU that is read when idle reports its idle state.
        """
        half = max(1, min(10_000, int(0.25 / max(seconds, 1e-6))))
        self.time(run, half)
        for _ in range(half):
            run()
        readings = read()
        torch.cuda.synchronize()
        return readings

    def release(self) -> None:
        """Free the memory of buffers and graphs that are no longer referenced."""
        gc.collect()
        torch.cuda.empty_cache()

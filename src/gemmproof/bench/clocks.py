"""Clocks, temperature and power of the GPU, read only: nothing is ever set."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from typing import Any

NOT_READ: dict[str, Any] = {"source": "not read"}
_FIELDS = ("sm_clock_mhz", "temperature_c", "power_w")
_QUERY = "clocks.sm,temperature.gpu,power.draw"


def read_clocks() -> dict[str, Any]:
    """The SM clock in MHz, the temperature in degrees Celsius, the power in watts, and the source.

    Through NVML where its bindings are installed, else by one call of nvidia-smi; what neither
    tells is left out, and without anything the source is "not read".
    """
    return _read_nvml() or _read_smi() or dict(NOT_READ)


def _read_nvml() -> dict[str, Any]:
    if find_spec("pynvml") is None:
        return {}
    import torch

    try:
        values = (
            torch.cuda.clock_rate(),
            torch.cuda.temperature(),
            torch.cuda.power_draw() / 1e3,  # it gives milliwatts
        )
    except Exception:  # NVML has many reasons: no permission, no such query, another driver
        return {}
    return {**dict(zip(_FIELDS, map(float, values), strict=True)), "source": "nvml"}


def _read_smi() -> dict[str, Any]:
    command = shutil.which("nvidia-smi")
    name = _name_device()
    if command is None or name is None:
        return {}
    words = [command, "-i", name, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if answer.returncode != 0:
        return {}
    told = {}
    for field, text in zip(_FIELDS, answer.stdout.strip().split(","), strict=False):
        try:
            told[field] = float(text)
        except ValueError:  # "[N/A]": this card does not tell
            continue
    return {**told, "source": "nvidia-smi"} if told else {}


def _name_device() -> str | None:
    """What nvidia-smi calls the current device, None where torch does not tell.

    Not its number: CUDA_VISIBLE_DEVICES gives other numbers to torch than to nvidia-smi.
    """
    import torch

    uuid = getattr(torch.cuda.get_device_properties(), "uuid", None)
    return None if uuid is None else f"GPU-{str(uuid).removeprefix('GPU-')}"

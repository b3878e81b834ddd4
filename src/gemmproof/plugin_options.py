"""The plugin's options: from the command line, else the ini file, else [tool.gemmproof]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from gemmproof.settings import EXAMPLES

if TYPE_CHECKING:
    from gemmproof.backends.cuda_device import Gpu
    from gemmproof.properties.cases.case import Case

DEFAULTS = {
    "gemm_max_examples": str(EXAMPLES),
    "gemm_seed": "0",
    "gemm_proof": "false",
    "gemm_time_limit": "30",
    "gemm_memory_limit": "8",
    "gemm_annotations": "auto",
}
DEVICES = ("cpu", "cuda")
SETTINGS = pytest.StashKey[dict[str, Any]]()


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a pytest run for each kernel; `device` is the GPU that launches, if one does.

    `kept` is where failing cases are kept: a folder, False for nowhere, None for the project's.
    A worker may take `time_limit` seconds and `memory_limit` GiB; with `in_process` there is none.
    """

    max_examples: int
    seed: int
    target: str | None
    case: Case | None
    drift: bool
    proof: bool
    premise: bool
    device: Gpu | None
    time_limit: int
    memory_limit: int
    in_process: bool
    annotations: str
    kept: str | bool | None = None


def add_options(parser: pytest.Parser) -> None:
    """Declare the options, and an ini line for each."""
    group = parser.getgroup("gemmproof", "Triton GEMM kernels")
    for name, metavar, text in (
        ("gemm-max-examples", "N", f"cases for each kernel and format (default {EXAMPLES})"),
        ("gemm-seed", "N", "seed that the cases are drawn from (default 0)"),
        ("gemm-target", "GPU", "predict this GPU's dot products (default exact IEEE)"),
        ("gemm-case", "JSON", "judge this case only"),
        ("gemm-device", "DEVICE", "cuda: launch what held on the GPU as well (default cpu)"),
        ("gemm-kept", "DIR", "where failing cases are kept (default .gemmproof)"),
        ("gemm-time-limit", "S", "counted seconds a call, or without a sign of life (default 30)"),
        ("gemm-memory-limit", "GIB", "GiB that a worker process may take (default 8)"),
        ("gemm-annotations", "HOW", "auto, github or none: annotate lines in GitHub's jobs (auto)"),
    ):
        group.addoption(f"--{name}", metavar=metavar, help=text)
        parser.addini(name.replace("-", "_"), text, default="")
    for name, text in (
        ("gemm-drift", "measure the accumulator and the drift of each kernel too, seconds each"),
        ("gemm-premise", "compile what --gemm-target predicts, and compare it with the prediction"),
        ("gemm-in-process", "run kernels in pytest's own process: one that crashes ends the run"),
    ):
        group.addoption(f"--{name}", action="store_true", default=None, help=text)
        parser.addini(name.replace("-", "_"), text, default="false")
    no_kept = {"dest": "gemm_kept", "action": "store_const", "const": "false"}
    group.addoption("--gemm-no-kept", **no_kept, help="keep no failing cases, and try none first")
    text = "first try to decide for every size what a solver can"
    for option, const in (("--gemm-proof", "true"), ("--gemm-no-proof", "false")):
        arguments = {"dest": "gemm_proof", "action": "store_const", "const": const}
        group.addoption(option, **arguments, help=text if const == "true" else "the opposite")
    parser.addini("gemm_proof", text, default="")


def read_options(config: pytest.Config) -> Options:
    """Return the options of a run. Raises pytest.UsageError, in one line."""
    return Options(
        max_examples=_read_integer(config, "gemm_max_examples", 1),
        seed=_read_integer(config, "gemm_seed", 0),
        target=_read_target(config),
        case=_read_case(config),
        drift=_read_flag(config, "gemm_drift"),
        proof=_read_truth("gemm_proof", _read_option(config, "gemm_proof")),
        premise=_read_premise(config),
        device=_find_device(config),
        time_limit=_read_integer(config, "gemm_time_limit", 1),
        memory_limit=_read_integer(config, "gemm_memory_limit", 1),
        in_process=_read_flag(config, "gemm_in_process"),
        annotations=_read_annotations(config),
        kept=_read_kept(config),
    )


def _read_option(config: pytest.Config, name: str) -> str:
    """Return the option as typed, else of the ini file, else of [tool.gemmproof], else ""."""
    typed = config.getoption(name)
    text = config.getini(name).strip() if typed is None else typed
    if text or typed is not None:
        return text
    setting = name.removeprefix("gemm_").replace("_", "-")
    return str(_read_settings(config).get(setting, DEFAULTS.get(name, "")))


def _read_settings(config: pytest.Config) -> dict[str, Any]:
    """Return [tool.gemmproof], read once, when an option first needs it."""
    if SETTINGS not in config.stash:
        from gemmproof.settings import find_settings

        try:
            config.stash[SETTINGS] = find_settings(config.rootpath)[1]
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[SETTINGS]


def _read_integer(config: pytest.Config, name: str, least: int) -> int:
    text = _read_option(config, name)
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) < 2**31):
        raise pytest.UsageError(f"{name}: got {text!r}, expected an integer from {least}")
    return int(text)


def _read_target(config: pytest.Config) -> str | None:
    text = _read_option(config, "gemm_target")
    if not text:
        return None
    from gemmproof.reference.gpus import GPUS

    if text not in GPUS:
        raise pytest.UsageError(f"gemm_target: got {text!r}, expected one of: {' '.join(GPUS)}")
    return text


def _read_annotations(config: pytest.Config) -> str:
    text = _read_option(config, "gemm_annotations")
    if text not in ("auto", "github", "none"):
        raise pytest.UsageError(f"gemm_annotations: got {text!r}, expected auto, github or none")
    return text


def _read_flag(config: pytest.Config, name: str) -> bool:
    return bool(config.getoption(name)) or _read_truth(name, config.getini(name))


def _read_premise(config: pytest.Config) -> bool:
    from gemmproof.reference.gpus import TARGETS

    asked, target = _read_flag(config, "gemm_premise"), _read_target(config)
    if asked and target not in TARGETS and _read_option(config, "gemm_device") != "cuda":
        expected = f"expected one that is predicted: {' '.join(TARGETS)}"
        raise pytest.UsageError(f"gemm_premise: got gemm_target {target or '(none)'}, {expected}")
    return asked


def _read_truth(name: str, text: str) -> bool:
    text = text.strip().lower()
    if text not in ("true", "1", "yes", "on", "false", "0", "no", "off", ""):
        raise pytest.UsageError(f"{name}: got {text!r}, expected true or false")
    return text in ("true", "1", "yes", "on")


def _read_kept(config: pytest.Config) -> str | bool | None:
    text = _read_option(config, "gemm_kept")
    return False if text.lower() == "false" else text or None


def _read_case(config: pytest.Config) -> Case | None:
    text = _read_option(config, "gemm_case")
    if not text and config.getoption("gemm_case") is None:
        return None
    from gemmproof.properties.cases.case import Case

    try:
        return Case.from_json(text)
    except ValueError as error:
        raise pytest.UsageError(f"--gemm-case: {error}") from None


def _find_device(config: pytest.Config) -> Gpu | None:
    # not from [tool.gemmproof], which is shared with machines that have no GPU
    typed = config.getoption("gemm_device")
    text = config.getini("gemm_device").strip() if typed is None else typed
    if text not in (*DEVICES, "") or (typed is not None and not text):
        raise pytest.UsageError(f"gemm_device: got {text!r}, expected cpu or cuda")
    if text != "cuda":
        return None
    from gemmproof.backends.cuda_device import find_gpu

    device = find_gpu()
    if device is None:
        raise pytest.UsageError("gemm_device: got 'cuda', but torch finds no GPU, expected one")
    return device

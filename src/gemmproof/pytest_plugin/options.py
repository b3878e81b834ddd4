"""The plugin's options: from the command line, else the ini file, else [tool.gemmproof]."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from gemmproof.commands import groups
from gemmproof.options import RENAMED, Option, flag, group, iter_options, make_record
from gemmproof.properties.cases.case import Case
from gemmproof.reference.gpus import TARGETS

if TYPE_CHECKING:
    from gemmproof.backends.cuda_device import Gpu

YES, NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """The options of a pytest run, each as `--gemm-NAME` and as a line of the ini file.

    `gpu` is the GPU that launches, if one does.
    """

    search: groups.SearchOptions = group(groups.SearchOptions())
    judge: groups.JudgeOptions = group(groups.JudgeOptions(proof=False))
    drift: bool = flag(
        "also measure the accumulator and the drift of each kernel (seconds per kernel)"
    )
    memory_only: bool = flag("judge everything except values, of every kernel")
    in_process: bool = flag("run kernels in the pytest process itself; a crash then ends the run")
    annotations: str = groups.annotations_option()
    worker: groups.WorkerOptions = group(groups.WorkerOptions())
    gpu: Gpu | None = None


def add_options(parser: pytest.Parser) -> None:
    """Declare the options, and an ini line for each."""
    group = parser.getgroup("gemmproof", "Triton GEMM kernels")
    for option in iter_options(PluginOptions):
        dest, text = {"dest": _dest(option)}, option.filled_help
        constant = {"action": "store_const", "const": "true"}
        value = {"metavar": option.metavar} if option.metavar else constant
        group.addoption(f"--gemm-{option.name}", **dest, **value, help=text)
        if option.negated:
            off = {"action": "store_const", "const": "false", "help": option.negated}
            group.addoption(f"--gemm-no-{option.name}", **dest, **off)
        parser.addini(_dest(option), text, default="")
    for old, new in _iter_renamed():
        group.addoption(f"--{old}", nargs="?", const="", help=argparse.SUPPRESS)
        parser.addini(old.replace("-", "_"), f"is now {new.replace('-', '_')}", default="")


def _dest(option: Option) -> str:
    return f"gemm_{option.name.replace('-', '_')}"


def _iter_renamed() -> Iterator[tuple[str, str]]:
    return ((f"gemm{old[1:]}", f"gemm{new[1:]}") for old, new in RENAMED.items())


def read_options(config: pytest.Config) -> PluginOptions:
    """Return the options of a run. Raises pytest.UsageError, in one line."""
    from gemmproof.settings import find_settings

    for old, new in _iter_renamed():
        dest = old.replace("-", "_")
        if config.getoption(dest) is not None:
            raise pytest.UsageError(f"got --{old}, which is now --{new}")
        if config.getini(dest):
            raise pytest.UsageError(f"got {dest}, which is now {new.replace('-', '_')}")
    try:
        settings = find_settings(config.rootpath)[1]
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    # [tool.gemmproof] is shared with machines that have no GPU
    settings = {name: value for name, value in settings.items() if name != "device"}
    texts = (
        (option, _find_text(config, settings, option)) for option in iter_options(PluginOptions)
    )
    values = {option.field: _read(option, text) for option, text in texts if text is not None}
    options: PluginOptions = make_record(PluginOptions, values)
    _require_judged(options)
    return replace(options, gpu=_find_gpu(options))


def _find_text(config: pytest.Config, settings: Mapping[str, Any], option: Option) -> str | None:
    """Return the option as typed, else of the ini file, else of the settings, else None."""
    typed: str | None = config.getoption(_dest(option))
    if typed is not None:
        return typed
    if text := config.getini(_dest(option)).strip():
        return str(text)
    return str(settings[option.name]) if option.name in settings else None


def _read(option: Option, text: str) -> Any:
    """Return the value of a text: of a flag true or false, and false of one that is negated."""
    word = text.strip().lower()
    if not option.metavar and word not in (*YES, *NO):
        raise pytest.UsageError(f"{_dest(option)}: got {text!r}, expected true or false")
    if not option.metavar or (option.negated and word == "false"):
        return word in YES
    try:
        return option.read(text)
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"{_dest(option)}: {error}") from None


def _require_judged(options: PluginOptions) -> None:
    """Refuse a case that is none, and a comparison with a model that no target has."""
    target, judge = options.search.gpu, options.judge
    try:
        _ = None if judge.case is None else Case.from_json(judge.case)
    except ValueError as error:
        raise pytest.UsageError(f"--gemm-case: {error}") from None
    if judge.check_model and target not in TARGETS and judge.device != "cuda":
        got = f"got gemm_target {target or '(none)'}"
        expected = f"expected one that is predicted: {' '.join(TARGETS)}"
        raise pytest.UsageError(f"gemm_check_model: {got}, {expected}")


def _find_gpu(options: PluginOptions) -> Gpu | None:
    if options.judge.device != "cuda":
        return None
    from gemmproof.backends.cuda_device import find_gpu

    gpu = find_gpu()
    if gpu is None:
        raise pytest.UsageError("gemm_device: got 'cuda', but torch finds no GPU, expected one")
    return gpu

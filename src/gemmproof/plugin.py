"""The pytest plugin: the hook by which a project names its kernels, the options, the items."""

from __future__ import annotations

import reprlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from gemmproof.bench.fixture import gemm_benchmark  # noqa: F401 - a fixture of the plugin
from gemmproof.plugin_options import Options, add_options, read_options

if TYPE_CHECKING:
    from gemmproof.backends.device import Gpu
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.kernel import KernelUnderTest
    from gemmproof.report.report import Report

# Nothing heavy is imported at the top: this module is loaded in every pytest run of all who have
# the package installed, whether or not the run has an item of ours.
ACCUMULATOR = "accumulator_as_declared"  # the property that --gemm-drift adds
SIMULATOR, CUDA = "simulator", "cuda"
NO_DEVICE = "left out: registered device_only, it is judged with --gemm-device cuda"
OPTIONS = pytest.StashKey[Options]()
LEFT_OUT = pytest.StashKey[dict[str, None]]()  # the names of kernels that only a GPU can judge


@dataclass(frozen=True, slots=True)
class GemmItem:
    """One kernel, one format of its contract, one property, on the simulator or on the GPU."""

    kernel: KernelUnderTest
    format: str
    property: str
    backend: str = SIMULATOR

    def __str__(self) -> str:
        name = f"{self.kernel.name}-{self.format}-{self.property}"
        return name if self.backend == SIMULATOR else f"{name}-on-{self.backend}"


class Hooks:
    """Hook specifications; pytest takes them as an object."""

    @pytest.hookspec
    def pytest_gemm_kernels(self) -> list[KernelUnderTest]:  # type: ignore[empty-body]
        """Return the project's kernels, a list of gemmproof.KernelUnderTest."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    # A wrong option is refused before any test is imported or run.
    config.stash[OPTIONS] = options = read_options(config)
    config.stash[LEFT_OUT] = {}
    if options.device is not None:
        from gemmproof.fake_device import Wanted

        Wanted.device = True
    config.addinivalue_line("markers", "gemm: an item of gemmproof: one kernel, format, property")


def pytest_report_header(config: pytest.Config) -> str | None:
    device = config.stash[OPTIONS].device
    return None if device is None else f"gemmproof: launches on the {_describe(device)}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "gemm_item" in metafunc.fixturenames:
        options = metafunc.config.stash[OPTIONS]
        items: list[Any] = []
        for kernel in _kernels(metafunc):
            if kernel.device_only and options.device is None:
                metafunc.config.stash[LEFT_OUT][kernel.name] = None
                mark = pytest.mark.skip(reason=NO_DEVICE)
                items.append(pytest.param(None, id=kernel.name, marks=mark))
                continue
            for format_ in kernel.contract.formats:
                items += _list_items(kernel, format_, options)
        metafunc.parametrize("gemm_item", items, ids=str)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    return [f"gemmproof: {name} {NO_DEVICE}" for name in config.stash[LEFT_OUT]]


@pytest.fixture(scope="session")
def gemm_reports() -> dict[Any, Report]:
    """The reports made so far: all properties of a kernel and format are judged together."""
    return {}


@pytest.fixture(scope="session")
def gemm_options(pytestconfig: pytest.Config) -> Options:
    """The options of this run."""
    return pytestconfig.stash[OPTIONS]


@pytest.fixture
def gemm_report(
    gemm_item: GemmItem, gemm_reports: dict[Any, Report], gemm_options: Options
) -> Report:
    """The report on the item's kernel and format."""
    from gemmproof import check

    kernel, name = gemm_item.kernel, gemm_item.format
    if gemm_item.property == ACCUMULATOR:
        return _measure(kernel, name, gemm_options.target)
    # Kernels of two folders may share their name.
    key = (kernel.name, id(kernel.launch), kernel.contract, name)
    device = gemm_options.device
    if device is not None and (broke := _find_cuda_error(gemm_reports)) not in (None, key):
        if gemm_item.backend == CUDA:
            by = f"a CUDA error of {broke[0]} at {broke[-1]}"
            why = "left the device unusable in this process; run the item alone"
            pytest.fail(f"{gemm_item.property}: not run: {by} {why}", pytrace=False)
        device = None
    if key not in gemm_reports:
        try:
            gemm_reports[key] = check(
                replace(kernel, contract=replace(kernel.contract, formats=(name,))),
                max_examples=gemm_options.max_examples,
                seed=gemm_options.seed,
                target=gemm_options.target,
                case=gemm_options.case,
                proof=gemm_options.proof,
                launch=device is not None,
                device=device,
            )
        except ValueError as error:  # this kernel does not take the case: check says why
            pytest.fail(str(error), pytrace=False)
    return gemm_reports[key]


@pytest.fixture
def gemm_reproduce(request: pytest.FixtureRequest, gemm_item: GemmItem) -> Callable[[Case], str]:
    """The command that judges one case by this item."""
    words = ["pytest", request.node.nodeid]
    for name in ("target", "device"):
        typed = request.config.getoption(f"gemm_{name}")
        words += [f"--gemm-{name}", typed] if typed else []
    if gemm_item.property == ACCUMULATOR:  # measured on sizes of its own
        return lambda case: shlex.join([*words, "--gemm-drift"])
    return lambda case: shlex.join([*words, "--gemm-case", case.to_json()])


def _kernels(metafunc: pytest.Metafunc) -> list[KernelUnderTest]:
    """The kernels that the conftest.py files above a test register; anything else is refused."""
    from gemmproof.fake_device import fake_device
    from gemmproof.properties.kernel import KernelUnderTest
    from gemmproof.target import line_of

    # ihook: a conftest.py applies to its own folder only, whatever others were loaded before.
    try:
        with fake_device():
            answers = metafunc.definition.ihook.pytest_gemm_kernels()
    except Exception as error:
        where = line_of(error) or "pytest_gemm_kernels"
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise _make_refusal(f"{where}: pytest_gemm_kernels() raised {what}") from None
    kernels: list[KernelUnderTest] = []
    for answer in answers:
        listed = isinstance(answer, (list, tuple))
        wrong = [k for k in answer if not isinstance(k, KernelUnderTest)] if listed else [answer]
        if wrong:
            got = f"pytest_gemm_kernels: got {_short(wrong[0])}"
            raise _make_refusal(f"{got}, expected a list of KernelUnderTest")
        kernels += answer
    names = [kernel.name for kernel in kernels]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        got = f"pytest_gemm_kernels: got two kernels named {twice[0]!r}"
        raise _make_refusal(f"{got}, expected different names")
    if not kernels:
        raise _make_refusal(
            "pytest_gemm_kernels: got no kernels, expected at least one from a conftest.py"
        )
    return kernels


def _make_refusal(message: str) -> Exception:
    """The error for which pytest prints the message alone, in one line, and fails."""
    return pytest.Collector.CollectError(" ".join(message.split()))


def _short(value: object) -> str:
    # a hook may return anything: its repr may be long, or raise
    short = reprlib.Repr()
    short.maxother = 100
    return short.repr(value)


def _list_items(kernel: KernelUnderTest, format_: str, options: Options) -> Iterator[GemmItem]:
    """An item for each property that this kernel must have in a format."""
    from gemmproof.properties.table import list_required
    from gemmproof.reference.formats import FLOAT_OPERANDS

    one = replace(kernel, contract=replace(kernel.contract, formats=(format_,)))
    for judged in list_required(one):
        yield GemmItem(kernel, format_, judged.name)
    for judged in list_required(one, launched=True) if options.device is not None else ():
        yield GemmItem(kernel, format_, judged.name, CUDA)
    if options.drift and format_ in FLOAT_OPERANDS and _is_measurable(kernel):
        yield GemmItem(kernel, format_, ACCUMULATOR)


def _find_cuda_error(reports: dict[Any, Report]) -> Any:
    """The key of the report on the kernel that broke the device; None while it works."""
    return next(
        (k for k, r in reports.items() if any(f.fault == "cuda_error" for f in r.findings)), None
    )


def _describe(device: Gpu) -> str:
    """Which device launches, and the versions that its bits depend on, in a line."""
    from gemmproof.backends.predict import find_target
    from gemmproof.report.report import versions

    made = versions()
    facts = {k: v for k, v in device.facts.items() if k != "device" and v}
    facts |= {name: made[name] for name in ("torch", "triton") if name in made}
    target = find_target(device.capability) or "no model"
    return f"{device.name} ({', '.join([target, *(f'{k} {v}' for k, v in facts.items())])})"


def _measure(kernel: KernelUnderTest, format_: str, target: str | None) -> Report:
    """The report on the accumulator of a kernel, simulated for `target` or sm_90."""
    from gemmproof.engine.drift import drift_of
    from gemmproof.reference.accumulator.probes import Unprobed
    from gemmproof.reference.gpus import DEFAULT, UNMODELLED
    from gemmproof.reference.simulator import SimulatorError

    if target in UNMODELLED:
        pytest.skip(f"{target} has no model of its matrix cores")
    try:
        return drift_of(kernel, format_, target=target or DEFAULT)
    except (SimulatorError, Unprobed) as error:
        pytest.fail(f"{kernel.name} at {format_}: {error}", pytrace=False)


def _is_measurable(kernel: KernelUnderTest) -> bool:
    """Whether the contract admits the operands that the drift is measured on."""
    contract = kernel.contract
    sides = ({"M": 128, "N": 64, "K": K} for K in (512, 2048, 4096))  # those of engine/drift.py
    plain = kernel.spec is None and "row" in contract.layout_names and not kernel.device_only
    return plain and all(map(contract.admits, sides))

"""The pytest plugin: fixtures, parametrisation, and annotations of failures."""

from __future__ import annotations

import builtins
import contextlib
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from gemmproof.bench.fixture import gemm_benchmark  # noqa: F401 - a fixture of the plugin
from gemmproof.pytest_plugin.annotations import Annotations
from gemmproof.pytest_plugin.options import PluginOptions, add_options, read_options
from gemmproof.pytest_plugin.reports import Reports, Subject, choose_judge
from gemmproof.report.github import is_wanted

if TYPE_CHECKING:
    from gemmproof.backends.cuda_device import Gpu
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.kernel import KernelUnderTest
    from gemmproof.report.record import Report


# -- plugin --------------------------------------------------------------------------------------
# Nothing heavy is imported at the top: this module is loaded in every pytest run where the
# package is installed, even if the run has no item of ours.
CASES = "cases"  # stands for every property, over cases that Hypothesis draws
ACCUMULATOR = "accumulator_as_declared"  # the property that --gemm-drift adds
SIMULATOR, CUDA = "simulator", "cuda"
NO_DEVICE = "left out: registered as device_only, checked only with --gemm-device cuda"
OPTIONS = pytest.StashKey[PluginOptions]()
LEFT_OUT = pytest.StashKey[dict[str, None]]()  # the names of kernels that only a GPU can judge


@dataclass(frozen=True, slots=True)
class GemmItem:
    """One kernel, one format of its contract, one property, on the simulator or another backend.

    `conftest` is the file that registers the kernel, None if an object does.
    """

    kernel: KernelUnderTest
    format: str
    property: str
    backend: str = SIMULATOR
    conftest: str | None = None

    @builtins.property  # a field of that name hides it
    def is_drift(self) -> bool:
        """True if it measures drift, which is judged separately."""
        return self.property == ACCUMULATOR

    @builtins.property
    def subject(self) -> Subject:
        """The key of all items that are judged together, in every process."""
        return (self.conftest, self.kernel.name, self.format, self.is_drift)

    def __str__(self) -> str:
        name = f"{self.kernel.name}-{self.format}-{self.property}"
        return f"{name}-on-{self.backend}" if self.backend == CUDA else name


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
    if options.gpu is not None:
        from gemmproof.fake_device import DeviceRequest

        DeviceRequest.device = True
    if is_wanted(options.annotations):
        config.pluginmanager.register(Annotations(), "gemmproof annotations")
    config.addinivalue_line(
        "markers", "gemm: a gemmproof item, which checks one property of one kernel in one format"
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    device = config.stash[OPTIONS].gpu
    return None if device is None else f"gemmproof: launches on the {_describe_gpu(device)}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "gemm_item" in metafunc.fixturenames:
        options = metafunc.config.stash[OPTIONS]
        items: list[Any] = []
        for kernel, conftest in _list_kernels(metafunc.definition):
            if kernel.device_only and options.gpu is None:
                metafunc.config.stash[LEFT_OUT][kernel.name] = None
                mark = pytest.mark.skip(reason=NO_DEVICE)
                items.append(pytest.param(None, id=kernel.name, marks=mark))
                continue
            for format_ in kernel.contract.formats:
                items += _list_items(kernel, format_, options, conftest)
        metafunc.parametrize("gemm_item", items, ids=str)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: object
) -> list[pytest.Item] | None:
    """Make an item for each kernel and format of the suite's Hypothesis test."""
    suite = sys.modules.get("gemmproof.suite")
    if suite is None or obj is not suite.test_gemm_cases:
        return None
    from gemmproof.pytest_plugin.cases import make_item

    options = collector.config.stash[OPTIONS]
    items: list[pytest.Item] = []
    for kernel, conftest in _list_kernels(collector):
        if kernel.device_only:  # the simulator, which judges these cases, cannot run it
            collector.config.stash[LEFT_OUT][kernel.name] = None
            continue
        for format_ in kernel.contract.formats:
            item = GemmItem(kernel, format_, CASES, conftest=conftest)
            items.append(make_item(collector, name, item, options))
    return items


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "gemmproof.pytest_plugin.cases" in sys.modules:
        from gemmproof.pytest_plugin.cases import CasesItem, keep_storage_away

        if any(isinstance(item, CasesItem) for item in items):
            keep_storage_away(config)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    return [f"gemmproof: {name} {NO_DEVICE}" for name in config.stash[LEFT_OUT]]


@pytest.fixture(scope="session")
def gemm_options(pytestconfig: pytest.Config) -> PluginOptions:
    """Return the options of this run."""
    return pytestconfig.stash[OPTIONS]


@pytest.fixture(scope="session")
def gemm_workers(gemm_options: PluginOptions) -> Iterator[Callable[[], None]]:
    """Yield a function that starts what workers are forked from, if it is not yet started."""
    with contextlib.ExitStack() as closes:

        @cache
        def start() -> None:  # when the first kernel is judged, not in a process that judges none
            from gemmproof.worker.supervisor import preload

            closes.enter_context(preload(limits=gemm_options.worker.limits))

        yield start


@pytest.fixture(scope="session")
def gemm_reports(
    request: pytest.FixtureRequest, gemm_options: PluginOptions, gemm_workers: Callable[[], None]
) -> Reports:
    """Return the reports of this run: all properties of a kernel and format are judged together."""
    run = getattr(request.config, "workerinput", None)  # of pytest-xdist
    judge = choose_judge(gemm_options, gemm_workers)
    if run is None:
        return Reports(judge)
    # the folders of all processes are in one folder of the run
    base = request.getfixturevalue("tmp_path_factory").getbasetemp().parent
    folder = base / f"gemmproof-{run['testrunuid']}"
    folder.mkdir(exist_ok=True)
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    items = [call.params.get("gemm_item") for call in calls if call is not None]
    each = {i.subject: i for i in reversed(items) if i is not None and i.conftest is not None}
    return Reports(judge, folder, list(reversed(each.values())))


@pytest.fixture
def gemm_report(gemm_item: GemmItem, gemm_reports: Reports, gemm_options: PluginOptions) -> Report:
    """Return the report on the item's kernel and format."""
    from gemmproof.reference.gpus import UNMODELLED

    if gemm_item.is_drift and gemm_options.search.gpu in UNMODELLED:
        pytest.skip(f"{gemm_options.search.gpu} has no model of its matrix cores")
    return gemm_reports.find(gemm_item)


@pytest.fixture
def gemm_reproduce(request: pytest.FixtureRequest, gemm_item: GemmItem) -> Callable[[Case], str]:
    """Return the command that judges one case by this item."""
    from gemmproof.spelling import write_command

    argv = ["pytest", request.node.nodeid]
    for name in ("target", "device"):
        typed = request.config.getoption(f"gemm_{name}")
        argv += [f"--gemm-{name}", typed] if typed else []
    argv += ["--gemm-memory-only"] * (request.config.getoption("gemm_memory_only") == "true")
    if gemm_item.property == ACCUMULATOR:  # measured at separate sizes
        return lambda case: write_command([*argv, "--gemm-drift"])
    return lambda case: write_command([*argv, "--gemm-case", case.to_json()])


def _list_kernels(node: pytest.Item | pytest.Collector) -> list[tuple[KernelUnderTest, str | None]]:
    """Return the kernels that the conftest.py files above a node register, each with its file.

    Anything else is refused.
    """
    from gemmproof.fake_device import fake_device
    from gemmproof.properties.kernel import KernelUnderTest

    # ihook: a conftest.py applies to its own folder only, even if others were loaded before.
    hook = node.ihook.pytest_gemm_kernels
    kernels: list[tuple[KernelUnderTest, str | None]] = []
    for registers in reversed(hook.get_hookimpls()):
        with fake_device():
            answer = _ask(registers.function)
        if answer is None:
            continue
        listed = isinstance(answer, (list, tuple))
        wrong = [k for k in answer if not isinstance(k, KernelUnderTest)] if listed else [answer]
        if wrong:
            got = f"pytest_gemm_kernels: got {_short(wrong[0])}"
            raise _make_refusal(f"{got}, expected a list of KernelUnderTest")
        conftest = getattr(registers.plugin, "__file__", None)
        memory_only = node.config.stash[OPTIONS].memory_only
        narrowed = (replace(k, memory_only=True) if memory_only else k for k in answer)
        kernels += ((kernel, conftest) for kernel in narrowed)
    _require_properties(kernel for kernel, _ in kernels)
    names = [kernel.name for kernel, _ in kernels]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        got = f"pytest_gemm_kernels: got two kernels named {twice[0]!r}"
        raise _make_refusal(f"{got}, expected different names")
    if not kernels:
        raise _make_refusal(
            "pytest_gemm_kernels: got no kernels, expected at least one from a conftest.py"
        )
    return kernels


def _require_properties(kernels: Iterable[KernelUnderTest]) -> None:
    """Refuse a contract that expects an unknown property to fail."""
    for kernel in kernels:
        if kernel.contract.expected:
            from gemmproof.engine.sections import require_properties

            try:
                require_properties(kernel)
            except ValueError as error:
                raise _make_refusal(f"pytest_gemm_kernels: {kernel.name}: {error}") from None


def _ask(hook: Callable[[], Any]) -> Any:
    from gemmproof.reference.provenance import format_error
    from gemmproof.target import line_of

    try:
        return hook()
    except Exception as error:
        raised = f"pytest_gemm_kernels() raised {format_error(error)}"
        raise _make_refusal(f"{line_of(error) or 'pytest_gemm_kernels'}: {raised}") from None


def _make_refusal(message: str) -> Exception:
    """Return the error for which pytest prints only the message, in one line, and fails."""
    return pytest.Collector.CollectError(" ".join(message.split()))


def _short(value: object) -> str:
    # a hook may return anything: its repr may be long, or raise
    short = reprlib.Repr()
    short.maxother = 100
    return short.repr(value)


def _list_items(
    kernel: KernelUnderTest, format_: str, options: PluginOptions, conftest: str | None
) -> Iterator[GemmItem]:
    """Yield an item for each property that this kernel must have in a format."""
    from gemmproof.properties.contract import COMPILER
    from gemmproof.properties.property_table import list_compiled, list_required

    narrowed = replace(kernel, contract=replace(kernel.contract, formats=(format_,)))
    for judged in list_required(narrowed):
        yield GemmItem(kernel, format_, judged.name, conftest=conftest)
    for judged in list_required(narrowed, launched=True) if options.gpu is not None else ():
        yield GemmItem(kernel, format_, judged.name, CUDA, conftest)
    for judged in list_compiled(narrowed):
        yield GemmItem(kernel, format_, judged.name, COMPILER, conftest)
    if options.drift:
        from gemmproof.drift.run import explain_unmeasurable

        if explain_unmeasurable(kernel, format_) is None:
            yield GemmItem(kernel, format_, ACCUMULATOR, conftest=conftest)


def _describe_gpu(device: Gpu) -> str:
    """Describe the device that launches, and the versions that its bits depend on, in a line."""
    from gemmproof.backends.predict import find_target
    from gemmproof.report.record import versions

    installed = versions()
    facts = {k: v for k, v in device.facts.items() if k != "device" and v}
    facts |= {name: installed[name] for name in ("torch", "triton") if name in installed}
    target = find_target(device.capability) or "no model"
    return f"{device.name} ({', '.join([target, *(f'{k} {v}' for k, v in facts.items())])})"

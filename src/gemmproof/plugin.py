"""The pytest plugin: the hook by which a project names its kernels, the options, the items."""

from __future__ import annotations

import reprlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from gemmproof.bench.fixture import gemm_benchmark  # noqa: F401 - a fixture of the plugin

if TYPE_CHECKING:
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.kernel import KernelUnderTest
    from gemmproof.report.report import Report

# Nothing heavy is imported at the top: this module is loaded in every pytest run of all who have
# the package installed, whether or not the run has an item of ours.
ACCUMULATOR = "accumulator_as_declared"  # the property that --gemm-drift adds


@dataclass(frozen=True, slots=True)
class GemmItem:
    """One kernel, one format of its contract, one property."""

    kernel: KernelUnderTest
    format: str
    property: str

    def __str__(self) -> str:
        return f"{self.kernel.name}-{self.format}-{self.property}"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the plugin: typed, or else of the ini file, or else of [tool.gemmproof]."""

    max_examples: int
    seed: int
    target: str | None
    case: Case | None
    drift: bool
    proof: bool


DEFAULTS = {"gemm_max_examples": "100", "gemm_seed": "0", "gemm_proof": "false"}
OPTIONS = pytest.StashKey[Options]()
SETTINGS = pytest.StashKey[dict[str, Any]]()


class Hooks:
    """Hook specifications; pytest takes them as an object."""

    @pytest.hookspec
    def pytest_gemm_kernels(self) -> list[KernelUnderTest]:  # type: ignore[empty-body]
        """Return the project's kernels, a list of gemmproof.KernelUnderTest."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gemmproof", "Triton GEMM kernels")
    for name, metavar, text in (
        ("gemm-max-examples", "N", "cases for each kernel and format (default 100)"),
        ("gemm-seed", "N", "seed that the cases are drawn from (default 0)"),
        ("gemm-target", "GPU", "predict this GPU's dot products (default exact IEEE)"),
        ("gemm-case", "JSON", "judge this case only"),
    ):
        group.addoption(f"--{name}", metavar=metavar, help=text)
        parser.addini(name.replace("-", "_"), text, default="")
    text = "measure the accumulator and the drift of each kernel too, some seconds each"
    group.addoption("--gemm-drift", action="store_true", default=None, help=text)
    parser.addini("gemm_drift", text, default="false")
    text = "first try to decide for every size what a solver can"
    for option, const in (("--gemm-proof", "true"), ("--gemm-no-proof", "false")):
        words = {"dest": "gemm_proof", "action": "store_const", "const": const}
        group.addoption(option, **words, help=text if const == "true" else "the opposite")
    parser.addini("gemm_proof", text, default="")


def pytest_configure(config: pytest.Config) -> None:
    # A wrong option is refused before any test is imported or run.
    config.stash[OPTIONS] = Options(
        max_examples=_read_integer(config, "gemm_max_examples", 1),
        seed=_read_integer(config, "gemm_seed", 0),
        target=_read_target(config),
        case=_read_case(config),
        drift=_read_drift(config),
        proof=_read_truth("gemm_proof", _read_option(config, "gemm_proof")),
    )
    config.addinivalue_line("markers", "gemm: an item of gemmproof: one kernel, format, property")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "gemm_item" in metafunc.fixturenames:
        items = [
            GemmItem(kernel, format_, name)
            for kernel in _kernels(metafunc)
            for format_ in kernel.contract.formats
            for name in _list_properties(kernel, format_, metafunc.config.stash[OPTIONS].drift)
        ]
        metafunc.parametrize("gemm_item", items, ids=str)


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
    if key not in gemm_reports:
        try:
            gemm_reports[key] = check(
                replace(kernel, contract=replace(kernel.contract, formats=(name,))),
                max_examples=gemm_options.max_examples,
                seed=gemm_options.seed,
                target=gemm_options.target,
                case=gemm_options.case,
                proof=gemm_options.proof,
            )
        except ValueError as error:  # this kernel does not take the case: check says why
            pytest.fail(str(error), pytrace=False)
    return gemm_reports[key]


@pytest.fixture
def gemm_reproduce(request: pytest.FixtureRequest, gemm_item: GemmItem) -> Callable[[Case], str]:
    """The command that judges one case by this item."""
    typed = request.config.getoption("gemm_target")
    words = ["pytest", request.node.nodeid, *(["--gemm-target", typed] if typed else [])]
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


def _list_properties(kernel: KernelUnderTest, format_: str, drift: bool) -> list[str]:
    """The properties that this kernel must have in a format."""
    from gemmproof.properties.table import list_required
    from gemmproof.reference.formats import FLOAT_OPERANDS

    one = replace(kernel, contract=replace(kernel.contract, formats=(format_,)))
    measured = drift and format_ in FLOAT_OPERANDS and _is_measurable(kernel)
    return [judged.name for judged in list_required(one)] + [ACCUMULATOR] * measured


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
    plain = kernel.spec is None and "row" in contract.layout_names
    return plain and all(map(contract.admits, sides))


def _read_option(config: pytest.Config, name: str) -> str:
    """The option as typed, else of the ini file, else of [tool.gemmproof]; "" without any."""
    typed = config.getoption(name)
    text = config.getini(name).strip() if typed is None else typed
    if text or typed is not None:
        return text
    setting = name.removeprefix("gemm_").replace("_", "-")
    return str(_read_settings(config).get(setting, DEFAULTS.get(name, "")))


def _read_settings(config: pytest.Config) -> dict[str, Any]:
    """[tool.gemmproof], looked for once, when an option first needs it."""
    if SETTINGS not in config.stash:
        from gemmproof.settings import find_settings

        try:
            config.stash[SETTINGS] = find_settings(config.rootpath)[1]
        except ValueError as mistake:
            raise pytest.UsageError(str(mistake)) from None
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


def _read_drift(config: pytest.Config) -> bool:
    if config.getoption("gemm_drift"):
        return True
    return _read_truth("gemm_drift", config.getini("gemm_drift"))


def _read_truth(name: str, text: str) -> bool:
    text = text.strip().lower()
    if text not in ("true", "1", "yes", "on", "false", "0", "no", "off", ""):
        raise pytest.UsageError(f"{name}: got {text!r}, expected true or false")
    return text in ("true", "1", "yes", "on")


def _read_case(config: pytest.Config) -> Case | None:
    text = _read_option(config, "gemm_case")
    if not text and config.getoption("gemm_case") is None:
        return None
    from gemmproof.properties.cases.case import Case

    try:
        return Case.from_json(text)
    except ValueError as error:
        raise pytest.UsageError(f"--gemm-case: {error}") from None

"""The pytest plugin: the hook by which a project names its kernels, the options, the items."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gemmproof.properties.case import Case
    from gemmproof.properties.contract import KernelUnderTest
    from gemmproof.results import Report

# Nothing of ours is imported at the top: this module is loaded in every pytest run of everybody
# who has the package installed, whether or not the run has an item of ours.


@dataclass(frozen=True, slots=True)
class GemmItem:
    """One kernel, one format of its contract, one property."""

    kernel: KernelUnderTest
    format: str
    property: str

    def __str__(self) -> str:
        return f"{self.kernel.name}-{self.format}-{self.property}"


class Hooks:
    """Hook specifications; pytest takes them as an object."""

    @pytest.hookspec
    def pytest_gemm_kernels(self) -> list[KernelUnderTest]:  # type: ignore[empty-body]
        """Return the project's kernels, a list of gemmproof.KernelUnderTest."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gemmproof", "Triton GEMM kernels")
    for name, default, text in (
        ("gemm-max-examples", "100", "cases for each kernel and format"),
        ("gemm-seed", "0", "seed that the cases are drawn from"),
    ):
        group.addoption(f"--{name}", metavar="N", help=f"{text} (default {default})")
        parser.addini(name.replace("-", "_"), text, default=default)
    group.addoption("--gemm-case", metavar="JSON", help="judge this case only")


def pytest_configure(config: pytest.Config) -> None:
    # A wrong option is told before anything is imported or run.
    _number(config, "gemm_max_examples", 1)
    _number(config, "gemm_seed", 0)
    _case(config)
    config.addinivalue_line("markers", "gemm: an item of gemmproof: one kernel, format, property")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "gemm_item" not in metafunc.fixturenames:
        return
    items = [
        GemmItem(kernel, format_, name)
        for kernel in _kernels(metafunc.config)
        for format_ in kernel.contract.formats
        for name in _claims(kernel, format_)
    ]
    metafunc.parametrize("gemm_item", items, ids=str)


@pytest.fixture(scope="session")
def gemm_reports() -> dict[tuple[str, str], Report]:
    """The reports made so far: all properties of a kernel and format are judged in one go."""
    return {}


@pytest.fixture
def gemm_report(
    gemm_item: GemmItem, gemm_reports: dict[tuple[str, str], Report], pytestconfig: pytest.Config
) -> Report:
    """The report on the item's kernel and format."""
    from gemmproof import check

    kernel, name = gemm_item.kernel, gemm_item.format
    key = (kernel.name, name)
    if key not in gemm_reports:
        gemm_reports[key] = check(
            replace(kernel, contract=replace(kernel.contract, formats=(name,))),
            max_examples=_number(pytestconfig, "gemm_max_examples", 1),
            seed=_number(pytestconfig, "gemm_seed", 0),
            case=_case(pytestconfig),
        )
    return gemm_reports[key]


@pytest.fixture
def gemm_reproduce(request: pytest.FixtureRequest) -> Callable[[Case], str]:
    """The command that judges one case by this item."""
    return lambda case: shlex.join(["pytest", request.node.nodeid, "--gemm-case", case.to_json()])


def _kernels(config: pytest.Config) -> list[KernelUnderTest]:
    from gemmproof.properties.contract import KernelUnderTest

    kernels: list[Any] = list(chain.from_iterable(config.hook.pytest_gemm_kernels()))
    for kernel in kernels:
        if not isinstance(kernel, KernelUnderTest):
            raise pytest.UsageError(
                f"pytest_gemm_kernels: got {kernel!r}, expected a list of KernelUnderTest"
            )
    return kernels


def _claims(kernel: KernelUnderTest, format_: str) -> list[str]:
    """The properties that a report on this kernel and format has."""
    from gemmproof.properties.table import owed

    one = replace(kernel, contract=replace(kernel.contract, formats=(format_,)))
    return [judged.name for judged in owed(one)]


def _number(config: pytest.Config, name: str, least: int) -> int:
    text = config.getoption(name) or config.getini(name)
    if not (text.isascii() and text.isdigit() and least <= int(text) < 2**31):
        raise pytest.UsageError(f"{name}: got {text!r}, expected an integer from {least}")
    return int(text)


def _case(config: pytest.Config) -> Case | None:
    text = config.getoption("gemm_case")
    if text is None:
        return None
    from gemmproof.properties.case import Case

    try:
        return Case.from_json(text)
    except ValueError as error:
        raise pytest.UsageError(f"--gemm-case: {error}") from None

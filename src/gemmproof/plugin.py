"""The pytest plugin: the hook by which a project names its kernels, and the options."""

from __future__ import annotations

from typing import Any

import pytest


class Hooks:
    """Hook specifications; pytest wants them as an object."""

    @pytest.hookspec
    def pytest_gemm_kernels(self) -> list[Any]:  # type: ignore[empty-body]
        """Return the project's kernels, a list of gemmproof.KernelUnderTest."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)

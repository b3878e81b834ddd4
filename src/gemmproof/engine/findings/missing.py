"""A stray access with the condition that its mask lacks, where one is proved to be enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import memory_use
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import SIMULATOR

SECONDS = 5.0  # counted, for all findings of a kernel


def name_missing(
    findings: list[Finding],
    kernel: KernelUnderTest,
    target: str | None,
    restore: Callable[[], None],
) -> list[Finding]:
    """The findings, those of stray accesses with what is missing; it runs the wrapper for them."""
    stray = [f for f in findings if _is_stray(f)]
    found: dict[str, str] = {}
    for config in dict.fromkeys(f.case.config for f in stray):
        wanted = frozenset(f.where for f in stray if f.case.config == config and f.where)
        restore()
        try:
            from gemmproof.properties.address_map.explain_access import (
                find_missing,  # brings the solver
            )

            found |= find_missing(kernel, target, config, wanted - found.keys(), SECONDS)
        except (Exception, SystemExit):  # a wrapper may raise anything; the finding says enough
            continue
        finally:
            restore()
    return [_name(f, found) if f in stray else f for f in findings]


def _is_stray(finding: Finding) -> bool:
    own = (finding.property, finding.backend, finding.cause)
    return own == (memory_use.BOUNDS, SIMULATOR, None) and finding.where is not None


def _name(finding: Finding, found: dict[str, str]) -> Finding:
    said = found.get(finding.where or "")
    if said is None:
        return finding
    return replace(finding, message=f"{finding.message}; missing: {said}")

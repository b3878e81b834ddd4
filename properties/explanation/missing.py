"""The condition that a line lacks, for those lines alone that a check found at fault."""

from __future__ import annotations

from collections.abc import Collection

from gemmproof.properties.explanation.access import explain_access
from gemmproof.properties.explanation.explain import follow_all
from gemmproof.properties.explanation.record import MISSING, AccessMap
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.symbolic.solver import OutOfTime, fresh_state


@fresh_state()
def find_missing(
    kernel: KernelUnderTest,
    target: str | None,
    config: int,
    lines: Collection[str],
    seconds: float,
) -> dict[str, str]:
    """For each of the lines, as "file.py:21", what its mask lacks: proved to be enough.

    Nothing is said of a line where paths differ in what they lack, or where no name spells it.
    """
    found: dict[str, set[str]] = {}
    try:
        for one in follow_all(kernel, target, config, seconds) if lines else ():
            for scene in one.machine.scenes if one.machine else ():
                line = str(scene.access.where)
                if line in lines:
                    said = explain_access(
                        scene, one.solver, one.domain, one.launch.constants, {}, fails=True
                    )
                    if said.status == MISSING:
                        found.setdefault(line, set()).add(_spell(said))
            if found.keys() == set(lines):
                break
    except OutOfTime:  # what was found by then holds
        pass
    return {line: said.pop() for line, said in found.items() if len(said) == 1 and "" not in said}


def _spell(access: AccessMap) -> str:
    """Where the mask tests what no lane needs, the index may be the wrong one: nothing is said."""
    if access.fix is None or not access.fix.condition or access.fix.besides:
        return ""
    return f"{'mask=' if access.mask == 'always' else '& '}{access.fix.condition}"

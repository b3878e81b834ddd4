"""The right kernels of families/, modelled on public projects, registered as by a conftest.py."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Its dots of four-bit operands are lowered on Blackwell alone.
ELSEWHERE = ("nvfp4_mm",)


def pytest_gemm_kernels():
    sys.path.insert(0, str(ROOT))
    from tests.corpora.families.table import RIGHT

    return [kernel for kernel in RIGHT if kernel.name not in ELSEWHERE]

"""Measurements on this machine's GPU, and the recordings that tests compare with.

Where a command takes --report FILE, it writes its measurements there as JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = map(str, (ROOT, ROOT / "src"))

from scripts.command import run
from scripts.gpu import (
    compare_assumptions,
    huge,
    other_tools,
    predictions,
    record,
    registers,
    sanitize,
    verdicts,
)

COMMANDS = {
    "dots": record.record_dots,
    "casts": record.record_casts,
    "kernels": record.record_calls,
    "ttir": record.record_ttir,
    "predict": predictions.compare_kernels,
    "verdicts": verdicts.check_rows,
    "corpora": verdicts.launch_corpora,
    "drift": predictions.compare_drift,
    "lane": verdicts.judge_kernels,
    "huge": huge.compare_huge,
    "sanitize": sanitize.check_kernels,
    "assumptions": compare_assumptions.compare_assumptions,
    "calls": sanitize.call_kernel,
    "registers": registers.compare_registers,
    "other-tools": other_tools.compare_tools,
    "call-mutant": other_tools.call_mutant,
}

if __name__ == "__main__":
    sys.exit(run(__doc__, COMMANDS))

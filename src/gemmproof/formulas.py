"""The functions that --spec knows, for formulas in Python.

They are numpy's where numpy has them, and others such as `gelu` and `unpack`.
"""

from __future__ import annotations

from typing import Any

from gemmproof.reference.spec import NAMES

__all__ = [*sorted(NAMES)]


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module 'gemmproof.formulas' has no attribute {name!r}")
    return NAMES[name]

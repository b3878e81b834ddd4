"""Every family of this folder, by the name of its file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

_FILES = sorted(Path(__file__).parent.glob("*.py"))
_NAMES = [file.stem for file in _FILES if file.stem not in ("family", "table")]
_MODULES = [import_module(f"tests.corpora.families.{name}") for name in _NAMES]
# a file has one family, or a few that are alike
FAMILIES = tuple(f for m in _MODULES for f in getattr(m, "FAMILIES", None) or (m.FAMILY,))
RIGHT = tuple(kernel for family in FAMILIES for kernel in (family.right, *family.also))

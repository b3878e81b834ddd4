"""The beginning of a process that records: nothing heavy is imported before torch is."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# sitecustomize.py of a folder that precedes all others on the path of the command's processes
STARTUP = """import sys

_folder = {folder!r}
sys.path[:] = [path for path in sys.path if path != _folder]
from gemmproof.record_calls import process as _process

_process.begin()
_own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # of the next folder
except ModuleNotFoundError:
    sys.modules["sitecustomize"] = _own
"""


def begin() -> None:
    """Record from the moment that torch is imported."""
    # the interpreter would replace the decorator whose kernels are recorded
    os.environ.pop("TRITON_INTERPRET", None)
    sys.meta_path.insert(0, _Torch())


class _Torch(MetaPathFinder):
    """Finds torch as the other finders do, and begins to record once it is loaded."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _run_after(spec.loader)
        return spec


def _run_after(loader: Loader) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        try:
            from gemmproof.record_calls.recorder import start
        except ImportError as error:  # another Python than gemmproof's, which may lack Triton
            note_failure(f"{sys.executable}: {error}")
        else:
            start()

    loader.exec_module = exec_module  # type: ignore[method-assign]


def note_failure(text: str) -> None:
    """Write why this process records nothing."""
    from gemmproof.record_calls.record import FILE

    with open(os.environ[FILE], "a", encoding="utf-8") as file:
        file.write(json.dumps({"failure": text}) + "\n")

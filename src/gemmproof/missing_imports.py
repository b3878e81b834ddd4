"""Modules that are missing here: a stand-in for each of --stub, and the next step without one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from traceback import walk_tb
from types import FunctionType, ModuleType
from typing import Any

from gemmproof.reference.provenance import words_of


# -- stand-ins -----------------------------------------------------------------------------------
class StandInUse:
    """The time in which stand-ins may be used: of imports, not of a wrapper's calls."""

    allowed = True


class StandIn:
    """An object of a module that is not there; `name` is its full name.

    A module may decorate with it, inherit from it and call it when it is imported.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _use(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        used = _use(self._name)
        is_decorator = len(args) == 1 and not kwargs and isinstance(args[0], FunctionType | type)
        return args[0] if is_decorator else used

    def __getitem__(self, key: Any) -> Any:
        return _use(self._name)

    def __or__(self, other: Any) -> Any:
        return _use(self._name)

    __ror__ = __or__

    def __bool__(self) -> bool:
        with suppress(AttributeError):
            _use(self._name)
        return True

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()

    def __instancecheck__(self, other: object) -> bool:
        return False


class StandInModule(ModuleType):
    """A module that is not there, with every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _use(f"{self.__name__}.{name}")


def _use(name: str) -> StandIn:
    """Return a stand-in of that name. Raises Unsupported where a wrapper uses it."""
    if StandInUse.allowed:
        return StandIn(name)
    from gemmproof.reference.provenance import calling_line, owner
    from gemmproof.reference.simulation import Unsupported

    if owner(sys._getframe(2).f_code.co_filename) == "library":  # which looks at every global
        raise AttributeError(name)
    top = name.partition(".")[0]
    text = f"the wrapper uses {name}, for which --stub {top} has a stand-in: install {top} instead"
    raise Unsupported(text, calling_line())


class _StandIns(MetaPathFinder, Loader):
    """Finds a stand-in for some modules, and for all in them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if any(name == x or name.startswith(f"{x}.") for x in self._names):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def stub_modules(names: Sequence[str]) -> None:
    """Have every import of these modules succeed in this process."""
    if names:
        sys.meta_path.insert(0, _StandIns(names))


# -- next steps ----------------------------------------------------------------------------------
_EXTENSIONS = "/torch/utils/cpp_extension.py"
_MAIN = 'put it under `if __name__ == "__main__":`'


def find_next_step(error: BaseException) -> str:
    """Return what to do about an error of an import, as the end of its message, or ""."""
    files = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    if any(file.endswith(_EXTENSIONS) for file in files):
        return f"; only Triton kernels are checked, a CUDA extension is not built: {_MAIN}"
    text = words_of(error)
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ImportError) and name:
        return f"; install {name}, or give --stub {name} if the wrapper does not use it"
    if isinstance(error, OSError) and ("load this library" in text or ".so" in text):
        return f"; only Triton kernels are checked, a library of CUDA code is not there: {_MAIN}"
    if isinstance(error, FileNotFoundError):
        return f"; run it in the folder that has the file, or {_MAIN}"
    return ""

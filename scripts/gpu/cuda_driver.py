"""The facts that the CUDA driver reports of a loaded binary, read by ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libcuda.so.1"
# enumerations CUfunction_attribute and CUdevice_attribute of cuda.h
_MAX_THREADS, _STATIC_SHARED, _LOCAL, _REGISTERS, _MAX_DYNAMIC_SHARED = 0, 1, 3, 4, 8
_SHARED_LIMIT, _SHARED_RESERVED = 97, 111


class CudaDriver:
    """The driver with the first device's context; `library` stands in for libcuda in tests."""

    def __init__(self, library: Any = None) -> None:
        self._cuda = library or ctypes.CDLL(LIBRARY)
        self._device = ctypes.c_int()
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self.shared_limit = self._ask_device(_SHARED_LIMIT)
        self.shared_reserved = self._ask_device(_SHARED_RESERVED)

    def load(self, cubin: bytes, name: str, dynamic_shared: int) -> dict[str, int]:
        """Load a binary; return its function's facts. Raises RuntimeError if the driver refuses.

        `dynamic_shared` bytes are requested as by a launch.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        try:
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            self._call(
                "cuFuncSetAttribute", function, ctypes.c_int(_MAX_DYNAMIC_SHARED),
                ctypes.c_int(dynamic_shared),
            )  # fmt: skip
            asked = {
                "registers": _REGISTERS, "local": _LOCAL, "static_shared": _STATIC_SHARED,
                "dynamic_shared": _MAX_DYNAMIC_SHARED, "max_threads": _MAX_THREADS,
            }  # fmt: skip
            return {word: self._ask(function, number) for word, number in asked.items()}
        finally:
            self._call("cuModuleUnload", module)

    def _ask(self, function: ctypes.c_void_p, attribute: int) -> int:
        value = ctypes.c_int()
        self._call(
            "cuFuncGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), function
        )  # fmt: skip
        return value.value

    def _ask_device(self, attribute: int) -> int:
        value = ctypes.c_int()
        self._call(
            "cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), self._device
        )
        return value.value

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._cuda, name)(*args)
        if status:
            raise RuntimeError(f"{name}: got status {status} of the CUDA driver, expected 0")

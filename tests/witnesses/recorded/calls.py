"""A call of each registered kernel in each of its formats, whose bits on a GPU are recorded."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gemmproof.backends.predict import Prediction, predict
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import ObservedCase

TARGET, SMS = "sm_90", 132  # those of an H200
#: Partial tiles along M, N and K, whose rows the copy engine can address.
SIDES = {"M": 40, "N": 72, "K": 136}


def list_calls(kernels: Iterable[KernelUnderTest]) -> dict[str, tuple[KernelUnderTest, Case]]:
    """By the name of the recording, the kernel and the case."""
    return {
        f"{kernel.name}-{fmt}": (kernel, _make_case(kernel, fmt))
        for kernel in kernels
        for fmt in kernel.contract.formats
    }


def _make_case(kernel: KernelUnderTest, fmt: str) -> Case:
    contract = kernel.contract
    sides = contract.fit({**SIDES, "batch": 2} if contract.batched else SIDES)
    assert sides is not None, f"{kernel.name}: no sizes near {SIDES}"
    return Case(**sides, dtype=fmt, fill="normal")


def predict_call(kernel: KernelUnderTest, case: Case) -> Prediction:
    """Return the simulator's prediction for the GPU."""
    return predict(kernel, case, TARGET, SMS)


def bits_of(observation: ObservedCase) -> np.ndarray:
    """The bits of the result of its one call."""
    (call,) = observation.calls
    assert call.result is not None
    return call.result.view(f"u{call.result.dtype.itemsize}")

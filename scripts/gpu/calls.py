"""One call of each registered kernel in each of its formats, on this GPU."""

from __future__ import annotations

from scripts.gpu.evidence import Row, list_kernels
from tests.witnesses.recorded.calls import TARGET, bits_of, list_calls, predict_call

from gemmproof.backends.cuda_device import Gpu, Launches
from gemmproof.engine.observe import CaseNotRunnable, observe
from gemmproof.fake_device import DeviceRequest
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest


def find_calls() -> dict[str, tuple[KernelUnderTest, Case]]:
    """Registered kernels, whose modules meet this machine's GPU, and the cases to be recorded."""
    DeviceRequest.device = True
    return list_calls(list_kernels("kernels"))


def launch_call(name: str) -> Row:
    """Return the bits of one call on the GPU, or the reason for none: `free` or `failed`."""
    kernel, case = find_calls()[name]
    prediction = predict_call(kernel, case)
    row: Row = {
        "name": name,
        "free": prediction.free or prediction.lacks,
        "failed": None,
        "bits": None,
    }
    if row["free"] is not None:
        return row
    try:
        launches = Launches(Gpu(), TARGET, prediction.choices, lambda event: None)
        observation = observe(kernel, case, launches)
    except CaseNotRunnable as reason:
        return {**row, "failed": f"no room for {reason}"}
    if observation.raised is not None:
        return {**row, "failed": observation.raised.text}
    return {**row, "bits": bits_of(observation)}

"""The device that a user's module sees during its import, and a hook during its calls."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

# counted, for the launches of one import; a worker has minutes to load in addition
SECONDS = 60.0
REMEDY = 'put the code that a script runs under `if __name__ == "__main__":`'


class DeviceRequest:
    """`device`: True if this process will launch on a GPU, so that modules must see it.

    `target` is the GPU that modules see otherwise, None for the default one.
    """

    device = False
    target: str | None = None


@contextmanager
def fake_device() -> Iterator[None]:
    """Within this context every query finds a device, and every launch is simulated.

    Many kernels' files contain `DEVICE = triton.runtime.driver.active.get_active_torch_device()`,
    and scripts also launch: they multiply something and compare it when they are imported. Their
    launches are computed as in a check, for at most SECONDS, so that their own comparisons hold
    as they would on a GPU; beyond that the import fails, with the line and a remedy. Nothing is
    measured: triton.testing calls a function once, and `benchmark.run(...)` does nothing.
    TRITON_INTERPRET is hidden: it would replace the decorator whose kernels are judged.

    Nothing is faked if there is no torch, or if the process will launch on the GPU that
    it has. Otherwise a GPU of this machine is not touched.
    """
    if (
        find_spec("torch") is None
        or find_spec("triton") is None
        or (DeviceRequest.device and _gpu())
    ):
        yield
        return
    from gemmproof.reference.fake_cuda import fake_gpu
    from gemmproof.reference.simulation import Exhausted, LimitExceeded
    from gemmproof.reference.simulator.launch import intercept_launches
    from gemmproof.reference.simulator.session import Session

    interpret = os.environ.pop("TRITON_INTERPRET", None)
    try:
        session = Session({}, target=DeviceRequest.target, seconds=SECONDS)
        with fake_gpu(DeviceRequest.target), intercept_launches(session):
            yield
    except (Exhausted, LimitExceeded) as error:
        error.message = f"{error.message}; {REMEDY}"
        raise
    finally:
        if interpret is not None:
            os.environ["TRITON_INTERPRET"] = interpret


def _gpu() -> bool:
    import torch

    return torch.cuda.is_available()

"""The device that a user's module meets while it is imported on a machine without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


@contextmanager
def imagined_device() -> Iterator[None]:
    """Within it modules that ask for the device when they are imported get an answer.

    `DEVICE = triton.runtime.driver.active.get_active_torch_device()` stands in many kernels' files.
    Where there is a GPU, or no torch, nothing is imagined.
    """
    if find_spec("torch") is None or find_spec("triton") is None:
        yield
        return
    import torch

    if torch.cuda.is_available():
        yield
        return
    from gemmproof.reference.simulator import pretended

    with pretended():
        yield

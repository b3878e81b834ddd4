"""How many multiprocessors a wrapper sees, and whether it asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from triton.runtime import driver

from gemmproof.reference.fake_cuda.tensors import Facts, Table


@contextmanager
def multiprocessors(count: int | None) -> Iterator[list[int]]:
    """Within it the device has `count` multiprocessors; None leaves the number as it is.

    Yields a list that grows by one entry whenever the device's properties are asked for. A program
    of a persistent kernel loops over several tiles only where there are more tiles than programs,
    and few multiprocessors bring that about at small sizes.
    """
    asked: list[int] = []
    of_torch = torch.cuda.get_device_properties

    def torch_properties(device: Any = None) -> Any:
        asked.append(1)
        answer = of_torch(device)
        if count is None:
            return answer
        known = {name: getattr(answer, name) for name in dir(answer) if not name.startswith("_")}
        known["multi_processor_count"] = count
        return Facts("torch.cuda.get_device_properties()", **known)

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.cuda, "get_device_properties", torch_properties))
        try:
            utils = driver.active.utils
        except RuntimeError:  # no device and none pretended: nobody can ask Triton
            utils = None
        if utils is not None:
            of_triton = utils.get_device_properties

            def triton_properties(device: int = 0) -> dict[str, Any]:
                asked.append(1)
                known: dict[str, Any] = of_triton(device)
                if count is None:
                    return known
                name = "driver.active.utils.get_device_properties()"
                return Table(name, {**known, "multiprocessor_count": count})

            stack.enter_context(patch.object(utils, "get_device_properties", triton_properties))
        yield asked

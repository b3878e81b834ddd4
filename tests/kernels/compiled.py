"""Kernels as wrappers would launch them on an absent GPU, and their compiled code."""

from contextlib import contextmanager
from types import SimpleNamespace

import torch
import triton

from gemmproof.compiled import compile
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.triton_hooks import swap


class Launch(compile.CapturedLaunch):
    """A captured launch, with facts from the constants of our kernels."""

    @property
    def fetched(self):
        """Elements of a and b in all stages."""
        m, n, k = (self.constants.get(f"BLOCK_{axis}", 0) for axis in "MNK")
        return self.options.num_stages * (m + n) * k

    def __str__(self):
        names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SUBTILES", "PER_WORD")
        sizes = [f"{x}={self.constants[x]}" for x in names if self.constants.get(x) is not None]
        options = [f"{x}={getattr(self.options, x)}" for x in ("num_warps", "num_stages")]
        return " ".join((self.gpu, self.kernel, *sizes, *options))

    def compile(self):
        """Compile the launch with Triton."""
        return triton.compile(self.source, target=self.target, options=self.options.__dict__)


@contextmanager
def capture_launches(gpu, has_engine=True):
    """As `capture.capture_launches`, in every configuration.

    Without an engine the GPU reports a capability below that of the copy engine: pointers are used.
    """
    facts = SimpleNamespace(
        major=GPUS[gpu].capability[0] if has_engine else 8,
        multi_processor_count=GPUS[gpu].multiprocessors,
        shared_memory_per_block_optin=GPUS[gpu].shared_memory,
    )
    launches = []
    with compile.capture_launches(gpu) as captured:
        with swap(((torch.cuda, "get_device_properties", lambda device=None: facts),)):
            yield launches
        launches += [Launch(**vars(launch)) for launch in captured]

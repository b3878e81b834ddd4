"""Kernels as wrappers would launch them on a GPU that is not there, and what they compile to."""

import re
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from gemmproof.reference.fake_cuda import fake_gpu
from gemmproof.reference.fake_cuda.answers import swap
from gemmproof.reference.gpus import GPUS


@dataclass(frozen=True)
class Launch:
    """A kernel as Triton was asked to compile it: types, constants and options of a real call."""

    gpu: str
    source: Any
    target: Any
    options: Any

    @property
    def kernel(self):
        """Its name."""
        return self.source.fn.__name__

    @property
    def constants(self):
        """By the kernel's names for them."""
        names = self.source.fn.arg_names
        return {names[path[0]]: x for path, x in self.source.constants.items() if len(path) == 1}

    @property
    def descriptors(self):
        """The types of the arguments that are descriptors."""
        return [x for x in self.source.signature.values() if x.startswith("tensordesc")]

    @property
    def key(self):
        """The same of launches that compile to the same."""
        return self.source.hash(), self.options.hash()

    @property
    def fetched(self):
        """Elements of a and b in all stages."""
        m, n, k = (self.constants.get(f"BLOCK_{axis}", 0) for axis in "MNK")
        return self.options.num_stages * (m + n) * k

    def __str__(self):
        names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SUBTILES", "PER_WORD")
        told = [f"{x}={self.constants[x]}" for x in names if self.constants.get(x) is not None]
        options = [f"{x}={getattr(self.options, x)}" for x in ("num_warps", "num_stages")]
        return " ".join((self.gpu, self.kernel, *told, *options))

    def compile(self):
        """What Triton makes of it."""
        return triton.compile(self.source, target=self.target, options=self.options.__dict__)


@contextmanager
def capture_launches(gpu, has_engine=True):
    """Within it wrappers find this GPU; what they launch is put on the list that it yields.

    A tuned kernel is launched in each configuration that its own pruning leaves. Without an engine
    the GPU says that it is older than the copy engine, so that pointers are used.
    """
    made = []
    facts = SimpleNamespace(
        major=GPUS[gpu].capability[0] if has_engine else 8,
        multi_processor_count=GPUS[gpu].multiprocessors,
        shared_memory_per_block_optin=GPUS[gpu].shared_memory,
    )

    def record(self, key, signature, device, constexprs, options, attrs, warmup):
        source = self.ASTSource(self, signature, constexprs, attrs)
        made.append(Launch(gpu, source, self.device_caches[device][2], options))

    def tune(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        for config in self.prune_configs(kwargs):
            if config.pre_hook is not None:
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            self.fn.run(*args, **kwargs, **config.all_kwargs())

    with fake_gpu(gpu):
        changes = (
            (torch.cuda, "get_device_properties", lambda device=None: facts),
            # by it Triton keeps what it knows of a device
            (driver.active, "get_current_device", lambda: f"captured {gpu}"),
            (JITFunction, "_do_compile", record),  # it returns nothing, so nothing is launched
            (Autotuner, "run", tune),
        )
        with swap(changes):
            yield made


def count_stack(made, folder):
    """Bytes that a thread keeps in memory for want of registers."""
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(made.asm["cubin"])
    command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(cubin)]
    usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(re.search(r" STACK:(\d+) ", usage)[1])

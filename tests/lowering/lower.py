"""Launches captured and compiled in this process, and what NVIDIA's tools report of them."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import torch
import triton

from gemmproof.compiled.compile import capture_launches, compile_launch, describe_launch
from gemmproof.compiled.facts import read_facts
from gemmproof.compiled.record import PLAN, RESULT
from gemmproof.compiled.run import WorkerResults, read_result
from gemmproof.worker.protocol import (
    CaseStarted,
    PartialResult,
    WorkerContext,
    read_event,
    write_event,
)

FORMATS = {
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp8e4m3": torch.float8_e4m3fn,
    "fp8e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}


def capture(wrapper, gpu="sm_90", dtype="fp16", size=128, every=True, odd=False):
    """Capture the launches of a wrapper; with `odd`, nothing divides the length of a's rows."""
    with capture_launches(gpu, every) as launches:
        a = torch.empty(size, size + odd, dtype=FORMATS[dtype], device="cuda")[:, :size]
        wrapper(a, torch.empty(size, size, dtype=FORMATS[dtype], device="cuda"))
    return launches


def compile_only(wrapper, workdir, gpu, dtype="fp16", **options):
    """Compile the only launch of a wrapper; return it and the record of its facts."""
    (launch,) = capture(wrapper, gpu, dtype, **options)
    compiled = compile_launch(launch, workdir)
    return compiled, read_facts(describe_launch(launch), compiled.asm, compiled.metadata)


def ask_cuobjdump(option, compiled, workdir):
    """Return the output of cuobjdump for a binary."""
    cubin = workdir / "witness.cubin"
    cubin.write_bytes(compiled.asm["cubin"])
    command = [triton.knobs.nvidia.cuobjdump.path, option, str(cubin)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def read_usage(compiled, workdir):
    """Return the kernel's row of cuobjdump's resource table."""
    text = ask_cuobjdump("-res-usage", compiled, workdir)
    line = text.partition(f"Function {compiled.metadata.name}:")[2].splitlines()[1]
    return {name: int(n) for name, n in re.findall(r"(\w+)(?:\[\d\])?:(\d+)", line)}


def count_sass(compiled, workdir):
    """Count the machine instructions of a binary, by name."""
    text = ask_cuobjdump("-sass", compiled, workdir)
    return Counter(re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)", text, re.M))


def run_task(task, workdir, request, kernel=None):
    """Run a task as its worker would; return the result for the target, and events of launches."""
    events = []
    context = WorkerContext(events.append, 120.0, 8 << 30, Path(workdir))
    with mock.patch.object(sys.modules[task.__module__], "find_kernel", return_value=kernel):
        task(request, context)
    events = [read_event(write_event(event, 0))[0] for event in events]
    parts = [event for event in events if isinstance(event, PartialResult)]
    results = dict(read_result(x.value) for x in parts if x.name == RESULT)
    plans = [x.value for x in parts if x.name == PLAN] or [None]
    target = WorkerResults(request.gpu, dict(sorted(results.items())), plans[-1])
    return target, [x for x in events if isinstance(x, (CaseStarted, PartialResult))]


def label(event):
    """Return the kind of an event of launches: "case", "plan" or "result"."""
    return event.name if isinstance(event, PartialResult) else "case"

"""Kernels compiled for a GPU that is not there: formats by their names, and what a cubin says."""

import re
import subprocess

import triton

#: Triton's name of the operand's type, its name in PTX, its bits, and the type of the result.
FORMATS = {
    "fp16": ("fp16", "f16", 16, "fp16"),
    "fp8e4m3": ("fp8e4nv", "e4m3", 8, "fp32"),
    "bf16": ("bf16", "bf16", 16, "bf16"),
    "int8": ("i8", "s8", 8, "i32"),
    "tf32": ("fp32", "tf32", 32, "fp32"),
    "fp32": ("fp32", "", 32, "fp32"),
    "fp8e5m2": ("fp8e5", "e5m2", 8, "fp32"),
}


def count_stack(made, folder):
    """Bytes that a thread keeps in memory for want of registers."""
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(made.asm["cubin"])
    command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(cubin)]
    usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(re.search(r" STACK:(\d+) ", usage)[1])

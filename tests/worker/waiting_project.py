"""A project of a kernel that holds, one with a finding, and two that wait until released."""

KERNELS = """
import os, subprocess, time
from pathlib import Path

def matmul(a, b):
    pass

def leaves(a, b):
    os._exit(1)

def waits(a, b):
    if Path("spawns").exists():
        subprocess.Popen(["sleep", "600"], start_new_session=True)
    Path("began").touch()
    while not Path("go").exists():
        time.sleep(0.01)
"""
CONFTEST = """
from gemmproof import Contract, KernelUnderTest
from my_kernels import leaves, matmul, waits

def pytest_gemm_kernels():
    functions = {"matmul": matmul, "leaves": leaves, "waits": waits, "waits_too": waits}
    return [KernelUnderTest(name, f, Contract()) for name, f in functions.items()]
"""


def write_project(folder, spawns=False):
    """Write its files; if it `spawns`, waiting kernels also start a process each."""
    (folder / "my_kernels.py").write_text(KERNELS)
    (folder / "conftest.py").write_text(CONFTEST)
    if spawns:
        (folder / "spawns").touch()
    return folder

"""Launch our kernels on this machine's GPU and compare every bit with the tile simulator's sm_90.

    python scripts/gpu_predict.py [--json FILE]

One process a kernel. Exit 0 when all bits are equal, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import torch
import triton

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.recorded.cases import operand
from tests.recorded.kernel import tensor

from gemmproof.reference.simulator import run

KERNELS = ("matmul", "matmul_grouped", "matmul_swizzled", "matmul_persistent")
SHAPES = ((129, 65, 300), (64, 200, 1056), (1, 33, 77), (300, 17, 16))
FORMATS = ("fp16", "bf16", "fp32", "tf32", "fp8e4m3", "fp8e5m2", "int8")
OUTPUTS = {
    "fp16": (torch.float16, torch.float32),
    "bf16": (torch.bfloat16, torch.float32),
    "fp32": (torch.float32,),
    "tf32": (torch.float32,),
    "fp8e4m3": (torch.float32, torch.bfloat16, torch.float8_e4m3fn),
    "fp8e5m2": (torch.float32, torch.float16, torch.float8_e5m2),
    "int8": (torch.int32,),
}
KINDS = ("normal", "wide", "special")


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()])


def compare(name: str) -> dict[str, list]:
    """format -> [equal, total, [descriptions of what differs]] for one kernel."""
    module = import_module(f"gemmproof.kernels.{name}")
    tuned, wrapper = getattr(module, f"{name}_kernel"), getattr(module, name)
    found: dict[str, list] = {f: [0, 0, []] for f in FORMATS}
    turn = 0
    for fmt in FORMATS:
        stored = "fp32" if fmt == "tf32" else fmt
        options = {"input_precision": "tf32"} if fmt == "tf32" else {}
        for M, N, K in SHAPES:
            for kind in ("raw",) if fmt == "int8" else KINDS:
                arrays = operand(kind, stored, 11, (M, K)), operand(kind, stored, 97, (K, N))
                for out_dtype in OUTPUTS[fmt]:
                    turn += 1
                    config = module.CONFIGS[turn % len(module.CONFIGS)]
                    on_gpu = [tensor(x, stored, "cuda") for x in arrays]
                    on_cpu = [tensor(x, stored, "cpu") for x in arrays]
                    with patch.object(tuned, "configs", [config]):
                        try:
                            got = wrapper(*on_gpu, out_dtype, **options).cpu()
                        except triton.runtime.errors.OutOfResources:
                            continue  # the tuner passes over it too
                        predicted = run(
                            wrapper,
                            *on_cpu,
                            target="sm_90",
                            kwargs={"out_dtype": out_dtype, **options},
                        ).result
                    equal = bits(got) == bits(predicted)
                    found[fmt][0] += int(equal.sum())
                    found[fmt][1] += equal.numel()
                    if not equal.all():
                        at = tuple((~equal).nonzero()[0].tolist())
                        found[fmt][2].append(
                            f"{fmt} {(M, N, K)} {kind} {out_dtype} {config.kwargs} "
                            f"warps {config.num_warps}: {int((~equal).sum())} differ, c{at} got "
                            f"{got[at].item()!r}, expected {predicted[at].item()!r}"
                        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--kernel", help="compare this one alone and print JSON")
    args = parser.parse_args()
    if args.kernel:
        print(json.dumps(compare(args.kernel)))
        return 0
    processes = {
        name: subprocess.Popen(
            [sys.executable, __file__, "--kernel", name], stdout=subprocess.PIPE, text=True
        )
        for name in KERNELS
    }
    found = {}
    for name, process in processes.items():
        output, _ = process.communicate()
        found[name] = json.loads(output.splitlines()[-1]) if process.returncode == 0 else {}
        for fmt, (equal, total, wrong) in found[name].items():
            print(f"{name:18} {fmt:8} {equal}/{total}")
            print("".join(f"    {w}\n" for w in wrong[:6]), end="")
    if args.json:
        facts = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "python": platform.python_version(),
            "date": datetime.now(UTC).date().isoformat(),
            "kernels": found,
        }
        Path(args.json).write_text(json.dumps(facts, indent=1))
    complete = all(len(f) == len(FORMATS) for f in found.values())
    right = all(e == t > 0 for f in found.values() for e, t, _ in f.values())
    return 0 if complete and right else 1


if __name__ == "__main__":
    raise SystemExit(main())

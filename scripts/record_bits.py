"""Record the dots of tests/recorded on this machine's GPU and compare them with the tile simulator.

    python scripts/record_bits.py OUT.npz [--json FILE]

Writes the raw bits of every output. Prints, path by path, the share of bits that the simulator
predicts for sm_90. Exit 0 when all are equal, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
import triton

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from tests.recorded.cases import cases, inputs
from tests.recorded.kernel import launch, tensor

from gemmproof.reference.simulator import run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--json")
    args = parser.parse_args()
    recorded: dict[str, np.ndarray] = {}
    shares: dict[str, list[int]] = {}
    wrong: list[str] = []
    for case in cases():
        arrays = inputs(case)
        formats = (case.a_format, case.b_format, case.acc_format)
        on_gpu = [tensor(x, f, "cuda") for x, f in zip(arrays, formats, strict=True)]
        key = f"{case.path} {case.a_format}x{case.b_format}>{case.acc_format}"
        try:
            got = launch(case, *on_gpu).cpu()
        except Exception as error:
            wrong.append(f"{case.name}: GPU: {str(error).splitlines()[0][:120]}")
            continue
        bits = got.view(torch.int16 if got.element_size() == 2 else torch.int32).numpy()
        recorded[case.name] = bits
        on_cpu = [tensor(x, f, "cpu") for x, f in zip(arrays, formats, strict=True)]
        try:
            predicted = run(lambda *t, case=case: launch(case, *t), *on_cpu, target="sm_90").result
        except Exception as error:
            wrong.append(f"{case.name}: simulator: {str(error).splitlines()[0][:160]}")
            continue
        equal = int((predicted.view(torch.from_numpy(bits).dtype).numpy() == bits).sum())
        share = shares.setdefault(key, [0, 0])
        share[0] += equal
        share[1] += bits.size
        if equal != bits.size:
            wrong.append(f"{case.name}: {bits.size - equal} of {bits.size} differ")
    np.savez_compressed(args.out, **recorded)
    for key, (equal, total) in shares.items():
        print(f"{key:44s} {equal}/{total} {100 * equal / total:.3f} %")
    print("\n".join(wrong[:120]))
    total = [sum(x) for x in zip(*shares.values(), strict=True)]
    print(f"equal {total[0]} of {total[1]}")
    if args.json:
        facts = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "python": platform.python_version(),
            "date": datetime.now(UTC).date().isoformat(),
            "shares": shares,
            "different": wrong,
        }
        Path(args.json).write_text(json.dumps(facts, indent=1))
    return 0 if not wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())

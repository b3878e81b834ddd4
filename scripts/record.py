"""Recordings that tests compare with: dots and casts of this GPU, TTIR of this Triton."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import recorded_ttir
import torch
import triton
from scripts.evidence import write_json
from tests.witnesses.recorded import casts
from tests.witnesses.recorded.cases import cases, inputs
from tests.witnesses.recorded.kernel import launch, tensor
from ttir_cases import existing

from gemmproof.reference.simulator import run

CASTS = Path(casts.__file__).parent / "casts-h200.npz"


def record_dots(out: Path, report: Path | None) -> int:
    """Record the dots of tests/recorded on the GPU and compare them with the simulator.

    Writes the raw bits of every output to OUT (.npz). Prints, path by path, the share of bits that
    the simulator predicts for sm_90. Exit 0 when all are equal, 1 otherwise.
    """
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
    np.savez_compressed(out, **recorded)  # type: ignore[arg-type]
    for key, (equal, total) in shares.items():
        print(f"{key:44s} {equal}/{total} {100 * equal / total:.3f} %")
    print("\n".join(wrong[:120]))
    equal, total = (sum(x) for x in zip(*shares.values(), strict=True))
    print(f"equal {equal} of {total}")
    write_json(report, shares=shares, different=wrong)
    return int(bool(wrong))


def record_casts(out: Path) -> int:
    """Record what compiled casts and arithmetic give on the GPU.

    The inputs are those of tests/witnesses/recorded/casts-h200.npz. Writes OUT (.npz) and
    prints how many outputs differ from the recorded ones. Exit 0 when none does, 1 otherwise.
    """
    known = dict(np.load(CASTS))
    made = {name: data for name, data in known.items() if name.startswith("in|")}
    different = total = 0
    for name in sorted(set(known) - set(made)):
        operands = [
            casts.as_tensor(known[f"in|{source}"], source.rpartition(":")[2]).cuda()
            for source in casts.inputs_of(name)
        ]
        made[name] = casts.as_bits(casts.launch(name, *operands))
        different += int((made[name] != known[name]).sum())
        total += made[name].size
    np.savez_compressed(out, **made)
    print(f"{different} of {total} outputs differ from the recorded ones")
    return int(different > 0)


def record_ttir() -> int:
    """Record in tests/ttir the TTIR of the tests' kernels, as the installed Triton makes it.

    Needs no GPU.
    """
    possible = existing()
    texts = {
        name: recorded_ttir.record(*call)
        for name, call in recorded_ttir.launches().items()
        if (case := recorded_ttir.case_named(name)) is None or case in possible
    }
    recorded_ttir.FOLDER.mkdir(exist_ok=True)
    file = recorded_ttir.FOLDER / f"{triton.__version__}.json.xz"
    file.write_bytes(lzma.compress(json.dumps(texts).encode(), preset=9))
    print(f"{file.name}: {len(texts)} launches, {file.stat().st_size:,} bytes")
    return 0

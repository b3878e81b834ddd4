"""Recordings that tests compare with: dots, casts and calls on this GPU, TTIR of this Triton."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import triton
from scripts.gpu.evidence import Row, list_kernels, require_gpu, run_each
from tests.witnesses.recorded import casts
from tests.witnesses.recorded.calls import TARGET, bits_of, list_calls, predict_call
from tests.witnesses.recorded.cases import cases, inputs
from tests.witnesses.recorded.kernel import launch, tensor
from tests.witnesses.ttir import recorded_ttir
from tests.witnesses.ttir.ttir_cases import existing

from gemmproof.backends.cuda_device import Gpu, Launches
from gemmproof.engine.observe import CaseNotRunnable, observe
from gemmproof.fake_device import DeviceRequest
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.arithmetic import Array

RECORDED = Path(casts.__file__).parent


def record_dots(out: Path) -> int:
    """Record the dots of tests/witnesses/recorded on the GPU.

    Writes the raw bits of every output to OUT (.npz) and prints which differ from h200.npz, whose
    bits tests/witnesses/test_recorded.py compares with the simulator. Exits with 0 when no output
    differs, 1 otherwise.
    """
    by_name = {case.name: case for case in cases()}

    def launch_dot(name: str) -> Array:
        case = by_name[name]
        formats = (case.a_format, case.b_format, case.acc_format)
        operands = (tensor(x, f, "cuda") for x, f in zip(inputs(case), formats, strict=True))
        bits = casts.as_bits(launch(case, *operands))
        return bits.view(f"i{bits.itemsize}")

    return _record(out, dict(np.load(RECORDED / "h200.npz")), by_name, launch_dot)


def record_casts(out: Path) -> int:
    """Record the results of compiled casts and arithmetic on the GPU.

    Writes the raw bits of every output to OUT (.npz), next to the inputs, which are those of
    tests/witnesses/recorded/casts-h200.npz, and prints which outputs differ from that file's. Exits
    with 0 when none differs, 1 otherwise.
    """
    known = dict(np.load(RECORDED / "casts-h200.npz"))

    def launch_cast(name: str) -> Array:
        operands = (
            casts.as_tensor(known[f"in|{source}"], source.rpartition(":")[2]).cuda()
            for source in casts.inputs_of(name)
        )
        return casts.as_bits(casts.launch(name, *operands))

    names = (name for name in known if not name.startswith("in|"))
    return _record(out, known, names, launch_cast)


def record_calls(out: Path, jobs: int = 8) -> int:
    """Record a call of each registered kernel in each of its formats on the GPU.

    Writes the raw bits of every result to OUT (.npz) and prints which differ from those of
    tests/witnesses/recorded/kernels-h200.npz, where they are known. Calls whose bits are
    device-specific are excluded. Exits with 0 when none differs or fails, 1 otherwise.
    """
    require_gpu("kernels")
    tasks = [(name,) for name in find_calls()]
    rows = {row["name"]: row for row in run_each(launch_call, tasks, jobs)}

    def take(name: str) -> Array:
        if rows[name]["failed"] is not None:
            raise RuntimeError(rows[name]["failed"])
        bits: Array = rows[name]["bits"]
        return bits

    for name, row in rows.items():
        if row["free"] is not None:
            print(f"{name}: left out: {row['free']}")
    file = RECORDED / "kernels-h200.npz"
    known = dict(np.load(file)) if file.exists() else {}
    return _record(out, known, (name for name in rows if rows[name]["free"] is None), take)


def _record(
    out: Path, known: dict[str, Array], names: Iterable[str], launch_one: Callable[[str], Array]
) -> int:
    """Write the inputs that are `known`, and the bits of every output as this GPU gives them."""
    outputs = {name: bits for name, bits in known.items() if name.startswith("in|")}
    different = failed = total = 0
    for name in names:
        try:
            outputs[name] = bits = launch_one(name)
        except Exception as error:  # one that does not compile must not hide the others
            failed += 1
            print(f"{name}: {type(error).__name__}: {str(error)[:160]}")
            continue
        count = int((bits != known[name]).sum()) if name in known else bits.size
        if count:
            print(f"{name}: {count} of {bits.size} outputs differ")
        different, total = different + count, total + bits.size
    np.savez_compressed(out, **outputs)  # type: ignore[arg-type]
    print(f"{different} of {total} outputs differ from the recorded ones; {failed} launches failed")
    return int(different + failed > 0)


def record_ttir() -> int:
    """Record the TTIR of the tests' kernels as the installed Triton makes it; needs no GPU.

    Writes a file of tests/witnesses/ttir/recordings.
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


def find_calls() -> dict[str, tuple[KernelUnderTest, Case]]:
    """Registered kernels, whose modules meet this machine's GPU, and the cases to be recorded."""
    DeviceRequest.device = True
    return list_calls(list_kernels("kernels"))


def launch_call(name: str) -> Row:
    """Return the bits of one call on the GPU, or the reason for none: `free` or `failed`."""
    kernel, case = find_calls()[name]
    prediction = predict_call(kernel, case)
    row: Row = {
        "name": name,
        "free": prediction.free or prediction.lacks,
        "failed": None,
        "bits": None,
    }
    if row["free"] is not None:
        return row
    try:
        launches = Launches(Gpu(), TARGET, prediction.choices, lambda event: None)
        observation = observe(kernel, case, launches)
    except CaseNotRunnable as reason:
        return {**row, "failed": f"no room for {reason}"}
    if observation.raised is not None:
        return {**row, "failed": observation.raised.text}
    return {**row, "bits": bits_of(observation)}

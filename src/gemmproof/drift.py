"""The drift of one kernel: its accumulator, and its errors against K, simulated or launched."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from gemmproof.properties.drift import (
    Deviation,
    Measure,
    beyond_bound,
    declared_model,
    declared_split,
    deviations,
    measured,
    slope,
)
from gemmproof.properties.tensors import as_array, as_tensor
from gemmproof.reference.accumulator.infer import infer_accumulator
from gemmproof.reference.accumulator.probes import ProbeError
from gemmproof.reference.accumulator.record import KEPT, Accumulator
from gemmproof.reference.formats import Array

if TYPE_CHECKING:
    from gemmproof.properties.contract import KernelUnderTest

SCHEMA = 1
FORMATS = ("fp16", "bf16", "fp32", "tf32", "fp8e4m3", "fp8e5m2")
SECONDS = 300.0  # a single product on the tile simulator

Product = Callable[[Array, Array], Array]
Listener = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class DriftReport:
    """What a kernel's sums are, against what its contract declares.

    `gpu` is the target that was simulated, or the name of the device that launched. `accumulator`
    is None where the results are no products. `slope` is the power of K that the bias of data of
    one sign grows with, for the reader only: the verdict follows from the probes and the bound.
    """

    schema: int
    target: str
    verdict: str
    in_format: str
    gpu: str
    declared: str
    accumulator: Accumulator | None
    measures: tuple[Measure, ...]
    findings: tuple[Deviation, ...]
    slope: float | None
    seconds: float
    versions: dict[str, str]
    note: str | None = None

    @property
    def name(self) -> str:
        """The kernel's function alone."""
        return self.target.rpartition(":")[2]

    def to_json(self) -> str:
        """One JSON document; an error beyond every bound is the text "Infinity"."""
        data = {name: getattr(self, name) for name in self.__slots__}
        data["accumulator"] = self.accumulator and {
            "name": self.accumulator.name,
            **asdict(self.accumulator),
        }
        data["measures"] = [
            {k: "Infinity" if v == float("inf") else v for k, v in asdict(m).items()}
            for m in self.measures
        ]
        data["findings"] = [asdict(d) for d in self.findings]
        return json.dumps(data, indent=2)

    @staticmethod
    def from_json(text: str) -> DriftReport:
        """The report that `to_json` wrote."""
        data: dict[str, Any] = json.loads(text)
        found = data["accumulator"]
        if found is not None:
            del found["name"]
            found = Accumulator(**{**found, "pattern": tuple(map(tuple, found["pattern"]))})
        for m in data["measures"]:
            m.update({k: float(v) for k, v in m.items() if v == "Infinity"})
        measures = tuple(Measure(**m) for m in data["measures"])
        findings = tuple(Deviation(**d) for d in data["findings"])
        return DriftReport(
            **{**data, "accumulator": found, "measures": measures, "findings": findings}
        )


def drift(
    product: Product,
    in_format: str,
    *,
    declared: str = "fp32",
    sizes: Iterable[int] = (512, 1024, 2048, 4096),
    name: str = "kernel",
    gpu: str = "ieee",
    listener: Listener = lambda event: None,
) -> DriftReport:
    """Probe and measure `product`, which takes (128, K) and (K, 64) storage arrays.

    declared: the accumulator that the contract promises, a name of accumulator.KEPT. `listener`
    is told of every product before it runs. Raises what the product raises, ValueError for what is
    unknown, and Unprobed where c is of a format that tells too little.
    """
    if in_format not in FORMATS:
        raise ValueError(f"format: got {in_format!r}, expected one of {' '.join(FORMATS)}")
    if declared not in KEPT:
        raise ValueError(f"accumulator: got {declared!r}, expected one of {' '.join(KEPT)}")
    began = time.monotonic()
    asked = 0

    def told(a: Array, b: Array) -> Array:
        nonlocal asked
        asked += 1
        said = f"product {asked}: {a.shape[0]} x {a.shape[1]} by {b.shape[0]} x {b.shape[1]}"
        listener({"event": "case", "case": said})
        return product(a, b)

    report = DriftReport(
        SCHEMA, name, "fail", in_format, gpu, declared, None, (), (), None, 0.0, _versions()
    )
    try:
        found = infer_accumulator(told, in_format)
    except ProbeError as error:
        got, _, expected = str(error).partition(", expected ")
        wrong = Deviation("no_product", str(error), got.partition(": got ")[2], expected)
        return replace(report, findings=(wrong,), seconds=time.monotonic() - began)
    model = declared_model(found, declared, in_format)
    split = declared_split(found, declared)
    measures = [m for K in sizes for m in measured(told, in_format, K, model, split)]
    low = [*deviations(found, declared, in_format), *beyond_bound(measures, declared)]
    return replace(
        report,
        verdict="fail" if low else "pass",
        accumulator=found,
        measures=tuple(measures),
        findings=tuple(low),
        slope=slope(measures),
        seconds=time.monotonic() - began,
    )


def drift_of(
    kernel: KernelUnderTest,
    in_format: str,
    *,
    target: str | None = "sm_90",
    sizes: Iterable[int] = (512, 4096),
) -> DriftReport:
    """The drift of a registered kernel, simulated, against the accumulator of its contract."""
    launch = unbatched(kernel.launch) if kernel.contract.batched else kernel.launch
    return drift(
        simulated(launch, in_format, target),
        in_format,
        declared=kernel.contract.accumulator,
        sizes=sizes,
        name=kernel.name,
        gpu=target or "ieee",
    )


def unbatched(function: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper of 3-D operands as one of 2-D operands: a batch of one."""

    def single(a: Any, b: Any) -> Any:
        return function(a[None], b[None])[0]

    return single


def simulated(
    function: Callable[..., Any], in_format: str, target: str | None, config: int = 0
) -> Product:
    """The wrapper as a product of storage arrays, its kernels run by the tile simulator.

    config: which configuration of autotuned kernels.
    """
    from gemmproof.reference.simulator import run

    def product(a: Array, b: Array) -> Array:
        tensors = [as_tensor(x, in_format) for x in (a, b)]
        done = run(function, *tensors, target=target, config=config, seconds=SECONDS)
        return _array(done.result)

    return product


def launched(function: Callable[..., Any], in_format: str, device: str = "cuda") -> Product:
    """The wrapper as a product of storage arrays, its kernels launched on `device`."""

    def product(a: Array, b: Array) -> Array:
        tensors = [as_tensor(x, in_format).to(device) for x in (a, b)]
        return _array(function(*tensors))

    return product


def _array(c: Any) -> Array:
    import torch

    if not isinstance(c, torch.Tensor):
        raise ProbeError(f"result: got {type(c).__name__}, expected a tensor")
    try:
        return as_array(c.cpu())
    except ValueError as error:
        raise ProbeError(f"result: {error}") from None


def _versions() -> dict[str, str]:
    from gemmproof import __version__

    loaded = {name: sys.modules.get(name) for name in ("numpy", "torch", "triton")}
    found = {name: str(getattr(module, "__version__", "")) for name, module in loaded.items()}
    return {"gemmproof": __version__, **{name: v for name, v in found.items() if v}}

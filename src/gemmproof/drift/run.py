"""A drift measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gemmproof.properties.cases.data import as_array, as_tensor
from gemmproof.properties.help import read_claim
from gemmproof.properties.judges import accumulator_drift
from gemmproof.properties.judges.accumulator_drift import (
    NAME,
    Deviation,
    Drift,
    declared_model,
    declared_split,
    measure,
    slope,
)
from gemmproof.properties.kernel import is_triton, require_kernel
from gemmproof.reference.accumulator import KEPT, PROBE_K, M, N, ProbeError, infer_accumulator
from gemmproof.reference.arithmetic import Array
from gemmproof.reference.formats import FLOAT_OPERANDS
from gemmproof.reference.gpus import DEFAULT
from gemmproof.report.record import SCHEMA, PropertyResult, Report, versions
from gemmproof.worker.protocol import CaseStarted, Listener

if TYPE_CHECKING:
    from gemmproof.properties.kernel import KernelUnderTest

SECONDS = 300.0  # counted; a single product on the tile simulator
SIZES = (512, 4096)  # K at which a registered kernel is measured

Product = Callable[[Array, Array], Array]


def drift(
    product: Product,
    in_format: str,
    *,
    declared: str = "fp32",
    sizes: Iterable[int] = (512, 1024, 2048, 4096),
    name: str = "kernel",
    gpu: str = "ieee",
    listener: Listener = lambda event: None,
) -> Report:
    """Probe and measure `product`, which takes (128, K) and (K, 64) storage arrays.

    `declared` is the accumulator that the contract promises, a name in KEPT. `listener` gets an
    event for every product before it runs. Raises what the product raises, ValueError for an
    unknown name, and TypeError for what cannot be called.
    """
    if not callable(product) or is_triton(product):
        raise TypeError(f"drift: got {product!r}, expected a function of a and b")
    if in_format not in FLOAT_OPERANDS:
        raise ValueError(f"format: got {in_format!r}, expected one of {' '.join(FLOAT_OPERANDS)}")
    if declared not in KEPT:
        raise ValueError(f"accumulator: got {declared!r}, expected one of {' '.join(KEPT)}")
    began = time.monotonic()
    count, done = 0, 0
    lengths, measuring = tuple(sizes), False

    def announce(a: Array, b: Array) -> Array:
        nonlocal count, done
        count += 1
        label = f"product {count}: {a.shape[0]} x {a.shape[1]} by {b.shape[0]} x {b.shape[1]}"
        # the time of a product grows with K
        share = done / sum(lengths) if measuring else None
        listener(CaseStarted(label, share=share))
        done += a.shape[1] * measuring
        return product(a, b)

    record = Drift(in_format, gpu, declared)
    try:
        accumulator = infer_accumulator(announce, in_format)
    except ProbeError as error:
        where, _, rest = str(error).partition(": got ")
        got, _, expected = rest.partition(", expected ")
        wrong = Deviation("no_product", where, got, expected)
        findings = [accumulator_drift.state_deviation(wrong, record, min(lengths, default=1))]
    else:
        model = declared_model(accumulator, declared, in_format)
        split = declared_split(accumulator, declared)
        measuring = True
        measures = [m for K in lengths for m in measure(announce, in_format, K, model, split)]
        record = replace(
            record, accumulator=accumulator, measures=tuple(measures), slope=slope(measures)
        )
        findings = list(accumulator_drift.judge(record, lengths))
    status = "fail" if findings else "pass"
    ratio = max((m.ratio for m in record.measures), default=None)
    result = PropertyResult(NAME, read_claim(NAME), status, count, ratio)
    seconds = time.monotonic() - began
    return Report(SCHEMA, name, (result,), tuple(findings), seconds, versions(), drift=record)


def drift_of(
    kernel: KernelUnderTest,
    in_format: str,
    *,
    target: str | None = DEFAULT,
    sizes: Iterable[int] = SIZES,
    listener: Listener = lambda event: None,
) -> Report:
    """Measure the simulated drift of a registered kernel against its contract's accumulator.

    Raises TypeError if it is no kernel.
    """
    require_kernel("drift", kernel)
    launch = unbatch(kernel.launch) if kernel.contract.batched else kernel.launch
    return drift(
        simulate_product(launch, in_format, target),
        in_format,
        declared=kernel.contract.accumulator,
        sizes=sizes,
        name=kernel.name,
        gpu=target or "ieee",
        listener=listener,
    )


def explain_unmeasurable(kernel: KernelUnderTest, in_format: str) -> str | None:
    """Return why `drift_of` cannot measure a kernel in a format, None if it can."""
    if kernel.device_only:
        return "only a GPU runs it"
    if in_format not in FLOAT_OPERANDS:
        return "sums of integers"
    if kernel.memory_only:
        return "its values are not judged"
    if kernel.spec is not None:
        return "its result is a formula, no plain product"
    if not all(getattr(x, "optional", False) for x in kernel.operands.values()):
        return "it takes operands besides a and b"
    contract = kernel.contract
    batch = {"batch": 1} if contract.batched else {}
    if "row" not in contract.layout_names:
        return "its contract has no dense rows"
    for K in sorted({PROBE_K, *SIZES}):
        if not contract.admits({"M": M, "N": N, "K": K, **batch}):
            return f"its contract has no {M} x {K} by {K} x {N}"
    return None


def unbatch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of 3-D operands as one of 2-D operands: a batch of one."""

    def single(a: Any, b: Any) -> Any:
        return function(a[None], b[None])[0]

    return single


def simulate_product(
    function: Callable[..., Any], in_format: str, target: str | None, config: int = 0
) -> Product:
    """Return the wrapper as a product of storage arrays, its kernels run by the tile simulator.

    `config` is the index of the configuration of autotuned kernels.
    """
    from gemmproof.reference.simulator import run

    def product(a: Array, b: Array) -> Array:
        tensors = [as_tensor(x, in_format) for x in (a, b)]
        done = run(function, *tensors, target=target, config=config, seconds=SECONDS)
        return _array(done.result)

    return product


def launch_product(function: Callable[..., Any], in_format: str, device: str = "cuda") -> Product:
    """Return the wrapper as a product of storage arrays, its kernels launched on `device`."""

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

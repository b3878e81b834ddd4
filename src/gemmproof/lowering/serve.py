"""What a worker does for `gemmproof lowering`: capture a wrapper's launches, compile each, tell."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from gemmproof.lowering.capture import CapturedLaunch, capture_launches, join_launches
from gemmproof.lowering.compile import compile_launch
from gemmproof.lowering.facts import tell
from gemmproof.lowering.record import LoweredLaunch
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import operands
from gemmproof.properties.kernel import KernelUnderTest, Misstated
from gemmproof.reference.fake_cuda import explain_lack
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.provenance import tell_error
from gemmproof.reference.simulation import CompileError, SimulatorError
from gemmproof.target import TargetError, display_path, line_of, require_case
from gemmproof.worker.protocol import Listener, Request

# of each axis, where neither the command nor the contract says another
SIZE, BATCH = 1024, 4


def serve(
    request: Request, find_kernel: Callable[[Request], KernelUnderTest], emit: Listener
) -> None:
    """In the worker: each launch of the kernel that the request names, for its GPU.

    `plan`: `sizes` and `layouts` by name, `every` configuration or one, `room` for files, and
    `done`, how many launches an earlier worker told of. A launch is announced before it is
    compiled, so that who watches knows of which one a worker died.
    """
    emit({"event": "ready"})
    kernel = find_kernel(request)
    cases = choose_cases(request, kernel)
    plan, gpu = request.plan, request.gpu or ""
    found: list[tuple[Case, CapturedLaunch]] = []
    for case in cases:
        made = join_launches(capture_case(kernel, case, gpu, plan["every"]))
        if not made:
            raise TargetError(f"{kernel.name}: got no launch of a Triton kernel, expected one")
        found += [(case, launch) for launch in made]
    for i, (case, launch) in enumerate(found[plan["done"] :], plan["done"]):
        told = " ".join(f"{name}={x}" for name, x in launch.configuration.items())
        shown = f"{launch.kernel} {case.dtype} for {gpu}: {told}"
        about = {"case": shown, "phase": "compile", "index": i, "of": len(found)}
        emit({"event": "case", **about})
        lowering = lower_launch(launch, case.dtype, plan)
        emit({"event": "lowered", "lowering": lowering.to_dict()})
    emit({"event": "compiled", "launches": len(found)})


def choose_cases(request: Request, kernel: KernelUnderTest) -> list[Case]:
    """A case for each format: the one that is stated, or the largest usual sizes admitted."""
    if request.case is not None:
        cases = [Case.from_json(request.case)]
    else:
        cases = [make_case(request, kernel, name) for name in kernel.contract.formats]
    for case in cases:
        require_case(kernel, case)
    return cases


def make_case(request: Request, kernel: KernelUnderTest, dtype: str) -> Case:
    """The case of a format: the sizes and layouts of the plan, or the largest usual ones."""
    contract, stated = kernel.contract, request.plan["sizes"]
    axes = ("M", "N", "K", "batch") if contract.batched else ("M", "N", "K")
    for axis in stated:
        if axis not in axes:
            raise TargetError(f"--sizes: got {axis}, expected one of {' '.join(axes)}")
    sides: dict[str, Any] = {}
    for axis in axes:
        most = BATCH if axis == "batch" else SIZE
        usual = (most >> n for n in range(most.bit_length()))
        admitted = [n for n in usual if n in contract.sizes(axis)]
        low = contract.sizes(axis).low
        sides[axis] = stated.get(axis) or (admitted[0] if admitted else low)
    if not stated and not contract.admits(sides):
        got = " ".join(f"{axis}={n}" for axis, n in sides.items())
        expected = "sizes that the contract admits: --sizes"
        raise TargetError(f"{kernel.name}: got {got}, expected {expected}")
    sides |= {"dtype": dtype, "layouts": tuple(request.plan["layouts"].items())}
    try:
        return Case(**sides)
    except ValueError as mistake:
        raise TargetError(str(mistake)) from None


def capture_case(
    kernel: KernelUnderTest, case: Case, gpu: str, every: bool
) -> list[CapturedLaunch]:
    """What a call of the wrapper launches. Raises TargetError, in one line, for what it raises."""
    with explain_capture(kernel.name, gpu):
        tensors = {name: x.tensor for name, x in operands(case, kernel).items()}
        with capture_launches(gpu, every) as made, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel.call(case, tensors)
    return made


@contextmanager
def explain_capture(name: str, gpu: str) -> Iterator[None]:
    """Within it what a wrapper raises becomes a TargetError, in one line with its place."""
    try:
        yield
    except Misstated as error:
        raise TargetError(f"{name}: {error}") from None
    except SimulatorError as error:
        raise TargetError(str(error)) from None
    except Exception as error:
        lack = explain_lack(error, GPUS[gpu])
        if lack is not None:
            raise TargetError(str(lack)) from None
        where = line_of(error)
        if where is None:  # no line of the target's is to blame
            raise
        said = f"{where}: got {tell_error(error)}, expected launches for {gpu}"
        raise TargetError(said) from None


def lower_launch(launch: CapturedLaunch, dtype: str, plan: dict[str, Any]) -> LoweredLaunch:
    """A launch's record: its facts, or the compiler's message."""
    known = LoweredLaunch(
        target=launch.gpu,
        kernel=launch.kernel,
        dtype=dtype,
        configuration=launch.configuration,
        configurations=launch.configurations,
        grid=launch.grids[0] if launch.grids else None,
        launches=len(launch.grids),
        specialised=launch.specialised,
        warps=int(launch.options.num_warps),
        stages=int(launch.options.num_stages),
    ).to_dict()
    try:
        made = compile_launch(launch, Path(plan["room"]))
    except CompileError as error:
        where = error.where
        place = "" if where is None else f"{display_path(where.file)}:{where.line}"
        return LoweredLaunch.from_dict({**known, "error": error.message, "where": place})
    binary = made.asm["cubin" if "cubin" in made.asm else "hsaco"]
    known |= {"seconds": round(made.seconds, 3), "binary": sha256(binary).hexdigest()}
    return LoweredLaunch(**_keep_records(known | tell(made)))


def _keep_records(fields: dict[str, Any]) -> dict[str, Any]:
    """Of `to_dict`, whose empty lists are no records."""
    return {**fields, "grid": None if fields["grid"] is None else tuple(fields["grid"])}

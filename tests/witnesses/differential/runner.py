"""Run drawn programs on the simulator and on Triton's interpreter.

In tests/witnesses/differential:
python runner.py FIRST COUNT        compare, and print each difference
python runner.py --show SEED        print a program
"""

from __future__ import annotations

import runpy
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    tests = Path(__file__).parents[2]
    sys.path[:0] = [str(tests / "witnesses"), str(tests / "support"), str(tests.parent / "src")]

import numpy as np
import torch
from tests.support.interpreter_process import start_interpreter
from tests.witnesses.differential.generator import draw_program, write_module
from tests.witnesses.differential.writer import Operand, Program

BATCH = 250  # programs in one module, one process of the interpreter
Answer = dict[str, np.ndarray] | str


def fill(operand: Operand, seed: int) -> np.ndarray:
    """Return the values of an operand: extremes and small numbers, more often than not."""
    rng = np.random.default_rng((seed, int(operand.name[1:])))
    n = operand.size
    if operand.dtype == "int1":
        return rng.integers(0, 2, n).astype(bool)
    if operand.dtype.startswith("float"):
        edges = [0.0, -0.0, 1.0, -1.0, 0.5, 65504.0, 6e-8, np.inf, -np.inf, np.nan, 3.0, 1e-3]
        values = np.where(rng.random(n) < 0.3, rng.integers(-9, 9, n), rng.normal(size=n) * 4)
        some = np.where(rng.random(n) < 0.2, rng.choice(edges, n), values)
        return some.astype(operand.dtype)
    info = np.iinfo(operand.dtype)
    raw = np.frombuffer(rng.bytes(n * info.bits // 8), operand.dtype)
    small = rng.integers(0 if info.min == 0 else -9, 9, n).astype(operand.dtype)
    extremes = np.array([info.min, info.max, info.min + 1, info.max - 1, 0], operand.dtype)
    choice = rng.random(n)
    return np.where(choice < 0.4, small, np.where(choice < 0.55, rng.choice(extremes, n), raw))


def wrapper_of(kernel: Any, program: Program) -> Callable[..., list[torch.Tensor]]:
    """The function that launches a program on its inputs and returns what it stored."""

    def call(*inputs: torch.Tensor) -> list[torch.Tensor]:
        given = iter(inputs)
        arguments: list[Any] = []
        results = []
        for operand in program.operands:
            if operand.kind == "number":
                arguments.append(operand.value)
                continue
            if operand.kind == "input":
                arguments.append(next(given))
                continue
            if operand.kind == "shared":
                tensor = next(given).clone()
            else:
                dtype = torch.bool if operand.dtype == "int1" else getattr(torch, operand.dtype)
                tensor = torch.zeros(operand.size, dtype=dtype, device=inputs[0].device)
            results.append(tensor)
            arguments.append(tensor)
        kernel[program.grid](*arguments)
        return results

    return call


def inputs_of(program: Program) -> list[torch.Tensor]:
    """The tensors that a program is called with."""
    operands = [o for o in program.operands if o.kind in ("input", "shared")]
    return [torch.from_numpy(fill(o, program.seed).copy()) for o in operands]


def results_by_name(program: Program, results: list[torch.Tensor]) -> dict[str, np.ndarray]:
    """Return the results of a program, by parameter; a NaN has the same bits everywhere."""
    names = [o.name for o in program.operands if o.kind in ("shared", "output")]
    arrays = {n: x.numpy().copy() for n, x in zip(names, results, strict=True)}
    for x in arrays.values():
        if x.dtype.kind == "f":
            x[np.isnan(x)] = np.nan
    return arrays


def interpret(kernels: Any, program: Program) -> Answer:
    """Return the results of a program under Triton's interpreter."""
    try:
        call = wrapper_of(kernels[f"kernel{program.seed}"], program)
        return results_by_name(program, call(*inputs_of(program)))
    except Exception as error:
        return "".join(traceback.format_exception(error)[-12:])


def simulate(kernels: Any, program: Program) -> Answer:
    """Return the results of a program on the simulator, which finds no fault in it."""
    from gemmproof.reference.simulator import run

    try:
        call = wrapper_of(kernels[f"kernel{program.seed}"], program)
        seen = run(call, *inputs_of(program))
        if seen.faults:
            return f"false finding: {seen.faults[0]}"
        return results_by_name(program, seen.result)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def mend_interpreter() -> None:
    """Patch triton.language once, not at every call of a helper; make comparisons int1.

    A comparison's handle has the type of its operands: a scalar one that is splat over a block
    becomes integers. Overflow checks, which assert nothing here, go too.
    """
    from dataclasses import replace

    import triton.language as tl
    from triton.runtime import interpreter

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.rewrite()(*args, **kwargs)

    interpreter._patch_lang(tl.standard.sum.fn)
    interpreter.InterpretedFunction.__call__ = call
    builder: Any = interpreter.interpreter_builder
    for name in dir(builder):
        if name.startswith(("create_icmp", "create_fcmp")):
            setattr(builder, name, _as_truth(getattr(builder, name), interpreter.TensorHandle))
    builder.options = replace(builder.options, sanitize_overflow=False)
    _mend_operations(builder, interpreter.TensorHandle)


def _mend_operations(builder: Any, handle: Any) -> None:
    """Replace operations that the interpreters before Triton 3.9 get wrong by those of 3.9.

    They add truth values as `or` and refuse to subtract them, refuse to negate the bits of unsigned
    integers, shift in place of what was shifted, round a fused multiply-add twice, and of a number
    and NaN give NaN.
    """
    from triton._C.libtriton import ir
    from triton.runtime import interpreter

    def modulo_2(usual: Any) -> Any:
        def operate(x: Any, y: Any) -> Any:
            return builder.binary_op(x, y, np.bitwise_xor if x.data.dtype == bool else usual)

        return operate

    def all_ones(kind: Any) -> Any:
        return handle(~np.zeros(1, interpreter._get_np_dtype(kind)), kind.scalar)

    def ashr(x: Any, y: Any) -> Any:
        signed = (handle(side.data.view(f"i{side.data.itemsize}"), side.dtype) for side in (x, y))
        return builder.binary_op(*signed, np.right_shift)

    def fma(x: Any, y: Any, z: Any) -> Any:
        exact = x.data.astype(np.float64) * y.data + z.data  # floats are drawn of 32 bits at most
        return handle(exact.astype(z.data.dtype), z.dtype.scalar)

    def clamp(x: Any, low: Any, high: Any, propagate: Any) -> Any:
        if propagate != ir.PROPAGATE_NAN.NONE:
            return builder.ternary_op(x, low, high, np.clip)
        return builder.binary_op(builder.binary_op(x, low, np.fmax), high, np.fmin)

    builder.create_add, builder.create_sub = modulo_2(np.add), modulo_2(np.subtract)
    builder.get_all_ones_value, builder.create_ashr = all_ones, ashr
    builder.create_minnumf = lambda x, y: builder.binary_op(x, y, np.fmin)
    builder.create_maxnumf = lambda x, y: builder.binary_op(x, y, np.fmax)
    builder.create_fma, builder.create_clampf = fma, clamp


def _as_truth(compare: Any, handle: Any) -> Any:
    """A comparison whose result is known to be int1."""
    import triton.language as tl

    return lambda x, y: handle(compare(x, y).data, tl.int1)


def find_difference(program: Program, theirs: Answer, ours: Answer) -> str | None:
    """Return the first difference in a result of a program, or None if there is none."""
    if isinstance(theirs, str) or isinstance(ours, str):
        sides = (("interpreter", theirs), ("simulator", ours))
        return "; ".join(f"{n}: {x}" for n, x in sides if isinstance(x, str))
    for name, expected in theirs.items():
        got = ours[name]
        if got.tobytes() != expected.tobytes():
            raw = [x.view(f"u{x.itemsize}") for x in (got, expected)]
            at = int(np.flatnonzero(raw[0] != raw[1])[0])
            return f"{name}[{at}] ({got.dtype}): got {got[at]}, expected {expected[at]}"
    return None


def describe(program: Program, difference: str) -> str:
    """Describe a difference, with the command that reproduces it."""
    again = f"python tests/witnesses/differential/runner.py {program.seed} 1"
    return f"seed {program.seed}: {difference}\nagain: {again}\n{program.source}"


def compare(first: int, count: int) -> Iterator[tuple[Program, str | None]]:
    """Each program of these seeds with its first difference."""
    programs = [draw_program(seed) for seed in range(first, first + count)]
    with tempfile.TemporaryDirectory() as folder, start_interpreter() as call:
        path = Path(folder) / f"drawn_{first}.py"
        path.write_text(write_module(programs))
        answers = call("tests.witnesses.differential.runner:interpret_all", path, first, count)
        kernels = runpy.run_path(str(path))
        for program, theirs in zip(programs, answers, strict=True):
            yield program, find_difference(program, theirs, simulate(kernels, program))


def interpret_all(path: Path, first: int, count: int) -> list[Answer]:
    """Return the results of the programs of a module under Triton's interpreter."""
    mend_interpreter()
    kernels = runpy.run_path(str(path))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [interpret(kernels, draw_program(seed)) for seed in range(first, first + count)]


def main(argv: list[str]) -> int:
    """Run the command line; return 1 if a program differs."""
    if argv[0] == "--show":
        print(write_module([draw_program(int(argv[1]))]))
        return 0
    first, count = int(argv[0]), int(argv[1])
    started, differing = time.perf_counter(), 0
    for begin in range(first, first + count, BATCH):
        for program, difference in compare(begin, min(BATCH, first + count - begin)):
            if difference is not None:
                differing += 1
                print(describe(program, difference), flush=True)
    print(f"{count} programs, {differing} differ, {time.perf_counter() - started:.0f} s")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

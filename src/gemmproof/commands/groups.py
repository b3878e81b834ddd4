"""The options that several commands take, by group, and what workers are asked by them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gemmproof.engine.request import CheckRequest
from gemmproof.options import argument, flag, option, spell
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import ANY, HUGE
from gemmproof.properties.contract import AXES, Contract, SizesWord
from gemmproof.reference.formats import ACCUMULATORS, OPERANDS, RESULTS
from gemmproof.reference.gpus import GPUS, TARGETS, UNMODELLED
from gemmproof.settings import EXAMPLES
from gemmproof.spelling import format_of, one_of, write_command
from gemmproof.target import Calling, KernelRef, Target

if TYPE_CHECKING:
    from gemmproof.worker.load_kernel import RegisteredKernel
    from gemmproof.worker.supervisor import Limits

TARGET = "file.py:function or module:function"
JSON = "write the report (- for stdout)"
_USUAL = Contract()


# -- values --------------------------------------------------------------------------------------
def _read_integer(text: str, least: int) -> int:
    most = 2**31 - 1
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected an integer {least}..{most}")
    return int(text)


positive, natural = partial(_read_integer, least=1), partial(_read_integer, least=0)


def read_number(text: str, most: float, noun: str = "a number") -> float:
    """Return a number from 0 to the largest. Raises ArgumentTypeError, in one line."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:  # NaN is not within either
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {noun} of 0..{most:g}")
    return number


def read_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Return NAME=VALUE,... as pairs, the last of each name."""
    return tuple(dict(word.partition("=")[::2] for word in text.split(",")).items())


def write_pairs(pairs: Iterable[tuple[str, Any]]) -> str:
    return ",".join(f"{name}={value}" for name, value in pairs)


def _read_sizes(text: str) -> tuple[tuple[str, str], ...]:
    sizes = read_pairs(text)
    if any(axis not in AXES for axis, _ in sizes):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected such as M=1..4096,K=16..:16")
    return sizes


def _read_gpus(text: str) -> tuple[str, ...]:
    return tuple(map(one_of(*GPUS), text.split(",")))


def _read_operations(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not all(map(str.isidentifier, names)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected names such as add,relu")
    return names


def _read_expected(text: str) -> tuple[str, str]:
    name, _, reason = text.partition("=")
    if not name.strip() or not reason.strip():
        example = "stays_in_bounds=reads past K by one, issue 12"
        raise argparse.ArgumentTypeError(f"got {text!r}, expected such as {example!r}")
    return name.strip(), reason.strip()


# -- single options ------------------------------------------------------------------------------
quiet_flag = partial(flag, "print no progress on stderr")
batched_flag = partial(flag, "3-D operands (the default for a function named bmm)")
jobs_option = partial(option, "N", "workers at a time (default: the number of CPUs)", positive)
conftest_option = partial(option, "FILE", "the file that registers kernels", str, "conftest.py")
output_file = partial(option, "FILE", is_output=True)
accumulator_option = partial(
    option, "FORMAT",
    "format of the accumulator (default %(default)s; e8m13: fp8 tensor cores without promotion)",
    format_of(*ACCUMULATORS), _USUAL.accumulator,
)  # fmt: skip
out_format_option = partial(option, "FORMAT", "format of c (default: any)", format_of(*RESULTS))
expected_option = partial(
    option, "PROPERTY=REASON",
    "a property that is expected to fail, and why, repeatable; a finding if it holds",
    _read_expected, write="=".join, name="expect", repeated=True,
)  # fmt: skip
saved_cases_option = partial(
    option, "DIR", "folder where failing cases are saved, to be run first the next time"
    " (default .gemmproof beside the nearest pyproject.toml or conftest.py)",
    negated="save no failing cases and run no saved ones",
)  # fmt: skip
annotations_option = partial(
    option, "HOW",
    "github: annotate lines and append to the job summary; none: do not; auto (default): in GitHub"
    " Actions only",
    one_of("auto", "github", "none"), "auto",
)  # fmt: skip


def formats_option(
    known: tuple[str, ...] = OPERANDS, default: tuple[str, ...] = (), usual: str = "fp16"
) -> Any:
    """Declare the formats of a and b."""
    text = f"format of a and b, repeatable (default {usual}): {' '.join(OPERANDS)}"
    return option("FORMAT", text, format_of(*known), default, repeated=True)


# -- groups --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ContractOptions:
    """The guarantees of a kernel; `sizes` are those of each axis, as text."""

    title: ClassVar = "the contract: what the kernel guarantees"

    dtype: tuple[str, ...] = formats_option()
    sizes: tuple[tuple[str, str], ...] = option(
        "AXIS=SIZES,...", "sizes of M, N, K and batch (default 1 and up): M=1..4096,K=16..:16,N=1",
        _read_sizes, (), write=write_pairs
    )  # fmt: skip
    where: str | None = option(
        "CONDITION", 'a further condition on the sizes: "K %% 32 == 0 and M <= N"'
    )
    layouts: str = option(
        "LAYOUTS",
        "contiguous: a and b are dense and row-major (default); any: every view whose offsets are"
        " below 2**31",
        one_of("contiguous", "any"), str(_USUAL.layouts)
    )  # fmt: skip
    huge: bool = flag(
        "also offsets of 2**31 elements or more, in c and, with --layouts any, in a and b"
    )
    batched: bool = batched_flag()
    accumulator: str = accumulator_option()
    out_dtype: str | None = out_format_option()
    any_order: bool = flag("the bits of c may depend on the order of programs")
    batch_invariant: bool = flag("the bits of a row of c do not depend on M")
    tensor_cores: bool = flag("every dot compiles to tensor core instructions")
    spills: int | None = option(
        "BYTES", "at most this many bytes of registers are spilled per thread", natural
    )
    fits: tuple[str, ...] = option(
        "GPU,...",
        "the compiled kernel fits the shared memory and registers of these GPUs; --tensor-cores and"
        " --spills are checked for them too", _read_gpus, repeated=True, separator=","
    )  # fmt: skip
    host_epilogue: tuple[str, ...] = option(
        "OPERATION,...",
        "operations of torch that the wrapper may apply to what its kernels computed: add,relu",
        _read_operations, repeated=True, separator=","
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The cases that are drawn, and the GPU whose bits are predicted."""

    max_examples: int = option("N", "number of cases per format", positive, EXAMPLES)
    seed: int = option("S", "seed for drawing cases", natural, 0)
    gpu: str | None = option(
        "GPU", f"predict the dot products of this GPU (default: exact IEEE): {' '.join(TARGETS)};"
        f" compile for it, with exact IEEE dot products: {' '.join(UNMODELLED)}",
        one_of(*TARGETS, *UNMODELLED), name="target"
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """The ways to judge a kernel: by one case or all, by proofs, on a GPU, by compiled code."""

    device: str = option(
        "DEVICE",
        "cuda: also launch on the GPU what held in simulation (default cpu: simulate only)",
        one_of("cpu", "cuda"), "cpu"
    )  # fmt: skip
    case: str | None = option("JSON", "check only this case")
    proof: bool = flag(
        "first try to prove each property for every size", default=True,
        write={True: "yes", False: "no"}.__getitem__, negated="check cases only, without proofs"
    )  # fmt: skip
    check_model: bool = flag(
        "compile each launch that is predicted for --target, and compare the instructions with the"
        " model that the prediction uses"
    )  # fmt: skip
    saved_cases: str | bool | None = saved_cases_option()


@dataclass(frozen=True, slots=True)
class FormOptions:
    """The files that a report is written to."""

    json: str | None = output_file(JSON)
    junit: str | None = output_file("write the report as JUnit XML")
    sarif: str | None = output_file("write the findings that have a source line as SARIF 2.1.0")
    codequality: str | None = output_file("write the same findings as a GitLab code quality report")
    annotations: str = annotations_option()


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The limits of a worker process."""

    title: ClassVar = "limits of a worker process"
    time_limit: int = option(
        "S", "seconds of counted work per call, or seconds without progress", positive, 30
    )
    memory_limit: int = option("GIB", "GiB of memory in total", positive, 8)

    @property
    def limits(self) -> Limits:
        """The limits as a supervisor takes them."""
        from gemmproof.worker.supervisor import Limits  # pytest imports this module in every run

        return Limits(case=self.time_limit, memory=self.memory_limit << 30)


def ask_judge(request: CheckRequest, judge: JudgeOptions) -> CheckRequest:
    """Return the request with the case, the proofs and the launches of the options."""
    return replace(
        request,
        case=judge.case,
        launch=judge.device == "cuda",
        proof=judge.proof,
        check_model=judge.check_model,
    )


# -- a kernel that is named by TARGET ------------------------------------------------------------
def ask_check(
    target: Target,
    contract: ContractOptions,
    calling: Calling,
    search: SearchOptions,
    case_text: str | None = None,
    expected: Iterable[tuple[str, str]] = (),
) -> CheckRequest:
    """Return the request to check TARGET. Raises ValueError, in one line."""
    case = None if case_text is None else Case.from_json(case_text)
    kernel = calling.state(target.name)
    if case is not None:
        kernel.require(case)
    declared = contract_of(contract, target, case, expected)
    ref = KernelRef(target.name, None, target, declared, calling)
    return CheckRequest(ref, case=case_text, **asdict(search))


def contract_of(
    options: ContractOptions,
    target: Target,
    case: Case | None = None,
    expected: Iterable[tuple[str, str]] = (),
) -> Contract:
    """Return the contract of the options; a single case widens it to the least that admits it."""
    names = tuple(dict.fromkeys(options.dtype)) or (case.dtype if case else "fp16",)
    batched = options.batched or target.name == "bmm"
    if case and case.dtype not in names:
        raise ValueError(
            f"case dtype: got {case.dtype}, expected one of --dtype: {' '.join(names)}"
        )
    if case and batched and case.batch is None:
        raise ValueError("case: got no batch, expected one for 3-D operands")
    sizes = dict.fromkeys(AXES, "1..") | dict(options.sizes)
    contract = Contract(
        formats=names,
        M=sizes["M"],
        N=sizes["N"],
        K=sizes["K"],
        batch=sizes["batch"],
        where=options.where,
        layouts=options.layouts,
        huge=options.huge,
        batched=batched or (case is not None and case.batch is not None),
        accumulator=options.accumulator,
        out=options.out_dtype,
        deterministic=not options.any_order,
        batch_invariant=options.batch_invariant,
        tensor_cores=options.tensor_cores,
        spills=options.spills,
        fits=tuple(dict.fromkeys(options.fits)),
        host_epilogue=tuple(dict.fromkeys(options.host_epilogue)),
        expected=dict(expected),
    )
    return contract if case is None else widen_to(contract, case)


def widen_to(contract: Contract, case: Case) -> Contract:
    """Return the contract widened by what a case needs: empty sides, its layouts, offsets."""
    huge = contract.huge or case.is_sampled or any(layout in HUGE for _, layout in case.layouts)
    layouts = ANY if case.layouts else contract.layouts
    sizes: dict[str, SizesWord] = {axis: contract.sizes(axis) for axis in AXES}
    for axis, n in case.sides.items():
        if n not in contract.sizes(axis):
            sizes[axis] = f"{min(n, contract.sizes(axis).low)}.."
    M, N, K, batch = sizes.values()
    wider = replace(contract, layouts=layouts, huge=huge, M=M, N=N, K=K, batch=batch)
    return wider if wider.admits(case.sides) else replace(wider, where=None)


# -- a kernel that a conftest.py registers, in place of TARGET -----------------------------------
@dataclass(frozen=True, slots=True)
class KernelOptions:
    """A target, or the names of kernels that a conftest.py registers."""

    target: str | None = argument("TARGET", f"{TARGET}, or --kernel", default=None)
    kernel: tuple[str, ...] = option(
        "NAME", "a kernel registered in conftest.py, instead of TARGET (repeatable with mutate)",
        repeated=True
    )  # fmt: skip
    conftest: str = conftest_option()

    @property
    def arguments(self) -> list[str]:
        """The arguments that name the kernel."""
        return spell(self) if self.kernel else [str(self.target)]


def is_registered(
    choice: KernelOptions, formats: tuple[str, ...], given: Sequence[str], several: bool = False
) -> bool:
    """Return whether --kernel is given in place of TARGET.

    Raises ValueError, in one line, for both and for neither, for a missing conftest.py, for options
    that it replaces, of which `given` are the arguments, and for more formats or kernels than one.
    """
    if (choice.target is None) == (not choice.kernel):
        got = "both" if choice.target else "neither"
        raise ValueError(f"target: got {got} of TARGET and --kernel, expected one of them")
    if not choice.kernel:
        return False
    if not Path(choice.conftest).is_file():
        got = f"{choice.conftest!r} (no such file)"
        raise ValueError(f"--conftest: got {got}, expected a conftest.py that registers kernels")
    if given:
        name = given[0].partition("=")[0]
        raise ValueError(f"{name}: got it with --kernel, expected it in {choice.conftest}")
    if len(formats) > 1:
        raise ValueError(f"--dtype: got {' '.join(formats)} with --kernel, expected one at most")
    if len(choice.kernel) > 1 and not several:
        raise ValueError(f"--kernel: got {' '.join(choice.kernel)}, expected one")
    return True


def refer_to_registered(choice: KernelOptions, formats: tuple[str, ...]) -> KernelRef:
    """Return the reference to the registered kernel, at one format if one is given."""
    (name,), fmt = choice.kernel, (*formats, "")[0]
    return KernelRef(name, choice.conftest, format=fmt)


def ask_registered(
    choice: KernelOptions, formats: tuple[str, ...], search: SearchOptions
) -> CheckRequest:
    """Return the request to check the registered kernel, at one format if one is given."""
    return CheckRequest(refer_to_registered(choice, formats), **asdict(search))


def list_registered(conftest: str, limits: Limits) -> tuple[RegisteredKernel, ...]:
    """Have a worker list what a conftest.py registers. Raises ValueError, in one line."""
    from gemmproof.worker.entry_points import DESCRIBE_REGISTERED
    from gemmproof.worker.load_kernel import RegisteredKernel
    from gemmproof.worker.supervisor import watch

    worker = watch(DESCRIBE_REGISTERED, KernelRef("", conftest), limits)
    if failure := worker.explain_failure(conftest):
        raise ValueError(failure)
    return worker.read_result(tuple[RegisteredKernel, ...]) or ()


# -- commands to paste ---------------------------------------------------------------------------
def spell_declared(contract: ContractOptions, calling: Calling) -> list[str]:
    """Return the arguments that declare a kernel, but for its formats."""
    return [*spell(replace(contract, dtype=())), *spell(calling)]


def replay(
    command: str, kernel: Iterable[str], gpu: str | None, case: Case | None, device: str = "cpu"
) -> str:
    """Return a command to paste, which judges this case of a kernel alone, or else its drift."""
    search, judge = spell(SearchOptions(gpu=gpu)), spell(JudgeOptions(device=device))
    asks = ["--drift"] if case is None else ["--case", case.to_json()]
    return write_command(["gemmproof", command, *kernel, *search, *judge, *asks])

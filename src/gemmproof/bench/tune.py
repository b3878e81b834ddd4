"""`gemmproof tune`: the table by which `gemmproof.kernels.gemm` chooses on this machine's GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from gemmproof.bench import command as bench
from gemmproof.commands import groups
from gemmproof.commands.output import answer, refuse, unwritable
from gemmproof.options import Command, argument, group, option
from gemmproof.properties.codec import dump
from gemmproof.report.files import Writer
from gemmproof.report.record import EXIT

if TYPE_CHECKING:
    from gemmproof.bench.record import BenchReport

SCHEMA = 1
#: The kernels among which gemm chooses.
KERNELS = (
    "matmul_tma",
    "matmul_ws",
    "matmul_streamk",
    "matmul_splitk",
    "matmul_padded",
    "matmul_swizzled",
    "matmul_grouped",
    "matmul_persistent",
    "matmul",
)


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """The options of `gemmproof tune`."""

    command: ClassVar = Command(
        "tune",
        help="measure which kernels gemm should use on this GPU",
        description="Time the kernels of gemmproof.kernels.gemm on this GPU, with b"
        " column-major, and write the table from which gemm chooses. Set"
        " GEMMPROOF_GEMM_TABLE=TABLE to use it.",
        examples=(
            "gemmproof tune gemm_table.json",
            "gemmproof tune gemm_table.json --shapes llama,decode",
        ),
        exits="0 written, 2 bad usage, or no GPU, 3 incomplete",
    )

    table: str = argument("TABLE", "JSON file to write", is_output=True)
    kernel: tuple[str, ...] = option("NAME", "only this kernel, repeatable", repeated=True)
    shapes: str = option(
        "SHAPES", "suites or MxNxK, separated by commas (default: the suites that are not batched)",
        default="square,llama,small_k,tall,wide,decode,ragged"
    )  # fmt: skip
    dtype: tuple[str, ...] = groups.formats_option(
        default=("bf16",), usual="bf16, which serves fp16 too"
    )
    rounds: int = option("N", "number of rounds, each of four timings", groups.positive, 6)
    settle: float = bench.settle_option(default=0.5)
    json: str | None = groups.output_file("write all measurements, in the format of bench")
    worker: groups.WorkerOptions = group(groups.WorkerOptions(time_limit=120))


def run(options: TuneOptions) -> int:
    """Time gemm's kernels as `gemmproof bench` does, print which is fastest, write the table."""
    if problem := unwritable(options):
        return refuse(options, problem)
    if unknown := set(options.kernel) - set(KERNELS):
        names = f"got {unknown.pop()!r}, expected one of: {' '.join(KERNELS)}"
        return refuse(options, f"--kernel: {names}")
    targets = tuple(f"gemmproof.kernels.{name}:{name}" for name in options.kernel or KERNELS)
    asked = bench.BenchOptions(
        targets,
        against=targets[0],  # torch may have no such product
        shapes=options.shapes,
        dtype=options.dtype,
        columns=True,
        rounds=options.rounds,
        settle=options.settle,
        json=options.json,
        worker=options.worker,
    )
    report = bench.measure(asked, options)
    if isinstance(report, int):
        return report
    products = list_products(report)
    summary = f"{options.table}: {len(products)} products on the {report.facts['device']}"
    written: dict[str, Writer] = {
        "table": lambda path: path.write_text(
            write_table(report.facts, products), encoding="utf-8"
        ),
        "json": bench.make_writer(report),
    }
    return answer(options, EXIT["pass"], [*list_winners(products), (summary, "")], written)


@dataclass(frozen=True, slots=True)
class TunedProduct:
    """A row of a table in kernels/tables: the speed of each kernel in one product."""

    format: str
    out_format: str
    M: int
    N: int
    K: int
    speeds: dict[str, float] = field(default_factory=dict)


def list_products(report: BenchReport) -> list[TunedProduct]:
    """Return the rows of a table, from right results only, without wrong kernels.

    Speeds are ratios to one peer, measured in turns with it: seconds change with the clocks.
    """
    from gemmproof.bench.record import CONTROL

    products: dict[tuple[str, int, int, int], TunedProduct] = {}
    for row in report.rows:
        if row.ratio is None or row.verdict == CONTROL or row.batch is not None:
            continue
        key = (row.format, row.M, row.N, row.K)
        product = TunedProduct(row.format, row.out_format, row.M, row.N, row.K)
        products.setdefault(key, product).speeds[row.kernel] = round(row.ratio.median, 3)
    return list(products.values())


def write_table(facts: Mapping[str, str], products: Iterable[TunedProduct]) -> str:
    """Return JSON with one row per line, so that a change of one product changes one line."""
    rows = ",\n".join(f"  {dump(product)}" for product in products)
    return f'{dump({"schema": SCHEMA, **facts}, indent=1)[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'


def list_winners(products: Iterable[TunedProduct]) -> list[tuple[str, str]]:
    """Return a line for each product: the fastest kernel, and the next one's share of its speed."""
    lines = []
    for product in products:
        (name, best), *others = sorted(product.speeds.items(), key=lambda pair: -pair[1])
        then = "".join(f", {other} {speed / best:.3f}" for other, speed in others[:1])
        where = f"{product.format} {product.M}x{product.N}x{product.K}"
        lines.append((f"{where:32} {name}{then}", ""))
    return lines

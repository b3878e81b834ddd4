"""The fastest kernels for products, on the GPUs where they were measured."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..descriptors import ALIGNMENT

SCHEMA = 1
#: A user's table, which takes precedence over those of this folder.
VARIABLE = "GEMMPROOF_GEMM_TABLE"

#: Rows of c up to which a product is bound by memory: timings there say nothing about others.
FEW_ROWS = 64
#: Bytes of an element.
SIZES = {
    **dict.fromkeys(("fp8e4m3", "fp8e5m2", "int8"), 1),
    **dict.fromkeys(("fp16", "bf16"), 2),
    **dict.fromkeys(("fp32", "tf32", "int32"), 4),
}
#: Formats of one width and one unit: the fastest kernel for one is so for the other.
ALIKE = (("fp16", "bf16"), ("fp8e4m3", "fp8e5m2"))


@dataclass(frozen=True, slots=True)
class Measured:
    """One product of dense operands, b column-major, and the speed of kernels relative to one peer.

    `format` is that of a and b, `out_format` that of c, by the names that gemmproof gives them.
    """

    format: str
    out_format: str
    M: int
    N: int
    K: int
    speeds: dict[str, float]

    @property
    def described(self) -> bool:
        """True if the copy engine could address a, b and c."""
        pitches = (self.K * SIZES[self.format], self.N * SIZES[self.out_format])
        return self.format != "fp32" and all(pitch % ALIGNMENT == 0 for pitch in pitches)

    def find_fastest(self, allowed: Callable[[str], bool]) -> str | None:
        """Return the fastest of the allowed kernels, or None if none of them was measured."""
        kept = {name: speed for name, speed in self.speeds.items() if allowed(name)}
        return max(kept, key=kept.__getitem__, default=None)

    def measure_distance(self, M: int, N: int, K: int) -> float:
        """Return the distance of the sizes: the sum of the octaves between them, axis by axis."""
        pairs = ((self.M, M), (self.N, N), (self.K, K))
        return sum(abs(math.log2(own / max(1, theirs))) for own, theirs in pairs)


def look_up(device: str, fmt: str, described: bool, M: int, N: int, K: int) -> Measured | None:
    """Return the nearest product that was measured on a GPU of this name, or None.

    Among those of the format, or else of one that is ALIKE, with operands addressed as here, and
    of few rows or many as here.
    Raises ValueError, in one line, for a table of the user's own that cannot be read.
    """
    table = load_tables(os.environ.get(VARIABLE, "")).get(device, ())
    kin = next((formats for formats in ALIKE if fmt in formats), ())
    for formats in ((fmt,), kin):
        rows = [
            row
            for row in table
            if row.format in formats
            and row.described is described
            and (row.M <= FEW_ROWS) is (M <= FEW_ROWS)
        ]
        if rows:
            return min(rows, key=lambda row: row.measure_distance(M, N, K))
    return None


@cache
def load_tables(own: str = "") -> dict[str, tuple[Measured, ...]]:
    """The tables of this folder by the name of the GPU, with the file `own` in place of one.

    Raises ValueError, in one line, where `own` cannot be read.
    """
    tables = dict(read_table(path) for path in sorted(Path(__file__).parent.glob("*.json")))
    if own:
        try:
            device, rows = read_table(Path(own))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            raise ValueError(
                f"{VARIABLE}: got {own!r} ({reason}), expected a file that `gemmproof tune` wrote"
            ) from None
        tables[device] = rows
    return tables


def read_table(path: Path) -> tuple[str, tuple[Measured, ...]]:
    """The GPU's name, and the rows of a file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']}")
    rows = []
    for row in data["rows"]:
        speeds = {str(name): float(speed) for name, speed in row["speeds"].items()}
        M, N, K = (int(row[axis]) for axis in "MNK")
        if min(M, N, K) < 1:
            raise ValueError(f"sizes {M}x{N}x{K}")
        formats = (row["format"], row["out_format"])
        if not all(name in SIZES for name in formats):
            raise ValueError(f"formats {formats}")
        rows.append(Measured(*formats, M, N, K, speeds))
    return str(data["device"]), tuple(rows)

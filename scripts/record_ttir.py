"""Record the TTIR of the tests' kernels in tests/ttir, as the installed Triton makes it."""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import triton
from recorded_ttir import FOLDER, case_named, launches, record
from ttir_cases import existing


def main() -> None:
    possible = existing()
    texts = {
        name: record(*call)
        for name, call in launches().items()
        if (case := case_named(name)) is None or case in possible
    }
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{triton.__version__}.json.xz"
    file.write_bytes(lzma.compress(json.dumps(texts).encode(), preset=9))
    print(f"{file.name}: {len(texts)} launches, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

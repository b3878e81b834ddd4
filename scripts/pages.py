"""The pages of docs/ that are made from what the suite finds; none needs a GPU.

python scripts/pages.py --help
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
tests = (ROOT / "tests" / part for part in ("support", "corpora", "witnesses", "witnesses/ttir"))
sys.path[:0] = map(str, (ROOT, ROOT / "src", *tests))

from scripts import acceptance, outputs, strength, tensor_cores
from scripts.command import run, script


def main() -> int:
    parser, add = script(__doc__)

    cores = add("tensor-cores", tensor_cores.make_page)

    rules = add("acceptance", acceptance.make_page)
    rules.add_argument("--size", type=int, default=1024, help="M, N and K (default 1024)")

    mutants = add("strength", strength.make_page)
    mutants.add_argument("--examples", type=int, default=100, help="cases a mutant (default 100)")

    shown = add("outputs", outputs.show_outputs)
    shown.add_argument("page", type=Path)
    shown.add_argument("folder", type=Path)

    for command in (cores, rules, mutants, shown):
        command.add_argument(
            "--out", metavar="FILE", type=Path, help="the file to write (default: the page)"
        )
        command.add_argument(
            "--check",
            action="store_true",
            help="write nothing; exit 1 where the page, times apart, says something else",
        )
    return run(parser)


if __name__ == "__main__":
    sys.exit(main())

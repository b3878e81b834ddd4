"""Record on this machine's GPU what compiled casts and arithmetic give.

    python scripts/record_casts.py OUT.npz

The inputs are those of tests/recorded/casts-h200.npz. Prints how many outputs differ from the
recorded ones. Exit 0 when none does, 1 otherwise.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.recorded.casts import as_bits, as_tensor, inputs_of, launch


def main(out: str) -> int:
    known = dict(np.load(ROOT / "tests" / "recorded" / "casts-h200.npz"))
    made = {name: data for name, data in known.items() if name.startswith("in|")}
    different = total = 0
    for name in sorted(set(known) - set(made)):
        operands = [
            as_tensor(known[f"in|{source}"], source.rpartition(":")[2]).cuda()
            for source in inputs_of(name)
        ]
        made[name] = as_bits(launch(name, *operands))
        different += int((made[name] != known[name]).sum())
        total += made[name].size
    np.savez_compressed(out, **made)
    print(f"{different} of {total} outputs differ from the recorded ones")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

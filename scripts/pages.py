"""The pages of docs/ that are made from what the suite finds; none needs a GPU.

A command rewrites its page, or writes it to --out FILE. With --check it writes nothing and exits
with 1 where the page says something else, times apart.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = map(str, (ROOT, ROOT / "src"))

from scripts.command import run
from scripts.docs import (
    acceptance,
    instructions,
    markdown,
    mutation,
    public_kernels,
    schemas,
    sign_off,
    speed,
    strength,
    tensor_cores,
    versions,
)
from scripts.docs import proof_table as proofs

COMMANDS = {
    "tensor-cores": tensor_cores.make_page,
    "acceptance": acceptance.make_page,
    "strength": strength.make_page,
    "proofs": proofs.make_page,
    "public-kernels": public_kernels.make_page,
    "sign-off": sign_off.make_page,
    "speed": speed.make_page,
    "mutation": mutation.make_page,
    "instructions": instructions.make_page,
    "versions": versions.make_page,
    "schemas": schemas.make_schemas,
    "outputs": markdown.show_outputs,
}

if __name__ == "__main__":
    sys.exit(run(__doc__, COMMANDS))

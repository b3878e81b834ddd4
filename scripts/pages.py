"""Generate the tables and pictures of the pages of docs/; no command needs a GPU.

A command rewrites its page, or writes it to --out FILE. With --check it writes nothing and exits
with 1 if the page is out of date, apart from times.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = map(str, (ROOT, ROOT / "src"))

from scripts.command import run
from scripts.docs import (
    acceptance,
    draws_compared,
    instructions,
    judged_kernels,
    markdown,
    pictures,
    recorded_runs,
    references,
    tensor_cores,
    tools_compared,
)

COMMANDS = {
    "tensor-cores": tensor_cores.make_page,
    "acceptance": acceptance.make_page,
    "strength": judged_kernels.make_strength_page,
    "proofs": judged_kernels.make_proofs_page,
    "public-kernels": judged_kernels.make_styles_page,
    "sign-off": recorded_runs.make_sign_off_page,
    "speed": recorded_runs.make_speed_page,
    "mutation": recorded_runs.make_mutation_page,
    "instructions": instructions.make_page,
    "versions": recorded_runs.make_versions_page,
    "schemas": recorded_runs.make_schemas,
    "references": references.make_pages,
    "drawn-cases": draws_compared.make_page,
    "other-tools": tools_compared.make_page,
    "pictures": pictures.make_pictures,
    "outputs": markdown.show_outputs,
}

if __name__ == "__main__":
    sys.exit(run(__doc__, COMMANDS))

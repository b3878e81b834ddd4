"""The JSON Schemas of the documents that commands write, in docs/schemas."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.docs.markdown import update

from gemmproof.bench.record import BenchReport
from gemmproof.mutate.record import MutationReport
from gemmproof.properties.address_map import AddressMap
from gemmproof.properties.codec import make_schema
from gemmproof.report.record import Report

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
RECORDS: dict[str, type] = {
    "report": Report,  # check, drift, and each kernel of signoff
    "bench": BenchReport,
    "mutation": MutationReport,
    "address_map": AddressMap,  # explain
}


def make_schemas(check: bool = False) -> int:
    """Write a file for each document; exit status 1 if `check` and one is not up to date."""
    codes = []
    for name, record in RECORDS.items():
        text = json.dumps(make_schema(record), indent=1) + "\n"
        codes.append(update(FOLDER / f"{name}.json", text, check))
    return max(codes)

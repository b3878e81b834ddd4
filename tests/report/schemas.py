"""The published JSON Schemas, which documents of commands are validated with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
from scripts.docs.recorded_runs import SCHEMAS


def read_schema(name: str) -> dict[str, Any]:
    """Return the schema of docs/schemas with this name."""
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def validate(name: str, path: Path | str) -> Any:
    """Return the document in a file. Raises ValidationError if it is not as the schema says."""
    document = json.loads(Path(path).read_text())
    jsonschema.Draft202012Validator(read_schema(name)).validate(document)
    return document

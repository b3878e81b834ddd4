"""A baseline: the sign-off that an earlier run left, read back only if it is whole and unedited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gemmproof.signoff.record import SCHEMA, Signoff
from gemmproof.signoff.seal import FIELD, is_sealed

EXPECTED = "a report of `gemmproof signoff --json`"


def read_baseline(name: str) -> Signoff:
    """The sign-off in a file. Raises ValueError, in one line, for what is none or was edited."""

    def refuse(why: str) -> ValueError:
        return ValueError(f"got {name!r} ({why}), expected {EXPECTED}")

    data = read_json(name, EXPECTED)
    if not isinstance(data, dict) or "kernels" not in data:
        raise refuse("no sign-off")
    if data.get("schema") != SCHEMA:
        raise refuse(f"schema {data.get('schema')!r}, not {SCHEMA}: sign off again")
    if FIELD not in data:
        raise refuse("it has no hash")
    if not is_sealed(data):
        raise refuse("edited: its hash is not that of what it says")
    try:
        found = Signoff.from_dict(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise refuse(f"not as it is written: {type(error).__name__} {error}") from None
    if found.inputs.case is not None:
        raise refuse("of one case only")
    return found


def read_json(name: str, expected: str) -> Any:
    """What a file holds. Raises ValueError, in one line, where that is no JSON."""
    try:
        return json.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or str(error)
    except (ValueError, RecursionError) as error:
        why = f"broken JSON: {' '.join(str(error).split())}"
    raise ValueError(f"got {name!r} ({why}), expected {expected}")

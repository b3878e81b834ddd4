"""A baseline: the sign-off that an earlier run left, read back only if it is whole and unedited."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmproof.signoff.compare import compare
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
    try:
        if not is_sealed(data):
            raise refuse("edited: its hash is not that of what it says")
    except RecursionError:
        raise refuse("nested too deep") from None
    try:
        found = Signoff.from_dict(data)
        _try_out(found)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        why = " ".join(f"{type(error).__name__} {error}".split())
        raise refuse(f"not as it is written: {why}") from None
    if found.inputs.case is not None:
        raise refuse("of one case only")
    return found


def _try_out(found: Signoff) -> None:
    """Compare it with itself: whoever seals a report may write anything, which is told at once."""
    held = [replace(k, report=replace(k.report, verdict="pass")) for k in found.kernels]
    passed = replace(found, kernels=tuple(held))
    list(compare(passed, passed))


def read_json(name: str, expected: str) -> Any:
    """What a file holds. Raises ValueError, in one line, where that is no JSON."""
    try:
        return json.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or str(error)
    except RecursionError:
        why = "nested too deep"
    except ValueError as error:
        why = f"broken JSON: {' '.join(str(error).split())}"
    raise ValueError(f"got {name!r} ({why}), expected {expected}")

"""The seal of a sign-off: a hash of all that it says of inputs and results.

It tells a document that was edited by hand, or cut, from one that was written. It is no signature:
whoever can run this can seal anything.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

FIELD = "hash"
TIMES = "seconds"  # no input and no result: two runs that agree in all else have one hash


def seal(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its hash, in place of any that it has."""
    return {**document, FIELD: find_hash(document)}


def is_sealed(document: dict[str, Any]) -> bool:
    """Whether the hash is that of what the document says."""
    return document.get(FIELD) == find_hash(document)


def find_hash(document: dict[str, Any]) -> str:
    """The SHA-256 of the document as canonical JSON: keys sorted, no spaces, ASCII."""
    said = {name: value for name, value in document.items() if name != FIELD}
    text = json.dumps(_plain(said), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(x) for name, x in value.items() if name != TIMES}
    return [_plain(x) for x in value] if isinstance(value, list | tuple) else value

"""Calls of libdevice by symbol, and every symbol of Triton's own tables."""

import ast
import importlib.util
from pathlib import Path

from gemmproof.reference.libdevice import function_of


def tables():
    """(symbol, argument types, result type) of every entry in Triton's libdevice modules."""
    found = importlib.util.find_spec("triton")
    root = Path(found.submodule_search_locations[0]) / "language/extra"
    rows = []
    for vendor in ("cuda", "hip"):
        tree = ast.parse((root / vendor / "libdevice.py").read_text())
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.Dict)):
            for key, value in zip(node.keys, node.values, strict=True):
                symbol, result = value.elts
                types = tuple(t.args[0].value for t in key.elts)
                rows.append((symbol.value, types, result.args[0].value))
    return rows


ROWS = tables()


def call(symbol, *args):
    """The function of a symbol, which must be known."""
    function = function_of(symbol)
    assert function is not None, symbol
    return function(*args)

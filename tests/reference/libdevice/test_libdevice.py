"""Every symbol in Triton's own tables of libdevice has a function of its types, or a reason."""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from tests.support.rational import same_bits
from tests.support.triton_versions import holds

from gemmproof.reference.libdevice import REFUSED, function_of

DTYPES = {
    "int32": np.dtype("i4"), "int64": np.dtype("i8"), "uint32": np.dtype("i4"),
    "uint64": np.dtype("i8"), "fp32": np.dtype("f4"), "fp64": np.dtype("f8"),
}  # fmt: skip


def tables():
    """(symbol, argument types, result type) of every entry in Triton's libdevice modules."""
    spec = importlib.util.find_spec("triton")
    root = Path(spec.submodule_search_locations[0]) / "language/extra"
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


def test_the_tables_were_read():
    symbols = {symbol for symbol, _, _ in ROWS}
    assert {"__nv_expf", "__nv_umulhi", "__ocml_exp_f32"} <= symbols
    assert ("__ockl_clz_u32" in symbols) == holds("leading_zeros_on_amd")
    assert len(symbols) > 400


@pytest.mark.parametrize(("symbol", "types", "result"), ROWS, ids=lambda v: str(v))
def test_every_symbol_has_a_function_of_its_types_or_a_reason(symbol, types, result):
    if symbol in REFUSED:
        assert function_of(symbol) is None
        assert REFUSED[symbol]
        return
    args = [np.array([3, 1, 2, 0, -5]).astype(DTYPES[t]) for t in types]
    before = [a.copy() for a in args]
    y = function_of(symbol)(*args)
    assert y.dtype == DTYPES[result]
    assert y.shape == (5,)
    for a, b in zip(args, before, strict=True):
        same_bits(a, b)
    for count in (0, 1):
        assert len(function_of(symbol)(*(a[:count] for a in args))) == count


def test_the_unknown_has_no_function():
    assert function_of("__nv_frobnicate") is None
    assert all(symbol in {row[0] for row in ROWS} for symbol in REFUSED)

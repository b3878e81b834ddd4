"""The TTIR of Triton 3.6, 3.7 and 3.8 is read and run whichever Triton is installed."""

import functools

import numpy as np
import pytest
from tests.witnesses.ttir.recorded_ttir import FOLDER, case_named, launches, read, replay

from gemmproof.reference.simulator import run

FILES = sorted(FOLDER.glob("*.json.xz"))
RECORDED = [(file, name) for file in FILES for name in read(file)]
CALLS = launches()
texts_of = functools.cache(read)


def ids(x):
    return x.name.removesuffix(".json.xz") if hasattr(x, "name") else x


def test_each_older_triton_is_recorded():
    assert [file.name.rpartition(".json")[0][:3] for file in FILES] == ["3.6", "3.7", "3.8"]
    assert all(len(read(file)) >= 25 for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=ids)
def test_no_path_of_a_machine_is_recorded(file):
    for texts in read(file).values():
        for text in texts:
            assert 'loc("' in text
            assert 'loc("/' not in text


def facts(seen):
    return [(f.kind, f.operand, f.axis, f.programs, f.lanes) for f in seen.faults]


@pytest.mark.parametrize(("file", "name"), RECORDED, ids=ids)
def test_a_recorded_kernel_does_what_todays_does(file, name):
    seen = replay(texts_of(file)[name], *CALLS[name])
    case = case_named(name)
    if case is None:
        today = run(*CALLS[name][:1], *CALLS[name][1])
        assert seen.result.equal(today.result)
        assert facts(seen) == facts(today)
        return
    assert seen.faults == []
    for got, expected in zip(seen.result, case.expected, strict=True):
        np.testing.assert_array_equal(got.numpy(), expected)

"""The paths of a wrapper, configuration by configuration, and what they leave out."""

import pytest
from tests.corpora.mutants import refused
from tests.corpora.tiled import plain
from tests.reference.symbolic import traced_wrappers

from gemmproof.engine.kernel_check import check
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import domain as paths
from gemmproof.properties.proof.domain import (
    EVERY_PATH_RAISES,
    TraceCache,
    TracedPath,
    Untraced,
    iter_traced_paths,
    list_domains,
)
from gemmproof.properties.proof.prove import prove
from gemmproof.reference.fake_cuda import fake_gpu
from gemmproof.target import load_file


def trace(launch, see=None):
    """The parts of the first domain of a wrapper, by configuration."""
    kernel = KernelUnderTest("kernel", launch, Contract(("fp16",)))
    domain = next(iter(list_domains(kernel)))
    return list(iter_traced_paths(kernel, domain, None, TraceCache(), lambda: float("inf"), see))


def tuned_or_plain(a, b):
    return traced_wrappers.tuned(a, b) if a.shape[0] > 64 else plain(a, b)


def raises(a, b):
    raise ValueError("never")


def raises_if_long(a, b):
    if a.shape[1] > 100:
        raise ValueError("too long")
    return plain(a, b)


def test_paths_come_configuration_by_configuration_and_none_is_repeated():
    batches = trace(tuned_or_plain)
    assert all(isinstance(part, TracedPath) for parts in batches for part in parts)
    launched = [[len(part.path.launches[0].constants) for part in parts] for parts in batches]
    assert [{part.config for part in parts} for parts in batches] == [{0}, {1}, {2}]
    plains = [sum("BLOCK_M" in p.path.launches[0].constants for p in parts) for parts in batches]
    assert plains == [1, 0, 0]
    assert all(launched)


def test_every_combination_of_tuners_is_a_batch():
    """Tuners in step alone would agree on a number of parts, which nothing guarantees."""
    batches = trace(traced_wrappers.tuned_twice)
    launched = [[x.constants["SPLIT"] for x in parts[0].path.launches] for parts in batches]
    assert launched == [[2, 2], [4, 4], [2, 4], [4, 2]]


def test_a_product_that_depends_on_two_tuners_is_not_proved_and_a_case_shows_it(texts):
    report = check(
        KernelUnderTest("k", traced_wrappers.tuned_twice, Contract(("fp16",))), proof=True
    )
    exact = next(p for p in report.properties if p.name == "exact_on_integers")
    assert exact.proof.status != "proved"
    finding = next(f for f in report.findings if f.property == "exact_on_integers")
    assert finding.case.config in (2, 3)
    texts("tuners that are not in step", finding.message)


def test_a_proof_holds_for_the_multiprocessors_of_every_gpu_or_says_for_which(texts):
    contract = Contract(("fp16",), layouts="contiguous")
    right = KernelUnderTest("k", traced_wrappers.persistent, contract)
    proof = prove(right, seconds=30.0).find("stores_each_element_once")
    assert proof.status == "proved"
    texts("an assumption of a proof of a persistent kernel", proof.assumptions[-1])
    short = prove(right, seconds=0.8).find("stores_each_element_once")
    assert short.status == "proved"
    assert short.assumptions[-1].startswith("a GPU of ")
    assert len(short.assumptions[-1]) < len(proof.assumptions[-1])


KEEPING = """
import torch
from tests.corpora.tiled import launch
from tests.reference.symbolic.traced_wrappers import persistent_kernel

PROPERTIES = torch.cuda.get_device_properties("cuda")
{SMS}

def matmul(a, b):
    sms = {sms}
    return launch(persistent_kernel, a, b, grid=(sms,), STEP=sms)
"""


@pytest.mark.parametrize(
    ("kept", "read"),
    [
        ("SMS = PROPERTIES.multi_processor_count", "SMS"),
        ("", "PROPERTIES.multi_processor_count"),
    ],
)
def test_a_number_that_was_read_at_import_limits_the_scope(kept, read, tmp_path, texts):
    path = tmp_path / f"kept_{len(kept)}.py"
    path.write_text(KEEPING.format(SMS=kept, sms=read))
    with fake_gpu():
        module = load_file(path)
    contract = Contract(("fp16",), layouts="contiguous")
    proof = prove(KernelUnderTest("k", module.matmul, contract)).find("stores_each_element_once")
    assert proof.status == "proved"
    texts("an assumption of a proof that rests on one number", proof.assumptions[-1])


def test_a_number_of_multiprocessors_at_which_tiles_are_left_out_is_found():
    contract = Contract(("fp16",), layouts="contiguous")
    wrong = KernelUnderTest("k", traced_wrappers.persistent_in_fours, contract)
    report = check(wrong, proof=True)
    name = "stores_each_element_once"
    assert [p.proof.status for p in report.properties if p.name == name] != ["proved"]
    assert {f.case.sms for f in report.findings if f.property == name} == {142}


def aligned_or_plain(a, b):
    return plain(a, b, BLOCK_M=32) if a.data_ptr() % 16 == 0 else plain(a, b)


def zeros_if_not_aligned(a, b):
    return plain(a, b).zero_() if a.data_ptr() % 16 else plain(a, b)


def zeros_if_it_begins_within(a, b):
    return plain(a, b).zero_() if b.storage_offset() % 8 else plain(a, b)


def zeros_at_some_addresses(a, b):
    return plain(a, b).zero_() if a.data_ptr() // 2 % 8 == 3 else plain(a, b)


@pytest.mark.parametrize(
    ("wrapper", "status"),
    [
        (zeros_if_not_aligned, "refuted"),
        (zeros_if_it_begins_within, "refuted"),
        (zeros_at_some_addresses, "refuted"),
        (aligned_or_plain, "proved"),
    ],
)
def test_operands_begin_at_any_address(wrapper, status):
    """Views begin anywhere if the contract has any layouts."""
    kernel = KernelUnderTest("k", wrapper, Contract(("fp16",), layouts="any"))
    report = check(kernel, max_examples=4, proof=True)
    assert [p.proof.status for p in report.properties if p.name == "exact_on_integers"] == [status]


def test_a_path_has_the_machine_of_each_launch():
    ((path,),) = trace(plain)
    assert len(path.machines) == len(path.path.launches) == 1
    assert {access.kind for access in path.machines[0].accesses} == {"load", "store"}


def test_what_raises_is_no_path_and_vacuous_if_nothing_else_is():
    (parts,) = trace(raises_if_long)
    assert [type(part) for part in parts] == [TracedPath]
    assert trace(raises) == [[EVERY_PATH_RAISES]]


def test_what_cannot_be_followed_is_left_out_for_a_reason(texts):
    (parts,) = trace(traced_wrappers.reads_an_element)
    assert {type(part) for part in parts} == {Untraced}
    for part in parts:
        where, _, why = part.why.partition(": ")
        assert where.startswith("traced_wrappers.py:")
        texts("a wrapper that reads an element", why.partition(" (")[0])  # torch's name follows


def test_paths_beyond_the_most_are_left_out_by_name(monkeypatch, texts):
    monkeypatch.setattr(paths, "MOST_PATHS", 1)
    ((left, path),) = trace(traced_wrappers.fast_path)
    assert isinstance(path, TracedPath)
    texts("a path beyond the most", left.why.partition(": ")[2])


def test_configurations_beyond_the_most_are_left_out(monkeypatch, texts):
    monkeypatch.setattr(paths, "MOST_CONFIGS", 2)
    ((left,),) = trace(tuned_or_plain)[2:]
    assert left == Untraced(left.why)
    texts("configurations beyond the most", left.why)


def test_a_configuration_that_does_not_compile_leaves_every_property_undecided():
    """Its launch is missing, and so is the number of configurations that it has."""
    launch = refused.one_configuration_of_24_columns
    kernel = KernelUnderTest("k", launch, Contract(layouts="any"))
    report = check(kernel, max_examples=2, proof=True)
    proofs = [p.proof for p in report.properties if p.proof is not None]
    assert {proof.status for proof in proofs} == {"not decided"}
    assert {"BLOCK_N=24" in proof.why for proof in proofs} == {True}
    assert report.findings[0].property == "compiles"


def test_each_run_is_seen_in_each_configuration():
    seen = []
    trace(tuned_or_plain, lambda case, run: seen.append((case.config, run.guards[0][0])))
    assert sorted({config for config, _ in seen}) == [0, 1, 2]
    assert len({guard for _, guard in seen}) == 2

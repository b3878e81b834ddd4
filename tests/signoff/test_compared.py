"""Changes of a sign-off against its baseline, and which of them prevent signing."""

from dataclasses import replace

import pytest
from tests.signoff.made_signoffs import FINDING, INPUTS, LIMITS, change, identity, report, signed

from gemmproof.report.record import Bits, Coverage, ProofResult
from gemmproof.signoff.record import INCOMPLETE, REFUSED, SIGNED, MutationScore, Signoff


def bits(digest):
    return Coverage({}, {"fp16": (Bits('{"M":1}', digest),)})


def open_proof(why, cut=""):
    return change("stays_in_bounds", proof=ProofResult("not decided", why=why, cut=cut))


OTHER = {"identity": identity("9")}  # of another source
NARROW = {"identity": identity(formats=("bf16",))}
FEW = replace(INPUTS, max_examples=3)
CHANGES = {
    "nothing": ({}, INPUTS, SIGNED, None),
    "source": (OTHER, INPUTS, SIGNED, "source changed: mine:matmul"),
    "proof lost": ({"properties": open_proof("a sum")}, INPUTS, REFUSED, "before, is not decided"),
    "proof refuted": (
        {"properties": change("stays_in_bounds", proof=ProofResult("refuted", why="M=3"))},
        INPUTS, REFUSED, "is refuted now: M=3",
    ),
    "no time": ({"properties": open_proof("too late", "time")}, INPUTS, INCOMPLETE, "too late"),
    "a dead prover": ({"properties": open_proof("it died", "death")}, INPUTS, INCOMPLETE, "died"),
    "proof not tried": (
        {"properties": change("stays_in_bounds", proof=None)},
        replace(INPUTS, proof=False), INCOMPLETE, "before; no proof was tried now",
    ),
    "limit": (
        {"limits": (replace(LIMITS[0], status="limit", message="c[0] wrong"),)},
        INPUTS, REFUSED, "fp32 held before; now c[0] wrong",
    ),
    "limit not tried": (
        {"limits": (replace(LIMITS[0], status="not tried", message="no time"),)},
        INPUTS, INCOMPLETE, "not tried now: no time",
    ),
    "limit moved": (
        {"limits": (LIMITS[0], replace(LIMITS[1], proof="c fits while M < 9"))},
        INPUTS, SIGNED, "the exact limit was c fits while M * N < 2**31; now c fits while M < 9",
    ),
    "guarantee": (NARROW, INPUTS, REFUSED, "fp16 is no longer guaranteed"),
    "host epilogue": (
        {"identity": identity(host_epilogue=("add", "mm"))},
        INPUTS, REFUSED, "results may be written on the host, by add mm",
    ),
    "sizes": ({"identity": identity(K="16..:16")}, INPUTS, REFUSED, "K=1 is no longer guaranteed"),
    "excuse": (
        {"identity": identity(expected={"no_races": "issue 12"})},
        INPUTS, REFUSED, "no_races is no longer guaranteed but expected to fail: issue 12",
    ),
    "excuse in words": (
        {"identity": identity(expected={"no_races": "issue 12"})},
        INPUTS, REFUSED, "contract expected: none -> no_races: issue 12",
    ),
    "claims on compiled code": (
        {"identity": identity(tensor_cores=True, spills=0, fits=("sm_90",))},
        INPUTS, SIGNED, "contract fits: none -> sm_90",
    ),
    "condition": ({"identity": identity(where="K > 2")}, INPUTS, REFUSED, "only where K > 2"),
    "wider": (
        {"identity": identity(formats=("fp16", "bf16"), layouts="any")},
        INPUTS, SIGNED, "any",
    ),
    "property": (
        {"properties": change("no_races", status="not run", examples=0), **OTHER},
        INPUTS, REFUSED, "no_races is no longer run",
    ),
    "property of fewer cases": (
        {"properties": change("no_races", status="not run", examples=0)},
        FEW, INCOMPLETE, "no_races is no longer run",
    ),
    "error": (
        {"properties": change("within_bound", ratio=0.75)},
        INPUTS, SIGNED, "the worst error of within_bound grew: 0.5 -> 0.75 of its bound",
    ),
    "bits of another source": ({"coverage": bits("zz"), **OTHER}, INPUTS, SIGNED, "bits changed"),
    "bits of nothing": ({"coverage": bits("zz")}, INPUTS, INCOMPLETE, "though source, contract"),
    "bits of another target": (
        {"coverage": bits("zz")}, replace(INPUTS, target="sm_90"), SIGNED, "bits not compared",
    ),
    "finding": ({"verdict": "fail", "findings": (FINDING,)}, INPUTS, REFUSED, "new: no_races"),
    "error of ours": ({"verdict": "error", "note": "tl.what"}, INPUTS, INCOMPLETE, "tl.what"),
}  # fmt: skip
EXIT_OF = {SIGNED: "pass", REFUSED: "fail", INCOMPLETE: "incomplete"}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_weighs_what_a_reviewer_would_expect(name):
    others, inputs, verdict, expected = CHANGES[name]
    now = signed(report(**others), inputs=inputs, baseline=signed())
    assert now.verdict == verdict
    assert now.code == ("error" if name == "error of ours" else EXIT_OF[verdict])
    shown = [change.text for change in (*now.reasons, *now.changes)]
    assert shown == [] if expected is None else any(expected in text for text in shown), shown


def test_a_claim_on_compiled_code_that_is_gone_is_refused(texts):
    claims = {"tensor_cores": True, "spills": 16, "fits": ("sm_86", "sm_90")}
    before = signed(report(identity=identity(**claims)))

    def refused(**terms):
        now = signed(report(identity=identity(**{**claims, **terms})), baseline=before)
        assert now.verdict == (REFUSED if terms else SIGNED)
        return [change.text for change in now.changes if change.kind == "guarantee"]

    assert refused() == []
    texts("a guarantee that is gone", "\n".join(refused(tensor_cores=False)))
    lost = "spills of at most 16 bytes are no longer guaranteed"
    assert refused(spills=None) == refused(spills=17) == [lost]
    texts("a GPU that is no longer guaranteed", "\n".join(refused(fits=("sm_90",))))
    less = report(identity=identity(**{**claims, "spills": 0, "fits": ("sm_80", "sm_90", "sm_86")}))
    assert signed(less, baseline=before).verdict == SIGNED


def test_a_baseline_of_before_there_were_claims_is_no_change():
    contract = identity().contract
    older = {k: x for k, x in contract.items() if k not in ("tensor_cores", "spills", "fits")}
    before = signed(report(identity=replace(identity(), contract=older)))
    now = signed(baseline=before)
    assert (now.verdict, [x.text for x in now.changes if x.kind == "contract"]) == (SIGNED, [])


def test_a_kernel_that_is_gone_is_refused_unless_others_were_asked_for():
    before = signed(report(), report("bmm"))
    removed = signed(report(), baseline=before)
    why = "gone: in the baseline, but no longer registered"
    assert (removed.verdict, removed.reasons[0].text) == (REFUSED, why)
    asked = signed(report(), baseline=before, inputs=replace(INPUTS, kernels=("matmul",)))
    why = "not compared: not named by --kernel"
    assert (asked.verdict, asked.changes[-1].text) == (SIGNED, why)
    assert signed(report(), baseline=before, left_out=("bmm",)).verdict == INCOMPLETE


def test_what_ran_on_a_gpu_and_does_not_now_is_incomplete():
    launched = replace(report().properties[1], name="equals_prediction", backend="cuda")
    on_gpu = replace(INPUTS, device="cuda")
    before = signed(report(properties=(*report().properties, launched)), inputs=on_gpu)
    assert signed(baseline=before).verdict == INCOMPLETE
    here = signed(report(**OTHER), baseline=before, inputs=on_gpu)
    why = "equals_prediction on cuda is no longer run"
    assert (here.verdict, here.reasons[0].text) == (REFUSED, why)


def test_a_known_finding_is_refused_and_called_known_and_nothing_accepts_it():
    wrong = report(verdict="fail", findings=(FINDING,))
    now = signed(wrong, baseline=signed(wrong))
    assert now.verdict == REFUSED
    assert now.reasons[0].text.startswith("known: no_races: ")
    assert signed(wrong, baseline=signed(), accepted=("finding",)).verdict == REFUSED


@pytest.mark.parametrize("accepted", ["limit", "limit:matmul"])
def test_what_is_accepted_is_told_and_does_not_weigh(accepted):
    others = CHANGES["limit"][0]
    now = signed(report(**others), baseline=signed(), accepted=(accepted,))
    assert (now.verdict, now.code) == (SIGNED, "pass")
    assert [reason.accepted for reason in now.reasons] == [True]
    for other in ("proof", "limit:bmm"):
        assert signed(report(**others), baseline=signed(), accepted=(other,)).verdict == REFUSED


def test_a_survivor_more_is_refused():
    def score(survivors):
        signoff = signed()
        kernel = replace(signoff.kernels[0], mutation=MutationScore(60, 3, survivors))
        return replace(signoff, kernels=(kernel,))

    from gemmproof.signoff.rules import compare

    assert [change.weight for change in compare(score(0), score(1))] == [REFUSED]
    assert list(compare(score(1), score(1))) == []


def test_a_report_that_does_not_say_what_cut_its_proofs_short_is_read():
    document = signed(report(properties=open_proof("a sum"))).to_dict({"matmul": lambda case: ""})
    for result in document["kernels"][0]["properties"]:
        (result["proof"] or {}).pop("cut", None)
    assert Signoff.from_dict(document).kernels[0].report == report(properties=open_proof("a sum"))


def test_a_failure_that_the_baseline_expects_already_is_no_loss():
    known = report(identity=identity(expected={"no_races": "issue 12"}))
    assert signed(known, baseline=signed(known)).verdict == SIGNED
    assert signed(baseline=signed(known)).verdict == SIGNED
    red = report(verdict="fail", properties=change("no_races", status="fail"), findings=(FINDING,))
    assert signed(known, baseline=signed(red)).verdict == SIGNED  # it failed before

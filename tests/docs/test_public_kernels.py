"""The page of public kernels has every wrapper of the list, with the verdicts of the evidence."""

import json

from scripts.public_kernels import EVIDENCE, make_page, read_list


def test_the_page_has_the_verdicts_of_the_evidence(capsys):
    assert make_page(check=True) == 0, capsys.readouterr().out


def test_every_wrapper_of_the_list_is_judged_as_it_is_declared():
    rows = json.loads(EVIDENCE.read_text(encoding="utf-8"))["wrappers"]
    wrappers = read_list()
    assert len(wrappers) >= 50
    assert [wrapper.key for wrapper in wrappers] == list(rows)
    judged = {key: (row["commit"], row["declared"]["options"]) for key, row in rows.items()}
    assert judged == {w.key: (w.commit, w.options) for w in wrappers}


def test_every_declared_verdict_is_what_the_source_deserves():
    rows = json.loads(EVIDENCE.read_text(encoding="utf-8"))["wrappers"]
    wrong = [w.key for w in read_list() if not w.is_judged_rightly(rows[w.key])]
    assert wrong == []

"""Texts in files: a change of one fails its test, and every entry is that of a test."""

import ast
from pathlib import Path

import pytest
from tests.texts import FILE, accept, compare, line_with, read_entries, replace_places

TESTS = Path(__file__).parent
FOLDERS = sorted(path.parent.name for path in TESTS.glob(f"*/{FILE}"))


def list_unused(folder: Path) -> set[str]:
    """Return the names of entries that no test of the room has as a string."""
    strings = {
        node.value
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
    }
    return read_entries(folder / FILE).keys() - strings


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_entry_is_that_of_a_test(folder):
    assert list_unused(TESTS / folder) == set()


def test_an_entry_without_a_test_is_listed(tmp_path):
    accept(tmp_path / FILE, "of a test", "x")
    accept(tmp_path / FILE, "of none", "y")
    (tmp_path / "test_x.py").write_text('def test_x(texts):\n    texts("of a test", "x")\n')
    assert list_unused(tmp_path) == {"of none"}


@pytest.mark.parametrize("text", ["", "a", "a\n", "\na\n\n", "it's 'so'", 'a\\n\t"b" # é\n', "''"])
def test_an_accepted_text_is_what_is_compared(tmp_path, text):
    path = tmp_path / FILE
    accept(path, "second", "other")
    accept(path, "first", text)
    compare(path, "first", text, "")
    assert list(read_entries(path).items()) == [("first", text), ("second", "other")]
    for wrong in (text + "\n", text + " ", "b" + text):
        with pytest.raises(AssertionError):
            compare(path, "first", wrong, "")


def test_a_changed_text_is_shown_as_a_difference_with_the_command_that_accepts_it(tmp_path):
    path = tmp_path / "room" / FILE
    path.parent.mkdir()
    accept(path, "a refusal", "one\ntwo\nthree")
    with pytest.raises(AssertionError) as caught:
        compare(path, "a refusal", "one\n2\nthree", "./run test")
    lines = str(caught.value).splitlines()
    assert lines[:2] == [f"--- room/{FILE}: a refusal", "+++ actual text"]
    assert lines[2:7] == ["@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"]
    assert lines[-1].endswith(": ./run test")
    with pytest.raises(AssertionError, match=r"\+two"):
        compare(path, "an entry that is not there", "two", "")


@pytest.mark.parametrize("text", ["\x1b[2J", "a'''b", "a\rb"])
def test_a_text_that_the_file_cannot_hold_is_refused(tmp_path, text):
    accept(tmp_path / FILE, "before", "x")
    with pytest.raises(ValueError, match=r"[a-z]"):
        accept(tmp_path / FILE, "control", text)
    assert read_entries(tmp_path / FILE) == {"before": "x"}


def test_the_fixture_compares_with_the_file_of_the_room(texts, request, monkeypatch):
    monkeypatch.setattr(request.config.option, "accept_texts", False)
    with pytest.raises(AssertionError, match=request.node.name) as caught:
        texts("an entry that is not there", "x")
    assert str(caught.value).startswith(f"--- tests/{FILE}: ")


def test_what_changes_from_run_to_run_is_replaced():
    text = "in /folder/x/a.py and /folder/x: 1.5 s of 10 s, 3.14 sizes, torch 2.13"
    places = {"folder": "/folder/x", "script": "/folder/x/a.py", "torch": "2.13"}
    replaced = replace_places(text, places)
    expected = "in <script> and <folder>: <seconds> s of 10 s, 3.14 sizes, torch <torch>"
    assert replaced == expected


def test_only_one_line_is_found():
    assert line_with("ab\nbc\n", "a") == "ab"
    for part in ("b", "x"):
        with pytest.raises(AssertionError):
            line_with("ab\nbc\n", part)

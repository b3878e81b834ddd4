"""Names and docstrings are the field's: the glossary lists the words that are refused."""

import ast
import keyword
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
REFUSED = set(re.search(r"<!-- refused -->\n(.*)\n<!--", GLOSSARY)[1].split())
PREFIXES = re.compile("_?(say|tell|hear|speak|name)_")
OF_TORCH = {"_name_template"}  # a property of torch's that a class of ours overrides
OPENINGS = {"What", "Whether", "Why", "How", "Where", "Which", "Of"}


@cache
def list_files():
    tracked = subprocess.check_output(["git", "ls-files", "*.py"], cwd=ROOT, text=True)
    paths = [ROOT / name for name in tracked.splitlines()]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def walk(node):
    """Yield the nodes below, but for those of kernels: recordings hash the source of kernels."""
    yield node
    for child in ast.iter_child_nodes(node):
        decorators = map(ast.unparse, getattr(child, "decorator_list", ()))
        if not any("jit" in decorator for decorator in decorators):
            yield from walk(child)


def identifiers(tree):
    """Yield each name that a file defines or uses, and its line."""
    for node in walk(tree):
        for field in ("id", "arg", "attr", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str) and not isinstance(node, ast.alias | ast.keyword):
                yield node.lineno, name


def is_refused(name):
    own = name not in OF_TORCH
    return own and (name.strip("_") in REFUSED or PREFIXES.match(name) is not None)


def docstrings(tree):
    for node in walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


FOLDERS = ("kernels", "reference", "properties", "src", "scripts", "tests")


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_are_those_of_the_glossary(folder):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in list_files()
        if path.relative_to(ROOT).parts[0] == folder
        for line, name in identifiers(ast.parse(path.read_text()))
        if is_refused(name)
    ]
    assert wrong == []


def test_docstrings_open_as_the_glossary_says():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in list_files()
        for line, text in docstrings(ast.parse(path.read_text()))
        if text and text.split()[0].strip(",:;") in OPENINGS
    ]
    assert wrong == []


def list_strangers(tree):
    """Yield what the docstring of a class names in backticks that is no name in its file."""
    known = {name for _, name in identifiers(tree)} | {*keyword.kwlist, "_"}
    known |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}  # kernels too
    for node in walk(tree):
        if isinstance(node, ast.ClassDef):
            named = re.findall(r"`([a-z_]\w*)`", ast.get_docstring(node) or "")
            yield from (f"{node.name}: {name}" for name in named if name not in known)


def test_docstrings_of_classes_name_what_is_there():
    paths = [p for p in list_files() if p.relative_to(ROOT).parts[0] in FOLDERS[:4]]
    wrong = {str(p.relative_to(ROOT)): [*list_strangers(ast.parse(p.read_text()))] for p in paths}
    assert {path: names for path, names in wrong.items() if names} == {}


def test_a_field_that_is_gone_is_seen():
    text = 'class Verdict:\n    """`text` of it, `words`; `while` it holds."""\n    text: str'
    assert [*list_strangers(ast.parse(text))] == ["Verdict: words"]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("found = 1", {"found"}),
        ("def say_so(words): pass", {"say_so", "words"}),
        ("x.place_ = 1", {"place_"}),
        ("foundation = one_hot = names = 1", set()),
        ("class Room: pass", set()),
        ("f(told=1)", set()),  # a parameter that another library names
        ("@triton.jit\ndef kernel(found): pass", set()),
    ],
)
def test_a_refused_name_is_seen(source, names):
    assert {name for _, name in identifiers(ast.parse(source)) if is_refused(name)} == names

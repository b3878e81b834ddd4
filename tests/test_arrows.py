"""The allowed imports between parts of the package, and how little `import gemmproof` loads."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# folder -> parts of the package that it may import, apart from itself
ALLOWED = {
    "kernels": set(),
    "reference": set(),
    "properties": {"reference"},
    "src/gemmproof": {"properties", "reference", "gemmproof"},
}
PARTS = ("kernels", "reference", "properties")
# The names of Python's own libraries are free; of others, each part imports these alone.
LIBRARIES = {
    "kernels": {"torch", "triton"},
    "reference": {"ml_dtypes", "numba", "numpy", "torch", "triton", "z3"},
}


def part_of(module: str) -> str | None:
    """Return the part of the package that holds a module, or None for other modules."""
    names = module.split(".")
    if names[0] in (*PARTS, "tests", "conftest"):
        return names[0]
    if names[0] != "gemmproof":
        return None
    return names[1] if len(names) > 1 and names[1] in PARTS else "gemmproof"


def imports(path: Path, package: str) -> set[str]:
    """Every module that the file imports, at any depth of its code, by absolute name."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            imported |= names if node.module == "gemmproof" else {str(node.module)}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            imported.add(".".join([*above, node.module or ""]).rstrip("."))
    return imported


def files(folder: str) -> list[tuple[Path, str]]:
    """The folder's files with the package each is of; links to other folders are not followed."""
    base = ROOT / folder
    top = "gemmproof" if folder == "src/gemmproof" else f"gemmproof.{folder}"
    listed = []
    for path in sorted(base.rglob("*.py")):
        inner = path.parent.relative_to(base).parts
        if not (folder == "src/gemmproof" and inner and inner[0] in PARTS):
            listed.append((path, ".".join([top, *inner])))
    return listed


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_follow_the_arrows(folder):
    own = folder.rpartition("/")[2]
    sources = files(folder)
    assert sources
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path, package in sources
        for module in imports(path, package)
        if part_of(module) not in (None, own, *ALLOWED[folder])
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", LIBRARIES)
def test_libraries_are_few(folder):
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path, package in files(folder)
        for module in imports(path, package)
        if (top := module.split(".")[0]) not in {*sys.stdlib_module_names, "gemmproof"}
        and top not in LIBRARIES[folder]
    ]
    assert wrong == []


def modules() -> dict[str, Path]:
    """Every module of the package by its name; a package is its `__init__.py`."""
    paths = {}
    for folder in ALLOWED:
        for path, package in files(folder):
            name = package if path.stem == "__init__" else f"{package}.{path.stem}"
            paths[name] = path
    return paths


def dependencies(path: Path, package: str, known: dict[str, Path]) -> set[str]:
    """Return the imports of a file when it runs: by import, at any depth, or by a name in a string.

    Imports for the type checker alone never run.
    """
    tree = ast.parse(path.read_text(), str(path))
    unseen = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    imported = set()
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                imported.add(module if module in known else node.module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            imported.add(node.value.partition(":")[0])
    return (imported & known.keys()) - {"gemmproof"}


FEATURES = ("bench", "drift", "explain", "lowering", "mutate", "reproduce", "signoff")
# module that is not of a feature -> the features that it may import
ADMITTED = {
    "gemmproof.cli": {*FEATURES},
    "gemmproof.commands.completion": {"bench"},  # the names of its suites of shapes
    "gemmproof.commands.list": {"bench"},
    "gemmproof.plugin": {"bench", "drift"},
    "gemmproof.pytest_plugin.reports": {"drift"},
    "gemmproof.worker.entry_points": {"drift"},  # a name that two commands request
}
# a sign-off reads the records that other commands wrote, and measures drift
RECORDS = {"gemmproof.bench.record", "gemmproof.drift.record", "gemmproof.mutate.record"}


def feature_of(module: str) -> str:
    """Return the feature that a module belongs to, "" if to none."""
    return next((name for name in FEATURES if f"{module}.".startswith(f"gemmproof.{name}.")), "")


def find_crossings(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return each module, and one of a feature that it may not import."""
    return [
        (name, other)
        for name, others in graph.items()
        for other in sorted(others - (RECORDS if feature_of(name) == "signoff" else set()))
        if feature_of(other) not in ("", feature_of(name))
        and feature_of(other) not in ADMITTED.get(name, ())
    ]


def test_no_feature_is_imported_by_another_or_by_the_core():
    known = modules()
    assert all(any(feature_of(name) == feature for name in known) for feature in FEATURES)
    graph = {name: dependencies(path, name, known) for name, path in known.items()}
    assert find_crossings(graph) == []


def test_a_feature_that_is_imported_by_another_is_seen():
    draw, record = "gemmproof.drift.plot", "gemmproof.bench.record"
    graph = {
        "gemmproof.bench.plot": {draw, record},
        "gemmproof.signoff.verdict": {draw, record},
        "gemmproof.engine.kernel_check": {draw},
        "gemmproof.plugin": {draw},
        "gemmproof.cli": {draw},
    }
    crossings = find_crossings(graph)
    assert crossings == [(name, draw) for name in list(graph)[:3]]


OUTER = {*FEATURES, "commands"}
# core room -> other rooms that it may import; only the worker, which runs tasks, names features
CORE = {
    "report": set(),
    "compiled": {"report", "worker"},
    "engine": {"backends", "compiled", "contract_search", "report", "worker"},
    "contract_search": {"commands", "engine", "report", "worker"},
    "backends": {"compiled", "engine", "report", "worker"},
}


def room_of(module: str) -> str | None:
    """Return the room of src/gemmproof that holds a module; None beside them, or elsewhere."""
    folder = module.partition(".")[2].partition(".")[0]
    return folder if folder in OUTER | CORE.keys() | {"worker"} else None


@pytest.mark.parametrize("folder", CORE)
def test_core_imports_no_feature(folder):
    known = modules()
    own = {name: path for name, path in known.items() if room_of(name) == folder}
    assert own
    wrong = [
        f"{name} imports {other}"
        for name, path in own.items()
        for other in dependencies(path, name, known)
        if room_of(other) not in (None, folder, *CORE[folder])
    ]
    assert wrong == []


def find_circle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a ring, or [] if there is no ring."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph[name]):
            if ring := walk(other, [*way, name]):
                return ring
        done.add(name)
        return []

    return next((ring for name in graph if (ring := walk(name, []))), [])


@pytest.mark.lane("full")
def test_no_file_imports_itself_through_others():
    known = modules()
    assert len(known) > 150
    graph = {name: dependencies(path, name, known) - {name} for name, path in known.items()}
    assert "gemmproof.engine.kernel_check" in graph["gemmproof.worker.entry_points"]  # a string
    assert find_circle(graph) == []


def test_a_circle_is_found():
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert find_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


MOST_ENTRIES = 17


def test_folders_are_narrow():
    folders = [ROOT / name for name in ("kernels", "reference", "properties", "src", "tests")]
    everything = [p for folder in folders for p in folder.rglob("*.py") if "/src/gemmproof/" not in
                  str(p) or not set(p.parts) & set(PARTS)]  # fmt: skip
    counts = Counter(p.parent for p in everything)
    assert {str(p.relative_to(ROOT)): n for p, n in counts.items() if n > MOST_ENTRIES} == {}


@pytest.mark.lane("full")
def test_every_file_opens_with_what_it_is_for():
    silent = [str(p.relative_to(ROOT)) for p in modules().values()
              if not ast.get_docstring(ast.parse(p.read_text()))]  # fmt: skip
    assert silent == []


@pytest.mark.lane("full")
def test_no_two_classes_share_their_name():
    names = Counter(
        node.name
        for path in modules().values()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name: n for name, n in names.items() if n > 1} == {}


@pytest.mark.parametrize(
    ("line", "module", "part"),
    [
        ("import gemmproof.kernels.matmul", "gemmproof.kernels.matmul", "kernels"),
        ("from gemmproof import reference", "gemmproof.reference", "reference"),
        ("from gemmproof import check", "gemmproof.check", "gemmproof"),
        ("from ..kernels import matmul", "gemmproof.kernels", "kernels"),
        ("def f():\n    from properties import table", "properties", "properties"),
        ("from numpy import ndarray", "numpy", None),
    ],
)
def test_every_spelling_of_an_import_is_seen(tmp_path, line, module, part):
    path = tmp_path / "file.py"
    path.write_text(line)
    assert imports(path, "gemmproof.reference") == {module}
    assert part_of(module) == part


HEAVY = ("hypothesis", "ml_dtypes", "numpy", "rich", "torch", "triton", "z3")


@pytest.mark.parametrize(
    "module", ["gemmproof", "gemmproof.cli", "gemmproof.engine.assemble", "gemmproof.plugin"]
)
def test_nothing_heavy_is_loaded(module):
    loaded = _python(f"import sys, {module}; print(*sys.modules)").split()
    assert module in loaded
    assert [name for name in HEAVY if name in loaded] == []


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["drift", "--help"], ["completion", "bash"], ["chekc"], ["check", "--xyz"]],
)
def test_help_completion_and_bad_usage_load_nothing_heavy(arguments):
    code = (
        "import contextlib, sys\n"
        "from gemmproof.cli import main\n"
        "with contextlib.suppress(SystemExit):\n"
        f"    main({arguments})\n"
        "print(*sys.modules)"
    )
    loaded = _python(code).splitlines()[-1].split()
    assert "gemmproof.signoff.command" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_public_names_are_there_and_others_are_not():
    import gemmproof

    assert all(getattr(gemmproof, name) is not None for name in gemmproof.__all__)
    with pytest.raises(AttributeError, match="module 'gemmproof' has no attribute 'chekc'"):
        gemmproof.chekc  # noqa: B018 - the attribute's absence is what is tested


@pytest.mark.lane("full")
def test_the_folders_are_loaded_under_one_name_only():
    loaded = _python(
        "import sys, gemmproof.kernels, gemmproof.properties, gemmproof.reference;"
        "print(*sys.modules)"
    ).split()
    assert [name for name in PARTS if name in loaded] == []


def test_time_to_import(benchmark):
    """Under 0.1 s beyond a bare interpreter, when benchmarks are enabled."""
    benchmark.extra_info["bare interpreter"] = "subtract test_time_of_a_bare_interpreter"
    benchmark(_python, "import gemmproof")


def test_time_of_a_bare_interpreter(benchmark):
    benchmark(_python, "pass")


def _python(code: str) -> str:
    path = {"PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=path, capture_output=True, text=True, check=True
    )
    return done.stdout

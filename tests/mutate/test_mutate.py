"""`gemmproof mutate` on small kernels, in workers as for users."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.docs.recorded_runs import make_mutation_page
from tests.support.pytest_project import HEAD

from gemmproof.cli import main
from gemmproof.terminal import Interrupted

RIGHT = Path(__file__).parents[2] / "docs" / "examples" / "right.py"
FEW = ["--max-examples", "12", "--no-proof"]


@pytest.fixture(name="project")
def project_folder(tmp_path, monkeypatch):
    """Create a package whose wrapper and kernel are in two files, with a conftest.py next to it."""
    text = RIGHT.read_text()
    head, wrapper = text.split("def matmul")
    (tmp_path / "gemms").mkdir()
    (tmp_path / "gemms" / "__init__.py").write_text("")
    (tmp_path / "gemms" / "inner.py").write_text(head.rstrip() + "\n")
    launch = "import torch\nimport triton\n\nfrom .inner import kernel\n\n\ndef matmul" + wrapper
    (tmp_path / "gemms" / "product.py").write_text(launch)
    (tmp_path / "conftest.py").write_text(
        f"{HEAD}from gemms.product import matmul\n"
        "    def call(a, b):\n"
        "        return matmul(a, b) if a.shape[0] < 10**6 else None\n"
        "    return [K('product', call, Contract(('fp16', 'bf16')))]\n"
    )
    shutil.copy(RIGHT, tmp_path / "alone.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args, code=0):
    assert main(["mutate", *args, "--json", "record.json"]) == code
    (kernel,) = json.loads(Path("record.json").read_text())["kernels"]
    return kernel


def outcomes(kernel):
    return {m["key"]: (m["outcome"], m.get("by")) for m in kernel["mutants"]}


@pytest.mark.lane("full")
def test_a_package_is_mutated_in_place_and_stays_as_it_was(project, capsys):
    before = {p: p.read_bytes() for p in project.rglob("*.py")}
    kernel = run("gemms/product.py:matmul", *FEW, "--max-mutants", "8", "--seed", "3")
    assert {p: p.read_bytes() for p in project.rglob("*.py")} == before
    assert kernel["counts"]["killed"] >= 4
    assert kernel["score"] == 1.0
    # both files, and a relative import between them
    assert {m["file"] for m in kernel["mutants"]} == {"gemms/inner.py", "gemms/product.py"}
    # the reason of a kill has the line of the original file
    killed = [m for m in kernel["mutants"] if m.get("by") == "stays_in_bounds"]
    assert killed
    assert all("inner.py:" in m["why"] for m in killed)
    out = capsys.readouterr().out
    assert "matmul: score 1.000" in out
    assert "operator" in out


@pytest.mark.lane("full")
def test_a_registered_kernel_and_none_of_its_conftest(project):
    kernel = run("--kernel", "product", "--dtype", "bf16", *FEW, "--max-mutants", "4")
    assert kernel["target"] == "product"
    assert kernel["formats"] == ["bf16"]
    assert kernel["counts"]["killed"] >= 2
    assert not any("conftest" in m["file"] for m in kernel["mutants"])


@pytest.mark.lane("full")
def test_the_same_seed_gives_the_same_and_a_drop_fails(project, capsys):
    args = ["alone.py:matmul", "--operator", "other dropped", "--no-proof"]
    first = run(*args, "--max-examples", "8")
    again = run(*args, "--max-examples", "8", "--min-score", "1", "--jobs", "1")
    assert outcomes(first) == outcomes(again)
    assert first["counts"]["killed"] == len(first["mutants"]) == 2
    Path("record.json").rename("baseline.json")
    capsys.readouterr()
    # sizes that need no mask: as if the suite no longer detected the mutants
    whole = ["--sizes", "M=32..:32,N=64..:64,K=32..:32", "--max-examples", "2"]
    blind = run(*args, *whole, "--baseline", "baseline.json", code=1)
    assert blind["counts"]["no difference seen"] == 2
    out = capsys.readouterr().out
    assert out.count("expected 'killed' as before") == 2
    assert "no difference seen, but not proved equivalent:" in out


@pytest.mark.lane("full")
def test_what_is_the_same_program_is_equivalent_at_once(project):
    """A dense operand's stride of 1 is compiled in, and a store casts implicitly."""
    kernel = run("alone.py:matmul", *FEW, "--operator", "cast dropped")
    (same,) = kernel["mutants"]
    assert same["outcome"] == "equivalent"
    assert same["why"].startswith("same TTIR in all ")


@pytest.mark.lane("full")
def test_what_does_not_compile_is_no_kill(project):
    kernel = run("alone.py:matmul", *FEW, "--operator", "axes swapped", "--max-mutants", "2")
    (refused,) = [m for m in kernel["mutants"] if m["outcome"] == "invalid"]
    assert "from Triton's compiler" in refused["why"]
    assert not any(m.get("by") == "compiles" for m in kernel["mutants"])


@pytest.mark.lane("full")
@pytest.mark.proves
def test_what_is_proved_right_is_equivalent(project):
    options = ["--proof", "--max-examples", "12", "--operator", "grid moved"]
    kernel = run("alone.py:matmul", *options)
    right = [m for m in kernel["mutants"] if m["outcome"] == "equivalent"]
    assert len(right) == kernel["counts"]["killed"] == 2
    assert all(m["why"] == "proved right for every M, N, K, with the same bits" for m in right)


def test_a_kernel_that_fails_is_not_mutated(project, capsys):
    wrong = RIGHT.with_name("no_k_mask.py")
    assert main(["mutate", f"{wrong}:matmul", *FEW]) == 2
    assert "expected it to pass first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "got neither of TARGET and --kernel"),
        (["alone.py:matmul", "--kernel", "product"], "got both of TARGET and --kernel"),
        (["--kernel", "product", "--layouts", "any"], "--layouts: got it with --kernel"),
        (["--kernel", "product", "--dtype", "int8"], "expected one that product is registered"),
        (["--kernel", "product", "--conftest", "no.py"], "'no.py' (no such file)"),
        (["alone.py:matmul", "--operator", "mask drop"], "did you mean 'mask dropped'?"),
        (["alone.py:matmul", "--baseline", "no.json"], "'no.json' (No such file or directory)"),
        (["alone.py:matmul", "--json", "no/no.json"], "--json: got 'no/no.json'"),
    ],
)
def test_refused(project, args, message, capsys):
    assert main(["mutate", *args]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.lane("full")
def test_a_kernel_that_cannot_be_mutated_takes_nothing_from_the_others(project, capsys):
    few = ["--operator", "zeros dropped", "--operator", "cast dropped"]
    options = ["--kernel", "no_such", "--kernel", "product", "--dtype", "fp16"]
    kernel = run(*options, *FEW, *few, code=2)
    assert kernel["target"] == "product"
    out = capsys.readouterr().out
    assert "product: no mutant to score" in out
    assert "expected one named no_such" in out


def test_interrupted_before_it_knows_anything_it_keeps_the_old_record(project, monkeypatch, capsys):
    def interrupt(*args, **options):
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr("gemmproof.mutate.run.survey_kernel", interrupt)
    Path("record.json").write_text("old")
    assert main(["mutate", "alone.py:matmul", "--json", "record.json"]) == 130
    assert Path("record.json").read_text() == "old"


@pytest.mark.lane("full")
def test_interrupted_it_tells_what_is_known(project):
    command = [sys.executable, "-m", "gemmproof", "mutate", "alone.py:matmul", *FEW]
    process = subprocess.Popen(
        [*command, "--json", "record.json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stderr is not None
    process.stderr.readline()  # some mutants are judged
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (kernel,) = json.loads(Path("record.json").read_text())["kernels"]
    assert kernel["note"] == "interrupted"
    assert 0 < len(kernel["mutants"]) < kernel["asked"]
    assert "not judged, interrupted" in out


# -- a mutant is loaded from the path of its file --------------------------------------------------
LOOK = """
import inspect, sys
from gemmproof.mutate.changed_source import replace_source
from gemmproof.target import load, parse
path, text, target = sys.argv[1:]
replace_source(path, text)
function = load(parse(target))
print(function(1, 2), function.__module__, inspect.getsource(function).splitlines()[-1].strip())
"""


@pytest.mark.lane("full")
@pytest.mark.parametrize("target", ["package/inner.py:f", "package.outer:f", "alone.py:f"])
def test_in_place(tmp_path, target):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    text = "from .names import ONE\n\ndef f(a, b):\n    return a + ONE\n"
    (tmp_path / "package" / "names.py").write_text("ONE = 1\n")
    (tmp_path / "package" / "inner.py").write_text(text)
    (tmp_path / "package" / "outer.py").write_text("from .inner import f\n")
    (tmp_path / "alone.py").write_text("def f(a, b):\n    return a + b\n")
    file = "alone.py" if "alone" in target else "package/inner.py"
    before = (tmp_path / file).read_text()
    # bytecode of the original is next to it
    command = [sys.executable, "-c", LOOK, file]
    for changed in (before, before.replace("+", "-")):
        command[4:] = [changed, target]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        name = "alone" if "alone" in target else "package.inner"
        result = eval(changed.rpartition("return ")[2], {"a": 1, "b": 2, "ONE": 1})
        line = changed.splitlines()[-1].strip()
        assert done.stdout.split(maxsplit=2) == [str(result), name, f"{line}\n"]
    assert (tmp_path / file).read_text() == before


# -- mutants of this repository's kernels stay killed: a sample, and the record of all -------------
ROOT = Path(__file__).parents[2]
EVIDENCE = "docs/evidence/mutation.json"
# three families: reads, accumulation, launches
OPERATORS = ["mask term dropped", "sum not accumulated", "dimension of an operand"]


@pytest.mark.lane("full")
def test_a_sample_is_killed_as_in_the_record(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    operators = [word for name in OPERATORS for word in ("--operator", name)]
    path = tmp_path / "now.json"
    code = main([
        "mutate", "--kernel", "matmul", "--dtype", "fp16", *operators, "--max-mutants", "6",
        "--max-examples", "12", "--no-proof", "--min-score", "1", "--baseline", EVIDENCE,
        "--json", str(path),
    ])  # fmt: skip
    (kernel,) = json.loads(path.read_text())["kernels"]
    assert code == 0, kernel["mutants"]
    assert kernel["counts"]["killed"] == len(kernel["mutants"]) == 6


@pytest.mark.parametrize(
    "kernel",
    json.loads((ROOT / EVIDENCE).read_text())["kernels"],
    ids=lambda kernel: kernel["target"],
)
def test_the_record_has_no_survivor(kernel):
    assert len(kernel["mutants"]) == kernel["asked"]
    assert kernel["score"] == 1.0
    assert kernel["counts"]["killed"] >= 10


def test_the_page_shows_the_record():
    assert make_mutation_page(check=True) == 0

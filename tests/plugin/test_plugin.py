"""A user's project: a hook in its conftest.py, one import line, and an item per property."""

import re
import shlex
import shutil
from xml.etree import ElementTree

import pytest
from tests.support.lanes import first_of_each
from tests.support.pytest_project import HEAD, ROOT, SUITE, list_failed, run_pytest, write_project
from tests.support.warm_process import execute_module
from tests.texts import line_with

CONFTEST = """
def pytest_gemm_kernels():
    from gemmproof import Contract, KernelUnderTest
    import right, unmasked_row
    return [
        KernelUnderTest("right", right.matmul, Contract(formats=("fp16", "bf16"))),
        KernelUnderTest("unmasked_row", unmasked_row.matmul),
    ]
"""


@pytest.fixture
def project(tmp_path):
    """Create a folder with two kernels, a conftest.py and a test file of one line."""
    return write_project(tmp_path, CONFTEST, "right", "unmasked_row")


@pytest.mark.lane("full")
def test_every_property_is_an_item_and_a_failure_reads_like_check(project, texts):
    status, out = run_pytest(project, "--gemm-max-examples", "10", "--junit-xml", "report.xml")
    assert status == 1
    failed = list_failed(out)
    assert failed == ["test_kernels.py::test_gemm[unmasked_row-fp16-stays_in_bounds]"]
    report = ElementTree.parse(project / "report.xml")
    names = [case.get("name") for case in report.iter("testcase")]
    (failure,) = report.iter("failure")
    texts("a finding of an item", failure.text)
    assert failure.text in out
    kinds = {name.removeprefix("test_gemm[").rpartition("-")[0] for name in names}
    assert kinds == {"right-fp16", "right-bf16", "unmasked_row-fp16"}
    assert not any("mirror_equals_source" in name for name in names)
    line = re.search(r"reproduce:  (.*)$", out, re.MULTILINE).group(1)
    args = shlex.split(line)
    assert args[0] == "pytest"
    status, out = run_pytest(project, *args[1:])
    assert (status, list_failed(out)) == (1, failed)
    assert failure.text in out


def test_a_run_without_our_items_loads_nothing_heavy(project):
    (project / "test_kernels.py").write_text(
        "import sys\n"
        "def test_modules():\n"
        "    heavy = {'torch', 'triton', 'hypothesis', 'numpy', 'ml_dtypes', 'rich'}\n"
        "    assert not heavy & set(sys.modules)\n"
    )
    # other plugins may load any modules
    status, out = run_pytest(project, "--disable-plugin-autoload", run_module=execute_module)
    assert status == 0, out


@pytest.mark.parametrize(
    ("option", "message"),
    first_of_each(
        [
            (
                ["--gemm-max-examples", "0"],
                "gemm_max_examples: got '0', expected an integer 1..",
            ),
            (["-o", "gemm_seed=x"], "gemm_seed: got 'x', expected an integer 0.."),
            (["--gemm-case", "{"], "--gemm-case: case: got broken JSON"),
            (["-o", "gemm_case=7"], "--gemm-case: case: got 7, expected an object"),
            (["--gemm-target", "sm_1"], "gemm_target: got 'sm_1', expected one of: sm_70"),
            (["-o", "gemm_target=sm_2"], "gemm_target: got 'sm_2', expected one of: sm_70"),
            (["-o", "gemm_drift=maybe"], "gemm_drift: got 'maybe', expected true or false"),
            (["-o", "gemm_in_process=5"], "gemm_in_process: got '5', expected true or false"),
            (
                ["--gemm-annotations", "gitlab"],
                "gemm_annotations: got 'gitlab', expected one of: auto github none",
            ),
            (["--gemm-time-limit", "0"], "gemm_time_limit: got '0', expected an integer 1.."),
        ]
    ),
)
def test_a_bad_option_is_one_line(project, option, message):
    status, out = run_pytest(project, *option)
    assert (status, out.strip()) == (4, f"ERROR: {out.strip().removeprefix('ERROR: ')}")
    assert message in out


NONSENSE = [
    ("return [1]", "got 1, expected a list of KernelUnderTest"),
    ("return {'a': 1}", "got {'a': 1}, expected a list of KernelUnderTest"),
    ("return K('a', len)", "got KernelUnderTest(name='a'"),
    ("return len", "got <built-in function len>, expected a list of KernelUnderTest"),
    ("return None", "got no kernels, expected at least one from a conftest.py"),
    ("return []", "got no kernels, expected at least one from a conftest.py"),
    ("return [K('a', len), K('a', max)]", "got two kernels named 'a', expected different"),
    ("return [K('a', len, {})]", "conftest.py:3: pytest_gemm_kernels() raised ValueError: kern"),
    ("return [K('a', len, Contract(formats=3))]", "raised ValueError: contract formats: got 3"),
    ("import no_such_library", "conftest.py:3: pytest_gemm_kernels() raised ModuleNotFoundErr"),
]


@pytest.mark.parametrize(("body", "message"), first_of_each(NONSENSE))
def test_a_hook_that_returns_nonsense_is_told_in_one_line(project, body, message):
    (project / "conftest.py").write_text(f"{HEAD}{body}\n")
    status, out = run_pytest(project)
    assert status == 2, out
    head, line, *_ = out[out.index("__ ERROR collecting") :].splitlines()
    assert head.split()[1:4] == ["ERROR", "collecting", "test_kernels.py"]
    assert message in line
    assert "Traceback" not in out


def test_a_skip_in_the_hook_is_a_skip(project):
    body = "import pytest; pytest.importorskip('no_such_library', exc_type=ImportError)"
    (project / "conftest.py").write_text(f"{HEAD}{body}\n")
    status, out = run_pytest(project, "-rs")
    assert status == 5, out
    assert "could not import 'no_such_library'" in out


@pytest.mark.lane("full")
def test_a_conftest_speaks_for_its_own_folder_only(project):
    for name in ("one", "two"):
        (project / name).mkdir()
        body = f"return [K('matmul', __import__('{name}_kernel').matmul)]"
        (project / name / "conftest.py").write_text(f"{HEAD}{body}\n")
        (project / name / f"test_{name}.py").write_text(SUITE)
    shutil.copy(project / "right.py", project / "one_kernel.py")
    shutil.copy(project / "unmasked_row.py", project / "two_kernel.py")
    (project / "conftest.py").unlink()
    status, out = run_pytest(
        project, "one", "two", "-k", "stays_in_bounds", "--gemm-max-examples", "4"
    )
    assert status == 1
    failed = list_failed(out)
    assert failed == ["two/test_two.py::test_gemm[matmul-fp16-stays_in_bounds]"]
    assert "1 failed, 1 passed" in out


@pytest.mark.lane("full")
def test_each_option_is_an_ini_line_too(project):
    (project / "pytest.ini").write_text(
        "[pytest]\ngemm_max_examples = 6\ngemm_seed = 3\ngemm_target = sm_80\n"
        'gemm_case = {"M":1,"N":1,"K":1,"dtype":"fp16"}\ngemm_drift = yes\n'
        "addopts = --strict-markers --strict-config\n"
    )
    (project / "test_kernels.py").write_text(
        SUITE + "def test_all_reach_the_run(gemm_options):\n"
        "    search, judge = gemm_options.search, gemm_options.judge\n"
        "    assert (search.max_examples, search.seed) == (6, 3)\n"
        "    assert (search.gpu, gemm_options.drift) == ('sm_80', True)\n"
        '    assert judge.case == \'{"M":1,"N":1,"K":1,"dtype":"fp16"}\'\n'
    )
    options = ("-k", "reach or right-fp16-stays_in_bounds or right-fp16-accumulator", "-v")
    status, out = run_pytest(project, *options)
    assert status == 0, out
    assert "3 passed" in out


@pytest.mark.lane("full")
@pytest.mark.parametrize("where", ["gemmproof", "gemmproof.engine.assemble"])
def test_the_options_reach_the_engine(project, where):
    """The engine runs in this process, or in a worker."""
    (project / "conftest.py").write_text(
        f"{CONFTEST}\n"
        "import pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def spied(monkeypatch):\n"
        "    def check(kernel, **asked):\n"
        "        raise OSError(f'asked {asked}')\n"
        "    def judge(request, limits, listener):\n"
        "        pytest.fail(f'asked {request} {limits}')\n"
        f"    import {where} as module\n"
        "    monkeypatch.setattr(module, 'check', check, raising=False)\n"
        "    monkeypatch.setattr(module, 'judge', judge, raising=False)\n"
    )
    typed = ("--gemm-max-examples", "7", "--gemm-target", "sm_90", "--gemm-proof")
    typed += ("--gemm-check-model", "--gemm-time-limit", "9", "--gemm-memory-limit", "3")
    typed += ("-o", "gemm_seed=5")
    here = ("--gemm-in-process",) * (where == "gemmproof")
    status, out = run_pytest(project, "-k", "right-fp16-no_races", *typed, *here)
    assert status == 1
    asked = {"max_examples": 7, "seed": 5, "target": "sm_90", "case": None, "proof": True}
    asked |= {"check_model": True, "launch": False, "device": None, "seconds": 9}
    if here:
        assert f"asked {asked}" in out
        return
    request = next(line for line in out.splitlines() if "asked CheckRequest" in line)
    for word in ("name='right'", "conftest='", "max_examples=7", "seed=5", "gpu='sm_90'"):
        assert word in request
    for word in (
        "proof=True",
        "check_model=True",
        "format='fp16'",
        "case=9, ",
        f"memory={3 << 30}",
    ):
        assert word in request


@pytest.mark.lane("full")
def test_drift_is_an_item_where_asked_for(project, texts):
    shutil.copy(ROOT / "tests" / "support" / "drift_kernels.py", project)
    (project / "conftest.py").write_text(
        HEAD + "import drift_kernels, right\n"
        "    return [K('right', right.matmul, Contract(formats=('fp16', 'int8'))),\n"
        "            K('sums_in_fp16', drift_kernels.half),\n"
        "            K('small', right.matmul, Contract(K='1..256'))]\n"
    )
    status, out = run_pytest(project, "--collect-only", "-q")
    assert status == 0
    assert "accumulator" not in out
    status, out = run_pytest(
        project, "--gemm-drift", "-k", "accumulator", "--junit-xml", "report.xml", "-v"
    )
    assert status == 1
    assert re.findall(r"::(test_gemm\S+) (\w+)", out)[:2] == [
        ("test_gemm[right-fp16-accumulator_as_declared]", "PASSED"),
        ("test_gemm[sums_in_fp16-fp16-accumulator_as_declared]", "FAILED"),
    ]
    (failure,) = ElementTree.parse(project / "report.xml").iter("failure")
    texts("a drift that is not as declared", failure.text.splitlines()[0])
    assert "--gemm-drift" in failure.text


# -- lines of findings are annotated if a GitHub job runs pytest -----------------------------------
@pytest.fixture
def annotated(tmp_path):
    (tmp_path / ".git").mkdir()
    body = "import no_k_mask\n    return [K('stray', no_k_mask.matmul)]\n"
    tests = f"{SUITE}\ndef test_other():\n    assert False\n"
    return write_project(tmp_path, HEAD + body, "no_k_mask", tests=tests)


def list_commands(out):
    return [line for line in out.splitlines() if line.startswith("::")]


ANNOTATED = ("--gemm-in-process", "--gemm-max-examples", "1", "-k", "bounds or exact or other")


@pytest.mark.lane("full")
@pytest.mark.parametrize("processes", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "xdist"])
def test_the_lines_of_findings_are_annotated(annotated, processes, texts):
    status, out = run_pytest(annotated, *ANNOTATED, "--gemm-annotations", "github", *processes)
    assert status == 1
    line, other = list_commands(out)
    item = "test_gemm[stray-fp16-stays_in_bounds]"
    texts("the annotation of a finding", line, item=item)
    assert ",line=22,title=" in other
    texts("findings without annotations", line_with(out, "not annotated"))


@pytest.mark.lane("full")
def test_elsewhere_none_are(annotated):
    status, out = run_pytest(annotated, *ANNOTATED)
    assert (status, list_commands(out)) == (1, [])

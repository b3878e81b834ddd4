"""A written test fails for the wrong kernel and passes for the right one, without gemmproof."""

import ast
import re

import pytest
from tests.reproduce.written_tests import (
    RIGHT,
    Wrong,
    find_first,
    require_formatted,
    run_pytest,
    state_bug,
    write,
)
from tests.texts import line_with

from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest, OneOf, Operand
from gemmproof.reproduce.bug import Place
from gemmproof.reproduce.find import find_bug
from gemmproof.reproduce.write import NAMES, write_test
from gemmproof.target import Calling, load_file

MASK_A, MASK_B = "(offs_m < M) & (offs_k[None, :] < K)", "(offs_k[:, None] < K) & (offs_n < N)"
ACC = "acc = tl.dot(a, b, acc)"
STORE = "mask=(offs_m < M) & (offs_n < N))"
WRONG = (
    Wrong("no_mask_of_k", MASK_A, "offs_m < M", '{"M":2,"N":2,"K":5}', "c[0, 0]: got nan, "),
    Wrong("last_k", "range(0, K, ", "range(0, K - 1, ", '{"M":2,"N":3,"K":33}', "got 0.0, "),
    Wrong("dense_a", "offs_m * stride_am", "offs_m * K", '{"M":3,"N":1,"K":2,"a":"padded"}', "c[1"),
    Wrong("dense_b", "* stride_bn", "* 1", '{"M":1,"N":3,"K":2,"b":"sliced"}', "c[0, 1]: got "),
    Wrong("few_rows", "triton.cdiv(M, 32)", "M // 32", '{"M":3,"N":1,"K":1}', "c[0, 0]: got nan"),
    Wrong("wide_store", STORE, "mask=offs_m < M)", '{"M":1,"N":2,"K":1}', "the wrapper made: "),
    Wrong("writes_a", "    grid =", "    a *= 2\n        grid =", '{"M":1,"N":2,"K":3}', "of a: "),
    Wrong(
        "half_products", ACC, "acc += tl.dot(a, b).to(tl.bfloat16)",
        '{"M":1,"N":1,"K":3,"fill":"normal","dtype":"fp32"}', " +- ",
    ),
    Wrong("undefined", ", other=0.0)\n        acc", ")\n        acc", '{"M":2,"N":1,"K":1}', ""),
    Wrong("raises", "c = torch", "c = c; torch", '{"M":1,"N":1,"K":1}', "UnboundLocalError"),
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("wrong")


@pytest.fixture(scope="module")
def bugs(folder):
    by_name = {wrong.name: state_bug(folder, wrong) for wrong in WRONG}
    for wrong in WRONG:
        write(folder, wrong, by_name[wrong.name])
    return by_name


@pytest.fixture(scope="module")
def outcomes(folder, bugs):
    """Return pytest's outcomes of all tests, for the wrong kernels and for the right one."""
    wrong = run_pytest(folder)[1]
    skipped = run_pytest(folder, interpreted=False)
    for change in WRONG:
        (folder / f"{change.name}.py").write_text(RIGHT)
    return wrong, run_pytest(folder), skipped


@pytest.mark.triton("interpreter")
@pytest.mark.lane("full")
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_the_wrong_kernel_fails_as_it_is_said(wrong, outcomes):
    (line,) = re.findall(rf"^(\w+) test_{wrong.name}\.py::\S+(.*)$", outcomes[0], re.MULTILINE)
    assert line[0] == ("FAILED" if wrong.says else "PASSED")
    assert wrong.says in line[1]


@pytest.mark.triton("interpreter")
@pytest.mark.lane("full")
def test_the_right_kernel_passes(outcomes):
    status, out = outcomes[1]
    assert status == 0, out
    assert f"{len(WRONG)} passed" in out


@pytest.mark.lane("full")
def test_without_a_device_each_is_skipped_with_its_reason(outcomes, texts):
    status, out = outcomes[2]
    assert (status, f"{len(WRONG)} skipped" in out) == (0, True), out
    (reason,) = set(re.findall(r"^SKIPPED \[\d+\] \S+: (.*)$", out, re.MULTILINE))
    texts("the reason of a written test without a device", reason)


@pytest.mark.lane("full")
@pytest.mark.parametrize("width", ["88", "100"])
def test_they_are_laid_out_as_ruff_does_it(folder, bugs, width):
    require_formatted(folder, "--line-length", width)


def test_they_need_nothing_of_ours(folder, bugs):
    for path in folder.glob("test_*.py"):
        text = path.read_text()
        nodes = list(ast.walk(ast.parse(text)))
        names = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module for n in nodes if isinstance(n, ast.ImportFrom)}
        ours = {"os", "pathlib", "pytest", "torch", "torch.overrides", path.stem[5:]}
        assert names <= ours
        assert len(text.splitlines()) < 110


def test_the_elements_are_the_fewest(bugs):
    assert {name: (bug.kept, bug.given) for name, bug in bugs.items()} == {
        "no_mask_of_k": (0, 20),
        "last_k": (2, 165),
        "dense_a": (2, 8),
        "dense_b": (2, 8),
        "few_rows": (2, 4),
        "wide_store": (0, 3),
        "writes_a": (2, 9),
        "half_products": (2, 6),
        "undefined": (0, 3),
        "raises": (0, 2),
    }


def test_operands_lie_as_in_the_case(folder, bugs):
    b = bugs["dense_b"].operands[1]
    assert (b.shape, b.strides, b.offset) == ((2, 3), (21, 2), 57)
    text = (folder / "test_dense_b.py").read_text()
    shown = "    shape=(2, 3),\n    strides=(21, 2),\n    offset=57,\n"
    assert shown in text.replace("        ", "    ")


def test_a_result_that_the_call_leaves_in_an_operand_is_read_there(tmp_path, texts):
    (tmp_path / "into.py").write_text(
        f"{RIGHT}\n\ndef into(a, b, c, beta):\n    c += matmul(a, b) * 2\n"
    )
    operands = {"c": Operand("fp16", ("M", "N"), use="updated"), "beta": OneOf(1.0)}
    launch = load_file(tmp_path / "into.py").into
    spec = eval("lambda a, b, c, beta: a @ b + beta * c")
    kernel = KernelUnderTest("into", launch, Contract(), operands=operands, spec=spec)
    bug = find_bug(kernel, find_first(kernel, Case(1, 1, 1)), None, 30.0, lambda: None)
    calling = Calling(spec="a @ b + beta * c")
    text = write_test(bug, Place(".", "into", "into"), calling, "gemmproof check ...", [])
    shown = text[text.index("    into(") :].splitlines()
    texts("the call of a test whose result is an operand", "\n".join(shown[:3]))
    assert "writable=True" in text


HOSTILE = ("place", "a", "got", "abs")  # names that a written test itself uses


@pytest.mark.triton("interpreter")
@pytest.mark.lane("full")
def test_a_wrapper_may_have_any_name_of_the_test(tmp_path, texts):
    (wrong,) = (wrong for wrong in WRONG if wrong.name == "no_mask_of_k")
    bug = state_bug(tmp_path, wrong)
    for name in HOSTILE:
        for module, text in ((f"wrong_{name}", wrong.text), (f"right_{name}", RIGHT)):
            (tmp_path / f"{module}.py").write_text(text.replace("def matmul(", f"def {name}("))
            written = write_test(bug, Place(".", module, name), Calling(), "gemmproof", [])
            (tmp_path / f"test_{module}.py").write_text(written)
    called = write_test(bug, Place(None, "m", "got"), Calling("got(a, b.t())"), "gemmproof", [])
    texts("the import of a name that a test uses itself", line_with(called, "import got"))
    assert "c = the_got(a, b.t())\n" in called
    loaded = write_test(bug, Place("m.py", None, "got"), Calling(), "gemmproof", [])
    texts("a name of a file that a test uses itself", line_with(loaded, "module.got"))
    out = run_pytest(tmp_path)[1]
    verdicts = re.findall(r"^(PASSED|FAILED) test_(right|wrong)_\w+\.py::(.*)$", out, re.MULTILINE)
    assert {verdict for verdict, which, _ in verdicts if which == "right"} == {"PASSED"}, out
    wrongs = [
        message for verdict, which, message in verdicts if (verdict, which) == ("FAILED", "wrong")
    ]
    assert len(wrongs) == len(HOSTILE)
    assert all("c[0, 0]: got nan" in message for message in wrongs)


def test_the_names_that_a_written_test_binds_are_known(folder, bugs):
    for path in folder.glob("test_*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        bound |= {n.name for n in ast.parse(path.read_text()).body if hasattr(n, "name")}
        own = {"a", "b", f"test_{path.stem[5:]}", "test_matmul"}
        inner = {"reach", "first", "fill", "memory", "where", "bits", "value", "shape", "name"}
        inner |= {"before", "own", "changed", "made", "kinds", "kind", "held", "new", "n", "step"}
        assert bound - inner - own <= NAMES

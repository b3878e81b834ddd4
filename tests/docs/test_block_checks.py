"""Blocks with mistakes are found, with their line."""

from __future__ import annotations

import pytest
from tests.docs.block_checks import (
    check_data,
    check_file,
    check_files,
    compare_output,
    list_outputs,
    list_unchecked,
    split_command,
)
from tests.docs.pages import list_pages, read_blocks
from tests.docs.python_blocks import check_page
from tests.docs.shell_lines import check_shell
from tests.support.pytest_project import run_pytest

from gemmproof.cli import main


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Return a function that writes docs/page.md, below a line of prose, and reads its blocks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(text):
        page = tmp_path / "docs" / "page.md"
        page.parent.mkdir()
        page.write_text(f"Prose.\n{text}\n")
        assert list_pages(tmp_path) == [page]
        return read_blocks(page, tmp_path)

    return write


UNCHECKED = {
    "```\nx\n```": "docs/page.md:2: got no language, expected one of python",
    "```rust\nx\n```": "docs/page.md:2: got language 'rust', expected one of python",
    "```{code-block} python\nx\n```": "docs/page.md:2: got language '{code-block}', expected one",
    "1. A list\n\n   ~~~\n   x\n   ~~~": "docs/page.md:4: got no language, expected one of python",
    "```text\nx\n```": "docs/page.md:2: got text of nothing, expected <!-- output: COMMAND -->",
    "```diff\n+x\n```": "docs/page.md:2: got language 'diff', expected one of python",
    "```console\nx\n```": "docs/page.md:2: got no line that begins with $, expected a command",
}


@pytest.mark.parametrize(("text", "message"), UNCHECKED.items(), ids=repr)
def test_a_block_that_nothing_checks_is_found(text, message, read):
    (problem,) = list_unchecked(read(text))
    assert problem.startswith(message)


def test_a_fence_that_is_not_closed_is_found(read):
    with pytest.raises(ValueError, match=r"docs/page.md:2: got a fence that is not closed"):
        read("```sh\ngit diff")


SHELL = {
    "gemmproof check a.py --case '{\"M\":1}' \\\n  --dtype fp16  # it's right": None,
    'B="gemmproof bench --dtype bf16"\n$B a.py:f --shapes llama > out.txt': None,
    'eval "$(gemmproof completion bash)"': None,
    "GEMMPROOF_GEMM_TABLE=a.json python serve.py": None,
    "./run test -n 0 --full tests": None,
    "python scripts/pages.py proofs --only x": None,
    "gemmproof signoff --baseline nothing.json --html a.html": None,
    "gemmproof list\n\ngemmproof check a.py --max-exmples 3": (5, "--max-exmples"),
    "gemmproof check a.py --dtype fp17": (3, "fp17"),
    "gemmproof chek a.py": (3, "chek"),
    'B="gemmproof bench"\n$B a.py --dtpe bf16': (4, "--dtpe"),
    "gemmproof signoff --baseline nothing.json --htm a.html": (3, "--htm"),
    "GEMMPROOF_TABLE=a.json python serve.py": (3, "GEMMPROOF_TABLE: got a variable that nothing"),
    "./run tset": (3, "'tset'"),
    "./run python scripts/pages.py prooofs": (3, "prooofs"),
    "python scripts/pages.py proofs --onyl x": (3, "--onyl"),
    "python scripts/nothing.py": (3, "scripts/nothing.py"),
    "pytest --gemm-targt sm_90": (3, "--gemm-targt"),
    "pytest --accept-texts": (3, "--accept-texts"),
    "pip install 'gemmproof[bnch]'": (3, "bnch"),
    "./run python -m nox -s \"suite-3.12(torch='2.14')\"": None,
    "./run python -m nox -s \"suite-3.12(torch='2.19')\"": (3, "2.19"),
    "python -m nix": (3, "got module nix"),
    "nonsense --help": (3, "got program 'nonsense'"),
    "cd docs/nothing": (3, "does not exist"),
    "gemmproof check 'a.py": (2, "bash: "),
    "# nothing": (2, "got no command"),
}


@pytest.mark.parametrize(("text", "problem"), SHELL.items(), ids=repr)
def test_a_wrong_command_is_found(text, problem, read, pytestconfig):
    (block,) = read(f"```sh\n{text}\n```")
    problems = list(check_shell(block, pytestconfig))
    if problem is None:
        assert problems == []
    else:
        line, word = problem
        assert len(problems) == 1
        assert problems[0].startswith(f"docs/page.md:{line}: ")
        assert word in problems[0]


PYTHON = {
    "```python\nx = 1\n```\n\n```python\nassert x == 1\n```": None,
    "<!-- setup: import math -->\n```python\nmath.pi\n```": None,
    "```python\n# helper.py\ny = 2\n```\n```python\n>>> 1 + 1\n2\n```": None,
    "```python\nx = 1\n\nx.y\n```": "docs/page.md:5: AttributeError: 'int' object has no",
    "```python\nx =\n```": "docs/page.md:3: SyntaxError: invalid syntax",
    "```python\n>>> 1 + 1\n3\n```": "docs/page.md:3: expected",
    "```python\ngemm(a, b) -> torch.Tensor\n```": "docs/page.md:3: got gemm(a, b) -> torch.Tensor",
    "```python\nnothing(a) -> int\n```": "docs/page.md:3: got nothing, which is no function",
    '```python\nfrom gemmproof.kernels import gem\n\nd = "cuda"\n```':
        "docs/page.md:3: ImportError: cannot import name 'gem'",
    '```python\nfrom gemmproof.kernels import gemm\nx = "cuda"\n\ngemm(x, x, kernl="x")\n```':
        "docs/page.md:6: gemm: got an unexpected keyword argument 'kernl'",
    "```python\ndef test_speed(gemm_benchmark):\n    gemm_benchmark(print, shaps=1)\n```":
        "docs/page.md:4: gemm_benchmark: got an unexpected keyword argument 'shaps'",
    "```python\ndef test_speed(gemm_benchmark):\n    gemm_benchmark(mine)\n```":
        "docs/page.md:4: NameError: name 'mine' is not defined",
    "<!-- lines of: nothing.py -->\n```python\nx\n```": "docs/page.md:3: got lines of nothing.py",
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), PYTHON.items(), ids=repr)
def test_a_mistake_in_python_is_found(text, message, read, tmp_path):
    problems = list(check_page(read(text), tmp_path, run_pytest))
    if message is None:
        assert problems == []
    else:
        (problem,) = problems
        assert problem.startswith(message)


def test_a_mistake_in_a_file_of_pytest_is_found(read, tmp_path):
    hook = "def pytest_gemm_kernels():\n    from gemmproof import Contrat\n"
    (problem,) = check_page(read(f"```python\n# conftest.py\n{hook}```"), tmp_path, run_pytest)
    assert problem.startswith("docs/page.md:2: pytest --collect-only conftest.py: ")
    assert "Contrat" in problem


SHOWN = {
    "<!-- output: gemmproof explain race -->\n```text\n...\n```": True,
    "```console\n$ gemmproof explain \\\n    race\n...\n$ gemmproof list nothing.py\n```": True,
    "<!-- output: gemmproof explain race -->\n```text\n...\nnothing\n...\n```": False,
    "```console\n$ gemmproof explain race\nnothing\n```": False,
}


@pytest.mark.parametrize(("text", "same"), SHOWN.items(), ids=repr)
def test_an_output_that_differs_is_found(text, same, read, capsys):
    blocks = read(text)
    assert list(list_unchecked(blocks)) == []
    output = list_outputs(blocks)[0]
    assert split_command(output.command) == ["explain", "race"]
    main(split_command(output.command))
    problems = list(compare_output(output, capsys.readouterr().out))
    assert bool(problems) != same
    assert all(f"{output.block.page}:{output.block.line}: gemm" in x for x in problems)


def test_seconds_are_not_compared(read):
    (output,) = list_outputs(read("<!-- output: gemmproof x -->\n```text\na: pass (1.2 s)\n```"))
    assert list(compare_output(output, "a: pass (33.4 s)\n")) == []
    assert len(list(compare_output(output, "a: fail (1.2 s)\n"))) == 1


DATA = {
    '```json\n{"a": 1}\n```': None,
    '```json\n{"a": 1,}\n```': "docs/page.md:2: got broken json: ",
    '<!-- schema: report -->\n```json\n{"a": 1}\n```': "docs/page.md:3: $: ",
    "<!-- schema: nothing -->\n```json\n{}\n```": "docs/page.md:3: got schema nothing, which is",
    "```toml\n[tool.gemmproof]\nmax-examples = 3\n```": None,
    "```toml\n[tool.gemmproof]\nmax-exmples = 3\n```": "docs/page.md:2: gemmproof check: ",
    '```toml\n[tool.gemmproof]\ndtype = "fp17"\n```': "docs/page.md:2: gemmproof check: ",
    "```toml\n[tool\n```": "docs/page.md:2: got broken toml: ",
    "```yaml\na: 1\nb:\n  - c\n```": None,
    "```yaml\na:\n    - b\n  c\n```": "docs/page.md:2: got broken yaml: ",
}


@pytest.mark.parametrize(("text", "message"), DATA.items(), ids=repr)
def test_a_mistake_in_data_is_found(text, message, read):
    (block,) = read(text)
    problems = list(check_data(block))
    assert bool(problems) == (message is not None)
    assert all(problem.startswith(str(message)) for problem in problems)


def test_a_block_that_differs_from_its_file_is_found(read):
    first, second = read(
        "<!-- file: ../docs/examples/ci/pre-push.sh -->\n```sh\ngit diff\n```\n"
        "<!-- file: ../nothing.yml -->\n```yaml\na: 1\n```"
    )
    assert "differs from ../docs/examples/ci/pre-push.sh" in next(check_file(first))
    assert "got ../nothing.yml, which does not exist" in next(check_file(second))


def test_a_listed_file_that_does_not_exist_is_found(read):
    (block,) = read(
        "<!-- files of: docs -->\n```text\n"
        "examples/    kernels\n  right, dense_only   of two names\n               goes on\n"
        "  nothing    x\nschemas/\n  report.json  right\n```"
    )
    assert list(check_files(block, "docs")) == [
        "docs/page.md:7: got nothing, which is not in docs/examples",
        "docs/page.md:9: got right, which is not in docs/schemas",
    ]

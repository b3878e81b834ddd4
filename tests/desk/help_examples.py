"""The wrong line of a page of help, and its repair, as kernels that can be judged."""

from pathlib import Path

from gemmproof.cli import parser
from gemmproof.commands.check import contract_of
from gemmproof.engine.check import check
from gemmproof.properties.help.page import Example
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.report import Report
from gemmproof.target import load, parse

RIGHT = Path(__file__).parents[2] / "docs" / "examples" / "right.py"


def write_example(folder: Path, name: str, example: Example, wrong: bool) -> str:
    """A kernel with the right line, or the wrong one; what `check` calls it."""
    text = RIGHT.read_text()
    for old, new in example.given:
        assert text.count(old) == 1, f"{name}: {old!r} stands {text.count(old)} times"
        text = text.replace(old, new)
    assert text.count(example.right) == 1, f"{name}: {example.right!r} is not there once"
    path = folder / f"{name}_{'wrong' if wrong else 'right'}.py"
    path.write_text(text.replace(example.right, example.wrong) if wrong else text)
    return f"{path}:matmul"


def judge_example(target: str, example: Example, max_examples: int = 60) -> Report:
    """The verdict of `check` under the example's options, without a proof."""
    options = parser().parse_args(["check", target, "--no-proof", *example.options])
    kernel = KernelUnderTest("matmul", load(parse(target)), contract_of(options, parse(target)))
    return check(kernel, max_examples=max_examples, target=options.gpu)

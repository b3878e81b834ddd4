"""A format or a GPU is defined in its record alone: no other file lists their names."""

import ast
from pathlib import Path

import pytest

from gemmproof.reference import formats, gpus

ROOT = Path(formats.__file__).resolve().parents[1]
# not TTIR's integers: numpy has other types of these names
NAMES = (
    {
        name
        for f in (*formats.FORMATS.values(), *formats.FNUZ)
        for name in (f.name, f.dtype, f.ptx, f.ttir if f.kind == "float" else "")
    },
    set(gpus.GPUS),
)
ADMITTED = {
    "reference/formats.py": "the records",
    "reference/gpus.py": "the records, and the formats that each unit takes",
    "reference/ptx/float_instructions.py": "what the PTX ISA admits in cvt",
    "reference/ptx/instruction_operands.py": "what the PTX ISA admits in pairs",
    "reference/ptx/integer_instructions.py": "what the PTX ISA admits in slct and set",
    "properties/cases/constants.py": "the words of a source for narrow integers",
    "src/gemmproof/draft/candidates.py": "which formats a source names, the likeliest first",
    "src/gemmproof/compiled/guarantees.py": "of which tiles Triton makes AMD's instructions",
    "src/gemmproof/compiled/ptx.py": "what PTX numbers in tcgen05's descriptors",
}


def lists_names(source: str) -> bool:
    """Return whether a literal, a string or a call holds three names of formats or of GPUs."""
    nodes = list(ast.walk(ast.parse(source)))
    prose = {node.value for node in nodes if isinstance(node, ast.Expr)}
    return any(len(names & names_in(n)) >= 3 for n in nodes if n not in prose for names in NAMES)


def names_in(node: ast.AST) -> set[str]:
    """The strings and attributes in a literal or in the arguments of a call, keywords included."""
    match node:
        case ast.Constant(value=str(text)):
            return set(text.split())
        case ast.Attribute(attr=name):
            return {name}
        case ast.Call(args=args, keywords=keywords):
            return {str(k.arg) for k in keywords}.union(*map(names_in, args))
        case ast.Dict() | ast.Set() | ast.Tuple() | ast.List():
            return set().union(*map(names_in, ast.iter_child_nodes(node)))
    return set()


@pytest.mark.lane("full")
def test_no_table_of_names_stands_outside_the_records():
    paths = [p for top in ("reference", "properties", "src") for p in (ROOT / top).rglob("*.py")]
    files = {p.relative_to(ROOT).as_posix() for p in paths if lists_names(p.read_text())}
    assert files == set(ADMITTED)


@pytest.mark.parametrize(
    "source",
    [
        "x = ('fp16', 'bf16', 'fp32')",
        "x = {'sm_70': 8, 'sm_75': (16,), 'gfx942': 0}",
        "x = {torch.float16, torch.float8_e5m2, torch.int8}",
        "x = {'e4m3': ['bf16'], 'f16': 1}",
        "x = dict(fp16=1, bf16=2, int8=3)",
        "x = 'sm_80 sm_86 sm_89'.split()",
    ],
)
def test_every_kind_of_table_is_seen(source):
    assert lists_names(source)


def test_two_names_and_prose_are_no_table():
    source = "'''fp16 bf16 fp32'''\nx = ('fp16', 'bf16', 2)\nf(fp16=1)"
    assert not lists_names(source)

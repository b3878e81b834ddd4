"""A bug as the text of a test file that needs pytest, torch and triton, and nothing of ours.

It is laid out as ruff and black lay it out: what may get long has a comma at its end, and a line
each for its parts.
"""

from __future__ import annotations

import ast
import builtins
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gemmproof import __version__
from gemmproof.calling import Calling
from gemmproof.properties.kernel import READ, WRITTEN
from gemmproof.report.text import clean
from gemmproof.reproduction import parts
from gemmproof.reproduction.bug import Bug, StatedCall, StatedOperand
from gemmproof.reproduction.place import Place

WIDTH = 88  # of ruff and black, where nobody says otherwise
SHOWN = 24  # elements that are listed one a line; more are a text

StatedOperands = tuple[StatedOperand, ...]
_Long = Sequence[StatedOperand]  # those whose elements are texts


def write_test(
    bug: Bug, place: Place, calling: Calling, reproduce: str, words: Sequence[str]
) -> str:
    """The test file. `reproduce` is the command that judges the case, `words` are on GPUs."""
    name = place.function.rpartition(".")[2]
    every = [x for one in bug.before for x in one.operands] + list(bug.operands)
    long = list(dict.fromkeys(x for x in every if len(x.elements) > SHOWN))
    body = list(_indent(_write_body(bug, place, calling, long)))
    renews = any("overwrite(" in line for line in body)
    needs_patches = bool(bug.tuned) or None not in (place.kernels, place.module)
    used = [
        parts.HEAD,
        *[parts.RENEW] * renews,
        *[parts.ROOM] * bug.room,
        *[parts.NUMBERS] * bool(long),
    ]
    lines = [
        f'"""A call of {name} that goes wrong, found by gemmproof {__version__}."""',
        "",
        *_comment(_list_facts(bug, reproduce, words)),
        "",
        *["import importlib.util"] * (place.module is None),
        "import os",
        *["from pathlib import Path"] * (place.kernels is not None),
        "",
        "import pytest",
        "import torch",
        *["from torch.overrides import TorchFunctionMode"] * bug.room,
        "",
        *_write_paths(place),
        *(line for operand in long for line in _write_long(operand, long)),
        "\n\n\n".join(used),
        "",
        "",
        parts.SKIP,
        f"def test_{name}({'monkeypatch' * needs_patches}):",
        *body,
        "",
    ]
    return "\n".join(lines)


def _list_facts(bug: Bug, reproduce: str, words: Sequence[str]) -> Iterator[str]:
    finding = bug.finding
    yield f"{finding.property}: {finding.message}"
    if finding.where and finding.where not in finding.message:
        yield f"Line of the kernel: {finding.where}"
    left = f"{bug.kept} of its {bug.given} elements left, the others are zero"
    fewer = (
        ""
        if bug.kept == bug.given
        else f"; {left if bug.kept else 'all elements are zero, since none matters'}"
    )
    yield f"Case: {bug.case}{fewer}"
    if bug.at is not None:
        wanted = next((x for at, x, _ in bug.wanted if at == bug.at), None)
        so = "" if wanted is None else f", expected {wanted}"
        yield f"Here, simulated: {finding.result}{list(bug.at)}: got {bug.got}{so}"
    yield from words
    yield "With a GPU: pytest THIS_FILE. Without one: TRITON_INTERPRET=1 pytest THIS_FILE"
    yield f"Hypothesis: @example(case={bug.case!r})"
    yield f"gemmproof:  {reproduce}"


def _comment(facts: Iterable[str]) -> Iterator[str]:
    for fact in facts:
        pasted = fact.startswith(("gemmproof: ", "Hypothesis: "))
        wrapped = [clean(fact)] if pasted else textwrap.wrap(clean(fact), WIDTH - 2)
        yield from (f"# {line}".rstrip() for line in wrapped)


def _write_body(bug: Bug, place: Place, calling: Calling, long: _Long) -> Iterator[str]:
    first = place.function.partition(".")[0]
    names = [first] if calling.call is None else _list_names(bug, calling.call) or [first]
    own = {*parts.NAMES, *bug.values, *(x.name for x in bug.operands)}
    taken = {n: _find_free(n, own) for n in dict.fromkeys([*names, *bug.tuned])}
    yield from _write_import(place, taken)
    for name, number in bug.tuned.items():
        yield f"# the configuration of the case, number {number} of those that are tried"
        yield f"configs = {taken[name]}.configs[{number}:{number + 1}]"
        yield f'monkeypatch.setattr({taken[name]}, "configs", configs)'
    there: StatedOperands = ()
    for number, one in enumerate(bug.before):
        yield from _comment([f"{one.words}:"])
        yield from _write_operands(one.operands, there, long)
        compared = bug.same and number == 0
        yield from _write_call(bug, one, place, calling, taken, "c" * compared)
        yield from ["first_c = c.clone()"] * compared
        yield ""
        there = one.operands if one.shares else ()
    yield from ["# the call of the case:"] * bool(bug.before)
    yield from _write_operands(bug.operands, there, long)
    yield from _write_call(bug, bug, place, calling, taken, "c")
    yield from _write_comparison(bug, calling.spec)
    yield "assert_memory_unchanged()"


def _write_operands(operands: StatedOperands, there: StatedOperands, long: _Long) -> Iterator[str]:
    """The operands of a call; those that are `there`, of the call before it, get new elements."""
    for operand in operands:
        if operand.use == READ and operand in there:
            continue
        if there:
            yield from _write_operand(operand, "renewed", long)
            yield f"overwrite({operand.name}, renewed)"
        else:
            yield from _write_operand(operand, operand.name, long)


def _find_free(name: str, own: set[str]) -> str:
    """What a name of the target's module is called in the test, whose `own` names it leaves."""
    while name in own or hasattr(builtins, name):
        name = f"the_{name}"
    return name


def _write_paths(place: Place) -> Iterator[str]:
    if place.kernels is not None:
        yield f"# where the {'file' if place.module is None else 'module'} is, from this folder"
        yield f"KERNELS = {quote(place.kernels)}"


def _write_import(place: Place, names: Mapping[str, str]) -> Iterator[str]:
    """The names of the module, each with what it is called in the test."""
    if place.module is None:
        yield "path = Path(__file__).resolve().parent / KERNELS"
        yield 'spec = importlib.util.spec_from_file_location("the_kernels", path)'
        yield "module = importlib.util.module_from_spec(spec)"
        yield "spec.loader.exec_module(module)"
        yield from (f"{here} = module.{name}" for name, here in names.items())
    else:
        if place.kernels is not None:
            yield "monkeypatch.syspath_prepend(Path(__file__).resolve().parent / KERNELS)"
        taken = [n if n == here else f"{n} as {here}" for n, here in names.items()]
        yield from _list_parts(f"from {place.module} import ", "", taken, "")
    yield ""


def quote(text: str) -> str:
    """A literal as ruff and black write it: in double quotes unless they need more escapes."""
    shown = repr(text)
    if shown[0] == '"' or '"' in text:
        return shown
    return f'"{shown[1:-1]}"'


def _list_names(bug: Bug, call: str) -> list[str]:
    """The names of the target's module that a call uses."""
    own = {"a", "b", "torch", *bug.values, *(x.name for x in bug.operands)}
    tree = ast.parse(call.strip(), mode="eval")
    used = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return [n for n in dict.fromkeys(used) if n not in own and not hasattr(builtins, n)]


def _write_operand(operand: StatedOperand, name: str, long: _Long) -> Iterator[str]:
    pairs = [f"{at}: {_write_number(x)}" for at, x in operand.elements]
    elements = "{" + ", ".join(pairs) + "}"
    if operand.use == WRITTEN:
        elements = "None"
    elif len(pairs) > SHOWN:
        elements = f"read_numbers({_name_long(operand, long)})"
    items = [quote(operand.name), elements, operand.dtype]
    items += [f"shape={operand.shape}", f"strides={operand.strides}"]
    items += [f"offset={operand.offset}"] * bool(operand.offset)
    items += ["writable=True"] * (operand.use != READ)
    for line in _list_parts(f"{name} = place", "(", items, ")"):
        if len(line) + 4 > WIDTH and line == f"    {elements},":
            yield from ("    {", *(f"        {pair}," for pair in pairs), "    },")
        else:
            yield line


def _write_long(operand: StatedOperand, long: _Long) -> Iterator[str]:
    words = (f"{','.join(map(str, at))}={_write_plain(x)}" for at, x in operand.elements)
    yield f'{_name_long(operand, long)} = """'
    yield from textwrap.wrap(" ".join(words), WIDTH, break_on_hyphens=False)
    yield '"""'


def _name_long(operand: StatedOperand, long: _Long) -> str:
    alike = [x for x in long if x.name == operand.name]
    number = f"_{alike.index(operand) + 1}" if len(alike) > 1 else ""
    return f"ELEMENTS_OF_{operand.name.upper()}{number}"


def _write_number(x: float) -> str:
    return _write_plain(x) if math.isfinite(x) else f'float("{x}")'


def _write_plain(x: float) -> str:
    whole = x.is_integer() and abs(x) < 2**53 and str(x) != "-0.0"
    return str(int(x)) if whole else repr(x)


def _write_call(
    bug: Bug,
    one: Bug | StatedCall,
    place: Place,
    calling: Calling,
    names: Mapping[str, str],
    result: str,
) -> Iterator[str]:
    """One of the calls of a bug; its result is called so, "" where nobody looks at it."""
    others = [x.name for x in one.operands if x.name not in ("a", "b")]
    into = next(iter(bug.written[bug.result : bug.result + 1]), "")
    taken = "" if into or not result else f"{result} = "
    if calling.call is not None:
        made = [f"{name} = {value}" for name, value in one.values.items()]
        tree = ast.parse(calling.call.strip(), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = names.get(node.id, node.id)
        made.append(f"{taken}{ast.unparse(tree)}")
    else:
        named = [f"{n}={n}" for n in others] + [f"{n}={x}" for n, x in one.values.items()]
        first, dot, rest = place.function.partition(".")
        head = f"{taken}{names[first]}{dot}{rest}"
        made = list(_list_parts(head, "(", ["a", "b", *named], ")"))
    yield from ["with Room():"] * bug.room
    yield from _indent(made) if bug.room else made
    if not result:
        return
    if into:
        yield from [f"{result} = {into}"] * (into != result)
    elif bug.results - len(bug.written) > 1:
        yield f"{result} = {result}[{bug.result - len(bug.written)}]"


def _write_comparison(bug: Bug, formula: str | None) -> Iterator[str]:
    if bug.same:
        rows = "" if bug.rows is None else f"[..., :{bug.rows}, :]"
        text = parts.SAME.replace("ROWS", rows)
    elif not bug.wanted:
        text = parts.EXACT if bug.exact else ""
    elif not all(math.isfinite(x) for _, x, _ in bug.wanted):
        text = parts.NOT_FINITE
    elif any(allowed for _, _, allowed in bug.wanted):
        text = parts.BOUNDED
        yield "# derived: what sums in the contract's accumulator, in any order, and one rounding"
        yield "# may be off by (gemmproof's reference/bounds.py), not a measured tolerance"
    else:
        text = parts.LISTED
        of = "" if formula is None else f" of {formula}"
        yield from _comment([f"the exact result{of}, rounded once"])
    if bug.wanted and not bug.same:
        yield "wanted = {"
        for at, x, allowed in bug.wanted:
            shown = _write_number(x)
            pair = f"({shown}, {_write_number(allowed)})" if text is parts.BOUNDED else shown
            yield f"    {at}: {pair},"
        yield "}"
    yield from text.replace("NAME", bug.finding.result).replace("WANTED", "wanted").splitlines()


def _list_parts(head: str, opening: str, items: Sequence[str], closing: str) -> Iterator[str]:
    """Items on one line, or, where that is too long, a line each."""
    line = f"{head}{opening}{', '.join(items)}{closing}"
    if len(line) + 8 <= WIDTH:
        yield line
        return
    yield f"{head}{opening or '('}"
    yield from (f"    {item}," for item in items)
    yield closing or ")"


def _indent(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" if line else "" for line in lines)

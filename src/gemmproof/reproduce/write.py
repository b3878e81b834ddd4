"""A bug written as a stand-alone test."""

from __future__ import annotations

import ast
import builtins
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from gemmproof import __version__
from gemmproof.properties.kernel import READ, WRITTEN
from gemmproof.report.text import clean
from gemmproof.reproduce.bug import ALWAYS, BY_CHANCE, ENDS, Bug, Place, StatedCall, StatedOperand
from gemmproof.reproduce.record import Outcome
from gemmproof.target import Calling

# -- texts ---------------------------------------------------------------------------------------
_GOT = re.compile(r": got (\S+), expected ")
# outcomes of a test under Triton's interpreter, by what surrounds the operands: its message if it
# failed, "" if it passed, or None and the reason why it could not run
Outcomes = Mapping[str, Outcome]


def describe_gpu(bug: Bug, outcomes: Outcomes | str) -> list[str]:
    """Return two lines: on a GPU, and under Triton's interpreter.

    `outcomes` as a text is the reason why that was not tried.
    """
    return [
        f"On a GPU: {_describe_gpu(bug, outcomes)}",
        f"Triton's interpreter: {describe_try(bug, outcomes)}",
    ]


def _describe_gpu(bug: Bug, outcomes: Outcomes | str) -> str:
    tried = {} if isinstance(outcomes, str) else {name: x for name, (x, _) in outcomes.items()}
    is_store = bug.finding.message.startswith(("store", "atomic"))
    poison = "NaN" if any("float" in x.dtype for x in bug.operands) else "85"
    answers = (
        (bug.shown == ENDS, "the call itself fails, as it did when it was simulated"),
        (
            bug.shown == ALWAYS,
            "the values show it even if undefined memory holds zeros: simulated,"
            f" {bug.finding.result}{list(bug.at or ())} is {bug.got}",
        ),
        (tried.get("zeros"), "the values show it even with zeros around the operands"),
        (
            tried.get("nan") and is_store,
            "it may pass: the overwritten memory lies beyond the tensor. This test allocates memory"
            " there and compares it",
        ),
        (
            tried.get("nan"),
            f"it may pass: it depends on the memory behind the operands. {poison} lies there in"
            " this test, which shows it; zeros hide it",
        ),
        (
            bug.shown == BY_CHANCE,
            "it may pass: it depends on undefined lanes, which hold whatever registers and memory"
            " held before; zeros hide the fault",
        ),
    )
    otherwise = (
        f"it may pass: no value of this case shows {bug.finding.property}; the simulator and tools"
        " such as compute-sanitizer see the accesses themselves"
    )
    return next((text for applies, text in answers if applies), otherwise)


def describe_try(bug: Bug, outcomes: Outcomes | str) -> str:
    """Return the outcome of the test under Triton's interpreter."""
    if isinstance(outcomes, str):
        return f"the test ends there: {clean(outcomes)}"
    (nan, reason), (zeros, _) = outcomes["nan"], outcomes["zeros"]
    if nan is None:
        return f"the test stops there: {clean(reason)}"
    if nan:
        note = "" if zeros else " (with zeros around the operands it passes)"
        match = _GOT.search(zeros or "")
        if bug.shown == ALWAYS and bug.got is not None and match and float(match[1]) != bug.got:
            note = f"; simulated it was {bug.got}: the interpreter computes otherwise"
        return f"the test fails: {clean(nan)}{note}"
    return "the test passes there"


# -- test ----------------------------------------------------------------------------------------
# The names that a written test binds, apart from the operands, as tests/reproduce checks.
NAMES = frozenset(
    (
        *("importlib", "os", "Path", "pytest", "torch", "TorchFunctionMode", "monkeypatch"),
        *("KERNELS", "INTERPRETED", "DEVICE", "AROUND", "GUARD", "MEMORY", "CARRIERS"),
        *("place", "assert_memory_unchanged", "Room", "read_numbers", "path", "spec", "module"),
        *("configs", "c", "got", "expected", "wanted", "at", "x", "y", "allowed", "near"),
        *("largest", "lost", "overwrite", "first_c", "renewed", "here", "there"),
        *("alike", "kind", "bits", "differ"),
    )
)
WIDTH = 88  # the default of ruff and black
SHOWN = 24  # elements that are listed one a line; more are written as a text
TEMPLATE = "test.py.j2"


def write_test(
    bug: Bug, location: Place, calling: Calling, reproduce: str, notes: Sequence[str]
) -> str:
    """Write the test file. `reproduce` is the command that judges the case, `notes` are on GPUs."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    first = location.function.partition(".")[0]
    names = [first] if calling.call is None else _list_names(bug, calling.call) or [first]
    reserved = {*NAMES, *bug.values, *(x.name for x in bug.operands)}
    aliases = {n: _find_free(n, reserved) for n in dict.fromkeys([*names, *bug.tuned])}
    calls: list[Bug | StatedCall] = [*bug.before, bug]
    labels = _label_long(x for call in calls for x in call.operands)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE).render(
        bug=bug,
        location=location,
        name=location.function.rpartition(".")[2],
        version=__version__,
        result=bug.finding.result,
        formula=calling.spec,
        is_finite=all(math.isfinite(x) for _, x, _ in bug.expected),
        is_bounded=any(allowed for _, _, allowed in bug.expected),
        facts=_list_facts(bug, reproduce, notes),
        calls=calls,
        aliases=aliases,
        labels=labels,
        comment=_comment,
        quote=quote,
        write_call=partial(_write_call, bug, location, calling, aliases),
        write_elements=_write_elements,
        write_import=_write_import,
        write_number=_write_number,
        write_operand=partial(_write_operand, labels),
    )


def _list_facts(bug: Bug, reproduce: str, notes: Sequence[str]) -> Iterator[str]:
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
        expected = next((x for at, x, _ in bug.expected if at == bug.at), None)
        expectation = "" if expected is None else f", expected {expected}"
        yield f"Here, simulated: {finding.result}{list(bug.at)}: got {bug.got}{expectation}"
    yield from notes
    yield "With a GPU: pytest THIS_FILE. Without one: TRITON_INTERPRET=1 pytest THIS_FILE"
    yield f"Hypothesis: @example(case={bug.case!r})"
    yield f"gemmproof:  {reproduce}"


def _comment(facts: Iterable[str]) -> str:
    lines = []
    for fact in facts:
        pasted = fact.startswith(("gemmproof: ", "Hypothesis: "))
        lines += [clean(fact)] if pasted else textwrap.wrap(clean(fact), WIDTH - 2)
    return "\n".join(f"# {line}".rstrip() for line in lines)


def _find_free(name: str, reserved: set[str]) -> str:
    """Return an alias of a name of the target that is not `reserved` by the test."""
    while name in reserved or hasattr(builtins, name):
        name = f"the_{name}"
    return name


def _write_import(module: str, names: Mapping[str, str]) -> str:
    """Write the import of a module's names, each under its alias in the test."""
    imports = [n if n == alias else f"{n} as {alias}" for n, alias in names.items()]
    return _write_parts(f"from {module} import ", "", imports, "")


def quote(text: str) -> str:
    """Write a literal as ruff and black do: in double quotes unless they need more escapes."""
    shown = repr(text)
    if shown[0] == '"' or '"' in text:
        return shown
    return f'"{shown[1:-1]}"'


def _list_names(bug: Bug, call: str) -> list[str]:
    """Return the names of the target's module that a call uses."""
    own = {"a", "b", "torch", *bug.values, *(x.name for x in bug.operands)}
    tree = ast.parse(call.strip(), mode="eval")
    used = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return [n for n in dict.fromkeys(used) if n not in own and not hasattr(builtins, n)]


def _write_operand(labels: Mapping[StatedOperand, str], operand: StatedOperand, name: str) -> str:
    pairs = [f"{at}: {_write_number(x)}" for at, x in operand.elements]
    elements = "{" + ", ".join(pairs) + "}"
    if operand.use == WRITTEN:
        elements = "None"
    elif operand in labels:
        elements = f"read_numbers({labels[operand]})"
    items = [quote(operand.name), elements, operand.dtype]
    items += [f"shape={operand.shape}", f"strides={operand.strides}"]
    items += [f"offset={operand.offset}"] * bool(operand.offset)
    items += ["writable=True"] * (operand.use != READ)
    text = _write_parts(f"{name} = place", "(", items, ")")
    line = f"    {elements},"
    if len(line) + 4 <= WIDTH:
        return text
    return text.replace(line, "\n".join(["    {", *(f"        {x}," for x in pairs), "    },"]))


def _write_elements(operand: StatedOperand) -> str:
    items = (f"{','.join(map(str, at))}={_write_plain(x)}" for at, x in operand.elements)
    return "\n".join(textwrap.wrap(" ".join(items), WIDTH, break_on_hyphens=False))


def _label_long(operands: Iterable[StatedOperand]) -> dict[StatedOperand, str]:
    """Name the texts of operands with many elements, by number if several have one name."""
    long = list(dict.fromkeys(x for x in operands if len(x.elements) > SHOWN))
    labels = {}
    for operand in long:
        alike = [x for x in long if x.name == operand.name]
        number = f"_{alike.index(operand) + 1}" if len(alike) > 1 else ""
        labels[operand] = f"ELEMENTS_OF_{operand.name.upper()}{number}"
    return labels


def _write_number(x: float) -> str:
    return _write_plain(x) if math.isfinite(x) else f'float("{x}")'


def _write_plain(x: float) -> str:
    whole = x.is_integer() and abs(x) < 2**53 and str(x) != "-0.0"
    return str(int(x)) if whole else repr(x)


def _write_call(
    bug: Bug,
    location: Place,
    calling: Calling,
    names: Mapping[str, str],
    call: Bug | StatedCall,
    result: str,
) -> str:
    """Write one of the calls of a bug; `result` is the name of its result, "" if unused."""
    others = [x.name for x in call.operands if x.name not in ("a", "b")]
    into = next(iter(bug.written[bug.result : bug.result + 1]), "")
    target = "" if into or not result else f"{result} = "
    if calling.call is not None:
        lines = [f"{name} = {value}" for name, value in call.values.items()]
        tree = ast.parse(calling.call.strip(), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = names.get(node.id, node.id)
        lines.append(f"{target}{ast.unparse(tree)}")
    else:
        named = [f"{n}={n}" for n in others] + [f"{n}={x}" for n, x in call.values.items()]
        first, dot, rest = location.function.partition(".")
        head = f"{target}{names[first]}{dot}{rest}"
        lines = [_write_parts(head, "(", ["a", "b", *named], ")")]
    if bug.guarded:
        lines = ["with Room():", textwrap.indent("\n".join(lines), "    ")]
    if result and into:
        lines += [f"{result} = {into}"] * (into != result)
    elif result and bug.results - len(bug.written) > 1:
        lines.append(f"{result} = {result}[{bug.result - len(bug.written)}]")
    return "\n".join(lines)


def _write_parts(head: str, opening: str, items: Sequence[str], closing: str) -> str:
    """Write the items on one line, or on a line each if that is too long."""
    line = f"{head}{opening}{', '.join(items)}{closing}"
    if len(line) + 8 <= WIDTH:
        return line
    return "\n".join([f"{head}{opening or '('}", *(f"    {x}," for x in items), closing or ")"])

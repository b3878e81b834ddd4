"""A bug written as a stand-alone test."""

from __future__ import annotations

import ast
import builtins
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gemmproof import __version__
from gemmproof.properties.kernel import READ, WRITTEN
from gemmproof.report.text import clean
from gemmproof.reproduce.bug import ALWAYS, BY_CHANCE, ENDS, Bug, Place, StatedCall, StatedOperand
from gemmproof.target import Calling

# -- texts ---------------------------------------------------------------------------------------
_GOT = re.compile(r": got (\S+), expected ")
# outcomes of a test under Triton's interpreter, by what surrounds the operands: its message if it
# failed, "" if it passed, or None and the reason why it could not run
Outcomes = Mapping[str, tuple[str | None, str]]


def describe_gpu(bug: Bug, outcomes: Outcomes | str) -> list[str]:
    """Return two lines: on a GPU, and under Triton's interpreter.

    `outcomes` as a text is the reason why that was not tried.
    """
    return [
        f"On a GPU: {_describe_gpu(bug, outcomes)}",
        f"Triton's interpreter: {describe_try(bug, outcomes)}",
    ]


def _describe_gpu(bug: Bug, outcomes: Outcomes | str) -> str:
    tried = (
        {}
        if isinstance(outcomes, str)
        else {name: message for name, (message, _) in outcomes.items()}
    )
    if bug.shown == ENDS:
        return "the call itself fails, as it did when it was simulated"
    if bug.shown == ALWAYS:
        element = f"{bug.finding.result}{list(bug.at or ())}"
        amid = "with zeros where nothing is defined as well"
        return f"values show it, {amid}: simulated, {element} is {bug.got}"
    if tried.get("zeros"):
        return "values show it, even with zeros around the operands"
    if tried.get("nan") and bug.finding.message.startswith(("store", "atomic")):
        return (
            "it may pass: what is overwritten lies beyond the tensor. This test keeps memory there"
            " and looks at it"
        )
    poison = "NaN" if any("float" in x.dtype for x in bug.operands) else "85"
    if tried.get("nan"):
        return (
            f"it may pass: what lies behind the operands decides. {poison} lies there in this test,"
            " which shows it; zeros hide it"
        )
    if bug.shown == BY_CHANCE:
        return (
            "it may pass: what undefined lanes hold decides, which is whatever registers and memory"
            " held before; as zeros they hide it"
        )
    return (
        f"it may pass: no value of this case shows {bug.finding.property}; the simulator and tools"
        " such as compute-sanitizer see the accesses themselves"
    )


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


# -- parts of a test -----------------------------------------------------------------------------
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

HEAD = '''\
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
AROUND = float("nan"), 85  # what lies around the operands: floats, integers
GUARD = 65536  # elements of it on either side
MEMORY = []  # of each operand, what it held, and the places that a call may write to
CARRIERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def place(name, elements, dtype, shape, strides, offset=0, writable=False):
    """A tensor of zeros but for `elements` (of AROUND for None), amid AROUND."""
    reach = 1 + sum(max(n - 1, 0) * step for n, step in zip(shape, strides))
    first = GUARD + offset
    fill = AROUND[0] if dtype.is_floating_point else AROUND[1]
    memory = torch.full((first + reach + GUARD,), fill, dtype=torch.float64)
    where = torch.arange(memory.numel()).as_strided(shape, strides, first)
    if elements is not None:
        memory[where] = 0.0
    for at, value in (elements or {}).items():
        memory[where[at]] = value
    memory = memory.to(dtype).to(DEVICE)
    bits = memory.view(CARRIERS[memory.element_size()])
    MEMORY.append((name, bits, bits.clone(), where.to(DEVICE) if writable else None))
    return memory.as_strided(shape, strides, first)


def assert_memory_unchanged():
    for name, bits, before, own in MEMORY:
        if own is not None:
            before[own] = bits[own]
        changed = (bits != before).nonzero().flatten().tolist()
        where = [at - GUARD for at in changed[:4]]
        assert not changed, f"memory of {name}: got offsets {where} overwritten"'''

RENEW = '''\
def overwrite(tensor, other):
    """Give a tensor what lies in all the memory of another one like it."""
    held = {bits.data_ptr(): (bits, before) for _, bits, before, _ in MEMORY}
    bits, before = held[tensor.untyped_storage().data_ptr()]
    bits.copy_(held[other.untyped_storage().data_ptr()][0])
    before.copy_(bits)'''

ROOM = '''\
class Room(TorchFunctionMode):
    """What the wrapper makes by torch.empty and torch.zeros lies amid AROUND as well."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        kinds = [kind for kind in ("empty", "zeros") if kind in function.__name__]
        if not kinds or not isinstance(made, torch.Tensor):
            return made
        held = {} if kinds == ["zeros"] else None
        new = (held, made.dtype, tuple(made.shape), made.stride())
        return place("what the wrapper made", *new, writable=True)'''

NUMBERS = '''\
def read_numbers(text):
    """The elements of a text such as "0,0=1.5 0,1=2"."""
    words = (word.split("=") for word in text.split())
    return {tuple(map(int, at.split(","))): float(value) for at, value in words}'''

SKIP = """\
@pytest.mark.skipif(
    not INTERPRETED and not torch.cuda.is_available(),
    reason="no CUDA device is there, and TRITON_INTERPRET=1 is not set",
)"""

EXACT = """\
got = c.cpu().double()
# exact, since these are integers whose sums float64 holds; then rounded once
expected = (a.cpu().double() @ b.cpu().double()).to(c.dtype).double()
assert got.shape == expected.shape, "NAME has another shape"
for at in (got != expected).nonzero().tolist():
    x, y = got[tuple(at)].item(), expected[tuple(at)].item()
    assert x == y, f"NAME{at}: got {x}, expected {y}"
"""

# what an earlier call gave, bit for bit; ROWS are those that both results have
SAME = """\
here, there = cROWS, first_cROWS
alike = here.dtype == there.dtype and here.shape == there.shape
assert alike, "NAME has another dtype or shape than in call 1"
kind = CARRIERS[c.element_size()]
bits, wanted = (x.cpu().contiguous().view(kind) for x in (here, there))
differ = (bits != wanted).nonzero().tolist()
for at in differ[:1]:
    x, y = here[tuple(at)].item(), there[tuple(at)].item()
    assert not differ, f"NAME{at}: got {x}, expected {y} as in call 1"
"""

LISTED = """\
for at, expected in WANTED.items():
    got = c[at].item()
    assert got == expected, f"NAME{list(at)}: got {got}, expected {expected}"
"""

BOUNDED = """\
for at, (expected, allowed) in WANTED.items():
    got = c[at].item()
    near = abs(got - expected) <= allowed  # not so of NaN
    assert near, f"NAME{list(at)}: got {got}, expected {expected} +- {allowed}"
"""

# where NaN or Inf is expected; 8-bit stores may saturate NaN too, and NaN may replace Inf
NOT_FINITE = """\
largest = torch.finfo(c.dtype).max
for at, expected in WANTED.items():
    got = c[at].item()
    lost = abs(got) < largest  # not so of NaN
    if expected != expected and c.element_size() > 1:
        lost = got == got  # no NaN
    assert not lost, f"NAME{list(at)}: got {got}, expected {expected}"
"""


# -- test ----------------------------------------------------------------------------------------
WIDTH = 88  # the default of ruff and black
SHOWN = 24  # elements that are listed one a line; more are written as a text

StatedOperands = tuple[StatedOperand, ...]
_Long = Sequence[StatedOperand]  # those whose elements are texts


def write_test(
    bug: Bug, location: Place, calling: Calling, reproduce: str, notes: Sequence[str]
) -> str:
    """Write the test file. `reproduce` is the command that judges the case, `notes` are on GPUs."""
    name = location.function.rpartition(".")[2]
    operands = [x for call in bug.before for x in call.operands] + list(bug.operands)
    long = list(dict.fromkeys(x for x in operands if len(x.elements) > SHOWN))
    body = list(_indent(_write_body(bug, location, calling, long)))
    renews = any("overwrite(" in line for line in body)
    needs_patches = bool(bug.tuned) or None not in (location.kernels, location.module)
    helpers = [
        HEAD,
        *[RENEW] * renews,
        *[ROOM] * bug.guarded,
        *[NUMBERS] * bool(long),
    ]
    lines = [
        f'"""A call of {name} that goes wrong, found by gemmproof {__version__}."""',
        "",
        *_comment(_list_facts(bug, reproduce, notes)),
        "",
        *["import importlib.util"] * (location.module is None),
        "import os",
        *["from pathlib import Path"] * (location.kernels is not None),
        "",
        "import pytest",
        "import torch",
        *["from torch.overrides import TorchFunctionMode"] * bug.guarded,
        "",
        *_write_paths(location),
        *(line for operand in long for line in _write_long(operand, long)),
        "\n\n\n".join(helpers),
        "",
        "",
        SKIP,
        f"def test_{name}({'monkeypatch' * needs_patches}):",
        *body,
        "",
    ]
    return "\n".join(lines)


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


def _comment(facts: Iterable[str]) -> Iterator[str]:
    for fact in facts:
        pasted = fact.startswith(("gemmproof: ", "Hypothesis: "))
        wrapped = [clean(fact)] if pasted else textwrap.wrap(clean(fact), WIDTH - 2)
        yield from (f"# {line}".rstrip() for line in wrapped)


def _write_body(bug: Bug, location: Place, calling: Calling, long: _Long) -> Iterator[str]:
    first = location.function.partition(".")[0]
    names = [first] if calling.call is None else _list_names(bug, calling.call) or [first]
    reserved = {*NAMES, *bug.values, *(x.name for x in bug.operands)}
    aliases = {n: _find_free(n, reserved) for n in dict.fromkeys([*names, *bug.tuned])}
    yield from _write_import(location, aliases)
    for name, number in bug.tuned.items():
        yield f"# the configuration of the case, number {number} of those that are tried"
        yield f"configs = {aliases[name]}.configs[{number}:{number + 1}]"
        yield f'monkeypatch.setattr({aliases[name]}, "configs", configs)'
    previous: StatedOperands = ()
    for number, call in enumerate(bug.before):
        yield from _comment([f"{call.label}:"])
        yield from _write_operands(call.operands, previous, long)
        compared = bug.same and number == 0
        yield from _write_call(bug, call, location, calling, aliases, "c" * compared)
        yield from ["first_c = c.clone()"] * compared
        yield ""
        previous = call.operands if call.shares else ()
    yield from ["# the call of the case:"] * bool(bug.before)
    yield from _write_operands(bug.operands, previous, long)
    yield from _write_call(bug, bug, location, calling, aliases, "c")
    yield from _write_comparison(bug, calling.spec)
    yield "assert_memory_unchanged()"


def _write_operands(
    operands: StatedOperands, previous: StatedOperands, long: _Long
) -> Iterator[str]:
    """Yield the operands of a call; those of the `previous` call get new elements."""
    for operand in operands:
        if operand.use == READ and operand in previous:
            continue
        if previous:
            yield from _write_operand(operand, "renewed", long)
            yield f"overwrite({operand.name}, renewed)"
        else:
            yield from _write_operand(operand, operand.name, long)


def _find_free(name: str, reserved: set[str]) -> str:
    """Return an alias of a name of the target that is not `reserved` by the test."""
    while name in reserved or hasattr(builtins, name):
        name = f"the_{name}"
    return name


def _write_paths(location: Place) -> Iterator[str]:
    if location.kernels is not None:
        yield f"# where the {'file' if location.module is None else 'module'} is, from this folder"
        yield f"KERNELS = {quote(location.kernels)}"


def _write_import(location: Place, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the import of the module's names, each under its alias in the test."""
    if location.module is None:
        yield "path = Path(__file__).resolve().parent / KERNELS"
        yield 'spec = importlib.util.spec_from_file_location("the_kernels", path)'
        yield "module = importlib.util.module_from_spec(spec)"
        yield "spec.loader.exec_module(module)"
        yield from (f"{alias} = module.{name}" for name, alias in names.items())
    else:
        if location.kernels is not None:
            yield "monkeypatch.syspath_prepend(Path(__file__).resolve().parent / KERNELS)"
        imports = [n if n == alias else f"{n} as {alias}" for n, alias in names.items()]
        yield from _list_parts(f"from {location.module} import ", "", imports, "")
    yield ""


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


def _write_operand(operand: StatedOperand, name: str, long: _Long) -> Iterator[str]:
    pairs = [f"{at}: {_write_number(x)}" for at, x in operand.elements]
    elements = "{" + ", ".join(pairs) + "}"
    if operand.use == WRITTEN:
        elements = "None"
    elif len(pairs) > SHOWN:
        elements = f"read_numbers({_label_long(operand, long)})"
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
    items = (f"{','.join(map(str, at))}={_write_plain(x)}" for at, x in operand.elements)
    yield f'{_label_long(operand, long)} = """'
    yield from textwrap.wrap(" ".join(items), WIDTH, break_on_hyphens=False)
    yield '"""'


def _label_long(operand: StatedOperand, long: _Long) -> str:
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
    call: Bug | StatedCall,
    location: Place,
    calling: Calling,
    names: Mapping[str, str],
    result: str,
) -> Iterator[str]:
    """Yield one of the calls of a bug; `result` is the name of its result, "" if unused."""
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
        lines = list(_list_parts(head, "(", ["a", "b", *named], ")"))
    yield from ["with Room():"] * bug.guarded
    yield from _indent(lines) if bug.guarded else lines
    if not result:
        return
    if into:
        yield from [f"{result} = {into}"] * (into != result)
    elif bug.results - len(bug.written) > 1:
        yield f"{result} = {result}[{bug.result - len(bug.written)}]"


def _write_comparison(bug: Bug, formula: str | None) -> Iterator[str]:
    if bug.same:
        rows = "" if bug.rows is None else f"[..., :{bug.rows}, :]"
        text = SAME.replace("ROWS", rows)
    elif not bug.expected:
        text = EXACT if bug.exact else ""
    elif not all(math.isfinite(x) for _, x, _ in bug.expected):
        text = NOT_FINITE
    elif any(allowed for _, _, allowed in bug.expected):
        text = BOUNDED
        yield "# derived: what sums in the contract's accumulator, in any order, and one rounding"
        yield "# may be off by (gemmproof's reference/bounds.py), not a measured tolerance"
    else:
        text = LISTED
        of = "" if formula is None else f" of {formula}"
        yield from _comment([f"the exact result{of}, rounded once"])
    if bug.expected and not bug.same:
        yield "wanted = {"
        for at, x, allowed in bug.expected:
            shown = _write_number(x)
            pair = f"({shown}, {_write_number(allowed)})" if text is BOUNDED else shown
            yield f"    {at}: {pair},"
        yield "}"
    yield from text.replace("NAME", bug.finding.result).replace("WANTED", "wanted").splitlines()


def _list_parts(head: str, opening: str, items: Sequence[str], closing: str) -> Iterator[str]:
    """Yield the items on one line, or on a line each if that is too long."""
    line = f"{head}{opening}{', '.join(items)}{closing}"
    if len(line) + 8 <= WIDTH:
        yield line
        return
    yield f"{head}{opening or '('}"
    yield from (f"    {item}," for item in items)
    yield closing or ")"


def _indent(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" if line else "" for line in lines)

"""An option is declared once: what is typed, set in a file and spelled for a reader is the same."""

import json
import shlex
import string
from dataclasses import MISSING
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.pytest_project import run_pytest

from gemmproof.cli import COMMANDS, main, parser
from gemmproof.commands.groups import natural, positive
from gemmproof.options import iter_options, make_record, spell
from gemmproof.properties.cases.layouts import LAYOUTS
from gemmproof.pytest_plugin.options import PluginOptions, read_options
from gemmproof.reference.gpus import GPUS
from gemmproof.settings import find_settings, list_words
from gemmproof.signoff.rules import ACCEPTED
from gemmproof.spelling import NamesOnly, write_command

PARSER = parser()
NUMBERS = st.integers(1, 2**31 - 1)
WORDS = st.text(string.ascii_letters + string.digits + "-_ ='\"\\,.:", max_size=8)


def pairs(names, values):
    return st.dictionaries(st.sampled_from(names), values, min_size=1).map(lambda x: (*x.items(),))


REASONS = st.tuples(st.text("abc_", min_size=1), st.text("xyz=-", min_size=1))
# values of the options that read more than a name, a number or any text, by their metavar
VALUES = {
    "AXIS=SIZES,...": pairs("MNK", st.sampled_from(["1", "16..64:16", ".."])),
    "AXIS=N,...": pairs("MNK", NUMBERS),
    "OPERAND=LAYOUT,...": pairs("ab", st.sampled_from([*LAYOUTS])),
    "PROPERTY=REASON": REASONS,
    "LOW..HIGH": st.integers(5, 16).flatmap(
        lambda n: st.integers(n, 16).map(lambda m: tuple(1 << k for k in range(n, m + 1)))
    ),
    "GPU,...": st.sampled_from([*GPUS]),
    "OPERATION,...": st.sampled_from(["add", "relu", "python"]),
    "KIND[:KERNEL]": st.builds("{}:{}".format, st.sampled_from(ACCEPTED), WORDS),
    "S": st.floats(0, 60),
    "X": st.floats(0, 1),
    "BYTES": NUMBERS,
}


def one_value(option):
    """Return a strategy for one value of an option."""
    if isinstance(option.metavar, tuple):
        return st.tuples(*[NUMBERS] * len(option.metavar))
    if isinstance(option.read, NamesOnly):
        return st.sampled_from(option.read.names)
    if option.read in (positive, natural):
        return NUMBERS
    if option.name == "warps":
        return st.sampled_from([1, 2, 4, 8, 16, 32])
    if option.positional:  # as everywhere, one that looks like an option is taken for one
        return st.from_regex(r"[a-z][a-z-]{0,9}", fullmatch=True)
    return WORDS if option.read is str else VALUES[option.metavar]


def values_of(option):
    """Return a strategy for the value of an option, its default among them."""
    if not option.metavar:
        return st.booleans() if option.negated else st.sampled_from([option.default, True])
    if option.title == "the sign-off" and option.field in ("baseline", "bench", "mutation"):
        return st.none()  # what they read is in files
    value = one_value(option)
    if option.repeated:
        is_required = option.default is MISSING
        several = st.lists(value, min_size=1, max_size=3, unique=bool(option.separator)).map(tuple)
        return several if is_required else st.just(option.default) | several
    if option.negated:
        value |= st.just(False)
    return value if option.default is MISSING else st.just(option.default) | value


def records(cls):
    """Return a strategy for the records of a command."""
    drawn = {option.field: values_of(option) for option in iter_options(cls)}
    return st.fixed_dictionaries(drawn).map(lambda values: make_record(cls, values))


def parse(cls, arguments):
    return make_record(cls, vars(PARSER.parse_args([cls.command.name, *arguments])))


@pytest.mark.parametrize("cls", COMMANDS, ids=lambda cls: cls.command.name)
@settings(max_examples=25)
@given(data=st.data())
def test_a_line_to_paste_is_parsed_to_the_same_record(cls, data):
    record = data.draw(records(cls))
    assert parse(cls, shlex.split(write_command(spell(record)))) == record


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("settings")


@pytest.mark.parametrize("cls", COMMANDS, ids=lambda cls: cls.command.name)
@settings(max_examples=25)
@given(data=st.data())
def test_a_setting_is_what_is_typed(cls, data, folder):
    record, settings, typed = data.draw(records(cls)), {}, []
    for declared, option in zip(iter_options(cls), iter_options(record), strict=True):
        value = option.default
        if option.positional or isinstance(option.metavar, tuple):
            typed += option.spell(value) if value != declared.default else []
        elif value != declared.default:
            texts = [*map(option.write, value)] if option.repeated else option.write(value)
            settings[option.name] = value if isinstance(value, bool) else texts
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    (folder / "pyproject.toml").write_text("".join(["[tool.gemmproof]\n", *lines]))
    where, in_file = find_settings(folder)
    assert (where, in_file) == (str(folder / "pyproject.toml"), settings)
    known = {f"--{no}{option.name}" for option in iter_options(cls) for no in ("", "no-")}
    arguments = list_words(in_file, known, PARSER_WORDS[cls.command.name], [])
    expected = {o.field: o.default for o in iter_options(parse(cls, spell(record)))}
    got = {o.field: o.default for o in iter_options(parse(cls, [*arguments, *typed]))}
    assert got == expected


COMMAND_PARSERS = PARSER._subparsers._group_actions[0].choices
PARSER_WORDS = {name: {*p._option_string_actions} for name, p in COMMAND_PARSERS.items()}


def test_a_record_without_arguments_has_the_defaults():
    assert [spell(parse(cls, [])) for cls in COMMANDS if not is_required(cls)] == [[]] * 6


def is_required(cls):
    return any(option.default is MISSING for option in iter_options(cls))


# -- pytest --------------------------------------------------------------------------------------
# a device or a case may be refused, and so may a comparison with a model that no target has
READ_ALONE = {"device", "case", "check-model"}
PLUGIN = [option for option in iter_options(PluginOptions) if option.name not in READ_ALONE]


@settings(max_examples=25)
@given(values=st.fixed_dictionaries({option: values_of(option) for option in PLUGIN}))
def test_pytest_reads_the_same_values_typed_and_from_its_file(values, tmp_path_factory):
    values = {option: x for option, x in values.items() if x != option.default and x}
    texts = {f"gemm_{o.name.replace('-', '_')}": str(x).strip() for o, x in values.items()}
    values = {o.field: x.strip() if isinstance(x, str) else x for o, x in values.items()}
    nowhere = SimpleNamespace(
        getoption=lambda name: None, getini=lambda name: "", rootpath=tmp_path_factory.getbasetemp()
    )
    typed = {**vars(nowhere), "getoption": texts.get}
    in_file = {**vars(nowhere), "getini": lambda name: texts.get(name, "")}
    expected = make_record(PluginOptions, {k: x for k, x in values.items() if x})
    assert read_options(SimpleNamespace(**typed)) == expected
    assert read_options(SimpleNamespace(**in_file)) == expected


# -- options that had other names ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "k.py:f", "--premise"], "got '--premise', which is now --check-model"),
        (["check", "k.py:f", "--kept", "dir"], "got '--kept', which is now --saved-cases"),
        (["signoff", "--kept=dir"], "got '--kept=dir', which is now --saved-cases"),
        (["reproduce", "k.py:f", "--no-kept"], "got '--no-kept', which is now --no-saved-cases"),
        (["signoff", "--accept", "promise"], "got 'promise', which is now 'guarantee'"),
        (["signoff", "--accept", "promise:matmul"], "got 'promise', which is now 'guarantee'"),
    ],
)
def test_an_old_name_is_answered_with_the_new_one(arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    err = capsys.readouterr().err
    assert (end.value.code, err.count("\n")) == (2, 1)
    assert message in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("premise = true", "got 'premise', which is now check-model"),
        ('kept = "dir"', "got 'kept', which is now saved-cases"),
    ],
)
def test_an_old_setting_is_answered_with_the_new_one(
    line, message, tmp_path, monkeypatch, capsys, texts
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(f"[tool.gemmproof]\n{line}\n")
    with pytest.raises(SystemExit) as end:
        main(["check", "k.py:f"])
    err = capsys.readouterr().err
    assert (end.value.code, err.count("\n")) == (2, 1)
    texts("a setting that is refused", err, message=message)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--gemm-premise"], "got --gemm-premise, which is now --gemm-check-model"),
        (["--gemm-kept", "dir"], "got --gemm-kept, which is now --gemm-saved-cases"),
        (["--gemm-no-kept"], "got --gemm-no-kept, which is now --gemm-no-saved-cases"),
        (["-o", "gemm_kept=dir"], "got gemm_kept, which is now gemm_saved_cases"),
    ],
)
def test_pytest_answers_an_old_name_with_the_new_one(typed, message, tmp_path):
    (tmp_path / "test_nothing.py").touch()
    status, out = run_pytest(tmp_path, *typed)
    assert (status, out.count("\n")) == (4, 2)
    assert message in out

"""The script of `gemmproof completion`, run by the installed shells."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gemmproof.cli import COMMANDS, main, parser
from gemmproof.commands.completion import write_script
from gemmproof.reference.formats import OPERANDS, RESULTS
from gemmproof.reference.gpus import TARGETS, UNMODELLED

NAMES = [options.command.name for options in COMMANDS]
ASK = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_shtab_gemmproof
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(name="complete", scope="module")
def completing(tmp_path_factory):
    """Return a function that completes the last argument in bash, in a folder with a few files."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("my_kernels.py", "conftest.py", "offsets.py"):
        (folder / name).touch()
    (folder / "myfolder").mkdir()
    script = folder / "completion.bash"
    script.write_text(write_script("bash", parser()))

    def complete(*args):
        typed = ["bash", "--norc", "-c", ASK, "bash", str(script), "gemmproof", *args]
        done = subprocess.run(typed, cwd=folder, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return {word for word in done.stdout.splitlines() if word}

    return complete


def test_commands_are_completed(complete):
    assert complete("") >= set(NAMES)
    assert complete("ch") == {"check"}
    assert complete("co") == {"contract", "completion"}


@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_a_command_is_completed(complete, name):
    commands = parser()._subparsers._group_actions[0].choices
    options = {word for word in commands[name]._option_string_actions if word.startswith("--")}
    assert complete(name, "--") == options


@pytest.mark.parametrize(
    ("args", "offered"),
    [
        (["check", "k.py:f", "--dtype", ""], set(OPERANDS)),
        (["check", "--dtype", "fp16", "--dtype", "fp8"], {"fp8e4m3", "fp8e5m2"}),
        (["check", "k.py:f", "--out-dtype", ""], set(RESULTS)),
        (["check", "k.py:f", "--target", ""], {*TARGETS, *UNMODELLED}),
        (["drift", "k.py:f", "--target", "ie"], {"ieee"}),
        (["check", "k.py:f", "--layouts", ""], {"contiguous", "any"}),
        (["signoff", "--device", "cu"], {"cuda"}),
        (["bench", "k.py:f", "--shapes", "ll"], {"llama"}),
        (["completion", ""], {"bash", "zsh", "tcsh"}),
        (["explain", "off"], {"offsets_fit", "offsets.py"}),
        (["explain", "stays"], {"stays_in_bounds"}),
        (["explain", "no_"], {"no_races", "no_launch", "no_product", "no_dot", "no_tensor_core"}),
        (["check", "my"], {"my_kernels.py", "myfolder"}),
        (["list", "my"], {"my_kernels.py", "myfolder"}),
        (["signoff", "--conftest", "conf"], {"conftest.py"}),
        (["check", "k.py:f", "--json", "conf"], {"conftest.py"}),
        (["init", "k.py:f", "--directory", "my"], {"myfolder"}),
        (["check", "k.py:f", "--no-pr"], {"--no-proof"}),
    ],
)  # fmt: skip
def test_values_are_completed_from_the_options_themselves(complete, args, offered):
    assert complete(*args) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_each_script_is_printed_whole(shell, capsys):
    assert main(["completion", shell]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.endswith("\n")
    assert all(name in out for name in (*NAMES, "--layouts", "fp8e4m3", "sm_100"))
    program = shutil.which(shell)
    if program is not None and shell != "tcsh":  # tcsh cannot parse without running
        subprocess.run([program, "-n"], input=out, text=True, check=True)


def test_another_shell_is_refused_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit) as end:
        main(["completion", "zhs"])
    assert end.value.code == 2
    message = "argument SHELL: got 'zhs', expected one of: bash zsh tcsh"
    assert message in capsys.readouterr().err


def test_a_full_disk_is_one_line():
    command = [sys.executable, "-m", "gemmproof", "completion", "bash"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3
    message = "stdout: got 'No space left on device', expected to write the answer"
    assert done.stderr == f"gemmproof completion: {message}\n"

"""Hooks into Triton: one module replaces parts of it, and restores them."""

import ast
from contextlib import suppress

import pytest
import triton
from tests.test_arrows import ALLOWED, ROOT, files
from triton.compiler.code_generator import CodeGenerator
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmproof.reference.fake_cuda import fake_gpu
from gemmproof.reference.triton_hooks import intercept, swap

HOOKED = {
    "launch": (JITFunction, "run"),
    "compile": (JITFunction, "_do_compile"),
    "tune": (Autotuner, "run"),
    "prune": (Autotuner, "prune_configs"),
    "measure": (Autotuner, "_bench"),
    "translate": (CodeGenerator, "visit"),
    "describe": (TensorDescriptor, "__post_init__"),
}


# -- the only place ------------------------------------------------------------------------------
def root(node: ast.AST) -> str | None:
    """Return the name that an expression begins with: `a` of `a.b[0].c`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def names_of_triton(tree: ast.AST) -> set[str]:
    """Return the names of a file that stand for parts of Triton, but for its settings."""
    names = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).split(".")[0] == "triton"
    } - {"knobs"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and root(node.value) in names:
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def replaced(tree: ast.AST) -> list[int]:
    """Return the lines that replace an attribute of a part of Triton."""
    names, lines = names_of_triton(tree), []
    for node in ast.walk(tree):
        owners = []
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            owners = [node.value]
        elif isinstance(node, ast.Tuple) and len(node.elts) == 3:
            owners = node.elts[:1] if isinstance(node.elts[1], ast.Constant) else []
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            owners = node.args[:1] if called in ("setattr", "delattr", "object", "patch") else []
        for owner in owners:
            text = owner.value if isinstance(owner, ast.Constant) else ""
            if root(owner) in names or str(text).startswith("triton."):
                lines.append(node.lineno)
    return lines


def test_nothing_else_replaces_parts_of_triton():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ALLOWED
        for path, _ in files(folder)
        if path != ROOT / "reference/triton_hooks.py"
        for line in replaced(ast.parse(path.read_text()))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        "Autotuner.run = 1",
        "del Autotuner.run",
        "triton.testing.Mark.run = 1",
        "swap(((Autotuner, 'run', 1),))",
        "setattr(Autotuner, name, 1)",
        "patch.object(Autotuner, 'run', 1)",
        "patch('triton.runtime.jit.JITFunction.run')",
        "kind = Autotuner\nkind.run = 1",
        "utilities = triton.runtime.driver.active.utils\nutilities.get_device = 1",
    ],
)
def test_a_replacement_is_seen(line):
    imports = "import triton.testing\nfrom triton.runtime.autotuner import Autotuner\n"
    assert replaced(ast.parse(imports + line))


# -- what they restore ---------------------------------------------------------------------------
def parts() -> list[object]:
    """Everything that a hook replaces."""
    power = triton.next_power_of_2
    return [
        *(vars(owner)[name] for owner, name in HOOKED.values()),
        power,
        getattr(power, "fn", power),
        driver.active.get_current_device,
        driver.active.utils.get_device_properties,
    ]


def ignore(*_):
    return None


HOOKS = {**dict.fromkeys((*HOOKED, "next_power_of_2", "properties"), ignore), "device": "tested"}


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_is_there_within_its_context(name):
    with fake_gpu():
        before = parts()
        with intercept(**{name: HOOKS[name]}):
            assert sum(x is not y for x, y in zip(parts(), before, strict=True)) == 1
        assert parts() == before


def test_all_is_restored_after_an_exception_in_nested_contexts():
    with fake_gpu():
        before = parts()
        with suppress(ZeroDivisionError), intercept(**HOOKS):
            outer = parts()
            with suppress(KeyError), intercept(**HOOKS):
                assert parts() != outer
                raise KeyError
            assert parts() == outer
            raise ZeroDivisionError
        assert parts() == before


def test_what_was_replaced_is_restored_if_a_later_change_is_refused():
    before = Autotuner.run
    changes = [(Autotuner, "run", 1), (ast, "__dict__", 2)]
    with pytest.raises(AttributeError), swap(changes):
        raise AssertionError("the second change is not refused")
    assert Autotuner.run is before


# -- what they see -------------------------------------------------------------------------------
class Kernel:
    """A stand-in for a kernel, which records its launches."""

    def __init__(self):
        self.fn, self.launches = lambda x, BLOCK: None, []

    def run(self, *args, **kwargs):
        self.launches.append((args, kwargs))
        return len(self.launches)


def tuner_of(kernel, *blocks):
    configs = [Config({"BLOCK": block}) for block in blocks]
    return Autotuner(kernel, ["x"], configs, [], None, None)


def test_the_inner_hook_is_called_first_and_with_the_outer_one():
    calls = []

    def note(name):
        def tune(launch):
            calls.append(name)
            return launch.choose()

        return tune

    with fake_gpu():
        kernel = Kernel()
        with intercept(tune=note("outer")), intercept(tune=note("inner")):
            assert tuner_of(kernel, 16).run(7) == 1
    assert calls == ["inner", "outer"]
    assert kernel.launches[0][1]["BLOCK"] == 16


def test_a_tuned_launch_runs_in_the_configuration_that_a_hook_names():
    with fake_gpu():
        kernel = Kernel()
        tuner = tuner_of(kernel, 16, 32, 64)
        with intercept(tune=lambda launch: launch.run(launch.prune()[1])):
            tuner.run(7)
    ((args, kwargs),) = kernel.launches
    assert args == (7,)
    assert kwargs["BLOCK"] == 32
    assert tuner.best_config.kwargs == {"BLOCK": 32}
    assert len(tuner.configs) == 3

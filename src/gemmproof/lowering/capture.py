"""The launches of a wrapper as Triton would specialise them on a GPU that is not there.

The wrapper, its heuristics, its tuner's pruning and Triton's own launch path run as they would
there; in place of the compiler stands a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from gemmproof.reference.fake_cuda import fake_gpu
from gemmproof.reference.fake_cuda.driver import swap
from gemmproof.reference.provenance import calling_line
from gemmproof.reference.simulation import NOWHERE, KernelError, Where
from gemmproof.reference.simulator.launch import Kernel

DIVISIBILITY = "tt.divisibility"  # an attribute of arguments that 16 is known to divide
_SPECIALISED = re.compile(r"\*.*|[iu]\d+|constexpr")


@dataclass(frozen=True)
class CapturedLaunch:
    """A kernel as Triton was asked to compile it: types, constants and options of a real call.

    `tuned` is the configuration that its tuner gave it, the `index`-th of `configurations`; `grids`
    are those that it was launched on, one for each launch that only compiles the same. `where` is
    the wrapper's line that launches it.
    """

    gpu: str
    source: Any
    target: Any
    options: Any
    tuned: Mapping[str, Any] = field(default_factory=dict)
    configurations: int = 1
    index: int = 0
    where: Where = NOWHERE
    grids: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def kernel(self) -> str:
        """Its name."""
        return str(self.source.fn.__name__)

    @property
    def constants(self) -> dict[str, Any]:
        """By the kernel's names for them."""
        names = self.source.fn.arg_names
        return {names[path[0]]: x for path, x in self.source.constants.items() if len(path) == 1}

    @property
    def configuration(self) -> dict[str, Any]:
        """The tuned constants, or of a kernel without a tuner those that are numbers and words."""
        if self.tuned:
            kept = {name: x for name, x in self.tuned.items() if name in self.constants}
        else:
            declared = {p.name for p in self.source.fn.params if p.is_constexpr}
            kept = {name: x for name, x in self.constants.items() if name in declared}
        plain = {name: getattr(x, "value", x) for name, x in kept.items()}
        return {name: x for name, x in plain.items() if isinstance(x, bool | int | float | str)}

    @property
    def specialised(self) -> dict[str, str]:
        """What Triton knows of each pointer and each integer that is no constant of the source."""
        known, constants = {}, self.constants
        divisible = {
            path[0]
            for path, given in self.source.attrs.items()
            if len(path) == 1 and any(name == DIVISIBILITY for name, _ in given)
        }
        for i, parameter in enumerate(self.source.fn.params):
            kind = self.source.signature.get(parameter.name, "")
            if not parameter.is_constexpr and _SPECIALISED.fullmatch(kind):
                is_one = parameter.name in constants and constants[parameter.name] == 1
                known[parameter.name] = "1" if is_one else "16" if i in divisible else ""
        return known

    @property
    def descriptors(self) -> list[str]:
        """The types of the arguments that are descriptors."""
        return [x for x in self.source.signature.values() if x.startswith("tensordesc")]

    @property
    def key(self) -> tuple[str, str]:
        """The same of launches that compile to the same."""
        return self.source.hash(), self.options.hash()


class _Launched(Kernel):
    """What a wrapper is given for a compiled kernel: launching it notes the grid."""

    launch: CapturedLaunch

    def run(self, x: Any, y: Any, z: Any, *others: Any, **named: Any) -> None:
        """Triton's launcher."""
        self.launch.grids.append((int(x), int(y), int(z)))


@contextmanager
def capture_launches(gpu: str, every: bool = True) -> Iterator[list[CapturedLaunch]]:
    """Within it wrappers find this GPU; what they launch is put on the list that it yields.

    A tuned kernel is launched in `every` configuration that its own pruning leaves, or in the
    first of them.
    """
    made: list[CapturedLaunch] = []
    tuned: dict[str, Any] = {"config": {}, "of": 1, "index": 0}

    def record(
        self: Any, key: Any, signature: Any, device: Any, constexprs: Any, options: Any, attrs: Any,
        warmup: Any,
    ) -> Any:  # fmt: skip
        source = self.ASTSource(self, signature, constexprs, attrs)
        target = self.device_caches[device][2]
        chosen = (tuned["config"], tuned["of"], tuned["index"])
        launch = CapturedLaunch(gpu, source, target, options, *chosen, calling_line())
        made.append(launch)
        stand_in = _Launched(source, target, options, SimpleNamespace(text=""))  # type: ignore[arg-type]
        stand_in.launch = launch
        return stand_in

    def tune(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configs = list(self.prune_configs(kwargs))
        if not configs:
            raise KernelError(f"{self.base_fn.__name__}: autotune leaves no configuration")
        result = None
        before = dict(tuned)
        try:
            for index, config in enumerate(configs if every else configs[:1]):
                given = config.all_kwargs()
                tuned.update({"config": given, "of": len(configs), "index": index})
                if config.pre_hook is not None:
                    config.pre_hook({**self.nargs, **kwargs, **given})
                result = self.fn.run(*args, **kwargs, **given)
        finally:
            tuned.update(before)
            self.nargs = None
        return result

    with fake_gpu(gpu):
        changes = (
            # by it Triton keeps what it knows of a device
            (driver.active, "get_current_device", lambda: f"captured {gpu}"),
            (JITFunction, "_do_compile", record),
            (Autotuner, "run", tune),
        )
        with swap(changes):
            yield made


def join_launches(made: list[CapturedLaunch]) -> list[CapturedLaunch]:
    """Each that compiles to something of its own once, with the grids of all that are the same."""
    found: dict[tuple[str, str], CapturedLaunch] = {}
    for launch in made:
        first = found.setdefault(launch.key, launch)
        if first is not launch:
            first.grids.extend(launch.grids)
    return list(found.values())

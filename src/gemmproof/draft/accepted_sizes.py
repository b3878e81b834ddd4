"""The sizes that a wrapper accepts, and a formula tried at other sizes than it was read at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.observe import judge, observe_case
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.properties.observation import ObservedCase
from gemmproof.properties.wrapper_state import find_state
from gemmproof.reference.spec import SpecError

SECONDS = 10.0  # counted, of one call
# least size and step of an axis, the widest first
RANGES = (
    *((1, 1), (2, 2), (4, 4), (8, 8), (16, 1), (16, 16), (32, 1), (32, 32), (64, 64), (128, 128)),
    (256, 256),
)  # fmt: skip
REFUSALS = ("raised", "compile_error")  # by the wrapper or by Triton; the others are faults


@dataclass(slots=True)
class SizeTrials:
    """Calls of a drafted kernel at other sizes than its own, `sizes`, by axis.

    `multiples`: what the declared shapes divide a size by; 1 for an axis that it lacks.
    `advance` is called before each call. `refused` has the last reason why a call was refused, by
    axis.
    """

    kernel: KernelUnderTest
    sizes: Mapping[str, int]
    multiples: Mapping[str, int]
    advance: Callable[[], None] = lambda: None
    refused: dict[str, str] = field(default_factory=dict)

    def find_ranges(self) -> dict[str, str]:
        """Return the sizes of each axis that is not free, as text of a contract: "16..:16"."""
        ranges = {}
        for axis in ("M", "N", "K"):
            if axis not in self.sizes:
                continue
            own, multiple = self.sizes[axis], self.multiples.get(axis, 1)
            divided = [x for x in RANGES if x[0] % multiple == 0 and x[1] % multiple == 0]
            for least, step in divided or [(multiple, multiple)]:
                if all(self._accepts(axis, least + i * step) for i in (0, 1)):
                    if (least, step) != (1, 1):
                        ranges[axis] = f"{least}.." + (f":{step}" if step > 1 else "")
                    break
            else:
                ranges[axis] = str(own)
        return ranges

    def find_difference(self, sizes: Mapping[str, int]) -> str:
        """Return where a call differs from the draft at sizes, "" if it is refused there."""
        observed = self._observe(sizes, seed=1)
        if observed is None or not observed.is_known:
            return ""
        drafted = ("exact_on_integers", "within_bound", "stays_in_bounds")
        return next((f.message for f in judge(observed).findings if f.property in drafted), "")

    def explain_refusal(self) -> str:
        """Return why the call is refused at its own sizes, "" if it is not."""
        observed = self._observe(self.sizes, 0)
        if observed is None:
            return "operands that no case has"
        return observed.raised.text if observed.raised is not None else ""

    def _accepts(self, axis: str, size: int) -> bool:
        observed = self._observe({**self.sizes, axis: size}, 0)
        if observed is None or observed.raised is None or observed.raised.kind not in REFUSALS:
            return True
        self.refused[axis] = observed.raised.text
        return False

    def _observe(self, sizes: Mapping[str, int], seed: int) -> ObservedCase | None:
        """Return the observation of a call, None if no case has these sizes."""
        batch = sizes.get("batch") if self.kernel.contract.batched else None
        m, n, k = (sizes.get(axis, 1) for axis in ("M", "N", "K"))
        self.advance()
        state = find_state(self.kernel.launch)
        try:
            case = Case(m, n, k, self.kernel.contract.formats[0], batch, seed=seed)
            self.kernel.require(case)
            return observe_case(self.kernel, case, Simulator(None, seconds=SECONDS))
        except (SpecError, ContractError, ValueError):
            return None
        finally:
            state.restore()

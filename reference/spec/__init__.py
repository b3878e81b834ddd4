"""A reference written in plain Python: its value, and what any faithful evaluation may be off by.

`evaluate` calls a spec such as `lambda a, b, bias: np.maximum(a @ b + bias, 0)` on SpecArrays, on
which numpy's operators and functions work. `array` has the record and what it claims, `arithmetic`
sums and products, `contraction` x @ y, `functions` what is no polynomial, `integers` bits, `moves`
what moves elements, `gather` matrices taken by an index, `scales` fp8 operands that are scaled,
`special` Inf and NaN.
"""

from gemmproof.reference.spec.array import Rules, SpecArray
from gemmproof.reference.spec.evaluate import SpecError, evaluate
from gemmproof.reference.spec.functions import erf, sigmoid
from gemmproof.reference.spec.operators import install

install()

__all__ = ["Rules", "SpecArray", "SpecError", "erf", "evaluate", "sigmoid"]

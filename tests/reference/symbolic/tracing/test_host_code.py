"""Each use of a size in host code gives an exact result over symbols, or ends as not decided."""

import itertools
import linecache
import sys
import types

import pytest
import torch
from tests.reference.symbolic.symbolic_sizes import STEPS, K, M, N, trace
from torch.utils._sympy import functions

from gemmproof.reference.symbolic.terms import Poly, evaluate

HEAD = """\
import copy, functools, json, logging, math, operator, pickle, warnings
import numpy as np
import torch, triton

cached = functools.lru_cache(lambda n: n // 2)
log = logging.getLogger("host code")
TABLE = {37: 1, 64: 2}


def describe(n):
    return f"<{n}>"


def info(text):
    return {"37x53": 1}.get(text, 0)


def list_sizes(a):
    sizes = " and ".join(label(n) for n in a.shape)
    return sizes + " of a"


def label(n):
    text = f"{n}"
    return text


def wrapper(a, b):
    M, K = a.shape
    N = b.shape[1]
"""
# what has the same value for every size as in Python, with decisions where it needs them
EXACT = """
divmod(M, 32)[0]
divmod(M, 32)[1]
divmod(-M, 32)[1]
divmod(1000, M)[1]
divmod(M, N)[0]
M.__divmod__(7)[0]
~M
~M & 15
-M
+M
abs(M - N)
abs(N - 2 * M)
M ** 2
pow(M, 2)
pow(M, 2, 7)
round(M)
round(M, 2)
math.ceil(M / 32)
math.floor(M / 32)
math.trunc(M / 32)
math.prod((M, N))
math.floor(M)
-(-M // 32)
triton.cdiv(M, 16)
min(64, triton.next_power_of_2(M))
M & 7
M | 3
M ^ 3
M << 2
M >> 2
M.real
M.numerator
M.imag
M.denominator
M.conjugate()
copy.copy(M)
copy.deepcopy(M)
operator.floordiv(M, 2)
int(M > N)
bool(M)
not M
M and N
M or N
M > 3
(M > 3) + 1
2 - (M > 3)
(M > 3) * N
~(M > 3)
(M > 3) // 2
sum([M > 3, N > 5])
[N, K][M > 3]
str(M > 3) == "True"
f"{M > 3}" == "True"
{True: N, False: K}[M > 3]
10 < M <= N
M in (37, 64)
M in [37, 64]
M == 37.0
M == "37"
M == None
M is None
[1, 2, 37].index(M)
sum([M, N])
max(M, N)
min([M, N, 20])
max((M, N), key=lambda n: -n)
sorted([M, N])[1]
sorted((M, N), reverse=True)[0]
any([M > 3, N > 3])
isinstance(M, int)
isinstance(M, torch.SymInt)
isinstance(M, (float, str))
isinstance(M > 3, bool)
isinstance(M / 2, float)
type(M) is int
type(M) == int
type(M).__name__ == "int"
issubclass(type(M), int)
type(M > 3) is bool
type(M / 2) is float
type(type(M)) is type
isinstance(int, type)
isinstance(a, torch.Tensor)
type(a) is torch.Tensor
type(a).__name__ == "Tensor"
type(a.shape) is torch.Size
a.shape == (37, 29)
a.shape == b.shape
a.shape != torch.Size([37, 29])
a.shape < b.shape
a.shape.index(37)
a.shape.count(37)
37 in a.shape
a.stride() == (29, 1)
tuple(a.shape)[-1]
[*a.shape][0]
a.size()[0]
a.size(0)
a.numel()
a.nelement()
a.nbytes
a.element_size()
a.dim()
a.is_contiguous()
a.stride(0)
a.untyped_storage().nbytes()
slice(0, M).stop
torch.sym_max(M, N)
np.array([M, N]).max()
37 if a.shape[0] == 37 else 0
TABLE[M] if M == 37 or M == 64 else 0
int(str(M)) if M == 37 else 0
print(f"M = {M}", a.shape) or M
log.debug("%d rows of %s", M, a.shape) or M
log.debug(f"{M:>6d}") or M
"""
# what no term expresses, and the reason; none is the wrapper's refusal
NUMBER = "a size, made a number here"
TEXT = "a size, made text here"
KEY = "a size is the key of a table"
SHIFT = "is a size, and bits are shifted by it here"
ELEMENTS = "elements of a tensor are read on the host"
OPEN = {
    "int(M)": NUMBER,
    "float(M)": NUMBER,
    "complex(M)": NUMBER,
    "operator.index(M)": NUMBER,
    "int(M // 2)": NUMBER,
    "int(M / 2)": NUMBER,
    "math.gcd(M, N)": NUMBER,
    "math.sqrt(M)": NUMBER,
    "math.isqrt(M)": NUMBER,
    "math.log2(M)": NUMBER,
    "math.log(M)": NUMBER,
    "M.bit_length()": NUMBER,
    "np.int64(M)": NUMBER,
    "int(np.prod(a.shape))": NUMBER,
    "[1, 2, 3][M]": NUMBER,
    "len(range(M))": NUMBER,
    "sum(1 for _ in range(M))": NUMBER,
    "len([0] * M)": NUMBER,
    "len('x' * M)": NUMBER,
    "len(bytes(M))": NUMBER,
    "len(bin(M))": NUMBER,
    "hex(M)": NUMBER,
    "chr(M)": NUMBER,
    "len(a)": NUMBER,
    "int('%d' % M)": NUMBER,
    "torch.tensor(M).item()": NUMBER,
    "str(M)": TEXT,
    "repr(M)": TEXT,
    "int(str(M))": TEXT,
    "f'{M}'": TEXT,
    "int(f'{M:>6d}')": TEXT,
    "int(format(M, 'd'))": TEXT,
    "int('%s' % M)": TEXT,
    "int('{:d}'.format(M))": TEXT,
    "len(f'{M}{N}')": TEXT,
    "{'37': 1}.get(str(M), 2)": TEXT,
    "{'37x53': 1}.get(f'{M}x{N}', 2)": TEXT,
    "{'(37, 29)': 1}.get(str(tuple(a.shape)), 2)": TEXT,
    "'37' in str(a.shape)": TEXT,
    "len(str(a.stride()))": TEXT,
    "len(describe(M))": TEXT,
    "len(list_sizes(a))": TEXT,
    "len(print(N) or f'{M}')": TEXT,
    "info(f'{M}x{N}')": TEXT,
    "f'{M / 2:.1f}'": "made text here",
    "len(str(a))": ELEMENTS,
    "repr(a)": ELEMENTS,
    "a.sum().item()": ELEMENTS,
    "hash(M)": KEY,
    "hash(a.shape)": KEY,
    "{37: 1}.get(M, 2)": KEY,
    "{(37, 53): 1}.get((M, N), 2)": KEY,
    "{M: 1}.get(37, 2)": KEY,
    "M in {37, 64}": KEY,
    "cached(M)": KEY,
    "{0.5: 1}.get(M / 2, 2)": KEY,
    "round(M, -1)": "a size, rounded to tens here",
    "M.bit_count()": "bit_count of it is used here",
    "M.to_bytes(4, 'little')": "to_bytes of it is used here",
    "int.bit_length(M)": "not supported for symbolic sizes",
    "int.__add__(M, 1)": "not supported for symbolic sizes",
    "json.dumps([M])": "a size, made JSON here",
    "pickle.dumps(M)": "a size, made bytes here",
    "2 ** M": "PowByNatural by a size",
    "1 << M": SHIFT,
    "N << M": SHIFT,
    "M >> N": SHIFT,
    "1024 >> M": SHIFT,
    "int(M * 0.5)": "no term says",
    "a.untyped_storage().data_ptr()": "the address of an allocation is read here",
}
# statements that catch the reason, or make text that is more than a message
CAUGHT = {
    "try: g = int(f'{M:d}')\nexcept Exception: g = 2": TEXT,
    "try: g = int(M)\nexcept: g = 2": NUMBER,
    "try: g = TABLE[M]\nexcept (KeyError, TypeError): g = 2": KEY,
    "try: g = M.bit_length()\nexcept AttributeError: g = 2": NUMBER,
    "try: g = json.dumps(M) and 1\nexcept TypeError: g = 2": "made JSON",
    "try: g = a.sum().item()\nexcept Exception: g = 2": ELEMENTS,
    "g = 1\nkey = f'{M}'\nif key not in {'3': 1}: raise KeyError(key)": TEXT,
    "try: g = torch.cuda.get_device_properties(0).clusters\nexcept AttributeError: g = 2": (
        "clusters is not known to the fake device"
    ),
    "g = getattr(torch.cuda.get_device_properties(0), 'clusters', 2)": "is not known to the fake",
    "text = f'{M}'\nlog.debug(text)\ng = len(text)": TEXT,
}
# refusals of the wrapper: their messages may name the sizes
REFUSALS = {
    "assert M > 40, f'{M} of {a.shape}'": "AssertionError: M of torch.Size([M, K])",
    "assert M > 40, '%d rows' % M": "AssertionError: 37 rows",
    "if M < 40: raise ValueError(f'{M}')": "ValueError: M",
    "text = f'{M:>6d}'\nif M < 40: raise ValueError('few: ' + text)": "ValueError: few: M",
    "if M < 40: raise ValueError(describe(M))": "ValueError: <M>",
    "if M < 40: raise ValueError(', '.join(f'{n}' for n in a.shape))": "ValueError: M, K",
    "if M < 40: raise ValueError(list_sizes(a))": "ValueError: M and K of a",
    "divmod(M, N - 53)": "ZeroDivisionError",
}
SIZES = (37, 64, 3, 1000)


def make(body):
    """A wrapper with these statements, whose text Python knows."""
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    module = types.ModuleType("host_code_of_a_row")
    module.__file__ = "host_code_of_a_row.py"
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(True), module.__file__)
    exec(compile(text, module.__file__, "exec"), vars(module))
    return module


def follow(body, monkeypatch, **options):
    module = make(body)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.wrapper, trace(module.wrapper, most=1000, **options)


@pytest.mark.parametrize("text", EXACT.strip().splitlines())
def test_a_result_is_that_of_python_for_every_size(text, monkeypatch, capsys):
    wrapper, traced = follow(f"return {text}", monkeypatch, most_paths=16)
    compared = 0
    for m, n, k in itertools.product(SIZES, (53, 37), (29, 37)):
        values = {M.atom: m, N.atom: n, K.atom: k}
        steps = {"am": k, "ak": 1, "bk": n, "bn": 1}
        values |= {STEPS[name].atom: x for name, x in steps.items()}
        paths = [p for p in traced.paths if evaluate(p.condition, values)]
        a, b = torch.empty(m, k, dtype=torch.float16), torch.empty(k, n, dtype=torch.float16)
        try:
            expected = wrapper(a, b)
        except ValueError:
            assert all(p.failed.raised for p in paths)
            continue
        for path in paths:
            assert path.failed is None
            (got,) = path.results
            assert (evaluate(got, values) if isinstance(got, Poly) else got) == expected
            compared += 1
    assert compared
    capsys.readouterr()


@pytest.mark.parametrize("text", OPEN)
def test_what_no_term_expresses_is_not_decided(text, monkeypatch, capsys):
    _, traced = follow(f"n = {text}\nreturn torch.empty(n) if type(n) is int else n", monkeypatch)
    for path in traced.paths:
        assert_open(path, OPEN[text])


@pytest.mark.parametrize("text", ["1 << M", "M << N", "1024 >> M", "M >> N"])
def test_a_shift_by_a_size_is_left_open_where_torch_raises(text, monkeypatch):
    # sympy's error has a message that is no text, on which sympy's cache raises another error
    def compare(cls, base, shift):
        if shift < 0:
            raise ValueError("negative shift count")
        return base * 2**shift

    for kind in (functions.LShift, functions.RShift):
        monkeypatch.setattr(kind, "eval", classmethod(compare))
    body = f"try: g = {text}\nexcept Exception: g = 2\nreturn g"
    for path in follow(body, monkeypatch)[1].paths:
        assert_open(path, SHIFT)


def test_a_shift_by_a_size_of_one_value_is_that_of_python(monkeypatch):
    body = "if M != 3: return 0\nreturn (1 << M) + (N >> M) + (N << M)"
    wrapper, traced = follow(body, monkeypatch)
    (path,) = (x for x in traced.paths if evaluate(x.condition, {M.atom: 3}))
    expected = wrapper(torch.empty(3, 7), torch.empty(7, 53))
    assert evaluate(path.results[0], {N.atom: 53}) == expected


@pytest.mark.parametrize("text", CAUGHT)
def test_a_wrapper_that_catches_the_reason_is_not_decided(text, monkeypatch):
    _, traced = follow(f"{text}\nreturn g", monkeypatch)
    for path in traced.paths:
        assert_open(path, CAUGHT[text])


def assert_open(path, reason):
    """A path that an expression ended; sizes of 0 may end some before."""
    assert path.failed is not None
    assert not path.failed.raised
    assert reason in path.failed.message
    assert path.failed.where.file.endswith("host_code_of_a_row.py")


@pytest.mark.parametrize("text", REFUSALS)
def test_a_message_may_name_sizes(text, monkeypatch):
    _, traced = follow(f"{text}\nreturn M", monkeypatch)
    refused = [path.failed for path in traced.paths if path.failed is not None]
    assert refused
    assert all(failed.raised for failed in refused)
    assert any(REFUSALS[text] in failed.message for failed in refused)
    assert len(refused) < len(traced.paths)

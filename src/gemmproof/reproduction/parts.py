"""The parts of a written test that are the same in each: memory with guards, and what reads it."""

# What a written test itself binds, besides the operands: tests/cli/reproduce holds it to these.
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

# where NaN or Inf belongs; stores of 8 bits may saturate NaN, too, and NaN may stand for Inf
NOT_FINITE = """\
largest = torch.finfo(c.dtype).max
for at, expected in WANTED.items():
    got = c[at].item()
    lost = abs(got) < largest  # not so of NaN
    if expected != expected and c.element_size() > 1:
        lost = got == got  # no NaN
    assert not lost, f"NAME{list(at)}: got {got}, expected {expected}"
"""

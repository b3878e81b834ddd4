"""Each rule makes its change at one location, and keeps the rest of the file byte for byte."""

import ast

import pytest

from gemmproof.mutate.mutants import OPERATORS, Reached, list_mutants, sample

SOURCE = '''"""A product."""
# comment  with   spaces


@triton.jit
def kernel(a_ptr, b_ptr, M, N, K, stride_am, stride_ak, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M):
    pid = tl.program_id(0)
    width = GROUP_M * tl.cdiv(N, BLOCK_N)
    pid_m = pid // width
    pid_n = pid % width
    size = tl.minimum(pid_m, GROUP_M)
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64) % M
    offs_k = tl.max_contiguous(tl.arange(0, BLOCK_K), BLOCK_K)
    ptrs = a_ptr + offs_m[:, None] * stride_am
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - k * 2), other=0.0)
        acc += tl.dot(a, a)
        ptrs += BLOCK_K * stride_ak
    tl.atomic_add(b_ptr, acc.to(tl.float16), mask=offs_m < M)


def wrapper(a, b, grid):
    if a.shape[0] < 1:
        raise ValueError("empty")
    c = torch.zeros((2, 3))
    kernel[(triton.cdiv(M, 32), 1)](a, a.shape[0], b.shape[1], *a.stride(), b.stride(0), num_ctas=2)


def unreached(x):
    return x // 2 < 3
'''
LINES = SOURCE.splitlines()
LAST = LINES.index("def wrapper(a, b, grid):")
EXPECTED = {
    "mask term dropped": ["=(offs_m[:, None] < M), other", "=(offs_k[None, :] < K - k * 2), o"],
    "mask dropped": ["tl.load(ptrs)", "acc.to(tl.float16))"],
    "comparison moved": ["offs_m[:, None] <= M", "offs_k[None, :] <= K - k", "mask=offs_m <= M"],
    "bound moved": ["< M - 1) & (", "< (K - k * 2) - 1", "mask=offs_m < M - 1"],
    "mask of another axis": ["offs_m[:, None] < N) &", "offs_m[:, None] < K) &", "mask=offs_m < K"],
    "other dropped": ["(offs_k[None, :] < K - k * 2))"],
    "other is one": ["other=1.0"],
    "axes swapped": ["offs_m[None, :] * stride_am", "offs_m[None, :] < M", "offs_k[:, None] < K"],
    "stride of another axis": ["offs_m[:, None] * stride_ak", "BLOCK_K * stride_am"],
    "stride dropped": ["a_ptr + offs_m[:, None]", "ptrs += BLOCK_K"],
    "block of another axis": ["cdiv(N, BLOCK_M)", "pid_m * BLOCK_N", "ptrs += BLOCK_M * stride_ak"],
    "pid of another axis": ["(pid_n * BLOCK_M"],
    "program axis": ["program_id(1)"],
    "wrap dropped": ["pid_n = pid", ".to(tl.int64)"],
    "hint doubled": ["tl.arange(0, BLOCK_K), BLOCK_K * 2)"],
    "ceiling dropped": ["GROUP_M * (N // BLOCK_N)", "range(0, (K // BLOCK_K))", "(M // 32)"],
    "loop bound moved": ["range(1, tl.", "BLOCK_K) - 1):", "BLOCK_K) + 1):"],
    "advance dropped": ["        pass"],
    "sum not accumulated": ["acc = tl.dot(a, a)"],
    "clamp dropped": ["size = pid_m", "size = GROUP_M"],
    "order of tiles": ["pid_m = pid % width", "pid_n = pid // width"],
    "sum narrowed": ["acc += tl.dot(a, a).to(tl.float16).to(acc.dtype)"],
    "type narrowed": ["dtype=tl.float16"],
    "cast dropped": ["b_ptr, acc, mask"],
    "cast moved": ["((pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M).to(tl.int64)"],
    "64 bits dropped": ["tl.arange(0, BLOCK_M)) % M"],
    "constant moved": ["k * 1", "k * 3"],
    "grid moved": ["triton.cdiv(M, 32) - 1, 1)", "triton.cdiv(M, 32) + 1, 1)"],
    "grid axes swapped": ["(1, triton.cdiv(M, 32))"],
    "arguments swapped": ["(a, b.shape[1], a.shape[0], ", "*a.stride()[::-1]"],
    "dimension of an operand": ["a, a.shape[1], b", "b.shape[0]", "b.stride(1)"],
    "zeros dropped": ["torch.empty((2, 3))"],
    "atomic dropped": ["tl.store(b_ptr, acc.to(tl.float16), mask=offs_m < M)"],
}  # fmt: skip


def mutate(folder, text, compiled, launching=()):
    """Return the mutants of a file of which these lines are reached."""
    path = folder / "source.py"
    path.write_text(text)
    reached = Reached(frozenset(compiled), frozenset(launching), frozenset())
    return list_mutants({str(path): reached}, {str(path): "source.py"})


@pytest.fixture(name="mutants", scope="module")
def mutants_of_source(tmp_path_factory):
    compiled = range(LINES.index("@triton.jit") + 2, LAST)
    launching = range(LAST + 2, LINES.index("def unreached(x):"))
    return mutate(tmp_path_factory.mktemp("mutants"), SOURCE, compiled, launching)


def added(mutant):
    return [x[1:] for x in mutant.diff.splitlines()[2:] if x.startswith("+")]


def test_every_operator_is_expected():
    assert set(EXPECTED) == set(OPERATORS)


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator(mutants, operator):
    lines = [" ".join(added(m)) for m in mutants if m.operator == operator]
    for text in EXPECTED[operator]:
        assert any(text in line for line in lines), (text, lines)


def test_a_mutant_changes_one_line_and_parses(mutants):
    for mutant in mutants:
        ast.parse(mutant.text)
        assert len(added(mutant)) == 1
        lines = mutant.text.splitlines()
        lines[mutant.line - 1 : mutant.line] = LINES[mutant.line - 1 : mutant.line]
        assert lines == LINES


def test_no_change_is_made_twice_and_none_is_the_original(mutants):
    trees = [ast.dump(ast.parse(m.text)) for m in mutants]
    assert len(set(trees)) == len(trees)
    assert ast.dump(ast.parse(SOURCE)) not in trees


def test_the_same_text_by_two_ways_is_one_mutant(tmp_path):
    mutants = mutate(tmp_path, "def k(x, M):\n    return (x > M) & (x > M)\n", [2])
    assert [m.operator for m in mutants].count("mask term dropped") == 1


def test_what_is_not_reached_or_only_refuses_is_left_alone(mutants):
    left_alone = ("    return x // 2 < 3", "    if a.shape[0] < 1:")
    assert not {m.line for m in mutants} & {LINES.index(line) + 1 for line in left_alone}
    assert not any("num_ctas=1" in m.text or "num_ctas=3" in m.text for m in mutants)


def test_keys_do_not_depend_on_lines(mutants, tmp_path):
    moved = mutate(tmp_path, "\n\n" + SOURCE, range(1, 100))
    assert {m.key for m in mutants if m.where == "kernel"} <= {m.key for m in moved}


def test_bytes_that_are_no_ascii_move_no_place(tmp_path):
    text = 'def k(x, M):\n    y = "ä→"; z = (x < M) & (x < M + 2)  # ü\n'
    lines = [added(mutant) for mutant in mutate(tmp_path, text, [2])]
    assert ['    y = "ä→"; z = (x < M)  # ü'] in lines


def test_a_sample_is_the_same_for_a_seed(mutants):
    few = sample(mutants, 7, 3)
    assert few == sample(mutants, 7, 3) != sample(mutants, 7, 4)
    assert few == [m for m in mutants if m in few]
    assert sample(mutants, 10**6, 0) == mutants

"""matmul_w8 and matmul_w4: packing, values, one rounding, shares, errors and what compiles."""

import math
import re

import pytest
import torch
from tests.kernels.calls import assert_refused, run_quietly
from tests.kernels.compiled import capture_launches
from tests.kernels.every_call import empty
from tests.support.lanes import combine

from gemmproof.kernels import matmul_w4, matmul_w8, pack_int4
from gemmproof.kernels.quantized.weight_only import BLOCK_K, STEPS, TILES

F16, BF16, I8, I16 = torch.float16, torch.bfloat16, torch.int8, torch.int16
WRAPPERS = {8: matmul_w8, 4: matmul_w4}
SMS = 132
both = pytest.mark.parametrize("bits", WRAPPERS)
formats = pytest.mark.parametrize("dtype", [F16, BF16], ids=str)


def draw_weights(bits, K, N, rng):
    low, high = (0, 16) if bits == 4 else (-128, 128)
    return torch.randint(low, high, (K, N), generator=rng)


def make_operands(bits, M, N, K, dtype, group=None, has_zero=True):
    """Small integers and powers of two, whose product fp32 holds; and that product."""
    rng = torch.Generator().manual_seed(M + N + K)
    a = torch.randint(-2, 3, (M, K), generator=rng).to(dtype)
    q = draw_weights(bits, K, N, rng)
    shape = (N,) if group is None else (math.ceil(K / group), N)
    scale = 2.0 ** torch.randint(-3, 1, shape, generator=rng)
    zero = torch.randint(-8, 24, shape, generator=rng).to(I8) if has_zero else None
    row = torch.arange(K) // (group or max(K, 1))
    factor, middle = (x.expand(K, N) if x.dim() < 2 else x[row] for x in (
        scale, zero if has_zero else torch.tensor(8 if bits == 4 else 0),
    ))  # fmt: skip
    product = a.double() @ ((q - middle) * factor).double()
    return a, pack(bits, q), scale, zero, product.to(dtype)


def pack(bits, q):
    return pack_int4(q) if bits == 4 else q.to(I8)


def launch(bits, a, b, scale, zero=None, **options):
    """The run on the simulator, without a fault."""
    return run_quietly(WRAPPERS[bits], a, b, scale=scale, zero=zero, **options)


@pytest.mark.parametrize(("K", "N"), [(0, 3), (1, 1), (128, 5), (300, 7)])
def test_a_word_holds_four_weights_that_are_32_rows_apart(K, N):
    w = torch.randint(0, 16, (K, N), generator=torch.Generator().manual_seed(K))
    packed = pack_int4(w)
    assert packed.dtype == I16
    assert packed.shape == (32 * math.ceil(K / 128), N)
    assert packed.numel() == 0 or packed.stride(0) == 1
    for k in range(K):
        word = packed[k // 128 * 32 + k % 32].int()
        assert torch.equal(word >> k % 128 // 32 * 4 & 15, w[k].int())
    for k in range(K, 128 * math.ceil(K / 128)):
        assert not (packed[k // 128 * 32 + k % 32].int() >> k % 128 // 32 * 4 & 15).any()


def test_packing_says_what_it_cannot_pack():
    with pytest.raises(TypeError, match=r"pack_int4: got w of list, expected torch\.Tensor"):
        pack_int4([[1]])
    with pytest.raises(TypeError, match=r"pack_int4: got w of torch\.float16, expected integers"):
        pack_int4(torch.zeros(2, 2, dtype=F16))
    with pytest.raises(ValueError, match=r"got w of shape \(2,\), expected two dimensions"):
        pack_int4(torch.zeros(2, dtype=I8))
    for low, high in ((-1, 3), (0, 16)):
        with pytest.raises(ValueError, match=f"got w of {low} to {high}, expected 0 to 15"):
            pack_int4(torch.tensor([[low, high]]))


@both
@formats
@pytest.mark.parametrize(
    ("group", "shape", "has_zero"),
    combine(
        [None, 32, 64, 128, 256], [(3, 130, 700), (40, 33, 257), (70, 20, 96)], [True, False, True]
    ),
)
def test_the_product_is_that_of_the_dequantised_weights(bits, dtype, group, shape, has_zero):
    *operands, product = make_operands(bits, *shape, dtype, group, has_zero)
    assert torch.equal(launch(bits, *operands, group=group).result, product)


@both
@formats
def test_every_difference_of_a_weight_and_a_zero_point_is_exact(bits, dtype):
    """The largest are -255 in bf16, whose integers end at 256."""
    q = torch.arange(16 if bits == 4 else 256)[None] - (0 if bits == 4 else 128)
    a, scale = torch.ones(1, 1, dtype=dtype), torch.ones(q.shape[1])
    for zero in (-128, -1, 0, 8, 127):
        middle = torch.full(scale.shape, zero, dtype=I8)
        seen = launch(bits, a, pack(bits, q), scale, middle)
        assert torch.equal(seen.result, (q - zero).to(dtype))


@both
@formats
@pytest.mark.parametrize("group", [None, 128])
def test_no_weight_is_rounded_before_the_sum(bits, dtype, group):
    """3 s - 3 (1 s) is 0, but not with 3 s rounded, for s the next number after 1."""
    a = torch.tensor([[1, -3]], dtype=dtype)
    scale = torch.full((1,) if group is None else (1, 1), 1 + torch.finfo(dtype).eps)
    zero = torch.zeros_like(scale, dtype=I8)
    q = torch.tensor([[3], [1]])
    assert (3 * scale).to(dtype) != 3 * scale
    assert launch(bits, a, pack(bits, q), scale, zero, group=group).result.item() == 0


@both
@pytest.mark.parametrize(("M", "N", "K"), [(1, 8, 4096), (16, 200, 2000), (70, 130, 1200)])
def test_k_is_shared_out_among_programs_and_added_up(bits, M, N, K):
    *operands, product = make_operands(bits, M, N, K, F16, 128)
    seen = launch(bits, *operands, group=128)
    tiles, shares, *_ = seen.launches[0].grid
    assert 1 < shares <= math.ceil(math.ceil(K / BLOCK_K) / STEPS)
    assert tiles * shares <= SMS * max(tile[-1] for tile in TILES[{8: 1, 4: 4}[bits]])
    assert [x.kernel for x in seen.launches] == ["weight_only_kernel", "add_shares_kernel"]
    assert torch.equal(seen.result, product)


@both
@pytest.mark.parametrize(("M", "N", "K"), [(5, 7, 0), (5, 7, 3), (3, 9, STEPS * BLOCK_K)])
@pytest.mark.parametrize("group", [None, 64])
def test_a_single_share_is_the_result_itself(bits, M, N, K, group):
    *operands, product = make_operands(bits, M, N, K, BF16, group)
    seen = launch(bits, *operands, group=group)
    assert len(seen.launches) == 1
    assert torch.equal(seen.result, product)


@both
def test_views_of_any_strides_give_the_same(bits):
    M, N, K = 9, 33, 600
    a, b, scale, zero, product = make_operands(bits, M, N, K, F16, 64)
    a, scale, zero = (torch.stack([x, x], -1).flatten(-2)[:, ::2] for x in (a, scale, zero))
    memory = torch.zeros(2 * M, 3 * N, dtype=F16)
    out = memory[::2, ::3]
    for weights in (b.contiguous(), b.T.contiguous().T, torch.cat([b, b], 1)[:, :N]):
        out.zero_()
        seen = launch(bits, a, weights, scale, zero, group=64, out=out)
        assert torch.equal(out, product)
        assert not memory[1::2].any()
        assert seen.launches[1].kernel == "add_shares_kernel"


A, B8, B4 = (torch.zeros(3, 40).half(), torch.zeros(40, 5).to(I8), torch.zeros(32, 5).to(I16))
S, Z = torch.zeros(5), torch.zeros(5, dtype=I8)
SHARED = torch.zeros(4, 40, dtype=F16)


def call(*arguments, **options):
    return arguments, options


TYPE_ERRORS = {
    "got a of list, expected torch.Tensor": call([[1.0]], B8, S),
    "got a of torch.float32, expected torch.float16 or torch.bfloat16": call(A.float(), B8, S),
    "got b of torch.uint8, expected torch.int8": call(A, B8.to(torch.uint8), S),
    "got scale of torch.int8, expected torch.float16 or": call(A, B8, Z),
    "got scale of float, expected torch.Tensor": call(A, B8, 1.0),
    "got zero of torch.float32, expected torch.int8": call(A, B8, S, S),
    "got a on cpu and b on meta, expected one device": call(A, B8.to("meta"), S),
    "got a on cpu and scale on meta, expected one": call(A, B8, S.to("meta")),
    "got a on cpu and zero on meta, expected one": call(A, B8, S, Z.to("meta")),
    "got out of torch.float32, expected torch.float16": call(A, B8, S, out=torch.zeros(3, 5)),
}
VALUE_ERRORS = {
    "got b of shape (40,), expected two dimensions": call(A, B8[:, 0], S),
    "got scale of shape (1, 5), expected one dimension": call(A, B8, S[None]),
    "got scale of shape (5,), expected two dimensions": call(A, B8, S, group=32),
    "got a (3, 40) and b (32, 5), expected b (40, N)": call(A, B8[:32], S),
    "got scale (4,), expected (5,)": call(A, B8, S[:4]),
    "got zero (4,), expected (5,)": call(A, B8, S, Z[:4]),
    "got scale (1, 5), expected (2, 5)": call(A, B8, S[None], group=32),
    "got group=0, expected None, 32, 64 or a multiple of 128": call(A, B8, S[None], group=0),
    "got group=96, expected": call(A, B8, S[None], group=96),
    "got group=-128, expected": call(A, B8, S[None], group=-128),
    "got group=128.0, expected": call(A, B8, S[None], group=128.0),
    "got out of shape (5, 3), expected (3, 5)": call(A, B8, S, out=torch.zeros(5, 3, dtype=F16)),
    "got out in the memory of a, expected": call(SHARED[:3], B8, S, out=SHARED[:3, :5]),
    "got out in the memory of scale, expected": call(
        A, B8, SHARED[0, :5], out=SHARED[:3, :5]
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", [*TYPE_ERRORS, *VALUE_ERRORS])
def test_a_wrong_argument_is_refused_in_a_line(message):
    error = TypeError if message in TYPE_ERRORS else ValueError
    arguments, options = (TYPE_ERRORS | VALUE_ERRORS)[message]
    assert_refused(error, f"matmul_w8: {message}", matmul_w8, *arguments, **options)


def test_words_of_four_bits_have_errors_of_their_own():
    with pytest.raises(TypeError, match=r"matmul_w4: got b of torch\.int8, expected torch\.int16"):
        matmul_w4(A, B8, S)
    with pytest.raises(ValueError, match=r"and b \(40, 5\), expected b \(32, N\)"):
        matmul_w4(A, B8.to(I16), S)
    assert matmul_w4(A[:0], B4, S).shape == (0, 5)
    assert matmul_w4(A, B4[:, :0], S[:0]).shape == (3, 0)


@pytest.mark.lane("full")
@both
@pytest.mark.parametrize(
    ("dtype", "group", "rows"), combine([torch.bfloat16, F16], [128, None], [16, 32, 64, 128])
)
def test_weights_go_from_registers_to_wgmma(bits, dtype, group, rows):
    """Both operands are fetched ahead, and no weight is converted from an integer."""
    K, N = 512, 2048
    with capture_launches("sm_90") as launches:
        b = empty(N, K, dtype=I8) if bits == 8 else empty(N, K // 4, dtype=I16)
        shape = (N,) if group is None else (K // group, N)
        zero, scale = None if group is None else empty(*shape, dtype=I8), empty(*shape, dtype=dtype)
        WRAPPERS[bits](empty(rows, K, dtype=dtype), b.T, scale, zero, group=group)
    launch = launches[0]
    ptx = launch.compile().asm["ptx"]
    wgmma = re.findall(rf"wgmma\.mma_async\S*m64n{rows}k16\S*\s*\n?\s*(\{{.*?\}}), (\S+),", ptx)
    assert wgmma
    assert all(a.startswith("{") for _, a in wgmma), "weights from shared memory"
    assert "cp.async" in ptx
    zeros = 0 if group is None else 2 * launch.constants["BLOCK_N"]
    assert len(re.findall(r"cvt\.rn\S*\.[su](?:8|16|32)", ptx)) <= zeros

"""gemm: which kernel it chooses, what can be asked and forced, and the tables behind it."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from gemmproof import kernels
from gemmproof.kernels import KERNELS, arguments, choose_kernel, gemm, tables
from gemmproof.kernels.gemm import LAUNCHES
from gemmproof.kernels.tables import VARIABLE, load_tables, look_up, read_table
from gemmproof.reference.simulator import run

H200 = "NVIDIA H200"
TABLES = sorted(Path(tables.__file__).parent.glob("*.json"))


def row(M, N, K, fmt="bf16", out=None, **speeds):
    sizes = {"M": M, "N": N, "K": K}
    return {"format": fmt, "out_format": out or fmt, **sizes, "speeds": speeds}


def write(path, *rows, device="a card", schema=1):
    path.write_text(json.dumps({"schema": schema, "device": device, "rows": rows}))
    return path


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A user's table, for a GPU that holds all tensors."""
    table = write(
        tmp_path / "table.json",
        row(4096, 4096, 4096, matmul_tma=1.0, matmul_streamk=2.0),
        row(16, 8192, 8192, matmul_splitk=3.0, matmul_tma=1.0),
        row(64, 64, 64, matmul_tma=1.0, matmul_unknown=2.0),
        row(4100, 4100, 4099, matmul_swizzled=3.0, matmul=1.0, matmul_streamk=4.0),
        row(4096, 4096, 4096, "fp8e4m3", "fp32", matmul_tma=1.0),
        row(512, 512, 512, "fp32", matmul_persistent=1.0),
    )
    monkeypatch.setenv(VARIABLE, str(table))
    with (
        patch.object(torch.Tensor, "is_cuda", True),
        patch.object(torch.cuda, "get_device_name", lambda device: "a card"),
    ):
        yield table


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("M", "N", "K", "name"),
    [
        (4096, 4096, 4096, "matmul_streamk"),
        (2048, 4096, 2048, "matmul_streamk"),
        (1, 4096, 4096, "matmul_splitk"),
        (64, 64, 128, "matmul_tma"),  # the fastest there is one that is not known
        # the nearest of those that descriptors cannot address, without a kernel that needs them
        (65, 65, 127, "matmul_swizzled"),
    ],
)
def test_the_nearest_product_that_was_measured_decides(own, M, N, K, name):
    """In octaves of each size, among those that are addressed in the same way."""
    choice = choose_kernel(meta(M, K), meta(K, N))
    assert choice.kernel == name
    assert "the fastest at " in choice.why
    assert choice.why.endswith(" in bf16 on an a card")


def test_many_rows_say_nothing_of_few(own, texts):
    """To copy b would take longer than a product of 16 rows."""
    choice = choose_kernel(meta(16, 8191), meta(8191, 8191))
    assert choice.kernel == "matmul_splitk"
    texts("the choice for few rows that were not measured", choice.why)


def test_a_format_that_was_not_measured_is_taken_for_one_of_its_width(own, texts):
    half, half_b = meta(4096, 4096, dtype=torch.float16), meta(4096, 4096, dtype=torch.float16)
    assert choose_kernel(half, half_b).kernel == "matmul_streamk"
    eight = torch.empty(128, 128, dtype=torch.float8_e5m2)
    texts("the choice for a format of the same width", choose_kernel(eight, eight.T).why)
    whole = torch.empty(128, 128, dtype=torch.int8)
    texts("the choice for a format that was not measured", choose_kernel(whole, whole.T).why)


def test_full_precision_is_apart_from_tf32(own):
    a, b = meta(512, 512, dtype=torch.float32), meta(512, 512, dtype=torch.float32)
    assert choose_kernel(a, b).kernel == "matmul_persistent"
    assert choose_kernel(a, b, input_precision="tf32").why.startswith("nothing measured")


@pytest.mark.parametrize(
    ("M", "K", "columns", "name", "reason"),
    [
        (16, 64, 64, "matmul_splitk", "nothing measured on no GPU, and few rows"),
        (65, 64, 64, "matmul_tma", "nothing measured on no GPU, and the copy engine can address"),
        (65, 63, 64, "matmul_swizzled", "on no GPU, and the copy engine cannot address a, b and c"),
        (1024, 1025, 1024, "matmul_padded", "cannot address a, b and c, of sides that are worth"),
    ],
)
def test_without_a_table_a_rule_decides(M, K, columns, name, reason):
    choice = choose_kernel(meta(M, K), meta(K, columns))
    assert choice.kernel == name
    assert reason in choice.why


def test_the_kernel_that_is_chosen_or_forced_is_launched_with_the_result():
    """Checked arguments are not checked again."""
    a, b = meta(8, 16), meta(16, 8)
    for forced, expected in ((None, "matmul_splitk"), ("matmul_grouped", "matmul_grouped")):
        given = []
        with (
            patch.dict(LAUNCHES, {expected: lambda *args, given=given: given.extend(args)}),
            patch.object(arguments, "check_operands", wraps=arguments.check_operands) as check,
        ):
            c = gemm(a, b, torch.float32, kernel=forced)
        assert [x is y for x, y in zip(given, (a, b, c), strict=False)] == [True] * 3
        assert given[3] == "ieee"
        assert (c.shape, c.dtype) == ((8, 8), torch.float32)
        assert check.call_count == 1


def test_a_choice_takes_no_memory_for_a_result():
    """c would have 2 TiB."""
    row = torch.zeros(1, 16).half()
    a, b = row.expand(2**20, 16), row.T.expand(16, 2**20)
    assert choose_kernel(a, b).kernel == "matmul_swizzled"


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_gemm_launches_checks_nothing_again(name):
    a, b = torch.ones(24, 40).half(), torch.ones(40, 16).half()
    with patch.object(arguments, "check_operands", wraps=arguments.check_operands) as check:
        seen = run(lambda a, b: gemm(a, b, kernel=name), a, b, target="sm_100")
    assert check.call_count == 1
    assert torch.equal(seen.result, torch.full((24, 16), 40).half())


def test_every_kernel_has_a_launch():
    assert list(LAUNCHES) == list(KERNELS)


def test_a_kernel_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="gemm: got kernel='mm', expected one of matmul "):
        gemm(meta(8, 16), meta(16, 8), kernel="mm")


def test_what_no_kernel_takes_is_refused_before_one_is_chosen():
    with pytest.raises(ValueError, match=r"choose_kernel: got a \(8, 16\) and b \(8, 16\)"):
        choose_kernel(meta(8, 16), meta(8, 16))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 2, "rows": []}'])
def test_a_table_that_cannot_be_read_is_refused_in_a_line(text, tmp_path, monkeypatch):
    path = tmp_path / "mine.json"
    path.write_text(text)
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(
        ValueError, match=f"{VARIABLE}: got '.*mine.json' .*gemmproof tune"
    ) as caught:
        choose_kernel(meta(8, 16), meta(16, 8))
    assert "\n" not in str(caught.value)


def test_a_table_of_an_empty_product_is_refused(tmp_path, monkeypatch):
    """It is no number of octaves away from another one."""
    table = write(tmp_path / "mine.json", row(0, 16, 8, matmul=1.0))
    monkeypatch.setenv(VARIABLE, str(table))
    with pytest.raises(ValueError, match=r"\(ValueError: sizes 0x16x8\), expected a file"):
        choose_kernel(meta(8, 16), meta(16, 8))


def test_a_table_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.json"))
    with pytest.raises(ValueError, match="No such file"):
        choose_kernel(meta(8, 16), meta(16, 8))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_table_that_is_shipped_names_kernels_that_are_there(path):
    device, rows = read_table(path)
    assert device in load_tables()
    assert rows
    for measured in rows:
        assert set(measured.speeds) <= set(KERNELS)
        assert all(speed > 0 for speed in measured.speeds.values())
        nearest = look_up(device, measured.format, measured.described, *_sizes(measured))
        assert _sizes(nearest) == _sizes(measured)


def _sizes(measured):
    return measured.M, measured.N, measured.K


def test_the_h200_has_a_table():
    assert H200 in load_tables()
    assert [path.stem for path in TABLES] == ["nvidia-h200"]
    assert kernels.gemm is gemm

"""A tutorial's file: importing it launches the kernel, compares and times it."""

import torch
import triton
from right import matmul

DEVICE = triton.runtime.driver.active.get_active_torch_device()

torch.manual_seed(0)
a = torch.randn((96, 80), device=DEVICE, dtype=torch.float16)
b = torch.randn((80, 64), device=DEVICE, dtype=torch.float16)
if torch.allclose(matmul(a, b), torch.matmul(a, b), atol=1e-2, rtol=0):
    print("Triton and torch match")


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["M", "N", "K"],
        x_vals=[1024 * i for i in range(1, 9)],
        line_arg="provider",
        line_vals=["torch", "triton"],
        line_names=["cuBLAS", "Triton"],
        plot_name="matmul",
        args={},
    )
)
def benchmark(M, N, K, provider):
    a = torch.randn((M, K), device=DEVICE, dtype=torch.float16)
    b = torch.randn((K, N), device=DEVICE, dtype=torch.float16)
    call = (lambda: matmul(a, b)) if provider == "triton" else (lambda: torch.matmul(a, b))
    return 2 * M * N * K * 1e-9 / triton.testing.do_bench(call)


benchmark.run(show_plots=True, print_data=True)

"""Stands in for a module of the reader: layers, and one of them registered as a kernel."""

from right import matmul
from scaled import scaled_mm

from gemmproof import KernelUnderTest

__all__ = ["a_kernel_under_test", "linear", "scaled_mm"]


def linear(a, b, bias):
    return matmul(a, b) + bias


a_kernel_under_test = KernelUnderTest("matmul", matmul)

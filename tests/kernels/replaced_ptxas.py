"""A script in place of ptxas, or none at all."""

import triton


def replace_ptxas(monkeypatch, folder, does):
    """Run `does` before ptxas, but where its version is asked; "$GPU" is the option for the GPU."""
    tool, real = folder / "ptxas", triton.knobs.nvidia.ptxas.path
    asks = f'[ "$1" = --version ] && exec {real} --version'
    script = f'for GPU in "$@"; do case "$GPU" in --gpu-name=*) break;; esac; done\n{does}'
    tool.write_text(f'#!/bin/sh\n{asks}\n{script}\nexec {real} "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tool))


def hide_tools(monkeypatch):
    """Let Triton find none of NVIDIA's tools."""

    def find(self):
        raise RuntimeError(f"Cannot find {self.binary}")

    monkeypatch.setattr(triton.knobs.env_nvidia_tool, "get", find)

"""Refuses a clone whose links are files: its build would lack most of the package."""

import sys
from pathlib import Path

for name in ("kernels", "properties", "reference"):
    path = f"src/gemmproof/{name}"
    if not (Path(__file__).parent / path).is_dir():
        sys.exit(
            f"gemmproof: {path}: got a file, expected a link to ../../{name}:"
            " clone again with `git clone -c core.symlinks=true`"
        )

import setuptools  # noqa: E402 - not where there is nothing to build

setuptools.setup()

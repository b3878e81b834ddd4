"""Refuses a clone whose links are files: its build would lack most of the package."""

import sys
from pathlib import Path

for name in ("kernels", "properties", "reference"):
    place = f"src/gemmproof/{name}"
    if not (Path(__file__).parent / place).is_dir():
        sys.exit(
            f"gemmproof: {place}: got a file, expected a link to ../../{name}:"
            " clone again with `git clone -c core.symlinks=true`"
        )

import setuptools  # noqa: E402 - not where there is nothing to build

setuptools.setup()

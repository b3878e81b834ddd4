"""`python -m gemmproof` is the command `gemmproof`."""

from gemmproof.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

"""The whole test suite on every supported pair of torch and Triton: `./run python -m nox`.

A session is named by its Python and its torch: `nox -s "suite-3.12(torch='2.14')"`. Options behind
`--` go to pytest. Each session adds its row to docs/evidence/versions.json, from which
`scripts/pages.py versions` makes docs/reference/versions.md.
"""

import os

import nox

nox.options.default_venv_backend = "uv"
nox.options.stop_on_first_error = False

# torch -> (the Triton that it requires, the numpy that this Triton's interpreter works with).
PAIRS = {
    "2.10": ("3.6", "2.3"),
    "2.11": ("3.6", "2.3"),
    "2.12": ("3.7", "2.4"),
    "2.13": ("3.7", "2.4"),
    "2.14": ("3.8", "2.4"),
    "2.15": ("3.9", "2.4"),
}


@nox.session(python=["3.11", "3.12", "3.13"])
@nox.parametrize("torch", list(PAIRS))
def suite(session, torch):
    """Run the whole suite with one torch and the Triton that it requires."""
    triton, numpy = PAIRS[torch]
    pins = [f"torch=={torch}.*", f"triton=={triton}.*", f"numpy=={numpy}.*"]
    session.install(*pins, "-e", ".[dev]")
    # not in session.create_tmp(): it makes TMPDIR a folder of this repository, whose conftest.py
    # every project that a test makes there would find above it
    report = os.path.join(session.virtualenv.location, "junit.xml")
    workers = os.environ.get("GEMMPROOF_WORKERS", "2")
    options = [
        "-n",
        workers,
        "--dist",
        "worksteal",
        "--full",
        f"--junitxml={report}",
        *session.posargs,
    ]
    environment = {"OMP_NUM_THREADS": "1"}
    session.run("python", "-m", "pytest", *options, env=environment, success_codes=[0, 1])
    if not session.posargs:
        session.run("python", "scripts/pages.py", "versions", "--junit", report)

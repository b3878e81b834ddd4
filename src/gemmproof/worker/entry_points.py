"""The functions that several callers have a worker call, as "module:function"."""

from __future__ import annotations

ENGINE = "gemmproof.engine.kernel_check:check"  # what checks a kernel in a worker
CHECK = "gemmproof.engine.task:check"
JUDGE_CASES = "gemmproof.engine.task:judge_cases"
SHRINK = "gemmproof.engine.task:shrink"
COMPILE_GUARANTEED = "gemmproof.engine.task:compile_guaranteed"
DESCRIBE_ONE = "gemmproof.worker.load_kernel:describe_one"
DESCRIBE_REGISTERED = "gemmproof.worker.load_kernel:describe_registered"
MEASURE_DRIFT = "gemmproof.drift.task:measure"

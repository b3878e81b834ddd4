"""Settings of this repository's own tests."""

from hypothesis import HealthCheck, settings

# deadline: the machine is shared, time is judged by benchmarks. derandomize, database: a run on
# one commit gives one answer.
settings.register_profile(
    "gemmproof-tests",
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("gemmproof-tests")

"""Set-up of every test: hypothesis profiles, one thread per worker, the shared cases where they are at hand."""

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

import shared

# Before torch is imported, here and in processes the tests start: workers of pytest-xdist share the cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)

# "ci" tries the same examples every time, so that a failure is one for everybody; "thorough" looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "thorough", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def shared_cases():
    """Return the module of shared cases; skip where the folder is not beside the repository."""
    cases = shared.load_cases()
    if cases is None:
        pytest.skip(f"no {shared.CASES}")
    return cases


def pytest_configure(config):
    """Register the mark of what only a GPU can show."""
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU and nvFuser; skipped without")

"""Tests with Prometheus, of `deploy/prometheus/` and `deploy/grafana/`: `make test-prometheus`.

Without its programs they are skipped; with REQUIRE_PROMETHEUS=1 they fail.
"""

import os
import shutil

import pytest

from tests.system.prometheus.prometheus import PROGRAMS


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    """Skip or fail the tests here if Prometheus is not installed."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if not missing:
        return
    reason = f"{' and '.join(missing)} not found: install Prometheus"
    if os.environ.get("REQUIRE_PROMETHEUS"):
        pytest.fail(reason)
    pytest.skip(f"Prometheus tests are left out: {reason}")

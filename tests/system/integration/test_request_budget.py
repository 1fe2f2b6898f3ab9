"""The cost of a request, in Python calls of broker and client, is within its budget."""

import subprocess
import sys

from tests.paths import ROOT
from tests.system.integration.processes import DEADLINE_S, environment


def test_each_request_is_within_its_budget() -> None:
    """If this fails for a cost that is too high, the output lists the most called functions."""
    result = subprocess.run(
        [sys.executable, "-m", "bench.calls"],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=environment(),
        text=True,
        timeout=DEADLINE_S,
    )

    assert result.returncode == 0, result.stdout + result.stderr

"""Test that a cut loses packets in one direction only, until it is healed."""

import subprocess
import sys

import pytest

from tests.paths import ROOT
from tests.system.netns.namespaces import isolated, missing_here


def test_a_cut_affects_one_direction_only() -> None:
    if missing := missing_here():
        pytest.skip(f"this needs {missing}")
    result = subprocess.run(
        isolated([sys.executable, "-m", "tests.system.netns.datagrams"]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=280,  # Below the global limit of a test, so that the child process is killed.
    )

    assert result.stdout.splitlines() == [
        "2 to 1: the-other-way",
        "1 to 0: to-another",
        "0 to 2: from-another",
        "1 to 2: healed",
    ]

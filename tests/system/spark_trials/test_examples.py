"""Tests of the examples as programs, each with a session of its own."""

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.paths import ROOT

if TYPE_CHECKING:
    from tests.system.spark_trials.brokers import Brokers

FLIGHTS = 27_004


def run_example(name: str, *arguments: str) -> str:
    """Run an example that must succeed; return its output."""
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.usefixtures("java")
def test_the_last_hour_is_replayed_and_checked_for_compaction(brokers: "Brokers") -> None:
    said = run_example("spark_replay.py", "example-flights", brokers.addresses)
    assert f"produced {FLIGHTS} flights\nreplayed {FLIGHTS} records into a table\n" in said

    said = run_example("spark_compaction.py", "example-flights", brokers.addresses)
    found = re.search(r"(\d+) records with (\d+) keys, 0 of them deleted", said)
    assert found is not None, said
    assert 0 < int(found[2]) < int(found[1]) <= FLIGHTS


@pytest.mark.usefixtures("java")
def test_delays_are_streamed(brokers: "Brokers") -> None:
    said = run_example("spark_delays.py", brokers.addresses)

    assert f"produced {FLIGHTS} flights\n" in said
    assert "windows are complete; the worst were\n" in said
    assert ", 0 records behind\n" in said


@pytest.mark.usefixtures("java")
def test_dead_letters_are_repaired(brokers: "Brokers") -> None:
    said = run_example("spark_dead_letters.py", brokers.addresses)

    rejected = re.search(r"(\d+) of 2000 flights were rejected", said)
    assert rejected is not None, said
    assert f"{rejected[1]} repaired messages were sent to spark-flights-queue\n" in said

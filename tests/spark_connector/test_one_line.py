"""Tests of errors in one line, by the code that reports those of Spark's Python workers."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from tests.paths import ROOT

REPORT = """
import io, sys
from importlib.machinery import ModuleSpec

import pyspark.util
from tidelog.spark_connector.one_line import in_one_line
from tidelog.wire.errors import ConfigError

sys.modules["__main__"].__spec__ = ModuleSpec(sys.argv[1], None)
out = io.BytesIO()
try:
    with in_one_line():
        raise {error}
except Exception as error:
    pyspark.util.handle_worker_exception(error, out)
print(out.getvalue()[8:].decode().strip())
"""


def reported(error: str, *, main: str) -> list[str]:
    """Return the lines that a process with this main module reports."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(error=error), main],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_worker_of_spark_reports_an_error_of_tidelog_in_one_line() -> None:
    assert reported("ConfigError('say it')", main="pyspark.daemon") == [
        "tidelog.wire.errors.ConfigError: say it"
    ]


def test_a_fault_keeps_its_traceback() -> None:
    assert len(reported("KeyError('x')", main="pyspark.daemon")) > 1


def test_other_processes_keep_the_traceback() -> None:
    assert len(reported("ConfigError('say it')", main="report")) > 1

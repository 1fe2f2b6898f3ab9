"""The Spark part of the demonstration: Spark, if installed, replays the produced records.

Shell: runs a child process, which contains Spark, its Java and their output.
"""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import trio

from tidelog.demo.errors import DemoFailedError

_MODULE = "pyspark_tidelog.replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkReport:
    """The counts and times of Spark."""

    rows: int
    """Records of the topic."""
    deleted: int
    """Messages that are deleted according to the history of the queue."""
    start_seconds: float
    """Seconds until Spark is started."""
    replay_seconds: float
    """Seconds for all rows, after the start."""


async def replay_with_spark(
    address: str, topic: str, queue: str, *, values: Sequence[bytes]
) -> SparkReport | str:
    """Replay a topic with Spark; return its report, or the reason of its failure in one line.

    If cancelled, the process is killed.

    Raises:
        DemoFailedError: Spark read other records than were produced.
    """
    command = [sys.executable, "-m", _MODULE, address, topic, queue]
    done = await trio.run_process(
        command,
        stdin=subprocess.DEVNULL,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env=dict(os.environ),
    )
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    if done.returncode or not lines:
        said = done.stderr.decode("utf-8", "replace").splitlines()
        return f"Spark failed: {said[-1].strip() if said else 'its output is empty'}"
    return judged(cast("dict[str, Any]", json.loads(lines[-1])), values)


def judged(found: Mapping[str, Any], values: Sequence[bytes]) -> SparkReport | str:
    """Return the report of Spark, or its line about a missing component.

    Raises:
        DemoFailedError: Spark read other records than were produced.
    """
    if "missing" in found:
        return str(found["missing"])
    if found["rows"] != len(values) or found["checksum"] != sum(map(zlib.crc32, values)):
        raise DemoFailedError(
            f"Spark replayed {found['rows']} records, which differ from the {len(values)} produced"
            " records"
        )
    return SparkReport(
        rows=found["rows"],
        deleted=found["events"].get("delete", 0),
        start_seconds=found["start_seconds"],
        replay_seconds=found["replay_seconds"],
    )

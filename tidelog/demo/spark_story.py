"""The last part of the demonstration: Spark replays what was produced, where it is installed.

Shell: runs a process of its own, so that Spark, its Java and what they print stay there.
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
    """What Spark has found."""

    rows: int
    """Records of the topic."""
    deleted: int
    """Messages that the history of the queue says to be deleted."""
    start_seconds: float
    """Until Spark was there."""
    replay_seconds: float
    """For all rows, once it was."""


async def replay_with_spark(
    address: str, topic: str, queue: str, *, values: Sequence[bytes]
) -> SparkReport | str:
    """Have Spark read a topic, and return what it found, or in one line why it could not.

    If cancelled, the process is ended.

    Raises:
        DemoFailedError: What Spark read is not what was produced.
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
        return f"Spark did not work here: {said[-1].strip() if said else 'it said nothing'}"
    return judged(cast("dict[str, Any]", json.loads(lines[-1])), values)


def judged(found: Mapping[str, Any], values: Sequence[bytes]) -> SparkReport | str:
    """Return the report of what Spark found, or what it says to be missing.

    Raises:
        DemoFailedError: It is not what was produced.
    """
    if "missing" in found:
        return str(found["missing"])
    if found["rows"] != len(values) or found["checksum"] != sum(map(zlib.crc32, values)):
        raise DemoFailedError(
            f"Spark replayed {found['rows']} records, which are not the {len(values)} that were"
            " produced"
        )
    return SparkReport(
        rows=found["rows"],
        deleted=found["events"].get("delete", 0),
        start_seconds=found["start_seconds"],
        replay_seconds=found["replay_seconds"],
    )

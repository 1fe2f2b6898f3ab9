"""Benchmark of a broker's start: after a clean stop, and after SIGKILL."""

import json
import os
import signal
from pathlib import Path
from time import perf_counter
from typing import final

from bench.figures import Row, Settings
from bench.machine import ServerProcess, broker_process
from bench.produce import Batches
from bench.raw import RawConnection, pump
from tidelog.wire.messages.produce import Acks
from tidelog.wire.messages.topics import CreateTopicRequest
from tidelog.wire.protocol import api

_RECORDS_IN_BATCH = 8_000
_DEPTH = 5
_GOAL_SECONDS = 1.0
_IDLE_GOAL_US = 100
"""100,000 queues have 200,000 partitions, and start in 20 s."""
_GB = 1_000_000_000
_CHECKPOINT_BYTES = 64 << 20
"""Limit of the bytes that a flush leaves for the recovery at the next start."""


@final
class _Filled:
    """A topic in a data directory, and the number of its records."""

    def __init__(self, data: Path) -> None:
        """Create the topic."""
        self.data = data
        self._end_offset = 0
        with broker_process(data) as server:
            broker = RawConnection(server.address)
            self._topic_id = broker.create_topic("startup", durability="replicated")
            broker.close()

    def fill(self, server: ServerProcess, total_bytes: int) -> None:
        """Append about `total_bytes`."""
        broker = RawConnection(server.address)
        batches = Batches(self._topic_id, _RECORDS_IN_BATCH, Acks.LEADER, producer_id=0)
        count = total_bytes // len(batches.batch)
        pump(broker.sock, batches.next_frame, count, depth=_DEPTH)
        broker.close()
        self._end_offset += count * _RECORDS_IN_BATCH

    def start(self) -> tuple[float, int]:
        """Return the seconds until a broker answers, and the bytes that recovery read."""
        began = perf_counter()
        with broker_process(self.data) as server:
            broker = RawConnection(server.address)
            elapsed = perf_counter() - began
            broker.check_end_offset(self._topic_id, self._end_offset)
            broker.close()
        events = (json.loads(line) for line in server.log)
        scanned = sum(event.get("scanned_bytes", 0) for event in events)
        return elapsed, scanned


def _drop_page_cache(directory: Path) -> None:
    """Drop cached pages, so that the next start reads from disk as after a reboot."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _idle(data: Path, count: int) -> list[Row]:
    """Restart a broker with many partitions without records: the cost of each."""
    with broker_process(data) as server:
        broker = RawConnection(server.address)
        broker.ask(api.CREATE_TOPIC, CreateTopicRequest("idle", count, {}))
        broker.close()
    with broker_process(data.with_name("none")) as server:
        cpu = server.cpu_seconds
    rows: list[Row] = []
    for how, number in (("a clean stop", signal.SIGTERM), ("SIGKILL", signal.SIGKILL)):
        with broker_process(data) as server:
            server.stop(number)
        began = perf_counter()
        with broker_process(data) as server:
            seconds, used = perf_counter() - began, server.cpu_seconds - cpu
        each = used / count * 1e6
        rows.append(
            Row(
                f"startup: CPU for each of {count:,} idle partitions after {how}",
                f"{each:.0f} us, started in {seconds:.1f} s",
                f"< {_IDLE_GOAL_US} us",
                each < _IDLE_GOAL_US,
            )
        )
    return rows


def run(settings: Settings) -> list[Row]:
    """Fill a log, stop cleanly and start; then append, kill and start, twice.

    Then start with many idle partitions.
    """
    clean_bytes = settings.choose(10 * _GB, _GB // 2)
    kills = [settings.choose(part, part // 10) for part in (_GB // 4, _GB)]
    filled = _Filled(settings.directory / "data")
    empty, _ = filled.start()
    with broker_process(filled.data) as server:
        filled.fill(server, clean_bytes)
    _drop_page_cache(filled.data)
    clean, _ = filled.start()
    rows = [
        Row(
            "startup: seconds to the first answer after a clean stop,"
            f" {clean_bytes / _GB:g} GB of log, cold cache",
            f"{clean:.2f}",
            f"< {_GOAL_SECONDS:g}",
            clean < _GOAL_SECONDS,
        ),
        Row("startup: of an empty broker, most of it Python's imports", f"{empty:.2f}"),
    ]
    for unflushed_bytes in kills:
        # Nothing is flushed in the background, so that all of it is unflushed at the kill.
        with broker_process(filled.data, log_flush_interval_ms="1h") as server:
            filled.fill(server, unflushed_bytes)
            server.stop(signal.SIGKILL)
        seconds, scanned = filled.start()
        bound = unflushed_bytes + _CHECKPOINT_BYTES
        rows.append(
            Row(
                f"startup: after SIGKILL with {unflushed_bytes / 1e6:,.0f} MB unflushed",
                f"{seconds:.2f}, looks at {scanned / 1e6:,.0f} MB",
                f"<= {bound / 1e6:,.0f} MB",
                scanned <= bound,
            )
        )
    return rows + _idle(settings.directory / "idle", settings.choose(10_000, 500))

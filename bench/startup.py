"""How long a broker takes to start: after a clean stop, and after SIGKILL."""

import os
import signal
from pathlib import Path
from time import perf_counter

from bench.figures import Row, Settings
from bench.machine import broker_process
from bench.produce import Batches
from bench.raw import RawConnection, pump
from wire.produce import Acks

_RECORDS_IN_BATCH = 8_000
_DEPTH = 5
_GOAL_SECONDS = 1.0
_GB = 1_000_000_000


def _fill(address: tuple[str, int], topic_id: bytes, total_bytes: int) -> None:
    broker = RawConnection(address)
    batches = Batches(topic_id, _RECORDS_IN_BATCH, Acks.LEADER, 0)
    pump(broker.sock, batches.next_frame, total_bytes // len(batches.batch), _DEPTH)
    broker.close()


def _drop_page_cache(directory: Path) -> None:
    """Let the next start read from the disk, as after a start of the machine."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _seconds_to_start(data: Path) -> float:
    began = perf_counter()
    with broker_process(data) as server:
        RawConnection(server.address).close()
        return perf_counter() - began


def run(settings: Settings) -> list[Row]:
    """Fill a log, stop cleanly and start; fill some more, kill and start, twice."""
    data = settings.directory / "data"
    clean_bytes = settings.choose(10 * _GB, _GB // 2)
    kills = [settings.choose(part, part // 10) for part in (_GB // 4, _GB)]
    empty = _seconds_to_start(settings.directory / "empty")
    with broker_process(data) as server:
        broker = RawConnection(server.address)
        topic_id = broker.create_topic("startup", durability="replicated")
        broker.close()
        _fill(server.address, topic_id, clean_bytes)
    _drop_page_cache(data)
    rows = [
        _row(f"a clean stop, {clean_bytes / _GB:g} GB of log, cold cache", _seconds_to_start(data)),
        Row("startup: of an empty broker, most of it Python's imports", f"{empty:.2f}"),
    ]
    for unflushed_bytes in kills:
        # Nothing is flushed in the background, so that all of it is unflushed at the kill.
        with broker_process(data, flush_interval_ms="1h") as server:
            _fill(server.address, topic_id, unflushed_bytes)
            server.stop(signal.SIGKILL)
        what = f"startup: after SIGKILL with {unflushed_bytes / 1e6:,.0f} MB unflushed"
        rows.append(Row(what, f"{_seconds_to_start(data):.2f}"))
    return rows


def _row(what: str, seconds: float) -> Row:
    return Row(
        f"startup: seconds to the first answer after {what}",
        f"{seconds:.2f}",
        f"< {_GOAL_SECONDS:g}",
        seconds < _GOAL_SECONDS,
    )

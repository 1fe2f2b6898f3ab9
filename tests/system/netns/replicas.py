"""Reader of replicas in the data directories of stopped brokers, and their comparison.

A replica is opened as a broker opens it, and all of its records are read, committed or not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.logstore.logs import records_in
from tests.simulation.checkers.history import Key, Operation, Outcome, Send
from tidelog.broker.partitions.data_directory import DiskIds, open_data_directory
from tidelog.logstore.config import LogConfig
from tidelog.logstore.disk.os_disk import OsDisk
from tidelog.logstore.log import LogStatus, PartitionLog
from tidelog.logstore.recovery.recovery import open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment_format import SegmentHeader

Replica = dict[int, bytes]
"""Values by offset."""

_NO_IDS: Final = DiskIds("", "")
_READ_BYTES: Final = 1 << 20
_SHOWN: Final = 3


def read_replicas(directory: Path, node_id: int) -> tuple[dict[Key, Replica], list[str]]:
    """Return all replicas in the data directory of a broker, and their problems."""
    found: dict[Key, Replica] = {}
    problems: list[str] = []
    data = open_data_directory(OsDisk(str(directory)), node_id=node_id, disk_ids=_NO_IDS)
    try:
        if not data.was_clean:
            problems.append(f"broker {node_id} left no clean-shutdown marker")
        for name, topic_id in data.stored_topics():
            for partition in data.stored_partitions(name, topic_id):
                where = data.partition_directory(name, topic_id, partition)
                owner = SegmentHeader(topic_id, partition, 0)
                log, _ = open_log(where, owner, FileCache(data.disk), config=LogConfig(), now_ms=0)
                key = f"{name}/{partition}"
                if log.status is not LogStatus.ONLINE:
                    problems.append(f"broker {node_id}: the log of {key} is {log.status.value}")
                found[key] = _records(log)
    finally:
        data.release()
    return found, problems


def acknowledged(operations: Iterable[Operation]) -> dict[Key, Replica]:
    """Return the values acknowledged at known offsets."""
    found: dict[Key, Replica] = {}
    for operation in operations:
        for step in operation.steps if operation.outcome is Outcome.OK else ():
            if isinstance(step, Send) and step.offset is not None:
                found.setdefault(step.key, {})[step.offset] = step.value.encode()
    return found


def differences(
    expected: Mapping[Key, Replica],
    replicas: Mapping[int, Mapping[Key, Replica]],
    assigned: Mapping[Key, Sequence[int]],
) -> list[str]:
    """Return the problems of replicas.

    Each must have every acknowledged record once, at its offset, and equal the others.

    Args:
        expected: Acknowledged values.
        replicas: By node id, all values.
        assigned: By partition, the brokers that must have a replica.
    """
    problems: list[str] = []
    for key, node_ids in assigned.items():
        first = replicas[node_ids[0]].get(key, {})
        for node_id in node_ids:
            what = f"broker {node_id}, {key}"
            replica = replicas[node_id].get(key)
            if replica is None:
                problems.append(f"{what}: the replica is missing")
                continue
            problems += (f"{what}: {text}" for text in _wrong(expected.get(key, {}), replica))
            if replica != first:
                where = _shown(
                    at for at in {**first, **replica} if first.get(at) != replica.get(at)
                )
                problems.append(f"{what}: differs from broker {node_ids[0]}, at {where}")
    return problems


def _wrong(expected: Replica, replica: Replica) -> Iterator[str]:
    missing = [at for at in expected if at not in replica]
    if missing:
        yield f"{len(missing)} acknowledged records are missing, at {_shown(missing)}"
    other = [at for at, value in expected.items() if at in replica and replica[at] != value]
    if other:
        yield f"{len(other)} acknowledged records are not at their offsets, at {_shown(other)}"
    places: dict[bytes, int] = {}
    twice = [at for at, value in replica.items() if places.setdefault(value, at) != at]
    if twice:
        yield f"{len(twice)} records are duplicates, at {_shown(twice)}"


def _shown(offsets: Iterable[int]) -> str:
    ordered = sorted(offsets)
    rest = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(map(str, ordered[:_SHOWN])) + rest


def _records(log: PartitionLog) -> Replica:
    found: Replica = {}
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        part = log.read(offset, max_bytes=_READ_BYTES, high_watermark=end)
        assert part is not None, "the log has more batches"
        found |= records_in((part if part.is_ready() else part.load()).read())
        offset = max(found) + 1
    return found

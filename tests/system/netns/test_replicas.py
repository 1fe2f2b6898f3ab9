"""Tests of the comparison of replicas on disks: it finds every kind of difference."""

from pathlib import Path

import pytest

from tests.logstore.logs import NOW_MS, TOPIC_ID, batch_of, run
from tests.simulation.checkers.history import Operation, Outcome, Send
from tests.system.netns.replicas import Replica, acknowledged, differences, read_replicas
from tidelog.broker.partitions.data_directory import DiskIds, open_data_directory
from tidelog.logstore.config import LogConfig
from tidelog.logstore.disk.os_disk import OsDisk
from tidelog.logstore.recovery.recovery import open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment_format import SegmentHeader
from tidelog.wire.batch.record_batch import check_produced

KEY = "flights/0"
GOOD = {0: b"a", 1: b"b"}


def a_stopped_broker(directory: Path, *values: bytes, is_clean: bool) -> None:
    """Leave the data directory of broker 3 behind, with one partition."""
    data = open_data_directory(OsDisk(str(directory)), node_id=3, disk_ids=DiskIds("01", "02"))
    where = data.partition_directory("flights", TOPIC_ID, 0)
    owner = SegmentHeader(TOPIC_ID, 0, 0)
    log, _ = open_log(where, owner, FileCache(data.disk), config=LogConfig(), now_ms=NOW_MS)
    batch = memoryview(batch_of(values))
    log.append(batch, check_produced(batch), leader_epoch=1, now_ms=NOW_MS)
    while (flush := log.begin_flush()) is not None:
        run(log, flush)
    if is_clean:
        data.mark_clean(now_ms=NOW_MS, broker_epoch=1)
    data.release()


def test_everything_in_a_data_directory_is_read(tmp_path: Path) -> None:
    a_stopped_broker(tmp_path, b"a", b"b", is_clean=True)

    assert read_replicas(tmp_path, 3) == ({KEY: GOOD}, [])


def test_a_broker_that_did_not_stop_cleanly_is_a_problem(tmp_path: Path) -> None:
    a_stopped_broker(tmp_path, b"a", b"b", is_clean=False)

    replicas, problems = read_replicas(tmp_path, 3)

    assert replicas == {KEY: GOOD}
    assert problems == ["broker 3 left no clean-shutdown marker"]


def test_acknowledged_values_have_a_known_offset() -> None:
    told = Operation("writer", Outcome.OK, [Send(KEY, "a", 0)])
    not_told = Operation("writer", Outcome.UNKNOWN, [Send(KEY, "b", 1)])

    assert acknowledged([told, not_told]) == {KEY: {0: b"a"}}


def test_equal_and_complete_replicas_have_no_problem() -> None:
    more = {**GOOD, 2: b"not acknowledged"}

    assert differences({KEY: GOOD}, {1: {KEY: more}, 2: {KEY: more}}, {KEY: [1, 2]}) == []


@pytest.mark.parametrize(
    ("replica", "problem"),
    [
        ({0: b"a"}, "1 acknowledged records are missing, at 1"),
        ({0: b"a", 1: b"c"}, "1 acknowledged records are not at their offsets, at 1"),
        ({0: b"a", 1: b"b", 2: b"a"}, "1 records are duplicates, at 2"),
        ({0: b"a", 1: b"b", 2: b"c"}, "differs from broker 1, at 2"),
    ],
)
def test_an_invalid_replica_is_found(replica: Replica, problem: str) -> None:
    found = differences({KEY: GOOD}, {1: {KEY: GOOD}, 2: {KEY: replica}}, {KEY: [1, 2]})

    assert f"broker 2, {KEY}: {problem}" in found


def test_a_missing_replica_is_found() -> None:
    found = differences({}, {1: {KEY: GOOD}, 2: {}}, {KEY: [1, 2]})

    assert found == [f"broker 2, {KEY}: the replica is missing"]

"""A follower's log: it equals its leader's, and the follower can become the leader."""

import pytest

from tests.logstore.logs import (
    NOW_MS,
    SMALL,
    Opened,
    Producer,
    expected,
    image_of,
    new_log,
    numbered,
    read_all,
    reopen,
)
from tidelog.logstore.config import KiB, LogConfig, MiB
from tidelog.logstore.log import PartitionLog
from tidelog.logstore.segments.batch_run import check_run
from tidelog.wire.batch.record_batch import parse_header
from tidelog.wire.errors import DiskFullError, OutOfOrderSequenceError


def fetch(leader: PartitionLog, offset: int, *, max_bytes: int = 700) -> bytearray:
    """Return batches as a leader sends them, up to the end of its log."""
    part = leader.read(offset, max_bytes=max_bytes, high_watermark=leader.log_end_offset)
    assert part is not None
    part.begin_at(offset)
    return bytearray((part if part.is_ready() else part.load()).read())


def replicate(leader: Opened, follower: Opened, *, max_bytes: int = 700) -> None:
    """Let a follower catch up."""
    while follower.log.log_end_offset < leader.log.log_end_offset:
        data = memoryview(fetch(leader.log, follower.log.log_end_offset, max_bytes=max_bytes))
        take(follower.log, data)


def take(log: PartitionLog, data: memoryview) -> None:
    headers = check_run(
        data,
        log_end_offset=log.log_end_offset,
        last_epoch=log.leader_epochs.latest or 0,
        leader_epoch=100,
    )
    log.append_replicated(headers, data, now_ms=NOW_MS)


def filled(count: int = 60) -> Opened:
    leader = new_log()
    for number in range(count):
        leader.append(numbered(number), leader_epoch=number // 25)
    return leader


@pytest.mark.parametrize("max_bytes", [1, 700, 100_000])
def test_a_follower_has_what_its_leader_has(max_bytes: int) -> None:
    leader, follower = filled(), new_log()

    replicate(leader, follower, max_bytes=max_bytes)

    assert read_all(follower.log) == expected(0, 60)
    assert follower.log.leader_epochs.entries == ((0, 0), (1, 25), (2, 50))
    assert follower.segment_bases() == leader.segment_bases()


def test_a_follower_rolls_by_its_own_retained_bytes() -> None:
    """A new limit reaches replicas at different times."""
    leader, follower = new_log(LogConfig()), new_log(LogConfig(retention_bytes=MiB))
    leader.append_many(100, size=32 * KiB)

    replicate(leader, follower, max_bytes=MiB)
    follower.flush()
    follower.log.apply_retention(high_watermark=100, now_ms=NOW_MS).run()

    assert leader.log.segment_count == 1
    assert MiB <= follower.log.size_bytes < MiB + 256 * KiB


def test_a_leaders_answer_begins_exactly_at_the_followers_log_end() -> None:
    leader = filled()

    for offset in range(60):
        header = parse_header(fetch(leader.log, offset))
        assert header is not None
        assert header.base_offset == offset


def test_an_old_segment_is_sent_from_the_disk_as_well() -> None:
    leader, follower = filled(), new_log()
    leader.flush(checkpoint=True)

    replicate(leader.kill(), follower)

    assert read_all(follower.log) == expected(0, 60)


def test_each_replica_stamps_its_own_durable_position() -> None:
    leader, follower = filled(10), new_log()
    replicate(leader, follower)
    follower.flush()
    leader.append(numbered(10))

    replicate(leader, follower)

    data = image_of(follower.disk)[follower.path().rsplit("/", 1)[1]]
    assert max(_durable_positions(data)) > 0
    assert read_all(follower.log) == expected(0, 11)


def _durable_positions(data: bytes) -> list[int]:
    found = [parse_header(data, position) for position in range(len(data))]
    return [header.durable_position for header in found if header is not None]


def test_nothing_is_durable_before_a_flush_and_all_of_it_after() -> None:
    leader, follower = filled(30), new_log()
    replicate(leader, follower)
    assert follower.log.durable_end_offset == 0

    follower.flush()
    assert follower.log.durable_end_offset == 30

    assert read_all(follower.cut_power(1).log) == expected(0, 30)


def test_a_follower_knows_producers_as_well_as_its_leader() -> None:
    """I78c: a follower that becomes leader detects duplicates of replicated batches."""
    leader, follower = new_log(), new_log()
    for sequence in range(8):
        leader.append(b"value", producer=Producer(7, 1, sequence))
    replicate(leader, follower)

    retried = follower.append(b"value", producer=Producer(7, 1, 6), leader_epoch=1)
    assert (retried.is_duplicate, retried.base_offset) == (True, 6)

    with pytest.raises(OutOfOrderSequenceError):
        follower.append(b"value", producer=Producer(7, 1, 9), leader_epoch=1)


def test_a_truncated_follower_appends_the_leaders_lineage() -> None:
    old, new, follower = filled(40), filled(30), new_log()
    replicate(old, follower)
    for number in range(30, 50):
        new.append(numbered(number, 30), leader_epoch=9)

    follower.log.truncate(30)
    replicate(new, follower)

    assert read_all(follower.log) == read_all(new.log)
    assert follower.log.leader_epochs.entries == ((0, 0), (1, 25), (9, 30))
    follower.flush()
    assert read_all(follower.cut_power(2).log) == read_all(new.log)


def test_a_follower_on_a_full_disk_appends_whole_batches_or_none() -> None:
    leader, follower = filled(60), new_log()
    follower.disk.capacity_bytes = 5000

    with pytest.raises(DiskFullError):
        replicate(leader, follower, max_bytes=100_000)
    assert 0 < follower.log.log_end_offset < 60
    assert read_all(follower.log) == expected(0, follower.log.log_end_offset)

    follower.disk.capacity_bytes = None
    replicate(leader, follower)
    assert read_all(follower.log) == expected(0, 60)


def test_max_partition_bytes_does_not_stop_a_follower() -> None:
    """The leader has checked the limit already."""
    leader = filled(5)
    follower = reopen(new_log().disk, SMALL)
    follower.log.config = type(SMALL)(max_message_bytes=1024, segment_bytes=4096)

    replicate(leader, follower)

    assert follower.log.log_end_offset == 5


def test_the_high_watermark_of_the_last_checkpoint_survives_a_restart() -> None:
    log = filled(30)
    log.log.high_watermark = 20
    log.flush(checkpoint=True)
    log.log.high_watermark = 25
    log.flush()

    assert log.cut_power(1).log.high_watermark == 20


def test_the_high_watermark_never_exceeds_a_recovered_log_end() -> None:
    log = filled(30)
    log.log.high_watermark = 20

    log.log.truncate(12)

    assert log.log.high_watermark == 12
    assert log.cut_power(1).log.high_watermark == 12

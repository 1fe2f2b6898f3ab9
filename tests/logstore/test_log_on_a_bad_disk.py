"""A log on a full or failing disk reports it, and serves no wrong record."""

import errno
from collections.abc import Callable

import pytest

from tests.logstore.logs import (
    CHECKPOINT,
    NOW_MS,
    Opened,
    Producer,
    expected,
    image_of,
    new_log,
    numbered,
    read_all,
)
from tidelog.logstore.config import LogConfig
from tidelog.logstore.log import LogStatus, PartitionLog
from tidelog.logstore.segments.segment_format import SEGMENT_FOOTER_SIZE, parse_segment_footer
from tidelog.wire.errors import DiskFullError, LogOfflineError


def fill(opened: Opened, room: int = 0) -> None:
    """Leave this much room on the disk."""
    image = image_of(opened.disk)
    opened.disk.capacity_bytes = sum(map(len, image.values())) + room


def check_that_it_is_read_only_until_there_is_room(opened: Opened, end: int) -> None:
    """Check that the log ends at `end`, and that appends resume when there is room."""
    log = opened.log
    assert log.status is LogStatus.READ_ONLY
    assert log.log_end_offset == end
    assert read_all(log) == expected(0, end)
    with pytest.raises(DiskFullError, match="read-only until there is room"):
        opened.append(numbered(end))
    assert read_all(opened.kill().log) == expected(0, end)


@pytest.mark.invariant("I25")
@pytest.mark.parametrize("room", range(0, 112, 8))
def test_nothing_of_a_batch_that_had_no_room_is_visible(room: int) -> None:
    """I25."""
    opened = new_log()
    opened.append_many(5, flush_every=2)
    fill(opened, room)

    with pytest.raises(DiskFullError):
        opened.append_many(1)

    check_that_it_is_read_only_until_there_is_room(opened, 5)


@pytest.mark.parametrize("room", [0, 1, 63, 64, 100, 127])
def test_a_roll_without_room_leaves_the_log_as_it_was(room: int) -> None:
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100))
    opened.append_many(8)
    assert opened.log.segment_count == 1
    fill(opened, room)

    with pytest.raises(DiskFullError):
        opened.append_many(1)

    assert opened.segment_bases() == [0]
    check_that_it_is_read_only_until_there_is_room(opened, 8)


@pytest.mark.invariant("I25")
def test_appends_work_again_when_there_is_room_and_no_restart_is_needed() -> None:
    opened = new_log()
    opened.append_many(60)
    fill(opened, 50)
    with pytest.raises(DiskFullError):
        opened.append_many(1)

    opened.disk.capacity_bytes = (opened.disk.capacity_bytes or 0) + (1 << 20) - 50
    with pytest.raises(DiskFullError):
        opened.append_many(1)
    opened.disk.capacity_bytes += 4096
    opened.append_many(1)

    assert opened.log.status is LogStatus.ONLINE
    assert read_all(opened.log) == expected(0, 61)
    opened.flush()
    assert read_all(opened.cut_power(0).log) == expected(0, 61)


@pytest.mark.invariant("I25")
def test_appends_do_not_use_the_disk_reserve() -> None:
    opened = new_log()
    opened.append_many(60)
    fill(opened, 5 << 20)

    opened.log.look_for_room(reserve_bytes=5 << 20)
    opened.append_many(1)
    opened.log.look_for_room(reserve_bytes=5 << 20)

    with pytest.raises(DiskFullError, match="full but for 5242880 bytes in reserve"):
        opened.append_many(1)
    opened.log.truncate(50)  # A repair may use the reserve.
    check_that_it_is_read_only_until_there_is_room(opened, 50)


def test_appends_resume_only_with_room_beyond_the_reserve() -> None:
    opened = new_log()
    fill(opened, (5 << 20) - 1)
    opened.log.look_for_room(reserve_bytes=5 << 20)
    some = opened.config.max_message_bytes + (1 << 20)

    found: list[LogStatus] = []
    for room in (some - 1, some):
        fill(opened, (5 << 20) + room)
        opened.log.look_for_room(reserve_bytes=5 << 20)
        found.append(opened.log.status)

    assert found == [LogStatus.READ_ONLY, LogStatus.ONLINE]
    opened.append_many(1)


def test_appends_resume_when_the_reserve_is_lowered() -> None:
    opened = new_log()
    fill(opened, 4 << 20)
    opened.log.look_for_room(reserve_bytes=5 << 20)
    assert opened.log.status is LogStatus.READ_ONLY

    opened.log.look_for_room(reserve_bytes=0)

    opened.append_many(1)


def test_a_duplicate_needs_no_room() -> None:
    opened = new_log()
    opened.append(b"value", producer=Producer(7, 0, 0))
    fill(opened)
    with pytest.raises(DiskFullError):
        opened.append_many(1)

    assert opened.append(b"value", producer=Producer(7, 0, 0)).is_duplicate


def test_on_a_full_disk_what_was_appended_still_becomes_durable() -> None:
    opened = new_log()
    opened.append_many(5)
    opened.flush(checkpoint=True)
    opened.append_many(5)
    opened.log.request_checkpoint()
    fill(opened)

    opened.flush()

    assert opened.log.durable_end_offset == 10
    assert opened.log.status is LogStatus.ONLINE
    again = opened.cut_power(0)
    assert again.log.log_end_offset == 10
    assert again.report.scanned_bytes > 0, "the old checkpoint is still there"


def test_a_checkpoint_is_not_retried_at_every_flush_on_a_full_disk() -> None:
    opened = new_log()
    opened.append_many(5)
    opened.log.request_checkpoint()
    fill(opened)
    opened.flush()

    assert opened.log.begin_flush() is None
    opened.disk.capacity_bytes = None
    opened.log.request_checkpoint()
    opened.flush()
    assert opened.kill().report.scanned_bytes == 0


def test_a_log_is_opened_on_a_full_disk() -> None:
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100))
    opened.append_many(30, flush_every=4)
    fill(opened)

    again = opened.kill()

    assert read_all(again.log) == expected(0, 30)
    with pytest.raises(DiskFullError):
        again.append_many(1)


@pytest.mark.invariant("I17")
def test_a_footer_lost_by_a_failed_sync_is_ignored() -> None:
    """The page cache shows the footer to the next process until it is dropped."""
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100))
    opened.append_many(8)
    opened.flush(checkpoint=True)
    opened.append_many(1, size=300)
    assert opened.log.segment_count == 2
    opened.disk.fail("sync", path=opened.path(0))
    flush = opened.log.begin_flush()
    assert flush is not None
    with pytest.raises(OSError, match="Input/output error"):
        flush.run()

    again = opened.kill()
    again.append_many(3, size=300)
    again.flush()

    footer = again.disk.durable_bytes(again.path(0))[-SEGMENT_FOOTER_SIZE:]
    assert again.segment_bases()[0] == 0
    assert len(again.segment_bases()) > 1
    assert parse_segment_footer(footer) is not None, "a sealed segment has a footer"
    assert read_all(again.kill().log).items() >= expected(0, 8).items()


def test_reading_needs_no_room_for_a_lost_index() -> None:
    opened = new_log(LogConfig(segment_bytes=1000, index_interval_bytes=100))
    opened.append_many(30)
    opened.flush()
    opened.disk.remove(opened.path(0).replace(".log", ".index"))
    fill(opened)

    again = opened.kill()

    assert read_all(again.log) == expected(0, 30)
    assert again.log.status is LogStatus.ONLINE


def test_a_truncation_without_room_changes_nothing() -> None:
    opened = new_log()
    opened.append_many(30)
    fill(opened)

    with pytest.raises(DiskFullError):
        opened.log.truncate(10)

    assert read_all(opened.log) == expected(0, 30)
    opened.disk.capacity_bytes = None
    opened.log.truncate(10)
    assert read_all(opened.kill().log) == expected(0, 10)


# A failing disk


def flush_that_fails(opened: Opened, operation: str = "sync") -> None:
    """Run a flush as a broker does, on a disk that fails it."""
    opened.disk.fail(operation)
    flush = opened.log.begin_flush()
    assert flush is not None
    with pytest.raises(OSError, match="Input/output error") as caught:
        flush.run()
    opened.log.fail(f"fsync failed: {caught.value}", durable_intact=True)


@pytest.mark.invariant("I17")
@pytest.mark.parametrize("operation", ["sync", "sync_directory", "rename"])
def test_after_a_failed_flush_nothing_is_served_before_the_next_start(operation: str) -> None:
    """I17."""
    opened = new_log()
    opened.append_many(40)
    opened.log.request_checkpoint()
    flush_that_fails(opened, operation)

    assert opened.log.status is LogStatus.OFFLINE
    assert opened.log.durable_end_offset == 0
    assert opened.log.begin_flush() is None
    with pytest.raises(LogOfflineError, match="is offline: fsync failed"):
        opened.append_many(1)
    with pytest.raises(LogOfflineError):
        opened.log.read(0, max_bytes=1, high_watermark=1)


@pytest.mark.invariant("I17")
def test_recovery_after_a_failed_flush_serves_only_durable_records() -> None:
    """The kernel shows what never reached the disk until its cache is dropped."""
    opened = new_log()
    opened.append_many(10)
    opened.flush()
    opened.append_many(5)
    flush_that_fails(opened)
    path = opened.path()
    assert len(opened.disk.open(path).read_at(0, 1 << 20)) > len(opened.disk.durable_bytes(path))

    again = opened.kill()

    assert read_all(again.log) == expected(0, 10)
    again.append_many(3)
    again.flush()
    for seed in range(10):
        assert read_all(again.cut_power(seed).log) == expected(0, 13)


def append_that_fails(opened: Opened) -> None:
    opened.disk.fail("write_at")
    with pytest.raises(LogOfflineError):
        opened.append_many(1)


def roll_that_fails(opened: Opened) -> None:
    opened.disk.fail("create")
    opened.log.roll_if_old(now_ms=NOW_MS * 2)


@pytest.mark.parametrize("fail", [flush_that_fails, append_that_fails, roll_that_fails])
def test_durable_records_survive_a_failed_write_of_new_ones(
    fail: Callable[[Opened], None],
) -> None:
    for seed in range(10):
        opened = new_log()
        opened.append_many(10)
        opened.flush(checkpoint=seed % 2 == 0)
        opened.append_many(5)
        assert opened.log.durable_intact

        fail(opened)

        assert opened.log.status is LogStatus.OFFLINE
        assert opened.log.durable_intact
        assert opened.log.durable_end_offset == 10
        again = opened.cut_power(seed)
        assert again.log.durable_intact
        assert expected(0, 10).items() <= read_all(again.log).items()


def test_an_unreported_failed_flush_takes_the_log_offline() -> None:
    opened = new_log()
    opened.append_many(5)
    opened.disk.fail("sync")
    flush = opened.log.begin_flush()
    assert flush is not None
    with pytest.raises(OSError, match="Input/output error"):
        flush.run()

    assert opened.log.begin_flush() is None

    assert opened.log.status is LogStatus.OFFLINE
    assert opened.log.durable_intact
    assert opened.log.durable_end_offset == 0


@pytest.mark.invariant("I26")
@pytest.mark.parametrize("operation", ["write_at", "truncate"])
def test_a_write_that_fails_takes_the_log_offline(operation: str) -> None:
    opened = new_log()
    opened.append_many(5)
    if operation == "truncate":  # After a write that had no room.
        opened.disk.fail("write_at", error_number=errno.ENOSPC)
    opened.disk.fail(operation)

    with pytest.raises(LogOfflineError, match="writing failed"):
        opened.append_many(1)

    assert opened.log.status is LogStatus.OFFLINE
    assert read_all(opened.kill().log) == expected(0, 5)


@pytest.mark.parametrize(
    ("error_number", "status"),
    [(errno.ENOSPC, LogStatus.ONLINE), (errno.EIO, LogStatus.OFFLINE)],
)
def test_a_roll_that_fails_takes_the_log_offline_and_a_full_disk_does_not(
    error_number: int, status: LogStatus
) -> None:
    opened = new_log()
    opened.append_many(5)
    opened.disk.fail("create", error_number=error_number)

    opened.log.roll_if_old(now_ms=NOW_MS * 2)

    assert opened.log.status is status
    assert read_all(opened.kill().log) == expected(0, 5)


USES: dict[str, Callable[[PartitionLog], object]] = {
    "read": lambda log: log.read(0, max_bytes=1, high_watermark=100),
    "find_time": lambda log: log.find_time(0, high_watermark=100),
}


@pytest.mark.parametrize("use", USES)
def test_a_read_that_fails_takes_the_log_offline(use: str) -> None:
    opened = new_log()
    opened.append_many(100)
    opened.flush(checkpoint=True)
    again = opened.kill()
    again.disk.fail("open")

    with pytest.raises(LogOfflineError, match="reading failed"):
        USES[use](again.log)

    assert again.log.status is LogStatus.OFFLINE
    assert not again.log.durable_intact, "unreadable records may be lost"


def test_a_failed_truncation_takes_the_log_offline() -> None:
    opened = new_log()
    opened.append_many(30)
    opened.flush()
    opened.disk.fail("truncate")

    with pytest.raises(LogOfflineError, match="truncating failed"):
        opened.log.truncate(10)

    assert not opened.log.durable_intact
    again = opened.kill()
    assert again.log.log_end_offset == 30
    assert read_all(again.log) == expected(0, 30)


@pytest.mark.invariant("I26")
def test_a_log_that_failed_leaves_its_checkpoint_alone() -> None:
    """I26."""
    opened = new_log()
    opened.append_many(30)
    opened.flush(checkpoint=True)
    before = opened.disk.durable_bytes(CHECKPOINT)
    opened.log.fail("the disk was mounted read-only")

    opened.log.request_checkpoint()
    opened.flush()
    opened.log.close()

    assert opened.disk.durable_bytes(CHECKPOINT) == before

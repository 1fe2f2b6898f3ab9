"""Tests of idle logs: when a log may stay closed, and which changes of its files are seen."""

import dataclasses
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.logstore.logs import CHECKPOINT, DIRECTORY, NOW_MS, SMALL, Opened, new_log, reopen
from tidelog.logstore.checkpoint import checked_crc
from tidelog.logstore.idle_log import IdleLog, is_unchanged

WEEK_MS = 7 * 24 * 3600 * 1000


def idle_log(opened: Opened) -> IdleLog | None:
    opened.log.high_watermark = opened.log.log_end_offset
    return opened.log.idle_log(now_ms=NOW_MS)


def filled(count: int = 5) -> Opened:
    opened = new_log()
    opened.append_many(count)
    opened.log.high_watermark = count
    opened.flush(checkpoint=True)
    return opened


def described(opened: Opened) -> IdleLog:
    found = idle_log(opened)
    assert found is not None
    crc = checked_crc(opened.disk, CHECKPOINT)
    assert crc is not None
    return replace(found, checkpoint_crc=crc)


def test_a_settled_log_is_described() -> None:
    opened = filled()

    found = described(opened)

    assert (found.log_start_offset, found.log_end_offset, found.base_offset) == (0, 5, 0)
    assert found.end_position == found.size_bytes == len(opened.disk.visible_bytes(opened.path()))
    assert found.due_ms == NOW_MS + WEEK_MS
    assert is_unchanged(opened.disk, DIRECTORY, found)


def test_a_sealed_segment_is_due_when_retention_deletes_it() -> None:
    opened = filled(60)
    assert len(opened.segment_bases()) > 1
    opened.log.config = dataclasses.replace(SMALL, retention_ms=WEEK_MS // 7)

    found = described(opened)

    assert found.due_ms == NOW_MS + WEEK_MS // 7


def leave_unflushed(opened: Opened) -> None:
    opened.append(b"more")


def leave_without_checkpoint(opened: Opened) -> None:
    opened.append(b"more")
    opened.flush()


def fail(opened: Opened) -> None:
    opened.log.fail("a test")


@pytest.mark.parametrize("leave", [leave_unflushed, leave_without_checkpoint, fail])
def test_a_log_in_which_something_is_pending_is_not_described(
    leave: Callable[[Opened], None],
) -> None:
    opened = filled()
    leave(opened)
    assert idle_log(opened) is None


def test_a_log_with_uncommitted_records_is_not_described() -> None:
    opened = filled()
    opened.log.high_watermark -= 1
    assert opened.log.idle_log(now_ms=NOW_MS) is None


def append(opened: Opened) -> None:
    opened.append(b"more")


def delete_records(opened: Opened) -> None:
    opened.log.delete_records(2, high_watermark=5)
    opened.flush()


def write_others_in_the_same_place(opened: Opened) -> None:
    opened.log.truncate(4)
    opened.append(b"x" * 20, leader_epoch=1)
    opened.flush()


def rot(opened: Opened) -> None:
    opened.disk.flip_bit(CHECKPOINT, 30, 1)


def lose_the_checkpoint(opened: Opened) -> None:
    opened.disk.remove(CHECKPOINT)


def lose_the_segment(opened: Opened) -> None:
    opened.disk.remove(opened.path())


CHANGES = [
    append,
    delete_records,
    write_others_in_the_same_place,
    rot,
    lose_the_checkpoint,
    lose_the_segment,
]


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_of_a_log_is_seen(change: Callable[[Opened], None]) -> None:
    opened = filled()
    found = described(opened)
    size = len(opened.disk.visible_bytes(opened.path()))

    change(opened)

    if change is write_others_in_the_same_place:
        assert len(opened.disk.visible_bytes(opened.path())) == size
    assert not is_unchanged(opened.disk, DIRECTORY, found)


def test_a_log_that_was_only_opened_is_unchanged() -> None:
    opened = filled()
    found = described(opened)

    again = reopen(opened.disk, checks_end=True)

    assert is_unchanged(opened.disk, DIRECTORY, found)
    assert described(again) == found


def test_a_log_without_records_is_described_and_needs_no_flush() -> None:
    opened = new_log()
    opened.log.request_checkpoint(is_due=True)
    opened.flush()
    opened.log.request_checkpoint(is_due=True)  # As for the checkpoint with the first records.

    assert opened.log.is_settled
    assert described(opened).due_ms is None

"""Flushes run while a deferred checkpoint is written."""

import errno
from collections.abc import Callable

import pytest

from tests.logstore.crashes import POWER_CUTS, Story, crashes, power_cuts
from tests.logstore.logs import NOW_MS, SMALL, Opened, expected, new_log, read_all
from tidelog.logstore.config import LogConfig
from tidelog.logstore.flush import FlushJob
from tidelog.logstore.log import LogStatus, PartitionLog

OFTEN = LogConfig(checkpoint_bytes=1000)


def flush_only(log: PartitionLog) -> None:
    """Flush the log, and defer the checkpoint."""
    flush = log.begin_flush(may_defer_checkpoint=True)
    assert flush is not None
    flush.run()
    log.end_flush(flush)


def deferred_checkpoint(log: PartitionLog) -> FlushJob:
    """Return the job of the deferred checkpoint."""
    checkpoint = log.begin_checkpoint()
    assert checkpoint is not None
    return checkpoint


def write_deferred(log: PartitionLog) -> None:
    """Write the deferred checkpoint."""
    checkpoint = deferred_checkpoint(log)
    checkpoint.run()
    log.end_checkpoint(checkpoint)


def with_deferred_checkpoint(config: LogConfig = OFTEN) -> Opened:
    """Return a log of 100 durable batches, with a deferred checkpoint."""
    opened = opened_with_checkpoint(config)
    opened.append_many(100)
    flush_only(opened.log)
    return opened


def opened_with_checkpoint(config: LogConfig) -> Opened:
    """Return an empty log whose first checkpoint is written."""
    opened = new_log(config)
    opened.flush()
    return opened


def test_records_are_durable_before_the_checkpoint_is_written() -> None:
    opened = with_deferred_checkpoint()

    assert opened.log.durable_end_offset == 100
    for seed in POWER_CUTS:
        again = opened.cut_power(seed)
        assert read_all(again.log) == expected(0, 100)
        assert again.report.scanned_bytes == opened.log.bytes_since_checkpoint


def test_a_deferred_checkpoint_shortens_the_scan_of_a_start() -> None:
    opened = with_deferred_checkpoint()
    opened.append_many(5)

    write_deferred(opened.log)

    again = opened.kill()
    assert again.log.log_end_offset == 105
    assert again.report.scanned_bytes == opened.log.bytes_since_checkpoint < 600
    assert opened.log.begin_checkpoint() is None


def test_flushes_run_while_a_checkpoint_is_written() -> None:
    opened = with_deferred_checkpoint()
    checkpoint = deferred_checkpoint(opened.log)
    for _ in range(3):
        opened.append_many(100)
        flush_only(opened.log)
        assert opened.log.begin_checkpoint() is None, "one at a time"
    assert opened.log.durable_end_offset == 400

    checkpoint.run()
    opened.log.end_checkpoint(checkpoint)

    for seed in POWER_CUTS:
        again = opened.cut_power(seed)
        assert read_all(again.log) == expected(0, 400)
        assert again.report.scanned_bytes == opened.log.bytes_since_checkpoint


def test_a_log_that_grew_a_lot_while_a_checkpoint_was_written_gets_another_one() -> None:
    opened = with_deferred_checkpoint()
    checkpoint = deferred_checkpoint(opened.log)
    opened.append_many(100)
    flush_only(opened.log)
    checkpoint.run()
    opened.log.end_checkpoint(checkpoint)

    opened.append_many(1)
    flush_only(opened.log)
    write_deferred(opened.log)

    assert opened.log.bytes_since_checkpoint == 0


def test_a_roll_during_a_checkpoint_needs_another_one() -> None:
    opened = with_deferred_checkpoint(SMALL)
    checkpoint = deferred_checkpoint(opened.log)
    opened.append_many(100)
    flush_only(opened.log)
    is_useful_meanwhile = opened.log.is_checkpoint_useful

    checkpoint.run()
    opened.log.end_checkpoint(checkpoint)

    assert (is_useful_meanwhile, opened.log.is_checkpoint_useful) == (False, True)
    flush_only(opened.log)
    write_deferred(opened.log)
    assert opened.kill().report.scanned_bytes == 0


def test_retention_waits_for_a_deferred_checkpoint() -> None:
    opened = with_deferred_checkpoint(LogConfig(segment_bytes=4096, retention_bytes=5000))

    def retain() -> int:
        return len(opened.log.apply_retention(high_watermark=100, now_ms=NOW_MS))

    assert retain() == 0
    write_deferred(opened.log)
    assert retain() > 0


def test_a_due_checkpoint_is_never_deferred() -> None:
    opened = opened_with_checkpoint(OFTEN)
    opened.append_many(100)
    opened.log.delete_records(50, high_watermark=100)

    flush_only(opened.log)

    assert opened.log.begin_checkpoint() is None
    assert not opened.log.is_checkpoint_due
    for seed in POWER_CUTS:
        assert opened.cut_power(seed).log.log_start_offset == 50


def test_a_due_checkpoint_waits_for_the_running_one() -> None:
    opened = with_deferred_checkpoint()
    checkpoint = deferred_checkpoint(opened.log)
    opened.log.delete_records(50, high_watermark=100)
    with pytest.raises(AssertionError, match="one checkpoint at a time"):
        opened.log.begin_flush(may_defer_checkpoint=True)

    checkpoint.run()
    opened.log.end_checkpoint(checkpoint)
    flush_only(opened.log)

    for seed in POWER_CUTS:
        assert opened.cut_power(seed).log.log_start_offset == 50


def test_a_checkpoint_without_room_is_tried_again_with_the_next_bytes() -> None:
    opened = with_deferred_checkpoint()
    checkpoint = deferred_checkpoint(opened.log)
    opened.disk.fail("write_at", path="flights/3/checkpoint.tmp", error_number=errno.ENOSPC)
    checkpoint.run()
    opened.log.end_checkpoint(checkpoint)

    assert opened.log.status is LogStatus.ONLINE
    assert opened.log.is_checkpoint_useful
    assert opened.log.begin_flush(may_defer_checkpoint=True) is None
    opened.append_many(1)
    flush_only(opened.log)
    write_deferred(opened.log)
    assert opened.kill().report.scanned_bytes == 0


def test_an_unreported_checkpoint_is_settled_when_no_job_runs() -> None:
    opened = with_deferred_checkpoint()
    deferred_checkpoint(opened.log).run()

    opened.flush()

    assert opened.log.bytes_since_checkpoint == 0


def test_a_checkpoint_that_never_ran_is_written_by_the_next_flush_that_defers_none() -> None:
    opened = with_deferred_checkpoint()
    stale = deferred_checkpoint(opened.log)

    opened.flush()

    assert opened.kill().report.scanned_bytes == 0
    stale.is_done = True
    opened.log.end_checkpoint(stale)
    assert opened.log.bytes_since_checkpoint == 0


def test_a_failed_unreported_checkpoint_takes_the_log_offline() -> None:
    opened = with_deferred_checkpoint()
    checkpoint = deferred_checkpoint(opened.log)
    opened.disk.fail("rename")
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.run()

    assert opened.log.begin_flush() is None

    assert opened.log.status is LogStatus.OFFLINE
    assert opened.log.durable_intact


def test_a_truncation_drops_a_deferred_checkpoint() -> None:
    opened = with_deferred_checkpoint()
    checkpoint = deferred_checkpoint(opened.log)
    checkpoint.run()
    opened.log.truncate(30)
    opened.append_many(3)

    opened.log.end_checkpoint(checkpoint)

    assert opened.log.begin_checkpoint() is None
    opened.flush()
    for seed in POWER_CUTS:
        assert read_all(opened.cut_power(seed).log) == expected(0, 33)


def flush_and_defer(story: Story) -> None:
    story.flush()
    story.append(30)
    flush_only(story.log)
    checkpoint = deferred_checkpoint(story.log)
    story.append(30)
    flush_only(story.log)
    checkpoint.run()
    story.log.end_checkpoint(checkpoint)
    story.append(3)
    flush_only(story.log)
    write_deferred(story.log)


def retain_and_defer(story: Story) -> None:
    story.flush()
    story.append(100)
    flush_only(story.log)
    write_deferred(story.log)
    story.append(30)
    flush_only(story.log)
    checkpoint = deferred_checkpoint(story.log)
    story.retain(5000)
    checkpoint.run()
    story.log.end_checkpoint(checkpoint)
    flush_only(story.log)


def truncate_what_was_deferred(story: Story) -> None:
    story.flush()
    story.append(60)
    flush_only(story.log)
    story.append(10)
    story.truncate(40)
    story.append(30, leader_epoch=1)
    flush_only(story.log)
    write_deferred(story.log)
    story.truncate(50)


@pytest.mark.invariant("I15")
@pytest.mark.parametrize("tell", [flush_and_defer, retain_and_defer, truncate_what_was_deferred])
def test_a_crash_with_a_deferred_checkpoint_loses_no_durable_record(
    tell: Callable[[Story], None],
) -> None:
    for number, story in enumerate(crashes(tell)):
        story.check(story.opened.kill())
        for seed in power_cuts(number):
            story.check(story.opened.cut_power(seed))


def test_one_sync_of_a_few_bytes_is_a_small_flush() -> None:
    opened = opened_with_checkpoint(LogConfig())
    opened.append_many(3)
    flush = opened.log.begin_flush(may_defer_checkpoint=True)
    assert flush is not None
    assert flush.is_small


@pytest.mark.parametrize("why", ["a new file", "many bytes", "a checkpoint", "two segments"])
def test_a_flush_is_not_small_if_it_has_more_to_do(why: str) -> None:
    opened = (
        new_log(SMALL)
        if why == "a new file"
        else opened_with_checkpoint(SMALL if why == "two segments" else LogConfig())
    )
    if why == "a checkpoint":
        opened.append_many(1)
        opened.log.request_checkpoint(is_due=True)
    elif why == "many bytes":
        while opened.log.size_bytes <= 64 << 10:
            opened.append_many(100)
    elif why == "two segments":
        while opened.log.segment_count < 2:
            opened.append_many(1)
    else:
        opened.append_many(1)

    flush = opened.log.begin_flush(may_defer_checkpoint=True)

    assert flush is not None
    assert not flush.is_small

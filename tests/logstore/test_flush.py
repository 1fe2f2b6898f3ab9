"""A flush makes dirty files durable, in an order that survives a power failure."""

import errno
from random import Random

import msgspec
import pytest

from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.checkpoint import LogCheckpoint, read_small_file
from tidelog.logstore.disk.availability import Availability
from tidelog.logstore.disk.disk import File
from tidelog.logstore.flush import FlushJob, FlushState, FlushWork
from tidelog.logstore.segments.log_position import LogPosition

DIRECTORY = "log"
POSITION = LogPosition(10, 0, 500)
CHECKPOINT = LogCheckpoint(
    log_start_offset=0,
    recovery_offset=10,
    recovery_base_offset=0,
    recovery_position=500,
    max_timestamp_ms=0,
    first_append_ms=None,
    index=b"",
    leader_epochs=[],
    producers=[],
    damage=[],
)


def flush_on(
    disk: FaultyDisk, *names: str, syncs_directory: bool = False, has_checkpoint: bool = False
) -> FlushJob:
    """Return a flush of new files."""
    disk.make_directory(DIRECTORY)
    disk.sync_directory("")
    files = {name: disk.open(f"{DIRECTORY}/{name}", create=True) for name in names}
    for file in files.values():
        file.write_at(0, [b"bytes"])
    disk.calls.clear()
    work = FlushWork(files, POSITION, syncs_directory, CHECKPOINT if has_checkpoint else None, 0)
    return FlushJob(disk, DIRECTORY, work)


@pytest.mark.invariant("I15")
def test_bytes_and_then_names_and_then_the_checkpoint_become_durable() -> None:
    disk = FaultyDisk()

    flush_on(disk, "a", "b", syncs_directory=True, has_checkpoint=True).run()

    assert [(operation, path) for operation, path, *_ in disk.changes] == [
        ("sync", "log/a"),
        ("sync", "log/b"),
        ("sync_directory", "log"),
        ("remove", "log/checkpoint.tmp"),
        ("create", "log/checkpoint.tmp"),
        ("write_at", "log/checkpoint.tmp"),
        ("sync", "log/checkpoint.tmp"),
        ("rename", "log/checkpoint.tmp"),
        ("sync_directory", "log"),
    ]
    boot = disk.power_cut(Random(0))
    assert read_small_file(boot, "log/checkpoint", LogCheckpoint) == CHECKPOINT


def test_names_and_checkpoints_cost_nothing_when_there_are_none() -> None:
    disk = FaultyDisk()
    flush = flush_on(disk, "a")

    flush.run()

    assert disk.changes == [("sync", "log/a")]
    assert flush.is_done
    assert not flush.is_running
    assert flush.error is None


def test_a_checkpoint_that_is_deferred_is_not_written() -> None:
    disk = FaultyDisk()
    work = msgspec.structs.replace(
        flush_on(disk, "a", has_checkpoint=True).work, defers_checkpoint=True
    )

    FlushJob(disk, DIRECTORY, work).run()

    assert disk.changes == [("sync", "log/a")]


@pytest.mark.parametrize("operation", ["sync", "sync_directory", "rename"])
def test_a_failed_flush_raises_and_keeps_the_error(operation: str) -> None:
    disk = FaultyDisk()
    flush = flush_on(disk, "a", syncs_directory=True, has_checkpoint=True)
    disk.fail(operation)

    with pytest.raises(OSError, match="Input/output error"):
        flush.run()

    assert flush.error is not None
    assert not flush.is_done
    assert not flush.is_running


def test_a_flush_is_durable_without_room_for_its_checkpoint() -> None:
    disk = FaultyDisk()
    flush = flush_on(disk, "a", has_checkpoint=True)
    disk.fail("write_at", path="log/checkpoint.tmp", error_number=errno.ENOSPC)

    flush.run()

    assert flush.is_done
    assert flush.had_no_room
    assert disk.list_directory("log") == ["a"]


def test_no_room_for_the_records_is_a_failure_of_the_disk() -> None:
    disk = FaultyDisk()
    flush = flush_on(disk, "a")
    disk.fail("sync", path="log/a", error_number=errno.ENOSPC)

    with pytest.raises(OSError, match="No space left"):
        flush.run()


FILE: File = FaultyDisk().open("file", create=True)
OTHER: File = FaultyDisk().open("other", create=True)


def flush_state(*, is_checkpoint_due: bool = False, dir_sync_pending: bool = False) -> FlushState:
    disk = FaultyDisk()
    return FlushState(
        disk,
        DIRECTORY,
        Availability(DIRECTORY, disk),
        durable=LogPosition(0, 0, 0),
        checkpoint_base_offset=0,
        is_checkpoint_due=is_checkpoint_due,
        dir_sync_pending=dir_sync_pending,
    )


def begin_none(state: FlushState, *, may_defer_checkpoint: bool = False) -> bool:
    """Return whether there is nothing to flush."""
    job = state.begin(
        POSITION,
        checkpoint_bytes=1000,
        make_checkpoint=lambda: CHECKPOINT,
        may_defer_checkpoint=may_defer_checkpoint,
    )
    return job is None


def begin(state: FlushState, *, may_defer_checkpoint: bool = False) -> FlushJob:
    job = state.begin(
        POSITION,
        checkpoint_bytes=1000,
        make_checkpoint=lambda: CHECKPOINT,
        may_defer_checkpoint=may_defer_checkpoint,
    )
    assert job is not None
    return job


def end(state: FlushState, job: FlushJob, *, had_no_room: bool = False) -> None:
    job.is_done, job.had_no_room = True, had_no_room
    state.end(job)


def end_checkpoint(state: FlushState, *, had_no_room: bool = False) -> FlushWork:
    """Let the deferred checkpoint be written, and return the work of its job."""
    job = state.begin_checkpoint()
    assert job is not None
    job.is_done, job.had_no_room = True, had_no_room
    state.end_checkpoint(job)
    return job.work


def test_a_clean_log_needs_no_flush_but_for_a_due_checkpoint() -> None:
    assert begin_none(flush_state())
    assert begin(flush_state(is_checkpoint_due=True)).work.checkpoint == CHECKPOINT


def test_a_pending_directory_sync_joins_the_first_flush_and_causes_none() -> None:
    state = flush_state(dir_sync_pending=True)

    assert begin_none(state)
    state.mark_dirty("file", FILE, 100)
    job = begin(state)
    end(state, job)
    state.mark_dirty("file", FILE, 100)

    assert job.work.syncs_directory
    assert begin(state).work == FlushWork({"file": FILE}, POSITION, False, None, 200)


def test_dirty_files_are_flushed_once() -> None:
    state = flush_state()
    state.mark_dirty("file", FILE, 100)
    state.mark_dirty("file", FILE, 100)

    job = begin(state)
    assert job.work == FlushWork({"file": FILE}, POSITION, False, None, 200)
    end(state, job)
    assert state.durable == POSITION
    assert begin_none(state)


def test_files_written_during_a_flush_wait_for_the_next() -> None:
    state = flush_state()
    state.mark_dirty("file", FILE, 100)
    job = begin(state)
    state.mark_dirty("other", OTHER, 100)
    state.mark_dir_dirty()
    end(state, job)

    assert begin(state).work == FlushWork({"other": OTHER}, POSITION, True, None, 200)


def test_a_log_has_one_flush_at_a_time() -> None:
    state = flush_state(is_checkpoint_due=True)
    begin(state).is_running = True

    with pytest.raises(AssertionError, match="one flush at a time"):
        begin(state)


def test_a_checkpoint_is_due_after_so_many_bytes() -> None:
    state = flush_state()
    state.mark_dirty("file", FILE, 999)
    job = begin(state)
    assert job.work.checkpoint is None
    end(state, job)
    state.mark_dirty("file", FILE, 1)

    job = begin(state)
    assert job.work.checkpoint == CHECKPOINT
    state.mark_dirty("file", FILE, 30)
    end(state, job)
    assert state.bytes_since_checkpoint == 30
    assert begin(state).work.checkpoint is None


def test_a_flush_that_never_ran_joins_the_next_one() -> None:
    state = flush_state(is_checkpoint_due=True)
    state.mark_dirty("file", FILE, 100)
    state.mark_dir_dirty()
    begin(state)
    state.mark_dirty("other", OTHER, 100)

    state.settle()

    files = {"file": FILE, "other": OTHER}
    assert begin(state).work == FlushWork(files, POSITION, True, CHECKPOINT, 200)


def test_a_checkpoint_without_room_is_tried_again_with_the_next_bytes_and_not_before() -> None:
    state = flush_state(is_checkpoint_due=True)
    end(state, begin(state), had_no_room=True)

    assert state.is_checkpoint_due
    assert begin_none(state)
    state.mark_dirty("file", FILE, 1)
    job = begin(state)
    assert job.work.checkpoint == CHECKPOINT
    end(state, job)
    assert not state.is_checkpoint_due


def test_a_checkpoint_without_room_is_tried_again_when_it_is_requested() -> None:
    state = flush_state(is_checkpoint_due=True)
    end(state, begin(state), had_no_room=True)

    state.request_checkpoint()

    assert begin(state).work.checkpoint == CHECKPOINT


def with_deferred_checkpoint() -> FlushState:
    state = flush_state()
    state.mark_dirty("file", FILE, 1000)
    job = begin(state, may_defer_checkpoint=True)
    assert job.work == FlushWork(
        {"file": FILE}, POSITION, False, CHECKPOINT, 1000, defers_checkpoint=True
    )
    end(state, job)
    return state


def test_a_checkpoint_that_is_only_useful_may_be_deferred() -> None:
    state = with_deferred_checkpoint()

    state.mark_dirty("file", FILE, 30)
    assert state.bytes_since_checkpoint == 1030

    assert end_checkpoint(state) == FlushWork({}, POSITION, False, CHECKPOINT, 1000)
    assert state.bytes_since_checkpoint == 30
    assert state.begin_checkpoint() is None


def test_a_checkpoint_that_is_due_is_not_deferred() -> None:
    state = flush_state(is_checkpoint_due=True)
    state.on_roll()

    job = begin(state, may_defer_checkpoint=True)
    assert job.work == FlushWork({}, POSITION, False, CHECKPOINT, 0)
    end(state, job)

    assert state.begin_checkpoint() is None
    assert begin_none(state, may_defer_checkpoint=True)


def test_while_a_checkpoint_is_deferred_no_other_is_made() -> None:
    state = with_deferred_checkpoint()
    state.mark_dirty("file", FILE, 1000)
    state.on_roll()

    job = begin(state, may_defer_checkpoint=True)
    assert job.work.checkpoint is None
    end(state, job)
    assert begin_none(state, may_defer_checkpoint=True)
    end_checkpoint(state)

    work = begin(state, may_defer_checkpoint=True).work
    assert work == FlushWork({}, POSITION, False, CHECKPOINT, 1000, defers_checkpoint=True)


def test_a_deferred_checkpoint_without_room_is_made_again_with_the_next_bytes() -> None:
    state = with_deferred_checkpoint()

    end_checkpoint(state, had_no_room=True)

    assert begin_none(state)
    state.mark_dirty("file", FILE, 1)
    assert begin(state).work.checkpoint == CHECKPOINT


def test_a_deferred_checkpoint_that_is_not_written_is_made_again() -> None:
    state = with_deferred_checkpoint()

    assert begin(state).work == FlushWork({}, POSITION, False, CHECKPOINT, 1000)


def test_a_flush_that_never_began_defers_its_checkpoint_again() -> None:
    state = flush_state()
    state.on_roll()
    work = begin(state, may_defer_checkpoint=True).work

    assert begin(state, may_defer_checkpoint=True).work == work

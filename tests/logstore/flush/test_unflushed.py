"""Nothing that is not durable is ever lost sight of."""

import pytest

from tests.logstore.flush.test_flush_work import CHECKPOINT
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.checkpoint import LogCheckpoint
from tidelog.logstore.disk.disk import File
from tidelog.logstore.flush.flush_work import FlushWork
from tidelog.logstore.flush.unflushed import Unflushed
from tidelog.logstore.segments.log_position import LogPosition

END = LogPosition(10, 0, 500)
FILE: File = FaultyDisk().open("file", create=True)
OTHER: File = FaultyDisk().open("other", create=True)


def begin(
    unflushed: Unflushed, *, checkpoint_bytes: int = 1000, may_leave_checkpoint: bool = False
) -> FlushWork | None:
    return unflushed.begin(
        END,
        checkpoint_bytes=checkpoint_bytes,
        make_checkpoint=lambda: CHECKPOINT,
        may_leave_checkpoint=may_leave_checkpoint,
    )


def checkpoint_of(work: FlushWork | None) -> LogCheckpoint | None:
    assert work is not None
    return work.checkpoint


def test_there_is_nothing_to_do_in_the_beginning() -> None:
    assert begin(Unflushed(is_checkpoint_due=False)) is None
    assert checkpoint_of(begin(Unflushed(is_checkpoint_due=True))) == CHECKPOINT


def test_names_in_doubt_go_with_the_first_flush_and_ask_for_none() -> None:
    unflushed = Unflushed(is_checkpoint_due=False, are_names_in_doubt=True)

    assert begin(unflushed) is None
    unflushed.wrote("file", FILE, 100)
    work = begin(unflushed)
    unflushed.done(had_no_room=False)
    unflushed.wrote("file", FILE, 100)

    assert work is not None
    assert work.has_new_names
    assert begin(unflushed) == FlushWork({"file": FILE}, END, False, None, 200)


def test_what_was_written_is_flushed_once() -> None:
    unflushed = Unflushed(is_checkpoint_due=False)
    unflushed.wrote("file", FILE, 100)
    unflushed.wrote("file", FILE, 100)

    assert begin(unflushed) == FlushWork({"file": FILE}, END, False, None, 200)
    unflushed.done(had_no_room=False)
    assert begin(unflushed) is None


def test_what_is_written_meanwhile_is_for_the_next_flush() -> None:
    unflushed = Unflushed(is_checkpoint_due=False)
    unflushed.wrote("file", FILE, 100)
    begin(unflushed)
    unflushed.wrote("other", OTHER, 100)
    unflushed.made_name()
    unflushed.done(had_no_room=False)

    assert begin(unflushed) == FlushWork({"other": OTHER}, END, True, None, 200)


def test_only_one_flush_is_under_way() -> None:
    unflushed = Unflushed(is_checkpoint_due=True)
    begin(unflushed)

    with pytest.raises(AssertionError, match="one flush at a time"):
        begin(unflushed)


def test_a_checkpoint_is_due_after_so_many_bytes() -> None:
    unflushed = Unflushed(is_checkpoint_due=False)
    unflushed.wrote("file", FILE, 999)
    assert checkpoint_of(begin(unflushed)) is None
    unflushed.done(had_no_room=False)
    unflushed.wrote("file", FILE, 1)

    assert checkpoint_of(begin(unflushed)) == CHECKPOINT
    unflushed.wrote("file", FILE, 30)
    unflushed.done(had_no_room=False)
    assert unflushed.bytes_since_checkpoint == 30
    assert checkpoint_of(begin(unflushed)) is None


def test_work_that_was_never_begun_is_done_by_the_next_flush() -> None:
    unflushed = Unflushed(is_checkpoint_due=True)
    unflushed.wrote("file", FILE, 100)
    unflushed.made_name()
    begin(unflushed)
    unflushed.wrote("other", OTHER, 100)

    unflushed.take_back()

    files = {"file": FILE, "other": OTHER}
    assert begin(unflushed) == FlushWork(files, END, True, CHECKPOINT, 200)


def test_a_checkpoint_without_room_is_tried_again_with_the_next_bytes_and_not_before() -> None:
    unflushed = Unflushed(is_checkpoint_due=True)
    begin(unflushed)
    unflushed.done(had_no_room=True)

    assert unflushed.is_checkpoint_due
    assert begin(unflushed) is None
    unflushed.wrote("file", FILE, 1)
    assert checkpoint_of(begin(unflushed)) == CHECKPOINT
    unflushed.done(had_no_room=False)
    assert not unflushed.is_checkpoint_due


def test_a_checkpoint_without_room_is_tried_again_when_it_is_asked_for() -> None:
    unflushed = Unflushed(is_checkpoint_due=True)
    begin(unflushed)
    unflushed.done(had_no_room=True)

    unflushed.request_checkpoint()

    assert checkpoint_of(begin(unflushed)) == CHECKPOINT


def with_one_left() -> Unflushed:
    unflushed = Unflushed(is_checkpoint_due=False)
    unflushed.wrote("file", FILE, 1000)
    work = begin(unflushed, may_leave_checkpoint=True)
    assert work == FlushWork({"file": FILE}, END, False, CHECKPOINT, 1000, leaves_checkpoint=True)
    unflushed.done(had_no_room=False)
    return unflushed


def test_a_checkpoint_that_is_only_useful_may_be_left_for_later() -> None:
    unflushed = with_one_left()

    left = unflushed.left
    unflushed.wrote("file", FILE, 30)
    assert unflushed.bytes_since_checkpoint == 1030
    unflushed.left_done(had_no_room=False)

    assert (left, unflushed.left) == (FlushWork({}, END, False, CHECKPOINT, 1000), None)
    assert unflushed.bytes_since_checkpoint == 30


def test_a_checkpoint_that_is_due_is_not_left() -> None:
    unflushed = Unflushed(is_checkpoint_due=True)
    unflushed.rolled()

    assert begin(unflushed, may_leave_checkpoint=True) == FlushWork({}, END, False, CHECKPOINT, 0)
    unflushed.done(had_no_room=False)

    assert unflushed.left is None
    assert begin(unflushed, may_leave_checkpoint=True) is None


def test_while_one_is_left_no_other_is_made() -> None:
    unflushed = with_one_left()
    unflushed.wrote("file", FILE, 1000)
    unflushed.rolled()

    assert checkpoint_of(begin(unflushed, may_leave_checkpoint=True)) is None
    unflushed.done(had_no_room=False)
    assert begin(unflushed, may_leave_checkpoint=True) is None
    unflushed.left_done(had_no_room=False)

    work = begin(unflushed, may_leave_checkpoint=True)
    assert work == FlushWork({}, END, False, CHECKPOINT, 1000, leaves_checkpoint=True)


def test_one_that_is_left_and_had_no_room_is_made_again_with_the_next_bytes() -> None:
    unflushed = with_one_left()

    unflushed.left_done(had_no_room=True)

    assert begin(unflushed) is None
    unflushed.wrote("file", FILE, 1)
    assert checkpoint_of(begin(unflushed)) == CHECKPOINT


def test_one_that_is_left_and_not_written_is_made_again() -> None:
    unflushed = with_one_left()

    unflushed.take_back_left()

    assert begin(unflushed) == FlushWork({}, END, False, CHECKPOINT, 1000)


def test_a_flush_that_was_to_leave_a_checkpoint_and_never_began_leaves_it_later() -> None:
    unflushed = Unflushed(is_checkpoint_due=False)
    unflushed.rolled()
    work = begin(unflushed, may_leave_checkpoint=True)

    unflushed.take_back()

    assert begin(unflushed, may_leave_checkpoint=True) == work

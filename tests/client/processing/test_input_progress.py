"""Starts of processors, and the output of each transaction, against a naive model."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.processing.input_progress import (
    UNPLACED,
    GroupOffset,
    InputProgress,
    Start,
    next_id,
    offset_of,
    start_of,
)
from tidelog.client.producer.producer_record import ProducerRecord

OFFSETS = st.integers(0, 50)


def progress_of(previous_id: int = 0, max_records: int = 10) -> InputProgress:
    return InputProgress(previous_id, commit_interval=0.5, max_records=max_records)


def output(number: int) -> ProducerRecord:
    return ProducerRecord("copies", b"%d" % number)


def test_a_processor_starts_behind_its_last_transaction() -> None:
    assert start_of(17, None) == Start(17, 17)
    assert start_of(17, GroupOffset(12, is_own=True)) == Start(17, 17)
    assert start_of(17, GroupOffset(20, is_own=True)) == Start(17, 20)


def test_without_a_transaction_it_starts_at_the_offset_of_the_group() -> None:
    assert start_of(UNPLACED, None) == Start(UNPLACED, None)
    assert start_of(UNPLACED, GroupOffset(12, is_own=False)) == Start(UNPLACED, 12)


def test_a_group_that_was_moved_is_followed_in_both_directions() -> None:
    forward = start_of(17, GroupOffset(30, is_own=False))
    back = start_of(17, GroupOffset(5, is_own=False))

    assert forward == Start(30, 30, is_moved=True)
    assert (back.offset, back.is_moved, offset_of(back.previous_id)) == (5, True, 5)
    assert back.previous_id > 17
    # After a crash before the group has the offset as its own, nothing moves again.
    assert start_of(back.previous_id, GroupOffset(5, is_own=False)) == Start(back.previous_id, 5)


@given(st.lists(OFFSETS, min_size=1, max_size=20))
def test_ids_grow_and_keep_their_offset(offsets: list[int]) -> None:
    last_id = 0
    for offset in offsets:
        new_id = next_id(last_id, offset)

        assert new_id > last_id
        assert offset_of(new_id) == offset
        last_id = new_id


def test_a_transaction_is_due_after_the_interval_or_when_it_is_full() -> None:
    progress = progress_of(max_records=3)
    assert progress.due_at == math.inf

    progress.add(1, [output(0)], input_count=1, now=7.0)
    assert progress.due_at == 7.5
    progress.add(3, [output(1), output(2)], input_count=2, now=7.1)
    assert progress.due_at == 7.0, "it is full"
    rooms = [progress.has_room]
    progress.add(12, [], input_count=9, now=7.1)
    rooms.append(progress.has_room)

    planned = progress.begin()
    assert (planned.previous_id, planned.transaction_id, planned.input_count) == (0, 12, 12)
    progress.add(14, [], input_count=2, now=7.2)
    assert [*rooms, progress.has_room] == [True, False, True]
    assert progress.due_at == math.inf, "one transaction at a time"
    progress.committed()
    assert progress.due_at == 7.7
    progress.hurry()
    assert progress.due_at == 7.2
    assert progress.begin().previous_id == 12


@given(
    st.lists(st.tuples(st.sampled_from(["add", "begin", "fail"]), st.integers(0, 3)), max_size=40)
)
def test_each_input_is_in_exactly_one_committed_transaction(steps: list[tuple[str, int]]) -> None:
    """Commits may fail; then the next owner goes on where the last committed one ended."""
    log = [output(number) for number in range(200)]
    committed: list[ProducerRecord] = []
    last_id, read = 0, 0
    progress = progress_of()
    for step, count in steps:
        if step == "add":
            progress.add(
                read + count + 1, log[read : read + count + 1], input_count=count + 1, now=0.0
            )
            read += count + 1
        elif step == "begin" and progress.due_at < math.inf:
            planned = progress.begin()
            if count == 0:  # The answer is lost, or another owner was faster.
                progress, read = progress_of(last_id), offset_of(last_id)
                continue
            assert planned.previous_id == last_id
            committed += planned.outputs
            last_id = planned.transaction_id
            progress.committed()
        elif step == "fail":
            progress, read = progress_of(last_id), offset_of(last_id)

    assert committed == log[: offset_of(last_id)]

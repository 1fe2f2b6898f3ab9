"""Moves happen in order, in batches that can be repeated, and a gap begins a new epoch."""

import pytest

from tidelog.queue_layer.state.pending_dead_letters import DeadLetterBatch, PendingDeadLetters
from tidelog.wire.messages.queue_journal import NO_TARGET

DEAD = (b"dead", 0)
OTHER = (b"other", 1)


@pytest.mark.statement("b55")
def test_a_batch_is_what_one_entry_gave() -> None:
    moves = PendingDeadLetters()
    moves.add(DEAD, [(5, 2), (9, 1)])
    moves.add(DEAD, [(2, 1)])
    moves.add(OTHER, [(1, 1)])

    assert moves.targets() == [DEAD, OTHER]
    assert moves.next_batch(DEAD) == DeadLetterBatch(DEAD, 0, 0, [(5, 2), (9, 1)])
    assert moves.next_batch(OTHER) == DeadLetterBatch(OTHER, 0, 0, [(1, 1)])
    assert moves.next_batch(NO_TARGET) is None


def test_what_was_moved_leaves_the_rest_of_its_batch() -> None:
    moves = PendingDeadLetters()
    moves.add(DEAD, [(5, 2), (9, 1)])
    moves.add(DEAD, [(2, 1)])

    assert moves.pop(DEAD, 1) == [(5, 1)]
    assert moves.next_batch(DEAD) == DeadLetterBatch(DEAD, 0, 1, [(6, 1), (9, 1)])
    assert moves.pop(DEAD, 2) == [(6, 1), (9, 1)]
    assert moves.next_batch(DEAD) == DeadLetterBatch(DEAD, 0, 3, [(2, 1)])


def test_only_what_is_next_can_be_moved() -> None:
    moves = PendingDeadLetters()
    moves.add(DEAD, [(5, 2)])

    assert moves.next_if(DEAD, 0, 0, count=2) is not None
    assert moves.next_if(DEAD, 0, 0, count=3) is None
    assert moves.next_if(DEAD, 0, 0, count=0) is None
    assert moves.next_if(DEAD, 0, 1, count=1) is None
    assert moves.next_if(DEAD, 1, 0, count=1) is None
    assert moves.next_if(OTHER, 0, 0, count=1) is None


@pytest.mark.statement("b55")
def test_the_rest_begins_anew_when_something_cannot_be_moved() -> None:
    moves = PendingDeadLetters()
    moves.add(DEAD, [(5, 3)])
    moves.pop(DEAD, 1)

    assert moves.give_up(DEAD, 1) == [(6, 1)]
    assert moves.next_batch(DEAD) == DeadLetterBatch(DEAD, 1, 0, [(7, 1)])


def test_the_rest_begins_anew_when_something_is_gone() -> None:
    moves = PendingDeadLetters()
    moves.add(DEAD, [(5, 3), (20, 1)])
    moves.add(DEAD, [(6, 0 + 1)])
    moves.add(OTHER, [(30, 1)])

    moves.drop(6, 8)

    assert moves.next_batch(DEAD) == DeadLetterBatch(DEAD, 1, 0, [(5, 1), (20, 1)])
    assert moves.next_batch(OTHER) == DeadLetterBatch(OTHER, 0, 0, [(30, 1)])
    moves.drop(0, 100)
    assert moves.targets() == []


def test_what_had_no_target_can_be_given_one() -> None:
    moves = PendingDeadLetters()
    moves.add(NO_TARGET, [(5, 1)])
    moves.add(DEAD, [(1, 1)])

    moves.retarget(NO_TARGET, DEAD)
    moves.retarget(OTHER, DEAD)

    assert moves.targets() == [DEAD]
    moves.pop(DEAD, 1)
    assert moves.next_batch(DEAD) == DeadLetterBatch(DEAD, 0, 1, [(5, 1)])


def test_a_snapshot_keeps_all_chains() -> None:
    moves = PendingDeadLetters()
    moves.add(DEAD, [(5, 2), (9, 1)])
    moves.add(DEAD, [(2, 1)])
    moves.pop(DEAD, 1)

    again = PendingDeadLetters(moves.snapshot())

    assert again.snapshot() == moves.snapshot()
    assert again.next_batch(DEAD) == moves.next_batch(DEAD)
    moves.pop(DEAD, 1)
    assert again.next_batch(DEAD) == DeadLetterBatch(DEAD, 0, 1, [(6, 1), (9, 1)])

"""Pending dead letters: moved in order, in repeatable batches; a gap starts a new epoch."""

import pytest

from tidelog.queue_layer.state.pending_dead_letters import DeadLetterBatch, PendingDeadLetters
from tidelog.wire.messages.queue_journal import NO_TARGET

DEAD = (b"dead", 0)
OTHER = (b"other", 1)


@pytest.mark.statement("b55")
def test_a_batch_has_the_messages_of_one_entry() -> None:
    moves = PendingDeadLetters()
    moves.add(DEAD, [(5, 2), (9, 1)])
    moves.add(DEAD, [(2, 1)])
    moves.add(OTHER, [(1, 1)])

    assert moves.targets() == [DEAD, OTHER]
    assert moves.next_batch(DEAD) == DeadLetterBatch(DEAD, 0, 0, [(5, 2), (9, 1)])
    assert moves.next_batch(OTHER) == DeadLetterBatch(OTHER, 0, 0, [(1, 1)])
    assert moves.next_batch(NO_TARGET) is None


def test_a_partial_move_leaves_the_rest_of_its_batch() -> None:
    moves = PendingDeadLetters()
    moves.add(DEAD, [(5, 2), (9, 1)])
    moves.add(DEAD, [(2, 1)])

    assert moves.pop(DEAD, 1) == [(5, 1)]
    assert moves.next_batch(DEAD) == DeadLetterBatch(DEAD, 0, 1, [(6, 1), (9, 1)])
    assert moves.pop(DEAD, 2) == [(6, 1), (9, 1)]
    assert moves.next_batch(DEAD) == DeadLetterBatch(DEAD, 0, 3, [(2, 1)])


def test_only_the_next_messages_can_be_moved() -> None:
    moves = PendingDeadLetters()
    moves.add(DEAD, [(5, 2)])

    assert moves.next_if(DEAD, 0, 0, count=2) is not None
    assert moves.next_if(DEAD, 0, 0, count=3) is None
    assert moves.next_if(DEAD, 0, 0, count=0) is None
    assert moves.next_if(DEAD, 0, 1, count=1) is None
    assert moves.next_if(DEAD, 1, 0, count=1) is None
    assert moves.next_if(OTHER, 0, 0, count=1) is None


@pytest.mark.statement("b55")
def test_a_failed_move_starts_a_new_epoch_for_the_rest() -> None:
    moves = PendingDeadLetters()
    moves.add(DEAD, [(5, 3)])
    moves.pop(DEAD, 1)

    assert moves.give_up(DEAD, 1) == [(6, 1)]
    assert moves.next_batch(DEAD) == DeadLetterBatch(DEAD, 1, 0, [(7, 1)])


def test_a_dropped_message_starts_a_new_epoch_for_the_rest() -> None:
    moves = PendingDeadLetters()
    moves.add(DEAD, [(5, 3), (20, 1)])
    moves.add(DEAD, [(6, 0 + 1)])
    moves.add(OTHER, [(30, 1)])

    moves.drop(6, 8)

    assert moves.next_batch(DEAD) == DeadLetterBatch(DEAD, 1, 0, [(5, 1), (20, 1)])
    assert moves.next_batch(OTHER) == DeadLetterBatch(OTHER, 0, 0, [(30, 1)])
    moves.drop(0, 100)
    assert moves.targets() == []


def test_kept_dead_letters_can_be_retargeted() -> None:
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

"""Pending dead letters: moved in order, in repeatable batches; a gap starts a new epoch."""

from random import Random

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


@pytest.mark.parametrize("seed", range(5))
def test_the_end_of_a_chain_is_known_without_a_sum(seed: int) -> None:
    """There may be a hundred thousand batches, and each decision asks for the end."""
    random = Random(seed)
    moves = PendingDeadLetters()
    first = 0
    for _ in range(200):
        target = random.choice([DEAD, OTHER])
        batch = moves.next_batch(target)
        match random.choice(["add", "pop", "fail", "retarget", "drop", "snapshot"]):
            case "add":
                moves.add(target, [(first, random.randint(1, 5)), (first + 7, 1)])
                first += 10
            case "pop" if batch is not None:
                moves.pop(target, random.randint(1, batch.count))
            case "fail" if batch is not None:
                moves.give_up(target, random.randint(1, batch.count))
            case "retarget":
                moves.retarget(target, random.choice([DEAD, OTHER]))
            case "drop":
                moves.drop(random.randint(0, first), random.randint(0, first))
            case "snapshot":
                moves = PendingDeadLetters(moves.snapshot())
            case _:
                pass  # There is nothing to take.
        for each in moves.snapshot():
            count = sum(length for runs in each.batches for _, length in runs)
            assert moves.end_of(each.target) == (each.epoch, each.sequence + count)
            assert moves.has_reached(each.target, moves.end_of(each.target)) == (count == 0)

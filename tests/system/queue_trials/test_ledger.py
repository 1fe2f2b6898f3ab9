"""Tests of the ledger: it finds problems, and only these."""

from collections.abc import Callable

import pytest

from tests.system.queue_trials.ledger import Delivery, Fate, Ledger, Name, name_of, problems

A = [Name("a", number) for number in range(6)]


def receive(ledger: Ledger, at: float, *names: Name, count: int = 1, timeout: float = 2) -> None:
    ledger.received([Delivery(name, count, at, at + 0.1, at + timeout) for name in names])


def a_good_ledger(*, is_fifo: bool = True) -> tuple[Ledger, list[Name], list[Name]]:
    """Return a valid ledger, its dead letters and its remaining messages."""
    ledger = Ledger(is_fifo=is_fifo, max_receive_count=3, accepted=set(A[:5]), uncertain={A[5]})
    receive(ledger, 0, A[0], A[1])
    ledger.deleted(ledger.receives[0][0], 0.5)
    receive(ledger, 3, A[1], A[2], count=2)
    ledger.fates[A[1]] = Fate.DELETED_PERHAPS
    ledger.deleted(ledger.receives[1][1], 5.5)
    ledger.fates[A[2]] = Fate.REJECTED
    receive(ledger, 6, A[3])
    return ledger, [A[2]], [A[3], A[4]]


def test_a_value_is_the_name_of_its_message() -> None:
    assert name_of(Name("a/b", 17).value()) == Name("a/b", 17)


@pytest.mark.parametrize("is_fifo", [True, False])
def test_a_valid_ledger_has_no_problems(is_fifo: bool) -> None:
    assert problems(*a_good_ledger(is_fifo=is_fifo)) == []


def lost(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del ledger, dead
    left.remove(A[4])


def dead_twice(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del ledger, left
    dead.append(A[2])


def dead_and_left(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del ledger, left
    dead.append(A[3])


def never_sent(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del ledger, dead
    left.append(Name("b", 0))


def deleted_and_left(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del ledger, dead
    left.append(A[0])


def deleted_and_dead(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del dead, left
    ledger.deleted(ledger.receives[1][1], 4.5)


def rejected_and_left(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del ledger
    left.append(dead.pop())


def counted_twice(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del dead, left
    receive(ledger, 9, A[3])


def counted_down(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del dead, left
    receive(ledger, 9, A[3], count=3)
    receive(ledger, 12, A[3], count=2)


def too_often(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del dead, left
    receive(ledger, 9, A[3], count=4)


def come_back(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del dead, left
    ledger.deleted(ledger.receives[2][0], 6.5)
    del ledger.fates[A[3]]
    receive(ledger, 9, A[3], count=2)


def too_early(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del dead, left
    receive(ledger, 7, A[3], count=2)


def overtaken(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del dead, left
    receive(ledger, 9, A[4])
    receive(ledger, 12, A[3], count=2)


def left_out(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del dead, left
    receive(ledger, 9, A[3], A[5], count=2)
    receive(ledger, 12, A[4])


def mixed_up(ledger: Ledger, dead: list[Name], left: list[Name]) -> None:
    del dead, left
    receive(ledger, 9, A[4], A[3], count=2)


@pytest.mark.parametrize(("is_certain", "until"), [(True, 8.5), (False, 8)])
def test_an_extension_counts_from_its_request(is_certain: bool, until: float) -> None:
    """It may be shorter than the remaining time, as in SQS; without a reply, either may hold."""
    ledger, dead, left = a_good_ledger()
    delivery = ledger.receives[2][0]

    delivery.extended(7, 1.5, is_certain=is_certain)
    receive(ledger, until, A[3], count=2)

    assert problems(ledger, dead, left) == []

    receive(ledger, until - 1, A[3], count=3)

    assert any("was delivered again" in each for each in problems(ledger, dead, left))


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (lost, "neither deleted nor dead nor left"),
        (dead_twice, "is there 2 times"),
        (dead_and_left, "is there 2 times"),
        (never_sent, "was never sent"),
        (deleted_and_left, "was deleted and is still there"),
        (deleted_and_dead, "was deleted and is a dead letter"),
        (rejected_and_left, "was rejected and is no dead letter"),
        (counted_twice, "for the 1. time twice"),
        (counted_down, "fell to 2"),
        (too_often, "for the 4. time"),
        (come_back, "came again after it was deleted"),
        (too_early, "was delivered again 0.9"),
        (overtaken, "came after a later message"),
        (left_out, "came after a later message"),
        (mixed_up, "one receive has the numbers"),
    ],
)
def test_an_invalid_ledger_is_found(
    harm: Callable[[Ledger, list[Name], list[Name]], None], complaint: str
) -> None:
    ledger, dead, left = a_good_ledger()

    harm(ledger, dead, left)

    found = problems(ledger, dead, left)
    assert any(complaint in each for each in found), found

"""Tests of the ledger of transactions."""

import pytest

from tests.simulation.broker.transactions import Contents, Ledger, Staged
from tests.simulation.checkers.run_history import ViolationError
from tidelog.client.transactions.transaction import TaskResult

FIRST, SECOND = b"job/0", b"job/1"


def task(contents: Contents, *, number: int = 7) -> Staged:
    return Staged(TaskResult("job", 0, number, ()), contents)


def ledger(*, committed: bool = True) -> Ledger:
    """Return a ledger whose first transaction asked for a commit, in one of two ways."""
    asked = Ledger()
    asked.asking(FIRST, [task({0: [b"job/0:1", b"job/0:2"], 1: [b"job/0:3"]})])
    asked.asking(FIRST, [task({1: [b"job/0:5"]}), task({1: [b"job/0:4"]})])
    if committed:
        asked.committed[FIRST] = None
    return asked


@pytest.mark.parametrize(
    "found", [{0: [b"job/0:1", b"job/0:2"], 1: [b"job/0:3"]}, {1: [b"job/0:5", b"job/0:4"]}]
)
def test_the_records_of_any_one_commit_are_valid(found: Contents) -> None:
    ledger().check(found)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({}, "is lost"),
        ({0: [b"job/0:1", b"job/0:2"]}, "matches no commit"),
        ({1: [b"job/0:4", b"job/0:5"]}, "matches no commit"),
        ({1: [b"job/0:5", b"job/0:4"] * 2}, "matches no commit"),
        ({0: [b"job/0:1", b"job/0:2"], 1: [b"job/0:4"]}, "matches no commit"),
        ({1: [b"job/0:5", b"job/1:9", b"job/0:4"]}, "interleaved in partition 1"),
        ({1: [b"job/0:5", b"job/0:4", b"job/1:9"]}, "never committed"),
    ],
)
def test_a_lost_partial_repeated_or_unrequested_transaction_is_found(
    found: Contents, problem: str
) -> None:
    with pytest.raises(ViolationError, match=problem):
        ledger().check(found)


def test_a_dropped_transaction_has_no_records() -> None:
    dropped = ledger(committed=False)
    dropped.dropped[SECOND] = None

    dropped.check({})
    with pytest.raises(ViolationError, match="was dropped, but exists"):
        dropped.check({0: [b"job/1:1"]})


def test_tasks_of_a_committed_transaction_request_nothing() -> None:
    again = ledger()
    again.asking(FIRST, [task({}, number=0)])

    with pytest.raises(ViolationError, match="is lost"):
        again.check({})


def test_a_committed_transaction_without_records_has_no_records() -> None:
    empty = Ledger()
    empty.asking(FIRST, [task({})])
    empty.committed[FIRST] = None

    empty.check({})

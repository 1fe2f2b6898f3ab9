"""What a ledger of transactions takes for right at the end, and what not."""

import pytest

from tests.simulation.broker.transactions import Contents, Ledger, Staged
from tests.simulation.checkers.run_history import ViolationError
from tidelog.client.transactions.transaction import TaskResult

FIRST, SECOND = b"job/0", b"job/1"


def task(contents: Contents, *, number: int = 7) -> Staged:
    return Staged(TaskResult("job", 0, number, ()), contents)


def ledger(*, committed: bool = True) -> Ledger:
    """Return one in which the first transaction was to be committed, in one of two ways."""
    asked = Ledger()
    asked.asking(FIRST, [task({0: [b"job/0:1", b"job/0:2"], 1: [b"job/0:3"]})])
    asked.asking(FIRST, [task({1: [b"job/0:5"]}), task({1: [b"job/0:4"]})])
    if committed:
        asked.committed[FIRST] = None
    return asked


@pytest.mark.parametrize(
    "found", [{0: [b"job/0:1", b"job/0:2"], 1: [b"job/0:3"]}, {1: [b"job/0:5", b"job/0:4"]}]
)
def test_what_one_commit_has_named_is_right_whichever_it_was(found: Contents) -> None:
    ledger().check(found)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({}, "is lost"),
        ({0: [b"job/0:1", b"job/0:2"]}, "not what any commit has named"),
        ({1: [b"job/0:4", b"job/0:5"]}, "not what any commit has named"),
        ({1: [b"job/0:5", b"job/0:4"] * 2}, "not what any commit has named"),
        ({0: [b"job/0:1", b"job/0:2"], 1: [b"job/0:4"]}, "not what any commit has named"),
        ({1: [b"job/0:5", b"job/1:9", b"job/0:4"]}, "mixed up in partition 1"),
        ({1: [b"job/0:5", b"job/0:4", b"job/1:9"]}, "never committed"),
    ],
)
def test_a_transaction_that_is_lost_or_there_in_parts_or_twice_or_unasked_is_found(
    found: Contents, problem: str
) -> None:
    with pytest.raises(ViolationError, match=problem):
        ledger().check(found)


def test_what_was_dropped_is_nowhere() -> None:
    dropped = ledger(committed=False)
    dropped.dropped[SECOND] = None

    dropped.check({})
    with pytest.raises(ViolationError, match="was dropped, and is there"):
        dropped.check({0: [b"job/1:1"]})


def test_tasks_that_find_their_transaction_committed_ask_for_nothing_new() -> None:
    again = ledger()
    again.asking(FIRST, [task({}, number=0)])

    with pytest.raises(ViolationError, match="is lost"):
        again.check({})


def test_a_transaction_without_records_is_nowhere_even_if_it_is_committed() -> None:
    empty = Ledger()
    empty.asking(FIRST, [task({})])
    empty.committed[FIRST] = None

    empty.check({})

"""Tests of the examination: it finds anomalies, and phantoms."""

from tests.simulation.checkers.history import Operation, Outcome, Poll, Send
from tests.system.histories.examination import examine, phantoms

SENT = Send("t/0", "a")
TOLD = Send("t/0", "a", 5)
READ = Poll({"t/0": [(5, "a")]})


def test_a_value_that_was_never_sent_there_is_a_phantom() -> None:
    sent = Operation("writer", Outcome.UNKNOWN, [SENT])
    elsewhere = Operation("reader", Outcome.OK, [Poll({"t/1": [(0, "a")]})])
    here = Operation("reader", Outcome.OK, [READ])

    assert phantoms([sent, here]) == []
    assert phantoms([sent, elsewhere]) == ["reader read a at t/1 0, which was never sent there"]


def test_a_good_history_has_no_problems_and_one_without_reads_has_lost_all() -> None:
    written = Operation("writer", Outcome.OK, [TOLD])
    read = Operation("reader", Outcome.OK, [READ])

    assert examine([written, read]) == ([], 0)
    assert examine([written]) == (["UNSEEN: t/0 a at 5"], 1)


def test_duplicates_of_an_idempotent_producer_are_problems() -> None:
    written = Operation("writer", Outcome.OK, [TOLD])
    read = Operation("reader", Outcome.OK, [Poll({"t/0": [(5, "a"), (6, "a")]})])

    problems, lost_count = examine([written, read])

    assert [problem.partition(":")[0] for problem in problems] == ["DUPLICATE"]
    assert lost_count == 0

"""Totals of a queue follow from the entries of its journal."""

from tidelog.broker.metrics.queue_totals import QueueTotals
from tidelog.wire.messages.queue_journal import (
    NO_TARGET,
    DeadLettered,
    Deleted,
    Expired,
    Extended,
    Purged,
    Released,
    Returned,
)
from tidelog.wire.messages.queues import ReceivedRun


def test_entries_are_counted_by_their_messages() -> None:
    totals = QueueTotals()

    totals.decided([Deleted([(0, 2), (7, 1)]), Released([(3, 1)], 5), Returned([(4, 2)], 5)])
    totals.decided([Expired([(9, 4)]), DeadLettered([(13, 5)], NO_TARGET)])
    totals.decided([Extended(1, [(3, 1)], 9), Purged(20)])

    assert (totals.deleted, totals.released, totals.expired, totals.dead_letters) == (3, 3, 4, 5)
    assert totals.total == 15


def test_second_deliveries_are_redeliveries() -> None:
    totals = QueueTotals()

    totals.delivered([ReceivedRun(0, 5, 1, 0), ReceivedRun(5, 2, 3, 0)])

    assert (totals.received, totals.redelivered) == (7, 2)

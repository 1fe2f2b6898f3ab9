"""Tests of outcomes: records of a failed send are certainly not in the log, or may be."""

import pytest

from tests.client.partition_batches import adopted, fill, queue_of
from tests.simulation.broker.outcomes import outcome_of
from tests.simulation.checkers.history import Outcome
from tidelog.client.producer.producer_batch import ProducerBatch
from tidelog.wire.errors import (
    ConnectionLostError,
    InvalidBatchError,
    OutOfOrderSequenceError,
    OverloadedError,
    RequestTimedOutError,
    TidelogError,
    UnexpectedServerError,
)

FATES: list[tuple[tuple[TidelogError, ...], Outcome]] = [
    ((), Outcome.FAILED),
    ((OverloadedError("busy"),), Outcome.FAILED),
    ((OverloadedError("busy"), ConnectionLostError("gone")), Outcome.UNKNOWN),
    ((RequestTimedOutError("late"),), Outcome.UNKNOWN),
    ((InvalidBatchError("bad"),), Outcome.FAILED),
    ((UnexpectedServerError("oops"),), Outcome.UNKNOWN),
    ((RequestTimedOutError("late"), InvalidBatchError("bad")), Outcome.UNKNOWN),
    ((OutOfOrderSequenceError("gap", expected_sequence=9),), Outcome.FAILED),
]


@pytest.mark.parametrize(("errors", "outcome"), FATES)
def test_the_last_error_determines_the_outcome_of_a_send(
    errors: tuple[TidelogError, ...], outcome: Outcome
) -> None:
    settled: list[ProducerBatch] = []
    queue = queue_of(settled)
    fill(queue, 0, deadline=50.0)
    adopted(queue)
    for number, error in enumerate(errors):
        assert queue.can_send(10.0 * number, only_full=False, is_urgent=True)
        queue.retry_or_fail(queue.start(), error, 10.0 * number)

    queue.expire(50.0)

    (batch,) = settled
    assert isinstance(batch.failure, TidelogError)
    assert outcome_of(batch.failure) is outcome

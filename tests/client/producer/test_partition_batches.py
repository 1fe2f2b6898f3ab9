"""Batches of one partition: in order and without duplicates, under all faults."""

import pytest

from tests.client.partition_batches import adopted, fill, queue_of
from tidelog.client.producer.partition_batches import PartitionBatches, ProducerIdentity
from tidelog.client.producer.producer_batch import ProducerBatch
from tidelog.wire.batch.record_batch import check_produced
from tidelog.wire.errors import (
    BrokerNotReadyError,
    ConnectionLostError,
    DeliveryTimeoutError,
    DuplicateSequenceError,
    InvalidBatchError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    OverloadedError,
    RecordTooLargeError,
)
from tidelog.wire.messages.produce import AckLevel


def start(queue: PartitionBatches, now: float = 0.0) -> ProducerBatch:
    assert queue.can_send(now, only_full=False, is_urgent=True)
    return queue.start()


def can_send(queue: PartitionBatches, now: float = 0.0) -> bool:
    return queue.can_send(now, only_full=False, is_urgent=True)


def test_batches_get_sequences_that_count_records() -> None:
    queue = queue_of()
    for order, count in enumerate((2, 3, 1)):
        fill(queue, order, count=count)
    adopted(queue)

    sequences = [start(queue).base_sequence for _ in range(3)]

    assert sequences == [0, 2, 5]


def test_nothing_is_sent_before_a_producer_id() -> None:
    queue = queue_of()
    fill(queue, 0)

    assert not can_send(queue)
    assert queue.awaits_producer_id


def test_at_most_five_batches_are_in_flight() -> None:
    queue = queue_of()
    for order in range(6):
        fill(queue, order)
    adopted(queue)

    for _ in range(5):
        start(queue)

    assert not can_send(queue)


def test_without_idempotence_one_batch_is_in_flight() -> None:
    queue = queue_of(is_idempotent=False)
    fill(queue, 0)
    fill(queue, 1)
    first = start(queue)

    assert not can_send(queue)

    queue.acknowledge(first, 0, AckLevel.DURABLE)
    assert can_send(queue)


def test_after_a_lost_connection_batches_are_resent_in_order_with_the_same_bytes() -> None:
    settled: list[ProducerBatch] = []
    queue = queue_of(settled)
    fill(queue, 0)
    fill(queue, 1)
    adopted(queue)
    first, second = start(queue), start(queue)
    bytes_before = bytes(first.encoded), bytes(second.encoded)

    queue.retry_or_fail(first, ConnectionLostError("gone"), 0.0)
    assert not can_send(queue, 10.0)  # The second batch is not back yet.
    queue.retry_or_fail(second, ConnectionLostError("gone"), 0.0)

    assert not can_send(queue, 0.0)  # Not before the backoff is over.
    assert [start(queue, 10.0), start(queue, 10.0)] == [first, second]
    assert (bytes(first.encoded), bytes(second.encoded)) == bytes_before
    assert settled == []


def test_a_duplicate_of_an_ambiguous_batch_is_a_success_at_an_unknown_offset() -> None:
    settled: list[ProducerBatch] = []
    queue = queue_of(settled)
    fill(queue, 0)
    batch = start(adopted(queue))
    queue.retry_or_fail(batch, ConnectionLostError("gone"), 0.0)
    assert start(queue, now=10.0) is batch

    queue.retry_or_fail(batch, DuplicateSequenceError("long ago"), 10.0)

    assert settled == [batch]
    assert (batch.failure, batch.base_offset) == (None, None)


def test_a_duplicate_of_a_batch_that_was_never_appended_is_a_failure() -> None:
    """A broker that appended a later batch in its place would answer so."""
    queue = queue_of()
    fill(queue, 0)
    batch = start(adopted(queue))
    queue.retry_or_fail(batch, NotEnoughReplicasError("later"), 0.0)
    assert start(queue, now=10.0) is batch

    queue.retry_or_fail(batch, DuplicateSequenceError("long ago"), 10.0)

    assert isinstance(batch.failure, DuplicateSequenceError)


def test_a_refused_last_batch_passes_its_sequence_to_the_next() -> None:
    queue = queue_of()
    fill(queue, 0)
    fill(queue, 1)
    adopted(queue)
    first = start(queue)

    queue.retry_or_fail(first, InvalidBatchError("no"), 0.0)

    assert isinstance(first.failure, InvalidBatchError)
    assert start(queue).base_sequence == 0


def test_a_refused_batch_before_others_starts_a_new_producer_epoch() -> None:
    queue = queue_of()
    fill(queue, 0)
    fill(queue, 1)
    adopted(queue)
    first, second = start(queue), start(queue)

    queue.retry_or_fail(first, InvalidBatchError("no"), 0.0)
    queue.retry_or_fail(second, OutOfOrderSequenceError("gap", expected_sequence=0), 0.0)

    assert queue.awaits_producer_id
    queue.restart_sequences(ProducerIdentity(7, 1))
    again = start(queue, 10.0)
    header = check_produced(memoryview(again.encoded))
    assert again is second
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_the_loss_of_acknowledged_records_is_raised_once() -> None:
    queue = queue_of()
    fill(queue, 0, count=2)
    fill(queue, 1)
    adopted(queue)
    queue.acknowledge(start(queue), 0, AckLevel.REPLICATED)
    second = start(queue)

    queue.retry_or_fail(second, OutOfOrderSequenceError("lost", expected_sequence=1), 0.0)
    fill(queue, 2)

    assert isinstance(second.failure, OutOfOrderSequenceError)
    assert queue.awaits_producer_id
    queue.restart_sequences(ProducerIdentity(7, 1))
    assert check_produced(memoryview(start(queue, 10.0).encoded)).base_sequence == 0


def test_an_ambiguous_batch_is_not_resent_under_a_new_epoch() -> None:
    queue = queue_of()
    fill(queue, 0)
    fill(queue, 1)
    adopted(queue)
    first, second = start(queue), start(queue)
    queue.retry_or_fail(second, ConnectionLostError("gone"), 0.0)
    queue.retry_or_fail(first, InvalidBatchError("no"), 0.0)

    queue.restart_sequences(ProducerIdentity(7, 1))

    assert isinstance(second.failure, ConnectionLostError)
    assert "may or may not be in the log" in str(second.failure)


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (OverloadedError("busy"), "are not in the log"),
        (ConnectionLostError("gone"), "may or may not be in the log"),
    ],
)
def test_an_undeliverable_batch_fails_after_delivery_timeout(error: Exception, fate: str) -> None:
    settled: list[ProducerBatch] = []
    queue = queue_of(settled)
    fill(queue, 0, deadline=5.0)
    batch = start(adopted(queue))
    queue.retry_or_fail(batch, error, 1.0)

    queue.expire(5.0)

    assert settled == [batch]
    assert isinstance(batch.failure, DeliveryTimeoutError)
    assert fate in str(batch.failure)


@pytest.mark.statement("b98")
@pytest.mark.parametrize("is_appended", [True, False])
def test_a_batch_in_flight_fails_at_its_deadline_and_keeps_its_place(is_appended: bool) -> None:
    settled: list[ProducerBatch] = []
    queue = queue_of(settled)
    fill(queue, 0, deadline=5.0)
    fill(queue, 1, deadline=9.0)
    first, second = start(adopted(queue)), start(queue)
    assert queue.next_wake(1.0) == 5.0

    queue.expire(5.0)

    assert settled == [first]
    assert isinstance(first.failure, DeliveryTimeoutError)
    assert "may or may not be in the log" in str(first.failure)
    assert list(queue.sent.values()) == [first, second]
    assert queue.next_wake(5.0) == 9.0
    if is_appended:
        queue.acknowledge(first, 0, AckLevel.REPLICATED)
        queue.acknowledge(second, 1, AckLevel.REPLICATED)
        assert second.failure is None
    else:
        queue.retry_or_fail(first, ConnectionLostError("gone"), 6.0)
        queue.retry_or_fail(second, ConnectionLostError("gone"), 6.0)
        assert start(queue, 8.0) is second
    assert first.failure is settled[0].failure


@pytest.mark.invariant("I36")
@pytest.mark.parametrize(
    ("refusals", "fate"),
    [
        ((NotEnoughReplicasError("1 of 3"),), "could not be delivered in time and are not in"),
        (
            (NotEnoughReplicasAfterAppendError("left"), NotEnoughReplicasError("1 of 3")),
            "may or may not be in the log",
        ),
    ],
)
def test_not_enough_replicas_after_append_leaves_the_outcome_ambiguous(
    refusals: tuple[Exception, ...], fate: str
) -> None:
    """I36: a refusal before the append is certain, a refusal after it is not."""
    settled: list[ProducerBatch] = []
    queue = queue_of(settled)
    fill(queue, 0)
    adopted(queue)
    now = 0.0
    for refusal in refusals:
        queue.retry_or_fail(start(queue, now), refusal, now)
        now += 10.0

    queue.expire(1000.0)

    (batch,) = settled
    assert isinstance(batch.failure, DeliveryTimeoutError)
    assert fate in str(batch.failure)


def test_a_batch_that_is_too_large_is_split_until_it_fits() -> None:
    queue = queue_of()
    fill(queue, 0, count=4)
    batch = start(adopted(queue))
    error = RecordTooLargeError("large", size_bytes=9, limit_bytes=8)

    queue.retry_or_fail(batch, error, 0.0)

    first, second = start(queue, 10.0), start(queue, 10.0)
    assert [first.record_count, second.record_count] == [2, 2]
    assert [first.base_sequence, second.base_sequence] == [0, 2]
    queue.acknowledge(first, 10, AckLevel.DURABLE)
    queue.acknowledge(second, 12, AckLevel.DURABLE)
    assert batch.is_settled
    assert [fate.offset for fate in batch.fates(0, 4)] == [10, 12]


def test_fail_all_settles_batches_that_are_not_in_flight() -> None:
    settled: list[ProducerBatch] = []
    queue = queue_of(settled)
    for order in range(3):
        fill(queue, order)
    under_way = start(adopted(queue))

    queue.fail_all(InvalidBatchError("deleted"))

    assert len(settled) == 2
    assert under_way not in settled


def test_a_refused_format_does_not_make_a_batch_ambiguous() -> None:
    settled: list[ProducerBatch] = []
    queue = queue_of(settled)
    fill(queue, 0, count=4)
    batch = start(adopted(queue))
    before = bytes(batch.encoded)
    queue.retry_or_fail(batch, BrokerNotReadyError("needs feature level 6"), 0.0)
    assert start(queue, now=10.0) is batch
    assert bytes(batch.encoded) == before

    queue.retry_or_fail(batch, RecordTooLargeError("too large"), 10.0)

    halves = [start(queue, now=10.0), start(queue, now=10.0)]
    assert [(half.base_sequence, half.record_count) for half in halves] == [(0, 2), (2, 2)]
    assert not settled

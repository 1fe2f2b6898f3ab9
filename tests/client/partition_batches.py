"""Partition queues with batches, for tests."""

from random import Random

from tidelog.client.cluster.backoff import Backoff
from tidelog.client.producer.partition_batches import (
    DeliveryRules,
    PartitionBatches,
    ProducerIdentity,
)
from tidelog.client.producer.producer_batch import ProducerBatch
from tidelog.wire.batch.compression import Codec

IDENTITY = ProducerIdentity(7, 0)


def queue_of(
    settled: list[ProducerBatch] | None = None, *, partition: int = 0, is_idempotent: bool = True
) -> PartitionBatches:
    """Return an empty queue that has an identity if it needs one."""
    rules = DeliveryRules(
        codec=Codec.NONE,
        is_idempotent=is_idempotent,
        in_flight_max=5,
        backoff=Backoff(0.1, 1.0, Random(1)),
    )
    settled = [] if settled is None else settled
    return PartitionBatches("orders", partition, rules, on_settled=settled.append)


def fill(queue: PartitionBatches, order: int, *, count: int = 1, deadline: float = 60.0) -> None:
    """Close one batch of `count` records and queue it."""
    batch = ProducerBatch(order, timestamp_ms=1, linger_until=0.0, deadline=deadline)
    queue.open_batch(batch, 0.0)
    for _ in range(count):
        batch.append_value(b"v")
    queue.close_batch()


def adopted(queue: PartitionBatches) -> PartitionBatches:
    """Set the identity that the queue waits for."""
    assert queue.awaits_producer_id
    queue.restart_sequences(IDENTITY)
    return queue

"""Ready partitions of a producer, and the time of the next check."""

import math

from tests.client.partition_batches import adopted, fill, queue_of
from tidelog.client.producer.partition_batches import PartitionBatches
from tidelog.client.producer.producer_batch import ProducerBatch
from tidelog.client.producer.ready_partitions import ReadyPartitions
from tidelog.wire.errors import OverloadedError
from tidelog.wire.messages.produce import AckLevel


def ready_queue(partition: int = 0) -> PartitionBatches:
    queue = queue_of(partition=partition)
    fill(queue, 0)
    return adopted(queue)


def empty_queue() -> PartitionBatches:
    """Return a queue that has an identity and nothing to send."""
    queue = ready_queue()
    queue.acknowledge(queue.start(), 0, AckLevel.DURABLE)
    return queue


def take_ready(
    ready_partitions: ReadyPartitions,
    now: float = 0.0,
    node: int | None = 1,
    *,
    only_full: bool = False,
) -> dict[int, list[PartitionBatches]]:
    return ready_partitions.take_ready(now, lambda _: node, only_full=only_full, is_urgent=False)


def test_a_touched_queue_with_a_batch_is_ready_for_its_node_once() -> None:
    ready_partitions, queue = ReadyPartitions(), ready_queue()
    ready_partitions.touch(queue)

    assert take_ready(ready_partitions) == {1: [queue]}
    assert take_ready(ready_partitions) == {}


def test_an_untouched_partition_is_not_checked() -> None:
    ready_partitions = ReadyPartitions()
    ready_queue()

    assert take_ready(ready_partitions) == {}
    assert ready_partitions.next_wake == math.inf


def test_a_queue_without_a_leader_waits_until_leaders_change() -> None:
    ready_partitions, queue = ReadyPartitions(), ready_queue()
    ready_partitions.touch(queue)

    assert take_ready(ready_partitions, node=None) == {}
    assert take_ready(ready_partitions) == {}

    ready_partitions.leaders_changed()

    assert take_ready(ready_partitions) == {1: [queue]}


def test_a_partition_without_a_producer_id_waits_for_one() -> None:
    ready_partitions, queue = ReadyPartitions(), queue_of()
    fill(queue, 0)
    ready_partitions.touch(queue)

    assert take_ready(ready_partitions) == {}
    assert ready_partitions.awaiting_producer_id() == [queue]

    adopted(queue)
    ready_partitions.touch(queue)

    assert ready_partitions.awaiting_producer_id() == []
    assert take_ready(ready_partitions) == {1: [queue]}


def test_a_batch_that_lingers_is_due_when_it_has_lingered() -> None:
    ready_partitions, queue = ReadyPartitions(), empty_queue()
    batch = ProducerBatch(5, timestamp_ms=1, linger_until=2.0, deadline=60.0)
    queue.open_batch(batch, 0.0)
    batch.append_value(b"v")
    ready_partitions.touch(queue)
    ready_partitions.plan_wake(queue, 0.0)

    assert take_ready(ready_partitions, 0.0) == {}
    while ready_partitions.next_wake < 2.0:
        ready_partitions.take_due(ready_partitions.next_wake)
        ready_partitions.plan_wake(queue, 1.9)
        assert take_ready(ready_partitions, 1.9) == {}
    assert queue in ready_partitions.take_due(2.0)
    assert take_ready(ready_partitions, 2.0) == {1: [queue]}


def test_only_full_keeps_open_batches() -> None:
    ready_partitions, queue = ReadyPartitions(), empty_queue()
    batch = ProducerBatch(5, timestamp_ms=1, linger_until=0.0, deadline=60.0)
    queue.open_batch(batch, 0.0)
    batch.append_value(b"v")
    ready_partitions.touch(queue)
    other = ready_queue(1)
    ready_partitions.touch(other)

    assert take_ready(ready_partitions, only_full=True) == {1: [other]}


def test_a_failed_batch_is_due_after_its_backoff() -> None:
    ready_partitions, queue = ReadyPartitions(), ready_queue()
    batch = queue.start()
    queue.retry_or_fail(batch, OverloadedError("busy"), 0.0)
    ready_partitions.touch(queue)
    ready_partitions.plan_wake(queue, 0.0)

    assert take_ready(ready_partitions, 0.0) == {}
    retry_at = ready_partitions.next_wake
    assert 0.0 < retry_at < 1.0
    assert ready_partitions.take_due(retry_at) == [queue]
    assert take_ready(ready_partitions, retry_at) == {1: [queue]}

"""Which partitions have something to send, and when to look again."""

import math

from tests.client.queues import adopted, fill, queue_of
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


def collect(
    schedule: ReadyPartitions, now: float = 0.0, node: int | None = 1, *, only_full: bool = False
) -> dict[int, list[PartitionBatches]]:
    return schedule.collect(now, lambda _: node, only_full=only_full, is_urgent=False)


def test_a_touched_queue_with_a_batch_is_ready_for_its_node_once() -> None:
    schedule, queue = ReadyPartitions(), ready_queue()
    schedule.touch(queue)

    assert collect(schedule) == {1: [queue]}
    assert collect(schedule) == {}


def test_a_queue_that_was_not_touched_costs_nothing() -> None:
    schedule = ReadyPartitions()
    ready_queue()

    assert collect(schedule) == {}
    assert schedule.next_wake == math.inf


def test_a_queue_without_a_leader_waits_until_leaders_change() -> None:
    schedule, queue = ReadyPartitions(), ready_queue()
    schedule.touch(queue)

    assert collect(schedule, node=None) == {}
    assert collect(schedule) == {}

    schedule.leaders_changed()

    assert collect(schedule) == {1: [queue]}


def test_a_queue_without_an_identity_is_a_seeker() -> None:
    schedule, queue = ReadyPartitions(), queue_of()
    fill(queue, 0)
    schedule.touch(queue)

    assert collect(schedule) == {}
    assert schedule.seekers == [queue]

    adopted(queue)
    schedule.touch(queue)

    assert schedule.seekers == []
    assert collect(schedule) == {1: [queue]}


def test_a_batch_that_lingers_is_due_when_it_has_lingered() -> None:
    schedule, queue = ReadyPartitions(), empty_queue()
    batch = ProducerBatch(5, timestamp_ms=1, linger_until=2.0, deadline=60.0)
    queue.open_batch(batch, 0.0)
    batch.append_value(b"v")
    schedule.touch(queue)

    assert collect(schedule, 0.0) == {}
    while schedule.next_wake < 2.0:
        schedule.take_due(schedule.next_wake)
        collect(schedule, 1.9)
    assert queue in schedule.take_due(2.0)
    assert collect(schedule, 2.0) == {1: [queue]}


def test_only_full_leaves_open_batches_alone() -> None:
    schedule, queue = ReadyPartitions(), empty_queue()
    batch = ProducerBatch(5, timestamp_ms=1, linger_until=0.0, deadline=60.0)
    queue.open_batch(batch, 0.0)
    batch.append_value(b"v")
    schedule.touch(queue)
    other = ready_queue(1)
    schedule.touch(other)

    assert collect(schedule, only_full=True) == {1: [other]}


def test_a_batch_that_came_back_is_due_after_its_backoff() -> None:
    schedule, queue = ReadyPartitions(), ready_queue()
    batch = queue.start()
    queue.refuse(batch, OverloadedError("busy"), 0.0)
    schedule.touch(queue)

    assert collect(schedule, 0.0) == {}
    retry_at = schedule.next_wake
    assert 0.0 < retry_at < 1.0
    assert schedule.take_due(retry_at) == [queue]
    assert collect(schedule, retry_at) == {1: [queue]}

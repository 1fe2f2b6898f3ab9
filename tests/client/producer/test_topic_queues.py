"""Which partition a record of one topic goes to."""

from tests.client.queues import queue_of
from tidelog.client.producer.partitioner import partition_for_key
from tidelog.client.producer.topic_queues import TopicPartitioner


def queues_of(count: int) -> TopicPartitioner:
    return TopicPartitioner([queue_of(partition=number) for number in range(count)], sticky=1)


def test_a_key_goes_to_its_own_partition_and_is_remembered() -> None:
    topic = queues_of(5)

    first = topic.partition_for(b"user-1")

    assert first == partition_for_key(b"user-1", 5)
    assert topic.queue_by_key[b"user-1"].partition == first
    assert topic.partition_for(b"user-1") == first


def test_without_a_key_the_sticky_partition_takes_the_record() -> None:
    topic = queues_of(3)

    assert topic.partition_for(None) is None
    assert topic.queue_by_key[None] is topic.queues[1]


def test_rotating_moves_on_to_the_next_partition_with_a_leader() -> None:
    topic = queues_of(4)
    topic.is_available = [True, True, False, True]

    topic.rotate()

    assert topic.sticky == 3
    assert topic.queue_by_key[None] is topic.queues[3]


def test_forgotten_keys_are_found_again_and_the_sticky_partition_stays() -> None:
    topic = queues_of(3)
    remembered = topic.queue_by_key
    topic.partition_for(b"user-1")

    topic.forget_keys()

    assert topic.queue_by_key is remembered
    assert topic.queue_by_key == {None: topic.queues[1]}
    assert topic.partition_for(b"user-1") == partition_for_key(b"user-1", 3)


def test_remembered_keys_are_bounded() -> None:
    topic = queues_of(2)

    for number in range(70_000):
        topic.partition_for(b"%d" % number)

    assert len(topic.queue_by_key) <= 65_537

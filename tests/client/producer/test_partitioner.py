"""Partitioner: keys map as in Kafka; the rest is spread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.partition_batches import queue_of
from tidelog.client.producer.partitioner import (
    TopicPartitioner,
    murmur2,
    next_sticky,
    partition_for_key,
)


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafka(key: bytes, signed_hash: int) -> None:
    """The vectors of Kafka's own UtilsTest, whose hash is a signed number."""
    assert murmur2(key) == signed_hash & 0xFFFF_FFFF


@given(st.binary(), st.integers(1, 1000))
def test_a_key_maps_to_one_partition(key: bytes, count: int) -> None:
    partition = partition_for_key(key, count)

    assert 0 <= partition < count
    assert partition == partition_for_key(key, count)


def test_keys_are_spread_evenly() -> None:
    counts = [0] * 8
    for number in range(8000):
        counts[partition_for_key(f"user-{number}".encode(), 8)] += 1

    assert min(counts) > 850
    assert max(counts) < 1150


def test_the_sticky_partition_rotates() -> None:
    visited = [0]
    for _ in range(6):
        visited.append(next_sticky(visited[-1], [True] * 3))

    assert visited == [0, 1, 2, 0, 1, 2, 0]


def test_the_sticky_partition_skips_partitions_without_a_leader() -> None:
    assert next_sticky(0, [True, False, False, True]) == 3
    assert next_sticky(3, [False, False, True, True]) == 2


def test_without_any_leader_the_sticky_partition_rotates() -> None:
    assert next_sticky(1, [False, False]) == 0


def test_the_only_partition_stays() -> None:
    assert next_sticky(0, [True]) == 0


def queues_of(count: int) -> TopicPartitioner:
    return TopicPartitioner([queue_of(partition=number) for number in range(count)], sticky=1)


def test_the_partition_of_a_key_is_cached() -> None:
    topic = queues_of(5)

    first = topic.partition_for(b"user-1")

    assert first == partition_for_key(b"user-1", 5)
    assert topic.queue_by_key[b"user-1"].partition == first
    assert topic.partition_for(b"user-1") == first


def test_a_record_without_a_key_goes_to_the_sticky_partition() -> None:
    topic = queues_of(3)

    assert topic.partition_for(None) is None
    assert topic.queue_by_key[None] is topic.queues[1]


def test_rotate_moves_to_the_next_partition_with_a_leader() -> None:
    topic = queues_of(4)
    topic.is_available = [True, True, False, True]

    topic.rotate()

    assert topic.sticky == 3
    assert topic.queue_by_key[None] is topic.queues[3]


def test_clearing_cached_keys_keeps_the_sticky_partition() -> None:
    topic = queues_of(3)
    remembered = topic.queue_by_key
    topic.partition_for(b"user-1")

    topic.forget_keys()

    assert topic.queue_by_key is remembered
    assert topic.queue_by_key == {None: topic.queues[1]}
    assert topic.partition_for(b"user-1") == partition_for_key(b"user-1", 3)


def test_cached_keys_are_bounded() -> None:
    topic = queues_of(2)

    for number in range(70_000):
        topic.partition_for(b"%d" % number)

    assert len(topic.queue_by_key) <= 65_537

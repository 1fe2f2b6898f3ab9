"""Choice of the replica to fetch from: the leader, an in-sync follower, or the nearest."""

import pytest

from tidelog.client.cluster.metadata import MetadataCache
from tidelog.client.config import ConsumerConfig
from tidelog.client.consumer.fetch.fetcher import follower_to_read
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.messages.metadata import (
    BrokerAddress,
    MetadataReply,
    PartitionMetadata,
    TopicMetadata,
)

DOMAINS = {1: "a", 2: "b", 3: "c", 4: "b"}
FOLLOWERS = ConsumerConfig(read_from="followers")


def metadata(
    leader_id: int | None, in_sync: list[int] | None, *, without: int = 0
) -> MetadataCache:
    """Return metadata of a topic with four such partitions."""
    cache = MetadataCache()
    brokers = [
        BrokerAddress(node_id, f"host-{node_id}", 8433, domain)
        for node_id, domain in DOMAINS.items()
        if node_id != without
    ]
    partitions = [PartitionMetadata(number, leader_id, 7, in_sync) for number in range(4)]
    cache.apply(MetadataReply("cluster", brokers, [TopicMetadata("orders", b"i" * 16, partitions)]))
    return cache


def chosen(known: MetadataCache, config: ConsumerConfig, partitions: int = 4) -> list[int | None]:
    """Return the follower of each partition."""
    return [
        follower_to_read(known, TopicPartition("orders", number), config)
        for number in range(partitions)
    ]


def nearest(domain: str) -> ConsumerConfig:
    return ConsumerConfig(read_from="nearest", client_rack=domain)


def test_the_leader_is_read_by_default() -> None:
    assert chosen(metadata(1, [1, 2, 3]), ConsumerConfig()) == [None] * 4


def test_partitions_are_spread_over_in_sync_followers() -> None:
    assert chosen(metadata(1, [1, 3, 2]), FOLLOWERS) == [2, 3, 2, 3]
    assert chosen(metadata(1, [1, 3]), FOLLOWERS) == [3] * 4


@pytest.mark.parametrize("in_sync", [[1], [], None])
def test_without_an_in_sync_follower_the_leader_is_read(in_sync: list[int] | None) -> None:
    assert chosen(metadata(1, in_sync), FOLLOWERS) == [None] * 4


def test_an_unknown_broker_is_not_chosen() -> None:
    assert chosen(metadata(1, [1, 2, 3], without=2), FOLLOWERS) == [3] * 4


def test_the_nearest_replica_is_in_the_same_rack() -> None:
    assert chosen(metadata(1, [1, 2, 3]), nearest("b")) == [2] * 4
    assert chosen(metadata(1, [1, 2, 3, 4]), nearest("b")) == [2, 4, 2, 4]


def test_a_leader_in_the_same_rack_is_read() -> None:
    assert chosen(metadata(2, [1, 2, 3, 4]), nearest("b")) == [None] * 4


def test_without_a_replica_in_the_rack_the_leader_is_read() -> None:
    assert chosen(metadata(1, [1, 3]), nearest("b")) == [None] * 4


def test_without_a_leader_a_follower_can_still_be_read() -> None:
    assert chosen(metadata(None, [2]), FOLLOWERS) == [2] * 4


def test_an_unknown_topic_has_no_follower() -> None:
    assert chosen(MetadataCache(), FOLLOWERS) == [None] * 4
    assert chosen(metadata(1, [1, 2]), FOLLOWERS, partitions=5)[4] is None

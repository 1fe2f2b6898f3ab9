"""Metadata cache: the newest leader wins, deleted topics are dropped."""

import pytest

from tidelog.client.cluster.metadata import MetadataCache, check_partition, partition_of
from tidelog.wire.errors import LeaderNotAvailableError, UnknownPartitionError, UnknownTopicError
from tidelog.wire.messages.metadata import (
    BrokerAddress,
    MetadataReply,
    PartitionMetadata,
    TopicMetadata,
)

ID = b"i" * 16
OTHER_ID = b"j" * 16


def topic(leader_id: int | None, epoch: int, *, topic_id: bytes = ID) -> TopicMetadata:
    return TopicMetadata("orders", topic_id, [PartitionMetadata(0, leader_id, epoch)])


def reply(*topics: TopicMetadata) -> MetadataReply:
    return MetadataReply("cluster", [BrokerAddress(1, "host", 8433)], list(topics))


def cache_of(*topics: TopicMetadata) -> MetadataCache:
    cache = MetadataCache()
    for known in topics:
        cache.apply(reply(known))
    return cache


def test_brokers_and_leaders_are_known_after_a_reply() -> None:
    cache = cache_of(topic(1, 0))

    assert cache.brokers[1] == BrokerAddress(1, "host", 8433)
    assert cache.leader_of("orders", 0) == 1
    assert cache.topic_names == ["orders"]


def test_an_older_leader_does_not_replace_a_newer_one() -> None:
    cache = cache_of(topic(2, 5), topic(1, 4))

    assert cache.leader_of("orders", 0) == 2


def test_a_newer_leader_replaces_an_older_one() -> None:
    cache = cache_of(topic(2, 5), topic(None, 6))

    assert cache.leader_of("orders", 0) is None


def test_stale_metadata_remove_no_partitions() -> None:
    grown = TopicMetadata("orders", ID, [PartitionMetadata(0, 1, 0), PartitionMetadata(1, 2, 0)])

    cache = cache_of(grown, topic(1, 1))
    recreated = cache_of(grown, topic(1, 0, topic_id=OTHER_ID))

    assert (cache.leader_of("orders", 0), cache.leader_of("orders", 1)) == (1, 2)
    assert recreated.leader_of("orders", 1) is None


def test_a_recreated_topic_has_its_own_leader_epochs() -> None:
    cache = cache_of(topic(2, 5), topic(1, 0, topic_id=OTHER_ID))

    assert cache.leader_of("orders", 0) == 1


def test_an_error_of_a_topic_replaces_its_metadata() -> None:
    error = UnknownTopicError("there is no topic 'orders'").to_wire()
    cache = cache_of(topic(1, 0), TopicMetadata("orders", b"", [], error))

    assert cache.topic("orders") is None
    assert isinstance(cache.error("orders"), UnknownTopicError)

    cache.apply(reply(topic(1, 0)))

    assert cache.error("orders") is None


def test_a_dropped_error_counts_as_unknown() -> None:
    error = UnknownTopicError("there is no topic 'orders'").to_wire()
    cache = cache_of(TopicMetadata("orders", b"", [], error))

    cache.forget(["orders", "never heard of"])

    assert cache.error("orders") is None


@pytest.mark.parametrize(("name", "partition"), [("orders", 1), ("unknown", 0)])
def test_an_unknown_partition_has_no_leader(name: str, partition: int) -> None:
    assert cache_of(topic(1, 0)).leader_of(name, partition) is None


@pytest.mark.parametrize("partition", [-1, 1])
def test_a_partition_out_of_range_is_refused_with_the_range(partition: int) -> None:
    with pytest.raises(UnknownPartitionError, match=f"0 to 0; there is no {partition}"):
        partition_of(topic(1, 0), partition)


def test_a_partition_in_range_is_accepted() -> None:
    check_partition("orders", 2, 3)

    assert partition_of(topic(1, 7), 0).leader_epoch == 7


def test_a_node_that_leads_any_partition_is_a_leader() -> None:
    cache = cache_of(topic(1, 7))

    assert cache.is_leader(cache.leader_of("orders", 0) or 0)
    assert not cache.is_leader(99)


def test_the_controller_is_that_of_the_last_reply() -> None:
    cache = MetadataCache()

    cache.apply(MetadataReply("cluster", [], [], 2))
    assert cache.controller_id == 2

    cache.apply(MetadataReply("cluster", [], []))
    assert cache.controller_id is None


def test_a_retriable_topic_error_does_not_change_the_metadata() -> None:
    cache = cache_of(topic(1, 0))
    unsure = LeaderNotAvailableError("no node leads the cluster").to_wire()

    cache.apply(
        reply(TopicMetadata("orders", b"", [], unsure), TopicMetadata("new", b"", [], unsure))
    )

    assert cache.leader_of("orders", 0) == 1
    assert cache.error("orders") is None
    assert cache.topic("new") is None
    assert cache.error("new") is None


def test_the_first_partition_without_a_leader_is_found_among_wanted_topics() -> None:
    orders = TopicMetadata(
        "orders", ID, [PartitionMetadata(0, 1, 0), PartitionMetadata(1, None, 0)]
    )
    cache = cache_of(orders)

    assert cache.first_leaderless(["unknown", "orders"]) == ("orders", 1)
    assert cache.first_leaderless(["unknown"]) is None
    assert cache_of(topic(1, 0)).first_leaderless(["orders"]) is None

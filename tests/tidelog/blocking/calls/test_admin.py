"""A broker is administered without trio."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.tidelog.brokers import broker_in_a_thread
from tidelog import blocking
from tidelog.wire.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    UnknownTopicError,
)
from tidelog.wire.messages.reassignment import PartitionMove


@pytest.fixture
def client(tmp_path: Path) -> Generator[blocking.Client, None, None]:
    with broker_in_a_thread(tmp_path) as address, blocking.connect(address) as connected:
        yield connected


def test_a_topic_lives_from_its_creation_to_its_end(client: blocking.Client) -> None:
    client.admin.create_topic("orders", 2, replication_factor=1, retention_ms=3_600_000)
    client.admin.alter_topic("orders", set={"retention_ms": 7_200_000})
    (described,) = client.admin.describe_topics(["orders"])

    assert client.admin.add_partitions("orders", 3).added == 1
    (usage,) = client.admin.topic_usage()
    assert usage.partition_count == 3
    assert client.admin.hot_keys("orders").partition_count == 3
    assert described.config["retention_ms"] == "7200000"
    assert [partition.replicas for partition in described.partitions] == [[1], [1]]
    client.admin.delete_topic("orders")
    assert client.admin.list_topics() == []


def test_more_replicas_in_sync_than_there_are_cannot_be_asked_for(client: blocking.Client) -> None:
    too_many = {"min_insync_replicas": 2}

    with pytest.raises(InvalidConfigError, match="is 2, it must be at most 1, the number of"):
        client.admin.create_topic("orders", config=too_many)
    client.admin.create_topic("orders")
    with pytest.raises(InvalidConfigError, match="is 2, it must be at most 1, the number of"):
        client.admin.alter_topic("orders", set=too_many)


def test_a_queue_lives_from_its_creation_to_its_end(client: blocking.Client) -> None:
    client.admin.create_queue("q", partitions=2, visibility_timeout=60)
    client.admin.create_queue("r", topic="q", start="latest", fifo=True)

    settings = client.admin.alter_queue("q", set={"max_receive_count": 3})
    described = client.admin.describe_queues(["r", "q"])

    assert settings["max_receive_count"] == "3"
    assert [(queue.name, queue.topic, queue.is_fifo) for queue in described] == [
        ("r", "q", True),
        ("q", "q", False),
    ]
    client.admin.delete_queue("r")
    assert client.admin.list_queues() == ["q"]
    client.admin.delete_queue("q", with_topic=True)
    assert client.admin.list_topics() == []


def test_the_cluster_of_one_is_described_and_has_nothing_to_elect(client: blocking.Client) -> None:
    described = client.admin.describe_cluster()

    assert (described.controller_id, len(described.nodes)) == (1, 1)
    assert client.admin.elect_leaders() == []


def test_replicas_are_moved_by_name_or_by_plan(client: blocking.Client) -> None:
    client.admin.create_topic("orders")

    (moved,) = client.admin.reassign([PartitionMove("orders", 0, [1])])
    assert (moved.replicas, moved.is_under_way, moved.error) == ([1], False, None)
    assert client.admin.balance() == []
    assert client.admin.alter_replication_factor(None, 1, plan_only=True) == []
    with pytest.raises(InvalidTopicError, match="cannot have 2 replicas"):
        client.admin.alter_replication_factor(["orders"], 2)
    with pytest.raises(InvalidRequestError, match="there is no broker 9"):
        client.admin.balance(leaving=[9])
    with pytest.raises(UnknownTopicError):
        client.admin.reassign([PartitionMove("nope", 0, [1])])


def test_brokers_are_drained_replaced_and_unregistered(client: blocking.Client) -> None:
    with pytest.raises(InvalidRequestError, match="the last one that is not drained"):
        client.admin.drain(1)
    client.admin.end_drain(1)
    with pytest.raises(InvalidRequestError, match="a replacement names one lost broker"):
        client.admin.replace_broker(1, 1)
    assert not client.admin.unregister_broker(9)
    assert client.admin.list_reassignments() == []


def test_names_of_transactions_are_listed(client: blocking.Client) -> None:
    client.admin.create_topic("orders")
    client.transaction("nightly", 7).commit([])

    (found,) = client.admin.list_transactions()

    assert (found.name, found.last_transaction_id, found.open_transaction_id) == (
        "nightly",
        7,
        None,
    )
    assert client.admin.list_transactions(["another"]) == []


def test_settings_of_the_cluster_are_changed(client: blocking.Client) -> None:
    changed = client.admin.alter_cluster(set={"reassignment_max_bytes_per_second": "20MB"})

    assert changed["reassignment_max_bytes_per_second"] == "20MB"
    assert client.admin.describe_cluster().config == changed

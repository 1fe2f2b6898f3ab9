"""What a cluster says: where topics are, how far they go, and whom to ask again."""

import socket
from collections.abc import Iterator

import pytest

from tests.spark_connector.spark_fixture import SparkFixture, close_idle
from tidelog.client.cluster.address import Address
from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.connection.journals import (
    is_journal,
    journal_of,
    not_there,
    queue_of,
)
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.options import ConnectionOptions
from tidelog.wire.errors import (
    ConnectError,
    LeaderNotAvailableError,
    UnknownQueueError,
    UnknownTopicError,
)
from tidelog.wire.messages.groups import ListGroupsRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.offset_ranges import OffsetQuery
from tidelog.wire.protocol import api


@pytest.fixture
def cluster(town: SparkFixture) -> Iterator[BlockingClusterClient]:
    cluster = BlockingClusterClient(town.connection)
    yield cluster
    cluster.close()


def test_one_call_tells_how_far_every_partition_goes(
    town: SparkFixture, cluster: BlockingClusterClient
) -> None:
    topic_id = town.create(3)
    town.write([b"a", b"b"], partition=1)

    (topic,) = cluster.topic_offsets([town.topic], with_sizes=False)

    assert topic.topic_id == topic_id
    assert topic.high_watermarks == [0, 2, 0]
    assert town.topic in [each.name for each in cluster.topic_offsets(None, with_sizes=False)]


def test_leaders_are_asked_where_offsets_are(
    town: SparkFixture, cluster: BlockingClusterClient
) -> None:
    topic_id = town.create()
    town.write_one(b"a", timestamp_ms=1000)
    town.write_one(b"b", timestamp_ms=3000)
    at = TopicPartition(town.topic, 0)

    def offset(time_ms: int) -> int | None:
        query = OffsetQuery(topic_id, 0, at_timestamp_ms=time_ms)
        found = cluster.list_offsets({at: query})[at]
        assert found.high_watermark == 2
        return found.offset

    assert [offset(time_ms) for time_ms in (1000, 2000, 4000)] == [0, 1, None]


def test_the_leader_of_a_partition_is_found(
    town: SparkFixture, cluster: BlockingClusterClient
) -> None:
    topic_id = town.create()

    assert cluster.leader_of(TopicPartition(town.topic, 0))[0] == topic_id
    with pytest.raises(LeaderNotAvailableError):
        cluster.leader_of(TopicPartition(town.topic, 7))
    with pytest.raises(UnknownTopicError):
        cluster.leader_of(TopicPartition("not-there", 0))


def test_the_one_that_decides_is_found(cluster: BlockingClusterClient) -> None:
    assert cluster.call_controller(api.LIST_GROUPS, ListGroupsRequest()).groups == []


def test_a_connection_that_was_lost_is_made_anew(cluster: BlockingClusterClient) -> None:
    cluster.topic_offsets(None, with_sizes=False)
    cluster.any_connection().close()

    assert cluster.topic_offsets(None, with_sizes=False) is not None
    assert cluster.is_idle


def test_what_may_help_is_tried_again_and_what_may_not_is_not(
    cluster: BlockingClusterClient,
) -> None:
    tries: list[int] = []

    def attempt() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise LeaderNotAvailableError("not yet")
        return "done"

    assert cluster.retry(attempt) == "done"
    tries.clear()

    def refuse() -> str:
        tries.append(1)
        raise UnknownTopicError("never")

    with pytest.raises(UnknownTopicError):
        cluster.retry(refuse)
    assert len(tries) == 1


def test_an_address_that_does_not_answer_is_passed_over(town: SparkFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = Address(*listener.getsockname())
    (somebody,) = town.connection.addresses

    cluster = BlockingClusterClient(ConnectionOptions(addresses=(nobody, somebody)))
    assert cluster.any_connection().hello.node_id
    cluster.close()

    alone = BlockingClusterClient(ConnectionOptions(addresses=(nobody,), request_timeout_ms=100))
    with pytest.raises(ConnectError, match="is the broker running"):
        alone.topic_offsets(None, with_sizes=False)


def test_the_next_task_gets_the_connection_of_the_last_one(town: SparkFixture) -> None:
    close_idle()
    with borrowed(town.connection) as first:
        link = first.any_connection()
    with borrowed(town.connection) as second:
        assert second is first
        assert second.any_connection() is link


def test_two_at_a_time_get_one_each(town: SparkFixture) -> None:
    with borrowed(town.connection) as first, borrowed(town.connection) as second:
        assert first is not second


@pytest.mark.statement("s38")
def test_who_fails_with_an_answer_on_its_way_leaves_nothing_behind(town: SparkFixture) -> None:
    close_idle()

    def fail() -> None:
        with borrowed(town.connection) as cluster:
            cluster.any_connection().send(api.METADATA, MetadataRequest([]))
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail()
    with borrowed(town.connection) as cluster:
        assert cluster.topic_offsets(None, with_sizes=False) is not None


def test_a_journal_is_told_from_a_topic_by_its_name() -> None:
    assert queue_of(journal_of("orders")) == "orders"
    assert is_journal(journal_of("orders"))
    assert not is_journal("orders")


def test_what_is_not_there_is_named_as_people_name_it() -> None:
    topic, queue = not_there("orders"), not_there(journal_of("orders"))

    assert isinstance(topic, UnknownTopicError)
    assert str(topic) == "there is no topic 'orders'"
    assert isinstance(queue, UnknownQueueError)
    assert str(queue) == "there is no queue 'orders'"

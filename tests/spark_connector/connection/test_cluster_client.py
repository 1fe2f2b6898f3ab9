"""Tests of the blocking cluster client: metadata, offsets, retries, and the pool."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from time import perf_counter

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


def test_one_request_returns_the_offsets_of_every_partition(
    town: SparkFixture, cluster: BlockingClusterClient
) -> None:
    topic_id = town.create(3)
    town.write([b"a", b"b"], partition=1)

    (topic,) = cluster.topic_offsets([town.topic], with_sizes=False)

    assert topic.topic_id == topic_id
    assert topic.high_watermarks == [0, 2, 0]
    assert town.topic in [each.name for each in cluster.topic_offsets(None, with_sizes=False)]


def test_leaders_return_the_offsets_of_times(
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


def test_the_controller_is_found(cluster: BlockingClusterClient) -> None:
    assert cluster.call_controller(api.LIST_GROUPS, ListGroupsRequest()).groups == []


def test_a_lost_connection_is_opened_again(cluster: BlockingClusterClient) -> None:
    cluster.topic_offsets(None, with_sizes=False)
    cluster.any_connection().close()

    assert cluster.topic_offsets(None, with_sizes=False) is not None
    assert cluster.is_idle


def test_retriable_errors_are_retried_and_others_are_not(
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


def test_an_unreachable_bootstrap_address_is_skipped(town: SparkFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        unreachable = Address(*listener.getsockname())
    (reachable,) = town.connection.addresses

    cluster = BlockingClusterClient(ConnectionOptions(addresses=(unreachable, reachable)))
    assert cluster.any_connection().hello.node_id
    cluster.close()

    alone = BlockingClusterClient(
        ConnectionOptions(addresses=(unreachable,), request_timeout_ms=100)
    )
    with pytest.raises(ConnectError, match="is the broker running"):
        alone.topic_offsets(None, with_sizes=False)


def test_the_next_task_gets_the_connection_of_the_last_one(town: SparkFixture) -> None:
    close_idle()
    with borrowed(town.connection) as first:
        link = first.any_connection()
    with borrowed(town.connection) as second:
        assert second is first
        assert second.any_connection() is link


def test_concurrent_callers_get_a_client_each(town: SparkFixture) -> None:
    with borrowed(town.connection) as first, borrowed(town.connection) as second:
        assert first is not second


@pytest.mark.statement("s38")
def test_a_task_that_fails_with_a_request_in_flight_closes_its_connections(
    town: SparkFixture,
) -> None:
    close_idle()

    def fail() -> None:
        with borrowed(town.connection) as cluster:
            cluster.any_connection().send(api.METADATA, MetadataRequest([]))
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail()
    with borrowed(town.connection) as cluster:
        assert cluster.topic_offsets(None, with_sizes=False) is not None


def test_a_journal_differs_from_a_topic_by_its_name() -> None:
    assert queue_of(journal_of("orders")) == "orders"
    assert is_journal(journal_of("orders"))
    assert not is_journal("orders")


def test_the_error_of_a_missing_topic_or_queue_has_its_public_name() -> None:
    topic, queue = not_there("orders"), not_there(journal_of("orders"))

    assert isinstance(topic, UnknownTopicError)
    assert str(topic) == "there is no topic 'orders'"
    assert isinstance(queue, UnknownQueueError)
    assert str(queue) == "there is no queue 'orders'"


def unreachable_address() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return Address(*listener.getsockname())


def test_a_driver_gives_up_soon_if_no_broker_is_there() -> None:
    options = ConnectionOptions(
        addresses=(unreachable_address(), unreachable_address()), connect_timeout_ms=200
    )
    cluster = BlockingClusterClient(options)
    began = perf_counter()

    with pytest.raises(ConnectError, match=r"\A[^\n]*nothing listens there[^\n]*\Z"):
        cluster.reach()

    assert perf_counter() - began < options.request_timeout_ms / 1000


def silent_address(sockets: ExitStack) -> Address:
    """Return an address that drops what tries to connect, like that of a host that is down."""
    listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    for _ in range(3):  # They fill the backlog.
        filler = sockets.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
    return Address(*listener.getsockname())


def test_hosts_that_are_down_share_the_time_of_a_driver() -> None:
    with ExitStack() as sockets:
        addresses = tuple(silent_address(sockets) for _ in range(3))
        options = ConnectionOptions(addresses=addresses, connect_timeout_ms=900)
        cluster = BlockingClusterClient(options)
        began = perf_counter()

        with pytest.raises(ConnectError, match=r"\A[^\n]*\Z"):
            cluster.reach()

    assert perf_counter() - began < 3 * 0.9


def test_a_driver_waits_for_a_broker_that_accepts_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname())
        options = ConnectionOptions(addresses=(address,), connect_timeout_ms=50)

        BlockingClusterClient(options).reach()


def test_a_driver_that_has_a_connection_sends_nothing(
    town: SparkFixture, cluster: BlockingClusterClient
) -> None:
    del town
    cluster.reach()
    sent = cluster.sent_count

    cluster.reach()

    assert cluster.sent_count == sent

"""What a cluster says: where topics are, how far they go, and whom to ask again."""

import socket
from collections.abc import Iterator

import pytest

from tests.spark_connector.town import Town
from tidelog.client.cluster.address import Address
from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.connection.brokers import Brokers
from tidelog.spark_connector.options import ConnectionOptions
from tidelog.wire.errors import ConnectError, LeaderNotAvailableError, UnknownTopicError
from tidelog.wire.messages.groups import ListGroupsRequest
from tidelog.wire.messages.offset_ranges import OffsetQuery
from tidelog.wire.protocol import api


@pytest.fixture
def brokers(town: Town) -> Iterator[Brokers]:
    brokers = Brokers(town.connection)
    yield brokers
    brokers.close()


def test_one_call_tells_how_far_every_partition_goes(town: Town, brokers: Brokers) -> None:
    topic_id = town.create(3)
    town.write([b"a", b"b"], partition=1)

    (topic,) = brokers.topic_offsets([town.topic], with_sizes=False)

    assert topic.topic_id == topic_id
    assert topic.high_watermarks == [0, 2, 0]
    assert town.topic in [each.name for each in brokers.topic_offsets(None, with_sizes=False)]


def test_leaders_are_asked_where_offsets_are(town: Town, brokers: Brokers) -> None:
    topic_id = town.create()
    town.write_one(b"a", timestamp_ms=1000)
    town.write_one(b"b", timestamp_ms=3000)
    at = TopicPartition(town.topic, 0)

    def offset(time_ms: int) -> int | None:
        query = OffsetQuery(topic_id, 0, at_timestamp_ms=time_ms)
        found = brokers.list_offsets({at: query})[at]
        assert found.high_watermark == 2
        return found.offset

    assert [offset(time_ms) for time_ms in (1000, 2000, 4000)] == [0, 1, None]


def test_the_leader_of_a_partition_is_found(town: Town, brokers: Brokers) -> None:
    topic_id = town.create()

    assert brokers.leader_of(TopicPartition(town.topic, 0))[0] == topic_id
    with pytest.raises(LeaderNotAvailableError):
        brokers.leader_of(TopicPartition(town.topic, 7))
    with pytest.raises(UnknownTopicError):
        brokers.leader_of(TopicPartition("not-there", 0))


def test_the_one_that_decides_is_found(brokers: Brokers) -> None:
    assert brokers.call_controller(api.LIST_GROUPS, ListGroupsRequest()).groups == []


def test_a_connection_that_was_lost_is_made_anew(brokers: Brokers) -> None:
    brokers.topic_offsets(None, with_sizes=False)
    brokers.any_link().close()

    assert brokers.topic_offsets(None, with_sizes=False) is not None
    assert brokers.is_idle


def test_what_may_help_is_tried_again_and_what_may_not_is_not(brokers: Brokers) -> None:
    tries: list[int] = []

    def attempt() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise LeaderNotAvailableError("not yet")
        return "done"

    assert brokers.retry(attempt) == "done"
    tries.clear()

    def refuse() -> str:
        tries.append(1)
        raise UnknownTopicError("never")

    with pytest.raises(UnknownTopicError):
        brokers.retry(refuse)
    assert len(tries) == 1


def test_an_address_that_does_not_answer_is_passed_over(town: Town) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = Address(*listener.getsockname())
    (somebody,) = town.connection.addresses

    brokers = Brokers(ConnectionOptions(addresses=(nobody, somebody)))
    assert brokers.any_link().hello.node_id
    brokers.close()

    alone = Brokers(ConnectionOptions(addresses=(nobody,), request_timeout_ms=100))
    with pytest.raises(ConnectError, match="is the broker running"):
        alone.topic_offsets(None, with_sizes=False)

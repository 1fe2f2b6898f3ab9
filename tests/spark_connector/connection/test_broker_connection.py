"""One connection: what is asked is answered, and silence, refusal and strangers are told apart."""

import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.client.cluster.address import Address, parse_addresses
from tidelog.spark_connector.connection.broker_connection import BrokerConnection
from tidelog.spark_connector.options import ConnectionOptions
from tidelog.wire.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimedOutError,
    UnknownTopicError,
)
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.topics import DescribeTopicsRequest
from tidelog.wire.protocol import api

HANG_S = 300
"""A required limit that no answer reaches: the global limit of a test comes first."""


def options(timeout_ms: int = HANG_S * 1000) -> ConnectionOptions:
    return ConnectionOptions(addresses=(), connect_timeout_ms=timeout_ms)


@contextmanager
def stranger(answer: bytes | None) -> Generator[Address, None, None]:
    """Listen, and answer whoever connects; with `None` say nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                if answer is not None:
                    connection.sendall(answer)
                else:
                    connection.recv(1)

        thread = threading.Thread(target=run)
        thread.start()
        yield Address(*listener.getsockname())
        thread.join()


@pytest.fixture
def connection(town: SparkFixture) -> Iterator[BrokerConnection]:
    (address,) = parse_addresses(town.address)
    connection = BrokerConnection(address, options())
    yield connection
    connection.close()


def test_a_question_is_answered(connection: BrokerConnection) -> None:
    reply, _ = connection.call(api.METADATA, MetadataRequest([]), timeout_s=HANG_S)

    assert [broker.node_id for broker in reply.brokers] == [connection.hello.node_id]
    assert connection.is_idle


def test_a_refusal_is_raised_and_the_link_goes_on(connection: BrokerConnection) -> None:
    with pytest.raises(UnknownTopicError):
        connection.call(api.DESCRIBE_TOPICS, DescribeTopicsRequest(["not-there"]), timeout_s=HANG_S)

    assert connection.is_idle


def test_whoever_owes_an_answer_is_not_idle(connection: BrokerConnection) -> None:
    connection.send(api.METADATA, MetadataRequest([]))

    assert not connection.is_idle
    connection.receive(api.METADATA, timeout_s=HANG_S)
    assert connection.is_idle


def test_an_answer_that_does_not_come_in_time_closes_the_link(connection: BrokerConnection) -> None:
    connection.send(api.METADATA, MetadataRequest([]))

    with pytest.raises(RequestTimedOutError, match="did not answer METADATA"):
        connection.receive(api.METADATA, timeout_s=0)
    assert connection.is_closed


def test_a_closed_link_says_so(connection: BrokerConnection) -> None:
    connection.close()

    with pytest.raises(ConnectionLostError):
        connection.call(api.METADATA, MetadataRequest([]), timeout_s=HANG_S)


def test_nobody_there_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname())

    with pytest.raises(ConnectError, match="is the broker running"):
        BrokerConnection(address, options())


def test_a_stranger_is_told_by_its_first_words() -> None:
    with (
        stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(ConnectError, match="is this a tidelog broker"),
    ):
        BrokerConnection(address, options())


def test_a_silent_stranger_is_not_waited_for_for_ever() -> None:
    with stranger(None) as address, pytest.raises((ConnectError, RequestTimedOutError)):
        BrokerConnection(address, options(timeout_ms=50))

"""Tests of one connection: replies, errors, timeouts, and servers that are not brokers."""

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
"""Timeout in seconds that no reply reaches: the global timeout of a test is shorter."""


def options(timeout_ms: int = HANG_S * 1000) -> ConnectionOptions:
    return ConnectionOptions(addresses=(), connect_timeout_ms=timeout_ms)


@contextmanager
def stranger(answer: bytes | None) -> Generator[Address, None, None]:
    """Listen, and send `answer` to each client; with `None` stay silent."""
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


def test_a_request_gets_its_reply(connection: BrokerConnection) -> None:
    reply, _ = connection.call(api.METADATA, MetadataRequest([]), timeout_s=HANG_S)

    assert [broker.node_id for broker in reply.brokers] == [connection.hello.node_id]
    assert connection.is_idle


def test_a_broker_error_is_raised_and_the_connection_stays_usable(
    connection: BrokerConnection,
) -> None:
    with pytest.raises(UnknownTopicError):
        connection.call(api.DESCRIBE_TOPICS, DescribeTopicsRequest(["not-there"]), timeout_s=HANG_S)

    assert connection.is_idle


def test_a_connection_with_a_request_in_flight_is_not_idle(connection: BrokerConnection) -> None:
    connection.send(api.METADATA, MetadataRequest([]))

    assert not connection.is_idle
    connection.receive(api.METADATA, timeout_s=HANG_S)
    assert connection.is_idle


def test_a_request_timeout_closes_the_connection(connection: BrokerConnection) -> None:
    connection.send(api.METADATA, MetadataRequest([]))

    with pytest.raises(RequestTimedOutError, match="did not answer METADATA"):
        connection.receive(api.METADATA, timeout_s=0)
    assert connection.is_closed


def test_a_request_on_a_closed_connection_raises_connection_lost(
    connection: BrokerConnection,
) -> None:
    connection.close()

    with pytest.raises(ConnectionLostError):
        connection.call(api.METADATA, MetadataRequest([]), timeout_s=HANG_S)


def test_a_refused_connection_is_an_error_of_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname())

    with pytest.raises(ConnectError, match="is the broker running"):
        BrokerConnection(address, options())


def test_a_server_that_is_no_broker_is_detected_by_its_first_bytes() -> None:
    with (
        stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(ConnectError, match="the answer is that of an HTTP server"),
    ):
        BrokerConnection(address, options())


def test_a_silent_server_fails_the_connection_after_the_timeout() -> None:
    with stranger(None) as address, pytest.raises((ConnectError, RequestTimedOutError)):
        BrokerConnection(address, options(timeout_ms=50))

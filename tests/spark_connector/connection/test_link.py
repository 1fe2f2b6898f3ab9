"""One connection: what is asked is answered, and silence, refusal and strangers are told apart."""

import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from tests.spark_connector.town import Town
from tidelog.client.cluster.address import Address, parse_addresses
from tidelog.spark_connector.connection.link import Link
from tidelog.spark_connector.options import ConnectionOptions
from tidelog.wire.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimedOutError,
    UnknownTopicError,
)
from tidelog.wire.messages.session import MetadataRequest
from tidelog.wire.messages.topics import DescribeTopicsRequest
from tidelog.wire.protocol import api


def options(timeout_ms: int = 10_000) -> ConnectionOptions:
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
def link(town: Town) -> Iterator[Link]:
    (address,) = parse_addresses(town.address)
    link = Link(address, options())
    yield link
    link.close()


def test_a_question_is_answered(link: Link) -> None:
    reply, _ = link.call(api.METADATA, MetadataRequest([]), timeout_s=10)

    assert [broker.node_id for broker in reply.brokers] == [link.hello.node_id]
    assert link.is_idle


def test_a_refusal_is_raised_and_the_link_goes_on(link: Link) -> None:
    with pytest.raises(UnknownTopicError):
        link.call(api.DESCRIBE_TOPICS, DescribeTopicsRequest(["not-there"]), timeout_s=10)

    assert link.is_idle


def test_whoever_owes_an_answer_is_not_idle(link: Link) -> None:
    link.send(api.METADATA, MetadataRequest([]))

    assert not link.is_idle
    link.receive(api.METADATA, timeout_s=10)
    assert link.is_idle


def test_an_answer_that_does_not_come_in_time_closes_the_link(link: Link) -> None:
    link.send(api.METADATA, MetadataRequest([]))

    with pytest.raises(RequestTimedOutError, match="did not answer METADATA"):
        link.receive(api.METADATA, timeout_s=0)
    assert link.is_closed


def test_a_closed_link_says_so(link: Link) -> None:
    link.close()

    with pytest.raises(ConnectionLostError):
        link.call(api.METADATA, MetadataRequest([]), timeout_s=10)


def test_nobody_there_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname())

    with pytest.raises(ConnectError, match="is the broker running"):
        Link(address, options())


def test_a_stranger_is_told_by_its_first_words() -> None:
    with (
        stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(ConnectError, match="is this a tidelog broker"),
    ):
        Link(address, options())


def test_a_silent_stranger_is_not_waited_for_for_ever() -> None:
    with stranger(None) as address, pytest.raises((ConnectError, RequestTimedOutError)):
        Link(address, options(timeout_ms=50))

"""Opening a connection: the hello exchange, and one clear line if it fails."""

import errno
import os
import socket
from contextlib import AbstractAsyncContextManager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.wire.brokers import HELLO_REPLY, FakeBroker
from tests.wire.streams import FakeStream
from tidelog.wire.env.connect_errors import diagnose
from tidelog.wire.env.env import Listener, Stream
from tidelog.wire.errors import ConnectError, ConnectionLostError, NotLeaderError, WireFormatError
from tidelog.wire.transport.rpc import RpcConnection, connect_stream, open_rpc


class FakeNetwork:
    """A network that connects to a given stream, or fails with a given error."""

    def __init__(self, outcome: FakeStream | OSError) -> None:
        self._outcome = outcome

    async def listen(self, host: str, port: int) -> Listener:
        raise NotImplementedError

    async def connect(self, host: str, port: int) -> Stream:
        await trio.lowlevel.checkpoint()
        assert (host, port) == ("example", 8433)
        if isinstance(self._outcome, OSError):
            raise self._outcome
        return self._outcome


def open_to(stream: FakeStream) -> AbstractAsyncContextManager[RpcConnection]:
    return open_rpc(FakeNetwork(stream), "example", 8433, client_id="test", client_version="1")


async def answer_hello_soon(stream: FakeStream) -> None:
    await wait_all_tasks_blocked()
    FakeBroker(stream).answer_hello()


async def test_open_rpc_introduces_itself_and_closes(nursery: trio.Nursery) -> None:
    stream = FakeStream()
    nursery.start_soon(answer_hello_soon, stream)

    async with open_to(stream) as rpc:
        assert rpc.hello == HELLO_REPLY
        assert not stream.is_closed

    assert rpc.is_lost
    assert stream.is_closed


async def test_an_error_in_the_block_leaves_open_rpc_as_it_is(nursery: trio.Nursery) -> None:
    stream = FakeStream()
    nursery.start_soon(answer_hello_soon, stream)
    error = NotLeaderError("ask node 2")

    with pytest.raises(NotLeaderError) as caught:
        async with open_to(stream):
            raise error

    assert caught.value is error
    assert stream.is_closed


async def test_a_peer_that_closes_before_its_hello_is_a_lost_connection() -> None:
    stream = FakeStream()
    stream.feed_end()

    with pytest.raises(ConnectionLostError, match="peer:1 closed the connection"):
        async with open_to(stream):
            pytest.fail("the block must not be entered")

    assert stream.is_closed


async def test_a_peer_that_is_no_broker_is_a_wire_format_error() -> None:
    stream = FakeStream()
    stream.feed(b"220 mail.example.org ESMTP ready\r\n")

    with pytest.raises(WireFormatError, match="the bytes begin with b'220 mail'"):
        async with open_to(stream):
            pytest.fail("the block must not be entered")


async def test_open_rpc_can_be_cancelled_while_the_peer_is_silent(nursery: trio.Nursery) -> None:
    stream = FakeStream()
    scope = trio.CancelScope()

    async def open_and_wait() -> None:
        with scope:
            async with open_to(stream):
                pytest.fail("the block must not be entered")

    nursery.start_soon(open_and_wait)
    await wait_all_tasks_blocked()
    scope.cancel()
    await wait_all_tasks_blocked()

    assert scope.cancelled_caught
    assert stream.is_closed


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "what_failed", "what_to_try"),
    [
        (
            os_error(errno.ECONNREFUSED),
            "Connection refused",
            "nothing listens there; is the broker running (`tidelog serve`)?",
        ),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "Name or service not known",
            "the host name is not known; check its spelling and the name service",
        ),
        (
            os_error(errno.ETIMEDOUT),
            "Connection timed out",
            "no answer; check the address and any firewall between here and there",
        ),
        (
            os_error(errno.ENETUNREACH),
            "Network is unreachable",
            "check the address and the network",
        ),
        (OSError("something else"), "something else", "check the address and the network"),
    ],
    ids=["refused", "unknown name", "timed out", "unreachable", "other"],
)
async def test_a_connection_that_cannot_be_made_is_diagnosed_in_one_line(
    error: OSError, what_failed: str, what_to_try: str
) -> None:
    line = f"cannot connect to example:8433: {what_failed}; {what_to_try}"

    assert diagnose("example", 8433, error) == line
    with pytest.raises(ConnectError) as caught:
        await connect_stream(FakeNetwork(error), "example", 8433)
    assert str(caught.value) == line
    assert caught.value.__cause__ is error


def test_an_error_without_a_text_of_its_own_is_shown_as_it_is() -> None:
    assert diagnose("here", 1, TimeoutError("no answer")) == (
        "cannot connect to here:1: no answer;"
        " no answer; check the address and any firewall between here and there"
    )

"""Requests on one connection: replies in any order, and exactly one outcome for each."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.wire.brokers import HELLO_REPLY, METADATA_REPLY, FakeBroker
from tests.wire.streams import FakeStream
from tidelog.wire.errors import (
    ConnectionLostError,
    NotLeaderError,
    TidelogError,
    UnsupportedVersionError,
    WireFormatError,
)
from tidelog.wire.messages.fetch import FetchReply, FetchRequest, PartitionFetched
from tidelog.wire.messages.handshake import HelloRequest
from tidelog.wire.messages.metadata import MetadataReply, MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.frame import FrameKind, encode_frame
from tidelog.wire.transport.rpc import Outcome, RpcConnection

METADATA = MetadataRequest(None)
FETCH = FetchRequest(500, 1, 1000, [])


class Connected:
    """A running connection after the hellos; the test plays the broker."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.stream = FakeStream()
        self.rpc = RpcConnection(self.stream)
        self.broker = FakeBroker(self.stream)
        self.outcomes: list[object] = []

    async def start(self) -> None:
        self.nursery.start_soon(self.rpc.run)
        self.nursery.start_soon(self.rpc.introduce, "test", "1")
        await wait_all_tasks_blocked()
        self.broker.answer_hello()
        await wait_all_tasks_blocked()

    def take(self, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            self.outcomes.append(outcome)
        else:
            self.outcomes.append((outcome[0], bytes(outcome[1])))

    async def ask_metadata(self) -> None:
        """Send a request in a task of the test's nursery; keep the reply or error as an outcome."""
        try:
            reply = await self.rpc.ask(api.METADATA, METADATA)
        except TidelogError as error:
            self.outcomes.append(error)
        else:
            self.outcomes.append(reply)


@pytest.fixture
async def connected(nursery: trio.Nursery) -> Connected:
    connected = Connected(nursery)
    await connected.start()
    return connected


async def test_hellos_are_exchanged_first(nursery: trio.Nursery) -> None:
    connected = Connected(nursery)

    await connected.start()

    assert connected.broker.requests == [HelloRequest("test", "1")]
    assert connected.rpc.hello == HELLO_REPLY
    assert not connected.rpc.is_lost


async def test_a_reply_reaches_its_caller(connected: Connected) -> None:
    connected.nursery.start_soon(connected.ask_metadata)
    await wait_all_tasks_blocked()
    (correlation_id,) = connected.broker.read()
    assert connected.rpc.in_flight_count == 1

    connected.broker.answer_metadata(correlation_id)
    await wait_all_tasks_blocked()

    assert connected.outcomes == [METADATA_REPLY]
    assert connected.rpc.in_flight_count == 0


async def test_a_single_reply_costs_one_receive_call(connected: Connected) -> None:
    connected.rpc.submit(api.METADATA, METADATA, connected.take)
    (correlation_id,) = connected.broker.read()
    before = connected.stream.receive_count

    connected.broker.answer_metadata(correlation_id)
    await wait_all_tasks_blocked()

    assert connected.outcomes == [(METADATA_REPLY, b"")]
    assert connected.stream.receive_count == before + 1


async def test_replies_of_several_reads_are_taken_in_one_turn(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2000
    for _ in range(count):
        connected.rpc.submit(api.METADATA, METADATA, connected.take)
    correlation_ids = connected.broker.read()
    wait_readable, before = connected.stream.wait_readable, connected.stream.receive_count
    waits: list[int] = []

    async def wait() -> None:
        waits.append(len(connected.outcomes))
        await wait_readable()

    monkeypatch.setattr(connected.stream, "wait_readable", wait)
    for correlation_id in correlation_ids:
        connected.broker.answer_metadata(correlation_id)
    await wait_all_tasks_blocked()

    assert waits == [count]
    assert connected.stream.receive_count > before + 1


async def test_replies_may_come_in_any_order_and_in_pieces(connected: Connected) -> None:
    connected.rpc.submit(api.METADATA, METADATA, connected.take)
    connected.rpc.submit(api.FETCH, FETCH, connected.take)
    first, second = connected.broker.read()
    fetched = FetchReply([PartitionFetched(7, 10, 0)])
    replies = (
        api.FETCH.encode_reply(fetched, version=1, correlation_id=second, attachment_length=7)
        + b"batches"
        + api.METADATA.encode_reply(METADATA_REPLY, version=1, correlation_id=first)
    )

    for at in range(len(replies)):
        connected.stream.feed(replies[at : at + 1])
        await wait_all_tasks_blocked()

    assert connected.outcomes == [(fetched, b"batches"), (METADATA_REPLY, b"")]


async def test_requests_leave_in_the_order_of_submission(connected: Connected) -> None:
    for name in ("a", "b", "c"):
        connected.rpc.submit(api.METADATA, MetadataRequest([name]), connected.take)

    connected.broker.read()

    assert connected.broker.requests[1:] == [MetadataRequest([name]) for name in ("a", "b", "c")]


async def test_attachments_follow_their_request(connected: Connected) -> None:
    start = len(connected.stream.sent)

    connected.rpc.submit(
        api.FETCH, FETCH, None, attachment=[b"one", bytearray(b""), memoryview(b"two")]
    )
    connected.rpc.submit(api.METADATA, METADATA, None)

    assert b"onetwo" in connected.stream.sent[start:]
    connected.broker.read()
    assert connected.broker.requests[1:] == [FETCH, METADATA]
    assert connected.rpc.in_flight_count == 0


async def test_a_refused_request_raises_the_broker_error(connected: Connected) -> None:
    connected.nursery.start_soon(connected.ask_metadata)
    await wait_all_tasks_blocked()
    (correlation_id,) = connected.broker.read()

    connected.stream.feed(
        api.encode_error(
            NotLeaderError("ask node 2").to_wire(),
            api_key=1,
            api_version=1,
            correlation_id=correlation_id,
        )
    )
    await wait_all_tasks_blocked()

    (error,) = connected.outcomes
    assert isinstance(error, NotLeaderError)
    assert not connected.rpc.is_lost


async def test_take_sees_the_attachment_while_it_is_valid(connected: Connected) -> None:
    results: list[bytes] = []

    async def fetch() -> None:
        results.append(
            await connected.rpc.call(api.FETCH, FETCH, take=lambda _, attachment: bytes(attachment))
        )

    connected.nursery.start_soon(fetch)
    await wait_all_tasks_blocked()
    (correlation_id,) = connected.broker.read()
    connected.stream.feed(
        api.FETCH.encode_reply(
            FetchReply([]), version=1, correlation_id=correlation_id, attachment_length=4
        )
        + b"data"
    )
    await wait_all_tasks_blocked()

    assert results == [b"data"]


async def test_a_reply_that_take_rejects_fails_only_its_call(connected: Connected) -> None:
    def refuse(_reply: MetadataReply, _attachment: memoryview) -> None:
        raise WireFormatError("this makes no sense")

    async def ask() -> None:
        with pytest.raises(WireFormatError, match="this makes no sense"):
            await connected.rpc.call(api.METADATA, METADATA, take=refuse)
        connected.outcomes.append("refused")

    connected.nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    (correlation_id,) = connected.broker.read()
    connected.broker.answer_metadata(correlation_id)
    await wait_all_tasks_blocked()

    assert connected.outcomes == ["refused"]
    assert not connected.rpc.is_lost


async def test_a_wrong_reply_names_the_peer_and_the_api_to_all_callers(
    connected: Connected,
) -> None:
    connected.rpc.submit(api.METADATA, METADATA, connected.take)
    connected.rpc.submit(api.FETCH, FETCH, connected.take)
    first, _ = connected.broker.read()

    connected.stream.feed(
        encode_frame(
            FrameKind.REPLY,
            api_key=api.METADATA.key,
            api_version=1,
            correlation_id=first,
            header=b"\x07",
        )
    )
    await wait_all_tasks_blocked()

    text = (
        f"{connected.stream.peer} sent a wrong reply to METADATA: a message cannot be decoded:"
        " Expected `array`, got `int`; check that a broker of a supported version has this address"
    )
    assert [str(each) for each in connected.outcomes] == [text, text]
    assert str(connected.rpc.wrong_reply) == text
    assert connected.rpc.suspects == [api.METADATA.key]


async def test_a_reply_that_its_caller_rejects_ends_the_connection(connected: Connected) -> None:
    connected.rpc.submit(api.METADATA, METADATA, connected.take)

    error = connected.rpc.reject(api.FETCH, "2 results for 1 partition")

    assert "sent a wrong reply to FETCH: 2 results for 1 partition; check" in str(error)
    assert [str(each) for each in connected.outcomes] == [str(error)]
    assert connected.rpc.suspects == [api.FETCH.key]
    connected.rpc.reject(api.METADATA, "too late")
    assert connected.rpc.suspects == [api.FETCH.key]


async def test_a_lost_connection_has_no_wrong_reply(connected: Connected) -> None:
    connected.rpc.close()

    assert connected.rpc.is_lost
    assert connected.rpc.wrong_reply is None


async def test_replies_that_are_understood_are_reported(connected: Connected) -> None:
    understood: list[api.ApiKey] = []

    def reject(_: Outcome) -> None:
        connected.rpc.reject(api.METADATA, "no")

    connected.rpc.on_understood = understood.append
    connected.rpc.submit(api.METADATA, METADATA, connected.take)
    connected.rpc.submit(api.METADATA, METADATA, reject)
    first, second = connected.broker.read()

    connected.broker.answer_metadata(first)
    await wait_all_tasks_blocked()
    assert understood == [api.METADATA.key]

    connected.broker.answer_metadata(second)
    await wait_all_tasks_blocked()
    assert understood == [api.METADATA.key]
    assert connected.outcomes == [(METADATA_REPLY, b"")]


async def test_take_is_not_called_for_an_error(connected: Connected) -> None:
    def take(_reply: MetadataReply, _attachment: memoryview) -> None:
        pytest.fail("there is no reply to take")

    async def ask() -> None:
        with pytest.raises(NotLeaderError):
            await connected.rpc.call(api.METADATA, METADATA, take=take)
        connected.outcomes.append("refused")

    connected.nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    (correlation_id,) = connected.broker.read()
    connected.stream.feed(
        api.encode_error(
            NotLeaderError("ask node 2").to_wire(),
            api_key=1,
            api_version=1,
            correlation_id=correlation_id,
        )
    )
    await wait_all_tasks_blocked()

    assert connected.outcomes == ["refused"]


async def test_a_cancelled_call_drops_its_reply_and_no_other(connected: Connected) -> None:
    with trio.move_on_after(0):
        await connected.rpc.ask(api.METADATA, METADATA)
    connected.nursery.start_soon(connected.ask_metadata)
    await wait_all_tasks_blocked()
    cancelled, asked = connected.broker.read()
    assert connected.rpc.in_flight_count == 2

    connected.broker.answer_metadata(cancelled)
    connected.broker.answer_metadata(asked)
    await wait_all_tasks_blocked()

    assert connected.outcomes == [METADATA_REPLY]
    assert connected.rpc.in_flight_count == 0


async def test_an_api_that_is_not_offered_fails_without_being_sent(nursery: trio.Nursery) -> None:
    connected = Connected(nursery)

    connected.rpc.submit(api.METADATA, METADATA, connected.take)
    connected.rpc.submit(api.METADATA, METADATA, None)

    (error,) = connected.outcomes
    assert isinstance(error, UnsupportedVersionError)
    assert connected.stream.sent == b""


# The connection is lost


def break_by_end(stream: FakeStream) -> None:
    stream.feed_end()


def break_in_a_reply(stream: FakeStream) -> None:
    stream.feed(api.METADATA.encode_reply(METADATA_REPLY, version=1, correlation_id=1)[:-1])
    stream.feed_end()


def break_by_failure(stream: FakeStream) -> None:
    stream.fail("Connection reset by peer")


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (break_by_end, "peer:1 closed the connection"),
        (break_in_a_reply, "peer:1 closed the connection"),
        (break_by_failure, "connection to peer:1: Connection reset by peer"),
    ],
)
async def test_a_lost_connection_fails_everything_that_is_open(
    connected: Connected, break_it: Callable[[FakeStream], None], why: str
) -> None:
    connected.rpc.submit(api.METADATA, METADATA, connected.take)
    connected.nursery.start_soon(connected.ask_metadata)
    await wait_all_tasks_blocked()

    break_it(connected.stream)
    await wait_all_tasks_blocked()

    assert [str(outcome) for outcome in connected.outcomes] == [why, why]
    assert all(isinstance(outcome, ConnectionLostError) for outcome in connected.outcomes)
    assert connected.rpc.is_lost
    assert connected.rpc.in_flight_count == 0
    assert connected.stream.is_closed


async def test_a_lost_connection_takes_no_more_requests(connected: Connected) -> None:
    connected.stream.feed_end()
    await wait_all_tasks_blocked()

    connected.rpc.submit(api.METADATA, METADATA, connected.take)
    connected.rpc.submit(api.METADATA, METADATA, None)

    (error,) = connected.outcomes
    assert isinstance(error, ConnectionLostError)
    with pytest.raises(ConnectionLostError, match="peer:1 closed the connection"):
        await connected.rpc.ask(api.METADATA, METADATA)


async def test_each_caller_of_a_lost_connection_gets_its_own_error(
    connected: Connected,
) -> None:
    for _ in range(2):
        connected.rpc.submit(api.METADATA, METADATA, connected.take)
    connected.stream.feed_end()
    await wait_all_tasks_blocked()
    lengths: list[int] = []
    for _ in range(3):
        with pytest.raises(ConnectionLostError) as told:
            await connected.rpc.ask(api.METADATA, METADATA)
        lengths.append(len(told.traceback))

    assert len(set(lengths)) == 1, "a shared traceback grows"
    first, second = connected.outcomes
    assert first is not second


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        api.METADATA.encode_reply(METADATA_REPLY, version=1, correlation_id=77),
        api.METADATA.encode_request(METADATA, version=1, correlation_id=1),
    ],
    ids=["HTTP", "an unrequested reply", "a request"],
)
async def test_a_peer_that_breaks_the_protocol_loses_the_connection(
    connected: Connected, garbage: bytes
) -> None:
    connected.rpc.submit(api.METADATA, METADATA, connected.take)

    connected.stream.feed(garbage)
    await wait_all_tasks_blocked()

    (error,) = connected.outcomes
    assert isinstance(error, WireFormatError)
    assert connected.rpc.is_lost
    assert connected.stream.is_closed


async def test_running_ends_with_the_connection() -> None:
    stream = FakeStream()
    rpc = RpcConnection(stream)
    stream.feed_end()

    await rpc.run()

    assert rpc.is_lost


async def test_a_connection_that_runs_no_longer_fails_everything_that_is_open() -> None:
    rpc = RpcConnection(FakeStream())
    outcomes: list[Outcome] = []
    rpc.submit(api.HELLO, HelloRequest("test", "1"), outcomes.append)

    with trio.move_on_after(0):
        await rpc.run()

    assert [str(outcome) for outcome in outcomes] == ["connection to peer:1 was closed"]


async def test_closing_fails_everything_that_is_open(connected: Connected) -> None:
    connected.rpc.submit(api.METADATA, METADATA, connected.take)

    connected.rpc.close()
    connected.rpc.close()
    await wait_all_tasks_blocked()

    assert [str(outcome) for outcome in connected.outcomes] == ["connection to peer:1 was closed"]


@pytest.mark.parametrize("count", [2, 2000], ids=["a few", "more than is received at once"])
async def test_a_callback_may_close_the_connection(connected: Connected, count: int) -> None:
    def take_and_close(outcome: Outcome) -> None:
        connected.take(outcome)
        connected.rpc.close()

    connected.rpc.submit(api.METADATA, METADATA, take_and_close)
    for _ in range(1, count):
        connected.rpc.submit(api.METADATA, METADATA, connected.take)
    replies = [
        api.METADATA.encode_reply(METADATA_REPLY, version=1, correlation_id=each)
        for each in connected.broker.read()
    ]

    connected.stream.feed(b"".join(replies))  # All arrive before the first callback.
    await wait_all_tasks_blocked()

    answered, *lost = connected.outcomes
    assert answered == (METADATA_REPLY, b"")
    assert [type(each) for each in lost] == [ConnectionLostError] * (count - 1)


async def test_a_connection_that_breaks_while_sending_is_lost(nursery: trio.Nursery) -> None:
    stream = FakeStream(allowance=10)
    connected = Connected(nursery)
    connected.stream, connected.rpc = stream, RpcConnection(stream)
    nursery.start_soon(connected.rpc.run)
    connected.rpc.submit(api.HELLO, HelloRequest("test", "1"), connected.take)
    await wait_all_tasks_blocked()
    assert len(stream.sent) == 10

    stream.fail("Broken pipe")
    await wait_all_tasks_blocked()

    (error,) = connected.outcomes
    assert isinstance(error, ConnectionLostError)
    assert connected.rpc.is_lost
    await connected.rpc.wait_sent(0)


async def test_wait_sent_bounds_the_write_buffer(nursery: trio.Nursery) -> None:
    stream = FakeStream(allowance=0)
    rpc = RpcConnection(stream)
    nursery.start_soon(rpc.run)
    rpc.submit(api.HELLO, HelloRequest("test", "1"), None, attachment=[bytes(1000)])
    waited: list[int] = []

    async def wait(limit: int) -> None:
        await rpc.wait_sent(limit)
        waited.append(limit)

    nursery.start_soon(wait, 500)
    await wait_all_tasks_blocked()
    assert waited == []
    stream.allow(600)
    await wait_all_tasks_blocked()

    assert waited == [500]
    rpc.close()


async def test_closing_ends_wait_sent(nursery: trio.Nursery) -> None:
    stream = FakeStream(allowance=0)
    rpc = RpcConnection(stream)
    nursery.start_soon(rpc.run)
    rpc.submit(api.HELLO, HelloRequest("test", "1"), None, attachment=[bytes(1000)])
    nursery.start_soon(rpc.wait_sent, 0)
    await wait_all_tasks_blocked()

    rpc.close()

    await rpc.wait_sent(0)

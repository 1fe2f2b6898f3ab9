"""Tests of one connection: bad input, bad timing, and the state after its end."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import struct

import pytest
from crc32c import crc32c
from trio.testing import MockClock

from tests.broker.broker_requests import (
    FOR_EVER_MS,
    batch_of,
    create_topic,
    fetch,
    fetch_all,
    produce,
)
from tests.broker.raw_client import produce_frame
from tests.broker.world import World, settle
from tidelog.broker.server import Broker
from tidelog.wire.errors import InvalidRequestError, UnexpectedServerError
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.handshake import HelloRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.frame import FrameKind, encode_frame

MiB = 1 << 20
HELLO = api.HELLO.encode_request(HelloRequest("test", "0"), version=1, correlation_id=0)
METADATA = api.METADATA.encode_request(MetadataRequest(None), version=1, correlation_id=1)


def frame(**fields: int) -> bytes:
    """Return a frame of an unknown API, version or kind, with right checksums."""
    return encode_frame(
        FrameKind(fields.get("kind", FrameKind.REQUEST)),
        api_key=fields.get("api_key", 1),
        api_version=fields.get("api_version", 1),
        correlation_id=7,
        header=b"\x91\xc0",
    )


def is_empty(broker: Broker) -> bool:
    """Return whether a broker holds nothing for clients."""
    held = broker.statistics()
    return (
        held.connection_count
        == held.waiting_count
        == held.waiter_count
        == held.queued_max_request_bytes
        == 0
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "b'GET / HT'"),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(30),
            "the client speaks TLS, this broker does",
        ),
        (bytes(64), "not a tidelog frame"),
        (b"\xff" * 64, "a frame of 4294967295 bytes is announced"),
        (METADATA, "the first request on a connection must be a hello"),
        (HELLO + frame(kind=FrameKind.REPLY), "a client sent a reply frame"),
        (HELLO[:-1] + b"\x00", "does not match its CRC-32C"),
    ],
)
async def test_a_client_that_breaks_the_protocol_is_disconnected_and_others_are_served(
    data: bytes, reason: str, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker:
        async with world.client() as bystander:
            topic = await create_topic(bystander)
            stranger = await world.raw_client()

            await stranger.send(data)
            await settle()

            assert stranger.is_turned_away()
            (refused,) = world.told("connection_refused")
            assert reason in str(refused["reason"])
            await produce(bystander, topic, batch_of(b"a"))
        await settle()
        assert is_empty(broker)


async def test_every_truncation_of_a_request_leaves_no_state(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker:
        async with world.client() as helper:
            topic = await create_topic(helper)
        asking = await world.raw_client()
        await asking.introduce()
        stream = HELLO + METADATA + produce_frame(asking, topic, batch_of(b"a"))
        for length in range(len(stream)):
            client = await world.raw_client()
            await client.send(stream[:length])
            await settle()
            client.stream.close()
        await settle()

        asking.stream.close()
        await settle()
        assert is_empty(broker)
        async with world.client() as reader:
            assert await fetch_all(reader, topic) == []


async def test_a_single_request_costs_one_receive_call(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker():
        client = await world.raw_client()
        await client.introduce()
        before = client.stream.peer_receive_count

        await client.send(client.request(api.METADATA, MetadataRequest(None)))
        await client.replies(1)
        await settle()

        assert client.stream.peer_receive_count == before + 1


async def test_the_end_of_a_turn_comes_before_its_replies_are_sent(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker:
        client = await world.raw_client()
        await client.introduce()
        (connection,) = broker._acceptor.connections
        unsent: list[bool] = []
        broker._dispatcher.end_turn = lambda: unsent.append(
            connection.write_buffer.pending_bytes > 0
        )

        request = client.request(api.HELLO, HelloRequest("again", "0"))
        await client.send(request + client.request(api.HELLO, HelloRequest("again", "0")))
        await client.replies(2)

        assert unsent == [True], "one end of the turn of two requests"


async def test_a_request_may_arrive_byte_by_byte(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as helper:
        topic = await create_topic(helper)
        client = await world.raw_client()
        await client.introduce()

        for byte in produce_frame(client, topic, batch_of(b"a")):
            await client.send(bytes([byte]))
            await settle()

        await client.replies(1)
        assert (await fetch(helper, topic)).values == [b"a"]


async def test_replies_may_be_read_byte_by_byte(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    world.network.buffer_bytes = 1
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a" * 100))

        assert (await fetch(client, topic)).values == [b"a" * 100]


async def test_an_unknown_api_is_refused_and_the_connection_continues(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker():
        client = await world.raw_client()
        await client.introduce()

        # The replies are errors for requests that this client did not send, so compare bytes.
        await client.send(frame(api_key=99) + frame(api_version=9))
        await settle()
        answers = bytearray(4096)
        count = client.stream.receive_nowait(memoryview(answers))

        assert count is not None
        assert b"API 99 is unknown" in answers
        assert b"version 9 of METADATA is not supported" in answers
        assert b"this broker supports versions 1 to 4" in answers
        await client.send(client.request(api.METADATA, MetadataRequest(None)))
        await client.replies(1)
        assert len(world.told("request_refused")) == 1, "the log has one line for each minute"


async def test_a_malformed_message_is_refused_and_the_connection_continues(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        wrong = MetadataRequest(7)  # type: ignore[arg-type]

        with pytest.raises(InvalidRequestError, match="METADATA: a message cannot be decoded"):
            await client.ask(api.METADATA, wrong)

        assert (await client.ask(api.METADATA, MetadataRequest(None))).topics == []


async def test_a_frame_above_the_limit_takes_no_memory(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(socket_request_max_bytes=2 * MiB) as broker:
        client = await world.raw_client()
        await client.introduce()
        prefix = struct.pack("<IIBBHHHI", 2 * MiB + 1, 0, 1, 0, 8, 1, 0, 10)

        await client.send(prefix + struct.pack("<I", crc32c(prefix)))
        await settle()

        assert client.is_turned_away()
        assert is_empty(broker)
        assert "the limit is 2097152" in str(world.told("connection_refused")[0]["reason"])


async def test_half_a_frame_and_then_silence_ends_the_connection(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(stalled_request_timeout_ms=10_000) as broker, world.client() as helper:
        topic = await create_topic(helper, max_message_bytes="4MiB")
        client = await world.raw_client()
        await client.introduce()
        request = produce_frame(client, topic, batch_of(bytes(3 * MiB)))
        await client.send(request[:MiB])
        await settle()
        assert broker.statistics().queued_max_request_bytes >= 3 * MiB

        await world.pass_time(9)
        assert not client.is_turned_away()
        await world.pass_time(12)

        assert client.is_turned_away()
        assert broker.statistics().queued_max_request_bytes == 0
        assert broker.statistics().connection_count == 1
        (refused,) = world.told("connection_refused")
        assert refused["reason"] == "received half a frame, and then nothing"


async def test_a_connection_without_a_hello_ends_after_ten_seconds(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker:
        silent, busy = await world.raw_client(), await world.raw_client()
        for position in range(8):
            await busy.send(HELLO[position : position + 1])  # A byte each second is never silence.
            await world.pass_time(1)
        assert not silent.is_turned_away()
        assert not busy.is_turned_away()

        await world.pass_time(10)

        assert silent.is_turned_away()
        assert busy.is_turned_away()
        assert broker.statistics().connection_count == 0


@pytest.mark.parametrize("length", [8193, 1 << 20, 16 << 20])
async def test_an_announced_length_before_the_hello_takes_no_memory(
    length: int, mock_clock: MockClock
) -> None:
    """Otherwise forty connections with 24 bytes each keep the memory of honest requests."""
    world = World(mock_clock)
    async with world.broker() as broker:
        strangers = [await world.raw_client() for _ in range(40)]
        prefix = struct.pack("<IIBBHHHI", length, 0, 1, 0, 8, 1, 0, 10)

        for stranger in strangers:
            await stranger.send(prefix + struct.pack("<I", crc32c(prefix)))
        await settle()

        assert all(stranger.is_turned_away() for stranger in strangers)
        assert is_empty(broker)


async def test_memory_is_lent_as_bytes_arrive(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as honest:
        topic = await create_topic(honest, max_message_bytes="15MiB")
        large = batch_of(bytes(14 * MiB))
        clients = [await world.raw_client() for _ in range(40)]
        for client in clients:
            await client.introduce()
            await client.send(produce_frame(client, topic, large)[:20_000])
        await settle()

        assert broker.statistics().queued_max_request_bytes <= 40 * 4 * 20_000
        await produce(honest, topic, large)
        assert not any(client.is_turned_away() for client in clients)


async def test_a_frame_that_arrives_too_slowly_ends_the_connection(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(stalled_request_timeout_ms=10_000), world.client() as helper:
        topic = await create_topic(helper)
        slow = await world.raw_client()
        await slow.introduce()
        request = produce_frame(slow, topic, batch_of(bytes(500_000)))

        sent = 0
        while not slow.is_turned_away() and sent < 30_000:
            sent += slow.send_nowait(request[sent : sent + 1000])
            await settle()
            await world.pass_time(1)

        assert 10_000 <= sent <= 17_000
        (refused,) = world.told("connection_refused")
        assert "bytes of a frame in" in str(refused["reason"])


async def test_an_idle_connection_stays_open(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(stalled_request_timeout_ms=1000) as broker, world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(bytes(500_000)))
        assert broker.statistics().queued_max_request_bytes > 0

        for _ in range(60):
            await world.pass_time(10)

        assert broker.statistics().queued_max_request_bytes == 0
        await produce(client, topic, batch_of(b"after ten minutes"))


async def test_a_jump_of_the_wall_clock_ends_no_connection(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as helper:
        topic = await create_topic(helper)
        client = await world.raw_client()
        await client.introduce()
        request = produce_frame(client, topic, batch_of(b"a"))
        await client.send(request[:50])
        await settle()

        world.clock.offset_ms += 3_600_000
        await world.pass_time(6)
        await client.send(request[50:])

        await client.replies(1)


async def test_a_client_that_waits_for_the_broker_is_not_stalled(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with (
        world.broker(max_in_flight_requests_per_connection=1, stalled_request_timeout_ms=1000),
        world.client() as helper,
    ):
        topic = await create_topic(helper)
        client = await world.raw_client()
        await client.introduce()
        request = FetchRequest(FOR_EVER_MS, 1, MiB, [PartitionFetch(topic, 0, 0, MiB)])
        metadata = client.request(api.METADATA, MetadataRequest(None))
        # The broker reads on only when the first is answered, which takes half a minute.
        await client.send(client.request(api.FETCH, request) + metadata[:10])
        for _ in range(30):
            await world.pass_time(1)
        await produce(helper, topic, batch_of(b"a"))
        await settle()

        await client.send(metadata[10:])

        assert len(await client.replies(2)) == 2


async def test_requests_in_flight_of_a_connection_are_limited(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with (
        world.broker(max_in_flight_requests_per_connection=5) as broker,
        world.client() as helper,
    ):
        topic = await create_topic(helper)
        client = await world.raw_client()
        await client.introduce()
        request = FetchRequest(1000, 1, MiB, [PartitionFetch(topic, 0, 0, MiB)])

        await client.send(b"".join(client.request(api.FETCH, request) for _ in range(12)))
        await settle()

        assert broker.statistics().waiting_count == 5
        await world.pass_time(1.1)
        assert broker.statistics().waiting_count == 5
        assert len(client.replies_nowait()) == 5
        await world.pass_time(1.1)
        await world.pass_time(1.1)
        assert len(client.replies_nowait()) == 7


async def test_a_thousand_long_polls_of_one_client_do_not_block_others(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as helper:
        topic = await create_topic(helper)
        client = await world.raw_client()
        await client.introduce()
        poll = FetchRequest(FOR_EVER_MS, 1, MiB, [PartitionFetch(topic, 0, 0, MiB)])

        await client.send(b"".join(client.request(api.FETCH, poll) for _ in range(1000)))
        await client.send(client.request(api.METADATA, MetadataRequest(None)))

        assert len(await client.replies(1)) == 1
        assert broker.statistics().waiting_count == 1000


async def test_requests_of_a_client_that_reads_no_replies_are_not_read(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with (
        world.broker(max_queued_response_bytes=1 << 16) as broker,
        world.client() as bystander,
    ):
        topic = await create_topic(bystander)
        await produce(bystander, topic, batch_of(bytes(40_000)))
        deaf = await world.raw_client()
        await deaf.introduce()
        deaf.stream.set_receive_buffer(1000)
        request = FetchRequest(0, 1, MiB, [PartitionFetch(topic, 0, 0, MiB)])

        await deaf.send(b"".join(deaf.request(api.FETCH, request) for _ in range(50)))
        await settle()

        # Other clients are served; and all replies arrive when this one reads again.
        assert len((await fetch(bystander, topic)).records) == 1
        assert broker.statistics().connection_count == 2
        assert len(await deaf.replies(50)) == 50


async def test_a_lost_client_leaves_no_state(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as helper:
        topic = await create_topic(helper, partitions=2, max_message_bytes="4MiB")
        before = broker.statistics()
        world.work.hold_syncs()
        waiting = FetchRequest(FOR_EVER_MS, 1, MiB, [PartitionFetch(topic, 1, 0, MiB)])
        for is_reset in (False, True):
            client = await world.raw_client()
            await client.introduce()
            large = produce_frame(client, topic, batch_of(bytes(3 * MiB)))
            await client.send(
                client.request(api.FETCH, waiting) * 3
                + produce_frame(client, topic, batch_of(b"a"))
                + large[: 2 * MiB]
            )
            await settle()
            assert broker.statistics().queued_max_request_bytes > 3 * MiB
            assert broker.statistics().waiting_count >= 4

            (client.stream.reset if is_reset else client.stream.close)()
            await settle()

        world.work.let_all_sync()
        await settle()
        assert broker.statistics() == before
        # Requests that were received completely were carried out, although the client is gone.
        assert [record.value for record in await fetch_all(helper, topic)] == [b"a", b"a"]


async def test_a_client_lost_during_its_reply_leaves_no_state(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    world.network.buffer_bytes = 1000
    async with world.broker() as broker, world.client() as helper:
        topic = await create_topic(helper)
        await produce(helper, topic, batch_of(bytes(100_000)))
        for is_reset in (False, True):
            client = await world.raw_client()
            await client.introduce()
            request = FetchRequest(0, 1, MiB, [PartitionFetch(topic, 0, 0, MiB)])
            await client.send(client.request(api.FETCH, request))
            await settle()

            (client.stream.reset if is_reset else client.stream.close)()
            await settle()

            assert broker.statistics().connection_count == 1


async def test_a_defect_is_answered_logged_and_affects_no_other_client(
    mock_clock: MockClock, defects: list[str]
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a"))
        world.clock.defect = ZeroDivisionError("the clock is broken")

        with pytest.raises(UnexpectedServerError, match="failed unexpectedly"):
            await produce(client, topic, batch_of(b"b"))

        world.clock.defect = None
        assert "the clock is broken" in defects.pop()
        assert (await fetch(client, topic)).values == [b"a"]

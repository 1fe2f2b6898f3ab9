"""Tests of the memory budget of connections: waits, reclaims and stalled senders."""

import trio
from trio.testing import MockClock

from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    fetch_all,
    produce,
    submit_produce,
)
from tests.broker.raw_client import RawClient, produce_frame
from tests.broker.world import World, settle
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.produce import ProduceReply
from tidelog.wire.protocol import api

MiB = 1 << 20
LITTLE_MEMORY = {"socket_request_max_bytes": 2 * MiB, "queued_max_request_bytes": 4 * MiB}
"""Memory for two large frames, and not for a third one."""
IMPATIENT = {**LITTLE_MEMORY, "stalled_request_timeout_ms": 10_000}
LARGE = batch_of(bytes(1_400_000))


async def introduced_clients(world: World, count: int) -> list[RawClient]:
    """Return connections after their HELLO."""
    clients = [await world.raw_client() for _ in range(count)]
    for client in clients:
        await client.introduce()
    return clients


def large_frame(client: RawClient, topic: bytes) -> bytes:
    """Return a request to produce a large batch."""
    return produce_frame(client, topic, LARGE)


async def test_large_frames_take_turns_when_memory_is_short_and_all_finish(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(**LITTLE_MEMORY) as broker, world.client() as helper:
        topic = await create_topic(helper, max_message_bytes="1500KiB", durability="replicated")
        peak_bytes = 0

        async def send() -> None:
            nonlocal peak_bytes
            async with world.client() as client:
                # A small one first: its memory must not block the large ones.
                for size in (300_000, 1_400_000, 700_000, 1_400_000):
                    await produce(client, topic, batch_of(bytes(size)))
                    peak_bytes = max(peak_bytes, broker.statistics().queued_max_request_bytes)

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(send)

        assert len(await fetch_all(helper, topic)) == 120
        assert 1_400_000 < peak_bytes <= 4 * MiB
    await settle()


async def test_clients_that_hold_memory_and_want_more_do_not_deadlock(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(**LITTLE_MEMORY) as broker, world.client() as helper:
        topic = await create_topic(helper, max_message_bytes="1900KiB")
        clients = await introduced_clients(world, 3)
        large = [produce_frame(each, topic, batch_of(bytes(1_900_000))) for each in clients]
        for client, request in zip(clients, large, strict=True):
            await client.send(request[:250_000])
        await settle()
        # Each of them needs more, and the budget cannot hold all three.
        assert broker.statistics().queued_max_request_bytes >= 3 * 250_000

        async with trio.open_nursery() as nursery:
            for client, request in zip(clients, large, strict=True):
                nursery.start_soon(client.send, request[250_000:])

        for client in clients:
            await client.replies(1)


async def test_memory_of_idle_clients_is_reclaimed_at_once(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(**LITTLE_MEMORY) as broker, world.client() as helper:
        topic = await create_topic(helper, max_message_bytes="1500KiB")
        async with world.client() as one, world.client() as two, world.client() as three:
            for client in (one, two, three):
                await produce(client, topic, batch_of(bytes(1_400_000)))

            # The clock stands still, so no client has waited.
            assert broker.statistics().queued_max_request_bytes <= 4 * MiB


async def test_clients_that_never_pause_take_turns_with_waiting_ones(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with (
        world.broker(**IMPATIENT),
        world.client() as helper,
    ):
        topic = await create_topic(helper, max_message_bytes="1500KiB", durability="replicated")
        busy = await introduced_clients(world, 2)
        rest = b""
        for client in busy:
            request = large_frame(client, topic)
            rest = request[1000:]
            await client.send(request[:1000])
        await settle()
        waiting = submit_produce(helper, topic, LARGE)
        await settle()

        for _ in range(40):
            # The rest of this frame, and the beginning of the next one.
            for client in busy:
                next_request = large_frame(client, topic)
                await client.send(rest + next_request[:1000])
            await world.pass_time(1)
            assert waiting.is_answered

        assert world.told("connection_refused") == []


async def test_a_client_that_is_closed_while_it_waits_for_replies_stays_closed(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    settings = {
        **IMPATIENT,
        "max_in_flight_requests_per_connection": 1,
    }
    async with world.broker(**settings) as broker, world.client() as helper:
        topic = await create_topic(helper, max_message_bytes="1500KiB")
        world.work.hold_syncs()
        clients = await introduced_clients(world, 2)
        for client in clients:
            large = large_frame(client, topic)
            small = produce_frame(client, topic, batch_of(b"behind it"))
            await client.send(large + small)
        await settle()
        waiting = submit_produce(helper, topic, LARGE)

        for _ in range(3):
            await world.pass_time(6)

        assert any(client.is_turned_away() for client in clients)
        world.work.let_all_sync()
        await waiting.reply()
        await settle()
        assert broker.statistics().waiting_count == 0


async def test_a_slow_sender_is_disconnected_while_others_wait_for_memory(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with (
        world.broker(**IMPATIENT),
        world.client() as helper,
    ):
        topic = await create_topic(helper, max_message_bytes="1500KiB")
        slow = await introduced_clients(world, 2)
        for client in slow:
            request = large_frame(client, topic)
            await client.send(request[:1_200_000])
        await settle()
        waiting = submit_produce(helper, topic, LARGE)

        for _ in range(15):  # A byte each second is never silence.
            await world.pass_time(1)
            for client in slow:
                if not client.is_turned_away():
                    client.send_nowait(b"x")

        assert waiting.is_answered
        assert any(client.is_turned_away() for client in slow)
        assert world.told("connection_refused")[0]["reason"] == (
            "a frame took too long while others waited for memory"
        )


async def test_a_slow_sender_stays_connected_while_no_client_waits_for_memory(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(stalled_request_timeout_ms=10_000), world.client() as helper:
        topic = await create_topic(helper)
        slow = await world.raw_client()
        await slow.introduce()
        request = produce_frame(slow, topic, batch_of(bytes(500_000)))
        for start in range(0, len(request), 100_000):
            await slow.send(request[start : start + 100_000])
            await world.pass_time(5)

        (reply,) = await slow.replies(1)

        assert isinstance(reply.message, ProduceReply)
        assert reply.message.results[0].error is None


async def test_memory_of_a_client_that_reads_no_replies_is_reclaimed(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    settings = {
        **IMPATIENT,
        "max_queued_response_bytes": 1 << 16,
    }
    async with world.broker(**settings), world.client() as helper:
        topic = await create_topic(helper, max_message_bytes="1500KiB")
        await produce(helper, topic, batch_of(bytes(400_000)))
        clients = await introduced_clients(world, 2)
        for deaf in clients:
            deaf.stream.set_receive_buffer(0)
            large = large_frame(deaf, topic)
            request = FetchRequest(0, 1, MiB, [PartitionFetch(topic, 0, 0, MiB)])
            await deaf.send(large + deaf.request(api.FETCH, request) + large[:100])
            await settle()
        waiting = submit_produce(helper, topic, LARGE)
        for _ in range(30):
            await world.pass_time(1)

        assert waiting.is_answered
        for deaf in clients:
            deaf.stream.close()

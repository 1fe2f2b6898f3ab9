"""Both format versions of batches: their feature level, and clients of older versions."""

# Reads private state of brokers and connections.
# pyright: reportPrivateUsage=false

from collections.abc import Callable

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    fetch,
    fetched,
    produce,
    submit,
    submit_fetch,
)
from tests.broker.queues.queue_requests import (
    create_queue,
    peek,
    receive,
    settle,
    submit_send,
    topic_of,
)
from tests.broker.world import START_MS, World
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.server import Broker
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import FORMAT_COLUMNAR, Columns, encode_batch, parse_header
from tidelog.wire.errors import BrokerNotReadyError
from tidelog.wire.messages.queues import PeekRequest, ReceiveRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

OLDER = {api.ApiKey.FETCH: 4, api.ApiKey.RECEIVE: 3, api.ApiKey.PEEK: 1}
"""Versions of a client that reads format version 1 only."""


def columnar(*values: bytes, codec: Codec = Codec.NONE, **producer: int) -> bytearray:
    return encode_batch(
        Columns(len(values), values=list(values)),
        first_timestamp_ms=START_MS,
        codec=codec,
        format_version=FORMAT_COLUMNAR,
        **producer,
    )


async def level_is_set(world: World, broker: Broker) -> None:
    """Wait for the first feature level of the new cluster."""
    assert broker._cluster is not None
    while not broker._cluster.metadata.state.feature_level:
        await world.pass_time(0.1)


def make_older(client: RpcConnection) -> None:
    """Let a client ask in the versions before both formats."""
    client._core._versions.update(OLDER)


def formats(attachment: bytes) -> list[int]:
    """Return the format versions of consecutive batches."""
    found: list[int] = []
    while attachment:
        header = parse_header(attachment)
        assert header is not None
        found.append(header.format_version)
        attachment = attachment[header.size :]
    return found


async def formats_fetched(client: RpcConnection, topic: bytes, **limits: int) -> list[int]:
    pending = submit_fetch(client, [(topic, 0, 0)], **limits)
    return formats((await pending.reply.reply_and_attachment())[1])


async def test_below_the_feature_level_columnar_batches_are_refused_as_retriable(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await level_is_set(world, broker)
        assert broker._cluster is not None
        topic = await create_topic(client)
        queue = await create_queue(broker, topic="messages", partitions=1)
        batch = columnar(b"a", producer_id=7)
        with monkeypatch.context() as patched:
            patched.setattr(broker._cluster.metadata.state, "_feature_level", 5)
            with pytest.raises(BrokerNotReadyError, match="version 2 needs feature level 6, and"):
                await produce(client, topic, batch)
            with pytest.raises(BrokerNotReadyError, match="has level 5 as far as this broker"):
                await submit_send(client, queue, columnar(b"m")).reply()
            await produce(client, topic, batch_of(b"older"))

        assert (await produce(client, topic, batch)).base_offset == 1
        assert (await produce(client, topic, batch)).base_offset == 1, "the same batch again"
        assert (await submit_send(client, queue, columnar(b"m")).reply()).offsets == [0]
        assert await formats_fetched(client, topic) == [1, 2]
        assert (await fetch(client, topic)).values == [b"older", b"a"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("large", [False, True])
async def test_an_older_client_fetches_all_batches_in_format_version_1(
    mock_clock: MockClock, *, codec: Codec, large: bool
) -> None:
    world = World(mock_clock)
    values = [b"%d" % number * (20_000 if large else 1) for number in range(12)]
    async with world.broker() as broker, world.client() as client:
        await level_is_set(world, broker)
        topic = await create_topic(client)
        for place, value in enumerate(values):
            batch = columnar(value, value, codec=codec) if place % 3 else batch_of(value, value)
            await produce(client, topic, batch)
        expected = [each for value in values for each in (value, value)]
        assert await formats_fetched(client, topic) == [1, 2, 2] * 4

        make_older(client)

        assert await formats_fetched(client, topic) == [1] * 12
        assert (await fetch(client, topic)).values == expected
        tail = await fetch(client, topic, 3)
        assert tail.records[-1] == (23, values[-1])
        assert tail.records[0].offset in {2, 3}


async def test_an_older_client_gets_one_batch_however_small_its_limit_is(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await level_is_set(world, broker)
        topics = [await create_topic(client, name, 2) for name in ("a", "b")]
        for topic in topics:
            for number in (0, 1):
                for _ in range(2):
                    await produce(client, topic, columnar(b"x" * 200_000), partition=number)
        make_older(client)

        wanted = [(topic, number, 0) for topic in topics for number in (0, 1)]
        results = await fetched(submit_fetch(client, wanted, max_bytes=1))

        assert [len(each.records) for each in results] == [1, 0, 0, 0]


async def test_an_older_client_waits_for_records_as_others_do(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await level_is_set(world, broker)
        topic = await create_topic(client)
        make_older(client)
        waiting = submit_fetch(client, [(topic, 0, 0)], max_wait_ms=60_000)

        await produce(client, topic, columnar(b"a"))

        (result,) = await fetched(waiting)
        assert result.values == [b"a"]


async def test_an_older_client_receives_and_peeks_format_version_1(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await level_is_set(world, broker)
        queue = await create_queue(broker, partitions=1)
        for value in (b"a", b"b"):
            await submit_send(client, queue, columnar(value, value)).reply()
        await produce(client, topic_of(broker), batch_of(b"c"))
        peeked = PeekRequest(queue, 0, [], 0, 1000, 1 << 20)
        wanted = ReceiveRequest(queue, [0], 10, 1 << 20, 0, visibility_timeout_ms=0)
        _, seen = await submit(client, api.PEEK, peeked).reply_and_attachment()
        reply, got = await submit(client, api.RECEIVE, wanted).reply_and_attachment()
        assert formats(seen) == formats(got) == [2, 2, 1]

        make_older(client)

        _, seen = await submit(client, api.PEEK, peeked).reply_and_attachment()
        reply, got = await submit(client, api.RECEIVE, wanted).reply_and_attachment()
        assert formats(seen) == formats(got) == [1, 1, 1]
        assert reply.results[0].batch_bytes == len(got)
        messages = await receive(client, queue)
        assert [each.value for each in messages] == [b"a", b"a", b"b", b"b", b"c"]
        await settle(client, queue, messages)
        assert not (await peek(client, queue)).runs


def bomb(number: int) -> bytearray:
    """Return a batch of some kilobytes that unpacks to 15 MB."""
    values = [b"%d" % number] + [bytes(15_000)] * 1000
    return columnar(*values, codec=Codec.ZSTD)


async def test_short_batches_that_unpack_to_much_are_rewritten_in_threads_and_a_few_at_a_time(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await level_is_set(world, broker)
        topic = await create_topic(client)
        for number in range(3):
            await produce(client, topic, bomb(number))
        make_older(client)
        monkeypatch.setattr(SliceReader, "open_now", None)  # The way without a thread.

        assert await formats_fetched(client, topic) == [1, 1]
        (rest,) = await fetched(submit_fetch(client, [(topic, 0, 2002)]))
        assert rest.records[0] == (2002, b"2")


async def test_short_messages_that_unpack_to_much_are_rewritten_in_threads(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(mock_clock)
    in_threads: list[object] = []
    run = SliceReader.run

    async def noted(self: SliceReader, work: Callable[[], None]) -> None:
        await run(self, work)
        in_threads.append(work)

    async with world.broker() as broker, world.client() as client:
        await level_is_set(world, broker)
        queue = await create_queue(broker, partitions=1)
        await produce(client, topic_of(broker), columnar(b"a"))
        await produce(client, topic_of(broker), bomb(0))
        make_older(client)
        monkeypatch.setattr(SliceReader, "run", noted)
        wanted = ReceiveRequest(queue, [0], 1000, 1 << 20, 0, visibility_timeout_ms=0)

        _, got = await submit(client, api.RECEIVE, wanted).reply_and_attachment()

        assert formats(got) == [1, 1]
        assert len(in_threads) == 1

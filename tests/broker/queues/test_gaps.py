"""Tests of queues over compacted logs: a removed record is no message."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections.abc import Sequence

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, produce
from tests.broker.queues.queue_requests import (
    create_queue,
    outgoing,
    receive,
    send,
    settle,
    states,
    topic_of,
)
from tests.broker.world import START_MS, World
from tests.broker.world import settle as let_happen
from tests.wire.batches import decoded
from tidelog.broker.server import Broker
from tidelog.wire.batch.record_batch import Columns, encode_batch, parse_header, stamp_append_time
from tidelog.wire.batch.sparse_batch import encode_sparse


def append_left(broker: Broker, values: Sequence[bytes], *places: int) -> None:
    """Append the compacted form of a batch of records with keys."""
    columns = Columns(len(values), keys=[b"key"] * len(values), values=list(values))
    append_left_of(broker, encode_batch(columns, first_timestamp_ms=START_MS), *places)


def append_left_of(broker: Broker, batch: bytearray, *places: int) -> None:
    """Append the compacted form of a batch."""
    header = parse_header(batch)
    assert header is not None
    left = encode_sparse(header, decoded(batch), places)
    left_header = parse_header(left)
    assert left_header is not None
    assert broker._partitions is not None
    partition = broker._partitions.find(topic_of(broker), 0)
    assert partition.leader is not None
    epoch = partition.leader.leader_epoch
    partition.log.append(memoryview(left), left_header, leader_epoch=epoch, now_ms=START_MS)


@pytest.mark.parametrize("is_fifo", [False, True])
async def test_a_record_removed_by_compaction_is_no_message(
    mock_clock: MockClock, *, is_fifo: bool
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=is_fifo)
        append_left(broker, [b"0", b"1", b"2", b"3"], 1, 3)
        append_left(broker, [b"4", b"5"])
        await produce(client, topic_of(broker), batch_of(b"6"))
        assert await states(client, queue) == (3, 0, 0, 0)

        taken: list[tuple[int, bytes | None]] = []
        while found := await receive(client, queue):
            taken += [(each.offset, each.value) for each in found]
            await settle(client, queue, found)

        assert taken == [(1, b"1"), (3, b"3"), (6, b"6")]
        assert await states(client, queue) == (0, 0, 0, 0)


async def test_records_left_by_compaction_keep_their_delay(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, delivery_delay_ms="10s")
        append_left(broker, [b"0", b"1", b"2"], 1)
        append_left(broker, [b"3"])
        await produce(client, topic_of(broker), batch_of(b"4"))
        assert await receive(client, queue) == []

        await world.pass_time(10)
        await let_happen()

        assert [each.offset for each in await receive(client, queue)] == [1, 4]


async def test_a_duplicate_of_a_record_left_by_compaction_gets_its_offset(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        batch = bytearray(outgoing(queue, (b"a", "1"), (b"b", "2"), (b"c", "3")))
        stamp_append_time(memoryview(batch), START_MS)
        append_left_of(broker, batch, 1, 2)
        await produce(client, topic_of(broker), batch_of(b"committed"))

        sent = await send(client, queue, (b"c", "3"), (b"b", "2"), (b"d", "4"))

        assert sent.offsets == [2, 1, 4]

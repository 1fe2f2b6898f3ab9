"""Tests of refused batches and requests, and their errors."""

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import (
    alter_topic,
    batch_of,
    create_topic,
    describe,
    produce,
    submit,
)
from tests.broker.world import World
from tests.wire.batches import lie
from tidelog.wire.errors import (
    CorruptBatchError,
    InvalidBatchError,
    InvalidRequestError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.protocol import api

NO_TOPIC = b"\x00" * 16


@pytest.mark.invariant("I6")
async def test_a_batch_corrupted_in_transit_is_refused_as_retriable(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        good = batch_of(b"a")
        for position in (12, 40, len(good) - 1):  # Leader's header, producer's header, payload.
            damaged = bytearray(good)
            damaged[position] ^= 0x10

            with pytest.raises(CorruptBatchError):
                await produce(client, topic, damaged)

        assert (await produce(client, topic, good)).base_offset == 0


@pytest.mark.parametrize(
    "lies",
    [
        {"record_count": 2},
        {"record_count": 0},
        {"record_count": 1 << 31, "last_offset_delta": (1 << 31) - 1},
        {"last_offset_delta": 7},
        {"payload_length": 3},
        {"payload_length": 1 << 30},
        {"uncompressed_length": 1},
        {"format_version": 3},
        {"flags": 9},
        {"flags": 0x10},
        {"first_timestamp_ms": -5},
        {"max_timestamp_ms": 0},
        {"base_sequence": (1 << 63)},
        {"sync_marker": 1},
    ],
)
async def test_a_batch_header_that_contradicts_its_payload_is_refused(
    lies: dict[str, int], mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)

        with pytest.raises(InvalidBatchError):
            await produce(client, topic, lie(batch_of(b"a"), **lies))

        assert (await describe(client)).log_end_offset == 0


async def test_bytes_that_are_no_batch_are_refused(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)

        for garbage in (b"", b"hello", bytes(88), bytes(500)):
            with pytest.raises(InvalidBatchError):
                await produce(client, topic, garbage)


async def test_batches_must_be_as_long_as_announced(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        batch = batch_of(b"a")
        for announced in (len(batch) + 1, len(batch) - 1, 1 << 62):
            request = ProduceRequest(Acks.ALL, 1000, [PartitionBatch(topic, 0, announced)])

            with pytest.raises(InvalidRequestError, match=f"announces {announced} bytes"):
                await submit(client, api.PRODUCE, request, batch).reply()

        assert (await describe(client)).log_end_offset == 0


async def test_acks_must_be_one_of_three(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)

        with pytest.raises(InvalidRequestError, match="acks is 3; it must be 0, 1 or 2"):
            await produce(client, topic, batch_of(b"a"), acks=3)


async def test_a_record_above_the_limit_is_refused_with_the_limit(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, max_message_bytes="2KiB")
        batch = batch_of(bytes(2048))

        with pytest.raises(RecordTooLargeError) as refusal:
            await produce(client, topic, batch)

        assert (refusal.value.size_bytes, refusal.value.limit_bytes) == (len(batch), 2048)
        await alter_topic(client, max_message_bytes="4KiB")
        await produce(client, topic, batch)


async def test_an_unknown_partition_is_refused(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=3)

        for partition in (3, -1, 1 << 40):
            with pytest.raises(UnknownPartitionError, match="partitions 0 to 2"):
                await produce(client, topic, batch_of(b"a"), partition=partition)
        for unknown in (NO_TOPIC, b"", b"x" * 17):
            with pytest.raises(UnknownTopicIdError):
                await produce(client, unknown, batch_of(b"a"))

"""Tests of the search for offsets by place and by time."""

import struct

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    delete_records,
    describe,
    fetch,
    list_offset,
    produce,
    submit,
    submit_produce,
)
from tests.broker.world import START_MS, World, settle
from tests.wire.batches import decoded, lie, with_payload
from tests.wire.memory import at_most_allocated
from tidelog.broker.partitions.offset_search import find_first_at_or_after, time_of
from tidelog.wire.batch.compression import Codec, compress
from tidelog.wire.batch.record_batch import Columns, encode_batch, parse_header
from tidelog.wire.batch.sparse_batch import encode_sparse
from tidelog.wire.errors import (
    CorruptRecordError,
    ErrorCode,
    LogOfflineError,
    UnknownPartitionError,
)
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest, OffsetQuery
from tidelog.wire.protocol import api


def batch_at(*times_ms: int, codec: Codec = Codec.NONE) -> bytearray:
    """Return a batch of records with these timestamps."""
    first = times_ms[0]
    columns = Columns(
        len(times_ms),
        timestamp_deltas=[time - first for time in times_ms],
        values=[b"x"] * len(times_ms),
    )
    return encode_batch(columns, first_timestamp_ms=first, codec=codec)


def left_of(batch: bytearray, *places: int) -> bytes:
    """Return the compacted form of a batch with records at some places."""
    header = parse_header(batch)
    assert header is not None
    return bytes(encode_sparse(header, decoded(batch), places))


async def test_the_offsets_of_a_partition_are_returned(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        assert (await list_offset(client, topic, "earliest")).offset == 0
        assert (await list_offset(client, topic, "latest")).offset == 0
        await produce(client, topic, batch_of(b"a", b"b", b"c"))
        await delete_records(client, topic, 1)
        world.work.hold_syncs()
        submit_produce(client, topic, batch_of(b"not committed"))
        await settle()

        assert (await list_offset(client, topic, "earliest")).offset == 1
        assert (await list_offset(client, topic, "latest")).offset == 3
        world.work.let_all_sync()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
async def test_the_first_record_at_or_after_a_time_is_found(
    codec: Codec, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_bytes="4KiB", index_interval_bytes="256")
        for start in range(1000, 3000, 100):
            batch = batch_at(*range(start, start + 100, 10), codec=codec)
            await produce(client, topic, batch)

        async def found(at_ms: int) -> tuple[int | None, int | None]:
            answer = await list_offset(client, topic, at_ms)
            return answer.offset, answer.timestamp_ms

        assert await found(0) == (0, 1000)
        assert await found(-5) == (0, 1000)
        assert await found(1000) == (0, 1000)
        assert await found(1234) == (24, 1240)
        assert await found(1990) == (99, 1990)
        assert await found(1991) == (100, 2000)
        assert await found(2990) == (199, 2990)
        assert await found(2991) == (None, None)
        assert await found(1 << 62) == (None, None)


@given(
    times=st.lists(st.integers(0, 300), min_size=1, max_size=20),
    at_ms=st.integers(0, 310),
    deleted_count=st.integers(0, 19),
)
@settings(max_examples=300)
def test_a_search_by_time_agrees_with_a_linear_search(
    times: list[int], at_ms: int, deleted_count: int
) -> None:
    deleted_count %= len(times)
    data = bytes(batch_at(*times))
    header = parse_header(data)
    assert header is not None

    answer = find_first_at_or_after(header, data, at_ms, log_start_offset=deleted_count)

    late = (
        offset for offset, time in enumerate(times) if time >= at_ms and offset >= deleted_count
    )
    expected = next(late, deleted_count)
    assert (answer.offset, answer.timestamp_ms) == (expected, times[expected])


@pytest.mark.parametrize(
    ("at_ms", "log_start_offset", "found"),
    [
        (0, 0, (1, 300)),
        (300, 0, (1, 300)),
        (301, 0, (3, 400)),
        (0, 2, (3, 400)),
        (250, 2, (3, 400)),
        (400, 4, (4, 200)),
    ],
)
def test_a_search_in_a_sparse_batch_finds_a_remaining_record(
    at_ms: int, log_start_offset: int, found: tuple[int, int]
) -> None:
    data = left_of(batch_at(200, 300, 100, 400, 250), 1, 3)
    header = parse_header(data)
    assert header is not None

    answer = find_first_at_or_after(header, data, at_ms, log_start_offset=log_start_offset)

    assert (answer.offset, answer.timestamp_ms) == found


def test_the_time_of_a_removed_offset_is_that_of_the_next_record() -> None:
    data = left_of(batch_at(200, 300, 100, 400, 250), 1, 3)
    header = parse_header(data)
    assert header is not None

    assert [time_of(header, data, offset) for offset in range(5)] == [300, 300, 400, 400, 400]


async def test_deleted_records_are_not_found_by_time(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_at(100, 200, 300))
        await delete_records(client, topic, 1)

        answer = await list_offset(client, topic, 50)

        assert (answer.offset, answer.timestamp_ms) == (1, 200)


async def test_uncommitted_records_are_not_found_by_time(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_at(100))
        world.work.hold_syncs()
        submit_produce(client, topic, batch_at(200))
        await settle()

        answer = await list_offset(client, topic, 150)

        assert (answer.offset, answer.timestamp_ms) == (None, None)
        world.work.let_all_sync()


async def test_each_offset_query_is_answered_on_its_own(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a"))
        questions = [
            OffsetQuery(topic, 9),
            OffsetQuery(topic, 0, at_offset=0, at_timestamp_ms=7),
            OffsetQuery(b"", 0),
            OffsetQuery(topic, 0),
        ]

        reply = await submit(client, api.LIST_OFFSETS, ListOffsetsRequest(questions)).reply()

        codes = [None if each.error is None else each.error.code for each in reply.partitions]
        assert codes == [
            ErrorCode.UNKNOWN_PARTITION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNKNOWN_TOPIC_ID,
            None,
        ]
        assert reply.partitions[3].high_watermark == 1
        with pytest.raises(UnknownPartitionError):
            await list_offset(client, topic, "latest", partition=-1)


def bomb(codec: Codec, count: int, *, record_count: int) -> bytearray:
    """Return a small batch that unpacks to `count` timestamps, and to as much in every column."""
    zeros = struct.pack(">BI", 0xDD, count) + bytes(count)
    payload = b"\x95" + zeros * 5
    packed = bytes(compress(codec, payload))
    assert len(packed) < len(payload) / 100
    return with_payload(
        batch_of(b"x"),
        packed,
        uncompressed_length=len(payload),
        flags=int(codec),
        record_count=record_count,
        last_offset_delta=record_count - 1,
    )


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize(("count", "record_count"), [(6 << 20, 65_536), (6 << 20, 10)])
async def test_a_decompression_bomb_is_not_unpacked_in_a_search_by_time(
    codec: Codec, count: int, record_count: int, *, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, bomb(codec, count, record_count=record_count))

        with at_most_allocated(96 << 20):
            answer = await list_offset(client, topic, 5)

        # The start of the batch is still a valid result.
        assert (answer.offset, answer.timestamp_ms) == (0, START_MS)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc0",
        b"\x95" + b"\xc0" * 5,
        b"\x95" + b"\x91" * 10_000 + b"\xc0",
        msgpack.packb([["x"] * 2, None, [None] * 2, None, None]),
        msgpack.packb([[0, 1, 2], None, [None] * 3, None, None]),
        msgpack.packb([[0, 9_999_999_999], None, [None] * 2, None, None]),
    ],
)
async def test_a_search_by_time_returns_the_start_of_an_unreadable_batch(
    payload: bytes, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        padded = payload + bytes(max(2 - len(payload), 0))
        batch = with_payload(batch_of(b"x", b"y"), padded)
        await produce(client, topic, batch)

        answer = await list_offset(client, topic, START_MS)

        assert (answer.offset, answer.timestamp_ms) == (0, START_MS)


async def test_a_search_by_time_returns_the_batch_of_a_wrong_max_timestamp(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, lie(batch_at(100, 200), max_timestamp_ms=900))

        answer = await list_offset(client, topic, 500)

        assert (answer.offset, answer.timestamp_ms) == (0, 100)


async def test_damage_found_by_a_search_is_reported_and_recorded(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        for time in (100, 200, 300):
            await produce(client, topic, batch_of(b"%d" % time, b"x", at_ms=time))
    ((path, data),) = world.segments()
    world.disk.flip_bit(path, data.index(b"200"), 3)

    async with world.broker(), world.client() as client:
        with pytest.raises(CorruptRecordError) as refusal:
            await list_offset(client, topic, 150)

        assert (refusal.value.offset, refusal.value.next_offset) == (2, 4)
        assert (await describe(client)).status == "damaged"
        assert (await list_offset(client, topic, 250)).offset == 4


async def test_a_disk_that_fails_during_a_search_takes_the_partition_offline(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, partitions=2)
        await produce(client, topic, batch_at(100, 200))
        world.disk.fail("read_at", nth=2, count=1 << 30)  # The first read finds the batch.

        with pytest.raises(LogOfflineError):
            await list_offset(client, topic, 150)

        assert (await describe(client)).status == "offline"
        assert (await fetch(client, topic, partition=1)).records == []

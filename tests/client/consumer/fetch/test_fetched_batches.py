"""Bytes of a fetch: used only after their checksums were verified."""

import pytest

from tidelog.client.consumer.fetch.fetched_batches import FetchedBatches
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.record_batch import (
    HEADER_SIZE,
    Columns,
    encode_batch,
    stamp_leader,
    stamp_replica,
)
from tidelog.wire.errors import CorruptRecordError

AT = TopicPartition("orders", 0)
LIMIT = 1 << 20


def encoded(base_offset: int, leader_epoch: int = 0) -> bytes:
    batch = encode_batch(Columns(2, values=[b"a", b"b"]), first_timestamp_ms=1)
    stamp_leader(memoryview(batch), base_offset=base_offset, leader_epoch=leader_epoch)
    stamp_replica(memoryview(batch), durable_position=0)
    return bytes(batch)


FIRST, SECOND = encoded(10), encoded(12)


def chunk_of(content: bytes) -> FetchedBatches:
    return FetchedBatches(AT, content, high_watermark=99)


def offsets_of(chunk: FetchedBatches, position: int) -> list[int]:
    found: list[int] = []
    while (batch := chunk.take(position, uncompressed_bytes_max=LIMIT)) is not None:
        found += batch.offsets
    return found


@pytest.mark.parametrize(
    ("position", "offsets"),
    [(10, [10, 11, 12, 13]), (11, [11, 12, 13]), (12, [12, 13]), (13, [13]), (14, [])],
)
def test_records_below_the_position_are_left_out(position: int, offsets: list[int]) -> None:
    chunk = chunk_of(FIRST + SECOND)

    assert offsets_of(chunk, position) == offsets
    assert chunk.is_used_up
    assert chunk.passed_offset == 14


def test_the_next_offset_of_a_chunk_is_known_before_it_is_read() -> None:
    assert chunk_of(FIRST + SECOND).next_offset() == 14
    assert chunk_of(FIRST + SECOND[:-1]).next_offset() is None


@pytest.mark.parametrize(
    ("content", "fetch_offset", "problem"),
    [
        (FIRST + SECOND, 13, None),
        (FIRST + SECOND, 14, "records before 14 were sent for offset 14"),
        (SECOND + FIRST, 0, "batches up to offset 12 are not in the order of their offsets"),
    ],
)
def test_batches_of_other_offsets_do_not_match(
    content: bytes, fetch_offset: int, problem: str | None
) -> None:
    chunk = chunk_of(content)
    next_offset = chunk.next_offset()
    assert next_offset is not None

    assert chunk.mismatch(fetch_offset, next_offset) == problem


@pytest.mark.parametrize("at", range(8, HEADER_SIZE))
def test_a_flipped_bit_in_a_header_is_detected_with_the_next_offset(at: int) -> None:
    content = bytearray(FIRST + SECOND)
    content[at] ^= 1

    with pytest.raises(CorruptRecordError, match="seek to 12") as caught:
        chunk_of(bytes(content)).take(10, uncompressed_bytes_max=LIMIT)

    assert (caught.value.detail("offset"), caught.value.detail("next_offset")) == (10, 12)


@pytest.mark.parametrize("at", range(HEADER_SIZE, len(FIRST)))
def test_a_flipped_bit_in_a_payload_is_detected_with_the_next_offset(at: int) -> None:
    content = bytearray(FIRST + SECOND)
    content[at] ^= 1

    with pytest.raises(CorruptRecordError, match="payload") as caught:
        chunk_of(bytes(content)).take(10, uncompressed_bytes_max=LIMIT)

    assert caught.value.detail("next_offset") == 12


def test_valid_batches_before_a_corrupt_one_are_handed_out() -> None:
    chunk = chunk_of(FIRST + SECOND[:-1])

    batch = chunk.take(10, uncompressed_bytes_max=LIMIT)

    assert batch is not None
    assert batch.base_offset == 10
    with pytest.raises(CorruptRecordError):
        chunk.take(12, uncompressed_bytes_max=LIMIT)

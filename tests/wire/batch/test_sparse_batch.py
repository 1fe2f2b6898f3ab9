"""A sparse batch covers all offsets of its original, and has only the remaining records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.batches import decoded, sample_batch, stored_batch
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.compression import CODEC_NAMES, Codec
from tidelog.wire.batch.large_messages import chunk_header
from tidelog.wire.batch.record_batch import (
    FORMAT_VERSION,
    KNOWN_FORMATS,
    BatchHeader,
    Columns,
    check_produced,
    encode_batch,
    has_valid_payload,
    parse_header,
    stamp_append_time,
    stamp_leader,
    stamp_replica,
)
from tidelog.wire.batch.sparse_batch import encode_empty, encode_sparse
from tidelog.wire.errors import InvalidBatchError
from tidelog.wire.messages.queues import DELIVER_AT_HEADER


def header_of(batch: bytes | bytearray) -> BatchHeader:
    header = parse_header(batch)
    assert header is not None
    return header


def left_of(batch: bytes | bytearray, *places: int) -> bytearray:
    left = encode_sparse(header_of(batch), decoded(batch), places)
    assert has_valid_payload(header_of(left), left)
    return left


@pytest.mark.parametrize("codec", list(CODEC_NAMES.values()))
def test_a_sparse_batch_keeps_offsets_epoch_and_producer(codec: Codec) -> None:
    batch = stored_batch(codec)
    before = header_of(batch)

    header = header_of(left_of(batch, 0, 2))

    assert header.is_sparse
    assert (header.base_offset, header.next_offset) == (1000, 1003)
    assert header.leader_epoch == before.leader_epoch
    assert (header.producer_id, header.producer_epoch) == (42, 3)
    assert (header.base_sequence, header.next_sequence) == (100, 103)
    assert header.durable_position == 0


def test_a_sparse_batch_keeps_its_records_unchanged() -> None:
    columns = decoded(left_of(stored_batch(), 1, 2))

    assert columns.record_count == 2
    assert columns.offset_deltas == [1, 2]
    assert columns.timestamp_deltas == [5, 1000]
    assert columns.keys == [None, b"user-2"]
    assert columns.values == [b"world", None]


def test_the_max_timestamp_of_a_sparse_batch_is_that_of_its_records() -> None:
    before = header_of(stored_batch())

    header = header_of(left_of(stored_batch(), 0, 1))

    assert header.first_timestamp_ms == before.first_timestamp_ms
    assert header.max_timestamp_ms == before.first_timestamp_ms + 5


def test_a_sparse_batch_keeps_its_append_time() -> None:
    batch = encode_batch(Columns(2, values=[b"a", b"b"]), first_timestamp_ms=0)
    stamp_append_time(memoryview(batch), 12345)
    stamp_leader(memoryview(batch), base_offset=0, leader_epoch=0)
    stamp_replica(memoryview(batch), durable_position=0)

    header = header_of(left_of(batch, 1))

    assert header.has_append_time
    assert (header.first_timestamp_ms, header.max_timestamp_ms) == (12345, 12345)


def test_a_sparse_batch_may_be_compacted_again() -> None:
    once = left_of(stored_batch(), 0, 2)

    twice = left_of(once, 1)

    assert decoded(twice).offset_deltas == [2]
    assert header_of(twice).next_offset == 1003


def test_queue_flags_of_a_sparse_batch_follow_its_records() -> None:
    columns = Columns(
        3,
        values=[b"a", b"b", b"c"],
        headers=[(), ((DELIVER_AT_HEADER, b"1"),), (chunk_header("0" * 16, 0),)],
    )
    batch = encode_batch(columns, first_timestamp_ms=0)

    plain, fields, chunk = (header_of(left_of(batch, place)) for place in (0, 1, 2))

    assert (plain.has_queue_fields, plain.has_only_chunks) == (False, False)
    assert (fields.has_queue_fields, fields.has_only_chunks) == (True, False)
    assert (chunk.has_queue_fields, chunk.has_only_chunks) == (True, True)


def test_a_batch_without_remaining_records_keeps_its_producer_and_has_no_time() -> None:
    left = left_of(stored_batch())

    header = header_of(left)
    assert (header.record_count, header.first_timestamp_ms, header.max_timestamp_ms) == (0, 0, 0)
    assert (header.producer_id, header.next_sequence, header.next_offset) == (42, 103, 1003)
    assert decoded(left) == Columns(0)


@pytest.mark.parametrize("span", [0, -1, 2**32 + 1])
def test_an_empty_batch_covers_at_least_one_offset_and_at_most_2_to_the_32(span: int) -> None:
    with pytest.raises(AssertionError, match=f"a batch of {span} offsets"):
        encode_empty(base_offset=50, end_offset=50 + span, leader_epoch=7)


def test_an_empty_batch_is_that_of_no_producer_at_no_time() -> None:
    header = header_of(encode_empty(base_offset=50, end_offset=60, leader_epoch=7))

    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (0, 0, 0)
    assert (header.first_timestamp_ms, header.max_timestamp_ms) == (0, 0)
    assert header.durable_position == 0
    assert (header.codec, header.format_version) == (Codec.NONE, FORMAT_VERSION)
    assert not header.has_append_time


@pytest.mark.parametrize("span", [1, 2, 1 << 24, 2**32])
def test_an_empty_batch_covers_any_run_of_offsets(span: int) -> None:
    batch = encode_empty(base_offset=50, end_offset=50 + span, leader_epoch=7)

    header = header_of(batch)
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (50, 50 + span, 7)
    assert (header.record_count, header.producer_id, header.is_sparse) == (0, 0, True)
    assert decoded(batch) == Columns(0)


def test_a_producer_cannot_send_sparse_batches() -> None:
    produced = sample_batch()
    left = encode_sparse(header_of(produced), decoded(produced), [0, 1, 2])

    with pytest.raises(InvalidBatchError, match="set by brokers only"):
        check_produced(memoryview(left))


@pytest.mark.parametrize("version", KNOWN_FORMATS)
@given(data=st.data())
def test_any_records_may_remain(version: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    keys = data.draw(st.lists(st.none() | st.binary(max_size=2), min_size=count, max_size=count))
    deltas = data.draw(st.lists(st.integers(-9, 9), min_size=count, max_size=count))
    places = data.draw(st.sets(st.integers(0, count - 1)).map(sorted))
    batch = encode_batch(
        Columns(count, timestamp_deltas=deltas, keys=keys),
        first_timestamp_ms=100,
        format_version=version,
    )

    left = encode_sparse(header_of(batch), decoded(batch), places)

    header = header_of(left)
    columns = decode_columns(header, left, uncompressed_length_max=1 << 20)
    assert header.next_offset == count
    assert header.format_version == (version if places else FORMAT_VERSION)
    assert list(columns.offset_deltas or ()) == places
    assert list(columns.keys or ()) == [keys[place] for place in places]
    times = [deltas[place] for place in places]
    assert list(columns.timestamp_deltas or ()) == times
    assert header.max_timestamp_ms == (100 + max(0, *times) if times else 0)

"""Batches as clients get them that read format version 1 only."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.batches import FIRST_TIMESTAMP_MS, SAMPLE_COLUMNS, decoded, lie, with_payload
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.older_format import in_format_1, rewritten_length
from tidelog.wire.batch.record_batch import (
    FLAG_LOG_APPEND_TIME,
    FLAG_QUEUE_FIELDS,
    FLAG_SPARSE,
    FORMAT_COLUMNAR,
    FORMAT_VERSION,
    BatchHeader,
    Columns,
    encode_batch,
    has_valid_payload,
    header_of,
    parse_header,
    stamp_append_time,
    stamp_leader,
    stamp_replica,
)
from tidelog.wire.batch.sparse_batch import encode_sparse

CODECS = [Codec.NONE, Codec.LZ4, Codec.ZSTD]
FORMATS = [FORMAT_VERSION, FORMAT_COLUMNAR]
KEPT = (
    "base_offset",
    "leader_epoch",
    "record_count",
    "last_offset_delta",
    "first_timestamp_ms",
    "max_timestamp_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)
"""Fields of the header that a client gets as they are in the log."""


def stored(
    columns: Columns = SAMPLE_COLUMNS,
    *,
    codec: Codec = Codec.NONE,
    offset: int = 1000,
    version: int = FORMAT_COLUMNAR,
) -> bytearray:
    """Return a batch of a log."""
    batch = encode_batch(
        columns,
        first_timestamp_ms=FIRST_TIMESTAMP_MS,
        codec=codec,
        producer_id=42,
        producer_epoch=3,
        base_sequence=100,
        format_version=version,
    )
    stamp_leader(memoryview(batch), base_offset=offset, leader_epoch=7)
    stamp_replica(memoryview(batch), durable_position=4096)
    return batch


def rewritten(batch: bytes | bytearray) -> tuple[BatchHeader, bytes]:
    """Return one batch as an older client gets it, with its header; check what must be the same."""
    data = bytes(in_format_1(batch))
    header, original = parse_header(data), parse_header(batch)
    assert header is not None
    assert original is not None
    assert header.size == len(data)
    assert has_valid_payload(header, data)
    assert header.format_version == FORMAT_VERSION
    assert all(getattr(header, name) == getattr(original, name) for name in KEPT)
    codecs = {original.codec, Codec.NONE}
    assert header.codec in codecs
    assert header.flags & ~0xF == original.flags & ~0xF
    return header, data


@pytest.mark.parametrize("codec", CODECS)
def test_a_columnar_batch_becomes_one_of_version_1_with_the_same_records(codec: Codec) -> None:
    columns = Columns(100, keys=[b"key", None] * 50, values=[b"a value"] * 99 + [None])
    for each in (SAMPLE_COLUMNS, columns, Columns(2, headers=[(("a", b"b"),), ()])):
        batch = stored(each, codec=codec)

        header, data = rewritten(batch)

        assert decoded(data) == decoded(batch)
        expected = stored(each, codec=codec, version=FORMAT_VERSION)
        stamp_replica(memoryview(expected), durable_position=0)
        if header.codec == codec:
            assert data == expected, "as an older producer would have sent it"


bytes_or_none = st.none() | st.binary(max_size=300)


@given(
    records=st.lists(
        st.tuples(bytes_or_none, bytes_or_none, st.integers(-1000, 10**10)), min_size=1
    ),
    codec=st.sampled_from(CODECS),
)
def test_any_records_survive(
    records: list[tuple[bytes | None, bytes | None, int]], codec: Codec
) -> None:
    columns = Columns(
        len(records),
        timestamp_deltas=[delta for _, _, delta in records],
        keys=[key for key, _, _ in records],
        values=[value for _, value, _ in records],
    )
    batch = stored(columns, codec=codec)

    assert decoded(rewritten(batch)[1]) == columns


def test_sparse_empty_and_queue_batches_keep_their_flags() -> None:
    batch = stored()
    sparse = encode_sparse(header_of(batch), decoded(batch), [1, 2])
    header, data = rewritten(sparse)
    assert header.flags == FLAG_SPARSE
    assert decoded(data) == decoded(sparse)

    headers = [(("tidelog.priority", b"1"),)]
    sent = stored(Columns(1, values=[b"x"], headers=headers))
    stamp_append_time(memoryview(sent), FIRST_TIMESTAMP_MS + 5)
    header, data = rewritten(sent)
    assert header.flags == FLAG_LOG_APPEND_TIME | FLAG_QUEUE_FIELDS
    assert header.max_timestamp_ms == FIRST_TIMESTAMP_MS + 5
    assert decoded(data).headers == headers


def test_only_columnar_batches_of_a_run_change() -> None:
    versions = [1, 2, 2, 1, 1, 2]
    batches = [
        bytes(stored(offset=3 * place, version=version)) for place, version in enumerate(versions)
    ]

    run = bytes(in_format_1(b"".join(batches)))

    for batch, version in zip(batches, versions, strict=True):
        header = parse_header(run)
        assert header is not None
        part, run = run[: header.size], run[header.size :]
        assert part == (batch if version == 1 else bytes(in_format_1(batch)))
    assert not run


def test_batches_of_version_1_are_not_copied() -> None:
    run = stored(version=FORMAT_VERSION) + stored(offset=1003, version=FORMAT_VERSION)

    assert in_format_1(run) is run
    assert in_format_1(b"") == b""


def test_a_batch_that_is_damaged_or_cannot_be_decoded_stays_for_the_client_to_refuse() -> None:
    good = stored()
    damaged = bytearray(good)
    damaged[-1] ^= 1
    lying = with_payload(good, bytes(good[88:])[:-1])
    newer = lie(good, format_version=3)
    for bad in (damaged, lying, newer):
        assert in_format_1(bad) is bad
        run = bytes(good) + bytes(bad) + bytes(good)
        one = bytes(in_format_1(good))
        assert bytes(in_format_1(run)) == one + bytes(bad) + one


def test_a_run_that_ends_inside_a_batch_keeps_its_end() -> None:
    good = bytes(stored())
    one = bytes(in_format_1(good))
    for cut in (10, 88, len(good) - 1):
        assert bytes(in_format_1(good + good[:cut])) == one + good[:cut]
    torn = bytearray(good)
    struct.pack_into("<I", torn, 4, 0)
    assert bytes(in_format_1(good + bytes(torn) + good)) == one + bytes(torn) + good


def test_a_run_ends_where_rewriting_would_unpack_too_much_but_has_one_batch() -> None:
    long = bytes(stored(Columns(1000, values=[bytes(100)] * 1000), codec=Codec.ZSTD))
    short = bytes(stored(version=FORMAT_VERSION))
    unpacked = header_of(bytearray(long)).uncompressed_length
    one = bytes(in_format_1(long))

    for run, expected, limit in (
        (long * 3, one, 1),
        (long * 3, one * 2, 2 * unpacked),
        (short + long, short, 1),
        (short * 3, short * 3, 1),
    ):
        assert bytes(in_format_1(run, rewritten_bytes_max=limit)) == expected
    assert rewritten_length(short + long * 2 + short) == 2 * unpacked


def test_headers_are_copied_without_an_object_for_each() -> None:
    headers = [tuple((f"name {number}", b"%d" % number) for number in range(50))] * 1000
    batch = stored(Columns(1000, values=[b"v"] * 1000, headers=headers))
    tracemalloc.start()
    try:
        _, data = rewritten(batch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 4 * len(batch)
    assert decoded(data).headers == headers

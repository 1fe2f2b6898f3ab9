"""Batches for tests: valid ones, and contradicting ones with right checksums.

The layout of the header is defined here a second time, independently of the product.
"""

import struct
from collections.abc import Iterator

from crc32c import crc32c

from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    FORMAT_VERSION,
    Columns,
    encode_batch,
    parse_header,
    stamp_leader,
    stamp_replica,
)
from tidelog.wire.batch.sparse_batch import encode_sparse

HEADER_FIELDS = {
    "sync_marker": (0, "I"),
    "header_crc": (4, "I"),
    "base_offset": (8, "Q"),
    "leader_epoch": (16, "I"),
    "batch_crc": (20, "I"),
    "durable_position": (24, "Q"),
    "payload_length": (32, "I"),
    "format_version": (36, "H"),
    "flags": (38, "H"),
    "record_count": (40, "I"),
    "last_offset_delta": (44, "I"),
    "first_timestamp_ms": (48, "q"),
    "max_timestamp_ms": (56, "q"),
    "producer_id": (64, "Q"),
    "producer_epoch": (72, "I"),
    "uncompressed_length": (76, "I"),
    "base_sequence": (80, "Q"),
}
"""Offset and `struct` letter of each field; all little-endian."""

HEADER_SIZE = 88
FIRST_TIMESTAMP_MS = 1_700_000_000_000

SAMPLE_COLUMNS = Columns(
    3,
    timestamp_deltas=[0, 5, 1000],
    keys=[b"user-1", None, b"user-2"],
    values=[b"hello", b"world", None],
    headers=[(), (("trace", b"\x01\x02"),), ()],
)
"""Three records: a plain one, one with a header and no key, and a tombstone."""


def sample_batch(
    codec: Codec = Codec.NONE,
    *,
    columns: Columns = SAMPLE_COLUMNS,
    format_version: int = FORMAT_VERSION,
) -> bytearray:
    """Return a batch as an idempotent producer sends it."""
    return encode_batch(
        columns,
        first_timestamp_ms=FIRST_TIMESTAMP_MS,
        codec=codec,
        producer_id=42,
        producer_epoch=3,
        base_sequence=100,
        format_version=format_version,
    )


def stored_batch(codec: Codec = Codec.NONE, *, format_version: int = FORMAT_VERSION) -> bytearray:
    """Return the sample batch as a replica has it on disk."""
    batch = sample_batch(codec, format_version=format_version)
    stamp_leader(memoryview(batch), base_offset=1000, leader_epoch=7)
    stamp_replica(memoryview(batch), durable_position=4096)
    return batch


def sparse_batch(*, format_version: int = FORMAT_VERSION) -> bytearray:
    """Return the sample batch after compaction, without its superseded first record."""
    batch = stored_batch(format_version=format_version)
    header = parse_header(batch)
    assert header is not None
    left = encode_sparse(header, decoded(batch), [1, 2])
    stamp_replica(memoryview(left), durable_position=4096)
    return left


def decoded(batch: bytearray | bytes) -> Columns:
    """Return the columns of a batch with right checksums."""
    header = parse_header(batch)
    assert header is not None
    return decode_columns(header, batch, uncompressed_length_max=1 << 20)


def reseal(batch: bytearray) -> bytearray:
    """Set both checksums of any bytes; return the same batch."""
    struct.pack_into("<I", batch, 20, crc32c(bytes(batch[32:])))
    struct.pack_into("<I", batch, 4, crc32c(bytes(batch[8:HEADER_SIZE])))
    return batch


def lie(batch: bytearray, **fields: int) -> bytearray:
    """Return a copy with header fields overwritten and both checksums right."""
    liar = bytearray(batch)
    for name, value in fields.items():
        offset, letter = HEADER_FIELDS[name]
        struct.pack_into("<" + letter, liar, offset, value)
    return reseal(liar)


def with_payload(batch: bytearray, payload: bytes, **fields: int) -> bytearray:
    """Return the batch with another payload under a header that fits it."""
    lengths = {"payload_length": len(payload), "uncompressed_length": len(payload)}
    return lie(batch[:HEADER_SIZE] + payload, **{**lengths, **fields})


def flipped_bits(data: bytes | bytearray) -> Iterator[tuple[int, bytearray]]:
    """Yield each bit's number and a copy of the data in which only it is flipped."""
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bit, damaged

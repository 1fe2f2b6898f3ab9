"""The record batch: one binary format for the wire and the disk.

Pure: no clock, no I/O. `docs/formats/record_batch.md` has a worked example, byte by byte.

The batch is the unit of append, checksum, replication, deduplication, indexing and fetch.
A broker reads the fixed header with one `struct` call and does not decode the payload.

    offset size field               decided by   covered by
         0    4 sync marker         format       equality
         4    4 header CRC-32C      each writer  (itself)
         8    8 base offset         leader       header CRC
        16    4 leader epoch        leader       header CRC
        20    4 batch CRC-32C       producer     header CRC
        24    8 durable position    replica      header CRC
        32    4 payload length      producer     both CRCs
        36    2 format version      producer     both CRCs
        38    2 flags               producer     both CRCs
        40    4 record count        producer     both CRCs
        44    4 last offset delta   producer     both CRCs
        48    8 first timestamp     producer     both CRCs
        56    8 max timestamp       producer     both CRCs
        64    8 producer id         producer     both CRCs
        72    4 producer epoch      producer     both CRCs
        76    4 uncompressed length producer     both CRCs
        80    8 base sequence       producer     both CRCs
        88      payload             producer     batch CRC

All integers are little-endian. The batch CRC covers everything from byte 32 on: the producer's
fields travel end to end under one checksum, and a leader stamps offset and epoch without touching
it. The header CRC covers bytes 8 to 88, so that no bit on disk is unprotected (in Kafka, no
checksum covers base offset, length, epoch and magic). The sync marker lets recovery find the next
batch after a damaged batch. The durable position is the number of bytes of this segment file that
the replica knew to be on disk when it wrote the batch; it tells damage from a torn tail.

The payload is a msgpack array of columns, then compressed:
`[timestamp_deltas, keys, values, headers, offset_deltas]`, each nil when it is absent or trivial.
In format version 1, a column is an array with one element per record. In format version 2, numbers
are one byte string, and keys and values are `[lengths, blob, nulls]` (`wire.batch.byte_column`).
`wire.batch.batch_columns` decodes both.
"""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec
from crc32c import crc32c

from tidelog.wire.batch.byte_column import ByteColumn, bytes_head, pack_numbers, pack_values
from tidelog.wire.batch.compression import Codec, compress
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import CorruptBatchError, InvalidBatchError, RecordTooLargeError
from tidelog.wire.messages.produce import STAGED_PRODUCER_ID
from tidelog.wire.messages.queues import CHUNK_HEADER, HEADER_PREFIX

SYNC_MARKER = 0x1D0C_BA7C
FORMAT_VERSION = 1
"""Version of a batch whose columns are arrays of one element per record."""
FORMAT_COLUMNAR = 2
"""Version of a batch whose keys and values are lengths and one blob: readers of whole columns need
no object for each value."""
KNOWN_FORMATS: Final = frozenset((FORMAT_VERSION, FORMAT_COLUMNAR))
"""All versions that this version of tidelog reads."""
COLUMNAR_COUNT_MIN: Final = 64
"""Records from which a writer prefers format 2: its parts cost some microseconds for each batch."""

_HEADER = struct.Struct("<IIQIIQIHHIIqqQIIQ")
HEADER_SIZE = _HEADER.size
assert HEADER_SIZE == 88  # noqa: PLR2004 - the format page says so

_LEADER_FIELDS = struct.Struct("<QI")
_LEADER_FIELDS_AT = 8
_BATCH_CRC = struct.Struct("<I")
_BATCH_CRC_AT = 20
_DURABLE_POSITION = struct.Struct("<Q")
_DURABLE_POSITION_AT = 24
_HEADER_CRC = struct.Struct("<I")
_HEADER_CRC_AT = 4
_HEADER_CRC_FROM = 8
_BATCH_CRC_FROM = 32

FLAG_CODEC_MASK = 0x000F
FLAG_LOG_APPEND_TIME = 0x0010
FLAG_TRANSACTIONAL = 0x0020
FLAG_CONTROL = 0x0040
FLAG_QUEUE_FIELDS = 0x0080
"""A record has a header for queues (`queues.HEADER_PREFIX`): the queue's broker decodes the payload
only then."""
FLAG_CHUNKS = 0x0100
"""Every record is a chunk of a large message (`queues.CHUNK_HEADER`): the queue's broker skips the
batch without decoding it."""
FLAG_SPARSE = 0x0200
"""Compaction removed records, maybe all: not every offset of the batch has a record. A count of
records by offsets must decode the payload."""
KNOWN_FLAGS = 0x03FF
"""All flags on the wire of this version; another flag means a newer version."""
FLAG_SEALED = 0x0400
"""The payload is encrypted (`wire.batch.sealed_batch`): only in the files of brokers and among
them, never from a producer or to a consumer."""
STORED_FLAGS = KNOWN_FLAGS | FLAG_SEALED
"""All flags in files of this version."""
_KNOWN_CODECS = frozenset(map(int, (Codec.NONE, Codec.LZ4, Codec.ZSTD)))
_UNCOMPRESSED = int(Codec.NONE)
_BROKER_FLAGS = FLAG_LOG_APPEND_TIME | FLAG_TRANSACTIONAL | FLAG_CONTROL | FLAG_SPARSE
"""Set by brokers only."""
_NOT_PRODUCED_FLAGS = ~KNOWN_FLAGS | _BROKER_FLAGS

RECORD_COUNT_MAX = 1 << 24
"""Maximum records in one batch of a log. Leaders of earlier versions accepted so many."""
PRODUCED_COUNT_MAX = 1 << 16
"""Maximum records in one batch that a leader accepts."""
PRODUCED_LENGTH_MAX = 32 << 20
"""Maximum bytes that a batch unpacks to, if a leader accepts it."""
SEQUENCE_END = 1 << 63
"""Exclusive end of sequences; they fit into signed integers everywhere."""
TIMESTAMP_END_MS = 1 << 62
"""Exclusive end of timestamps; a first timestamp plus a delta fits into 64 bits."""


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The fixed header of one batch, as numbers."""

    sync_marker: int
    header_crc: int
    base_offset: int
    """Offset of the first record; 0 until the leader stamps it."""
    leader_epoch: int
    batch_crc: int
    durable_position: int
    """Bytes of the segment file known to be on disk when this batch was written there."""
    payload_length: int
    """Bytes after the header."""
    format_version: int
    flags: int
    record_count: int
    """Records in the payload; compaction may leave 0."""
    last_offset_delta: int
    """Offset of the last record minus `base_offset`; compaction never changes it."""
    first_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    """0 when the producer is not idempotent; ids start at 1."""
    producer_epoch: int
    uncompressed_length: int
    """Bytes of the payload before compression."""
    base_sequence: int
    """Sequence of the first record in the (producer id, partition) stream; starts at 0."""

    @property
    def next_offset(self) -> int:
        """The offset after the last record of this batch (exclusive end)."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def next_sequence(self) -> int:
        """The sequence that this producer's next batch must start with."""
        return self.base_sequence + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """Header and payload together, in bytes."""
        return HEADER_SIZE + self.payload_length

    @property
    def codec(self) -> int:
        """The number of the compression codec."""
        return self.flags & FLAG_CODEC_MASK

    @property
    def has_queue_fields(self) -> bool:
        """Whether a record has a header for queues."""
        return bool(self.flags & FLAG_QUEUE_FIELDS)

    @property
    def has_append_time(self) -> bool:
        """Whether all records carry the broker's append time."""
        return bool(self.flags & FLAG_LOG_APPEND_TIME)

    @property
    def has_only_chunks(self) -> bool:
        """Whether no record is a message: all are chunks of large ones."""
        return bool(self.flags & FLAG_CHUNKS)

    @property
    def is_sparse(self) -> bool:
        """Whether compaction removed records, maybe all."""
        return bool(self.flags & FLAG_SPARSE)

    @property
    def is_sealed(self) -> bool:
        """Whether the payload is encrypted."""
        return bool(self.flags & FLAG_SEALED)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds markers for brokers instead of records."""
        return bool(self.flags & FLAG_CONTROL)

    @property
    def is_sequenced(self) -> bool:
        """Whether a log tracks the batch for an idempotent producer."""
        return self.producer_id != 0 and not self.is_control

    @property
    def was_staged(self) -> bool:
        """Whether a broker appends the batch from a committed transaction's staging log."""
        return self.producer_id == STAGED_PRODUCER_ID


Headers = tuple[tuple[str, bytes], ...]
"""The headers of one record, in the producer's order."""

_column_encoder = msgspec.msgpack.Encoder()
_NO_HEADER: Final = bytes(HEADER_SIZE) + b"\x95"
"""Room for the header, and the MessagePack head of five columns."""
_NIL: Final = b"\xc0"


class Columns(msgspec.Struct, frozen=True, gc=False):
    """The records of one batch, column by column; all columns that are present are equally long."""

    record_count: int
    timestamp_deltas: Sequence[int] | None = None
    """Milliseconds after the first timestamp, negative before it; `None` when all are 0."""
    keys: Sequence[bytes | None] | None = None
    """`None` when no record has a key. A `ByteColumn` is encoded in format 2 as it is."""
    values: Sequence[bytes | None] | None = None
    """`None` when no record has a value; a record without one is a tombstone. As for keys."""
    headers: Sequence[Headers] | None = None
    """`None` when no record has headers."""
    offset_deltas: Sequence[int] | None = None
    """Offsets after the base offset; `None` when they are 0, 1, 2, …"""
    key_lengths: bytes | None = None
    """For the encoder of format 2: bytes of each key, if they are known and none is null."""
    value_lengths: bytes | None = None
    """Bytes of each value, as for keys."""


def encode_batch(
    columns: Columns,
    *,
    first_timestamp_ms: int,
    codec: Codec = Codec.NONE,
    producer_id: int = 0,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    format_version: int = FORMAT_VERSION,
) -> bytearray:
    """Return a batch as a producer sends it, with offset, epoch and durable position 0.

    Raises:
        WireFormatError: A `ByteColumn` contradicts itself or the number of records.
    """
    count = columns.record_count
    assert 0 < count <= RECORD_COUNT_MAX, f"{count} records in a batch"
    deltas = columns.timestamp_deltas
    batch, codec, length = _pack(columns, codec, format_version)
    _HEADER.pack_into(
        batch,
        0,
        SYNC_MARKER,
        0,
        0,
        0,
        0,
        0,
        len(batch) - HEADER_SIZE,
        format_version,
        codec if columns.headers is None else codec | queue_flags(columns.headers),
        count,
        columns.offset_deltas[-1] if columns.offset_deltas else count - 1,
        first_timestamp_ms,
        first_timestamp_ms + (max(deltas) if deltas else 0),
        producer_id,
        producer_epoch,
        length,
        base_sequence,
    )
    view = memoryview(batch)  # As `_seal`, which takes a call more.
    _BATCH_CRC.pack_into(batch, _BATCH_CRC_AT, crc32c(view[_BATCH_CRC_FROM:]))
    _HEADER_CRC.pack_into(batch, _HEADER_CRC_AT, crc32c(view[_HEADER_CRC_FROM:HEADER_SIZE]))
    return batch


def format_for(record_count: int, highest: int, *, columnar_from: int = COLUMNAR_COUNT_MIN) -> int:
    """Return the format version for a new batch.

    Args:
        record_count: Number of its records.
        highest: The highest version that its readers know: one of `KNOWN_FORMATS`, or above.
        columnar_from: Minimum number of records for version 2.
    """
    is_columnar = highest >= FORMAT_COLUMNAR and record_count >= columnar_from
    return FORMAT_COLUMNAR if is_columnar else FORMAT_VERSION


def encode_stored(
    columns: Columns,
    *,
    like: BatchHeader,
    flags: int,
    codec: Codec,
    first_timestamp_ms: int,
    max_timestamp_ms: int,
) -> bytearray:
    """Return a batch that replaces a batch of a log, with durable position 0.

    Args:
        columns: Its records; there may be none: then the format version is 1, which all readers
            know, also if this version of tidelog could not decode the other batch.
        like: The header of the other one: offsets, epoch, producer, sequences and the format stay.
        flags: All but the codec.
        codec: How to compress, if that makes it shorter.
        first_timestamp_ms: The timestamp from which those of the records are counted.
        max_timestamp_ms: The largest timestamp.
    """
    format_version = like.format_version if columns.record_count else FORMAT_VERSION
    batch, codec, length = _pack(columns, codec, format_version)
    _HEADER.pack_into(
        batch,
        0,
        SYNC_MARKER,
        0,
        like.base_offset,
        like.leader_epoch,
        0,
        0,
        len(batch) - HEADER_SIZE,
        format_version,
        int(codec) | flags,
        columns.record_count,
        like.last_offset_delta,
        first_timestamp_ms,
        max_timestamp_ms,
        like.producer_id,
        like.producer_epoch,
        length,
        like.base_sequence,
    )
    _seal(memoryview(batch))
    return batch


def _pack(columns: Columns, codec: Codec, format_version: int) -> tuple[bytearray, Codec, int]:
    """Return a batch without its header, its codec, and its uncompressed payload length."""
    keys, values = columns.keys, columns.values
    if keys is None and values is None and columns.record_count:
        # An explicit array: a few bytes must never announce millions of records.
        values = [None] * columns.record_count
    if format_version == FORMAT_VERSION:
        batch = bytearray(HEADER_SIZE)
        _column_encoder.encode_into(
            (
                columns.timestamp_deltas,
                _objects(keys, columns.record_count),
                _objects(values, columns.record_count),
                columns.headers,
                columns.offset_deltas,
            ),
            batch,
            HEADER_SIZE,  # In place: copying the payload takes longer than encoding it.
        )
    else:
        assert format_version == FORMAT_COLUMNAR, f"no batch format {format_version}"
        batch = _columnar(columns, keys, values)
    length = len(batch) - HEADER_SIZE
    if codec is not Codec.NONE:
        with memoryview(batch) as view:
            packed = compress(codec, view[HEADER_SIZE:])
        if len(packed) < length:
            batch[HEADER_SIZE:] = packed
            return batch, codec, length
    return batch, Codec.NONE, length


def _objects(column: Sequence[bytes | None] | None, count: int) -> Sequence[bytes | None] | None:
    """Return a column as the encoder takes it."""
    if not isinstance(column, ByteColumn):
        return column
    column.check_parts(count)
    return column.values()


def _columnar(
    columns: Columns, keys: Sequence[bytes | None] | None, values: Sequence[bytes | None] | None
) -> bytearray:
    """Return a batch of format version 2 without its header."""
    count = columns.record_count
    assert count <= PRODUCED_COUNT_MAX, f"{count} records in a batch"
    pieces: list[BytesLike] = [_NO_HEADER]
    end: list[BytesLike] = [
        _NIL if columns.headers is None else _column_encoder.encode(columns.headers)
    ]
    _add_numbers(pieces, columns.timestamp_deltas, count)
    _add_numbers(end, columns.offset_deltas, count)
    size = sum(map(len, pieces)) + sum(map(len, end))
    for column, lengths in ((keys, columns.key_lengths), (values, columns.value_lengths)):
        if column is None:
            pieces.append(_NIL)
            size += len(_NIL)
        else:
            assert len(column) == count, f"a column of {len(column)} records, not {count}"
            assert lengths is None or len(lengths) == count, f"{len(lengths)} lengths, not {count}"
            packed, packed_size = pack_values(column, lengths)
            pieces += packed
            size += packed_size
    pieces += end
    batch = bytearray().join(pieces)  # The only copy of the values.
    assert len(batch) == size, "the lengths do not add up to the values"
    return batch


def _add_numbers(pieces: list[BytesLike], numbers: Sequence[int] | None, count: int) -> None:
    if numbers is None:
        pieces.append(_NIL)
        return
    assert len(numbers) == count, f"a column of {len(numbers)} records, not {count}"
    packed = pack_numbers(numbers)
    pieces += (bytes_head(len(packed)), packed)


def queue_flags(headers: Sequence[Headers] | None) -> int:
    """Return the queue flags of a batch with these headers."""
    if headers is None or not any(
        name.startswith(HEADER_PREFIX) for of_record in headers for name, _ in of_record
    ):
        return 0
    if all(any(name == CHUNK_HEADER for name, _ in of_record) for of_record in headers):
        return FLAG_QUEUE_FIELDS | FLAG_CHUNKS
    return FLAG_QUEUE_FIELDS


_PRODUCER_FIELDS = struct.Struct("<QI")
_PRODUCER_FIELDS_AT = 64
_BASE_SEQUENCE = struct.Struct("<Q")
_BASE_SEQUENCE_AT = 80


def restamp_producer(
    batch: bytearray, *, producer_id: int, producer_epoch: int, base_sequence: int
) -> BatchHeader:
    """Change the producer id, epoch and sequence of an encoded batch in place; return its header.

    Only for a batch that was never appended under the old producer id: brokers cannot detect it
    as a duplicate under the new id.
    """
    _PRODUCER_FIELDS.pack_into(batch, _PRODUCER_FIELDS_AT, producer_id, producer_epoch)
    _BASE_SEQUENCE.pack_into(batch, _BASE_SEQUENCE_AT, base_sequence)
    _seal(memoryview(batch))
    return header_of(batch)


_FLAGS = struct.Struct("<H")
_FLAGS_AT = 38
_TIMESTAMPS = struct.Struct("<qq")
_TIMESTAMPS_AT = 48


def stamp_append_time(batch: memoryview, now_ms: int) -> BatchHeader:
    """Set the append time of all records of a batch, in place.

    Only for a checked batch whose records have no timestamps of their own.
    """
    (flags,) = _FLAGS.unpack_from(batch, _FLAGS_AT)
    _FLAGS.pack_into(batch, _FLAGS_AT, flags | FLAG_LOG_APPEND_TIME)
    _TIMESTAMPS.pack_into(batch, _TIMESTAMPS_AT, now_ms, now_ms)
    _seal(batch)
    return header_of(batch)


_LENGTH = struct.Struct("<I")
_LENGTH_AT = 32


def restamp_payload(
    batch: memoryview, *, payload_length: int, flags: int, batch_crc: int | None
) -> None:
    """Give a header, in place, the fields of another form of its payload.

    `batch_crc` is the batch CRC; `None` computes it.
    """
    _LENGTH.pack_into(batch, _LENGTH_AT, payload_length)
    _FLAGS.pack_into(batch, _FLAGS_AT, flags)
    if batch_crc is None:
        _seal(batch)
    else:
        _BATCH_CRC.pack_into(batch, _BATCH_CRC_AT, batch_crc)
        _seal_header(batch)


def _seal(batch: memoryview) -> None:
    _BATCH_CRC.pack_into(batch, _BATCH_CRC_AT, crc32c(batch[_BATCH_CRC_FROM:]))
    _HEADER_CRC.pack_into(batch, _HEADER_CRC_AT, crc32c(batch[_HEADER_CRC_FROM:HEADER_SIZE]))


def _seal_header(batch: memoryview) -> None:
    _HEADER_CRC.pack_into(batch, _HEADER_CRC_AT, crc32c(batch[_HEADER_CRC_FROM:HEADER_SIZE]))


def stamp_leader(batch: memoryview, *, base_offset: int, leader_epoch: int) -> None:
    """Write the leader's fields in place. `stamp_replica` must follow: it seals the header."""
    _LEADER_FIELDS.pack_into(batch, _LEADER_FIELDS_AT, base_offset, leader_epoch)


def stamp_appended(
    batch: memoryview, *, base_offset: int, leader_epoch: int, durable_position: int
) -> None:
    """Write the fields of a leader that appends to its log, and the header CRC, in place."""
    _LEADER_FIELDS.pack_into(batch, _LEADER_FIELDS_AT, base_offset, leader_epoch)
    _DURABLE_POSITION.pack_into(batch, _DURABLE_POSITION_AT, durable_position)
    _HEADER_CRC.pack_into(batch, _HEADER_CRC_AT, crc32c(batch[_HEADER_CRC_FROM:HEADER_SIZE]))


def stamp_replica(batch: memoryview, *, durable_position: int) -> None:
    """Write this replica's durable position and the header CRC, in place."""
    _DURABLE_POSITION.pack_into(batch, _DURABLE_POSITION_AT, durable_position)
    _seal_header(batch)


def parse_header(buffer: BytesLike, position: int = 0) -> BatchHeader | None:
    """Return the header at `position` when its marker and header CRC are right, else `None`.

    `None` means "no batch here", which is normal for recovery and readers, and no error. The
    payload is not read and may be missing.
    """
    end = position + HEADER_SIZE
    if end > len(buffer):
        return None
    header = BatchHeader(*_HEADER.unpack_from(buffer, position))
    if header.sync_marker != SYNC_MARKER:
        return None
    covered = memoryview(buffer)[position + _HEADER_CRC_FROM : end]
    return header if crc32c(covered) == header.header_crc else None


def has_valid_payload(header: BatchHeader, batch: BytesLike) -> bool:
    """Return whether `batch`, exactly one batch long, matches its batch CRC."""
    assert len(batch) == header.size
    return crc32c(memoryview(batch)[_BATCH_CRC_FROM:]) == header.batch_crc


def is_too_long(header: BatchHeader) -> bool:
    """Return whether leaders refuse a batch; those of earlier versions accepted it."""
    return (
        header.record_count > PRODUCED_COUNT_MAX or header.uncompressed_length > PRODUCED_LENGTH_MAX
    )


def check_produced(batch: memoryview) -> BatchHeader:
    """Check one batch from a producer, and return its header.

    The checks need no decoding of the payload: lengths, counts, timestamps, version, flags, both
    checksums.

    Raises:
        InvalidBatchError: The header contradicts itself or the length of `batch`.
        RecordTooLargeError: The batch has too many records, or unpacks to too many bytes.
        CorruptBatchError: A checksum is wrong: the batch was damaged in transit.
    """
    if len(batch) < HEADER_SIZE:
        raise InvalidBatchError(f"a batch of {len(batch)} bytes has no complete header")
    header = BatchHeader(*_HEADER.unpack_from(batch))
    if header.sync_marker != SYNC_MARKER:
        raise InvalidBatchError(f"not a record batch: it starts with {header.sync_marker:#010x}")
    if crc32c(batch[_HEADER_CRC_FROM:HEADER_SIZE]) != header.header_crc:
        raise CorruptBatchError("the header of the batch does not match its CRC-32C")
    if HEADER_SIZE + header.payload_length != len(batch):
        raise InvalidBatchError(
            f"the header says {header.size} bytes, the request has {len(batch)}"
        )
    check_header(header)
    if header.record_count > PRODUCED_COUNT_MAX or header.uncompressed_length > PRODUCED_LENGTH_MAX:
        raise RecordTooLargeError(
            f"the batch has {header.record_count:,} records in {header.uncompressed_length:,}"
            f" bytes, the limits are {PRODUCED_COUNT_MAX:,} and {PRODUCED_LENGTH_MAX:,};"
            f" divide it into smaller batches"
        )
    if crc32c(batch[_BATCH_CRC_FROM:]) != header.batch_crc:
        raise CorruptBatchError("the payload of the batch does not match its CRC-32C")
    return header


def header_of(batch: bytearray | memoryview) -> BatchHeader:
    """Return the header of a batch that this process encoded, without checks."""
    return BatchHeader(*_HEADER.unpack_from(batch))


def check_header(header: BatchHeader) -> None:
    """Check that the header of a produced batch does not contradict itself.

    Raises:
        InvalidBatchError: The header contradicts itself.
    """
    flags, count, length = header.flags, header.record_count, header.uncompressed_length
    codec = flags & FLAG_CODEC_MASK
    if (
        header.format_version not in KNOWN_FORMATS
        or flags & _NOT_PRODUCED_FLAGS
        or codec not in _KNOWN_CODECS
        or not 0 < count <= RECORD_COUNT_MAX
        or header.last_offset_delta != count - 1
        or count > length
        or (codec == _UNCOMPRESSED and length != header.payload_length)
        or not 0 <= header.first_timestamp_ms <= header.max_timestamp_ms < TIMESTAMP_END_MS
        or header.base_sequence + count > SEQUENCE_END
    ):
        raise InvalidBatchError(_contradiction(header))


def _contradiction(header: BatchHeader) -> str:  # noqa: PLR0911 - one return for each rule
    """Return the contradiction in a produced batch's header."""
    count = header.record_count
    if header.format_version not in KNOWN_FORMATS:
        return f"batch format version {header.format_version}, this broker knows {FORMAT_COLUMNAR}"
    if header.flags & ~KNOWN_FLAGS or header.codec not in _KNOWN_CODECS:
        return f"batch flags {header.flags:#06x} are not known to this broker"
    if header.flags & _BROKER_FLAGS:
        return f"batch flags {header.flags:#06x} are set by brokers only, not by producers"
    if not 0 < count <= RECORD_COUNT_MAX or header.last_offset_delta != count - 1:
        return f"{count} records cannot end at offset delta {header.last_offset_delta}"
    # A record takes at least the byte of a nil value.
    if count > header.uncompressed_length:
        return f"{count} records cannot fit into {header.uncompressed_length} bytes"
    if header.codec == _UNCOMPRESSED and header.uncompressed_length != header.payload_length:
        return "an uncompressed payload cannot have two lengths"
    if not 0 <= header.first_timestamp_ms <= header.max_timestamp_ms < TIMESTAMP_END_MS:
        return f"timestamps run from {header.first_timestamp_ms} to {header.max_timestamp_ms}"
    return f"{count} records from sequence {header.base_sequence} on exceed the last sequence"

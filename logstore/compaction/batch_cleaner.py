"""Batch-level compaction: the records that a cleaning removes, and the batches that it leaves.

Pure: no clock, no I/O. The newest record of a key wins: a later record of its key removes a record.
Offsets never change, and batches cover offsets without a gap: a sparse batch covers all offsets of
its original, and a run of batches without records becomes one empty batch.

Compaction never removes records without a key, chunks of large messages (a queue may need their
message), markers, and batches that cannot be decoded or have too many records. Skipped batches do
not remove earlier records either, in any cleaning: otherwise a tombstone could go before the
records that it deletes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, final

import msgspec

from tidelog.logstore.batch_cipher import BatchCipher
from tidelog.logstore.compaction.offset_map import OffsetMap
from tidelog.wire.batch.batch_columns import ColumnDecoder, decode_columns
from tidelog.wire.batch.large_messages import is_chunk
from tidelog.wire.batch.record_batch import BatchHeader, Columns, Headers, header_of
from tidelog.wire.batch.sparse_batch import SPAN_MAX, encode_empty, encode_sparse
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import KeyUnavailableError, WireFormatError

_UNCOMPRESSED_BYTES_MAX: Final = 64 << 20
RECORDS_MAX: Final = 1 << 20
"""Maximum records of a batch that is cleaned; the offset map has room for as many keys."""
_KEYS: Final = ColumnDecoder(["keys"])
_KEYS_AND_HEADERS: Final = ColumnDecoder(["keys", "headers"])


@final
class KeyRange:
    """The newest record of each key in a range of offsets, within a memory limit.

    Batches are added in order. The range ends before the first batch that does not fit.
    """

    def __init__(
        self, keys: OffsetMap, first_offset: int, cipher: BatchCipher | None = None
    ) -> None:
        """Start an empty range; `keys` is empty too. `cipher` opens sealed batches."""
        assert not len(keys)
        self._keys = keys
        self.cipher = cipher
        """Keys of the topic; `None` while it has none."""
        self.end_offset = first_offset
        """Exclusive end of the range."""
        self.is_full = False
        """Whether a batch did not fit: the rest waits for the next run."""

    def add(self, header: BatchHeader, batch: BytesLike) -> bool:
        """Add the next batch; return whether it fit.

        Raises:
            KeyUnavailableError: The batch is sealed, and its key cannot be used here.
            CorruptRecordError: Its seal is broken.
        """
        assert header.base_offset <= self.end_offset <= header.next_offset
        # The upper bound: a batch is in the range completely or not at all.
        needed = header.record_count if header.record_count <= RECORDS_MAX else 0
        assert needed <= self._keys.capacity, "no run could ever pass this batch"
        if self.is_full or needed > self._keys.room:
            self.is_full = True
            return False
        if header.is_sealed:
            header, batch = _opened(header, batch, self.cipher)
        columns = _decoded(header, batch)
        if columns is not None and columns.keys is not None:
            for delta, key, headers in _rows(columns):
                if key is not None and not (headers and is_chunk(headers)):
                    self._keys.put(key, header.base_offset + delta)
        self.end_offset = header.next_offset
        return True

    def newest(self, key: bytes) -> int | None:
        """Return the offset of the last record of a key in the range, `None` if it has none."""
        return self._keys.newest(key)


class CleaningRules(msgspec.Struct, frozen=True):
    """Rules of one cleaning for one segment."""

    range: KeyRange
    """Newest records; batches above its end stay unchanged."""
    drops_tombstones: bool
    """Whether to remove tombstones too that have no later record of their key."""
    is_header_needed: Callable[[int], bool]
    """Whether the producer state needs the header of the batch at a base offset."""


@final
class BatchCleaner:
    """Cleans consecutive batches.

    The cleaned batches cover the same offsets, epoch by epoch. A batch that loses no record is
    returned unchanged; other batches have durable position 0.
    """

    def __init__(self, rules: CleaningRules) -> None:
        """Clean by `rules`."""
        self.rules = rules
        """May be replaced between two batches."""
        self._gone: _Gone | None = None

    def take(self, header: BatchHeader, batch: BytesLike) -> list[BytesLike]:
        """Add the next batch; return the cleaned batches that are complete.

        Raises:
            KeyUnavailableError: The batch is sealed, and its key cannot be used here.
            CorruptRecordError: Its seal is broken.
        """
        left = _cleaned(header, batch, self.rules)
        gone = self._gone
        if left is None and not self.rules.is_header_needed(header.base_offset):
            if gone is not None and gone.goes_on_with(header):
                self._gone = _Gone(gone.base_offset, header.next_offset, gone.leader_epoch)
                return []
            given = self.end()
            self._gone = _Gone(header.base_offset, header.next_offset, header.leader_epoch)
            return given
        if left is None:
            left = batch if header.record_count == 0 else encode_sparse(header, Columns(0), ())
        return [*self.end(), left]

    def end(self) -> list[BytesLike]:
        """Return the last cleaned batch, if one is pending."""
        gone, self._gone = self._gone, None
        return [] if gone is None else [gone.encoded()]


class _Gone(msgspec.Struct, frozen=True):
    """A run of offsets of one epoch without remaining records."""

    base_offset: int
    end_offset: int
    leader_epoch: int

    def goes_on_with(self, header: BatchHeader) -> bool:
        span = header.next_offset - self.base_offset
        return header.leader_epoch == self.leader_epoch and span <= SPAN_MAX

    def encoded(self) -> bytearray:
        return encode_empty(
            base_offset=self.base_offset,
            end_offset=self.end_offset,
            leader_epoch=self.leader_epoch,
        )


def _cleaned(header: BatchHeader, batch: BytesLike, rules: CleaningRules) -> BytesLike | None:
    """Return the cleaned batch, `None` if it has no record left."""
    is_above = header.next_offset > rules.range.end_offset
    if is_above or header.is_control or header.record_count > RECORDS_MAX:
        return batch
    if not header.record_count:
        return None
    if header.is_sealed:
        return _cleaned_sealed(header, batch, rules)
    return _left_of(header, batch, rules)


def _cleaned_sealed(
    header: BatchHeader, batch: BytesLike, rules: CleaningRules
) -> BytesLike | None:
    """Return as `_cleaned`: the sealed batch itself if it loses no record."""
    plain_header, plain = _opened(header, batch, rules.range.cipher)
    if not plain_header.record_count:
        return None  # Its data key was deleted.
    left = _left_of(plain_header, plain, rules, sealed=batch)
    return batch if left is plain else left


def _left_of(
    header: BatchHeader,
    batch: BytesLike,
    rules: CleaningRules,
    *,
    sealed: BytesLike | None = None,
) -> BytesLike | None:
    """Return the rest of a plain batch as it is stored, `None` if it has no record left.

    `sealed` is the stored form of the batch, if it is not the plain one.
    """
    try:
        columns = decode_columns(header, batch, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX)
    except WireFormatError:
        return batch
    places = _living(header, columns, rules)
    if len(places) == columns.record_count:
        return batch
    if not places:
        return None
    cleaned = encode_sparse(header, columns, places)
    cipher = rules.range.cipher
    if cipher is None:
        return cleaned
    stored, _ = cipher.seal(
        memoryview(cleaned),
        header_of(cleaned),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        like=sealed,
    )
    return stored


def _opened(
    header: BatchHeader, batch: BytesLike, cipher: BatchCipher | None
) -> tuple[BatchHeader, BytesLike]:
    if cipher is None:
        raise KeyUnavailableError("the log has sealed batches, and its topic has no data key here")
    return cipher.open(header, batch)


def _living(header: BatchHeader, columns: Columns, rules: CleaningRules) -> list[int]:
    """Return the indexes of the records that stay."""
    values = columns.values
    living: list[int] = []
    for place, (delta, key, headers) in enumerate(_rows(columns)):
        if key is not None and not (headers and is_chunk(headers)):
            newest = rules.range.newest(key)
            is_superseded = newest is not None and newest > header.base_offset + delta
            is_tombstone = values is None or values[place] is None
            if is_superseded or (is_tombstone and rules.drops_tombstones):
                continue
        living.append(place)
    return living


def _rows(columns: Columns) -> Iterator[tuple[int, bytes | None, Headers]]:
    """Yield (offset delta, key, headers) of each record."""
    count = columns.record_count
    deltas: Sequence[int] = columns.offset_deltas or range(count)
    keys = columns.keys or [None] * count
    headers = columns.headers or [()] * count
    return zip(deltas, keys, headers, strict=True)


def _decoded(header: BatchHeader, batch: BytesLike) -> Columns | None:
    """Return the keys of a batch, and headers if it may have chunks; `None` if undecodable."""
    if header.is_control or header.record_count > RECORDS_MAX:
        return None
    decoder = _KEYS_AND_HEADERS if header.has_queue_fields else _KEYS
    try:
        return decoder.decode(header, batch, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX)
    except WireFormatError:
        return None

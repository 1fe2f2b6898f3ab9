"""Which records compaction takes out of a log, and what is left of its batches.

Pure: no clock, no I/O. Newest wins: a record dies when a later one of its key is known. Offsets
never change, and batches follow each other without a gap: what is left of a batch stands for all of
its offsets, and a run of batches of which nothing is left becomes one empty batch.

Never taken out: records without a key, chunks of large messages (the message that names them may be
needed by a queue), markers, and what nobody can decode or has too many records for one batch. What
is not looked into takes nothing out either, in no cleaning: if it did in one and not in another, a
tombstone could go before what it deletes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, final

import msgspec

from tidelog.logstore.compaction.offset_map import OffsetMap
from tidelog.wire.batch.batch_columns import ColumnDecoder, decode_columns
from tidelog.wire.batch.large_messages import is_chunk
from tidelog.wire.batch.record_batch import BatchHeader, Columns, Headers
from tidelog.wire.batch.sparse_batch import SPAN_MAX, encode_empty, encode_sparse
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import WireFormatError

_UNCOMPRESSED_BYTES_MAX: Final = 64 << 20
RECORDS_MAX: Final = 1 << 20
"""In one batch. Whoever cleans has memory for as many keys."""
_KEYS: Final = ColumnDecoder(["keys"])
_KEYS_AND_HEADERS: Final = ColumnDecoder(["keys", "headers"])


@final
class KeyRange:
    """The newest record of each key in a range of offsets, as far as memory allows.

    Batches come in their order. When one does not fit any more, the range ends before it.
    """

    def __init__(self, keys: OffsetMap, first_offset: int) -> None:
        """Begin a range that is empty; `keys` is too."""
        assert not len(keys)
        self._keys = keys
        self.end_offset = first_offset
        """How far it goes (exclusive)."""
        self.is_full = False
        """Whether a batch did not fit: the rest is for the next round."""

    def add(self, header: BatchHeader, batch: BytesLike) -> bool:
        """Add the next batch; return whether it fit."""
        assert header.base_offset <= self.end_offset <= header.next_offset
        # The most that it may need: a batch is in the range as a whole or not at all.
        needed = header.record_count if header.record_count <= RECORDS_MAX else 0
        assert needed <= self._keys.capacity, "no round would ever come behind this batch"
        if self.is_full or needed > self._keys.room:
            self.is_full = True
            return False
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
    """What holds for one segment in one cleaning."""

    range: KeyRange
    """Above it nothing is changed."""
    drops_tombstones: bool
    """Whether deletions die that have no later record of their key either."""
    is_header_needed: Callable[[int], bool]
    """Whether what is known of a producer rests on the header of the batch at a base offset."""


@final
class BatchCleaner:
    """Takes batches that follow each other without a gap, and gives what is left of them.

    They stand for the same offsets, epoch by epoch. One that loses nothing is given as it is;
    others have durable position 0.
    """

    def __init__(self, rules: CleaningRules) -> None:
        """Clean by `rules`."""
        self.rules = rules
        """May be replaced between two batches."""
        self._gone: _Gone | None = None

    def take(self, header: BatchHeader, batch: BytesLike) -> list[BytesLike]:
        """Take the next batch; return what can be told by now of what is left."""
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
        """Return what is left of what was taken and not given yet."""
        gone, self._gone = self._gone, None
        return [] if gone is None else [gone.encoded()]


class _Gone(msgspec.Struct, frozen=True):
    """A run of offsets, written in one epoch, of which nothing is left."""

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
    """Return what is left of a batch, `None` if no record is."""
    is_above = header.next_offset > rules.range.end_offset
    if is_above or header.is_control or header.record_count > RECORDS_MAX:
        return batch
    if not header.record_count:
        return None
    try:
        columns = decode_columns(header, batch, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX)
    except WireFormatError:
        return batch
    places = _living(header, columns, rules)
    if len(places) == columns.record_count:
        return batch
    return encode_sparse(header, columns, places) if places else None


def _living(header: BatchHeader, columns: Columns, rules: CleaningRules) -> list[int]:
    """Return the places of the records that stay."""
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
    """Return the keys of a batch, and headers if there may be chunks; `None` if nobody can."""
    if header.is_control or header.record_count > RECORDS_MAX:
        return None
    decoder = _KEYS_AND_HEADERS if header.has_queue_fields else _KEYS
    try:
        return decoder.decode(header, batch, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX)
    except WireFormatError:
        return None

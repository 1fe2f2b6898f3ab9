"""Encoder of the sparse and empty batches that compaction leaves.

Pure: no clock, no I/O. The batches of a log cover its offsets without a gap, also after
compaction: a sparse batch still covers all offsets and sequences of the original batch.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    FLAG_LOG_APPEND_TIME,
    FLAG_SPARSE,
    FLAG_TRANSACTIONAL,
    HEADER_SIZE,
    BatchHeader,
    Columns,
    encode_stored,
    header_of,
    queue_flags,
)

SPAN_MAX: Final = 1 << 32
"""Maximum offsets that one batch can cover."""
_KEPT_FLAGS: Final = FLAG_LOG_APPEND_TIME | FLAG_TRANSACTIONAL
_Item = TypeVar("_Item")


def encode_sparse(header: BatchHeader, columns: Columns, places: Sequence[int]) -> bytearray:
    """Return a batch of a log with only its kept records, with durable position 0.

    Args:
        header: Header of the original batch.
        columns: All records of the original batch.
        places: Indexes of the kept records in the columns, growing. Without kept records the
            batch has no timestamps either, so that a search by time does not stop there.
    """
    deltas = columns.offset_deltas or range(columns.record_count)
    left = Columns(
        len(places),
        timestamp_deltas=_some(columns.timestamp_deltas, places),
        keys=_some(columns.keys, places),
        values=_some(columns.values, places),
        headers=_some(columns.headers, places),
        offset_deltas=_some(deltas, places),
    )
    flags = header.flags & _KEPT_FLAGS | FLAG_SPARSE | queue_flags(left.headers)
    first_ms, max_ms = _times(header, left)
    return encode_stored(
        left,
        like=header,  # Also the format: every reader of the log knows that of the original.
        flags=flags,
        codec=Codec(header.codec),
        first_timestamp_ms=first_ms,
        max_timestamp_ms=max_ms,
    )


def encode_empty(*, base_offset: int, end_offset: int, leader_epoch: int) -> bytearray:
    """Return a batch without records that covers offsets of one epoch, with durable position 0.

    It belongs to no producer.
    """
    span = end_offset - base_offset
    assert 0 < span <= SPAN_MAX, f"a batch of {span} offsets"
    without_producer = replace(
        header_of(bytearray(HEADER_SIZE)),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        last_offset_delta=span - 1,
    )
    return encode_sparse(without_producer, Columns(0), ())


def _times(header: BatchHeader, left: Columns) -> tuple[int, int]:
    """Return the first timestamp of the batch and the largest of the kept records."""
    if not left.record_count:
        return 0, 0
    if header.has_append_time:
        return header.first_timestamp_ms, header.max_timestamp_ms
    latest = max(left.timestamp_deltas) if left.timestamp_deltas else 0
    return header.first_timestamp_ms, header.first_timestamp_ms + max(latest, 0)


def _some(column: Sequence[_Item] | None, places: Sequence[int]) -> list[_Item] | None:
    return None if column is None or not places else [column[place] for place in places]

"""Contents of a batch: records, frames of a journal, entries of the metadata.

Pure: no clock, no I/O.
"""

from collections.abc import Iterator

import msgspec

from tidelog.broker.inspection.file_kinds import Content
from tidelog.broker.inspection.rows import OffsetFilter, Row, named, named_fields
from tidelog.coordinator.controller.log_entries import decode_entry
from tidelog.coordinator.raft.membership import decode_membership
from tidelog.coordinator.raft.messages import EntryKind
from tidelog.coordinator.raft_node.storage import stored_entry
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import BatchHeader, Columns
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import WireFormatError
from tidelog.wire.messages.queue_journal import BackgroundWork, decode

_UNCOMPRESSED_BYTES_MAX = 1 << 30


def content_lines(
    file: str, header: BatchHeader, batch: BytesLike, *, content: Content, wanted: OffsetFilter
) -> Iterator[Row]:
    """Yield the contents of a batch whose checksums are right, one line for each item.

    Raises:
        WireFormatError: The contents are malformed, or of a newer version.
    """
    columns = decode_columns(header, batch, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX)
    for place in range(columns.record_count):
        delta = columns.offset_deltas[place] if columns.offset_deltas is not None else place
        offset = header.base_offset + delta
        if not wanted.touches(offset, offset + 1):
            continue
        if content is Content.JOURNAL:
            yield from _journal_lines(file, offset, _value(columns, place))
        elif content is Content.ENTRIES:
            yield _entry_line(file, offset, header.leader_epoch, value=_value(columns, place))
        else:
            yield _record_line(file, offset, header, columns=columns, place=place)


def _value(columns: Columns, place: int) -> bytes:
    value = columns.values[place] if columns.values is not None else None
    return value or b""


def _record_line(
    file: str, offset: int, header: BatchHeader, *, columns: Columns, place: int
) -> Row:
    deltas, keys, values = columns.timestamp_deltas, columns.keys, columns.values
    return {
        "file": file,
        "type": "record",
        "offset": offset,
        "timestamp_ms": header.first_timestamp_ms + (deltas[place] if deltas else 0),
        "key": keys[place] if keys is not None else None,
        "value": values[place] if values is not None else None,
        "headers": list(columns.headers[place]) if columns.headers is not None else [],
    }


def _journal_lines(file: str, offset: int, value: bytes) -> Iterator[Row]:
    frame = decode(value)
    around = named_fields(frame)
    del around["entries"]
    if frame.background_work in set(BackgroundWork):
        around["background_work"] = BackgroundWork(frame.background_work).name
    for entry in frame.entries:
        yield {
            "file": file,
            "type": "journal_entry",
            "offset": offset,
            **around,
            "kind": type(entry).__name__,
            "entry": named(entry),
        }


def _entry_line(file: str, offset: int, term: int, *, value: bytes) -> Row:
    entry = stored_entry(offset + 1, term, value)
    line: Row = {
        "file": file,
        "type": "raft_entry",
        "offset": offset,
        "index": entry.index,
        "term": entry.term,
        "kind": entry.kind.name,
    }
    if entry.kind is EntryKind.MEMBERSHIP:
        line["membership"] = named(decode_membership(entry.payload))
    elif entry.kind is EntryKind.COMMAND:
        try:
            records = decode_entry(entry.payload)
        except msgspec.MsgspecError as error:
            raise WireFormatError(
                f"entry {entry.index} cannot be decoded, a newer tidelog may have written it:"
                f" {error}"
            ) from error
        line["records"] = named([*records.cluster, *records.groups])
    return line

"""Rewriting of batches for clients that read format version 1 only.

Pure: no clock, no I/O. A broker rewrites what it sends to such a client; its files stay.
"""

from collections.abc import Sequence
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from tidelog.wire.batch.batch_columns import ColumnDecoder, packed_headers, unpack
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    FLAG_CODEC_MASK,
    FORMAT_VERSION,
    PRODUCED_LENGTH_MAX,
    BatchHeader,
    Columns,
    Headers,
    encode_stored,
    has_valid_payload,
    parse_header,
)
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import WireFormatError

_UNCOMPRESSED_BYTES_MAX: Final = 64 << 20
_NO_HEADERS: Final = ColumnDecoder(("timestamp_deltas", "keys", "values"))
REWRITTEN_BYTES_MAX: Final = PRODUCED_LENGTH_MAX
"""Unpacked bytes that are rewritten for one reply, besides one batch: a kilobyte of compressed
zeros takes as long as 30 MB of records."""


def in_format_1(batches: BytesLike, *, rewritten_bytes_max: int | None = None) -> BytesLike:
    """Return whole batches of a log, those of a later format version as batches of version 1.

    Records, offsets, leader epoch, timestamps, flags, codec, and the fields of the producer stay.
    A batch that is damaged, or that cannot be decoded, stays as it is: a new checksum would hide
    that from the client.

    Args:
        batches: Plain batches that follow each other, without bytes between them. They are
            returned themselves if all of them are of version 1.
        rewritten_bytes_max: Unpacked bytes of rewritten batches behind which the result ends, after
            at least one batch; `None` for all batches.
    """
    view = memoryview(batches)
    pieces: list[BytesLike] = []
    kept_from = position = unpacked = 0
    while (header := parse_header(view, position)) is not None:
        end = position + header.size
        if header.format_version != FORMAT_VERSION and end <= len(view):
            unpacked += header.uncompressed_length
            if position and rewritten_bytes_max is not None and unpacked > rewritten_bytes_max:
                view = view[:position]
                break
            rewritten = _rewritten(header, view[position:end])
            if rewritten is not None:
                pieces += (view[kept_from:position], rewritten)
                kept_from = end
        position = end
    if not pieces:
        return batches if len(view) == len(batches) else view
    return b"".join((*pieces, view[kept_from:]))


def rewritten_length(batches: BytesLike) -> int:
    """Return the unpacked bytes of those batches that `in_format_1` rewrites."""
    length = position = 0
    while (header := parse_header(batches, position)) is not None:
        if header.format_version != FORMAT_VERSION:
            length += header.uncompressed_length
        position += header.size
    return length


def _rewritten(header: BatchHeader, batch: memoryview) -> bytearray | None:
    """Return a batch in format version 1; `None` if it is damaged or cannot be decoded."""
    if not has_valid_payload(header, batch):
        return None
    try:
        columns = columns_of(header, batch)
    except WireFormatError:
        return None
    return encode_stored(
        columns,
        like=replace(header, format_version=FORMAT_VERSION),
        flags=header.flags & ~FLAG_CODEC_MASK,
        codec=Codec(header.codec),
        first_timestamp_ms=header.first_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
    )


def columns_of(header: BatchHeader, batch: BytesLike) -> Columns:
    """Return the columns of a batch; its headers, which both formats have, stay packed.

    So a batch of millions of headers costs no memory for each of them; the client checks them.

    Raises:
        WireFormatError: The payload is not what the header says.
    """
    plain = unpack(header, batch, _UNCOMPRESSED_BYTES_MAX)
    columns = _NO_HEADERS.decode_plain(header, plain)
    headers = msgspec.Raw(packed_headers(plain))
    return replace(columns, headers=cast("Sequence[Headers]", headers))

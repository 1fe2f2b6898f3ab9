"""Decoding the payload of a record batch: all of its columns, or those that are wanted.

Pure: no clock, no I/O. Whoever calls has checked both checksums: see `wire.record_batch`.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final, final

import msgspec

from wire.compression import decompress
from wire.env import BytesLike
from wire.errors import WireFormatError
from wire.record_batch import (
    FORMAT_VERSION,
    HEADER_SIZE,
    KNOWN_FLAGS,
    TIMESTAMP_END_MS,
    BatchHeader,
    Columns,
    Headers,
)

_TimestampDelta = Annotated[int, msgspec.Meta(gt=-TIMESTAMP_END_MS, lt=TIMESTAMP_END_MS)]
_Skipped = msgspec.Raw
_TYPES: Final[Mapping[str, Any]] = {
    "timestamp_deltas": list[_TimestampDelta] | None,
    "keys": list[bytes | None] | None,
    "values": list[bytes | None] | None,
    "headers": list[Headers] | None,
    "offset_deltas": list[int] | None,
}
"""By the names that `Columns` gives them, in the order in which they are written."""
_timestamp_decoder = msgspec.msgpack.Decoder(
    tuple[list[_TimestampDelta] | None, _Skipped, _Skipped, _Skipped, _Skipped]
)


@final
class ColumnDecoder:
    """Decodes some columns of batches; no object is made for a record of another one.

    Of a column that is passed over it is checked that it is whole and well-formed MessagePack, and
    nil or as long as the header says; not what its elements are: to know that costs what decoding
    them costs, and nobody reads them (`docs/decisions/0019-decoding-some-columns.md`).
    """

    def __init__(self, wanted: Collection[str]) -> None:
        """Decode these columns, by the names of `Columns`, and always the offset deltas."""
        assert not set(wanted) - _TYPES.keys(), f"no columns: {wanted}"
        self.columns: frozenset[str] = frozenset(wanted) | {"offset_deltas"}
        """Those that are decoded; the others are `None` in what comes out."""
        types = tuple(_TYPES[name] if name in self.columns else _Skipped for name in _TYPES)
        self._decoder = msgspec.msgpack.Decoder[tuple[Any, ...]](tuple[types])  # type: ignore[valid-type]

    def decode(
        self, header: BatchHeader, batch: BytesLike, *, uncompressed_length_max: int
    ) -> Columns:
        """Return columns of one whole batch whose checksums have been checked.

        Raises:
            WireFormatError: The payload is not what the header says, or larger than
                `uncompressed_length_max`.
        """
        plain = _unpack(header, batch, uncompressed_length_max)
        try:
            found = self._decoder.decode(plain)
        except (ValueError, RecursionError) as error:
            # A MsgspecError, or a UnicodeDecodeError in a header's name; arrays in arrays in a
            # column that is passed over.
            raise WireFormatError(f"the payload is not five columns: {error}") from error
        _check_lengths(header, found)
        kept = [None if isinstance(column, _Skipped) else column for column in found]
        columns = Columns(header.record_count, *kept)
        _check_timestamps(header, columns.timestamp_deltas)
        _check_offsets(header, columns.offset_deltas)
        return columns


ALL_COLUMNS: Final = ColumnDecoder(_TYPES)


def decode_columns(
    header: BatchHeader, batch: BytesLike, *, uncompressed_length_max: int
) -> Columns:
    """Return all columns of one whole batch whose checksums have been checked.

    Raises:
        WireFormatError: As for `ColumnDecoder.decode`.
    """
    return ALL_COLUMNS.decode(header, batch, uncompressed_length_max=uncompressed_length_max)


def decode_timestamp_deltas(
    header: BatchHeader, batch: BytesLike, *, uncompressed_length_max: int
) -> Sequence[int] | None:
    """Return only the first column of a batch; the others are passed over.

    For brokers, which search by time: it takes a fraction of the memory.

    Raises:
        WireFormatError: As for `ColumnDecoder.decode`, as far as the column is concerned.
    """
    plain = _unpack(header, batch, uncompressed_length_max)
    try:
        deltas, *_ = _timestamp_decoder.decode(plain)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"the payload is not five columns: {error}") from error
    if deltas is not None and len(deltas) != header.record_count:
        raise WireFormatError(
            f"a column of {len(deltas)} records under a header of {header.record_count}"
        )
    _check_timestamps(header, deltas)
    return deltas


def _unpack(header: BatchHeader, batch: BytesLike, length_max: int) -> bytes | memoryview:
    """Return the payload before compression, after checking what can be known before it."""
    if header.format_version != FORMAT_VERSION or header.flags & ~KNOWN_FLAGS:
        raise WireFormatError(
            f"a batch of format version {header.format_version} with flags {header.flags:#06x}"
            f" is of a newer version; upgrade this side"
        )
    if header.uncompressed_length > length_max:
        raise WireFormatError(
            f"the batch unpacks to {header.uncompressed_length} bytes, the limit is {length_max}"
        )
    payload = memoryview(batch)[HEADER_SIZE:]
    return decompress(header.codec, payload, uncompressed_length=header.uncompressed_length)


def _check_lengths(
    header: BatchHeader, columns: Sequence[Sequence[object] | msgspec.Raw | None]
) -> None:
    count = header.record_count
    lengths = [length for length in map(_length, columns) if length is not None]
    if any(length != count for length in lengths):
        raise WireFormatError(f"columns of {lengths} records under a header of {count}")
    if count and not lengths:
        # Six bytes would announce millions of records.
        raise WireFormatError(f"a header of {count} records over a payload without columns")


_NIL: Final = 0xC0
_ARRAY_4: Final = 0x90
_ARRAY_16: Final = 0xDC
_ARRAY_32: Final = 0xDD


def _length(column: Sequence[object] | msgspec.Raw | None) -> int | None:
    """Return how many elements a column has, decoded or not; `None` for nil."""
    if column is None:
        return None
    if not isinstance(column, msgspec.Raw):
        return len(column)
    view = memoryview(column)
    first = view[0]
    if first == _NIL:
        return None
    if first & 0xF0 == _ARRAY_4:
        return first & 0x0F
    if first == _ARRAY_16:
        return int.from_bytes(view[1:3], "big")
    if first == _ARRAY_32:
        return int.from_bytes(view[1:5], "big")
    raise WireFormatError(f"a column is neither an array nor nil: it begins with {first:#04x}")


def _check_timestamps(header: BatchHeader, deltas: Sequence[int] | None) -> None:
    # Searches by time rely on the end; nothing relies on a start.
    if deltas and header.first_timestamp_ms + max(deltas) > header.max_timestamp_ms:
        raise WireFormatError("a record is younger than the last timestamp of its batch")


def _check_offsets(header: BatchHeader, deltas: Sequence[int] | None) -> None:
    if deltas is None:
        if header.record_count > header.last_offset_delta + 1:
            raise WireFormatError("more records than offsets")
    elif deltas and (deltas[0] < 0 or deltas[-1] > header.last_offset_delta):
        raise WireFormatError("offsets of records lie outside of their batch")
    elif any(a >= b for a, b in pairwise(deltas)):
        raise WireFormatError("offsets of records do not grow")

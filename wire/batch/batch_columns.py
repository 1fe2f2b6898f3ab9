"""Decoder of a record batch's payload: all of its columns, or the requested ones.

Pure: no clock, no I/O. The caller has checked both checksums: see `wire.batch.record_batch`.
"""

from array import array
from collections.abc import Callable, Collection, Container, Generator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final, final

import msgspec
from msgspec.structs import replace

from tidelog.wire.batch.byte_column import ByteColumn, length_width, unpack_numbers
from tidelog.wire.batch.compression import Codec, decompress
from tidelog.wire.batch.object_walk import NIL, array_head, check_object_count, skip
from tidelog.wire.batch.record_batch import (
    FLAG_CODEC_MASK,
    FORMAT_COLUMNAR,
    HEADER_SIZE,
    KNOWN_FLAGS,
    KNOWN_FORMATS,
    PRODUCED_COUNT_MAX,
    TIMESTAMP_END_MS,
    BatchHeader,
    Columns,
    Headers,
    is_too_long,
)
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import WireFormatError

DECODED_COUNT_MAX: Final = 1 << 20
"""Maximum records of a batch that is decoded: objects take a hundred times the memory of a record
without key and value. Leaders of earlier versions accepted batches with more."""

_OBJECTS_MAX: Final = 4 * DECODED_COUNT_MAX
"""Maximum objects of the decoded columns of a batch that no leader accepts today: elements, and
arrays and strings of headers. An object takes about 60 bytes, and at least one of the payload."""

SMALL_BYTES: Final = 64 << 10
"""Bytes that are decoded in one step: it takes some milliseconds at most."""
_RECORDS_AT_ONCE: Final = 250
_OBJECTS_AT_ONCE_MAX: Final = 20_000
"""Maximum objects of `_RECORDS_AT_ONCE` records."""

_TimestampDelta = Annotated[int, msgspec.Meta(gt=-TIMESTAMP_END_MS, lt=TIMESTAMP_END_MS)]
_UNCOMPRESSED: Final = int(Codec.NONE)
_Skipped = msgspec.Raw
_TYPES: Final[Mapping[str, Any]] = {
    "timestamp_deltas": list[_TimestampDelta] | None,
    "keys": list[bytes | None] | None,
    "values": list[bytes | None] | None,
    "headers": list[Headers] | None,
    "offset_deltas": list[int] | None,
}
"""Types of the columns by the names in `Columns`, in the order of the format."""
_timestamp_decoder = msgspec.msgpack.Decoder(
    tuple[list[_TimestampDelta] | None, _Skipped, _Skipped, _Skipped, _Skipped]
)
_packed_timestamp_decoder = msgspec.msgpack.Decoder(
    tuple[memoryview | None, _Skipped, _Skipped, _Skipped, _Skipped]
)
_ByteStrings = tuple[memoryview, memoryview, memoryview | None]
_columnar_decoder = msgspec.msgpack.Decoder(
    tuple[memoryview | None, _ByteStrings | None, _ByteStrings | None, _Skipped, memoryview | None]
)
"""Decoder of format version 2: views of the payload, and nothing of the headers."""


@final
class ColumnDecoder:
    """Decodes some columns of batches; skipped columns create no objects.

    A skipped column must be complete, well-formed MessagePack, and nil or as long as the header
    says. Its elements are not checked: that costs as much as decoding them, and they are not read
    (`docs/decisions/0019-column-projection.md`).
    """

    def __init__(self, wanted: Collection[str]) -> None:
        """Decode these columns, by the names of `Columns`, and always the offset deltas."""
        assert not set(wanted) - _TYPES.keys(), f"no columns: {wanted}"
        self.columns: frozenset[str] = frozenset(wanted) | {"offset_deltas"}
        """Names of the decoded columns; the others are `None` in the result."""
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
        return self.decode_plain(header, unpack(header, batch, uncompressed_length_max))

    def decode_plain(self, header: BatchHeader, plain: BytesLike) -> Columns:
        """Return columns of an unpacked payload.

        Raises:
            WireFormatError: The payload is not what the header says.
        """
        if header.format_version == FORMAT_COLUMNAR:
            return _Columnar(header, plain).lists(self.columns)
        if is_too_long(header):
            self._check_object_count(header, plain)
        try:
            found = self._decoder.decode(plain)
        except (ValueError, RecursionError) as error:
            # A MsgspecError, a UnicodeDecodeError in a header's name, or a RecursionError from
            # nested arrays in a skipped column.
            raise WireFormatError(f"the payload is not five columns: {error}") from error
        # Most batches have one record and few columns: no call for each column.
        lengths: list[int] = []
        kept: list[Sequence[Any] | None] = []
        for column in found:
            is_skipped = isinstance(column, _Skipped)
            kept.append(None if is_skipped else column)
            length = _length(column) if is_skipped else None if column is None else len(column)
            if length is not None:
                lengths.append(length)
        _require_lengths(header, lengths)
        deltas, keys, values, headers, offsets = kept
        columns = Columns(header.record_count, deltas, keys, values, headers, offsets)
        if columns.timestamp_deltas is not None:
            _check_timestamps(header, columns.timestamp_deltas)
        _check_offsets(header, columns.offset_deltas)
        return columns

    def _check_object_count(self, header: BatchHeader, plain: BytesLike) -> None:
        packed = dict(zip(_TYPES, _split(plain), strict=True))
        wanted = {name: packed[name] for name in self.columns}
        _check_lengths(header, [*wanted.values()])
        headers = wanted.pop("headers", None)
        if headers is not None:  # The elements of other columns hold no objects.
            count = sum(_length(column) or 0 for column in wanted.values())
            _check_headers(headers, counted=count)


ALL_COLUMNS: Final = ColumnDecoder(_TYPES)


def decode_columns(
    header: BatchHeader, batch: BytesLike, *, uncompressed_length_max: int
) -> Columns:
    """Return all columns of one whole batch whose checksums have been checked.

    Raises:
        WireFormatError: As for `ColumnDecoder.decode`.
    """
    return ALL_COLUMNS.decode(header, batch, uncompressed_length_max=uncompressed_length_max)


def columns_in_steps(header: BatchHeader, plain: memoryview) -> Generator[None, None, Columns]:
    """Return the columns of an unpacked payload, without the values; yield after each step.

    No step takes longer than some milliseconds.

    Raises:
        WireFormatError: The payload is not what the header says, or has too many headers.
    """
    if header.format_version == FORMAT_COLUMNAR:
        return (yield from _columnar_in_steps(header, plain))
    if not plain or plain[0] != _ARRAY_4 | len(_TYPES):
        raise WireFormatError("the payload is not five columns")
    at = 1
    found: dict[str, list[Any] | None] = {}
    try:
        for name in _TYPES:
            at, found[name] = yield from _column_in_steps(name, header, plain, at=at)
    except (IndexError, ValueError) as error:  # Cut off, or not of the types of the column.
        raise WireFormatError(f"the payload is not five columns: {error}") from error
    if at != len(plain):
        raise WireFormatError("the payload is longer than its five columns")
    columns = Columns(
        header.record_count,
        timestamp_deltas=found["timestamp_deltas"],
        keys=found["keys"],
        headers=found["headers"],
        offset_deltas=found["offset_deltas"],
    )
    _check_timestamps(header, columns.timestamp_deltas)
    _check_offsets(header, columns.offset_deltas)
    return columns


def _columnar_in_steps(header: BatchHeader, plain: memoryview) -> Generator[None, None, Columns]:
    """Return as `columns_in_steps` for format version 2: only its headers need many steps."""
    packed = _Columnar(header, plain)
    yield
    columns = packed.lists(("timestamp_deltas",))
    yield
    columns = replace(columns, keys=packed.objects("keys"))  # At most 65,536: three milliseconds.
    yield
    if packed.headers is None:
        return columns
    view = memoryview(packed.headers)
    try:
        _, headers = yield from _column_in_steps("headers", header, view, at=0)
    except (IndexError, ValueError) as error:
        raise WireFormatError(f"the payload is not five columns: {error}") from error
    return replace(columns, headers=headers)


def _column_in_steps(
    name: str, header: BatchHeader, plain: memoryview, *, at: int
) -> Generator[None, None, tuple[int, list[Any] | None]]:
    """Return the end of a column, and its elements; those of the values are left out."""
    if plain[at] == NIL:
        return at + 1, None
    count, at = array_head(plain, at)
    if count != header.record_count:
        raise WireFormatError(
            f"a column of {count} records under a header of {header.record_count}"
        )
    elements: list[Any] = []
    for first in range(0, count, _RECORDS_AT_ONCE):
        some = min(_RECORDS_AT_ONCE, count - first)
        end = yield from skip(plain, at, some, most=_OBJECTS_AT_ONCE_MAX)
        if name != "values":
            part = b"".join((bytes([_ARRAY_32]), some.to_bytes(4, "big"), plain[at:end]))
            elements += _DECODERS[name].decode(part)
        at = end
        yield
    return at, elements


def packed_headers(plain: BytesLike) -> memoryview:
    """Return the bytes of the headers of all records in an unpacked payload.

    Raises:
        WireFormatError: The payload is not five columns.
    """
    return memoryview(_split(plain)[list(_TYPES).index("headers")])


def decode_timestamp_deltas(
    header: BatchHeader, batch: BytesLike, *, uncompressed_length_max: int
) -> Sequence[int] | None:
    """Return the first column of a batch; the others are skipped.

    Brokers use it for searches by time: it takes a fraction of the memory.

    Raises:
        WireFormatError: As for `ColumnDecoder.decode`, as far as the column is concerned.
    """
    plain = unpack(header, batch, uncompressed_length_max)
    try:
        if header.format_version == FORMAT_COLUMNAR:
            packed, *_ = _packed_timestamp_decoder.decode(plain)
            return None if packed is None else _timestamps(header, packed)
        deltas, *_ = _timestamp_decoder.decode(plain)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"the payload is not five columns: {error}") from error
    if deltas is not None and len(deltas) != header.record_count:
        raise WireFormatError(
            f"a column of {len(deltas)} records under a header of {header.record_count}"
        )
    _check_timestamps(header, deltas)
    return deltas


@final
class _Columnar:
    """The columns of a payload of format version 2, as views of it.

    The constructor checks the lengths of all columns; taking a column checks the rest of it.
    """

    __slots__ = ("_byte_columns", "_header", "_numbers", "headers")

    def __init__(self, header: BatchHeader, plain: BytesLike) -> None:
        try:
            deltas, keys, values, headers, offsets = _columnar_decoder.decode(plain)
        except (ValueError, RecursionError) as error:
            raise WireFormatError(f"the payload is not five columns: {error}") from error
        count = header.record_count
        header_count = _length(headers)
        if header_count is not None and header_count != count:
            raise WireFormatError(f"headers of {header_count} records under a header of {count}")
        if count and all(each is None for each in (values, keys, header_count, deltas, offsets)):
            # Otherwise six bytes could announce thousands of records.
            raise WireFormatError(f"a header of {count} records over a payload without columns")
        self._header = header
        self._numbers = {
            "timestamp_deltas": None if deltas is None else unpack_numbers(deltas, count),
            "offset_deltas": None if offsets is None else unpack_numbers(offsets, count),
        }
        self._byte_columns = {
            "keys": None if keys is None else _byte_column(keys, count),
            "values": None if values is None else _byte_column(values, count),
        }
        self.headers = None if header_count is None else headers
        """The packed array of the headers."""

    def size_of(self, name: str) -> int | None:
        if name == "headers":
            return None if self.headers is None else len(memoryview(self.headers))
        column = self._byte_columns.get(name)
        if column is not None:
            return len(column.lengths) + len(column.blob)
        numbers = self._numbers.get(name)
        return None if numbers is None else len(numbers) * numbers.itemsize

    def byte_column(self, name: str) -> ByteColumn | None:
        column = self._byte_columns[name]
        if column is not None:
            column.check(self._header.record_count)
        return column

    def column(self, name: str) -> Sequence[Any] | None:
        """Return a column: numbers as an array of their own width."""
        if name == "headers":
            return None if self.headers is None else _decoded_headers(self._header, self.headers)
        if name in self._byte_columns:
            return self.byte_column(name)
        numbers = self._numbers[name]
        _NUMBER_CHECKS[name](self._header, numbers)
        return numbers

    def lists(self, names: Container[str]) -> Columns:
        """Return these columns, `None` for the others; `offset_deltas` is one of them."""
        count = self._header.record_count
        deltas = self.column("timestamp_deltas") if "timestamp_deltas" in names else None
        offsets = self.column("offset_deltas")
        return Columns(
            count,
            None if deltas is None else list(deltas),
            self.objects("keys") if "keys" in names else None,
            self.objects("values") if "values" in names else None,
            self.column("headers") if "headers" in names else None,
            None if offsets is None else list(offsets),
        )

    def objects(self, name: str) -> list[bytes | None] | None:
        column = self._byte_columns[name]
        if column is None:
            return None
        column.check_parts(self._header.record_count)
        return column.values()


def _byte_column(packed: "_ByteStrings", count: int) -> ByteColumn:
    lengths, blob, nulls = packed
    if nulls is not None and len(nulls) != count:
        raise WireFormatError(f"{len(nulls)} null marks under a header of {count}")
    return ByteColumn(lengths, length_width(lengths, count), blob, nulls=nulls)


def _decoded_headers(header: BatchHeader, packed: msgspec.Raw) -> list[Headers] | None:
    if is_too_long(header):
        _check_headers(packed)
    try:
        found: list[Headers] | None = _DECODERS["headers"].decode(packed)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"the payload is not five columns: {error}") from error
    return found


@final
class _Objects:
    """The columns of a payload of format version 1, each packed."""

    __slots__ = ("_columns", "_header")

    def __init__(self, header: BatchHeader, plain: BytesLike) -> None:
        found = _split(plain)
        _check_lengths(header, found)
        self._header = header
        self._columns = dict(zip(_TYPES, found, strict=True))

    def size_of(self, name: str) -> int | None:
        column = memoryview(self._columns[name])
        return None if column[0] == NIL else len(column)

    def byte_column(self, name: str) -> ByteColumn | None:
        del name
        return None

    def column(self, name: str) -> Sequence[Any] | None:
        packed = self._columns[name]
        if name == "headers":
            return _decoded_headers(self._header, packed)
        if name == "timestamp_deltas" and (small := self._small_deltas(packed)) is not None:
            return small
        try:
            column: Sequence[Any] | None = _DECODERS[name].decode(packed)
        except (ValueError, RecursionError) as error:
            raise WireFormatError(f"the payload is not five columns: {error}") from error
        if name == "timestamp_deltas":
            _check_timestamps(self._header, column)
        elif name == "offset_deltas":
            _check_offsets(self._header, column)
        return column

    def _small_deltas(self, packed: msgspec.Raw) -> bytes | None:
        """Return deltas that take one byte each, from 0 to 127; `None` if a delta is longer."""
        deltas = bytes(_elements(packed))
        header = self._header
        if len(deltas) != header.record_count or not deltas.isascii():
            return None
        span_ms = header.max_timestamp_ms - header.first_timestamp_ms
        if span_ms < _SMALL_END - 1 and deltas.translate(None, bytes(range(max(span_ms + 1, 0)))):
            raise WireFormatError(_TOO_YOUNG)
        return deltas


@final
class PackedColumns:
    """The packed columns of one batch, each decoded on first use.

    The constructor checks what `ColumnDecoder` checks of skipped columns; decoding a column checks
    its elements. The object keeps a view of the batch if the batch is not compressed.
    """

    __slots__ = ("_payload",)

    def __init__(
        self, header: BatchHeader, batch: BytesLike, *, uncompressed_length_max: int
    ) -> None:
        """Split one whole batch whose checksums have been checked into its columns.

        Raises:
            WireFormatError: As for `ColumnDecoder.decode`.
        """
        plain = unpack(header, batch, uncompressed_length_max)
        is_columnar = header.format_version == FORMAT_COLUMNAR
        self._payload = _Columnar(header, plain) if is_columnar else _Objects(header, plain)

    def size_of(self, name: str) -> int | None:
        """Return the approximate bytes of a column, by its name in `Columns`; `None` if nil."""
        return self._payload.size_of(name)

    def byte_column(self, name: str) -> ByteColumn | None:
        """Return all keys or values as they are stored; `None` if the batch has no such form.

        That is a batch of format version 1, or one without keys or values: see `size_of`. The
        column is a view of the batch, or of its decompressed payload.

        Raises:
            WireFormatError: The column contradicts itself or the header.
        """
        return self._payload.byte_column(name)

    def column(self, name: str) -> Sequence[Any] | None:
        """Return one column as `ColumnDecoder` does.

        Numbers may be `bytes` or an `array`, keys and values a `ByteColumn`.

        Raises:
            WireFormatError: The column contradicts the header.
        """
        return self._payload.column(name)


def _split(plain: BytesLike) -> tuple[msgspec.Raw, ...]:
    try:
        return _packed_decoder.decode(plain)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"the payload is not five columns: {error}") from error


_packed_decoder = msgspec.msgpack.Decoder(tuple[_Skipped, _Skipped, _Skipped, _Skipped, _Skipped])
_DECODERS: Final[Mapping[str, msgspec.msgpack.Decoder[Any]]] = {
    name: msgspec.msgpack.Decoder(kind) for name, kind in _TYPES.items()
}
_ARRAY_4: Final = 0x90
_ARRAY_32: Final = 0xDD
_SMALL_END: Final = 0x80
"""MessagePack encodes numbers below it as themselves, in one byte; other bytes are above."""
_NEGATIVE: Final = bytes(range(_SMALL_END, 256))
"""The bytes of negative numbers of one byte each."""
_TIMESTAMP_BYTES: Final = 8
"""Bytes of the widest numbers."""


def _elements(column: msgspec.Raw) -> memoryview:
    """Return the bytes after the head of a well-formed array; nothing for nil."""
    view = memoryview(column)
    return view[1:] if view[0] == NIL else view[array_head(view)[1] :]


def unpack(header: BatchHeader, batch: BytesLike, length_max: int) -> bytes | memoryview:
    """Return the decompressed payload.

    Raises:
        WireFormatError: `check_limits` fails, or the payload is damaged.
    """
    check_limits(header, length_max)
    payload, length = memoryview(batch)[HEADER_SIZE:], header.uncompressed_length
    codec = header.flags & FLAG_CODEC_MASK
    if codec == _UNCOMPRESSED and len(payload) == length:
        return payload
    return decompress(codec, payload, uncompressed_length=length)


def check_limits(header: BatchHeader, length_max: int) -> None:
    """Check the version, flags, count and length of a batch, before memory is spent on it.

    Raises:
        WireFormatError: The batch is of a newer version, has more than `DECODED_COUNT_MAX` records
            or more records than bytes, or unpacks to more than `length_max` bytes; or it is of
            format version 2 with more than `PRODUCED_COUNT_MAX`, which no leader ever accepted.
    """
    if header.format_version not in KNOWN_FORMATS or header.flags & ~KNOWN_FLAGS:
        raise WireFormatError(
            f"a batch of format version {header.format_version} with flags {header.flags:#06x}"
            f" is of a newer version; upgrade this process"
        )
    count, length = header.record_count, header.uncompressed_length
    if count > DECODED_COUNT_MAX or count > length:
        raise WireFormatError(
            f"the batch has {count} records in {length} bytes, the limit is {DECODED_COUNT_MAX},"
            f" and a record takes a byte"
        )
    if header.format_version == FORMAT_COLUMNAR and count > PRODUCED_COUNT_MAX:
        raise WireFormatError(f"the batch has {count} records, the limit is {PRODUCED_COUNT_MAX}")
    if length > length_max:
        raise WireFormatError(f"the batch unpacks to {length} bytes, the limit is {length_max}")


def _check_lengths(header: BatchHeader, columns: Sequence[msgspec.Raw]) -> None:
    _require_lengths(header, [length for length in map(_length, columns) if length is not None])


def _require_lengths(header: BatchHeader, lengths: Sequence[int]) -> None:
    """Check the lengths of the columns that are present."""
    count = header.record_count
    if lengths.count(count) != len(lengths):
        raise WireFormatError(f"columns of {lengths} records under a header of {count}")
    if count and not lengths:
        # Otherwise six bytes could announce millions of records.
        raise WireFormatError(f"a header of {count} records over a payload without columns")


def _check_headers(packed: msgspec.Raw, *, counted: int = 0) -> None:
    """Check that a batch has few objects: its headers, and those `counted` in other columns."""
    headers = memoryview(packed)
    if headers[0] != NIL and counted + len(headers) > _OBJECTS_MAX:
        check_object_count(headers, _OBJECTS_MAX, counted=counted)


def _length(column: msgspec.Raw) -> int | None:
    """Return the number of elements of a packed column; `None` for nil."""
    view = memoryview(column)
    return None if view[0] == NIL else array_head(view)[0]


_TOO_YOUNG: Final = "a record is younger than the last timestamp of its batch"


def _timestamps(header: BatchHeader, packed: memoryview) -> "array[int]":
    """Return timestamp deltas of format version 2."""
    deltas = unpack_numbers(packed, header.record_count)
    _check_timestamps(header, deltas)
    return deltas


def _check_timestamps(header: BatchHeader, deltas: Sequence[int] | None) -> None:
    # Searches by time rely on the end; nothing relies on a start.
    if not deltas:
        return
    span_ms = header.max_timestamp_ms - header.first_timestamp_ms
    if isinstance(deltas, array) and deltas.itemsize == 1 and 0 <= span_ms < _SMALL_END:
        legal = bytes(range(span_ms + 1)) + _NEGATIVE
        is_too_young = deltas.tobytes().translate(None, legal) != b""  # Ten times as fast as `max`.
    else:
        is_too_young = max(deltas) > span_ms
    if is_too_young:
        raise WireFormatError(_TOO_YOUNG)
    # An element of format 1 has this limit by its type, and one of fewer bytes by its size.
    if (
        isinstance(deltas, array)
        and deltas.itemsize == _TIMESTAMP_BYTES
        and min(deltas) <= -TIMESTAMP_END_MS
    ):
        raise WireFormatError("a record is older than any time")


def _check_offsets(header: BatchHeader, deltas: Sequence[int] | None) -> None:
    if deltas is None:
        if header.record_count > header.last_offset_delta + 1:
            raise WireFormatError("more records than offsets")
    elif deltas and (deltas[0] < 0 or deltas[-1] > header.last_offset_delta):
        raise WireFormatError("offsets of records lie outside of their batch")
    elif any(a >= b for a, b in pairwise(deltas)):
        raise WireFormatError("offsets of records do not grow")


_NUMBER_CHECKS: Final[Mapping[str, Callable[[BatchHeader, Sequence[int] | None], None]]] = {
    "timestamp_deltas": _check_timestamps,
    "offset_deltas": _check_offsets,
}

"""Format version 2: keys and values as lengths and one blob, from lists and back, or refused."""

from array import array
from collections.abc import Sequence

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.batch.test_record_batch import any_columns
from tests.wire.batches import HEADER_SIZE, SAMPLE_COLUMNS, decoded, lie, sample_batch, with_payload
from tidelog.wire.batch import batch_columns, record_batch
from tidelog.wire.batch.batch_columns import (
    ColumnDecoder,
    PackedColumns,
    decode_columns,
    decode_timestamp_deltas,
)
from tidelog.wire.batch.byte_column import ByteColumn, pack_numbers, unpack_numbers
from tidelog.wire.batch.compression import CODEC_NAMES, Codec
from tidelog.wire.batch.record_batch import (
    FORMAT_COLUMNAR,
    FORMAT_VERSION,
    PRODUCED_COUNT_MAX,
    Columns,
    check_produced,
    encode_batch,
    format_for,
    parse_header,
)
from tidelog.wire.errors import WireFormatError

LIMIT = 1 << 20
CODECS = list(CODEC_NAMES.values())
NAMES = ("timestamp_deltas", "keys", "values", "headers", "offset_deltas")


def columnar(columns: Columns, codec: Codec = Codec.NONE) -> bytearray:
    return encode_batch(columns, first_timestamp_ms=1, codec=codec, format_version=FORMAT_COLUMNAR)


def with_columns(*columns: object, count: int = 3, **fields: int) -> bytearray:
    """Return a batch of format 2 with any payload, under a header of `count` records."""
    return with_payload(
        sample_batch(),
        msgpack.packb(columns),
        **{
            "format_version": FORMAT_COLUMNAR,
            "record_count": count,
            "last_offset_delta": max(count - 1, 0),
            **fields,
        },
    )


def packed(batch: bytearray) -> PackedColumns:
    header = parse_header(batch)
    assert header is not None
    return PackedColumns(header, batch, uncompressed_length_max=LIMIT)


# Round trips


@pytest.mark.parametrize("codec", CODECS)
@given(columns=any_columns())
def test_records_come_back_as_they_were(codec: Codec, columns: Columns) -> None:
    batch = columnar(columns, codec)

    header = check_produced(memoryview(batch))
    result = decode_columns(header, batch, uncompressed_length_max=LIMIT)

    assert header.format_version == FORMAT_COLUMNAR
    if columns.keys is None and columns.values is None:
        columns = msgspec.structs.replace(columns, values=[None] * columns.record_count)
    assert result == columns
    for name in NAMES:
        column, expected = packed(batch).column(name), getattr(columns, name)
        assert (column is None) == (expected is None)
        assert list(column or ()) == list(expected or ())
        assert (packed(batch).size_of(name) is None) == (expected is None)
        part = ColumnDecoder([name]).decode(header, batch, uncompressed_length_max=LIMIT)
        assert part == Columns(columns.record_count, **{name: expected})
    deltas = decode_timestamp_deltas(header, batch, uncompressed_length_max=LIMIT)
    assert list(deltas or ()) == list(columns.timestamp_deltas or ())


@pytest.mark.parametrize(
    ("length", "width"), [(0, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4)]
)
def test_lengths_are_as_short_as_the_longest_value_allows(length: int, width: int) -> None:
    values = [b"a", bytes(length), None, b"", b"bc"]

    column = ByteColumn.of(values)

    assert (column.width, len(column.lengths)) == (width, 5 * width)
    assert bytes(column.blob) == b"a" + bytes(length) + b"bc"
    assert column.nulls == b"\0\0\1\0\0"
    column.check(5)
    assert decoded(columnar(Columns(5, keys=values, values=values))) == Columns(
        5, keys=values, values=values
    )


@pytest.mark.parametrize("length", [255, 256, 65_535, 65_536])
def test_a_blob_may_have_any_length(length: int) -> None:
    value = bytes(range(250)) * 300

    for values in ([value[:length]], [b"a"] * min(length, PRODUCED_COUNT_MAX)):
        columns = Columns(len(values), keys=values, values=values)
        batch = columnar(columns)
        assert decoded(batch) == columns
        assert msgpack.packb(b"".join(values)) in bytes(batch)


def test_a_column_without_nulls_has_no_null_marks() -> None:
    assert ByteColumn.of([b"a", b""]).nulls is None


@pytest.mark.parametrize("version", [FORMAT_VERSION, FORMAT_COLUMNAR])
def test_a_byte_column_is_encoded_as_its_values_are(version: int) -> None:
    values: list[bytes | None] = [b"one", None, b"", b"three"]

    batches = [
        encode_batch(
            Columns(4, keys=keys, values=keys), first_timestamp_ms=1, format_version=version
        )
        for keys in (values, ByteColumn.of(values), ByteColumn(b"\3\0\0\5", 1, b"onethree"))
    ]

    assert batches[0] == batches[1]
    assert decoded(batches[2]).values == [b"one", b"", b"", b"three"]


@pytest.mark.parametrize("version", [FORMAT_VERSION, FORMAT_COLUMNAR])
def test_a_byte_column_that_contradicts_itself_is_not_encoded(version: int) -> None:
    for column in (
        ByteColumn(b"\3", 1, b"four"),
        ByteColumn(b"\5", 1, b"four"),
        ByteColumn(b"\4", 1, b"four", nulls=b""),
        ByteColumn(b"\4", 1, b"four", nulls=b"\1"),
        ByteColumn(b"\4", 1, b"four", nulls=b"\2"),
        ByteColumn(b"\4\0\0", 3, b"four"),
    ):
        with pytest.raises(WireFormatError):
            encode_batch(Columns(1, values=column), first_timestamp_ms=1, format_version=version)


def test_a_column_of_another_length_than_the_batch_is_not_encoded() -> None:
    for columns in (
        Columns(2, values=[b"a"]),
        Columns(2, keys=ByteColumn(b"\1", 1, b"a"), values=[b"a", b"b"]),
        Columns(2, [0], values=[b"a", b"b"]),
        Columns(2, values=[b"a", b"b"], offset_deltas=[0, 1, 2]),
    ):
        with pytest.raises(AssertionError, match="records, not 2"):
            columnar(columns)
    with pytest.raises(WireFormatError, match="1 bytes of lengths of 1 bytes for 2 records"):
        encode_batch(Columns(2, values=ByteColumn(b"\1", 1, b"a")), first_timestamp_ms=1)


@pytest.mark.parametrize(
    ("lengths", "reason"), [(b"\1", "1 lengths, not 2"), (b"\1\3", "lengths do not add up")]
)
def test_wrong_lengths_of_values_are_not_encoded(lengths: bytes, reason: str) -> None:
    """Otherwise a broker would acknowledge a batch that no reader can decode."""
    values = [b"a", b"bc"]
    right = Columns(2, values=values, value_lengths=b"\1\2")
    assert columnar(right) == columnar(Columns(2, values=values))

    with pytest.raises(AssertionError, match=reason):
        columnar(Columns(2, values=values, value_lengths=lengths))
    with pytest.raises(AssertionError, match=reason):
        columnar(Columns(2, keys=values, key_lengths=lengths))


def test_a_byte_column_is_a_sequence_of_its_values() -> None:
    column = ByteColumn.of([b"a", None, b"ccc"])

    assert (len(column), column[1], column[-1], column[1:]) == (3, None, b"ccc", [None, b"ccc"])
    assert list(column) == [b"a", None, b"ccc"]
    assert column.values() is column.values()
    assert ByteColumn.of(column) is column


def test_parts_may_be_views_of_signed_or_longer_numbers() -> None:
    """As those of Arrow's buffers, and of arrays."""
    value = bytes(200)
    signed = [memoryview(part).cast("b") for part in (b"\xc8\0", value, b"\0\1")]
    column = ByteColumn(signed[0], 1, signed[1], nulls=signed[2])
    wide = ByteColumn(memoryview(array("H", [200, 0])), 2, value)

    column.check(2)
    wide.check(2)

    assert list(column) == [value, None]
    assert list(wide) == [value, b""]


def test_columns_are_views_of_the_batch() -> None:
    batch = columnar(Columns(2, keys=[b"k", None], values=[b"first", b"second"]))

    columns = packed(batch)
    values, keys = columns.byte_column("values"), columns.byte_column("keys")

    assert values is not None
    assert keys is not None
    assert (bytes(values.lengths), values.width, bytes(values.blob)) == (b"\5\6", 1, b"firstsecond")
    assert values.nulls is None
    assert (bytes(keys.blob), bytes(keys.nulls or b"")) == (b"k", b"\0\1")
    batch[batch.index(b"first")] = ord("F")
    assert bytes(values.blob) == b"Firstsecond"


def test_the_size_of_a_column_is_that_of_its_bytes() -> None:
    batch = columnar(
        Columns(
            2, [0, 300], keys=[b"k", None], values=[b"v" * 300, b""], headers=[(("a", b"b"),), ()]
        )
    )

    sizes = [packed(batch).size_of(name) for name in NAMES]

    assert sizes == [4, 3, 304, len(msgpack.packb([[["a", b"b"]], []])), None]


def test_a_batch_without_byte_columns_has_none() -> None:
    assert packed(sample_batch()).byte_column("values") is None
    assert packed(columnar(Columns(1, values=[b""]))).byte_column("keys") is None


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([0, 127, -128], "b"),
        ([128, 0, 0], "h"),
        ([-(1 << 15), 0, (1 << 15) - 1], "h"),
        ([1 << 15, -(1 << 31), (1 << 31) - 1], "i"),
        ([1 << 31, -(1 << 63), (1 << 63) - 1], "q"),
    ],
)
def test_numbers_are_as_short_as_the_largest_one_allows(numbers: list[int], code: str) -> None:
    found = pack_numbers(numbers)

    assert found == b"".join(
        number.to_bytes(array(code).itemsize, "little", signed=True) for number in numbers
    )
    assert (unpack_numbers(found, 3).typecode, unpack_numbers(found, 3).tolist()) == (code, numbers)
    assert pack_numbers(array("q", numbers)) == found


def test_a_number_of_more_than_64_bits_is_not_packed() -> None:
    with pytest.raises(OverflowError):
        pack_numbers([1 << 63])


def test_no_column_of_format_2_has_more_records_than_leaders_accept() -> None:
    count = PRODUCED_COUNT_MAX + 1
    with pytest.raises(AssertionError, match=f"{count} records in a batch"):
        columnar(Columns(count, values=[b""] * count))
    bomb = lie(
        columnar(Columns(3, values=[b""] * 3)),
        flags=Codec.ZSTD,
        record_count=count,
        last_offset_delta=count - 1,
        uncompressed_length=2 * count,
    )
    with pytest.raises(WireFormatError, match="65537 records, the limit is 65536"):
        decoded(bomb)


@pytest.mark.parametrize(
    ("record_count", "highest", "version"),
    [(64, 2, 2), (63, 2, 1), (65_536, 1, 1), (64, 3, 2), (1, 2, 1)],
)
def test_a_writer_prefers_format_2_for_many_records(
    record_count: int, highest: int, version: int
) -> None:
    assert format_for(record_count, highest) == version


def test_headers_are_counted_in_a_batch_that_no_leader_accepts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = Columns(3, values=[b""] * 3, headers=[(("a", b"b"),)] * 3)
    batch = columnar(columns)

    monkeypatch.setattr(batch_columns, "_OBJECTS_MAX", 12)
    assert decoded(batch) == columns
    monkeypatch.setattr(record_batch, "PRODUCED_LENGTH_MAX", 20)
    with pytest.raises(WireFormatError, match="more than 12 keys and headers"):
        decoded(batch)
    with pytest.raises(WireFormatError, match="more than 12 keys and headers"):
        packed(batch).column("headers")
    assert packed(batch).column("values") == columns.values


# Payloads that contradict their header

VALUES = [b"\1\1\1", b"abc", None]
WRONG: dict[str, Sequence[object]] = {
    "too few columns": [None, None, VALUES, None],
    "too many columns": [None, None, VALUES, None, None, None],
    "no column at all": [None, None, None, None, None],
    "a column of format 1": [None, None, [b"a", b"b", b"c"], None, None],
    "values as text": [None, None, [b"\1\1\1", "abc", None], None, None],
    "lengths as text": [None, None, ["\1\1\1", b"abc", None], None, None],
    "lengths as numbers": [None, None, [[1, 1, 1], b"abc", None], None, None],
    "a column of two parts": [None, None, [b"\1\1\1", b"abc"], None, None],
    "a column of four parts": [None, None, [b"\1\1\1", b"abc", None, None], None, None],
    "no lengths": [None, None, [None, b"abc", None], None, None],
    "no blob": [None, None, [b"\0\0\0", None, None], None, None],
    "empty lengths": [None, None, [b"", b"", None], None, None],
    "too few lengths": [None, None, [b"\1\2", b"abc", None], None, None],
    "too many lengths": [None, None, [b"\1\1\1\0", b"abc", None], None, None],
    "lengths of three bytes": [None, None, [b"\1\0\0" * 3, b"abc", None], None, None],
    "lengths of eight bytes": [None, None, [b"\1\0\0\0\0\0\0\0" * 3, b"abc", None], None, None],
    "a blob that is too short": [None, None, [b"\1\1\1", b"ab", None], None, None],
    "a blob that is too long": [None, None, [b"\1\1\1", b"abcd", None], None, None],
    "lengths of 4 GB": [None, None, [b"\xff\xff\xff\xff" * 3, b"abc", None], None, None],
    "big-endian lengths": [None, None, [b"\0\1" * 3, b"abc", None], None, None],
    "too few null marks": [None, None, [b"\1\1\1", b"abc", b"\0\0"], None, None],
    "too many null marks": [None, None, [b"\1\1\1", b"abc", b"\0\0\0\0"], None, None],
    "a null mark of 2": [None, None, [b"\1\0\1", b"ab", b"\0\2\0"], None, None],
    "a null with bytes": [None, None, [b"\1\1\1", b"abc", b"\0\1\0"], None, None],
    "null marks as a list": [None, None, [b"\1\1\0", b"ab", [0, 0, 1]], None, None],
    "keys that disagree": [None, [b"\1\1", b"ab", None], VALUES, None, None],
    "keys that do not add up": [None, [b"\1\1\1", b"ab", None], VALUES, None, None],
    "times as a list": [[0, 0, 0], None, VALUES, None, None],
    "too few times": [b"\0\0", None, VALUES, None, None],
    "too many times": [b"\0\0\0\0", None, VALUES, None, None],
    "times of three bytes": [b"\0\0\0" * 3, None, VALUES, None, None],
    "no times": [b"", None, VALUES, None, None],
    "a time after the end": [b"\0\0\0\0\xe9\3", None, VALUES, None, None],
    "a time long after the end": [bytes(23) + b"\x7f", None, VALUES, None, None],
    "a time long before the start": [bytes(23) + b"\xc0", None, VALUES, None, None],
    "the earliest number as a time": [bytes(23) + b"\x80", None, VALUES, None, None],
    "offsets that repeat": [None, None, VALUES, None, b"\0\1\1"],
    "offsets that fall": [None, None, VALUES, None, b"\0\2\1"],
    "an offset before the batch": [None, None, VALUES, None, b"\xff\0\1"],
    "an offset behind the batch": [None, None, VALUES, None, b"\0\1\3"],
    "an offset of 64 bits": [None, None, VALUES, None, bytes(8) + b"\1" + bytes(14) + b"\x7f"],
    "offsets as a list": [None, None, VALUES, None, [0, 1, 2]],
    "too few headers": [None, None, VALUES, [[], []], None],
    "headers as bytes": [None, None, VALUES, b"\0\0\0", None],
    "a header without a value": [None, None, VALUES, [[["a"]], [], []], None],
    "nil for the headers of a record": [None, None, VALUES, [[], None, []], None],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_payload_that_contradicts_its_header_is_refused(name: str) -> None:
    with pytest.raises(WireFormatError):
        decoded(with_columns(*WRONG[name]))


@pytest.mark.parametrize(
    "name",
    [
        "empty lengths",
        "too few lengths",
        "too many lengths",
        "lengths of three bytes",
        "lengths of eight bytes",
        "too few null marks",
        "too many null marks",
        "too few times",
        "too many times",
        "times of three bytes",
        "too few headers",
        "headers as bytes",
    ],
)
def test_skipped_columns_must_have_their_length(name: str) -> None:
    batch = with_columns(*WRONG[name])
    header = parse_header(batch)
    assert header is not None

    with pytest.raises(WireFormatError):
        ColumnDecoder(["keys"]).decode(header, batch, uncompressed_length_max=LIMIT)
    with pytest.raises(WireFormatError):
        packed(batch)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_column_is_refused_alone_or_was_not_asked_for(name: str) -> None:
    batch = with_columns(*WRONG[name])

    refused: set[str] = set()
    for column in NAMES:
        try:
            packed(batch).column(column)
        except WireFormatError:
            refused.add(column)

    assert refused


@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 255, 256, 65_535]), max_size=5),
    width=st.sampled_from([1, 2, 4]),
    blob_length=st.integers(0, 6) | st.sampled_from([254, 255, 256, 257, 511, 65_535, 65_536]),
)
def test_values_are_refused_as_check_refuses_them(
    lengths: list[int], width: int, blob_length: int
) -> None:
    lengths = [length % (1 << 8 * width) for length in lengths]
    packed_lengths = b"".join(length.to_bytes(width, "little") for length in lengths)
    blob = bytes(range(256)) * 257
    column = ByteColumn(packed_lengths, width, blob[:blob_length])
    column.check_parts(len(lengths))

    if sum(lengths) == blob_length:
        column.check(len(lengths))
        assert list(map(len, column.values())) == lengths  # type: ignore[arg-type]
        assert b"".join(column.values()) == blob[:blob_length]  # type: ignore[arg-type]
        return
    with pytest.raises(WireFormatError, match="do not add up"):
        column.check(len(lengths))
    with pytest.raises(WireFormatError, match="do not add up"):
        column.values()


def test_the_payload_of_these_tests_is_read() -> None:
    batch = with_columns(
        b"\0\0\5\0\xe8\3",
        [b"\6\0\6", b"user-1user-2", b"\0\1\0"],
        [b"\5\5\0", b"helloworld", b"\0\0\1"],
        [[], [["trace", b"\1\2"]], []],
        None,
    )

    assert decoded(batch) == SAMPLE_COLUMNS


def test_a_payload_cut_off_anywhere_is_refused() -> None:
    whole = sample_batch(columns=SAMPLE_COLUMNS)
    payload = bytes(columnar(SAMPLE_COLUMNS)[HEADER_SIZE:])

    for length in range(len(payload)):
        with pytest.raises(WireFormatError):
            decoded(with_payload(whole, payload[:length], format_version=FORMAT_COLUMNAR))
    assert decoded(with_payload(whole, payload, format_version=FORMAT_COLUMNAR)) == SAMPLE_COLUMNS


@pytest.mark.parametrize("columns", [[None] * 5, [b"", [b"", b"", None], [b"", b"", b""], [], b""]])
def test_a_batch_may_have_lost_all_its_records(columns: list[object]) -> None:
    assert decoded(with_columns(*columns, count=0, last_offset_delta=2)).record_count == 0


def test_a_blob_under_no_record_is_refused() -> None:
    with pytest.raises(WireFormatError, match="do not add up"):
        decoded(with_columns(None, None, [b"", b"abc", None], None, None, count=0))


def test_a_payload_of_the_other_format_is_refused() -> None:
    with pytest.raises(WireFormatError):
        decoded(lie(sample_batch(), format_version=FORMAT_COLUMNAR))
    with pytest.raises(WireFormatError):
        decoded(lie(columnar(SAMPLE_COLUMNS), format_version=FORMAT_VERSION))


@pytest.mark.parametrize("deltas", [[0, -9, 100], [0, -128, 127], [300, 0, -5], [-(1 << 40), 0, 7]])
def test_a_timestamp_behind_the_last_one_of_the_header_is_refused(deltas: list[int]) -> None:
    batch = columnar(Columns(3, timestamp_deltas=deltas, values=[b"a", b"b", b"c"]))
    assert list(packed(batch).column("timestamp_deltas") or ()) == deltas

    earlier = lie(batch, max_timestamp_ms=max(deltas))

    with pytest.raises(WireFormatError, match="younger than the last timestamp"):
        packed(earlier).column("timestamp_deltas")

"""Decoding of large payloads in steps: the same result as at once, and bounded steps."""

from collections.abc import Generator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.batches import lie, sample_batch
from tidelog.wire.batch.batch_columns import (
    ColumnDecoder,
    columns_in_steps,
    decode_columns,
    packed_headers,
    unpack,
)
from tidelog.wire.batch.object_walk import check_object_count
from tidelog.wire.batch.record_batch import (
    KNOWN_FORMATS,
    BatchHeader,
    Columns,
    encode_batch,
    header_of,
)
from tidelog.wire.errors import WireFormatError

LIMIT = 1 << 24
HEADERS = (("name", b"value"), ("other", b""))


def stepped(header: BatchHeader, batch: bytearray) -> tuple[Columns, int]:
    """Return the columns of a batch, and the number of steps."""
    return _finished(columns_in_steps(header, memoryview(unpack(header, batch, LIMIT))))


def _finished(steps: Generator[None, None, Columns]) -> tuple[Columns, int]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, count
        count += 1


def without_values(columns: Columns) -> Columns:
    return msgspec.structs.replace(columns, values=None)


@pytest.mark.parametrize("version", KNOWN_FORMATS)
@given(
    records=st.lists(
        st.tuples(
            st.integers(0, 1 << 40),
            st.none() | st.binary(max_size=300),
            st.lists(st.tuples(st.text(max_size=40), st.binary(max_size=70)), max_size=20),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_the_columns_are_those_that_are_decoded_at_once(
    version: int,
    records: list[tuple[int, bytes | None, list[tuple[str, bytes]]]],
) -> None:
    columns = Columns(
        len(records),
        timestamp_deltas=[delta for delta, _, _ in records],
        keys=[key for _, key, _ in records],
        values=[key for _, key, _ in records],
        headers=[tuple(headers) for _, _, headers in records],
    )
    batch = encode_batch(columns, first_timestamp_ms=0, format_version=version)
    header = header_of(batch)

    found, _ = stepped(header, batch)

    expected = decode_columns(header, batch, uncompressed_length_max=LIMIT)
    assert found == without_values(expected)


@pytest.mark.parametrize("version", KNOWN_FORMATS)
def test_a_long_batch_takes_many_steps(version: int) -> None:
    count = 60_000
    batch = encode_batch(
        Columns(count, keys=[b"k"] * count, headers=[HEADERS] * count),
        first_timestamp_ms=0,
        format_version=version,
    )

    found, step_count = stepped(header_of(batch), batch)

    assert found.keys == [b"k"] * count
    assert found.headers == [HEADERS] * count
    columns_of_objects = 2 if version == 1 else 1  # Keys and headers, or headers alone.
    assert step_count >= columns_of_objects * count // 250


@pytest.mark.parametrize("version", KNOWN_FORMATS)
def test_records_with_very_many_headers_are_refused(version: int) -> None:
    batch = encode_batch(
        Columns(1, headers=[(("", b""),) * 250_000]), first_timestamp_ms=0, format_version=version
    )

    with pytest.raises(WireFormatError, match="more than 20,000 keys and headers"):
        stepped(header_of(batch), batch)
    with pytest.raises(WireFormatError, match="more than 10,000 keys and headers"):
        check_object_count(packed_headers(unpack(header_of(batch), batch, LIMIT)), 10_000)


def test_a_payload_with_few_objects_passes() -> None:
    batch = encode_batch(Columns(1, values=[bytes(1 << 20)]), first_timestamp_ms=0)

    check_object_count(memoryview(unpack(header_of(batch), batch, LIMIT)), 10)


WITHOUT_VALUES = ColumnDecoder({"timestamp_deltas", "keys", "headers", "offset_deltas"})


@pytest.mark.parametrize(
    "columns",
    [
        Columns(2, keys=[b"a", b"b"], timestamp_deltas=[0, 1 << 63]),
        Columns(2, keys=[b"a", b"b"], offset_deltas=[1, 0]),
        Columns(2, keys=[b"a", b"b"], offset_deltas=[0, 1 << 40]),
    ],
)
def test_columns_that_contradict_the_header_are_refused(columns: Columns) -> None:
    """Otherwise a time or an offset that no queue can store would reach it."""
    header = header_of(encode_batch(Columns(2, keys=[b"a", b"b"]), first_timestamp_ms=0))
    plain = msgspec.msgpack.encode(
        (columns.timestamp_deltas, columns.keys, None, None, columns.offset_deltas)
    )

    with pytest.raises(WireFormatError):
        _finished(columns_in_steps(header, memoryview(plain)))


def test_byte_columns_that_contradict_the_header_are_refused() -> None:
    columns = Columns(2, [0, 0], keys=[b"a", b"b"], headers=[(), ()])
    header = header_of(encode_batch(columns, first_timestamp_ms=0, format_version=2))
    keys = (b"\1\1", b"ab", None)
    assert _finished(
        columns_in_steps(
            header, memoryview(msgspec.msgpack.encode((b"\0\0", keys, None, None, None)))
        )
    )[0] == Columns(2, [0, 0], keys=[b"a", b"b"])
    for wrong in (
        (b"\0\1", keys, None, None, None),
        (None, (b"\1\2", b"ab", None), None, None, None),
        (None, keys, None, None, b"\0\2"),
        (None, keys, None, [()], None),
        (None, keys, None, [(), (("a",),)], None),
        (None, keys, None, [(), 0], None),
    ):
        with pytest.raises(WireFormatError):
            _finished(columns_in_steps(header, memoryview(msgspec.msgpack.encode(wrong))))


@pytest.mark.parametrize("version", KNOWN_FORMATS)
def test_every_damaged_payload_is_refused_or_decoded(version: int) -> None:
    batch = sample_batch(format_version=version)
    header = header_of(batch)
    plain = bytes(unpack(header, batch, LIMIT))

    for end in range(len(plain)):
        with pytest.raises(WireFormatError):
            _finished(columns_in_steps(header, memoryview(plain[:end])))
    for place in range(8 * len(plain)):
        flipped = bytearray(plain)
        flipped[place // 8] ^= 1 << place % 8
        try:
            found, _ = _finished(columns_in_steps(header, memoryview(flipped)))
        except WireFormatError:
            continue
        assert found == WITHOUT_VALUES.decode_plain(header, flipped)
    with pytest.raises(WireFormatError, match="five columns"):
        _finished(columns_in_steps(header, memoryview(plain + b"\xc0")))


def test_a_column_of_another_length_than_the_header_says_is_refused() -> None:
    batch = lie(sample_batch(), record_count=2, last_offset_delta=1)

    with pytest.raises(WireFormatError, match="a column of 3 records under a header of 2"):
        stepped(header_of(batch), batch)

"""Column projection: the requested columns equal those of a full decode; the others are skipped."""

from itertools import combinations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.batches import SAMPLE_COLUMNS, sample_batch, with_payload
from tests.wire.test_batch_payload import RAW_PAYLOADS, WRONG_PAYLOADS
from tidelog.wire.batch.batch_columns import ColumnDecoder, PackedColumns, decode_columns
from tidelog.wire.batch.compression import CODEC_NAMES, Codec
from tidelog.wire.batch.record_batch import Columns, encode_batch, parse_header
from tidelog.wire.errors import WireFormatError

NAMES = ("timestamp_deltas", "keys", "values", "headers", "offset_deltas")
SOME = [chosen for count in range(6) for chosen in combinations(NAMES, count)]
LIMIT = 1 << 20


def part(batch: bytearray, wanted: tuple[str, ...]) -> Columns:
    header = parse_header(batch)
    assert header is not None
    return ColumnDecoder(wanted).decode(header, batch, uncompressed_length_max=LIMIT)


def packed(batch: bytearray) -> PackedColumns:
    header = parse_header(batch)
    assert header is not None
    return PackedColumns(header, batch, uncompressed_length_max=LIMIT)


def part_of(columns: Columns, wanted: tuple[str, ...]) -> Columns:
    kept = {name: getattr(columns, name) for name in {*wanted, "offset_deltas"}}
    return Columns(columns.record_count, **kept)


_optional_bytes = st.none() | st.binary(max_size=300)
_headers = st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2).map(tuple)


@st.composite
def records(draw: st.DrawFn) -> Columns:
    count = draw(st.sampled_from([1, 2, 15, 16, 17, 300]))

    def column(of: st.SearchStrategy[object]) -> list[object] | None:
        few = draw(st.none() | st.lists(of, min_size=1, max_size=8))
        return None if few is None else [few[number % len(few)] for number in range(count)]

    return Columns(
        count,
        timestamp_deltas=column(st.integers(-1000, 1 << 40)),  # type: ignore[arg-type]
        keys=column(_optional_bytes),  # type: ignore[arg-type]
        values=column(_optional_bytes),  # type: ignore[arg-type]
        headers=column(_headers),  # type: ignore[arg-type]
    )


@given(columns=records(), codec=st.sampled_from(list(CODEC_NAMES.values())))
def test_a_projection_equals_the_columns_of_a_full_decode(columns: Columns, codec: Codec) -> None:
    batch = encode_batch(columns, first_timestamp_ms=1000, codec=codec)
    header = parse_header(batch)
    assert header is not None
    whole = decode_columns(header, batch, uncompressed_length_max=LIMIT)

    for wanted in SOME:
        assert part(batch, wanted) == part_of(whole, wanted)


@given(
    columns=st.lists(
        st.none()
        | st.lists(st.none() | st.integers(-1, 3) | st.binary(max_size=2), min_size=2, max_size=4),
        min_size=5,
        max_size=5,
    )
)
def test_a_batch_refused_by_a_projection_is_refused_by_a_full_decode(columns: list[object]) -> None:
    batch = with_payload(sample_batch(), msgpack.packb(columns))
    header = parse_header(batch)
    assert header is not None
    try:
        whole = decode_columns(header, batch, uncompressed_length_max=LIMIT)
    except WireFormatError:
        return  # A projection does not detect errors within skipped columns.

    for wanted in SOME:
        assert part(batch, wanted) == part_of(whole, wanted)


@pytest.mark.parametrize("name", WRONG_PAYLOADS)
def test_a_part_with_a_wrong_column_is_refused(name: str) -> None:
    batch = with_payload(sample_batch(), msgpack.packb(WRONG_PAYLOADS[name]))

    with pytest.raises(WireFormatError):
        part(batch, NAMES)


WRONG_LENGTHS: list[list[object]] = [
    [None, [b"k"] * 2, [b"v"] * 3, None, None],
    [None, [b"k"] * 17, [b"v"] * 3, None, None],
    [None, [b"k"] * 70_000, [b"v"] * 3, None, None],
    [[0] * 4, None, [b"v"] * 3, None, None],
    [None, None, [b"v"] * 3, [[]] * 2, None],
    [None, 3, [b"v"] * 3, None, None],
    [None, {"k": 1}, [b"v"] * 3, None, None],
    [None, None, None, None, None],
    [None, [b"k"] * 3, [b"v"] * 3, None, [0, 1, 1]],
    [None, [b"k"] * 3, [b"v"] * 3, None],
]


@pytest.mark.parametrize("columns", WRONG_LENGTHS)
def test_skipped_columns_must_have_their_length(columns: list[object]) -> None:
    batch = with_payload(sample_batch(), msgpack.packb(columns))

    with pytest.raises(WireFormatError):
        part(batch, ("values",))


def test_a_payload_truncated_in_a_skipped_column_is_refused() -> None:
    payload = msgpack.packb([None, [b"key"] * 3, [b"v"] * 3, [[], [["a", b"b"]], []], None])

    for length in range(len(payload)):
        with pytest.raises(WireFormatError):
            part(with_payload(sample_batch(), payload[:length]), ("values",))


@pytest.mark.parametrize("name", RAW_PAYLOADS)
@pytest.mark.parametrize("wanted", [(), ("values",), ("headers",)])
def test_any_bytes_are_read_or_refused(name: str, wanted: tuple[str, ...]) -> None:
    batch = with_payload(sample_batch(), RAW_PAYLOADS[name], record_count=1, last_offset_delta=0)

    try:
        found = part(batch, wanted)
    except WireFormatError:
        return

    assert "headers" not in wanted
    assert found.headers is None, "what is wrong is in a column that was passed over"


def test_elements_of_skipped_columns_are_not_checked() -> None:
    batch = with_payload(
        sample_batch(), msgpack.packb([None, [1, "k", 0.5], [b"v"] * 3, None, None])
    )

    assert part(batch, ("values",)).values == [b"v"] * 3
    with pytest.raises(WireFormatError):
        part(batch, ("keys",))


def test_a_batch_beyond_the_limit_is_refused_by_any_projection() -> None:
    batch = sample_batch(columns=SAMPLE_COLUMNS)
    header = parse_header(batch)
    assert header is not None

    with pytest.raises(WireFormatError, match="unpacks to 57 bytes, the limit is 56"):
        ColumnDecoder(()).decode(header, batch, uncompressed_length_max=56)


@given(columns=records(), codec=st.sampled_from(list(CODEC_NAMES.values())))
def test_each_column_alone_is_what_it_is_among_all(columns: Columns, codec: Codec) -> None:
    batch = encode_batch(columns, first_timestamp_ms=1000, codec=codec)
    header = parse_header(batch)
    assert header is not None
    whole = decode_columns(header, batch, uncompressed_length_max=LIMIT)

    for name in NAMES:
        column, expected = packed(batch).column(name), getattr(whole, name)
        assert (column is None) == (expected is None)
        assert list(column or ()) == list(expected or ())
        assert (packed(batch).size_of(name) is None) == (expected is None)


@pytest.mark.parametrize("name", WRONG_PAYLOADS)
def test_some_column_of_a_wrong_payload_is_refused_alone_too(name: str) -> None:
    batch = with_payload(sample_batch(), msgpack.packb(WRONG_PAYLOADS[name]))

    with pytest.raises(WireFormatError):
        [packed(batch).column(column) for column in NAMES]


@pytest.mark.parametrize(
    ("deltas", "is_small"),
    [([0, 127, 3], True), ([0, 128, 3], False), ([0, -1, 3], False), ([5, 5, 5], True)],
)
def test_times_close_to_each_other_are_bytes(deltas: list[int], is_small: bool) -> None:
    batch = encode_batch(
        Columns(3, timestamp_deltas=deltas, values=[b""] * 3), first_timestamp_ms=1000
    )

    column = packed(batch).column("timestamp_deltas")

    assert column is not None
    assert (isinstance(column, bytes), list(column)) == (is_small, deltas)


@pytest.mark.parametrize("late", [6, 126, 127])
def test_a_record_younger_than_its_batch_is_refused_also_if_its_time_is_a_byte(late: int) -> None:
    columns = Columns(3, timestamp_deltas=[0, late, 0], values=[b"v"] * 3)
    batch = encode_batch(columns, first_timestamp_ms=1000)
    payload = bytes(batch[88:])
    for max_timestamp_ms in (999, 1000 + late - 1):
        liar = with_payload(
            sample_batch(), payload, first_timestamp_ms=1000, max_timestamp_ms=max_timestamp_ms
        )
        with pytest.raises(WireFormatError, match="younger"):
            packed(liar).column("timestamp_deltas")
    good = with_payload(
        sample_batch(), payload, first_timestamp_ms=1000, max_timestamp_ms=1000 + late
    )
    assert packed(good).column("timestamp_deltas") == bytes([0, late, 0])

"""Some columns of a batch are what they are among all of them, and the others are passed over."""

from itertools import combinations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.batches import SAMPLE_COLUMNS, sample_batch, with_payload
from tests.wire.test_batch_payload import RAW_PAYLOADS, WRONG_PAYLOADS
from wire.batch_columns import ColumnDecoder, decode_columns
from wire.compression import CODEC_NAMES, Codec
from wire.errors import WireFormatError
from wire.record_batch import Columns, encode_batch, parse_header

NAMES = ("timestamp_deltas", "keys", "values", "headers", "offset_deltas")
SOME = [chosen for count in range(6) for chosen in combinations(NAMES, count)]
LIMIT = 1 << 20


def part(batch: bytearray, wanted: tuple[str, ...]) -> Columns:
    header = parse_header(batch)
    assert header is not None
    return ColumnDecoder(wanted).decode(header, batch, uncompressed_length_max=LIMIT)


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
def test_some_columns_are_those_of_all(columns: Columns, codec: Codec) -> None:
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
def test_what_is_refused_in_part_is_refused_as_a_whole(columns: list[object]) -> None:
    batch = with_payload(sample_batch(), msgpack.packb(columns))
    header = parse_header(batch)
    assert header is not None
    try:
        whole = decode_columns(header, batch, uncompressed_length_max=LIMIT)
    except WireFormatError:
        return  # Of what is wrong in a column that is passed over a part says nothing.

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
def test_columns_that_are_passed_over_must_have_their_length(columns: list[object]) -> None:
    batch = with_payload(sample_batch(), msgpack.packb(columns))

    with pytest.raises(WireFormatError):
        part(batch, ("values",))


def test_a_payload_cut_off_in_a_column_that_is_passed_over_is_refused() -> None:
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


def test_elements_that_nobody_reads_may_be_anything() -> None:
    batch = with_payload(
        sample_batch(), msgpack.packb([None, [1, "k", 0.5], [b"v"] * 3, None, None])
    )

    assert part(batch, ("values",)).values == [b"v"] * 3
    with pytest.raises(WireFormatError):
        part(batch, ("keys",))


def test_a_batch_beyond_the_limit_is_refused_however_little_is_wanted() -> None:
    batch = sample_batch(columns=SAMPLE_COLUMNS)
    header = parse_header(batch)
    assert header is not None

    with pytest.raises(WireFormatError, match="unpacks to 57 bytes, the limit is 56"):
        ColumnDecoder(()).decode(header, batch, uncompressed_length_max=56)

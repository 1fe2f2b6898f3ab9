"""A payload matches its header, or is refused; and payloads of sparse batches."""

import msgpack
import pytest

from tests.wire.batches import HEADER_SIZE, decoded, lie, sample_batch, with_payload
from tidelog.wire.batch.batch_columns import decode_columns, decode_timestamp_deltas
from tidelog.wire.batch.compression import CODEC_NAMES, Codec
from tidelog.wire.batch.record_batch import Columns, check_produced, encode_batch, parse_header
from tidelog.wire.errors import WireFormatError

CODECS = list(CODEC_NAMES.values())


WRONG_PAYLOADS: dict[str, object] = {
    "too few columns": [None, None, [None, None, None], None],
    "too many columns": [None, None, [None, None, None], None, None, None],
    "a map": {"values": [b"v"]},
    "columns that disagree": [None, [b"k", b"k"], [b"v", b"v", b"v"], None, None],
    "columns shorter than the header says": [None, [b"k", b"k"], [b"v", b"v"], None, None],
    "columns longer than the header says": [None, None, [b"v"] * 4, None, None],
    "empty columns": [[], [], [], [], []],
    "no column at all": [None, None, None, None, None],
    "text for bytes": [None, None, ["v", "v", "v"], None, None],
    "numbers for bytes": [None, None, [1, 2, 3], None, None],
    "fractions for times": [[0.5, 1.5, 2.5], None, [None, None, None], None, None],
    "a nil time": [[0, None, 1], None, [None, None, None], None, None],
    "a time after the end": [[0, 1, 1001], None, [None, None, None], None, None],
    "a time long after the end": [[0, 1, 1 << 62], None, [None, None, None], None, None],
    "a time long before the start": [[0, 1, -(1 << 62)], None, [None, None, None], None, None],
    "a time of 64 bits": [[0, 1, 2**64 - 1], None, [None, None, None], None, None],
    "nil for the headers of a record": [None, None, [b"v"] * 3, [[], None, []], None],
    "a header without a value": [None, None, [b"v"] * 3, [[["a"]], [], []], None],
    "a header with two values": [None, None, [b"v"] * 3, [[["a", b"", b""]], [], []], None],
    "a header with a nil value": [None, None, [b"v"] * 3, [[["a", None]], [], []], None],
    "a header named in bytes": [None, None, [b"v"] * 3, [[[b"a", b""]], [], []], None],
    "offsets that repeat": [None, None, [b"v"] * 3, None, [0, 1, 1]],
    "offsets that fall": [None, None, [b"v"] * 3, None, [0, 2, 1]],
    "an offset before the batch": [None, None, [b"v"] * 3, None, [-1, 0, 1]],
    "an offset behind the batch": [None, None, [b"v"] * 3, None, [0, 1, 3]],
    "an offset of 64 bits": [None, None, [b"v"] * 3, None, [0, 1, 2**64 - 1]],
}


@pytest.mark.parametrize("name", WRONG_PAYLOADS)
def test_a_payload_that_contradicts_its_header_is_refused(name: str) -> None:
    batch = with_payload(sample_batch(), msgpack.packb(WRONG_PAYLOADS[name]))

    with pytest.raises(WireFormatError):
        decoded(batch)


RAW_PAYLOADS = {
    "nothing": b"",
    "a name that is not UTF-8": b"\x95\xc0\xc0\xc0\x91\x91\x92\xa1\xff\xc4\x00\xc0",
    "a byte that msgpack never uses": b"\xc1",
    "an array of 4 billion": b"\x95\xc0\xc0\xdd\xff\xff\xff\xff\xc0\xc0",
    "a value of 4 GB": b"\x95\xc0\xc0\x91\xc6\xff\xff\xff\xff\xc0\xc0",
    "arrays in arrays in arrays": b"\x91" * 100_000,
    "arrays in arrays in a column": b"\x95\xc0\xc0" + b"\x91" * 100_000,
    "something behind the columns": b"\x95\xc0\xc0\x91\xc0\xc0\xc0\xc0",
}


@pytest.mark.parametrize("name", RAW_PAYLOADS)
def test_a_payload_that_is_not_msgpack_is_refused(name: str) -> None:
    payload = RAW_PAYLOADS[name]
    batch = with_payload(sample_batch(), payload, record_count=1, last_offset_delta=0)

    with pytest.raises(WireFormatError):
        decoded(batch)


def test_a_payload_cut_off_anywhere_is_refused() -> None:
    payload = bytes(sample_batch()[HEADER_SIZE:])

    for length in range(len(payload)):
        with pytest.raises(WireFormatError):
            decoded(with_payload(sample_batch(), payload[:length]))


def test_few_bytes_cannot_announce_many_records() -> None:
    payload = msgpack.packb([None] * 5)
    batch = with_payload(
        sample_batch(), payload, record_count=2**32 - 1, last_offset_delta=2**32 - 1
    )

    with pytest.raises(
        WireFormatError, match="4294967295 records in 6 bytes, the limit is 1048576"
    ):
        decoded(batch)


@pytest.mark.parametrize("fields", [{"format_version": 3}, {"flags": 0x0400}])
def test_a_reader_refuses_a_batch_of_a_newer_version(fields: dict[str, int]) -> None:
    with pytest.raises(WireFormatError, match="of a newer version; upgrade this process"):
        decoded(lie(sample_batch(), **fields))


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_unpacks_beyond_the_limit_is_refused(codec: Codec) -> None:
    batch = sample_batch(codec, columns=Columns(1, values=[bytes(1000)]))
    header = check_produced(memoryview(batch))

    assert decode_columns(header, batch, uncompressed_length_max=1009).values == [bytes(1000)]
    with pytest.raises(WireFormatError, match="unpacks to 1009 bytes, the limit is 1008"):
        decode_columns(header, batch, uncompressed_length_max=1008)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("said", [1008, 1010, 2**32 - 1])
def test_a_compressed_batch_with_a_wrong_length_is_refused(codec: Codec, said: int) -> None:
    batch = sample_batch(codec, columns=Columns(1, values=[bytes(1000)]))
    liar = lie(batch, uncompressed_length=said)
    header = parse_header(liar)
    assert header is not None

    with pytest.raises(WireFormatError):
        decode_columns(header, liar, uncompressed_length_max=2**32)


# The first column alone


def deltas_of(batch: bytearray) -> list[int] | None:
    header = parse_header(batch)
    assert header is not None
    deltas = decode_timestamp_deltas(header, batch, uncompressed_length_max=1 << 20)
    return None if deltas is None else list(deltas)


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_can_be_read_without_the_records(codec: Codec) -> None:
    assert deltas_of(sample_batch(codec)) == [0, 5, 1000]
    assert deltas_of(sample_batch(codec, columns=Columns(1, values=[bytes(1000)]))) is None


@pytest.mark.parametrize(
    "deltas", [[0, 1], [0, 1, 2, 3], [0, 1, 1001], [0, 1, "2"], [0, 1, -(1 << 62)], 7]
)
def test_timestamps_that_contradict_the_header_are_refused(deltas: object) -> None:
    payload = msgpack.packb([deltas, None, [None] * 3, None, None])

    with pytest.raises(WireFormatError):
        deltas_of(with_payload(sample_batch(), payload))


def test_a_record_may_be_older_than_its_batch_by_almost_any_time() -> None:
    oldest = 1 - (1 << 62)
    payload = msgpack.packb([[0, oldest, 1], None, [None] * 3, None, None])

    assert deltas_of(with_payload(sample_batch(), payload)) == [0, oldest, 1]
    assert decoded(with_payload(sample_batch(), payload)).timestamp_deltas == [0, oldest, 1]


@pytest.mark.parametrize("name", RAW_PAYLOADS)
def test_timestamps_of_any_bytes_are_read_or_refused(name: str) -> None:
    batch = with_payload(sample_batch(), RAW_PAYLOADS[name], record_count=1, last_offset_delta=0)

    try:
        deltas = deltas_of(batch)
    except WireFormatError:
        return

    assert deltas is None, "what is wrong is in a column that was passed over"


def test_timestamps_of_a_batch_beyond_the_limit_are_refused() -> None:
    batch = sample_batch()
    header = parse_header(batch)
    assert header is not None

    with pytest.raises(WireFormatError, match="unpacks to 57 bytes, the limit is 56"):
        decode_timestamp_deltas(header, batch, uncompressed_length_max=56)


# Sparse batches


def test_a_batch_with_gaps_ends_at_its_last_offset() -> None:
    columns = Columns(2, values=[b"v", b"w"], offset_deltas=[1, 6])

    batch = encode_batch(columns, first_timestamp_ms=0)

    header = parse_header(batch)
    assert header is not None
    assert header.last_offset_delta == 6
    assert decoded(batch) == columns


def test_a_batch_may_have_gaps_between_its_offsets() -> None:
    payload = msgpack.packb([None, None, [b"v", b"w"], None, [1, 6]])
    batch = with_payload(sample_batch(), payload, record_count=2, last_offset_delta=9)

    assert decoded(batch).offset_deltas == [1, 6]


def test_a_batch_may_have_lost_its_last_records() -> None:
    payload = msgpack.packb([None, None, [b"v", b"w"], None, None])
    batch = with_payload(sample_batch(), payload, record_count=2, last_offset_delta=9)

    assert decoded(batch).values == [b"v", b"w"]
    header = parse_header(batch)
    assert header is not None
    assert header.next_offset == 10


def test_more_records_than_offsets_are_refused() -> None:
    batch = lie(sample_batch(), last_offset_delta=1)

    with pytest.raises(WireFormatError, match="more records than offsets"):
        decoded(batch)


@pytest.mark.parametrize("columns", [[None] * 5, [None, None, [], None, []]])
def test_a_batch_may_have_lost_all_its_records(columns: list[object]) -> None:
    batch = with_payload(sample_batch(), msgpack.packb(columns), record_count=0)

    assert decoded(batch).record_count == 0

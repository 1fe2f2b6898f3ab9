"""A batch is accepted whole or not at all, and a header cannot contradict its payload."""

import struct

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.batches import (
    FIRST_TIMESTAMP_MS,
    HEADER_FIELDS,
    HEADER_SIZE,
    SAMPLE_COLUMNS,
    decoded,
    flipped_bits,
    lie,
    reseal,
    sample_batch,
    stored_batch,
    with_payload,
)
from tidelog.wire.batch import batch_columns, record_batch
from tidelog.wire.batch.batch_columns import DECODED_COUNT_MAX, PackedColumns, decode_columns
from tidelog.wire.batch.compression import CODEC_NAMES, Codec
from tidelog.wire.batch.record_batch import (
    FLAG_CONTROL,
    PRODUCED_COUNT_MAX,
    PRODUCED_LENGTH_MAX,
    RECORD_COUNT_MAX,
    SEQUENCE_END,
    TIMESTAMP_END_MS,
    BatchHeader,
    Columns,
    check_produced,
    encode_batch,
    has_valid_payload,
    parse_header,
    restamp_producer,
    stamp_leader,
    stamp_replica,
)
from tidelog.wire.errors import (
    CorruptBatchError,
    InvalidBatchError,
    RecordTooLargeError,
    WireFormatError,
)

CODECS = list(CODEC_NAMES.values())
LIMIT = 1 << 20

optional_bytes = st.one_of(st.none(), st.binary(max_size=20))
headers_of_a_record = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=3)


@st.composite
def any_columns(draw: st.DrawFn) -> Columns:
    count = draw(st.integers(1, 12))

    def column(element: st.SearchStrategy[object]) -> st.SearchStrategy[list[object] | None]:
        return st.none() | st.lists(element, min_size=count, max_size=count)

    return msgspec.convert(
        {
            "record_count": count,
            "timestamp_deltas": draw(column(st.integers(0, 1 << 40))),
            "keys": draw(column(optional_bytes)),
            "values": draw(column(optional_bytes)),
            "headers": draw(column(headers_of_a_record)),
        },
        Columns,
    )


def unpacked(batch: bytearray) -> object:
    """Return the columns as the msgpack package reads them."""
    return msgpack.unpackb(bytes(batch[HEADER_SIZE:]))


# Round trips


@pytest.mark.parametrize("codec", CODECS)
@given(columns=any_columns())
def test_records_come_back_as_they_were(codec: Codec, columns: Columns) -> None:
    batch = encode_batch(columns, first_timestamp_ms=FIRST_TIMESTAMP_MS, codec=codec)

    header = check_produced(memoryview(batch))
    result = decode_columns(header, batch, uncompressed_length_max=LIMIT)

    assert header.record_count == columns.record_count
    assert header.first_timestamp_ms == FIRST_TIMESTAMP_MS
    assert header.max_timestamp_ms == FIRST_TIMESTAMP_MS + max(columns.timestamp_deltas or [0])
    if columns.keys is None and columns.values is None:
        columns = msgspec.structs.replace(columns, values=[None] * columns.record_count)
    assert result == columns


def test_the_header_has_the_fields_of_the_producer() -> None:
    header = check_produced(memoryview(sample_batch()))

    assert header.record_count == 3
    assert header.last_offset_delta == 2
    assert header.first_timestamp_ms == FIRST_TIMESTAMP_MS
    assert header.max_timestamp_ms == FIRST_TIMESTAMP_MS + 1000
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (42, 3, 100)
    assert header.next_sequence == 103
    assert (header.base_offset, header.leader_epoch, header.durable_position) == (0, 0, 0)
    assert not header.is_control


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_a_payload_that_does_not_shrink_is_sent_uncompressed(codec: Codec) -> None:
    short = Columns(1, values=[b"x"])
    long = Columns(1, values=[bytes(1000)])

    assert check_produced(memoryview(sample_batch(codec, columns=short))).codec == Codec.NONE
    assert check_produced(memoryview(sample_batch(codec, columns=long))).codec == codec


def test_a_batch_belongs_to_no_producer_unless_one_is_named() -> None:
    header = check_produced(
        memoryview(encode_batch(Columns(1, values=[b"v"]), first_timestamp_ms=0))
    )

    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (0, 0, 0)
    assert (header.base_offset, header.leader_epoch, header.durable_position) == (0, 0, 0)


def test_a_batch_has_at_least_one_record_and_at_most_2_to_the_24() -> None:
    for count in (0, -1, 2**24 + 1):
        with pytest.raises(AssertionError, match=f"{count} records in a batch"):
            encode_batch(Columns(count), first_timestamp_ms=0)


def test_records_without_key_and_value_are_spelled_out() -> None:
    batch = encode_batch(Columns(5), first_timestamp_ms=0)

    assert decoded(batch) == Columns(5, values=[None] * 5)


def test_each_field_is_where_the_layout_says() -> None:
    batch = stored_batch()
    header = parse_header(batch)
    assert header is not None

    for name, (offset, letter) in HEADER_FIELDS.items():
        assert struct.unpack_from("<" + letter, batch, offset)[0] == getattr(header, name), name

    ends = [offset + struct.calcsize(letter) for offset, letter in HEADER_FIELDS.values()]
    starts = [offset for offset, _ in HEADER_FIELDS.values()]
    assert [0, *ends] == [*starts, HEADER_SIZE], "no gap and no overlap"
    assert list(HEADER_FIELDS) == list(BatchHeader.__struct_fields__)


# An independent decoder


def test_the_msgpack_package_reads_our_payload() -> None:
    assert unpacked(sample_batch()) == [
        [0, 5, 1000],
        [b"user-1", None, b"user-2"],
        [b"hello", b"world", None],
        [[], [["trace", b"\x01\x02"]], []],
        None,
    ]


def test_we_read_a_payload_of_the_msgpack_package() -> None:
    payload = msgpack.packb([[0, -3], [b"k", None], None, [[["a", b"1"], ["a", b"2"]], []], [0, 4]])
    batch = with_payload(sample_batch(), payload, record_count=2, last_offset_delta=4)

    assert decoded(batch) == Columns(
        2,
        timestamp_deltas=[0, -3],
        keys=[b"k", None],
        headers=[(("a", b"1"), ("a", b"2")), ()],
        offset_deltas=[0, 4],
    )


# Truncation and damage


def test_a_batch_cut_off_anywhere_is_refused() -> None:
    batch = stored_batch()

    for length in range(len(batch)):
        cut = batch[:length]
        with pytest.raises(InvalidBatchError):
            check_produced(memoryview(cut))
        assert (parse_header(cut) is None) == (length < HEADER_SIZE)


def test_a_log_tracks_batches_of_producers_and_no_markers() -> None:
    tracked, anonymous = (
        parse_header(
            encode_batch(Columns(1, values=[b"a"]), first_timestamp_ms=0, producer_id=each)
        )
        for each in (7, 0)
    )
    assert tracked is not None
    assert anonymous is not None

    assert tracked.is_sequenced
    assert not anonymous.is_sequenced
    assert not msgspec.structs.replace(tracked, flags=FLAG_CONTROL).is_sequenced


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(InvalidBatchError, match=r"the header says .* bytes, the request has"):
        check_produced(memoryview(sample_batch() + b"\0"))


@pytest.mark.parametrize("codec", CODECS)
def test_no_flipped_bit_of_a_produced_batch_goes_unnoticed(codec: Codec) -> None:
    batch = sample_batch(codec, columns=Columns(2, values=[b"v" * 40, None]))

    for bit, damaged in flipped_bits(batch):
        try:
            check_produced(memoryview(damaged))
        except (CorruptBatchError, InvalidBatchError):
            continue
        pytest.fail(f"bit {bit} was flipped without detection")


@pytest.mark.invariant("I7")
def test_no_flipped_bit_of_a_stored_batch_goes_unnoticed() -> None:
    batch = stored_batch()

    for bit, damaged in flipped_bits(batch):
        header = parse_header(damaged)
        if bit < HEADER_SIZE * 8:
            assert header is None, f"bit {bit} of the header"
        else:
            assert header is not None
            assert not has_valid_payload(header, damaged), f"bit {bit}"


def test_a_header_is_found_in_the_middle_of_a_buffer() -> None:
    batch = stored_batch()
    buffer = b"\x7c\xba\x0c\x1d" + bytes(50) + batch + b"more"

    found = [at for at in range(len(buffer)) if parse_header(buffer, at) is not None]

    assert found == [54]
    assert parse_header(memoryview(buffer), 54) == parse_header(batch)


# Stamps


def test_stamps_keep_the_fields_of_the_producer() -> None:
    batch = sample_batch()
    sent = check_produced(memoryview(batch))

    stamp_leader(memoryview(batch), base_offset=2**63, leader_epoch=2**32 - 1)
    stamp_replica(memoryview(batch), durable_position=2**64 - 1)

    stored = parse_header(batch)
    assert stored is not None
    assert has_valid_payload(stored, batch)
    assert stored.next_offset == 2**63 + 3
    assert stored == msgspec.structs.replace(
        sent,
        base_offset=2**63,
        leader_epoch=2**32 - 1,
        durable_position=2**64 - 1,
        header_crc=stored.header_crc,
    )


def test_a_batch_stamped_by_the_leader_alone_is_not_sealed() -> None:
    batch = sample_batch()

    stamp_leader(memoryview(batch), base_offset=1000, leader_epoch=7)

    assert parse_header(batch) is None


def test_a_batch_can_be_restamped_for_another_producer_id() -> None:
    batch = sample_batch(Codec.LZ4)
    before = check_produced(memoryview(batch))

    restamp_producer(batch, producer_id=2**64 - 1, producer_epoch=0, base_sequence=7)

    after = check_produced(memoryview(batch))
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (2**64 - 1, 0, 7)
    assert decoded(batch) == SAMPLE_COLUMNS
    assert after == msgspec.structs.replace(
        before,
        producer_id=2**64 - 1,
        producer_epoch=0,
        base_sequence=7,
        batch_crc=after.batch_crc,
        header_crc=after.header_crc,
    )


# Contradicting headers with right checksums


LIES: dict[str, tuple[dict[str, int], str]] = {
    "a newer format": ({"format_version": 3}, "format version 3, this broker knows 2"),
    "no format": ({"format_version": 0}, "format version 0"),
    "a reserved flag": ({"flags": 0x0400}, "flags 0x0400 are not known"),
    "a batch with gaps": ({"flags": record_batch.FLAG_SPARSE}, "set by brokers only"),
    "the last flag": ({"flags": 0x8000}, "flags 0x8000 are not known"),
    "an unknown codec": ({"flags": 3}, "flags 0x0003 are not known"),
    "the reserved codec": ({"flags": 15}, "flags 0x000f are not known"),
    "a control batch": ({"flags": record_batch.FLAG_CONTROL}, "set by brokers only"),
    "a transactional batch": ({"flags": record_batch.FLAG_TRANSACTIONAL}, "set by brokers only"),
    "log append time": ({"flags": record_batch.FLAG_LOG_APPEND_TIME}, "set by brokers only"),
    "no records": ({"record_count": 0, "last_offset_delta": 0}, "0 records cannot end"),
    "more records than offsets": ({"record_count": 4}, "4 records cannot end at offset delta 2"),
    "more offsets than records": ({"last_offset_delta": 3}, "3 records cannot end at .* delta 3"),
    "offsets around the world": ({"last_offset_delta": 2**32 - 1}, "cannot end at"),
    "too many records": (
        {"record_count": RECORD_COUNT_MAX + 1, "last_offset_delta": RECORD_COUNT_MAX},
        "cannot end at",
    ),
    "more records than bytes": (
        {"record_count": 1000, "last_offset_delta": 999},
        "1000 records cannot fit into",
    ),
    "a longer payload": ({"payload_length": 1000}, "the header says 1088 bytes"),
    "a payload of 4 GB": ({"payload_length": 2**32 - 1}, "the header says 4294967383 bytes"),
    "no payload": ({"payload_length": 0}, "the header says 88 bytes"),
    "two lengths of one payload": ({"uncompressed_length": 2**32 - 1}, "cannot have two lengths"),
    "a negative time": ({"first_timestamp_ms": -1}, "timestamps run from -1"),
    "an end before the start": ({"max_timestamp_ms": 5}, "timestamps run from"),
    "the most negative times": (
        {"first_timestamp_ms": -(2**63), "max_timestamp_ms": -(2**63)},
        "timestamps run from",
    ),
    "the end of time": ({"max_timestamp_ms": TIMESTAMP_END_MS}, "timestamps run from"),
    "the last sequence": ({"base_sequence": SEQUENCE_END - 2}, "exceed the last sequence"),
    "a sequence of 64 bits": ({"base_sequence": 2**63}, "exceed the last sequence"),
    "a time of 63 bits": ({"max_timestamp_ms": 2**62}, "timestamps run from"),
    "sequences around the world": ({"base_sequence": 2**64 - 1}, "exceed the last sequence"),
    "another marker": ({"sync_marker": 0x2054_4547}, "not a record batch"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_contradicting_header_is_refused(name: str) -> None:
    fields, reason = LIES[name]
    liar = lie(sample_batch(), **fields)

    with pytest.raises(InvalidBatchError, match=reason):
        check_produced(memoryview(liar))


TRUTHS: dict[str, dict[str, int]] = {
    "the last sequence": {"base_sequence": SEQUENCE_END - 3},
    "a sequence of 63 bits": {"base_sequence": 2**63 - 3},
    "a time of 62 bits": {"max_timestamp_ms": 2**62 - 1},
    "the last time": {"max_timestamp_ms": TIMESTAMP_END_MS - 1},
    "one moment": {"max_timestamp_ms": FIRST_TIMESTAMP_MS},
    "the first moment": {"first_timestamp_ms": 0},
    "the most records": {
        "flags": Codec.LZ4,
        "record_count": PRODUCED_COUNT_MAX,
        "last_offset_delta": PRODUCED_COUNT_MAX - 1,
        "uncompressed_length": PRODUCED_LENGTH_MAX,
    },
    "the last producer": {"producer_id": 2**64 - 1, "producer_epoch": 2**32 - 1},
    "stamps that the leader overwrites": {"base_offset": 2**64 - 1, "leader_epoch": 2**32 - 1},
}


@pytest.mark.parametrize("name", TRUTHS)
def test_a_header_at_a_limit_is_taken(name: str) -> None:
    honest = lie(sample_batch(), **TRUTHS[name])

    header = check_produced(memoryview(honest))

    assert {field: getattr(header, field) for field in TRUTHS[name]} == TRUTHS[name]


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": PRODUCED_COUNT_MAX + 1, "last_offset_delta": PRODUCED_COUNT_MAX},
        {"uncompressed_length": PRODUCED_LENGTH_MAX + 1},
    ],
)
def test_a_leader_refuses_a_batch_that_unpacks_to_too_much(fields: dict[str, int]) -> None:
    large = lie(
        sample_batch(), flags=Codec.ZSTD, **{"uncompressed_length": PRODUCED_LENGTH_MAX, **fields}
    )
    large[-1] ^= 1  # The header suffices: the payload is not even compared with its checksum.

    with pytest.raises(RecordTooLargeError, match="divide it into smaller batches"):
        check_produced(memoryview(large))


def test_a_reader_refuses_too_many_records_before_it_decompresses_them() -> None:
    count = DECODED_COUNT_MAX + 1
    bomb = lie(
        sample_batch(),
        flags=Codec.ZSTD,
        record_count=count,
        last_offset_delta=count - 1,
        uncompressed_length=2 * count,
    )
    header = parse_header(bomb)
    assert header is not None

    with pytest.raises(WireFormatError, match="1048577 records in 2097154 bytes, the limit is"):
        decode_columns(header, bomb, uncompressed_length_max=1 << 30)


def test_a_reader_refuses_very_many_headers_before_it_decodes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_columns, "_OBJECTS_MAX", 10_000)
    monkeypatch.setattr(record_batch, "PRODUCED_COUNT_MAX", 1_000)
    headers = ((("", b""),) * 5_000,) * 1_700
    batch = encode_batch(
        Columns(len(headers), headers=headers), first_timestamp_ms=0, codec=Codec.ZSTD
    )
    assert len(batch) < 10_000
    header = parse_header(batch)
    assert header is not None

    with pytest.raises(WireFormatError, match="more than 10,000 keys and headers"):
        decode_columns(header, batch, uncompressed_length_max=1 << 28)


def test_objects_count_in_batches_that_no_leader_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 1_000
    columns = Columns(count, keys=[b"k"] * count, values=[b"v"] * count, headers=[()] * count)
    batch = encode_batch(columns, first_timestamp_ms=0)
    header = parse_header(batch)
    assert header is not None

    monkeypatch.setattr(batch_columns, "_OBJECTS_MAX", 1)
    assert decode_columns(header, batch, uncompressed_length_max=LIMIT) == columns
    monkeypatch.setattr(record_batch, "PRODUCED_COUNT_MAX", count - 1)
    monkeypatch.setattr(batch_columns, "_OBJECTS_MAX", 3 * count + 1)  # The array of all headers.
    assert decode_columns(header, batch, uncompressed_length_max=LIMIT) == columns
    monkeypatch.setattr(batch_columns, "_OBJECTS_MAX", 3 * count)
    with pytest.raises(WireFormatError, match="more than 3,000 keys and headers"):
        decode_columns(header, batch, uncompressed_length_max=LIMIT)
    packed = PackedColumns(header, batch, uncompressed_length_max=LIMIT)
    monkeypatch.setattr(batch_columns, "_OBJECTS_MAX", count)
    with pytest.raises(WireFormatError, match="more than 1,000 keys and headers"):
        packed.column("headers")
    assert packed.column("keys") == columns.keys


def test_a_reader_refuses_more_records_than_bytes() -> None:
    bomb = lie(sample_batch(), record_count=1000, last_offset_delta=999)
    header = parse_header(bomb)
    assert header is not None

    with pytest.raises(WireFormatError, match="a record takes a byte"):
        decode_columns(header, bomb, uncompressed_length_max=LIMIT)


def test_the_checksums_are_compared_one_by_one() -> None:
    header_damaged = sample_batch()
    header_damaged[10] ^= 1
    with pytest.raises(CorruptBatchError, match="the header of the batch does not match"):
        check_produced(memoryview(header_damaged))

    payload_damaged = sample_batch()
    payload_damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="the payload of the batch does not match"):
        check_produced(memoryview(payload_damaged))


def test_reseal_makes_an_honest_batch_as_the_encoder_does() -> None:
    assert reseal(sample_batch()) == sample_batch()

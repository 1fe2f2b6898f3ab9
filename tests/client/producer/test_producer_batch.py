"""Producer batch: lazy columns, stable bytes, and the outcomes of records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.producer.producer_batch import Fate, ProducerBatch
from tidelog.client.producer.producer_record import ManyRecords
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    FORMAT_COLUMNAR,
    FORMAT_VERSION,
    Columns,
    check_produced,
)
from tidelog.wire.messages.produce import AckLevel

LIMIT = 1 << 20


def open_batch() -> ProducerBatch:
    return ProducerBatch(0, timestamp_ms=1000, linger_until=0.0, deadline=1.0)


def encode(
    batch: ProducerBatch, codec: Codec = Codec.NONE, *, format_version: int = FORMAT_VERSION
) -> None:
    batch.encode(
        codec, producer_id=7, producer_epoch=1, base_sequence=40, format_version=format_version
    )


def columns_of(batch: ProducerBatch) -> Columns:
    header = check_produced(memoryview(batch.encoded))
    return decode_columns(header, batch.encoded, uncompressed_length_max=LIMIT)


def filled(count: int) -> ProducerBatch:
    batch = open_batch()
    for number in range(count):
        batch.append_keyed(b"k%d" % number, b"v%d" % number)
    return batch


def test_values_alone_create_no_other_column() -> None:
    batch = open_batch()
    batch.append_value(b"a")
    batch.append_value(None)
    encode(batch)

    columns = columns_of(batch)

    assert (columns.values, columns.keys) == ([b"a", None], None)
    assert (columns.headers, columns.timestamp_deltas) == (None, None)


def test_late_columns_are_padded() -> None:
    batch = open_batch()
    batch.append_value(b"a")
    batch.append_keyed(b"k", b"b")
    batch.append_headers((("name", b"x"),))
    batch.append_timestamp(1007)
    batch.append_value(b"c")
    batch.append_value(b"d")
    encode(batch)

    columns = columns_of(batch)

    assert columns.values == [b"a", b"b", b"c", b"d"]
    assert columns.keys == [None, b"k", None, None]
    assert columns.headers == [(), (), (("name", b"x"),), ()]
    assert columns.timestamp_deltas == [0, 0, 7, 0]


def test_records_after_mark_time_have_the_later_timestamp() -> None:
    batch = open_batch()
    batch.append_value(b"a")
    batch.mark_time(1050)
    batch.append_value(b"b")
    encode(batch)

    assert columns_of(batch).timestamp_deltas == [0, 50]


def test_an_encoded_batch_carries_identity_and_sequence() -> None:
    batch = filled(3)
    encode(batch)

    header = check_produced(memoryview(batch.encoded))

    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 40)
    assert (header.record_count, batch.count) == (3, 3)


def test_a_settled_batch_has_outcomes_and_frees_its_bytes() -> None:
    batch = filled(3)
    encode(batch)

    batch.settle(None, 100, AckLevel.DURABLE)

    assert list(batch.fates(1, 3)) == [Fate(1, 3, None, 101, AckLevel.DURABLE)]
    assert not batch.encoded
    assert batch.failed_count(0, 3) == 0


def test_a_batch_is_settled_once() -> None:
    batch = filled(1)
    batch.settle(None, 0, AckLevel.DURABLE)

    with pytest.raises(AssertionError, match="one fate"):
        batch.settle(None, 0, AckLevel.DURABLE)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_halves_of_a_split_batch_have_its_records_and_sequences(codec: Codec) -> None:
    batch = filled(5)
    batch.append_timestamp(1009)
    batch.append_value(b"last")
    encode(batch, codec)
    whole = columns_of(batch)

    first, second = batch.split(codec)

    parts = [columns_of(first), columns_of(second)]
    assert [*(parts[0].values or ()), *(parts[1].values or ())] == whole.values
    assert [*(parts[0].keys or ()), *(parts[1].keys or ())] == whole.keys
    assert check_produced(memoryview(first.encoded)).base_sequence == 40
    assert check_produced(memoryview(second.encoded)).base_sequence == 43
    assert check_produced(memoryview(second.encoded)).max_timestamp_ms == 1009


def test_halves_of_a_split_batch_keep_its_format() -> None:
    batch = filled(5)
    encode(batch, format_version=FORMAT_COLUMNAR)
    whole = columns_of(batch)

    halves = batch.split(Codec.NONE)

    found = [columns_of(half) for half in halves]
    assert [*(found[0].values or ()), *(found[1].values or ())] == whole.values
    headers = [check_produced(memoryview(half.encoded)) for half in halves]
    assert [header.format_version for header in headers] == [FORMAT_COLUMNAR] * 2


SOME_BYTES = st.one_of(st.none(), st.binary(max_size=3), st.sampled_from([b"x" * 255, b"y" * 256]))


@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.lists(st.tuples(SOME_BYTES, SOME_BYTES))),
        min_size=1,
    )
)
def test_known_lengths_give_the_same_bytes_as_lengths_of_the_encoder(
    calls: list[tuple[bool, bool, list[tuple[bytes | None, bytes | None]]]],
) -> None:
    known, plain = open_batch(), open_batch()
    for is_many, has_keys, pairs in calls:
        values, keys = [value for value, _ in pairs], [key for _, key in pairs]
        if is_many:
            known.room = 1 << 30
            ManyRecords(values, keys if has_keys else None).move_to(known)
            plain.extend(values, keys if has_keys else None)
        else:
            for batch in (known, plain):
                for value in values:
                    batch.append_value(value)
    for batch in (known, plain):
        batch.extend([b""], None)
        encode(batch, format_version=FORMAT_COLUMNAR)

    assert known.encoded == plain.encoded


@pytest.mark.parametrize("length", [0, 255, 256])
def test_records_of_one_call_keep_their_lengths(length: int) -> None:
    values = [b"x" * length] * 9
    keys = [b"k%d" % number for number in range(9)]
    batch = open_batch()
    batch.room = 1 << 30
    ManyRecords(values, keys).move_to(batch)
    assert batch.key_lengths == bytes(map(len, keys))
    assert (len(batch.value_lengths) == len(values)) is (length <= 255)
    encode(batch, format_version=FORMAT_COLUMNAR)

    columns = columns_of(batch)

    assert (columns.values, columns.keys) == (values, keys)


def test_records_of_one_call_are_those_of_its_beginning() -> None:
    """Another task may change the caller's lists while the call waits for memory."""
    values: list[bytes | None] = [b"a", b"b"]
    keys: list[bytes | None] = [b"k", b"l"]
    records = ManyRecords(values, keys)
    values[1], keys[0] = b"longer", None
    batch = open_batch()
    batch.room = 1 << 30

    records.move_to(batch)
    encode(batch, format_version=FORMAT_COLUMNAR)

    columns = columns_of(batch)
    assert (columns.values, columns.keys) == ([b"a", b"b"], [b"k", b"l"])


def test_an_attempt_at_a_deleted_topic_leaves_nothing_in_the_recreated_one() -> None:
    batch = filled(1)
    doubts: list[bool] = []
    for topic_id in (b"first", b"first", b"second"):
        batch.send_to(topic_id)
        doubts.append(batch.is_ambiguous)
        batch.is_ambiguous = True

    assert doubts == [False, True, False]
    assert [fate.topic_id for fate in batch.fates(0, 1)] == [b"second"]


def test_a_split_batch_combines_the_outcomes_of_its_halves() -> None:
    batch = filled(4)
    encode(batch)
    failure = ValueError("too large")
    first, second = batch.split(Codec.NONE)
    first.settle(None, 100, AckLevel.DURABLE)
    second.settle(failure, None, None)

    batch.settle(None, None, None)

    assert list(batch.fates(1, 4)) == [
        Fate(1, 2, None, 101, AckLevel.DURABLE),
        Fate(2, 4, failure, None, None),
    ]
    assert [batch.failed_count(0, end) for end in (2, 3, 4)] == [0, 1, 2]

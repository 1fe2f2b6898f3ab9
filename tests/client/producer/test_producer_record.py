"""Records of applications: checked before they are buffered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.producer.producer_batch import RECORD_OVERHEAD_BYTES, ProducerBatch
from tidelog.client.producer.producer_record import ManyRecords, checked_record


def empty_batch(room: int) -> ProducerBatch:
    batch = ProducerBatch(0, timestamp_ms=1, linger_until=0.0, deadline=1.0)
    batch.room = room
    return batch


def test_valid_records_are_accepted_unchanged() -> None:
    record = checked_record(
        "orders", b"v", b"k", partition=3, headers=[("name", b"x")], timestamp_ms=5
    )

    assert (record.value, record.key, record.partition) == (b"v", b"k", 3)
    assert (record.headers, record.timestamp_ms) == ((("name", b"x"),), 5)


@pytest.mark.parametrize("given_value", [bytearray(b"v"), memoryview(b"v")])
def test_a_mutable_buffer_is_copied(given_value: bytearray | memoryview) -> None:
    record = checked_record(
        "orders", given_value, None, partition=None, headers=(), timestamp_ms=None
    )

    assert record.value == b"v"
    assert type(record.value) is bytes


@pytest.mark.parametrize(
    ("value", "key", "advice"),
    [
        ("text", None, r"value must be bytes or None, not str; encode it"),
        (b"v", 7, "key must be bytes or None, not int"),
    ],
)
def test_a_value_that_is_not_bytes_is_refused_with_advice(
    value: object, key: object, advice: str
) -> None:
    with pytest.raises(TypeError, match=advice):
        checked_record("orders", value, key, partition=None, headers=(), timestamp_ms=None)


@pytest.mark.parametrize("header", [("name", "text"), (b"name", b"x"), ("name",), "ab"])
def test_an_invalid_header_is_refused(header: object) -> None:
    with pytest.raises(TypeError, match="pairs of str and bytes"):
        checked_record("orders", b"v", None, partition=None, headers=[header], timestamp_ms=None)  # type: ignore[list-item]


@pytest.mark.parametrize("timestamp_ms", [-1, 1 << 62])
def test_an_invalid_timestamp_is_refused(timestamp_ms: int) -> None:
    with pytest.raises(ValueError, match="Unix time in milliseconds"):
        checked_record("orders", b"v", None, partition=None, headers=(), timestamp_ms=timestamp_ms)


def test_the_size_counts_key_value_headers_and_what_python_needs() -> None:
    record = checked_record(
        "orders", b"value", b"key", partition=None, headers=[("name", b"x")], timestamp_ms=None
    )

    assert record.size == 5 + 3 + 4 + 1 + 2 * RECORD_OVERHEAD_BYTES


SOME_BYTES = st.one_of(st.none(), st.binary(max_size=30))


@given(st.lists(st.tuples(SOME_BYTES, SOME_BYTES), max_size=30), st.integers(0, 400))
def test_many_records_fill_batches_in_order_and_within_their_room(
    pairs: list[tuple[bytes | None, bytes | None]], room: int
) -> None:
    values = [value for value, _ in pairs]
    keys = [key for _, key in pairs]
    records = ManyRecords(values, keys)
    taken: list[tuple[bytes | None, bytes | None]] = []

    while records.remaining_count:
        given_room = max(room, records.next_size)
        batch = empty_batch(given_room)
        bytes_before = records.remaining_bytes
        assert records.move_to(batch) >= 1
        assert batch.room >= 0
        assert bytes_before - records.remaining_bytes == given_room - batch.room
        assert batch.keys is not None
        taken += zip(batch.values, batch.keys, strict=True)

    assert taken == pairs
    assert records.remaining_bytes == 0


def test_many_records_take_only_what_has_room() -> None:
    records = ManyRecords([b"x" * 10] * 5)
    batch = empty_batch(2 * (10 + RECORD_OVERHEAD_BYTES) + 1)

    assert records.move_to(batch) == 2
    assert (records.taken_count, records.remaining_count, batch.room) == (2, 3, 1)
    assert batch.keys is None


def test_many_records_must_all_be_bytes() -> None:
    with pytest.raises(TypeError, match="each value of send_many must be bytes or None, not str"):
        ManyRecords([b"a", "b"])  # type: ignore[list-item]

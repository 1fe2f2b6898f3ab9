"""Reading one by one from a source of batches."""

import pytest

from tests.client.consumer.fetch.test_record import batch_of
from tidelog.client.consumer.fetch.record import Record, RecordBatch
from tidelog.client.consumer.fetch.record_iterator import (
    BatchIterator,
    InFlightBatch,
    RecordCursor,
    RecordIterator,
)
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.record_batch import Columns
from tidelog.wire.errors import CorruptRecordError


class Source:
    """Batches, and what was given back."""

    def __init__(self, *batches: RecordBatch) -> None:
        self.batches = list(batches)
        self.given_back: list[RecordBatch] = []

    async def __call__(self) -> RecordBatch | None:
        return self.batches.pop(0) if self.batches else None


def two_records(base_offset: int) -> RecordBatch:
    return batch_of(Columns(2, values=[b"a", b"b"]), base_offset=base_offset)


def records_of(source: Source, cursor: RecordCursor) -> RecordIterator:
    return RecordIterator(source, source.given_back.append, cursor)


async def test_records_come_batch_after_batch_until_there_are_no_more() -> None:
    source = Source(two_records(10), two_records(12))

    found = [record.offset async for record in records_of(source, RecordCursor())]

    assert found == [10, 11, 12, 13]


async def test_batches_come_until_there_are_no_more() -> None:
    source = Source(two_records(10), two_records(12))

    found = [batch.base_offset async for batch in BatchIterator(source)]

    assert found == [10, 12]


async def test_empty_batches_are_passed_over() -> None:
    source = Source(two_records(10).between(12, None), two_records(12))

    found = [record.offset async for record in records_of(source, RecordCursor())]

    assert found == [12, 13]


async def test_what_was_not_handed_out_is_the_rest() -> None:
    cursor = RecordCursor()
    records = records_of(Source(two_records(10)), cursor)

    first: Record = await anext(records)
    rest = cursor.rest()

    assert first.offset == 10
    assert rest is not None
    assert list(rest.offsets) == [11]


async def test_a_stopped_cursor_hands_out_no_more_of_its_batch() -> None:
    cursor = RecordCursor()
    records = records_of(Source(two_records(10), two_records(12)), cursor)
    await anext(records)

    rest = cursor.stop()

    assert rest is not None
    assert list(rest.offsets) == [11]
    assert (await anext(records)).offset == 12


async def test_each_record_is_handed_out_or_given_back_whoever_holds_the_iterator() -> None:
    cursor = RecordCursor()
    cursor.begin(two_records(10))
    held = cursor.unread

    assert [next(held).offset] == [10]
    rest = cursor.stop()

    assert rest is not None
    assert (list(rest.offsets), list(held)) == ([11], [])


async def test_a_cursor_knows_what_it_handed_out_last() -> None:
    cursor = RecordCursor()
    cursor.begin(two_records(10))
    assert (cursor.last_offset, cursor.unread_count) == (10, 2)

    next(cursor.unread)
    next(cursor.unread)
    assert (cursor.last_offset, cursor.unread_count) == (11, 0)

    cursor.begin(two_records(12))
    next(cursor.unread)
    cursor.stop()
    assert cursor.last_offset == 12


async def test_a_cursor_without_a_batch_has_no_rest() -> None:
    assert RecordCursor().rest() is None


async def test_a_batch_that_cannot_be_unpacked_is_given_back() -> None:
    bad = batch_of(Columns(2, values=[b"a", b"b"]), limit=1)
    source = Source(bad)

    with pytest.raises(CorruptRecordError):
        await anext(records_of(source, RecordCursor()))

    assert source.given_back == [bad]


async def test_what_a_pause_returns_is_awaited_before_the_next_record() -> None:
    waited: list[int] = []

    async def wait() -> None:
        waited.append(len(waited))

    source = Source(two_records(10))
    pauses = iter([None, wait()])
    records = RecordIterator(
        source, source.given_back.append, RecordCursor(), pause=lambda: next(pauses, None)
    )

    assert [record.offset async for record in records] == [10, 11]
    assert waited == [0]


def in_hand(base_offset: int = 10) -> InFlightBatch:
    """Return what a batch of two records leaves in hand."""
    held = InFlightBatch()
    held.take(batch_of(Columns(2, values=[b"a", b"b"]), base_offset=base_offset))
    return held


def test_at_first_nothing_is_in_hand() -> None:
    assert (InFlightBatch().at, InFlightBatch().offset) == (None, None)


def test_a_batch_is_processed_as_a_whole() -> None:
    held = in_hand()

    assert held.at == TopicPartition("orders", 2)
    assert held.offset == 10


def test_of_a_batch_that_is_read_record_by_record_all_but_the_last_are_processed() -> None:
    held = InFlightBatch()
    batch = batch_of(Columns(2, values=[b"a", b"b"]), base_offset=10)
    held.take(batch)
    held.cursor.begin(batch)
    next(held.cursor.unread)
    assert held.offset == 10

    next(held.cursor.unread)
    assert held.offset == 11

    held.cursor.stop()
    assert held.offset == 11


def test_what_is_vouched_for_is_processed_until_the_next_is_taken() -> None:
    held = in_hand()
    held.ack(12)
    assert held.offset == 12

    held.take(batch_of(Columns(2, values=[b"a", b"b"]), base_offset=4))
    assert held.offset == 4


def test_what_is_put_down_is_not_in_hand() -> None:
    held = in_hand()
    held.revoke()
    assert held.is_revoked

    held.finish()

    assert (held.at, held.offset, held.is_revoked) == (None, None, False)


def test_progress_is_made_with_each_record() -> None:
    held = InFlightBatch()
    batch = batch_of(Columns(2, values=[b"a", b"b"]))
    held.take(batch)
    held.cursor.begin(batch)
    seen = [held.progress]
    seen.extend(held.progress for _ in held.cursor.unread)
    held.take(batch)
    seen.append(held.progress)

    assert len(set(seen)) == len(seen)

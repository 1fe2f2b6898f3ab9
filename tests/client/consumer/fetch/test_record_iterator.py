"""Iteration over records and batches from a source of batches."""

import pytest

from tests.client.consumer.fetch.test_record import batch_of
from tidelog.client.consumer.fetch.record import Record, RecordBatch
from tidelog.client.consumer.fetch.record_iterator import (
    BatchIterator,
    BatchSource,
    InFlightBatch,
    RecordCursor,
    RecordIterator,
)
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.record_batch import Columns
from tidelog.wire.errors import CorruptRecordError


class Source:
    """Source of batches, and the returned batches."""

    def __init__(self, *batches: RecordBatch) -> None:
        self.batches = list(batches)
        self.given_back: list[RecordBatch] = []

    async def take(self) -> RecordBatch | None:
        return self.take_nowait()

    def take_nowait(self) -> RecordBatch | None:
        return self.batches.pop(0) if self.batches else None

    @property
    def as_source(self) -> BatchSource:
        return BatchSource(self.take, self.take_nowait, self.given_back.append)


def two_records(base_offset: int) -> RecordBatch:
    return batch_of(Columns(2, values=[b"a", b"b"]), base_offset=base_offset)


def records_of(source: Source, cursor: RecordCursor) -> RecordIterator:
    return RecordIterator(source.as_source, cursor)


async def test_records_are_iterated_batch_by_batch() -> None:
    source = Source(two_records(10), two_records(12))

    found = [record.offset async for record in records_of(source, RecordCursor())]

    assert found == [10, 11, 12, 13]


async def test_batches_are_iterated_to_the_end() -> None:
    source = Source(two_records(10), two_records(12))

    found = [batch.base_offset async for batch in BatchIterator(source.as_source)]

    assert found == [10, 12]


async def test_empty_batches_are_skipped() -> None:
    source = Source(two_records(10).between(12, None), two_records(12))

    found = [record.offset async for record in records_of(source, RecordCursor())]

    assert found == [12, 13]


async def test_the_rest_has_the_records_not_handed_out() -> None:
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


async def test_each_record_is_either_handed_out_or_returned() -> None:
    cursor = RecordCursor()
    cursor.begin(two_records(10))
    held = cursor.unread

    assert [next(held).offset] == [10]
    rest = cursor.stop()

    assert rest is not None
    assert (list(rest.offsets), list(held)) == ([11], [])


async def test_a_cursor_has_the_last_offset() -> None:
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


async def test_an_undecodable_batch_is_returned() -> None:
    bad = batch_of(Columns(2, values=[b"a", b"b"]), limit=1)
    source = Source(bad)

    with pytest.raises(CorruptRecordError):
        await anext(records_of(source, RecordCursor()))

    assert source.given_back == [bad]


async def test_records_that_have_arrived_are_taken_without_waiting() -> None:
    source = Source(two_records(10), two_records(12))
    records = records_of(source, RecordCursor())

    first = records.next_nowait()

    assert first is not None
    assert first.offset == 10
    assert [record.offset async for record in records] == [11, 12, 13]
    assert records.next_nowait() is None


async def test_a_record_that_no_program_has_seen_is_given_back_with_those_behind_it() -> None:
    source = Source(two_records(10))
    cursor = RecordCursor()
    records = records_of(source, cursor)
    record = await anext(records)

    records.give_back(record)

    assert [(each.base_offset, each.next_offset) for each in source.given_back] == [(10, 12)]
    assert cursor.unread_count == 0


async def test_a_batch_that_no_program_has_seen_is_given_back() -> None:
    source = Source(two_records(10))
    batches = BatchIterator(source.as_source)
    batch = batches.next_nowait()

    assert batch is not None
    batches.give_back(batch)

    assert source.given_back == [batch]


async def test_a_pause_is_awaited_before_the_next_record() -> None:
    waited: list[int] = []

    async def wait() -> None:
        waited.append(len(waited))

    source = Source(two_records(10))
    pauses = iter([None, wait()])
    records = RecordIterator(source.as_source, RecordCursor(), pause=lambda: next(pauses, None))

    assert [record.offset async for record in records] == [10, 11]
    assert waited == [0]


def in_hand(base_offset: int = 10) -> InFlightBatch:
    """Return the batch in flight after handing out a batch of two records."""
    held = InFlightBatch()
    held.take(batch_of(Columns(2, values=[b"a", b"b"]), base_offset=base_offset))
    return held


def test_initially_no_batch_is_in_flight() -> None:
    assert (InFlightBatch().at, InFlightBatch().offset) == (None, None)


def test_a_batch_is_processed_as_a_whole() -> None:
    held = in_hand()

    assert held.at == TopicPartition("orders", 2)
    assert held.offset == 10


def test_record_by_record_all_but_the_last_record_are_processed() -> None:
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


def test_an_acknowledged_batch_counts_as_processed() -> None:
    held = in_hand()
    held.ack(12)
    assert held.offset == 12

    held.take(batch_of(Columns(2, values=[b"a", b"b"]), base_offset=4))
    assert held.offset == 4


def test_a_finished_batch_is_not_in_flight() -> None:
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

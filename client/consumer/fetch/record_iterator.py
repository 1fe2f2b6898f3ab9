"""Iteration over records, or over batches, from a source of batches.

Pure: no clock, no I/O; awaits nothing but the source.
"""

import operator
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, final

from tidelog.client.consumer.fetch.record import Record, RecordBatch
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import CorruptRecordError

Pause = Callable[[], Awaitable[None] | None]


class BatchSource(NamedTuple):
    """Source of the batches of an iterator."""

    take: Callable[[], Awaitable[RecordBatch | None]]
    """Waits for the next batch; `None` at the end."""
    take_nowait: Callable[[], RecordBatch | None]
    """Returns the next batch if it has arrived; `None` if `take` is to find out."""
    give_back: Callable[[RecordBatch], None]
    """Takes back the last batch, or its end."""


@final
class BatchIterator:
    """Iterator over batches until the source has no more."""

    def __init__(self, source: BatchSource) -> None:
        """Take batches from `source`."""
        self._source = source

    def __aiter__(self) -> "BatchIterator":
        """Return itself."""
        return self

    async def __anext__(self) -> RecordBatch:
        """Return the next batch; a checkpoint. If cancelled, nothing is lost."""
        batch = await self._source.take()
        if batch is None:
            raise StopAsyncIteration
        return batch

    def next_nowait(self) -> RecordBatch | None:
        """Return the next batch if it has arrived; no checkpoint."""
        return self._source.take_nowait()

    def give_back(self, batch: RecordBatch) -> None:
        """Take back the batch that was returned last: no program has seen it."""
        self._source.give_back(batch)


@final
class RecordCursor:
    """Records of one batch, and which of them were handed out.

    Each record is either handed out or given back, whichever thread takes it from `unread`.
    """

    def __init__(self) -> None:
        """Start without a batch."""
        self.unread: Iterator[Record] = iter(())
        """Iterator over records that were not handed out; readers take records from it."""
        self.source: RecordBatch | None = None
        """Last batch that was started."""
        self._offsets: Sequence[int] = ()
        """Offsets of the records that were handed out, or may be."""
        self._unread_offsets: Iterator[int] = iter(())
        """Gives `unread` the offset of each record."""

    @property
    def unread_count(self) -> int:
        """Number of records that were not handed out."""
        return operator.length_hint(self._unread_offsets)

    @property
    def last_offset(self) -> int:
        """Offset of the last record that was handed out; the start of the batch if none was."""
        assert self.source is not None, "there is no batch"
        given_count = len(self._offsets) - self.unread_count
        return self._offsets[given_count - 1] if given_count else self.source.base_offset

    def begin(self, batch: RecordBatch) -> None:
        """Start the records of this batch.

        Raises:
            CorruptRecordError: The batch cannot be decoded.
        """
        offsets = batch.offsets
        unread_offsets = iter(offsets)
        unread = batch.records_at(unread_offsets)
        self._offsets, self._unread_offsets = offsets, unread_offsets
        self.source, self.unread = batch, unread

    def rest(self) -> RecordBatch | None:
        """Return the part of the batch that was not handed out, `None` when all of it was."""
        unread_count = self.unread_count
        if self.source is None or unread_count == 0:
            return None
        return self.source.between(self._offsets[-unread_count], None)

    def stop(self) -> RecordBatch | None:
        """Stop handing out records; return the part that was not handed out."""
        unread = list(self.unread)  # An iterator of the application may share it.
        if self.source is None or not unread:
            return None
        self._offsets = self._offsets[: -len(unread)]
        return self.source.between(unread[0].offset, None)


@final
class RecordIterator:
    """Iterator over records until the source of batches has no more."""

    def __init__(
        self, source: BatchSource, cursor: RecordCursor, *, pause: Pause | None = None
    ) -> None:
        """Take batches from `source`; give back those that cannot be decoded.

        If `pause` returns an awaitable before a record, that is awaited first.
        """
        self.cursor = cursor
        """Records that are available without waiting."""
        self.pause = pause
        self._source = source

    def __aiter__(self) -> "RecordIterator":
        """Return itself."""
        return self

    async def __anext__(self) -> Record:
        """Return the next record; a checkpoint once for each batch. If cancelled, none is lost."""
        if self.pause is not None:
            pause = self.pause()
            if pause is not None:
                await pause
        for record in self.cursor.unread:  # The cheapest way to ask an iterator for one item.
            return record
        while True:
            batch = await self._source.take()
            if batch is None:
                raise StopAsyncIteration
            first = self._begin(batch)
            if first is not None:
                return first

    def next_nowait(self) -> Record | None:
        """Return the first record of the next batch if it has arrived; no checkpoint."""
        batch = self._source.take_nowait()
        return None if batch is None else self._begin(batch)

    def give_back(self, record: Record) -> None:
        """Take back the record that was returned last: no program has seen it."""
        source = self.cursor.source
        if source is not None:
            self.cursor.stop()
            self._source.give_back(source.between(record.offset, None))

    def _begin(self, batch: RecordBatch) -> Record | None:
        """Begin a batch; return its first record, `None` if it has none."""
        try:
            self.cursor.begin(batch)
        except CorruptRecordError:
            self._source.give_back(batch)
            raise
        for record in self.cursor.unread:
            return record
        return None


@final
class InFlightBatch:
    """Batch that was handed out last, complete or record by record."""

    def __init__(self) -> None:
        """Start without a batch."""
        self.cursor = RecordCursor()
        """Records of the batch, if it is handed out record by record."""
        self.is_revoked = False
        """Whether its partition was lost since: its outcome does not count."""
        self._batch: RecordBatch | None = None
        self._acked_offset = 0
        self._taken_count = 0

    @property
    def at(self) -> TopicPartition | None:
        """Partition of the batch, `None` without a batch."""
        batch = self._batch
        return None if batch is None else TopicPartition(batch.topic, batch.partition)

    @property
    def offset(self) -> int | None:
        """First offset that is not processed, `None` without a batch."""
        batch = self._batch
        if batch is None:
            return None
        is_by_record = self.cursor.source is batch
        offset = self.cursor.last_offset if is_by_record else batch.base_offset
        return max(offset, self._acked_offset)

    @property
    def progress(self) -> tuple[int, int]:
        """Value that changes whenever the application receives a record or a batch."""
        return (self._taken_count, self.cursor.unread_count)

    def take(self, batch: RecordBatch) -> None:
        """Set the batch that was handed out; the one before is processed."""
        self.finish()
        self._batch = batch
        self._taken_count += 1

    def finish(self) -> bool:
        """Clear the batch; return whether there was one."""
        if self._batch is None:
            return False
        self._batch = None
        self._acked_offset = 0
        self.is_revoked = False
        return True

    def revoke(self) -> None:
        """Mark the batch as revoked, because its partition was lost."""
        self.is_revoked = True

    def ack(self, next_offset: int) -> None:
        """Count everything before this offset as processed."""
        self._acked_offset = next_offset

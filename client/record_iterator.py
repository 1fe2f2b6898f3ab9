"""Reading record by record, or batch by batch, from a source of batches.

Pure: no clock, no I/O; awaits nothing but the source.
"""

import operator
from collections.abc import Awaitable, Callable, Iterator
from typing import final

from client.record import Record, RecordBatch
from wire.errors import CorruptRecordError

NextBatch = Callable[[], Awaitable[RecordBatch | None]]
GiveBack = Callable[[RecordBatch], None]


@final
class BatchIterator:
    """Batches until the source says that there are no more."""

    def __init__(self, next_batch: NextBatch) -> None:
        """Take batches from `next_batch`."""
        self._next_batch = next_batch

    def __aiter__(self) -> "BatchIterator":
        """Return itself."""
        return self

    async def __anext__(self) -> RecordBatch:
        """Return the next batch; a checkpoint. If cancelled, nothing is lost."""
        batch = await self._next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch


@final
class RecordCursor:
    """The records of one batch, and which of them were handed out."""

    def __init__(self) -> None:
        """Begin without a batch."""
        self.unread: Iterator[Record] = iter(())
        """What was not handed out; readers take records from here."""
        self._batch: RecordBatch | None = None
        self._records: list[Record] = []

    def begin(self, batch: RecordBatch) -> None:
        """Go on with the records of this batch.

        Raises:
            CorruptRecordError: It cannot be decoded.
        """
        self._records = batch.records()
        self._batch = batch
        self.unread = iter(self._records)

    def rest(self) -> RecordBatch | None:
        """Return the part of the batch that was not handed out, `None` when all of it was."""
        unread_count = operator.length_hint(self.unread)
        if self._batch is None or unread_count == 0:
            return None
        return self._batch.between(self._records[-unread_count].offset, None)

    def stop(self) -> RecordBatch | None:
        """Hand out no more; return what was not handed out."""
        rest = self.rest()
        self._batch = None
        for _ in self.unread:  # Somebody may hold the iterator itself.
            pass
        return rest


@final
class RecordIterator:
    """Records until the source of batches says that there are no more."""

    def __init__(self, next_batch: NextBatch, give_back: GiveBack, cursor: RecordCursor) -> None:
        """Take batches from `next_batch`; give back those that cannot be decoded."""
        self._next_batch = next_batch
        self._give_back = give_back
        self._cursor = cursor

    def __aiter__(self) -> "RecordIterator":
        """Return itself."""
        return self

    async def __anext__(self) -> Record:
        """Return the next record; a checkpoint once for each batch. If cancelled, none is lost."""
        for record in self._cursor.unread:  # The cheapest way to ask an iterator for one item.
            return record
        return await self._begin_batch()

    async def _begin_batch(self) -> Record:
        while True:
            batch = await self._next_batch()
            if batch is None:
                raise StopAsyncIteration
            try:
                self._cursor.begin(batch)
            except CorruptRecordError:
                self._give_back(batch)
                raise
            for record in self._cursor.unread:
                return record

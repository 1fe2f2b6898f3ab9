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
class RecordIterator:
    """Records until the source of batches says that there are no more."""

    def __init__(self, next_batch: NextBatch, give_back: GiveBack) -> None:
        """Take batches from `next_batch`; give back what cannot be used."""
        self._next_batch = next_batch
        self._give_back = give_back
        self._batch: RecordBatch | None = None
        self._records: list[Record] = []
        self._unread: Iterator[Record] = iter(self._records)

    def __aiter__(self) -> "RecordIterator":
        """Return itself."""
        return self

    async def __anext__(self) -> Record:
        """Return the next record; a checkpoint once for each batch. If cancelled, none is lost."""
        for record in self._unread:  # The cheapest way to ask an iterator for one item.
            return record
        return await self._begin_batch()

    def unread(self) -> RecordBatch | None:
        """Return the part of the current batch that was not handed out, if there is one."""
        unread_count = operator.length_hint(self._unread)
        if self._batch is None or unread_count == 0:
            return None
        return self._batch.between(self._records[-unread_count].offset, None)

    def stop(self) -> None:
        """Give back what was not handed out; the source goes on there."""
        unread = self.unread()
        self._batch = None
        self._unread = iter(())
        if unread is not None:
            self._give_back(unread)

    async def _begin_batch(self) -> Record:
        while True:
            batch = await self._next_batch()
            if batch is None:
                raise StopAsyncIteration
            try:
                self._records = batch.records()
            except CorruptRecordError:
                self._give_back(batch)
                raise
            self._batch = batch
            self._unread = iter(self._records)
            for record in self._unread:
                return record

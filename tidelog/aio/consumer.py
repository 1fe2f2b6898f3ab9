"""Consumer for asyncio.

Shell: records of a batch that is there already need no task of trio.
"""

import asyncio
from types import TracebackType
from typing import Self, final

from tidelog.aio.calls.consumer import ConsumerCalls
from tidelog.aio.forwarding import ClientGuest, Openable
from tidelog.client.consumer.consumer import Consumer as InnerConsumer
from tidelog.client.consumer.fetch.fetch_state import Until
from tidelog.client.consumer.fetch.record import Record, RecordBatch
from tidelog.client.consumer.fetch.record_iterator import BatchIterator as InnerBatchIterator
from tidelog.client.consumer.fetch.record_iterator import RecordIterator as InnerRecordIterator


@final
class RecordIterator:
    """Iterator over records."""

    __slots__ = ("_cursor", "_guest", "_inner", "_pause")

    def __init__(self, guest: ClientGuest, inner: InnerRecordIterator) -> None:
        """Use `consumer.records()`."""
        self._guest = guest
        self._inner = inner
        self._cursor = inner.cursor
        self._pause = inner.pause

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Record:
        """Return the next record; other tasks may run once for each batch.

        If cancelled, no record is lost.
        """
        if self._pause is not None:
            pause = self._pause()
            if pause is not None:
                await self._guest.call(lambda: pause)
        for record in self._cursor.unread:
            return record
        await asyncio.sleep(0)
        self._guest.require_here()
        found = self._inner.next_nowait()
        if found is None:
            found = await self._guest.call(self._following, undo=self._give_back)
        if found is None:
            raise StopAsyncIteration
        return found

    async def _following(self) -> Record | None:
        return await anext(self._inner, None)

    def _give_back(self, record: Record | None) -> None:
        if record is not None:
            self._inner.give_back(record)


@final
class BatchIterator:
    """Iterator over batches."""

    __slots__ = ("_guest", "_inner")

    def __init__(self, guest: ClientGuest, inner: InnerBatchIterator) -> None:
        """Use `consumer.batches()`."""
        self._guest = guest
        self._inner = inner

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> RecordBatch:
        """Return the next batch; other tasks may run. If cancelled, no batch is lost."""
        await asyncio.sleep(0)
        self._guest.require_here()
        found = self._inner.next_nowait()
        if found is None:
            found = await self._guest.call(self._following, undo=self._give_back)
        if found is None:
            raise StopAsyncIteration
        return found

    async def _following(self) -> RecordBatch | None:
        return await anext(self._inner, None)

    def _give_back(self, batch: RecordBatch | None) -> None:
        if batch is not None:
            self._inner.give_back(batch)


@final
class Consumer(ConsumerCalls, Openable):
    """See `tidelog.Consumer`; use it with `async with`, or with `await` and `close`."""

    def __init__(self, guest: ClientGuest, inner: InnerConsumer) -> None:
        """Use `client.consumer()`."""
        super().__init__(guest, inner)

    async def __aenter__(self) -> Self:
        """Find the partitions and their start, or join the group; see `tidelog.Consumer`."""
        await self._guest.enter(self._inner)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop reading; commit processed records, and leave the group.

        If the block ends because its task is cancelled, this takes up to a second.
        """
        await self._guest.leave(self._inner, kind, error, traceback)

    def __aiter__(self) -> RecordIterator:
        """Iterate over records without an end."""
        return self.records()

    def records(self, until: Until | None = None) -> RecordIterator:
        """Iterate over records; for `until` and the errors see `tidelog.Consumer.batches`."""
        return RecordIterator(self._guest, self._here.records(until))

    def batches(self, until: Until | None = None) -> BatchIterator:
        """Iterate over batches; see `tidelog.Consumer.batches`."""
        return BatchIterator(self._guest, self._here.batches(until))

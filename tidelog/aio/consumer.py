"""Consumer for asyncio.

Shell: records of a batch that is there already need no task of trio.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar, final

from tidelog.aio.calls.consumer import ConsumerCalls
from tidelog.aio.forwarding import ClientGuest, Openable
from tidelog.client.consumer.consumer import Consumer as InnerConsumer
from tidelog.client.consumer.fetch.fetch_state import Until
from tidelog.client.consumer.fetch.record import Record, RecordBatch
from tidelog.client.consumer.fetch.record_iterator import BatchIterator as InnerBatchIterator
from tidelog.client.consumer.fetch.record_iterator import RecordIterator as InnerRecordIterator
from tidelog.wire.errors import TidelogError

Item = TypeVar("Item")


class _Source(Protocol[Item]):
    """Iterator of the client."""

    def __anext__(self) -> Awaitable[Item]:
        """Return the next item."""
        ...

    def next_nowait(self) -> Item | None:
        """Return the next item if it has arrived."""
        ...

    def give_back(self, item: Item, /) -> None:
        """Take back the item that was returned last."""
        ...


class _Iterator(Generic[Item]):
    """Iterator over items, of which those that have arrived need no task of trio."""

    __slots__ = ("_guest", "_source")

    def __init__(self, guest: ClientGuest, source: _Source[Item]) -> None:
        self._guest = guest
        self._source = source

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def _following(self) -> Item:
        """Return the next item; other tasks may run. If cancelled, no item is lost."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._count_request()
            raise
        self._guest.require_open()
        found = self._source.next_nowait()
        if found is None:
            found = await self._guest.call(self._arrived, undo=self._give_back)
        if found is None:
            raise StopAsyncIteration
        return found

    async def _arrived(self) -> Item | None:
        return await anext(self._source, None)

    def _give_back(self, item: Item | None) -> None:
        if item is not None:
            self._source.give_back(item)

    def _count_request(self) -> None:
        """Let the item before count as processed, as calls do that are cancelled later."""
        if self._guest.is_open:
            with suppress(TidelogError):
                self._give_back(self._source.next_nowait())


@final
class RecordIterator(_Iterator[Record]):
    """Iterator over records."""

    __slots__ = ("_cursor", "_pause")

    def __init__(self, guest: ClientGuest, inner: InnerRecordIterator) -> None:
        """Use `consumer.records()`."""
        super().__init__(guest, inner)
        self._cursor = inner.cursor
        self._pause = inner.pause

    async def __anext__(self) -> Record:
        """Return the next record; other tasks may run once for each batch.

        If cancelled, no record is lost.
        """
        if self._pause is not None:
            self._guest.require_open()
            pause = self._pause()
            if pause is not None:
                await self._guest.call(lambda: pause)
        for record in self._cursor.unread:
            return record
        return await self._following()


@final
class BatchIterator(_Iterator[RecordBatch]):
    """Iterator over batches."""

    __slots__ = ()

    def __init__(self, guest: ClientGuest, inner: InnerBatchIterator) -> None:
        """Use `consumer.batches()`."""
        super().__init__(guest, inner)

    async def __anext__(self) -> RecordBatch:
        """Return the next batch; other tasks may run. If cancelled, no batch is lost."""
        return await self._following()


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
        await self._guest.leave(self._inner, error)

    def __aiter__(self) -> RecordIterator:
        """Iterate over records without an end."""
        return self.records()

    def records(self, until: Until | None = None) -> RecordIterator:
        """Iterate over records; for `until` and the errors see `tidelog.Consumer.batches`."""
        return RecordIterator(self._guest, self._here.records(until))

    def batches(self, until: Until | None = None) -> BatchIterator:
        """Iterate over batches; see `tidelog.Consumer.batches`."""
        return BatchIterator(self._guest, self._here.batches(until))

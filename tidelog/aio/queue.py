"""Queues and queue workers for asyncio."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self, Unpack, cast, final

import msgspec

from tidelog.aio.calls.queue import QueueCalls
from tidelog.aio.forwarding import ClientGuest, Forwarding
from tidelog.aio.message import Message
from tidelog.client.config import configured
from tidelog.client.producer.receipt import Receipt
from tidelog.client.queue.queue import Queue as InnerQueue
from tidelog.client.queue.receive.message import VALUE_BYTES_MAX
from tidelog.client.queue.receive.message import Message as InnerMessage
from tidelog.client.queue.receive.subscription import QueueSubscription as InnerQueueSubscription
from tidelog.client.queue.receive.worker import PlainWorkerSettings, WorkerConfig, WorkerStatistics
from tidelog.client.queue.receive.worker import QueueWorker as InnerQueueWorker
from tidelog.client.queue.send.chunk_writer import Source
from tidelog.client.queue.send.message_fields import MessageFields, OutgoingMessage

OnError = Callable[[Message, Exception], object]


class WorkerSettings(PlainWorkerSettings, total=False):
    """The fields of `tidelog.WorkerConfig`, as keywords."""

    on_error: OnError | None


@final
class Queue(QueueCalls):
    """See `tidelog.Queue`."""

    def __init__(self, guest: ClientGuest, queue: InnerQueue) -> None:
        """Use `client.queue(name)`."""
        super().__init__(guest, queue)
        self.name = queue.name

    async def send(self, value: Source | None, **fields: Unpack[MessageFields]) -> Receipt:
        """Send one message and wait until it is acknowledged; see `tidelog.Queue.send`."""
        source = self._source(value)
        return await self._guest.call(partial(self._inner.send, source, **fields))

    async def send_batch(self, messages: Iterable[bytes | OutgoingMessage]) -> list[Receipt]:
        """Send messages and wait until all are acknowledged; see `tidelog.Queue.send_batch`."""
        given = [
            each
            if isinstance(each, bytes)
            else msgspec.structs.replace(each, value=self._source(each.value))
            for each in messages
        ]
        return await self._guest.call(partial(self._inner.send_batch, given))

    def subscribe(
        self,
        max_messages: int = 100,
        *,
        visibility_timeout: float | None = None,
        wait: float = 20.0,
        max_value_bytes: int = VALUE_BYTES_MAX,
    ) -> "QueueSubscription":
        """Return a stream of messages that are received ahead; see `tidelog.Queue.subscribe`.

        Raises:
            ValueError: A number is out of range.
        """
        subscription = self._here.subscribe(
            max_messages,
            visibility_timeout=visibility_timeout,
            wait=wait,
            max_value_bytes=max_value_bytes,
        )
        return QueueSubscription(self._guest, subscription)

    def worker(
        self, handler: Callable[[Message], Awaitable[object]], **settings: Unpack[WorkerSettings]
    ) -> "QueueWorker":
        """Return a worker, whose `run` passes messages to `handler`.

        Each call of `handler`, and of `on_error`, is a task of asyncio. It is cancelled when the
        lease of its message is lost, and when `run` is cancelled.

        Raises:
            ConfigError: A setting is not valid.
        """
        guest = self._guest
        on_error = settings.pop("on_error", None)
        config = configured(WorkerConfig, None, settings, of="worker")

        def handle(message: InnerMessage) -> Awaitable[object]:
            work = handler(Message(guest, message))
            if not isinstance(cast("object", work), Awaitable):
                return work  # The worker refuses it.
            return guest.call_host(lambda: work)

        if on_error is not None:

            def tell(message: InnerMessage, error: Exception) -> Awaitable[None]:
                given = Message(guest, message)
                return guest.call_host(lambda: _told(on_error, given, error))

            config = replace(config, on_error=tell)
        return QueueWorker(guest, self._here.worker(handle, config))

    async def work(
        self, handler: Callable[[Message], Awaitable[object]], **settings: Unpack[WorkerSettings]
    ) -> None:
        """Pass messages to `handler` without an end; see `worker` and `tidelog.QueueWorker`.

        Raises:
            ConfigError: A setting is not valid.
            UnknownQueueError: The queue does not exist, or was deleted.
        """
        await self.worker(handler, **settings).run()

    def _source(self, value: Source | None) -> Source | None:
        """Return a source for the client: an iterable of asyncio is read in a task of asyncio."""
        return _chunks(self._guest, value) if isinstance(value, AsyncIterable) else value


@final
class QueueSubscription(Forwarding[InnerQueueSubscription]):
    """See `tidelog.QueueSubscription`; use it with `async with`, and iterate over it."""

    async def __aenter__(self) -> Self:
        """Begin to receive; see `tidelog.QueueSubscription`."""
        await self._guest.enter(self._inner)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop receiving, and give all messages back; see `tidelog.QueueSubscription`."""
        await self._guest.leave(self._inner, error)

    def __aiter__(self) -> Self:
        """Return the subscription."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; wait for it. See `tidelog.QueueSubscription`."""
        message = await self._guest.call(self._following, undo=self._give_back)
        if message is None:
            raise StopAsyncIteration
        return Message(self._guest, message)

    async def _following(self) -> InnerMessage | None:
        return await anext(self._inner, None)

    def _give_back(self, message: InnerMessage | None) -> None:
        if message is not None:
            self._inner.give_back(message)


@final
class QueueWorker(Forwarding[InnerQueueWorker]):
    """See `tidelog.QueueWorker`."""

    @property
    def statistics(self) -> WorkerStatistics:
        """Counts of what the worker has done."""
        return self._inner.statistics

    def stop(self) -> None:
        """Let `run` return after the running handlers, for instance from a signal handler."""
        self._guest.require_here()
        self._inner.stop()

    async def run(self) -> None:
        """Work until `stop`.

        When it is cancelled, handlers are cancelled, and all messages are returned.

        Raises:
            UnknownQueueError: The queue does not exist, or was deleted.
            TypeError: The handler is not an async function.
        """
        await self._guest.call(self._inner.run)


async def _told(on_error: OnError, message: Message, error: Exception) -> None:
    told = on_error(message, error)
    if isinstance(told, Awaitable):
        await told


async def _chunks(guest: ClientGuest, source: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    items = aiter(source)
    while (item := await guest.call_host(partial(anext, items, None))) is not None:
        yield item

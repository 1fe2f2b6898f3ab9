"""Queues and queue workers of the blocking client."""

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self, Unpack, final

import trio

from tidelog.blocking.calls.queue import QueueCalls
from tidelog.blocking.forwarding import ClientThread, Forwarding
from tidelog.blocking.message import Message
from tidelog.client.config import configured
from tidelog.client.queue.queue import Queue as AsyncQueue
from tidelog.client.queue.receive.message import VALUE_BYTES_MAX
from tidelog.client.queue.receive.message import Message as AsyncMessage
from tidelog.client.queue.receive.subscription import QueueSubscription as AsyncQueueSubscription
from tidelog.client.queue.receive.worker import PlainWorkerSettings, WorkerConfig, WorkerStatistics
from tidelog.client.queue.receive.worker import QueueWorker as AsyncQueueWorker
from tidelog.wire.env.real.real_env import run_in_thread

OnError = Callable[[Message, Exception], object]


class WorkerSettings(PlainWorkerSettings, total=False):
    """The fields of `tidelog.WorkerConfig`, as keywords."""

    on_error: OnError | None


@final
class Queue(QueueCalls):
    """See `tidelog.Queue`."""

    def __init__(self, thread: ClientThread, queue: AsyncQueue) -> None:
        """Use `client.queue(name)`."""
        super().__init__(thread, queue)
        self.name = queue.name

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
        return QueueSubscription(
            self._thread,
            self._thread.call_sync(
                partial(
                    self._inner.subscribe,
                    max_messages,
                    visibility_timeout=visibility_timeout,
                    wait=wait,
                    max_value_bytes=max_value_bytes,
                )
            ),
        )

    def worker(
        self, handler: Callable[[Message], object], **settings: Unpack[WorkerSettings]
    ) -> "QueueWorker":
        """Return a worker, whose `run` passes messages to `handler`.

        `handler` and `on_error` run in up to `concurrency` threads of their own.

        Raises:
            ConfigError: A setting is not valid.
        """
        on_error = settings.pop("on_error", None)
        # A limiter of their own: file reads and name lookups must not wait for handlers.
        config = configured(WorkerConfig, None, settings, of="worker")
        limiter = trio.CapacityLimiter(config.concurrency)

        async def handle(message: AsyncMessage) -> None:
            # In the context of the task: it has the current span, for instance.
            work = partial(handler, Message(self._thread, message))
            await run_in_thread(partial(copy_context().run, work), limiter)

        async def tell(message: AsyncMessage, error: Exception) -> None:
            assert on_error is not None
            work = partial(on_error, Message(self._thread, message), error)
            await run_in_thread(partial(copy_context().run, work), limiter)

        if on_error is not None:
            config = replace(config, on_error=tell)
        return QueueWorker(self._thread, self._inner.worker(handle, config))

    def work(
        self, handler: Callable[[Message], object], **settings: Unpack[WorkerSettings]
    ) -> None:
        """Pass messages to `handler` without an end; see `QueueWorker`.

        Raises:
            ConfigError: A setting is not valid.
            UnknownQueueError: The queue does not exist, or was deleted.
        """
        self.worker(handler, **settings).run()


@final
class QueueSubscription(Forwarding[AsyncQueueSubscription]):
    """See `tidelog.QueueSubscription`; use it with `with`, and iterate over it, in any threads."""

    def __enter__(self) -> Self:
        """Begin to receive; see `tidelog.QueueSubscription`."""
        self._thread.call(self._inner.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop receiving, and give all messages back; see `tidelog.QueueSubscription`."""
        self._thread.call(partial(self._inner.__aexit__, kind, error, traceback))

    def __iter__(self) -> Self:
        """Return the subscription."""
        return self

    def __next__(self) -> Message:
        """Return the next message; wait for it. See `tidelog.QueueSubscription`."""

        async def following() -> AsyncMessage | None:
            return await anext(self._inner, None)

        message = self._thread.call(following)
        if message is None:
            raise StopIteration
        return Message(self._thread, message)


@final
class QueueWorker(Forwarding[AsyncQueueWorker]):
    """See `tidelog.QueueWorker`."""

    @property
    def statistics(self) -> WorkerStatistics:
        """Counts of what the worker has done."""
        return self._inner.statistics

    def stop(self) -> None:
        """Let `run` return after the running handlers; callable from any thread."""
        self._thread.call_soon(self._inner.stop)

    def run(self) -> None:
        """Work until `stop`.

        An interrupt does not stop running handlers: the worker settles their messages when they
        return. `close` of the client waits for them and then releases all other messages.

        Raises:
            UnknownQueueError: The queue does not exist, or was deleted.
        """
        self._thread.call(self._inner.run)

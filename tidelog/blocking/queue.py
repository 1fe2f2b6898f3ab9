"""Queues for programs without trio: `tidelog.blocking` gives them out."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Unpack, cast, final

import trio

from tidelog.blocking.thread import TrioThread
from tidelog.client import client as trio_client
from tidelog.client.admin.redrive_status import RedriveReport
from tidelog.client.cluster.list_offsets import OffsetPlace
from tidelog.client.producer.receipt import Receipt
from tidelog.client.queue.inspect.history import HistoryEvent
from tidelog.client.queue.inspect.peek import PeekedMessage
from tidelog.client.queue.queue import Queue as TrioQueue
from tidelog.client.queue.receive.message import VALUE_BYTES_MAX, Origin
from tidelog.client.queue.receive.message import Message as TrioMessage
from tidelog.client.queue.receive.worker import PlainWorkerSettings, WorkerConfig, WorkerStatistics
from tidelog.client.queue.receive.worker import QueueWorker as TrioQueueWorker
from tidelog.client.queue.send.chunk_writer import Source
from tidelog.client.queue.send.message_fields import MessageFields, OutgoingMessage
from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.env.real_env import run_in_thread
from tidelog.wire.messages.queues import MessageState, QueueCounts

_Thread = TrioThread[trio_client.Client]


@final
class Message:
    """See `tidelog.Message`."""

    __slots__ = ("_message", "_thread")

    def __init__(self, thread: _Thread, message: TrioMessage) -> None:
        """Use `queue.receive()`."""
        self._thread = thread
        self._message = message

    def __repr__(self) -> str:
        """Return it as people see it."""
        return repr(self._message)

    @property
    def topic(self) -> str:
        """Whose record it is."""
        return self._message.topic

    @property
    def partition(self) -> int:
        """In which partition."""
        return self._message.partition

    @property
    def offset(self) -> int:
        """Where in the partition."""
        return self._message.offset

    @property
    def timestamp_ms(self) -> int:
        """When it was sent: Unix time in milliseconds, as the sender gave it."""
        return self._message.timestamp_ms

    @property
    def key(self) -> bytes | None:
        """FIFO queues: its group."""
        return self._message.key

    @property
    def value(self) -> bytes | None:
        """What was sent."""
        return self._message.value

    @property
    def is_large(self) -> bool:
        """Whether it is in chunks: longer than one record may be."""
        return self._message.is_large

    @property
    def length(self) -> int:
        """How many bytes the value has."""
        return self._message.length

    def chunks(self) -> Iterator[bytes]:
        """Iterate over the value; see `tidelog.Message.chunks`."""
        return in_turn(self._thread, self._message.chunks())

    def read(self, bytes_max: int = VALUE_BYTES_MAX) -> bytes:
        """Return the value, however it was sent; see `tidelog.Message.read`."""
        return self._thread.call(partial(self._message.read, bytes_max))

    @property
    def headers(self) -> Headers:
        """Pairs of name and value."""
        return self._message.headers

    @property
    def receive_count(self) -> int:
        """Deliveries up to and including this one."""
        return self._message.receive_count

    @property
    def first_received_ms(self) -> int:
        """Time of the first of them, by the clock of the broker."""
        return self._message.first_received_ms

    @property
    def message_id(self) -> str:
        """The name of the message in its topic: partition and offset."""
        return self._message.message_id

    @property
    def receipt_handle(self) -> str:
        """What settles this message from anywhere."""
        return self._message.receipt_handle

    @property
    def origin(self) -> Origin | None:
        """Where it comes from, if it is a dead letter."""
        return self._message.origin

    def delete(self) -> None:
        """Be done with it; see `tidelog.Message.delete`."""
        self._thread.call(self._message.delete)

    def extend(self, seconds: float) -> None:
        """Keep it for so long from now on; see `tidelog.Message.extend`."""
        self._thread.call(partial(self._message.extend, seconds))

    def release(self, delay: float | None = None, *, reason: str = "") -> None:
        """Let others have it; see `tidelog.Message.release`."""
        self._thread.call(partial(self._message.release, delay, reason=reason))

    def reject(self, reason: str) -> None:
        """Make it a dead letter; see `tidelog.Message.reject`."""
        self._thread.call(partial(self._message.reject, reason))

    def unwrapped(self) -> TrioMessage:
        """Return the message as it is for programs with trio."""
        return self._message


OnError = Callable[[Message, Exception], object]


class WorkerSettings(PlainWorkerSettings, total=False):
    """The fields of `tidelog.WorkerConfig`, as keywords."""

    on_error: OnError | None


Received = Message | str
"""A message, or the receipt handle of one."""


@final
class Queue:
    """See `tidelog.Queue`."""

    def __init__(self, thread: _Thread, queue: TrioQueue) -> None:
        """Use `client.queue(name)`."""
        self.name = queue.name
        self._thread = thread
        self._queue = queue

    def send(self, value: Source | None, **fields: Unpack[MessageFields]) -> Receipt:
        """Send one message and wait until it is acknowledged; see `tidelog.Queue.send`."""
        return self._thread.call(partial(self._queue.send, value, **fields))

    def send_batch(self, messages: Iterable[bytes | OutgoingMessage]) -> list[Receipt]:
        """Send messages and wait until all are acknowledged; see `tidelog.Queue.send_batch`."""
        return self._thread.call(partial(self._queue.send_batch, list(messages)))

    def receive(
        self,
        max_messages: int = 10,
        *,
        visibility_timeout: float | None = None,
        wait: float | None = None,
        value_bytes_max: int = VALUE_BYTES_MAX,
    ) -> list[Message]:
        """Return messages that nobody else has; see `tidelog.Queue.receive`."""
        messages = self._thread.call(
            partial(
                self._queue.receive,
                max_messages,
                visibility_timeout=visibility_timeout,
                wait=wait,
                value_bytes_max=value_bytes_max,
            )
        )
        return [Message(self._thread, message) for message in messages]

    def delete(self, message: Received) -> None:
        """Be done with a message; see `tidelog.Queue.delete`."""
        self._thread.call(partial(self._queue.delete, _unwrapped(message)))

    def extend(self, message: Received, seconds: float) -> None:
        """Keep a message for so long from now on; see `tidelog.Queue.extend`."""
        self._thread.call(partial(self._queue.extend, _unwrapped(message), seconds))

    def release(self, message: Received, delay: float | None = None, *, reason: str = "") -> None:
        """Let others have a message; see `tidelog.Queue.release`."""
        release = partial(self._queue.release, _unwrapped(message), delay, reason=reason)
        self._thread.call(release)

    def reject(self, message: Received, reason: str) -> None:
        """Make a message a dead letter; see `tidelog.Queue.reject`."""
        self._thread.call(partial(self._queue.reject, _unwrapped(message), reason))

    def delete_batch(self, messages: Iterable[Received]) -> None:
        """Be done with messages; see `tidelog.Queue.delete_batch`."""
        self._thread.call(partial(self._queue.delete_batch, list(map(_unwrapped, messages))))

    def extend_batch(self, messages: Iterable[Received], seconds: float) -> None:
        """Keep messages for so long from now on; see `tidelog.Queue.extend_batch`."""
        given = list(map(_unwrapped, messages))
        self._thread.call(partial(self._queue.extend_batch, given, seconds))

    def release_batch(
        self, messages: Iterable[Received], delay: float | None = None, *, reason: str = ""
    ) -> None:
        """Let others have messages; see `tidelog.Queue.release_batch`."""
        given = list(map(_unwrapped, messages))
        self._thread.call(partial(self._queue.release_batch, given, delay, reason=reason))

    def worker(
        self, handler: Callable[[Message], object], **settings: Unpack[WorkerSettings]
    ) -> "QueueWorker":
        """Return a worker, whose `run` hands messages to `handler`.

        Handler and `on_error` run in threads of their own, as many as `concurrency` says.

        Raises:
            ConfigError: A setting is not legal.
        """
        on_error = settings.pop("on_error", None)
        # Who reads files for handlers, or connects, must not wait for handlers to end.
        config = WorkerConfig(**cast("PlainWorkerSettings", settings))
        limiter = trio.CapacityLimiter(config.concurrency)

        async def handle(message: TrioMessage) -> None:
            await run_in_thread(partial(handler, Message(self._thread, message)), limiter)

        async def tell(message: TrioMessage, error: Exception) -> None:
            assert on_error is not None
            await run_in_thread(partial(on_error, Message(self._thread, message), error), limiter)

        if on_error is not None:
            config = replace(config, on_error=tell)
        return QueueWorker(self._thread, self._queue.worker(handle, config))

    def work(
        self, handler: Callable[[Message], object], **settings: Unpack[WorkerSettings]
    ) -> None:
        """Hand messages to `handler`, for ever; see `QueueWorker`.

        Raises:
            ConfigError: A setting is not legal.
            UnknownQueueError: There is no such queue, any more.
        """
        self.worker(handler, **settings).run()

    def counts(self) -> list[QueueCounts]:
        """Return how many messages are in which state; see `tidelog.Queue.counts`."""
        return self._thread.call(self._queue.counts)

    def peek(
        self, max_messages: int = 10, *, states: Iterable[MessageState] = ()
    ) -> list[PeekedMessage]:
        """Return messages without taking them; see `tidelog.Queue.peek`."""
        return self._thread.call(partial(self._queue.peek, max_messages, states=list(states)))

    def history(
        self,
        max_events: int = 1000,
        *,
        since_ms: int = 0,
        message_id: str | None = None,
    ) -> list[HistoryEvent]:
        """Return what happened to messages, by time; see `tidelog.Queue.history`."""
        return self._thread.call(
            partial(self._queue.history, max_events, since_ms=since_ms, message_id=message_id)
        )

    def in_flight(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return messages that somebody has; see `tidelog.Queue.in_flight`."""
        return self._thread.call(partial(self._queue.in_flight, max_messages))

    def dead_letters(self, max_messages: int = 100) -> list[PeekedMessage]:
        """Return messages that were given up; see `tidelog.Queue.dead_letters`."""
        return self._thread.call(partial(self._queue.dead_letters, max_messages))

    def cancel(self, message_id: str) -> None:
        """Do not deliver a message that is delayed still; see `tidelog.Queue.cancel`."""
        self._thread.call(partial(self._queue.cancel, message_id))

    def cancel_batch(self, message_ids: Iterable[str]) -> None:
        """Do not deliver messages that are delayed still; see `tidelog.Queue.cancel_batch`."""
        self._thread.call(partial(self._queue.cancel_batch, list(message_ids)))

    def purge(self) -> int:
        """Do away with all messages there are now; see `tidelog.Queue.purge`."""
        return self._thread.call(self._queue.purge)

    def seek(self, to: OffsetPlace) -> int:
        """Hand out again everything from a place on; see `tidelog.Queue.seek`."""
        return self._thread.call(partial(self._queue.seek, to))

    def redrive(
        self,
        *,
        to_topic: str | None = None,
        messages_per_s: int | None = None,
        only_from: str | None = None,
    ) -> int:
        """Begin to bring back dead letters; see `tidelog.Queue.redrive`."""
        return self._thread.call(
            partial(
                self._queue.redrive,
                to_topic=to_topic,
                messages_per_s=messages_per_s,
                only_from=only_from,
            )
        )

    def redrive_status(self) -> RedriveReport:
        """Return how far the redrive is; see `tidelog.Queue.redrive_status`."""
        return self._thread.call(self._queue.redrive_status)

    def cancel_redrive(self) -> None:
        """Bring back no more dead letters; see `tidelog.Queue.cancel_redrive`."""
        self._thread.call(self._queue.cancel_redrive)


@final
class QueueWorker:
    """See `tidelog.QueueWorker`."""

    def __init__(self, thread: _Thread, worker: TrioQueueWorker) -> None:
        """Use `queue.worker(handler)`."""
        self._thread = thread
        self._worker = worker

    @property
    def statistics(self) -> WorkerStatistics:
        """What the worker has done."""
        return self._worker.statistics

    def stop(self) -> None:
        """Let `run` return when what is at work is finished. From any thread."""
        self._thread.call_soon(self._worker.stop)

    def run(self) -> None:
        """Work until stopped.

        When this is interrupted, handlers that run are not: their messages are settled when they
        return, for which the client waits when it is closed; the others are given back then.

        Raises:
            UnknownQueueError: There is no such queue, any more.
        """
        self._thread.call(self._worker.run)


def in_turn(thread: _Thread, chunks: AsyncIterator[bytes]) -> Iterator[bytes]:
    """Yield what comes of an iterator in another thread, each when it is asked for."""

    async def following() -> bytes | None:
        return await anext(chunks, None)

    while (chunk := thread.call(following)) is not None:
        yield chunk


def _unwrapped(message: Received) -> TrioMessage | str:
    return message.unwrapped() if isinstance(message, Message) else message

"""Worker of a queue: receives messages, calls a handler, and settles them by its result.

Shell: owns the tasks of one worker. A message goes through three stages: in hand, when it was
received and its handler has not started; at work; finished, until its settlement is acknowledged.
In the first two stages its visibility timeout is extended in time, so it stays in flight.
"""

import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypedDict, cast, final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.queue.receive.fifo_dispatch import FifoDispatch
from tidelog.client.queue.receive.lease_extender import HeldMessage, LeaseExtender
from tidelog.client.queue.receive.message import (
    DELETE,
    REASON_LENGTH_MAX,
    RETURN,
    VALUE_BYTES_MAX,
    Disposition,
    Message,
    in_unicode,
)
from tidelog.client.queue.receive.reassembler import joined
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.wire.errors import (
    ConfigError,
    ConnectionLostError,
    CorruptRecordError,
    MessageBodyLostError,
    RetriableError,
    TidelogError,
)
from tidelog.wire.messages.queues import RECEIVE_COUNT_MAX, SettleAction

Handler = Callable[[Message], Awaitable[object]]

_GIVING_BACK_S: Final = 2.0
"""Seconds for which a cancelled worker stays to return its messages."""
_HELD_FACTOR: Final = 10
"""Maximum messages per handler that are held, including those that wait for others of their FIFO
groups."""
_DONE: Final = {SettleAction.DELETE, SettleAction.REJECT}
"""Settlements after which a message is never delivered again, and the next of its group starts."""
_RELEASE_AT_ONCE: Final = Disposition(SettleAction.RELEASE, 0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Settings of a worker."""

    concurrency: int = 10
    """Maximum messages at work at a time; about as many more are in hand or finished, and in FIFO
    queues those that wait for others of their groups."""

    visibility_timeout: float | None = None
    """Seconds of the visibility timeout at the receive, and of its extensions while the handler
    runs; by default, the setting of the queue. After a crash of this program its messages become
    visible so much later."""

    wait: float = 20.0
    """Seconds that one receive waits for messages."""

    reject_on: tuple[type[Exception], ...] = ()
    """Exceptions of the handler that no retry cures: the message becomes a dead letter at once.
    After all others it is released, and delivered again after the queue's backoff."""

    on_error: Callable[[Message, Exception], object] | None = None
    """Called with each exception of the handler, before the message is released or rejected; may be
    async, and may settle the message. Exceptions of `on_error` are logged."""

    max_value_bytes: int = VALUE_BYTES_MAX
    """Maximum bytes of large messages that are joined when their handler starts, so memory is
    needed for `concurrency` of them; longer ones are read with `message.chunks()`."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: The message lists every problem.
        """
        problems = {
            f"concurrency is from 1 to {RECEIVE_COUNT_MAX}": (
                not 1 <= self.concurrency <= RECEIVE_COUNT_MAX
            ),
            "visibility_timeout must be at least 1": (
                self.visibility_timeout is not None and self.visibility_timeout < 1
            ),
            "wait must be above 0": self.wait <= 0,
            "reject_on is a tuple of exceptions": not _are_exceptions(self.reject_on),
            "max_value_bytes must not be negative": self.max_value_bytes < 0,
        }
        found = [problem for problem, is_there in problems.items() if is_there]
        if found:
            raise ConfigError(f"worker: {'; '.join(found)}")


def _are_exceptions(classes: object) -> bool:
    return isinstance(classes, tuple) and all(
        isinstance(each, type) and issubclass(each, Exception)
        for each in cast("tuple[object, ...]", classes)
    )


class PlainWorkerSettings(TypedDict, total=False):
    """The fields of `WorkerConfig` that are values, as keywords."""

    concurrency: int
    visibility_timeout: float | None
    wait: float
    reject_on: tuple[type[Exception], ...]
    max_value_bytes: int


class WorkerSettings(PlainWorkerSettings, total=False):
    """The fields of `WorkerConfig`, as keywords."""

    on_error: Callable[[Message, Exception], object] | None


@final
@dataclass(slots=True)
class WorkerStatistics:
    """Counters of a worker."""

    done_count: int = 0
    """Messages whose handler returned."""
    failed_count: int = 0
    """Messages that were released after an exception."""
    rejected_count: int = 0
    """Messages that became dead letters at once."""
    lost_count: int = 0
    """Messages whose lease was lost while the handler was at work; the handler was cancelled."""


class Receive(Protocol):
    """As `Queue.receive`, but large messages are not joined."""

    def __call__(
        self, max_messages: int, *, visibility_timeout: float | None, wait: float | None
    ) -> Awaitable[list[Message]]:
        """Return messages."""
        ...


class WorkedQueue(NamedTuple):
    """Functions of a queue that its workers need."""

    receive: Receive
    settler: QueueSettler
    visibility_timeout: Callable[[], Awaitable[float]]
    """Returns the default visibility timeout of the queue in seconds."""


@final
class QueueWorker:
    """Passes messages to a handler, several at a time.

    A message is deleted when its handler returns, unless the handler has settled it. If the handler
    raises an `Exception`, the message is released, or rejected (`reject_on`), with type, message
    and traceback as the reason, which is in the headers of a dead letter. Messages come from all
    partitions in turn. Messages of one FIFO group are handled one after the other; if one is not
    done for good, those behind it are returned to the queue and delivered after it.

    While brokers cannot be reached, the worker waits; only errors that waiting does not cure end
    it. When `run` is cancelled, handlers are cancelled, and all messages are returned.
    """

    def __init__(
        self, queue: WorkedQueue, cluster: ClusterClient, handler: Handler, *, config: WorkerConfig
    ) -> None:
        """Use `queue.worker(handler)`."""
        self.statistics = WorkerStatistics()
        self._queue = queue
        self._settled = queue.settler.settled
        self._cluster = cluster
        self._handler: Callable[[Message], object] = handler
        """Handler; a call shows whether it is async, as it must be."""
        self._config = config
        self._lease_extender = LeaseExtender(queue.settler, self._timeout, self._lose)
        """Extends messages in hand and at work."""
        self._queued: FifoDispatch[HeldMessage] = FifoDispatch()
        self._finished: dict[HeldMessage, Disposition] = {}
        self._unread_count = 0
        """Large messages in a row that could not be read."""
        self._is_stopping = False
        self._failure: Exception | None = None
        self._receiving = trio.CancelScope()
        self._changed = trio.Event()
        """Set, and replaced, when there is more room or work, or the worker is to stop."""

    def stop(self) -> None:
        """End `run` after messages at work are finished; return those in hand to the queue."""
        self._is_stopping = True
        self._receiving.cancel()
        self._notify()

    async def run(self) -> None:
        """Work until stopped.

        Raises:
            UnknownQueueError: The queue does not exist, or was deleted meanwhile.
            BrokerError: The queue cannot be received from, and waiting does not help.
            TypeError: The handler is not an async function.
            trio.ClosedResourceError: The client is closed.
        """
        try:
            async with trio.open_nursery() as nursery:
                await self._work(nursery)
                nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(_GIVING_BACK_S, shield=True):
                await self._give_back_all()
        if self._failure is not None:
            raise self._failure

    async def _work(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self._lease_extender.run)
        async with trio.open_nursery() as handling:
            for _ in range(self._config.concurrency):
                handling.start_soon(self._handle_all, nursery)
            try:
                with self._receiving:
                    await self._receive_all()
            except (TidelogError, trio.ClosedResourceError) as error:
                self._failure = error
            finally:
                self.stop()
            self._return(self._queued.clear(), nursery)
        while self._finished:
            await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    # -- receiving --------------------------------------------------------------------------------

    async def _receive_all(self) -> None:
        failure_count = 0
        config = self._config
        while True:
            room = self._room()
            if room <= 0:
                await self._changed.wait()
                continue
            try:
                messages = await self._queue.receive(
                    room, visibility_timeout=config.visibility_timeout, wait=config.wait
                )
            except (RetriableError, ConnectionLostError, CorruptRecordError) as error:
                # A corrupt batch may be repaired, and other messages may arrive.
                failure_count += 1
                self._cluster.env.probe("client.worker_waits", error=str(error))
                await trio.sleep(self._cluster.backoff.delay(failure_count))
            else:
                failure_count = 0
                self._take(messages)

    def _room(self) -> int:
        """Return how many more messages to receive.

        Messages that wait for others of their groups keep no handler busy, and no other receiver
        would get them either.
        """
        concurrency = self._config.concurrency
        held_count = len(self._lease_extender.held)
        active_count = held_count - self._queued.behind_count
        return min(
            2 * concurrency - active_count,
            3 * concurrency - active_count - len(self._finished),
            _HELD_FACTOR * concurrency - held_count,
            RECEIVE_COUNT_MAX,
        )

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            group = None
            if message.lease.is_fifo and message.key is not None:
                group = (message.partition, message.key)
            held = HeldMessage(message, group, message.lease.expires_at)
            self._settled.watch(message.place)
            self._lease_extender.track(held)
            self._queued.put(held, group)
        self._notify()

    # -- handling ---------------------------------------------------------------------------------

    async def _handle_all(self, nursery: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.checkpoint_if_cancelled()
            while not self._queued.ready_count and not self._is_stopping:
                await self._changed.wait()
            if self._is_stopping:
                return
            held = self._queued.begin()
            held.is_lost = held.is_lost or held.expires_at <= trio.current_time()
            verdict = None if held.is_lost else await self._handle(held)
            self._finish(held, verdict, nursery)

    async def _handle(self, held: HeldMessage) -> Disposition | None:
        """Run the handler; return the settlement of the message."""
        verdict: Disposition | None = None
        with trio.CancelScope() as held.scope:
            verdict = await self._outcome(held.message)
        if held.is_lost:
            self.statistics.lost_count += 1
            return None
        if verdict is DELETE:
            self.statistics.done_count += 1
        return verdict

    async def _outcome(self, message: Message) -> Disposition:
        try:
            whole = await self._joined(message)
            if whole is None:
                return RETURN
            work = self._handler(whole)
            if not isinstance(work, Awaitable):
                return self._misuse()
            await work
        except Exception as error:  # noqa: BLE001  (any error of the application)
            await self._tell(message, error)
            return self._verdict_on(error)
        return DELETE

    async def _joined(self, message: Message) -> Message | None:
        """Return a message with its value, `None` if no broker can be asked for it now.

        Raises:
            CorruptRecordError: The message is corrupt. That counts as a failure of the handler, so
                that unreadable messages become dead letters in the end.
        """
        try:
            whole = await joined(message, self._config.max_value_bytes)
        except CorruptRecordError:
            raise
        except trio.ClosedResourceError:
            return None
        except TidelogError as error:
            self._unread_count += 1
            self._cluster.env.probe("client.message_not_read", error=str(error))
            await trio.sleep(self._cluster.backoff.delay(self._unread_count))
            return None
        if whole is not message:
            self._unread_count = 0
        return whole

    def _misuse(self) -> Disposition:
        """Stop, instead of making dead letters of all messages."""
        self._failure = TypeError(
            "a handler is an async function; `tidelog.blocking` takes plain ones"
        )
        self.stop()
        return _RELEASE_AT_ONCE

    async def _tell(self, message: Message, error: Exception) -> None:
        if self._config.on_error is None:
            return
        try:
            told = self._config.on_error(message, error)
            if isinstance(told, Awaitable):
                await told
        except Exception as failure:  # noqa: BLE001  (any error of the application)
            reason = reason_of(failure)
            self._cluster.env.probe("client.on_error_failed", severity="error", error=reason)

    def _verdict_on(self, error: Exception) -> Disposition:
        if isinstance(error, (MessageBodyLostError, *self._config.reject_on)):
            self.statistics.rejected_count += 1
            return Disposition(SettleAction.REJECT, reason=reason_of(error))
        self.statistics.failed_count += 1
        return Disposition(SettleAction.RELEASE, reason=reason_of(error))

    # -- settling ---------------------------------------------------------------------------------

    def _finish(
        self, held: HeldMessage, verdict: Disposition | None, nursery: trio.Nursery
    ) -> None:
        """Settle a message after its handler, unless the handler has, or its lease is lost."""
        action = self._settled.action_of(held.message.place)
        if held.is_lost or verdict is None or action is not None:
            self._forget(held)
            self._end(held, nursery, is_done=action in _DONE and not held.is_lost)
        else:
            self._lease_extender.untrack(held)
            self._finished[held] = verdict
            if verdict.action not in _DONE:
                self._end(held, nursery, is_done=False)
            nursery.start_soon(self._settle_one, held, verdict, nursery)
        self._notify()

    def _end(self, held: HeldMessage, nursery: trio.Nursery, *, is_done: bool) -> None:
        """Make the next message of a group ready, or return the rest of the group."""
        if is_done:
            self._queued.go_on(held.group)
            self._notify()
        else:
            self._return(self._queued.break_off(held.group), nursery)

    def _return(self, unseen: Iterable[HeldMessage], nursery: trio.Nursery) -> None:
        """Return messages whose handler has not started; that does not count."""
        returned: list[HeldMessage] = []
        for held in unseen:
            if held.is_lost:
                self._forget(held)
            else:
                self._lease_extender.untrack(held)
                self._finished[held] = RETURN
                returned.append(held)
        if returned:
            nursery.start_soon(self._settle, returned, RETURN)

    async def _settle_one(
        self, held: HeldMessage, verdict: Disposition, nursery: trio.Nursery
    ) -> None:
        is_settled = await self._settle([held], verdict)
        if verdict.action in _DONE:
            self._end(held, nursery, is_done=is_settled)

    async def _settle(self, finished: Sequence[HeldMessage], verdict: Disposition) -> bool:
        """Settle messages; return whether that succeeded."""
        is_settled = False
        try:
            await self._queue.settler.settle([held.message for held in finished], verdict)
            is_settled = True
        except (TidelogError, trio.ClosedResourceError) as error:
            # The messages become visible again at the end of their visibility timeout.
            self._cluster.env.probe("client.not_settled", error=str(error))
        for held in finished:
            self._forget(held)
        self._notify()
        return is_settled

    def _forget(self, held: HeldMessage) -> None:
        """Drop a message."""
        self._lease_extender.untrack(held)
        self._finished.pop(held, None)
        self._settled.forget(held.message.place)

    # -- leases -----------------------------------------------------------------------------------

    async def _timeout(self) -> float:
        return self._config.visibility_timeout or await self._queue.visibility_timeout()

    def _lose(self, held: HeldMessage) -> None:
        """Stop the handler of a message whose lease is lost."""
        if held.scope is not None:
            held.scope.cancel()

    # -- returning --------------------------------------------------------------------------------

    async def _give_back_all(self) -> None:
        """Settle finished messages, release started ones, return the rest without counting it."""
        by_verdict: dict[Disposition, list[HeldMessage]] = {}
        for held, verdict in self._finished.items():
            by_verdict.setdefault(verdict, []).append(held)
        for held in list(self._lease_extender.held):
            if held.is_lost or self._settled.action_of(held.message.place) is not None:
                self._forget(held)
            else:
                verdict = RETURN if held.scope is None else _RELEASE_AT_ONCE
                by_verdict.setdefault(verdict, []).append(held)
        try:
            async with trio.open_nursery() as nursery:
                for verdict, messages in by_verdict.items():
                    nursery.start_soon(self._settle, messages, verdict)
        finally:
            for held in [*self._finished, *self._lease_extender.held]:
                self._forget(held)


def reason_of(error: Exception) -> str:
    """Return the reason of a dead letter from an exception: type, message, and traceback."""
    text = in_unicode("".join(traceback.format_exception_only(error)).strip())
    trace = in_unicode("".join(traceback.format_exception(error)).strip())
    whole = f"{text}\n\n{trace}"
    if len(whole) <= REASON_LENGTH_MAX:
        return whole
    # The end of a traceback has the place of the error.
    text = text[: REASON_LENGTH_MAX // 2]
    room = REASON_LENGTH_MAX - len(text) - len("\n\n...\n")
    return f"{text}\n\n...\n{trace[-room:]}"

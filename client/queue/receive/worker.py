"""Worker of a queue: receives messages, calls a handler, and settles them by its result.

Shell: owns the tasks of one worker. A message goes through three stages: in hand, when it was
received and its handler has not started; at work; finished, until its settlement is acknowledged.
In the first two stages its visibility timeout is extended in time, so it stays in flight.
"""

import traceback
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, TypedDict, cast, final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.queue.receive.fifo_dispatch import FifoDispatch
from tidelog.client.queue.receive.lease_extender import HeldMessage
from tidelog.client.queue.receive.message import (
    DELETE,
    REASON_LENGTH_MAX,
    RETURN,
    VALUE_BYTES_MAX,
    Disposition,
    Message,
    in_unicode,
)
from tidelog.client.queue.receive.message_window import (
    DONE,
    GIVING_BACK_S,
    RELEASE_AT_ONCE,
    MessageWindow,
    WindowedQueue,
)
from tidelog.client.tracing.tracing import OperationSpan
from tidelog.wire.errors import (
    ConfigError,
    MessageBodyLostError,
    ReceiptExpiredError,
    TidelogError,
)
from tidelog.wire.messages.queues import RECEIVE_COUNT_MAX, SettleAction

Handler = Callable[[Message], Awaitable[object]]
OnError = Callable[[Message, Exception], object]

_HELD_FACTOR: Final = 10
"""Maximum messages per handler that are held, including those that wait for others of their FIFO
groups."""
_CALLERS: Final = {"asyncio", "concurrent", "outcome", "tidelog", "trio"}
"""Packages whose code calls handlers."""


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

    on_error: OnError | None = None
    """Called with each exception of the handler, before the message is released or rejected; may be
    async, and may settle the message. Exceptions of `on_error` are logged, and without it those of
    the handler (`client.handler_failed`)."""

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

    on_error: OnError | None


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
        self,
        queue: WindowedQueue,
        cluster: ClusterClient,
        handler: Handler,
        *,
        config: WorkerConfig,
    ) -> None:
        """Use `queue.worker(handler)`."""
        self.statistics = WorkerStatistics()
        self._cluster = cluster
        self._counters = queue.settler.counters
        self._handler: Callable[[Message], object] = handler
        """Handler; a call shows whether it is async, as it must be."""
        self._config = config
        self._queue_name = queue.settler.name
        self._window = MessageWindow(
            queue, cluster, visibility_timeout=config.visibility_timeout, on_over=self._lose
        )
        self._queued: FifoDispatch[HeldMessage] = FifoDispatch()
        self._is_stopping = False
        self._failure: Exception | None = None
        self._receiving = trio.CancelScope()

    def stop(self) -> None:
        """End `run` after messages at work are finished; return those in hand to the queue."""
        self._is_stopping = True
        self._receiving.cancel()
        self._window.notify()

    async def run(self) -> None:
        """Work until stopped.

        Raises:
            UnknownQueueError: The queue does not exist, or was deleted meanwhile.
            BrokerError: The queue cannot be received from, and waiting does not help.
            TypeError: The handler is not an async function.
            ClosedError: The client is closed.
        """
        try:
            async with trio.open_nursery() as nursery:
                await self._work(nursery)
                nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(GIVING_BACK_S, shield=True):
                await self._window.give_back_all()
        if self._failure is not None:
            raise self._failure

    async def _work(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self._window.keep_leases)
        async with trio.open_nursery() as handling:
            for _ in range(self._config.concurrency):
                handling.start_soon(self._handle_all, nursery)
            try:
                with self._receiving:
                    await self._window.receive_all(
                        self._room,
                        wait=self._config.wait,
                        put=lambda held: self._queued.put(held, held.group),
                    )
            except (TidelogError, trio.ClosedResourceError) as error:
                self._failure = error
            finally:
                self.stop()
            self._return(self._queued.clear(), nursery)
        while self._window.finished:
            await self._window.changed()

    def _room(self) -> int:
        """Return how many more messages to receive.

        Messages that wait for others of their groups keep no handler busy, and no other receiver
        would get them either.
        """
        concurrency = self._config.concurrency
        held_count = len(self._window.held)
        active_count = held_count - self._queued.behind_count
        return min(
            2 * concurrency - active_count,
            3 * concurrency - active_count - len(self._window.finished),
            _HELD_FACTOR * concurrency - held_count,
            RECEIVE_COUNT_MAX,
        )

    # -- handling ---------------------------------------------------------------------------------

    async def _handle_all(self, nursery: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.checkpoint_if_cancelled()
            while not self._queued.ready_count and not self._is_stopping:
                await self._window.changed()
            if self._is_stopping:
                return
            held = self._queued.begin()
            if not held.is_lost and held.expires_at <= trio.current_time():
                held.is_lost = True
                self._counters.lost_leases += 1
            tracing = self._cluster.tracing
            if tracing is None or held.is_lost:
                verdict = None if held.is_lost else await self._handle(held, None)
                self._finish(held, verdict, nursery)
            else:
                with tracing.process(self._queue_name, held.message) as span:
                    verdict = await self._handle(held, span)
                    # In the block: the settlement belongs to the trace of the handler.
                    self._finish(held, verdict, nursery)

    async def _handle(self, held: HeldMessage, span: OperationSpan | None) -> Disposition | None:
        """Run the handler; return the settlement of the message."""
        verdict: Disposition | None = None
        held.has_started = True
        with trio.CancelScope() as held.scope:
            verdict = await self._outcome(held.message, span)
        if held.is_lost:
            self.statistics.lost_count += 1
            if span is not None:
                span.fail(ReceiptExpiredError("the lease was lost; the handler was cancelled"))
            return None
        if verdict is DELETE:
            self.statistics.done_count += 1
        return verdict

    async def _outcome(self, message: Message, span: OperationSpan | None) -> Disposition:
        try:
            whole = await self._window.joined(message, self._config.max_value_bytes)
            if whole is None:
                return RETURN
            work = self._handler(whole)
            if not isinstance(work, Awaitable):
                return self._misuse()
            await self._measured(cast("Awaitable[object]", work))
        except Exception as error:  # noqa: BLE001  (any error of the application)
            if span is not None:
                span.fail(error)
            self._counters.handler_failures += 1
            if self._config.on_error is None:
                self._log_failure(message, error)
            else:
                await self._tell(message, error, self._config.on_error)
            return self._verdict_on(error)
        return DELETE

    async def _measured(self, work: Awaitable[object]) -> None:
        counters, now = self._counters, self._cluster.counters.now
        began_at = now()
        counters.handlers_running += 1
        try:
            await work
        finally:
            counters.handlers_running -= 1
            counters.handler_duration.observe(now() - began_at)

    def _misuse(self) -> Disposition:
        """Stop, instead of making dead letters of all messages."""
        self._failure = TypeError(
            "a handler is an async function; `tidelog.blocking` takes plain ones"
        )
        self.stop()
        return RELEASE_AT_ONCE

    def _log_failure(self, message: Message, error: Exception) -> None:
        is_expected = isinstance(error, self._config.reject_on)
        self._cluster.env.probe(
            "client.handler_failed",
            severity="info" if is_expected else "warning",
            queue=self._queue_name,
            message_id=message.message_id,
            receive_count=message.receive_count,
            error=reason_of(error),
        )

    async def _tell(self, message: Message, error: Exception, on_error: OnError) -> None:
        try:
            told = on_error(message, error)
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
        action = self._window.action_of(held)
        if held.is_lost or verdict is None or action is not None:
            self._window.forget(held)
            self._end(held, nursery, is_done=action in DONE and not held.is_lost)
        else:
            self._window.finish(held, verdict)
            if verdict.action not in DONE:
                self._end(held, nursery, is_done=False)
            nursery.start_soon(self._settle_one, held, verdict, nursery)
        self._window.notify()

    def _end(self, held: HeldMessage, nursery: trio.Nursery, *, is_done: bool) -> None:
        """Make the next message of a group ready, or return the rest of the group."""
        if is_done:
            self._queued.go_on(held.group)
            self._window.notify()
        else:
            self._return(self._queued.break_off(held.group), nursery)

    def _return(self, unseen: Iterable[HeldMessage], nursery: trio.Nursery) -> None:
        """Return messages whose handler has not started; that does not count."""
        returned: list[HeldMessage] = []
        for held in unseen:
            if held.is_lost:
                self._window.forget(held)
            else:
                self._window.finish(held, RETURN)
                returned.append(held)
        if returned:
            nursery.start_soon(self._window.settle, returned, RETURN)

    async def _settle_one(
        self, held: HeldMessage, verdict: Disposition, nursery: trio.Nursery
    ) -> None:
        is_settled = await self._window.settle([held], verdict)
        if verdict.action in DONE:
            self._end(held, nursery, is_done=is_settled)

    def _lose(self, held: HeldMessage) -> None:
        """Stop the handler of a message whose lease is lost."""
        if held.is_lost and held.scope is not None:
            held.scope.cancel()


def reason_of(error: Exception) -> str:
    """Return the reason of a dead letter from an exception: type, message, and traceback.

    The traceback begins in the code of the application, not in the calls that led to it.
    """
    text = in_unicode("".join(traceback.format_exception_only(error)).strip())
    trace = in_unicode("".join(traceback.format_exception(type(error), error, _own(error))).strip())
    whole = f"{text}\n\n{trace}"
    if len(whole) <= REASON_LENGTH_MAX:
        return whole
    # The end of a traceback has the place of the error.
    text = text[: REASON_LENGTH_MAX // 2]
    room = REASON_LENGTH_MAX - len(text) - len("\n\n...\n")
    return f"{text}\n\n...\n{trace[-room:]}"


def _own(error: Exception) -> TracebackType | None:
    """Return the traceback from the first frame of the application on; all of it without one."""
    found = error.__traceback__
    while found is not None:
        package, _, _ = str(found.tb_frame.f_globals.get("__name__", "")).partition(".")
        if package not in _CALLERS:
            return found
        found = found.tb_next
    return error.__traceback__

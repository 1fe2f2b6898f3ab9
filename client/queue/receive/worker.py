"""Worker of a queue: receives messages, calls a handler, and settles them by its result.

Shell: owns the tasks of one worker. A message goes through three stages: in hand, when it was
received and its handler has not started; at work; finished, until its settlement is acknowledged.
In the first two stages its visibility timeout is extended in time, so it stays in flight.

Settlements leave when a handler finds nothing to do, or at the end of the turn of the loop; the
window asks for more messages along with them or right behind. So a message that a handler is about
to take delays that until the handler has ended or waits.
"""

import math
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import CoroutineType, TracebackType
from typing import Final, TypedDict, cast, final

import trio

from tidelog.client.cluster.background_tasks import ParkedTask
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.queue.receive.fifo_dispatch import FifoDispatch
from tidelog.client.queue.receive.handler_pace import HandlerPace
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
    WindowOwner,
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
_LOOK_AGAIN_S: Final = 0.01
"""Minimum seconds between two looks for messages that are in hand for too long, and for handlers
that wait, although those before did not."""
_CALLERS: Final = {"asyncio", "concurrent", "outcome", "tidelog", "trio"}
"""Packages whose code calls handlers."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Settings of a worker."""

    concurrency: int = 10
    """Maximum messages at work at a time. With fast handlers about as many more are in hand, with
    slow ones none; and in FIFO queues those that wait for others of their groups."""

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
        owner = WindowOwner(
            self._room, self._is_short, self._put, self._lose, self._is_about_to_start
        )
        self._window = MessageWindow(
            queue, cluster, owner, visibility_timeout=config.visibility_timeout
        )
        self._queued: FifoDispatch[HeldMessage] = FifoDispatch()
        self._pace = HandlerPace(config.concurrency)
        self._idle: deque[ParkedTask] = deque()
        """Handlers that wait for a message."""
        self._at_work_count = 0
        self._turn_ends = ParkedTask()
        """Woken to send settlements at the end of a turn of the loop."""
        self._look_at = math.inf
        """Time of the next look; see `_LOOK_AGAIN_S`."""
        self._has_put = False
        """Whether messages have arrived since the last look."""
        self._is_stopping = False
        self._failure: Exception | None = None
        self._receiving = trio.CancelScope()

    def stop(self) -> None:
        """End `run` after messages at work are finished; return those in hand to the queue."""
        self._is_stopping = True
        self._receiving.cancel()
        while self._idle:
            self._idle.popleft().wake()

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
        nursery.start_soon(self._end_turns)
        async with trio.open_nursery() as handling:
            for _ in range(self._config.concurrency):
                handling.start_soon(self._handle_all)
            try:
                with self._receiving:
                    await self._window.receive_all(wait=self._config.wait)
            except (TidelogError, trio.ClosedResourceError) as error:
                self._failure = error
            finally:
                self.stop()
            self._return(self._queued.clear())
            self._window.flush()
        with suppress(trio.ClosedResourceError):  # It is the failure already.
            await self._window.empty()

    def _room(self) -> int:
        """Return how many more messages to receive.

        Messages that wait for others of their groups keep no handler busy, and no other receiver
        would get them either.
        """
        concurrency = self._config.concurrency
        most = concurrency + self._pace.ahead
        held_count = len(self._window.held)
        active_count = held_count - self._queued.behind_count
        return min(
            most - active_count,
            3 * most - active_count - len(self._window.finished),
            _HELD_FACTOR * concurrency - held_count,
            RECEIVE_COUNT_MAX,
        )

    def _is_short(self) -> bool:
        """Return whether a handler has nothing to do."""
        return len(self._queued.ready) + self._at_work_count < self._config.concurrency

    def _is_about_to_start(self) -> bool:
        """Return whether a handler takes a message in the next turn of the loop."""
        return bool(self._queued.ready) and self._at_work_count < self._config.concurrency

    def _put(self, messages: list[HeldMessage]) -> None:
        first = messages[0]
        self._pace.limit(first.expires_at - first.received_at)
        for held in messages:
            self._queued.put(held, held.group)
        self._has_put = True
        self._watch_ready()

    def _watch_ready(self) -> None:
        """Wake a handler for a new message that may start; look whether one takes it in time."""
        self._wake_handler()
        if self._look_at == math.inf:
            self._turn_ends.wake()

    def _wake_handler(self) -> None:
        """Wake one handler if there is a message for it; it wakes the next one."""
        if self._queued.ready and self._idle:
            self._idle.popleft().wake()

    async def _end_turns(self) -> None:
        """Send settlements at the end of each turn of the loop; return messages that wait long."""
        with suppress(trio.ClosedResourceError):  # The receive has failed with it, too.
            while True:
                await self._cluster.tasks.park(self._turn_ends, self._look_at)
                self._window.flush()
                self._window.look()
                self._return_late()

    def _return_late(self) -> None:
        """Return messages that are in hand for too long: another receiver may be idle.

        They came while handlers were fast, or before the first one has shown how slow it is. In a
        FIFO queue, the time counts from when those before them in their groups were done.
        """
        has_put, self._has_put = self._has_put, False
        now = self._cluster.counters.now()
        soon = now + _LOOK_AGAIN_S
        self._look_at = soon if has_put else math.inf
        if self._is_stopping or not self._queued.ready:
            return
        due_at = self._queued.ready[0].ready_at + self._pace.patience_s
        has_idle = self._at_work_count < self._config.concurrency
        if due_at > now or has_idle:  # An idle handler is about to take it.
            self._look_at = min(self._look_at, max(due_at, soon))
            return
        self._pace.slow_down()
        for held in self._queued.take_ready():
            self._return([held, *self._queued.break_off(held.group)])
        self._window.flush()

    # -- handling ---------------------------------------------------------------------------------

    async def _handle_all(self) -> None:
        waiter = ParkedTask()
        with suppress(trio.ClosedResourceError):  # The receive has failed with it, too.
            while not self._is_stopping:
                # Cancelled if the lease of the message at work is lost; the next one has its own.
                with trio.CancelScope() as scope:
                    await self._handle_some(waiter, scope)

    async def _handle_some(self, waiter: ParkedTask, scope: trio.CancelScope) -> None:
        """Handle messages until the worker stops, or the lease of one is lost."""
        tracing = self._cluster.tracing
        while True:
            await trio.lowlevel.checkpoint_if_cancelled()
            held = await self._next(waiter)
            if held is None:
                return
            self._at_work_count += 1
            try:
                if tracing is None or held.is_lost:
                    verdict = None if held.is_lost else await self._handle(held, scope, None)
                    self._finish(held, verdict)
                else:
                    with tracing.process(self._queue_name, held.message) as span:
                        verdict = await self._handle(held, scope, span)
                        # In the block: the settlement belongs to the trace of the handler.
                        self._finish(held, verdict)
            finally:
                self._at_work_count -= 1
            if held.is_lost:
                return

    async def _next(self, waiter: ParkedTask) -> HeldMessage | None:
        """Return the next message, `None` when the worker stops."""
        while not self._is_stopping:
            if self._queued.ready:
                return self._begin()
            if not self._at_work_count:
                self._window.flush()
                if self._queued.ready:
                    continue
            elif self._window.has_unsent:
                self._turn_ends.wake()
            # The handler may have settled its message itself, so no request has asked for more.
            self._window.look()
            self._idle.append(waiter)
            await self._cluster.tasks.park(waiter)
        self._turn_ends.wake()  # Other handlers may be at work for long.
        return None

    def _begin(self) -> HeldMessage:
        """Return the message that is ready for the longest time; its handler starts."""
        if self._window.has_unsent or not (self._window.is_asking or self._pace.is_instant):
            # This handler may take long, or finish in this turn; then both leave together.
            self._turn_ends.wake()
        held = self._queued.begin()
        self._wake_handler()
        if not held.is_lost and held.expires_at <= self._cluster.counters.now():
            held.is_lost = True
            self._counters.lost_leases += 1
        return held

    async def _handle(
        self, held: HeldMessage, scope: trio.CancelScope, span: OperationSpan | None
    ) -> Disposition | None:
        """Run the handler; return the settlement of the message, `None` if its lease is lost."""
        verdict: Disposition | None = None
        held.has_started = True
        held.scope = scope
        try:
            verdict = await self._outcome(held.message, span)
        except trio.Cancelled:
            if not held.is_lost:
                raise
            # The scope of this handler is cancelled, and perhaps that of the worker.
            self._note_loss(span)
            self._finish(held, None)
            raise
        finally:
            held.scope = None
        if held.is_lost:
            self._note_loss(span)
            return None
        if verdict is DELETE:
            self.statistics.done_count += 1
        return verdict

    def _note_loss(self, span: OperationSpan | None) -> None:
        self.statistics.lost_count += 1
        if span is not None:
            span.fail(ReceiptExpiredError("the lease was lost; the handler was cancelled"))

    async def _outcome(self, message: Message, span: OperationSpan | None) -> Disposition:
        try:
            if message.headers and not message.content:
                whole = await self._window.joined(message, self._config.max_value_bytes)
                if whole is None:
                    return RETURN
                message = whole
            work = self._handler(message)
            if not isinstance(work, (CoroutineType, Awaitable)):
                return self._misuse()
            counters, now = self._counters, self._cluster.counters.now
            began_at = now()
            counters.handlers_running += 1
            try:
                await work
            finally:
                counters.handlers_running -= 1
                seconds = now() - began_at
                counters.handler_duration.observe(seconds)
                self._pace.note(seconds)
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

    def _finish(self, held: HeldMessage, verdict: Disposition | None) -> None:
        """Settle a message after its handler, unless the handler has, or its lease is lost."""
        action = self._window.forget(held)
        if held.is_lost or verdict is None or action is not None:
            self._end(held, is_done=action in DONE and not held.is_lost)
            self._window.look()
        elif verdict.action in DONE:
            on_end = None if held.group is None else partial(self._settled, held)
            self._window.settle([held], verdict, on_end)
        else:
            self._end(held, is_done=False)
            self._window.settle([held], verdict)

    def _settled(self, held: HeldMessage, is_settled: bool) -> None:
        self._end(held, is_done=is_settled)

    def _end(self, held: HeldMessage, *, is_done: bool) -> None:
        """Make the next message of a group ready, or return the rest of the group."""
        if is_done:
            following = self._queued.go_on(held.group)
            if following is not None:
                following.ready_at = self._cluster.counters.now()
                self._watch_ready()
        else:
            self._return(self._queued.break_off(held.group))

    def _return(self, unseen: Iterable[HeldMessage]) -> None:
        """Return messages whose handler has not started; that does not count."""
        returned: list[HeldMessage] = []
        for held in unseen:
            self._window.forget(held)
            if not held.is_lost:
                returned.append(held)
        if returned:
            self._window.settle(returned, RETURN)

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

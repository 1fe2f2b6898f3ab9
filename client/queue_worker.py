"""A worker: receives messages, hands them to a function, and settles them by what that does.

Shell: owns the tasks of one worker. A message goes through three stages: in hand, when it was
received and no handler has begun with it; at work; finished, until its deletion is acknowledged.
As long as it is in one of the first two, nobody else gets it: it is extended in good time.
"""

import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypedDict, cast, final

import trio

from client.cluster import Cluster
from client.large_joining import joined
from client.queue_message import (
    DELETE,
    REASON_LENGTH_MAX,
    RETURN,
    VALUE_BYTES_MAX,
    Message,
    Verdict,
    extension,
    in_unicode,
)
from client.queue_settler import QueueSettler
from client.receipt_handle import ReceivedPlace
from wire.errors import (
    BatchError,
    BrokerError,
    ConfigError,
    ConnectionLostError,
    CorruptRecordError,
    InvalidRequestError,
    MessageBodyLostError,
    RetriableError,
    TidelogError,
)
from wire.queues import RECEIVE_COUNT_MAX, SettleAction

Handler = Callable[[Message], Awaitable[object]]

_GIVING_BACK_S: Final = 2.0
"""How long a worker that is cancelled stays to give back what it has."""
_EXTEND_AT: Final = 0.5
"""A lease is extended when this part of it is over."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """How a worker works."""

    concurrency: int = 10
    """Messages at work at a time; about as many more are in hand or finished."""

    visibility_timeout: float | None = None
    """For how many seconds a message is received, and extended while its handler runs; by default,
    what the queue says. After a crash of this program others get its messages so much later."""

    wait: float = 20.0
    """For how many seconds one receive waits for messages."""

    reject_on: tuple[type[Exception], ...] = ()
    """Exceptions of the handler that no repetition cures: the message becomes a dead letter at
    once. After all others it is released, and handed out again as the queue's backoff says."""

    on_error: Callable[[Message, Exception], object] | None = None
    """Told of each exception of the handler, before the message is released or rejected."""

    value_bytes_max: int = VALUE_BYTES_MAX
    """Large messages up to this length are joined when their handler begins, so memory is needed
    for `concurrency` of them; longer ones are read with `message.chunks()`."""

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
            "value_bytes_max must not be negative": self.value_bytes_max < 0,
        }
        found = [problem for problem, is_there in problems.items() if is_there]
        if found:
            raise ConfigError(f"worker: {'; '.join(found)}")


def _are_exceptions(classes: object) -> bool:
    return isinstance(classes, tuple) and all(
        isinstance(each, type) and issubclass(each, Exception)
        for each in cast("tuple[object, ...]", classes)
    )


class WorkerSettings(TypedDict, total=False):
    """The fields of `WorkerConfig`, as keywords."""

    concurrency: int
    visibility_timeout: float | None
    wait: float
    reject_on: tuple[type[Exception], ...]
    on_error: Callable[[Message, Exception], object] | None
    value_bytes_max: int


@final
@dataclass(slots=True)
class WorkerStatistics:
    """What a worker has done."""

    done_count: int = 0
    """Messages whose handler returned."""
    failed_count: int = 0
    """Messages that were released after an exception."""
    rejected_count: int = 0
    """Messages that became dead letters at once."""
    lost_count: int = 0
    """Messages that others may have got while the handler was at work; it was cancelled."""


class Receive(Protocol):
    """As `Queue.receive`, but large messages are not joined."""

    def __call__(
        self, max_messages: int, *, visibility_timeout: float | None, wait: float | None
    ) -> Awaitable[list[Message]]:
        """Return messages."""
        ...


@final
@dataclass(eq=False, slots=True)
class _Task:
    """One message that this worker has."""

    message: Message
    timeout: float
    """For how long it is leased each time, in seconds."""
    extend_at: float
    scope: trio.CancelScope | None = None
    """Of its handler, when that has begun."""
    is_lost: bool = False


@final
class QueueWorker:
    """Hands messages to a handler, several at a time.

    A message is deleted when its handler returns, unless it was settled there. If the handler
    raises an `Exception`, the message is released, or rejected (`reject_on`), with type, message
    and traceback as the reason, which is in the headers of a dead letter. Messages come from all
    partitions in turn.

    While brokers cannot be reached, the worker waits; only what waiting does not cure ends it.
    When `run` is cancelled, handlers are cancelled, and all messages are given back.
    """

    def __init__(
        self,
        receive: Receive,
        settler: QueueSettler,
        cluster: Cluster,
        handler: Handler,
        config: WorkerConfig,
    ) -> None:
        """Use `queue.worker(handler)`."""
        self.statistics = WorkerStatistics()
        self._receive = receive
        self._settler = settler
        self._cluster = cluster
        self._handler: Callable[[Message], object] = handler
        """Whether it is async, as it must be, is seen when it is called."""
        self._config = config
        self._tasks: dict[_Task, None] = {}
        """Messages in hand or at work."""
        self._in_hand: deque[_Task] = deque()
        self._finished_count = 0
        self._is_stopping = False
        self._failure: Exception | None = None
        self._receiving = trio.CancelScope()
        self._changed = trio.Event()
        """Set, and replaced, when there is more room or work, or the worker shall stop."""
        self._wake_extender = trio.Event()

    def stop(self) -> None:
        """Let `run` return when what is at work is finished; what is in hand is given back."""
        self._is_stopping = True
        self._receiving.cancel()
        self._notify()

    async def run(self) -> None:
        """Work until stopped.

        Raises:
            UnknownQueueError: There is no such queue, any more.
            BrokerError: The queue cannot be received from, and waiting does not help.
            TypeError: The handler is not an async function.
        """
        try:
            async with trio.open_nursery() as nursery:
                await self._work(nursery)
                nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(_GIVING_BACK_S, shield=True):
                await self._give_back(list(self._tasks))
        if self._failure is not None:
            raise self._failure

    async def _work(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self._extend)
        async with trio.open_nursery() as handling:
            for _ in range(self._config.concurrency):
                handling.start_soon(self._handle_all, nursery)
            try:
                with self._receiving:
                    await self._receive_all()
            except TidelogError as error:
                self._failure = error
            finally:
                self.stop()
            await self._give_back(list(self._in_hand))
        while self._finished_count:
            await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    # -- receiving --------------------------------------------------------------------------------

    async def _receive_all(self) -> None:
        failure_count = 0
        config = self._config
        while True:
            room = 3 * config.concurrency - len(self._tasks) - self._finished_count
            room = min(room, 2 * config.concurrency - len(self._tasks), RECEIVE_COUNT_MAX)
            if room <= 0:
                await self._changed.wait()
                continue
            try:
                messages = await self._receive(
                    room, visibility_timeout=config.visibility_timeout, wait=config.wait
                )
            except (RetriableError, ConnectionLostError, CorruptRecordError) as error:
                # What is damaged may be mended, and others may come.
                failure_count += 1
                self._cluster.env.probe("client.worker_waits", error=str(error))
                await trio.sleep(self._cluster.backoff.delay(failure_count))
            else:
                failure_count = 0
                self._take(messages)

    def _take(self, messages: list[Message]) -> None:
        now = trio.current_time()
        for message in messages:
            timeout = self._config.visibility_timeout or max(message.lease.expires_at - now, 1.0)
            task = _Task(message, timeout, now + timeout * _EXTEND_AT)
            self._tasks[task] = None
            self._in_hand.append(task)
        self._notify()
        self._wake_extender.set()

    # -- handling ---------------------------------------------------------------------------------

    async def _handle_all(self, nursery: trio.Nursery) -> None:
        while True:
            while not self._in_hand and not self._is_stopping:
                await self._changed.wait()
            if self._is_stopping:
                return
            task = self._in_hand.popleft()
            if task.is_lost:
                continue
            verdict = await self._handle(task)
            self._tasks.pop(task, None)
            if verdict is not None:
                self._finished_count += 1
                nursery.start_soon(self._settle, task.message, verdict)
            self._notify()

    async def _handle(self, task: _Task) -> Verdict | None:
        """Let the handler work; return what is to become of the message."""
        message = task.message
        verdict: Verdict | None = DELETE
        with trio.CancelScope() as task.scope:
            try:
                work = self._handler(await joined(message, self._config.value_bytes_max))
                if not isinstance(work, Awaitable):
                    return self._misuse()
                await work
            except Exception as error:  # noqa: BLE001  (whatever the application raises)
                verdict = self._verdict_on(message, error)
        if task.is_lost:
            self.statistics.lost_count += 1
            return None
        if verdict is DELETE:
            self.statistics.done_count += 1
        return None if message.offset in message.lease.is_settled else verdict

    def _misuse(self) -> Verdict:
        """Stop, instead of making dead letters of everything there is."""
        self._failure = TypeError(
            "a handler is an async function; `tidelog.blocking` takes plain ones"
        )
        self.stop()
        return Verdict(SettleAction.RELEASE, 0)

    def _verdict_on(self, message: Message, error: Exception) -> Verdict:
        if self._config.on_error is not None:
            self._config.on_error(message, error)
        if isinstance(error, (MessageBodyLostError, *self._config.reject_on)):
            self.statistics.rejected_count += 1
            return Verdict(SettleAction.REJECT, reason=reason_of(error))
        self.statistics.failed_count += 1
        return Verdict(SettleAction.RELEASE, reason=reason_of(error))

    async def _settle(self, message: Message, verdict: Verdict) -> None:
        try:
            await self._settler.settle([message.place], verdict)
        except TidelogError as error:
            # Somebody will get it again.
            self._cluster.env.probe("client.not_settled", error=str(error))
        finally:
            self._finished_count -= 1
            self._notify()

    # -- keeping ----------------------------------------------------------------------------------

    async def _extend(self) -> None:
        """Keep what is in hand or at work."""
        while True:
            now = trio.current_time()
            due = [task for task in self._tasks if task.extend_at <= now]
            by_timeout: dict[float, list[_Task]] = {}
            for task in due:
                if task.message.offset not in task.message.lease.is_settled:
                    by_timeout.setdefault(task.timeout, []).append(task)
                task.extend_at = now + task.timeout * _EXTEND_AT
            for timeout, tasks in by_timeout.items():
                await self._extend_tasks(tasks, timeout)
            wake_at = min((task.extend_at for task in self._tasks), default=float("inf"))
            self._wake_extender = trio.Event()
            with trio.CancelScope(deadline=wake_at):
                await self._wake_extender.wait()

    async def _extend_tasks(self, tasks: list[_Task], seconds: float) -> None:
        places = [task.message.place for task in tasks]
        errors: dict[int, TidelogError] = {}
        try:
            await self._settler.settle(places, extension(seconds))
        except BatchError as failure:
            errors = failure.errors
        except TidelogError as failure:
            errors = dict.fromkeys(range(len(tasks)), failure)
        for index, error in errors.items():
            task = tasks[index]
            if isinstance(error, InvalidRequestError):
                task.extend_at = float("inf")  # It was kept for as long as it may be.
            elif isinstance(error, BrokerError) and not error.is_retriable:
                self._lose(task)

    def _lose(self, task: _Task) -> None:
        """Stop working on a message that is not ours any more."""
        if task not in self._tasks or task.message.offset in task.message.lease.is_settled:
            return
        task.is_lost = True
        if task.scope is None:
            del self._tasks[task]
        else:
            task.scope.cancel()

    # -- giving back ------------------------------------------------------------------------------

    async def _give_back(self, tasks: list[_Task]) -> None:
        """Give back what is not finished: what was begun counts as received, the rest does not."""
        unseen: list[ReceivedPlace] = []
        begun: list[ReceivedPlace] = []
        for task in tasks:
            self._tasks.pop(task, None)
            message = task.message
            if message.offset not in message.lease.is_settled and not task.is_lost:
                (unseen if task.scope is None else begun).append(message.place)
        for places, verdict in ((unseen, RETURN), (begun, Verdict(SettleAction.RELEASE, 0))):
            try:
                await self._settler.settle(places, verdict)
            except TidelogError as error:
                self._cluster.env.probe("client.not_settled", error=str(error))


def reason_of(error: Exception) -> str:
    """Return what a dead letter says of an exception: type, message, and traceback."""
    text = in_unicode("".join(traceback.format_exception_only(error)).strip())
    trace = in_unicode("".join(traceback.format_exception(error)).strip())
    whole = f"{text}\n\n{trace}"
    if len(whole) <= REASON_LENGTH_MAX:
        return whole
    # The end of a traceback says where it happened.
    text = text[: REASON_LENGTH_MAX // 2]
    room = REASON_LENGTH_MAX - len(text) - len("\n\n...\n")
    return f"{text}\n\n...\n{trace[-room:]}"

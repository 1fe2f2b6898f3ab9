"""Window of the messages that a worker or a subscription holds.

Shell: receives ahead, keeps the leases, settles messages, and returns them at the end. Its owner
says how much room there is and in which order messages are handed out.

A window asks for messages in the requests that settle others, so a busy worker needs one request
for each message. Such a request brings what is there at once. Where the queue is nearly empty, a
poll follows the settlements in the same write, and waits for messages at the only broker of the
queue. A task asks with a plain receive, which knows all brokers and retries, when a poll has
brought nothing, or none is possible.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol, final

import trio

from tidelog.client.cluster.background_tasks import ParkedTask
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.queue.receive.lease_extender import HeldMessage, LeaseExtender
from tidelog.client.queue.receive.message import RETURN, Disposition, Message
from tidelog.client.queue.receive.queue_layout import QueueLayout
from tidelog.client.queue.receive.reassembler import joined
from tidelog.client.queue.receive.receive_options import ReceiveOptions
from tidelog.client.queue.receive.receiver import ALONG_VERSION, QueueReceiver
from tidelog.client.queue.receive.settler import Along, Behind, NodeQueue, QueueSettler
from tidelog.wire.errors import (
    ConnectionLostError,
    CorruptRecordError,
    RetriableError,
    TidelogError,
)
from tidelog.wire.messages.queues import SettleAction, Settlement
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

DONE: Final = {SettleAction.DELETE, SettleAction.REJECT}
"""Settlements after which a message is never delivered again, and the next of its group starts."""
RELEASE_AT_ONCE: Final = Disposition(SettleAction.RELEASE, 0)
GIVING_BACK_S: Final = 2.0
"""Seconds for which a cancelled owner stays to return its messages."""


_ALONG_IN_TURN_MAX: Final = 4
"""Maximum requests in turn that leave out brokers of the queue: those have messages too."""


class Receive(Protocol):
    """As `Queue.receive`, but large messages are not joined."""

    def __call__(
        self,
        max_messages: int,
        *,
        visibility_timeout: float | None,
        wait: float | None,
        wire_id: bytes | None = None,
    ) -> Awaitable[list[Message]]:
        """Return messages; `wire_id` is the attempt id of an attempt that has failed."""
        ...


class Options(Protocol):
    """Makes the options of a receive, as `Queue.receive` does."""

    def __call__(
        self, layout: QueueLayout, max_messages: int, *, visibility_timeout: float | None
    ) -> ReceiveOptions:
        """Return the options."""
        ...


class WindowedQueue(NamedTuple):
    """Parts and functions of a queue that its workers and subscriptions need."""

    receive: Receive
    options: Options
    receiver: QueueReceiver
    settler: QueueSettler
    visibility_timeout: Callable[[], Awaitable[float]]
    """Returns the default visibility timeout of the queue in seconds."""


class WindowOwner(NamedTuple):
    """Functions of a worker or a subscription: its wants, and what becomes of messages."""

    room: Callable[[], int]
    """Returns how many more messages may be received."""
    is_short: Callable[[], bool]
    """Returns whether more messages are needed now, and not only to have them in hand."""
    put: Callable[[list[HeldMessage]], None]
    """Takes received messages."""
    lose: Callable[[HeldMessage], None]
    """Drops a message whose lease is over."""
    is_about_to_start: Callable[[], bool] = lambda: False
    """Returns whether a message starts in the next turn of the loop, and may be settled then."""


@final
class MessageWindow:
    """Messages that were received and are not settled."""

    def __init__(
        self,
        queue: WindowedQueue,
        cluster: ClusterClient,
        owner: WindowOwner,
        *,
        visibility_timeout: float | None,
    ) -> None:
        """Receive from `queue` for `owner`."""
        self.finished: dict[HeldMessage, None] = {}
        """Messages that are being settled; their leases are not extended any more."""
        self.has_unsent = False
        """Whether settlements wait for `flush`."""
        self._queue = queue
        self._owner = owner
        self._settled = queue.settler.settled
        self._counters = queue.settler.counters
        self._cluster = cluster
        self._visibility_timeout = visibility_timeout
        self._extender = LeaseExtender(
            queue.settler,
            self._timeout,
            owner.lose,
            now=cluster.counters.now,
            on_woken=cluster.blocked_loop.woke,
        )
        self._unread_count = 0
        """Large messages in a row that could not be read."""
        self._changed = trio.Event()
        self._receiving = ParkedTask()
        """Woken when a plain receive is due."""
        self._is_open = False
        """Whether messages are wanted: late ones are returned at once."""
        self._is_polling = False
        """Whether a plain receive or a poll is in flight."""
        self._leave_poll: Callable[[], None] | None = None
        """Leaves the latest poll to later calls."""
        self._wait_s = 0.0
        """Seconds that one receive waits for messages."""
        self._arrived_count = 0
        """Number of messages that the last receive brought."""
        self._was_short = True
        """Whether the last receive brought less than it asked for: then the next one waits."""
        self._asked_count = 0
        """Messages that requests in flight ask for, along with settlements."""
        self._along_count = 0
        """Such requests in turn without one of the other brokers."""
        self._lost_attempt: bytes | None = None
        """Attempt id of a request that failed: its messages may be leased."""
        self._emptied: ParkedTask | None = None
        """Woken when nothing is being settled or received any more."""

    @property
    def is_asking(self) -> bool:
        """Whether a request for messages is in flight."""
        return self._is_polling or self._asked_count > 0

    @property
    def held(self) -> dict[HeldMessage, None]:
        """Messages whose leases are extended."""
        return self._extender.held

    def notify(self) -> None:
        """Wake the tasks that wait for more room or messages, or for the end."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        self.look()

    async def changed(self) -> None:
        """Wait for the next `notify`."""
        await self._changed.wait()

    async def keep_leases(self) -> None:
        """Extend due leases, without end."""
        await self._extender.run()

    # -- receiving --------------------------------------------------------------------------------

    async def receive_all(self, *, wait: float) -> None:
        """Receive as many messages as the owner has room for, without end.

        Args:
            wait: Seconds that one receive waits for messages.

        Raises:
            UnknownQueueError: The queue does not exist, or was deleted meanwhile.
            BrokerError: The queue cannot be received from, and waiting does not help.
            ClosedError: The client is closed.
        """
        failure_count = 0
        self._wait_s = wait
        self._is_open = True
        self._queue.settler.companions[self] = None
        try:
            while True:
                if not self._is_due():
                    await self._cluster.tasks.park(self._receiving)
                    continue
                try:
                    await self._receive(self._owner.room())
                except (RetriableError, ConnectionLostError, CorruptRecordError) as error:
                    # A corrupt batch may be repaired, and other messages may arrive.
                    failure_count += 1
                    self._cluster.env.probe("client.worker_waits", error=str(error))
                    await trio.sleep(self._cluster.backoff.delay(failure_count))
                else:
                    failure_count = 0
        finally:
            self._is_open = False
            self._is_polling = False
            if self._leave_poll is not None:
                self._leave_poll()
            del self._queue.settler.companions[self]

    async def _receive(self, wanted: int) -> None:
        self._is_polling = True
        try:
            messages = await self._queue.receive(
                wanted,
                visibility_timeout=self._visibility_timeout,
                wait=self._wait_s,
                wire_id=self._lost_attempt,
            )
        finally:
            self._is_polling = False
        self._lost_attempt = None
        self._along_count = 0
        self._note(messages, wanted)
        self._take(messages)

    def _note(self, messages: list[Message], wanted: int) -> None:
        self._arrived_count = len(messages)
        self._was_short = self._arrived_count < wanted

    def look(self) -> None:
        """Ask for messages if that is due."""
        if self._is_polling or self._receiving.task is None or not self._is_due():
            return
        layout = self._queue.receiver.known_layout()
        if layout is None or not self._may_poll(layout) or not self._poll(layout):
            self._receiving.wake()

    def _is_due(self) -> bool:
        """Return whether to ask now, by itself: no settlement takes a request along."""
        return (
            not self._asked_count
            and not self._is_polling
            and not self._cluster.open_work.is_ending
            and not self.has_unsent
            and (self._was_short or self._owner.is_short())
            and not self._owner.is_about_to_start()
            and self._owner.room() > 0
        )

    def _may_poll(self, layout: QueueLayout) -> bool:
        """Return whether a poll is of use: the last receive brought messages, and all there were.

        Several are a sign of more. Those come along with settlements, in one request.
        """
        return (
            self._arrived_count == 1
            and self._was_short
            and self._lost_attempt is None
            and len(layout.nodes) == 1
        )

    def _poll(self, layout: QueueLayout) -> bool:
        """Send a request that waits for messages; return whether that was possible."""
        wanted = self._owner.room()
        options = self._queue.options(layout, wanted, visibility_timeout=self._visibility_timeout)
        self._is_polling = True
        self._leave_poll = self._queue.receiver.poll(
            options, partial(self._polled, options), wait_s=self._wait_s, layout=layout
        )
        if self._leave_poll is None:
            self._is_polling = False
        return self._is_polling

    def along(
        self, node_queue: NodeQueue, connection: RpcConnection, settlements: list[Settlement]
    ) -> Along | Behind | None:
        """Return a request for messages with these settlements, or behind; see `Companion`."""
        receiver = self._queue.receiver
        is_ending = self._cluster.open_work.is_ending
        if not self._is_open or self._is_polling or self._lost_attempt is not None or is_ending:
            return None
        layout = receiver.known_layout()
        if (
            layout is None
            or layout.description.queue_id != node_queue.queue_id
            or node_queue.node_id not in layout.by_node
        ):
            return None
        if self._may_poll(layout):
            is_due = self._receiving.task is not None and self._is_due()
            return partial(self._poll, layout) if is_due else None
        wanted = self._owner.room() - self._asked_count
        if wanted <= 0 or connection.version_of(api.RECEIVE) < ALONG_VERSION:
            return None
        if layout.count_of(node_queue.node_id) < layout.count:
            self._along_count += 1
            if self._along_count > _ALONG_IN_TURN_MAX:
                self._was_short = True
                return None
        options = self._queue.options(layout, wanted, visibility_timeout=self._visibility_timeout)
        self._asked_count += wanted
        request, on_outcome = receiver.along(
            options,
            settlements,
            partial(self._arrived, options),
            layout=layout,
            node_id=node_queue.node_id,
            connection=connection,
        )
        return Along(request, on_outcome)

    def _arrived(
        self, options: ReceiveOptions, messages: list[Message], error: TidelogError | None
    ) -> None:
        """Take the messages of a request that settled others."""
        self._asked_count -= options.max_messages
        self._end(options, messages, error)
        self._tell_if_empty()

    def _polled(
        self, options: ReceiveOptions, messages: list[Message], error: TidelogError | None
    ) -> None:
        """Take the messages of a poll."""
        self._is_polling = False
        self._end(options, messages, error)

    def _end(
        self, options: ReceiveOptions, messages: list[Message], error: TidelogError | None
    ) -> None:
        """Take the messages of a request without a task."""
        self._counters.received += len(messages)
        self._counters.empty_receives += not messages
        self._note(messages, options.max_messages)
        if error is not None and self._is_open and not messages:
            # With messages in hand, a repetition would bring those again.
            self._lost_attempt = options.attempt_id
        if messages and self._is_open:
            self._take(messages)
            return
        if messages:
            late = [self._hold(message) for message in messages]
            for held in late:
                self.forget(held)
            self.settle(late, RETURN)  # The end of the owner waits for that.
            self.flush()
        self.look()

    def _take(self, messages: list[Message]) -> None:
        if messages:
            self._owner.put([self._hold(message) for message in messages])
            self.notify()

    def _hold(self, message: Message) -> HeldMessage:
        lease = message.lease
        group = None
        if lease.is_fifo and message.key is not None:
            group = (message.partition, message.key)
        place = (message.partition, message.offset, lease.receipt)
        held = HeldMessage(message, place, group, lease.expires_at)
        self._settled.watch(place)
        self._extender.track(held)
        return held

    async def joined(self, message: Message, max_bytes: int) -> Message | None:
        """Return a message with its value, `None` if no broker can be asked for it now.

        Raises:
            CorruptRecordError: The message is corrupt. That counts as a failure of the application,
                so that unreadable messages become dead letters in the end.
        """
        try:
            whole = await joined(message, max_bytes)
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

    # -- settling ---------------------------------------------------------------------------------

    def forget(self, held: HeldMessage) -> SettleAction | None:
        """Drop a message; return its settlement by the application, `None` without one."""
        self._extender.untrack(held)
        return self._settled.forget(held.place)

    def settle(
        self,
        messages: Sequence[HeldMessage],
        verdict: Disposition,
        on_end: Callable[[bool], None] | None = None,
    ) -> None:
        """Settle messages that were forgotten, by the next `flush`.

        `on_end` is called with whether that succeeded. If not, the messages become visible again at
        the end of their visibility timeout.
        """
        self.finished.update(dict.fromkeys(messages))
        on_done = partial(self._on_settled, messages, on_end)
        if self._cluster.tracing is None:
            self.has_unsent = True
            self._queue.settler.enqueue([held.message for held in messages], verdict, on_done)
        else:
            # In a task with the span of the handler, and not in one that a cancelled owner ends.
            self._cluster.tasks.start_soon(self._settle_in_span, messages, verdict, on_done)

    def flush(self) -> None:
        """Send settlements, and ask for messages along with them."""
        if self.has_unsent:
            self.has_unsent = False
            self._queue.settler.flush()
            self.look()

    async def _settle_in_span(
        self,
        messages: Sequence[HeldMessage],
        verdict: Disposition,
        on_done: Callable[[Mapping[int, TidelogError]], None],
    ) -> None:
        errors: dict[int, TidelogError] = {}
        try:
            await self._queue.settler.settle([held.message for held in messages], verdict)
        except TidelogError as error:
            errors[0] = error
        on_done(errors)

    def _on_settled(
        self,
        messages: Sequence[HeldMessage],
        on_end: Callable[[bool], None] | None,
        errors: Mapping[int, TidelogError],
    ) -> None:
        for error in errors.values():
            self._cluster.env.probe("client.not_settled", error=str(error))
        for held in messages:
            del self.finished[held]
        if on_end is not None:
            on_end(not errors)
            self.flush()
        self.look()
        self._tell_if_empty()

    def _tell_if_empty(self) -> None:
        if self._emptied is not None and not self.finished and not self._asked_count:
            self._emptied.wake()

    async def empty(self) -> None:
        """Wait until no message is being settled or received along with a settlement.

        Raises:
            ClosedError: The client is closed.
        """
        self.flush()
        while self.finished or self._asked_count:
            self._emptied = ParkedTask()
            await self._cluster.tasks.park(self._emptied)

    async def give_back_all(self) -> None:
        """Settle finished messages, release started ones, return the rest without counting it."""
        by_verdict: dict[Disposition, list[HeldMessage]] = {}
        for held in list(self.held):
            action = self.forget(held)
            if not held.is_lost and action is None:
                verdict = RELEASE_AT_ONCE if held.has_started else RETURN
                by_verdict.setdefault(verdict, []).append(held)
        for verdict, messages in by_verdict.items():
            self.settle(messages, verdict)
        with suppress(trio.ClosedResourceError):  # Then their leases must expire.
            await self.empty()

    async def _timeout(self) -> float:
        return self._visibility_timeout or await self._queue.visibility_timeout()

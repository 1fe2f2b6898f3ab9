"""Window of the messages that a worker or a subscription holds.

Shell: receives ahead, keeps the leases, settles messages, and returns them at the end. Its owner
says how much room there is and in which order messages are handed out.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol, final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.queue.receive.lease_extender import HeldMessage, LeaseExtender
from tidelog.client.queue.receive.message import RETURN, Disposition, Message
from tidelog.client.queue.receive.reassembler import joined
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.wire.errors import (
    ConnectionLostError,
    CorruptRecordError,
    RetriableError,
    TidelogError,
)
from tidelog.wire.messages.queues import SettleAction

DONE: Final = {SettleAction.DELETE, SettleAction.REJECT}
"""Settlements after which a message is never delivered again, and the next of its group starts."""
RELEASE_AT_ONCE: Final = Disposition(SettleAction.RELEASE, 0)
GIVING_BACK_S: Final = 2.0
"""Seconds for which a cancelled owner stays to return its messages."""


class Receive(Protocol):
    """As `Queue.receive`, but large messages are not joined."""

    def __call__(
        self, max_messages: int, *, visibility_timeout: float | None, wait: float | None
    ) -> Awaitable[list[Message]]:
        """Return messages."""
        ...


class WindowedQueue(NamedTuple):
    """Functions of a queue that its workers and subscriptions need."""

    receive: Receive
    settler: QueueSettler
    visibility_timeout: Callable[[], Awaitable[float]]
    """Returns the default visibility timeout of the queue in seconds."""


@final
class MessageWindow:
    """Messages that were received and are not settled."""

    def __init__(
        self,
        queue: WindowedQueue,
        cluster: ClusterClient,
        *,
        visibility_timeout: float | None,
        on_over: Callable[[HeldMessage], None],
    ) -> None:
        """Receive from `queue`; call `on_over` with messages whose lease is over."""
        self.finished: dict[HeldMessage, Disposition] = {}
        """Messages that are being settled; their leases are not extended any more."""
        self._queue = queue
        self._settled = queue.settler.settled
        self._cluster = cluster
        self._visibility_timeout = visibility_timeout
        self._extender = LeaseExtender(
            queue.settler, self._timeout, on_over, on_woken=cluster.blocked_loop.woke
        )
        self._unread_count = 0
        """Large messages in a row that could not be read."""
        self._changed = trio.Event()

    @property
    def held(self) -> dict[HeldMessage, None]:
        """Messages whose leases are extended."""
        return self._extender.held

    def action_of(self, held: HeldMessage) -> SettleAction | None:
        """Return the settlement of a message by the application, `None` without one."""
        return self._settled.action_of(held.message.place)

    def notify(self) -> None:
        """Wake the tasks that wait for more room or messages, or for the end."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def changed(self) -> None:
        """Wait for the next `notify`."""
        await self._changed.wait()

    async def keep_leases(self) -> None:
        """Extend due leases, without end."""
        await self._extender.run()

    async def receive_all(
        self, room: Callable[[], int], *, wait: float, put: Callable[[HeldMessage], None]
    ) -> None:
        """Receive as many messages as there is room for, without end; `put` gets each.

        Raises:
            UnknownQueueError: The queue does not exist, or was deleted meanwhile.
            BrokerError: The queue cannot be received from, and waiting does not help.
            ClosedError: The client is closed.
        """
        failure_count = 0
        while True:
            wanted = room()
            if wanted <= 0:
                await self._changed.wait()
                continue
            try:
                messages = await self._queue.receive(
                    wanted, visibility_timeout=self._visibility_timeout, wait=wait
                )
            except (RetriableError, ConnectionLostError, CorruptRecordError) as error:
                # A corrupt batch may be repaired, and other messages may arrive.
                failure_count += 1
                self._cluster.env.probe("client.worker_waits", error=str(error))
                await trio.sleep(self._cluster.backoff.delay(failure_count))
            else:
                failure_count = 0
                for message in messages:
                    put(self._hold(message))
                self.notify()

    def _hold(self, message: Message) -> HeldMessage:
        group = None
        if message.lease.is_fifo and message.key is not None:
            group = (message.partition, message.key)
        held = HeldMessage(message, group, message.lease.expires_at)
        self._settled.watch(message.place)
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

    def finish(self, held: HeldMessage, verdict: Disposition) -> None:
        """Stop extending the lease of a message, which is to be settled."""
        self._extender.untrack(held)
        self.finished[held] = verdict

    async def settle(self, finished: Sequence[HeldMessage], verdict: Disposition) -> bool:
        """Settle messages and drop them; return whether that succeeded."""
        is_settled = False
        try:
            await self._queue.settler.settle([held.message for held in finished], verdict)
            is_settled = True
        except (TidelogError, trio.ClosedResourceError) as error:
            # The messages become visible again at the end of their visibility timeout.
            self._cluster.env.probe("client.not_settled", error=str(error))
        for held in finished:
            self.forget(held)
        self.notify()
        return is_settled

    def forget(self, held: HeldMessage) -> None:
        """Drop a message."""
        self._extender.untrack(held)
        self.finished.pop(held, None)
        self._settled.forget(held.message.place)

    async def give_back_all(self) -> None:
        """Settle finished messages, release started ones, return the rest without counting it."""
        by_verdict: dict[Disposition, list[HeldMessage]] = {}
        for held, verdict in self.finished.items():
            by_verdict.setdefault(verdict, []).append(held)
        for held in list(self.held):
            if held.is_lost or self.action_of(held) is not None:
                self.forget(held)
            else:
                verdict = RELEASE_AT_ONCE if held.has_started else RETURN
                by_verdict.setdefault(verdict, []).append(held)
        try:
            async with trio.open_nursery() as nursery:
                for verdict, messages in by_verdict.items():
                    nursery.start_soon(self.settle, messages, verdict)
        finally:
            for held in [*self.finished, *self.held]:
                self.forget(held)

    async def _timeout(self) -> float:
        return self._visibility_timeout or await self._queue.visibility_timeout()

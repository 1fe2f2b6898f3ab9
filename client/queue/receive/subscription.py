"""Subscription to a queue: a stream of messages for programs that settle them by themselves.

Shell: owns a task of the client while it is open. It receives ahead, and keeps the leases of all
messages in its window: those that wait for an iteration, and those that were handed out and are not
settled. When the window is full, it receives no more.

Messages of a FIFO group are handed out in order, as by a receive. If one of them is not done for
good, those behind it that wait are returned to the queue, and come again behind it.
"""

from collections import deque
from collections.abc import Sequence
from copy import copy
from functools import partial
from types import TracebackType
from typing import Self, final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.errors import ClosedError
from tidelog.client.queue.receive.lease_extender import HeldMessage
from tidelog.client.queue.receive.message import RETURN, Disposition, Message
from tidelog.client.queue.receive.message_window import (
    DONE,
    GIVING_BACK_S,
    MessageWindow,
    WindowedQueue,
    WindowOwner,
)
from tidelog.wire.errors import CorruptRecordError, TidelogError
from tidelog.wire.messages.queues import RECEIVE_COUNT_MAX, SettleAction

_REFILL_PART = 4
"""While messages wait, a receive asks for at least this part of the window at a time."""


@final
class QueueSubscription:
    """Stream of the messages of a queue; use it with `async with`, and iterate over it.

    `max_messages` at most are held: handed out and not settled, or waiting. Their visibility
    timeouts are extended until they are settled. Any number of tasks may iterate; each message goes
    to one of them. At the end of the block, messages that were not handed out are returned and do
    not count as received. Those that were, and are not settled, are released at once and count.
    """

    def __init__(
        self,
        queue: WindowedQueue,
        cluster: ClusterClient,
        *,
        max_messages: int,
        visibility_timeout: float | None,
        wait: float,
        max_value_bytes: int,
    ) -> None:
        """Use `queue.subscribe()`."""
        if not 1 <= max_messages <= RECEIVE_COUNT_MAX:
            raise ValueError(f"max_messages is from 1 to {RECEIVE_COUNT_MAX}, not {max_messages}")
        if visibility_timeout is not None and visibility_timeout < 1:
            raise ValueError(f"visibility_timeout is at least 1 second, not {visibility_timeout}")
        if wait <= 0:
            raise ValueError(f"wait is above 0 seconds, not {wait}")
        self._settler = queue.settler
        self._cluster = cluster
        self._max_messages = max_messages
        self._wait = wait
        self._max_value_bytes = max_value_bytes
        owner = WindowOwner(self._room, self._is_short, self._put, self._drop)
        self._window = MessageWindow(queue, cluster, owner, visibility_timeout=visibility_timeout)
        self._waiting: deque[HeldMessage] = deque()
        """Messages that were not handed out, in the order of their arrival."""
        self._failure: TidelogError | trio.ClosedResourceError | None = None
        """Error that ended the receives."""
        self._scope = trio.CancelScope()
        self._ended: trio.Event | None = None
        """Set when nothing is held any more; `None` before the block."""

    async def __aenter__(self) -> Self:
        """Begin to receive.

        Raises:
            ClosedError: The client is closed, or the subscription was used before.
        """
        await trio.lowlevel.checkpoint()
        if self._ended is not None:
            raise ClosedError("a subscription is used once; make another one")
        self._cluster.tasks.require_open()
        self._ended = trio.Event()
        self._cluster.tasks.start_soon(self._run, self._ended)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop receiving, and give all messages back, within three seconds."""
        del kind, error, traceback
        assert self._ended is not None, "it was entered"
        self._scope.cancel()
        self._window.notify()
        with trio.CancelScope(shield=True):
            await self._ended.wait()

    def __aiter__(self) -> Self:
        """Return the subscription."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; wait for it. The iteration ends when the block ends.

        If cancelled, no message is lost.

        Raises:
            UnknownQueueError: The queue does not exist, or was deleted meanwhile.
            BrokerError: The queue cannot be received from, and waiting does not help.
            ClosedError: The client is closed.
        """
        await trio.lowlevel.checkpoint()
        if self._ended is None:
            raise ClosedError("a subscription receives inside of `async with`")
        while not self._scope.cancel_called:
            held = self._next()
            if held is not None:
                message = await self._handed_out(held)
                if message is not None:
                    return message
            elif self._failure is not None:
                raise copy(self._failure)
            else:
                await self._window.changed()
        raise StopAsyncIteration

    def give_back(self, message: Message) -> None:
        """Hand out a message again: no program has seen it."""
        for held in self._window.held:
            if held.message.place == message.place:
                held.has_started = False
                self._waiting.appendleft(held)
                self._window.notify()
                return

    async def _run(self, ended: trio.Event) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._window.keep_leases)
                    nursery.start_soon(self._receive)
        finally:
            self._scope.cancel()
            self._waiting.clear()
            with trio.move_on_after(GIVING_BACK_S, shield=True):
                await self._window.give_back_all()
            ended.set()
            self._window.notify()

    async def _receive(self) -> None:
        try:
            await self._window.receive_all(wait=self._wait)
        except (TidelogError, trio.ClosedResourceError) as error:
            self._failure = error
            self._window.notify()

    def _room(self) -> int:
        """Return how many more messages to receive: no single ones while others wait."""
        room = self._max_messages - len(self._window.held)
        return 0 if self._waiting and room * _REFILL_PART < self._max_messages else room

    def _is_short(self) -> bool:
        return True  # The program may wait for more before it settles what it has.

    def _put(self, messages: list[HeldMessage]) -> None:
        for held in messages:
            self._waiting.append(held)
            self._settler.settled.watch(held.place, partial(self._settled, held))

    def _next(self) -> HeldMessage | None:
        """Return the next message that is still leased, `None` if there is none."""
        while self._waiting:
            held = self._waiting.popleft()
            if held.expires_at > trio.current_time():
                held.has_started = True
                return held
            self._settler.counters.lost_leases += not held.is_lost
            self._drop(held)
        return None

    async def _handed_out(self, held: HeldMessage) -> Message | None:
        """Return a message with its value; `None` if it cannot be handed out."""
        try:
            whole = await self._window.joined(held.message, self._max_value_bytes)
        except CorruptRecordError as error:
            # The release counts, so that unreadable messages become dead letters in the end.
            self._give_back([held], Disposition(SettleAction.RELEASE, reason=str(error)))
        except BaseException:
            if held in self._window.held:
                held.has_started = False
                self._waiting.appendleft(held)
                self._window.notify()
            raise
        else:
            if whole is not None and held in self._window.held:
                self._window.notify()  # There may be room for a receive now.
                return whole
            self._give_back([held] if held in self._window.held else [], RETURN)
        self._break_off(held)
        return None

    def _settled(self, held: HeldMessage, action: SettleAction) -> None:
        """Free the place of a message that the application has settled."""
        self._window.forget(held)
        if action not in DONE:
            self._break_off(held)
        self._window.notify()

    def _drop(self, held: HeldMessage) -> None:
        """Drop a message whose lease is over."""
        self._window.forget(held)
        if not held.has_started and held in self._waiting:
            self._waiting.remove(held)
        self._break_off(held)
        self._window.notify()

    def _break_off(self, held: HeldMessage) -> None:
        """Return the waiting messages of a FIFO group, one of which is not done."""
        if held.group is None:
            return
        behind = [each for each in self._waiting if each.group == held.group]
        for each in behind:
            self._waiting.remove(each)
        self._give_back(behind, RETURN)

    def _give_back(self, messages: Sequence[HeldMessage], verdict: Disposition) -> None:
        places = [held.message.place for held in messages if not held.is_lost]
        for held in messages:
            self._window.forget(held)
        self._settler.settle_soon(places, verdict)
        self._window.notify()

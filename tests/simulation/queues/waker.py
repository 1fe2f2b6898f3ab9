"""Client that long-polls without faults; each new message must wake it."""

from functools import partial
from typing import Final, final

import trio

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.queues.plans import QueuePlan, QueueSetup
from tests.simulation.queues.run_history import Delivered, QueueRunHistory, Sent, Settlement
from tests.simulation.queues.users import QueueUser
from tidelog.client.client import Client
from tidelog.client.queue.receive.message import Message
from tidelog.wire.messages.queues import SettleAction

WAKERS: Final = 3
"""Number of events that make a message visible: a send, an ended delay, an ended lease."""
_WAIT_S: Final = 30.0
"""Seconds of a long poll, besides clock errors."""
_SOON_S: Final = 3.0
_OWED_S: Final = 20.0
"""Maximum seconds that a send is delayed by the send rate, after earlier excess."""
_HIDDEN_S: Final = 1.0
_HEAD_START_S: Final = 0.3

_Received = tuple[Message, Delivered]


@final
class Waker:
    """Waits at one empty queue for one message after the other."""

    def __init__(self, plan: QueuePlan, setup: QueueSetup, run_history: QueueRunHistory) -> None:
        """Wait at the queue of `setup`."""
        self._plan = plan
        self._setup = setup
        self._run_history = run_history

    async def run(self, client: Client) -> None:
        """Wait for a message that is sent, is delayed, and is not settled in time."""
        queue = client.queue(self._setup.name)
        user = QueueUser(queue, self._setup, self._run_history)
        found: list[_Received] = []
        async with trio.open_nursery() as nursery:
            owed_s = _OWED_S if "send_rate" in self._setup.settings else 0.0
            nursery.start_soon(partial(self._wait, user, found, "sent", hidden_s=owed_s))
            await trio.sleep(_HEAD_START_S)
            value = f"wake {self._setup.name} at {trio.current_time()}".encode()
            sent = Sent(self._setup.topic, value, b"wake", trio.current_time())
            self._run_history.sent(sent)
            receipt = await queue.send(value, key=b"wake")
            if receipt.offset is not None:
                self._run_history.acknowledged(sent, (receipt.partition, receipt.offset))
        deliveries = self._setup.max_deliveries or WAKERS
        if deliveries > 1:
            message, delivered = found[-1]
            now = trio.current_time()
            settlement = Settlement(delivered, SettleAction.RELEASE, now, _HIDDEN_S)
            await user.settle(settlement, lambda: message.release(_HIDDEN_S))
            await self._wait(
                user, found, "hidden", hidden_s=_HIDDEN_S + 2 * self._plan.clock_lead_s
            )
        if deliveries >= WAKERS:
            await self._wait(
                user, found, "in_flight", hidden_s=_HIDDEN_S + 2 * self._plan.clock_lead_s
            )
        await user.delete(found[-1:])

    async def _wait(
        self, user: QueueUser, found: list[_Received], what: str, *, hidden_s: float
    ) -> None:
        began = trio.current_time()
        received = await user.receive(
            1, visibility_s=_HIDDEN_S, wait_s=_WAIT_S + hidden_s + _HEAD_START_S
        )
        waited_s = trio.current_time() - began
        if not received or waited_s > hidden_s + _HEAD_START_S + _SOON_S:
            raise ViolationError(
                "WaitersAreWoken",
                f"a message of {self._setup.name} that was {what} came after {waited_s:.3f} s:"
                f" {received}",
            )
        found += received

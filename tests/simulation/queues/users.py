"""Clients of queues: senders, workers, and the final drain.

Workers behave like production workers. Most process and delete; some are slow, extend their leases,
release, reject or forget a message, or use a receipt after another worker has received the
message.
"""

# A receive does not report the requests that it leaves in flight.
# pyright: reportPrivateUsage=false

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from random import Random
from typing import Final, final

import trio

from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S, all_ask_as_older
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.machine.process import Process
from tests.simulation.queues.connected import work_connected
from tests.simulation.queues.plans import RECORD_BYTES, QueuePlan, QueueSetup
from tests.simulation.queues.run_history import (
    Delivered,
    Outcome,
    QueueRunHistory,
    Sent,
    Settlement,
)
from tidelog.client.client import Client, connect
from tidelog.client.producer.receipt import Receipt
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import (
    BatchError,
    MessageGoneError,
    ReceiptExpiredError,
    TidelogError,
    UnknownQueueError,
)
from tidelog.wire.messages.queues import SettleAction

_DELAYS: Final = 0.15
_WAITS_S: Final = (0.0, 1.0, 3.0, 5.0)
_IDLE_MEAN_S: Final = 0.4
_KEPT_HANDLES: Final = 20
_ON_THE_WAY_S: Final = 0.1
"""Maximum seconds that a reply is in flight."""
_SETTLED_AGAIN: Final = 0.2
_REFUSALS: Final = (MessageGoneError, ReceiptExpiredError)
_AGAIN: Final = 4
"""One in so many batches to a FIFO queue is sent twice, and every one with unknown outcome."""
_NO_ID: Final = 3
"""One in so many messages to a FIFO queue has no deduplication id."""
_LARGE_BYTES: Final = (2 * RECORD_BYTES, 6 * RECORD_BYTES)
_SENDS_AT_ONCE: Final = 2
"""Concurrent sends to each queue: one may wait for a partition without a leader."""
_SLOW: Final = 1.5
"""Maximum duration of a slow worker, in visibility timeouts."""
_CARE_PAUSE_S: Final = 8.0
_PURGES: Final = 0.3
_SOON_S: Final = 0.5
"""Seconds within which the client sends no retry."""
_PAUSE_MAX_S: Final = 4.0
_MOODS: Final = {
    "plain": (0.55, 0.65, 0.75, 0.87, 0.92),
    "careless": (0.30, 0.45, 0.55, 0.70, 0.75),
    "gloomy": (0.25, 0.30, 0.40, 0.55, 0.90),
}
"""Upper bounds of the dice: workers process and delete, are slow, extend, release, reject,
forget."""
_FIRST_BACK: Final = 0.25
"""Fraction of FIFO receives with several messages whose first message is released at once."""


@final
class QueueSender:
    """Sends to some queues until told to stop."""

    def __init__(
        self,
        plan: QueuePlan,
        addresses: str,
        name: str,
        *,
        random: Random,
        run_history: QueueRunHistory,
        sometimes: Sometimes,
    ) -> None:
        """Use this unique name, which is in all of its messages."""
        self.should_stop = False
        self._sometimes = sometimes
        self._plan = plan
        self._addresses = addresses
        self._name = name
        self._random = random
        self._run_history = run_history
        self._count = 0

    async def run(self, process: Process) -> None:
        """Send until told to stop."""
        while not self.should_stop:
            try:
                async with (
                    connect(self._addresses, env=process.env, request_timeout=PATIENCE_S) as client,
                    trio.open_nursery() as nursery,
                ):
                    for setup in self._plan.queues:
                        for _ in range(_SENDS_AT_ONCE * setup.is_sent_to):
                            nursery.start_soon(self._send_to, client, setup)
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _send_to(self, client: Client, setup: QueueSetup) -> None:
        while not self.should_stop:
            pause_s = self._random.expovariate(1 / self._plan.send_pause_s)
            await trio.sleep(min(pause_s, _PAUSE_MAX_S))
            try:
                await self._send(client, setup)
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _send(self, client: Client, setup: QueueSetup) -> None:
        count = self._random.randint(1, self._plan.send_batch_max)
        if self._random.random() < self._plan.large_rate:
            sent = [self._message(setup, padding=self._random.randint(*_LARGE_BYTES))]
            self._sometimes.reached("large message sent")
        else:
            sent = [self._message(setup) for _ in range(count)]
        for each, _ in sent:
            self._run_history.sent(each)
        queue = client.queue(setup.name)
        messages = [message for _, message in sent]
        receipts: list[Receipt | None]
        try:
            receipts = [*(await queue.send_batch(messages))]
        except BatchError as error:
            # The assignment of receipts is unknown then; the final check finds the messages.
            receipts = [None] * len(error.errors)
        self._note(sent, receipts)
        if setup.is_fifo and (None in receipts or self._count % _AGAIN == 0):
            # Whether the messages are in the topic or not: a message with an id is deduplicated.
            again = [
                each
                for each in sent
                if setup.is_known_by_content or each[1].deduplication_id is not None
            ]
            self._note(again, [*(await queue.send_batch(message for _, message in again))])

    def _note(
        self, sent: Sequence[tuple[Sent, OutgoingMessage]], receipts: Sequence[Receipt | None]
    ) -> None:
        for (each, _), receipt in zip(sent, receipts, strict=False):
            if receipt is not None and receipt.offset is not None:
                self._run_history.acknowledged(each, (receipt.partition, receipt.offset))

    def _message(self, setup: QueueSetup, *, padding: int = 0) -> tuple[Sent, OutgoingMessage]:
        self._count += 1
        name = f"{self._name}/{self._count}"
        value = name.encode() + b"." * padding
        key: bytes | None = None
        if setup.is_fifo or self._random.random() < 0.5:
            key = b"g%d" % self._random.randrange(self._plan.group_count)
        delay_s = 0.0
        if not setup.is_fifo and self._random.random() < _DELAYS:
            delay_s = round(self._random.uniform(0.0, 5.0), 3)
        priorities = setup.lane_count
        message = OutgoingMessage(
            value=value,
            key=key,
            delay=delay_s or None,
            priority=self._random.randrange(priorities) if priorities else None,
            deduplication_id=name if setup.is_fifo and self._count % _NO_ID else None,
        )
        return Sent(setup.topic, value, key, trio.current_time(), delay_s), message


@final
class SendTimes:
    """Earliest possible times of the requests that return messages."""

    def __init__(self, queue: Queue) -> None:
        """Track the requests of `queue`, which has one receive at a time."""
        self._receiver = queue._receiver
        self._left_since: float | None = None
        """Time of the first receive that may have left a request in flight."""

    def of_next_receive(self) -> float:
        """Return the time of the request that may return the next receive's messages."""
        if self._left_since is None or not self._receiver.left_polls:
            self._left_since = trio.current_time()
        return self._left_since


@final
class QueueUser:
    """Receives messages of one queue, and records the replies."""

    def __init__(self, queue: Queue, setup: QueueSetup, run_history: QueueRunHistory) -> None:
        """Receive from `queue`."""
        self.setup = setup
        self._queue = queue
        self._run_history = run_history
        self._send_times = SendTimes(queue)

    async def receive(
        self, max_messages: int, *, visibility_s: float, wait_s: float
    ) -> list[tuple[Message, Delivered]]:
        """Receive messages.

        Raises:
            TidelogError: The receive failed.
        """
        asked_at = self._send_times.of_next_receive()
        messages = await self._queue.receive(
            max_messages, visibility_timeout=visibility_s, wait=wait_s
        )
        received = [(each, self._delivered(each, visibility_s, asked_at)) for each in messages]
        for _, delivered in received:
            self._run_history.delivered(delivered)
        return received

    def _delivered(self, message: Message, visibility_s: float, asked_at: float) -> Delivered:
        assert message.value is not None, "all messages have a value"
        leased_at = message.lease.expires_at - visibility_s
        if leased_at < asked_at:
            # From a request that an earlier call left in flight, whose start is unknown.
            asked_at = max(0.0, leased_at - _ON_THE_WAY_S)
        return Delivered(
            self.setup.name,
            (message.partition, message.offset),
            message.value,
            message.key,
            message.receive_count,
            message.lease.receipt,
            visibility_s,
            asked_at,
            trio.current_time(),
        )

    async def settle(self, settlement: Settlement, ask: Callable[[], Awaitable[None]]) -> Outcome:
        """Settle a message.

        Raises:
            UnknownQueueError: The queue is gone.
        """
        self._run_history.settlement_asked(settlement)
        try:
            await ask()
        except _REFUSALS:
            outcome = Outcome.REFUSED
        except UnknownQueueError:
            raise
        except TidelogError:
            outcome = Outcome.UNKNOWN
        else:
            outcome = Outcome.DONE
        self._run_history.told(settlement, outcome, trio.current_time())
        return outcome

    async def delete(self, received: list[tuple[Message, Delivered]]) -> None:
        """Delete messages, all in one call."""
        now = trio.current_time()
        wishes = [Settlement(delivered, SettleAction.DELETE, now) for _, delivered in received]
        for settlement in wishes:
            self._run_history.settlement_asked(settlement)
        errors: dict[int, TidelogError] = {}
        try:
            await self._queue.delete_batch([message for message, _ in received])
        except BatchError as error:
            errors = error.errors
        except TidelogError as error:
            errors = dict.fromkeys(range(len(received)), error)
        for index, settlement in enumerate(wishes):
            outcome = Outcome.DONE
            if index in errors:
                is_refused = isinstance(errors[index], _REFUSALS)
                outcome = Outcome.REFUSED if is_refused else Outcome.UNKNOWN
            self._run_history.told(settlement, outcome, trio.current_time())


@final
class QueueWorker:
    """One process that works at all queues."""

    def __init__(
        self,
        plan: QueuePlan,
        addresses: str,
        random: Random,
        *,
        run_history: QueueRunHistory,
        sometimes: Sometimes,
    ) -> None:
        """Use the settings of the plan."""
        self.should_stop = False
        self._plan = plan
        self._addresses = addresses
        self._random = random
        self._run_history = run_history
        self._sometimes = sometimes
        self._handles: dict[str, deque[tuple[str, Delivered]]] = {}
        """By queue: receipt handles of received messages that are not settled."""

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        while not self.should_stop:
            try:
                async with (
                    connect(
                        self._addresses,
                        env=process.env,
                        client_id=process.name,
                        request_timeout=PATIENCE_S,
                    ) as client,
                    trio.open_nursery() as nursery,
                ):
                    if self._plan.has_older_readers:
                        all_ask_as_older(client)
                    for setup in self._plan.queues:
                        self._handles[setup.name] = deque(maxlen=_KEPT_HANDLES)
                        nursery.start_soon(self._work_at, client, setup)
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _work_at(self, client: Client, setup: QueueSetup) -> None:
        user = QueueUser(client.queue(setup.name), setup, self._run_history)
        while not self.should_stop:
            try:
                await self._work(client, user)
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _work(self, client: Client, user: QueueUser) -> None:
        random = self._random
        received = await user.receive(
            random.choice([1, 1, 3, 10]),
            visibility_s=round(self._plan.visibility_s * random.choice([0.5, 1.0, 1.0]), 3),
            wait_s=random.choice(_WAITS_S),
        )
        if not received:
            await trio.sleep(random.expovariate(1 / _IDLE_MEAN_S))
        if random.random() < 0.3:
            await self._pretend_to_work()
            await user.delete(received)
        else:
            if user.setup.is_fifo and len(received) > 1 and random.random() < _FIRST_BACK:
                # Another worker may get this one, but none behind it, while the others are in
                # flight here.
                message, delivered = received.pop(0)
                settlement = Settlement(delivered, SettleAction.RELEASE, trio.current_time(), 0.0)
                await user.settle(settlement, partial(message.release, 0.0))
                await trio.sleep(random.uniform(0.0, 0.6) * delivered.visibility_s)
            for message, delivered in received:
                if self.should_stop:
                    break  # One delete may take half a minute; the rest is retried later.
                await self._work_on(user, message, delivered)
        if random.random() < _SETTLED_AGAIN:
            await self._settle_again(client, user)

    async def _pretend_to_work(self) -> None:
        work_s = self._random.expovariate(1 / self._plan.work_mean_s)
        await trio.sleep(min(work_s, _PAUSE_MAX_S))

    async def _work_on(self, user: QueueUser, message: Message, delivered: Delivered) -> None:
        random = self._random
        dice = random.random()
        works, is_slow, extends, gives_back, rejects = _MOODS[self._plan.mood]
        if dice < works:
            await self._pretend_to_work()
            await self._delete(user, message, delivered)
        elif dice < is_slow:
            await trio.sleep(random.uniform(0.0, _SLOW) * delivered.visibility_s)
            await self._delete(user, message, delivered)
        elif dice < extends:
            await self._extend_and_delete(user, message, delivered)
        elif dice < gives_back:
            await self._give_back(user, message, delivered)
        elif dice < rejects and user.setup.dead_letter_queue is not None:
            reason = f"no good {random.random():.4f}"
            settlement = Settlement(
                delivered, SettleAction.REJECT, trio.current_time(), reason=reason
            )
            if await user.settle(settlement, lambda: message.reject(reason)) is Outcome.DONE:
                self._sometimes.reached("message rejected")
        else:
            self._handles[user.setup.name].append((message.receipt_handle, delivered))

    async def _delete(self, user: QueueUser, message: Message, delivered: Delivered) -> None:
        settlement = Settlement(delivered, SettleAction.DELETE, trio.current_time())
        if await user.settle(settlement, message.delete) is Outcome.REFUSED:
            self._sometimes.reached("late delete refused")
        if self._random.random() < 0.1:
            self._handles[user.setup.name].append((message.receipt_handle, delivered))

    async def _extend_and_delete(
        self, user: QueueUser, message: Message, delivered: Delivered
    ) -> None:
        await trio.sleep(self._random.uniform(0.2, 1.1) * delivered.visibility_s)
        seconds = round(self._random.uniform(0.5, 2.0) * delivered.visibility_s, 3)
        settlement = Settlement(delivered, SettleAction.EXTEND, trio.current_time(), seconds)
        if await user.settle(settlement, lambda: message.extend(seconds)) is Outcome.DONE:
            self._sometimes.reached("lease extended")
            await trio.sleep(self._random.uniform(0.2, 1.0) * seconds)
        await self._delete(user, message, delivered)

    async def _give_back(self, user: QueueUser, message: Message, delivered: Delivered) -> None:
        delay_s = self._random.choice([None, 0.0, round(self._random.uniform(0.1, 3.0), 3)])
        reason = self._random.choice(["", f"not now {self._random.random():.4f}"])
        now = trio.current_time()
        settlement = Settlement(delivered, SettleAction.RELEASE, now, delay_s, reason)
        ask = message.release
        await user.settle(settlement, lambda: ask(delay_s, reason=reason))

    async def _settle_again(self, client: Client, user: QueueUser) -> None:
        """Use an old receipt, like a worker after a long pause."""
        kept = self._handles[user.setup.name]
        if not kept:
            return
        handle, delivered = kept.popleft()
        queue = client.queue(user.setup.name)
        action = self._random.choice(
            [SettleAction.DELETE, SettleAction.EXTEND, SettleAction.RELEASE]
        )
        now = trio.current_time()
        settlement = Settlement(
            delivered, action, now, 1.0 if action is SettleAction.EXTEND else None
        )
        ask: Callable[[], Awaitable[None]]
        match action:
            case SettleAction.DELETE:
                ask = lambda: queue.delete(handle)  # noqa: E731
            case SettleAction.EXTEND:
                ask = lambda: queue.extend(handle, 1.0)  # noqa: E731
            case _:
                ask = lambda: queue.release(handle)  # noqa: E731
        if await user.settle(settlement, ask) is Outcome.REFUSED:
            self._sometimes.reached("old receipt refused")


@final
class QueueCaretaker:
    """Purges queues now and then, and seeks to their beginning.

    Without a quick reply it is unknown which deliveries are from before.
    """

    def __init__(
        self,
        plan: QueuePlan,
        addresses: str,
        random: Random,
        *,
        run_history: QueueRunHistory,
        sometimes: Sometimes,
    ) -> None:
        """Take the queues that are to be purged or sought."""
        self.should_stop = False
        self._plan = plan
        self._addresses = addresses
        self._random = random
        self._run_history = run_history
        self._sometimes = sometimes

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        await work_connected(
            process, self._addresses, self._care, should_stop=lambda: self.should_stop
        )

    async def _care(self, client: Client) -> None:
        await trio.sleep(self._random.uniform(0.5, _CARE_PAUSE_S))
        setup = self._random.choice([each for each in self._plan.queues if each.is_looked_after])
        queue = client.queue(setup.name)
        await queue.counts()
        is_purge = self._random.random() < _PURGES
        disturb = self._run_history.purged if is_purge else self._run_history.disturbed
        was_certain = self._run_history.is_certain(setup.name)
        disturb(setup.name, inf)
        began = trio.current_time()
        count = await (queue.purge() if is_purge else queue.seek("earliest"))
        if count:
            self._sometimes.reached("queue purged" if is_purge else "queue sought back")
        now = trio.current_time()
        if was_certain and now - began < _SOON_S:
            disturb(setup.name, now)

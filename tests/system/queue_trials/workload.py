"""Senders and workers of one queue, which record all replies."""

from collections.abc import Awaitable
from random import Random
from typing import Final, final

import trio

import tidelog
from tests.system.queue_trials.ledger import Delivery, Fate, Ledger, Name, name_of

POISON: Final = "poison"
"""Part of the names of groups whose messages always fail: they are released each time."""
_REFUSALS: Final = (
    tidelog.ReceiptExpiredError,
    tidelog.InvalidReceiptError,
    tidelog.MessageGoneError,
)
"""Errors that exclude an effect; after all others the request may have taken effect."""
_SEND_MAX: Final = 8
_PAUSE_S: Final = 0.02
_EXTENSION_S: Final = 2.0
_BACKOFF_S: Final = 0.1


@final
class Trial:
    """One queue with its senders and workers."""

    def __init__(self, queue: tidelog.Queue, ledger: Ledger, random: Random) -> None:
        """Record all replies in `ledger`."""
        self.queue = queue
        self.ledger = ledger
        self._is_ending = False
        self._is_over = False
        self._sender_count = 0
        self._has_sent = trio.Event()
        self._random = random
        self._counts: dict[str, int] = {}

    async def end(self) -> None:
        """Stop sending, wait until all sends have ended, and let workers finish their messages."""
        self._is_ending = True
        await self._has_sent.wait()

    def leave(self) -> None:
        """Stop the workers after the replies for their current messages."""
        self._is_over = True

    async def send(self, sender: str) -> None:
        """Send to groups of this sender until told to stop."""
        self._sender_count += 1
        try:
            await self._send(sender)
        finally:
            self._sender_count -= 1
            if not self._sender_count:
                self._has_sent.set()

    async def _send(self, sender: str) -> None:
        groups = [f"{sender}-{number}" for number in range(6)] + [f"{sender}-{POISON}"]
        while not self._is_ending:
            weights = [10] * (len(groups) - 1) + [1]
            (group,) = self._random.choices(groups, weights)
            names = [self._next(group) for _ in range(self._random.randint(1, _SEND_MAX))]
            delay = None
            if not self.ledger.is_fifo and self._random.random() < 0.05:
                delay = self._random.uniform(0, 2)
            messages = [
                tidelog.OutgoingMessage(value=name.value(), key=group.encode(), delay=delay)
                for name in names
            ]
            self.ledger.uncertain.update(names)
            try:
                await self.queue.send_batch(messages)
            except tidelog.BatchError as error:
                self.ledger.accepted.update(
                    name for index, name in enumerate(names) if index not in error.errors
                )
            except tidelog.TidelogError:
                await trio.sleep(_BACKOFF_S)
            else:
                self.ledger.accepted.update(names)
            await trio.sleep(self._random.uniform(0, 2 * _PAUSE_S))

    def _next(self, group: str) -> Name:
        self._counts[group] = self._counts.get(group, 0) + 1
        return Name(group, self._counts[group])

    async def work(self) -> None:
        """Receive and settle until told to leave, across restarts of brokers."""
        while not self._is_over:
            count = self._random.randint(1, 20)
            timeout = self._random.choice([1.5, 2.0, 3.0])
            asked_at = trio.current_time()
            try:
                messages = await self.queue.receive(
                    count, visibility_timeout=timeout, wait=self._random.choice([0, 1])
                )
            except tidelog.TidelogError:
                await trio.sleep(_BACKOFF_S)
                continue
            if not messages:
                await trio.sleep(_PAUSE_S)
                continue
            now = trio.current_time()
            deliveries = [
                Delivery(name_of(each.value), each.receive_count, asked_at, now, asked_at + timeout)
                for each in messages
            ]
            self.ledger.received(deliveries)
            await self._finish(list(zip(messages, deliveries, strict=True)))

    async def _finish(self, work: list[tuple[tidelog.Message, Delivery]]) -> None:
        """Settle messages: many together, some individually, some never."""
        together: list[tuple[tidelog.Message, Delivery]] = []
        async with trio.open_nursery() as nursery:
            for message, delivery in work:
                if POISON in delivery.name.group:
                    nursery.start_soon(self._release, message, delivery)
                elif self._is_ending or self._random.random() < 0.85:
                    together.append((message, delivery))
                else:
                    nursery.start_soon(self._do_something, message, delivery)
            nursery.start_soon(self._delete, together)

    async def _delete(self, work: list[tuple[tidelog.Message, Delivery]]) -> None:
        errors: dict[int, tidelog.TidelogError] = {}
        try:
            await self.queue.delete_batch(message for message, _ in work)
        except tidelog.BatchError as error:
            errors = error.errors
        except tidelog.TidelogError as error:
            errors = dict.fromkeys(range(len(work)), error)
        now = trio.current_time()
        for index, (_, delivery) in enumerate(work):
            if index not in errors:
                self.ledger.deleted(delivery, now)
            elif not isinstance(errors[index], _REFUSALS):
                self.ledger.perhaps_deleted(delivery.name)

    async def _do_something(self, message: tidelog.Message, delivery: Delivery) -> None:
        """Extend, release, reject or forget a message."""
        match self._random.choice(["extend", "release", "reject", "forget"]):
            case "extend":
                await self._extend_and_delete(message, delivery)
            case "release":
                await self._release(message, delivery)
            case "reject":
                delivery.mine_until = trio.current_time()
                self.ledger.fates.setdefault(delivery.name, Fate.REJECTED)
                await _try(message.reject("by lot"))
            case _:
                pass

    async def _release(self, message: tidelog.Message, delivery: Delivery) -> None:
        delivery.mine_until = trio.current_time()
        await _try(message.release(self._random.choice([0, 0.5]), reason="not today"))

    async def _extend_and_delete(self, message: tidelog.Message, delivery: Delivery) -> None:
        await trio.sleep(self._random.uniform(0, 1))
        asked_at = trio.current_time()
        is_certain = await _try(message.extend(_EXTENSION_S))
        delivery.extended(asked_at, _EXTENSION_S, is_certain=is_certain)
        if is_certain:
            await trio.sleep(self._random.uniform(0, 1))
        await self._delete([(message, delivery)])


async def _try(call: Awaitable[None]) -> bool:
    """Return whether the request took effect for certain."""
    try:
        await call
    except tidelog.TidelogError:
        return False
    return True

"""Programs that leave the receiving to the library: `queue.worker(handler)`.

What they are promised besides is the order of FIFO groups: a handler begins with a message when all
before it in its group are done for good.
"""

from functools import partial
from random import Random
from typing import Final, final

import trio

from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.machine.process import Process
from tests.simulation.queues.book import Delivered, Outcome, QueueBook, Wish
from tests.simulation.queues.plans import QueuePlan, QueueSetup
from tests.simulation.queues.users import QueueUser
from tidelog.client.client import Client, connect
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.receive.worker import QueueWorker, reason_of
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.queues import SettleAction

_VISIBILITY_MIN_S: Final = 1.0
"""Workers take no less."""
_WAIT_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.2
_FAILS: Final = 0.15
_IS_SLOW: Final = 0.1
_REJECTS: Final = 0.3
_SLOW: Final = 1.5
"""How many times its visibility timeout a slow handler takes, at most; it is extended meanwhile."""


class _CannotError(Exception):
    """A handler could not do its work."""


@final
class QueueHand:
    """One process with a worker for each queue."""

    def __init__(
        self,
        plan: QueuePlan,
        addresses: str,
        random: Random,
        *,
        book: QueueBook,
        sometimes: Sometimes,
    ) -> None:
        """Work as the plan says."""
        self.should_stop = False
        self._plan = plan
        self._addresses = addresses
        self._random = random
        self._book = book
        self._sometimes = sometimes
        self._visibility_s = max(_VISIBILITY_MIN_S, plan.visibility_s)
        self._workers: dict[str, QueueWorker] = {}

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        while not self.should_stop:
            try:
                async with (
                    connect(
                        self._addresses,
                        env=process.env,
                        client_name=process.name,
                        request_timeout=PATIENCE_S,
                    ) as client,
                    trio.open_nursery() as nursery,
                ):
                    for setup in self._plan.queues:
                        nursery.start_soon(self._work_at, client, setup)
                    nursery.start_soon(self._stop_in_time)
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _stop_in_time(self) -> None:
        while not self.should_stop:  # noqa: ASYNC110  (nobody tells)
            await trio.sleep(_LOOK_EVERY_S)
        for worker in self._workers.values():
            worker.stop()

    async def _work_at(self, client: Client, setup: QueueSetup) -> None:
        queue = client.queue(setup.name)
        user = QueueUser(queue, setup, self._book)
        while not self.should_stop:
            held: dict[tuple[int, int], Delivered] = {}
            worker = queue.worker(
                partial(self._handle, setup, held),
                concurrency=self._random.randint(1, 4),
                visibility_timeout=self._visibility_s,
                wait=_WAIT_S,
                on_error=partial(self._give_up, user, held),
            )
            self._workers[setup.name] = worker
            try:
                await worker.run()
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _handle(
        self, setup: QueueSetup, held: dict[tuple[int, int], Delivered], message: Message
    ) -> None:
        random = self._random
        delivered = self._delivered(setup, message)
        held[delivered.place] = delivered
        self._book.delivered(delivered)
        most_s = _SLOW * self._visibility_s if random.random() < _IS_SLOW else 0.0
        try:
            await trio.sleep(random.uniform(0.0, max(most_s, 2 * self._plan.work_mean_s)))
        except trio.Cancelled:
            # It is given back, unless others have it.
            self._book.wished(Wish(delivered, SettleAction.RELEASE, trio.current_time()))
            raise
        if random.random() < _FAILS:
            raise _CannotError
        self._sometimes.reached("handled")
        self._book.wished(Wish(delivered, SettleAction.DELETE, trio.current_time()))

    def _delivered(self, setup: QueueSetup, message: Message) -> Delivered:
        assert message.value is not None, "nobody sends messages without a value"
        return Delivered(
            setup.name,
            (message.partition, message.offset),
            message.value,
            message.key,
            message.receive_count,
            message.lease.receipt,
            self._visibility_s,
            # The worker does not say when it asked.
            max(0.0, message.lease.expires_at - self._visibility_s - PATIENCE_S),
            trio.current_time(),
            is_handled=True,
        )

    async def _give_up(
        self,
        user: QueueUser,
        held: dict[tuple[int, int], Delivered],
        message: Message,
        *,
        error: Exception,
    ) -> None:
        """Give back or reject what a handler failed with, for reasons without a traceback.

        That would have the names of files in it, and make another life in another directory.
        """
        assert isinstance(error, _CannotError), "nothing else is raised"
        delivered = held[message.partition, message.offset]
        reason = f"cannot {self._random.random():.4f}"
        action, ask = SettleAction.RELEASE, partial(_release, message, reason)
        if user.setup.dead_letter_queue is not None and self._random.random() < _REJECTS:
            action, ask = SettleAction.REJECT, partial(message.reject, reason)
        wish = Wish(delivered, action, trio.current_time(), reason=reason)
        if await user.settle(wish, ask) is not Outcome.DONE:
            # Then the worker gives it back, and says what the handler failed with.
            error.__traceback__ = None
            again = Wish(
                delivered, SettleAction.RELEASE, trio.current_time(), reason=reason_of(error)
            )
            self._book.wished(again)


async def _release(message: Message, reason: str) -> None:
    await message.release(reason=reason)

"""Workers of the library: `queue.worker(handler)`.

Their additional guarantee is the order of FIFO groups: a handler begins with a message when all
messages before it in its group are settled.
"""

# A worker does not report the times of its receives.
# pyright: reportPrivateUsage=false

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, cast, final

import trio

from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S, all_ask_as_older
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.machine.process import Process
from tests.simulation.queues.plans import QueuePlan, QueueSetup
from tests.simulation.queues.run_history import Delivered, Outcome, QueueRunHistory, Settlement
from tests.simulation.queues.users import QueueUser, SendTimes
from tidelog.client.client import Client, connect
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.receive.message_window import Receive
from tidelog.client.queue.receive.receiver import OnEnd
from tidelog.client.queue.receive.worker import QueueWorker, reason_of
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.queues import SettleAction

Along = Callable[..., object]
"""As `QueueReceiver.along`."""
Poll = Callable[..., object]
"""As `QueueReceiver.poll`."""

_VISIBILITY_MIN_S: Final = 1.0
"""Minimum visibility timeout of workers, in seconds."""
_WAIT_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.2
_FAILS: Final = 0.15
_IS_SLOW: Final = 0.1
_REJECTS: Final = 0.3
_SLOW: Final = 1.5
"""Maximum duration of a slow handler in visibility timeouts, which are extended meanwhile."""


class _CannotError(Exception):
    """A handler failed."""


@final
@dataclass(frozen=True, slots=True)
class _Workplace:
    """One queue, and the messages that its worker has received."""

    user: QueueUser
    send_times: SendTimes
    asked_at: dict[tuple[int, int, bytes], float] = field(
        default_factory=dict[tuple[int, int, bytes], float]
    )
    """By partition, offset and receipt: time of the request that returned the message."""
    held: dict[tuple[int, int], Delivered] = field(default_factory=dict[tuple[int, int], Delivered])
    """The last delivery of a handler, by place."""

    async def receive(
        self,
        receive: Receive,
        max_messages: int,
        *,
        visibility_timeout: float | None,
        wait: float | None,
        wire_id: bytes | None = None,
    ) -> list[Message]:
        """Receive like the worker, and record the time of the request."""
        asked_at = self.send_times.of_next_receive()
        messages = await receive(
            max_messages, visibility_timeout=visibility_timeout, wait=wait, wire_id=wire_id
        )
        self._note(messages, asked_at)
        return messages

    def along(self, along: Along, *what: object, **where: object) -> object:
        """Receive along with settlements like the worker, and record the time of the request."""
        options, settlements, on_end = what
        return along(options, settlements, self._noting(on_end), **where)

    def poll(self, poll: Poll, options: object, on_end: object, **how: object) -> object:
        """Poll like the worker, and record the time of the request."""
        return poll(options, self._noting(on_end), **how)

    def _noting(self, on_end: object) -> OnEnd:
        asked_at = trio.current_time()

        def end(messages: list[Message], error: TidelogError | None) -> None:
            self._note(messages, asked_at)
            cast("OnEnd", on_end)(messages, error)

        return end

    def _note(self, messages: list[Message], asked_at: float) -> None:
        for each in messages:
            self.asked_at[each.partition, each.offset, each.lease.receipt] = asked_at


@final
class LibraryWorker:
    """One process with a worker for each queue."""

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
                        client_id=process.name,
                        request_timeout=PATIENCE_S,
                    ) as client,
                    trio.open_nursery() as nursery,
                ):
                    if self._plan.has_older_readers:
                        all_ask_as_older(client)
                    for setup in self._plan.queues:
                        nursery.start_soon(self._work_at, client, setup)
                    nursery.start_soon(self._stop_in_time)
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _stop_in_time(self) -> None:
        while not self.should_stop:  # noqa: ASYNC110  (there is no event)
            await trio.sleep(_LOOK_EVERY_S)
        for worker in self._workers.values():
            worker.stop()

    async def _work_at(self, client: Client, setup: QueueSetup) -> None:
        queue = client.queue(setup.name)
        user, send_times = QueueUser(queue, setup, self._run_history), SendTimes(queue)
        receiver: Any = queue._receiver
        along: Along = receiver.along
        poll: Poll = receiver.poll
        while not self.should_stop:
            place = _Workplace(user, send_times)
            worker = queue.worker(
                partial(self._handle, place),
                concurrency=self._random.randint(1, 4),
                visibility_timeout=self._visibility_s,
                wait=_WAIT_S,
                on_error=partial(self._on_failure, place),
            )
            window = worker._window
            receive = partial(place.receive, window._queue.receive)
            window._queue = window._queue._replace(receive=receive)
            receiver.along = partial(place.along, along)
            receiver.poll = partial(place.poll, poll)
            self._workers[setup.name] = worker
            try:
                await worker.run()
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _handle(self, place: _Workplace, message: Message) -> None:
        random = self._random
        delivered = self._delivered(place, message)
        place.held[delivered.place] = delivered
        self._run_history.delivered(delivered)
        most_s = _SLOW * self._visibility_s if random.random() < _IS_SLOW else 0.0
        try:
            await trio.sleep(random.uniform(0.0, max(most_s, 2 * self._plan.work_mean_s)))
        except trio.Cancelled:
            # The message is released, unless another worker has it.
            self._run_history.settlement_asked(
                Settlement(delivered, SettleAction.RELEASE, trio.current_time())
            )
            raise
        if random.random() < _FAILS:
            raise _CannotError
        self._sometimes.reached("handled")
        self._run_history.settlement_asked(
            Settlement(delivered, SettleAction.DELETE, trio.current_time())
        )

    def _delivered(self, place: _Workplace, message: Message) -> Delivered:
        assert message.value is not None, "all messages have a value"
        return Delivered(
            place.user.setup.name,
            (message.partition, message.offset),
            message.value,
            message.key,
            message.receive_count,
            message.lease.receipt,
            self._visibility_s,
            place.asked_at[message.partition, message.offset, message.lease.receipt],
            trio.current_time(),
            is_handled=True,
        )

    async def _on_failure(self, place: _Workplace, message: Message, error: Exception) -> None:
        """Release or reject a failed handler's message, with a reason without a traceback.

        A traceback has file names, so another directory would give another run.
        """
        assert isinstance(error, _CannotError), "handlers raise no other error"
        self._sometimes.reached("handler failed")
        delivered = place.held[message.partition, message.offset]
        reason = f"cannot {self._random.random():.4f}"
        action, ask = SettleAction.RELEASE, partial(_release, message, reason)
        if place.user.setup.dead_letter_queue is not None and self._random.random() < _REJECTS:
            action, ask = SettleAction.REJECT, partial(message.reject, reason)
        settlement = Settlement(delivered, action, trio.current_time(), reason=reason)
        if await place.user.settle(settlement, ask) is not Outcome.DONE:
            # Then the worker releases it, with the handler's error as the reason.
            error.__traceback__ = None
            again = Settlement(
                delivered, SettleAction.RELEASE, trio.current_time(), reason=reason_of(error)
            )
            self._run_history.settlement_asked(again)


async def _release(message: Message, reason: str) -> None:
    await message.release(reason=reason)

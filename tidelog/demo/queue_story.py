"""The queue part of the demonstration: workers process the same records as messages.

Shell: workers receive and delete flights; they reject cancelled flights, which have no delay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import trio

from tidelog.client.client import Client
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.demo.errors import DemoFailedError
from tidelog.demo.flights import Flights

QUEUE, DEAD_LETTER_QUEUE = "delays", "cancelled"
WORKER_COUNT = 4
_BATCH = 500
_NO_DELAY = (b"NA", b"")
_REASON = "a cancelled flight has no delay"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """The outcome of the messages."""

    deleted: int
    dead: int
    seconds: float


async def work_through(
    client: Client, topic: str, flights: Flights, *, progressed: Callable[[int], None]
) -> QueueReport:
    """Create a queue on an existing topic, and settle all messages.

    Raises:
        DemoFailedError: A message was delivered twice, or is neither deleted nor a dead letter.
    """
    began_at = trio.current_time()
    await client.admin.create_queue(DEAD_LETTER_QUEUE)
    await client.admin.create_queue(QUEUE, topic=topic, dead_letter_queue=DEAD_LETTER_QUEUE)
    crew = _Crew(client.queue(QUEUE), flights, progressed)
    async with trio.open_nursery() as nursery:
        for _ in range(WORKER_COUNT):
            nursery.start_soon(crew.work)
    dead = await client.queue(QUEUE).dead_letters(len(flights.values))
    if crew.deleted_count + len(dead) != len(flights.values):
        raise DemoFailedError(
            f"of {len(flights.values)} messages {crew.deleted_count} were deleted and"
            f" {len(dead)} are dead letters"
        )
    seconds = trio.current_time() - began_at
    return QueueReport(deleted=crew.deleted_count, dead=len(dead), seconds=seconds)


@final
class _Crew:
    """The workers and their shared counts."""

    def __init__(self, queue: Queue, flights: Flights, progressed: Callable[[int], None]) -> None:
        self._queue = queue
        self._delay = flights.columns.index("dep_delay")
        self._count = len(flights.values)
        self._progressed = progressed
        self._seen: set[bytes] = set()
        self.deleted_count = 0

    async def work(self) -> None:
        """Receive and settle until every message was received."""
        while len(self._seen) < self._count:
            messages = await self._queue.receive(_BATCH, wait=1)
            for message in messages:
                if message.value is None or message.value in self._seen:
                    raise DemoFailedError(f"message {message.message_id} was delivered twice")
                self._seen.add(message.value)
            await self._settle(messages)
            self._progressed(len(self._seen))

    async def _settle(self, messages: Sequence[Message]) -> None:
        done = [message for message in messages if not self._is_cancelled(message)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._queue.delete_batch, done)
            for message in messages:
                if self._is_cancelled(message):
                    nursery.start_soon(message.reject, _REASON)
        self.deleted_count += len(done)

    def _is_cancelled(self, message: Message) -> bool:
        return (message.value or b"").split(b",")[self._delay] in _NO_DELAY

"""Client that redrives dead letters, and sometimes cancels a redrive."""

from random import Random
from typing import Final, final

import trio

from tests.simulation.broker.readers import PATIENCE_S
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.machine.process import Process
from tests.simulation.queues.connected import work_connected
from tests.simulation.queues.plans import QueuePlan
from tidelog.client.client import Client
from tidelog.client.queue.queue import Queue
from tidelog.wire.errors import InvalidRequestError

_CANCELS: Final = 0.25
_REPEATS: Final = 0.3
_WITH_ID: Final = 0.5
_ONLY_SOURCES: Final = 0.5
_RATES: Final = (None, None, 2, 20)


@final
class QueueRedriver:
    """Redrives the dead-letter queues of a run."""

    def __init__(
        self, plan: QueuePlan, addresses: str, random: Random, *, sometimes: Sometimes
    ) -> None:
        """Take the pause between two commands from the plan."""
        self.should_stop = False
        self._plan = plan
        self._addresses = addresses
        self._random = random
        self._sometimes = sometimes
        self._latest: tuple[str, bytes, bool] | None = None
        """Queue, id and restriction of the latest redrive with an id."""

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        await work_connected(
            process, self._addresses, self._redrive, should_stop=lambda: self.should_stop
        )

    async def _redrive(self, client: Client) -> None:
        pause_s = self._plan.redrive_pause_s
        assert pause_s is not None, "the plan has a redriver"
        await trio.sleep(min(self._random.expovariate(1 / pause_s), PATIENCE_S))
        source = self._random.choice(self._plan.sources_of_dead_letters)
        assert source.dead_letter_queue is not None, "the queue has a dead-letter queue"
        queue = client.queue(source.dead_letter_queue)
        if self._latest is not None and self._random.random() < _REPEATS:
            # As after a lost answer: the redrive may run, or be over.
            name, redrive_id, only_sources = self._latest
            await self._redrive_with_id(client.queue(name), redrive_id, only_sources=only_sources)
        elif self._random.random() < _CANCELS:
            await queue.cancel_redrive()
        elif self._random.random() < _WITH_ID:
            redrive_id = self._random.randbytes(16)
            only_sources = self._random.random() < _ONLY_SOURCES
            await self._redrive_with_id(queue, redrive_id, only_sources=only_sources)
        elif await queue.redrive(
            messages_per_s=self._random.choice(_RATES),
            only_from=self._random.choice([None, source.name]),
        ):
            self._sometimes.reached("dead letters redriven")

    async def _redrive_with_id(
        self, queue: Queue, redrive_id: bytes, *, only_sources: bool
    ) -> None:
        self._latest = (queue.name, redrive_id, only_sources)
        try:
            if await queue.redrive(redrive_id=redrive_id, only_sources=only_sources):
                self._sometimes.reached("dead letters redriven by id")
        except InvalidRequestError:
            self._latest = None  # Another redrive runs.

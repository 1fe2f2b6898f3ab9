"""A queue that is deleted and recreated under one name; each incarnation is independent."""

from random import Random
from typing import Final, final

import trio

from tests.simulation.broker.readers import PATIENCE_S
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.machine.process import Process
from tests.simulation.queues.connected import work_connected
from tests.simulation.queues.plans import QueuePlan, QueueSetup
from tests.simulation.queues.run_history import QueueRunHistory
from tests.simulation.queues.users import QueueUser
from tidelog.client.client import Client

_NAME: Final = "lodging"
_STAYS: Final = 0.2
"""Fraction of the queues that are left as they are, and resumed later."""
_RECEIVES_MAX: Final = 5
_DELETES: Final = 0.5


@final
class RecreatedQueues:
    """All queues that ever had the name, by their ids, across all recreating clients."""

    def __init__(self, plan: QueuePlan, run_history: QueueRunHistory) -> None:
        """Use the topic of the first queue that gets sends."""
        self.topic = next(setup.topic for setup in plan.queues if setup.is_sent_to)
        self._partition_count = next(
            setup.partition_count for setup in plan.queues if setup.is_sent_to
        )
        self._run_history = run_history
        self._by_id: dict[bytes, QueueSetup] = {}

    def of(self, queue_id: bytes) -> QueueSetup:
        """Return the queue of an id, under a name of its own."""
        setup = self._by_id.get(queue_id)
        if setup is None:
            setup = QueueSetup(
                f"{_NAME} {len(self._by_id)}",
                self.topic,
                self._partition_count,
                settings={"receive_acks": "all"},
                is_passing=True,
            )
            self._by_id[queue_id] = setup
            self._run_history.came(setup)
            self._run_history.created(setup.name, queue_id)
        return setup


@final
class QueueRecreator:
    """Creates a queue, uses it, and deletes it."""

    def __init__(
        self,
        plan: QueuePlan,
        addresses: str,
        random: Random,
        *,
        recreated_queues: RecreatedQueues,
        run_history: QueueRunHistory,
        sometimes: Sometimes,
    ) -> None:
        """Create the only client that does so."""
        self.should_stop = False
        self._plan = plan
        self._addresses = addresses
        self._random = random
        self._recreated_queues = recreated_queues
        self._run_history = run_history
        self._sometimes = sometimes

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        await work_connected(
            process, self._addresses, self._recreate, should_stop=lambda: self.should_stop
        )

    async def _recreate(self, client: Client) -> None:
        random = self._random
        assert self._plan.recreation_pause_s is not None, "the plan has a recreator"
        await trio.sleep(min(random.expovariate(1 / self._plan.recreation_pause_s), PATIENCE_S))
        created = await client.admin.create_queue(
            _NAME,
            topic=self._recreated_queues.topic,
            start=random.choice(["earliest", "latest"]),
            receive_acks="all",
        )
        setup = self._recreated_queues.of(created.queue_id)
        user = QueueUser(client.queue(_NAME), setup, self._run_history)
        for _ in range(random.randint(0, _RECEIVES_MAX)):
            received = await user.receive(
                random.choice([1, 10]), visibility_s=self._plan.visibility_s, wait_s=0.5
            )
            if received and random.random() < _DELETES:
                await user.delete(received)
        if random.random() >= _STAYS:
            await client.admin.delete_queue(_NAME)
            self._sometimes.reached("queue came and went")

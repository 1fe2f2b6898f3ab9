"""Client that periodically adds partitions to a topic."""

from random import Random
from typing import final

import trio

from tests.simulation.broker.administrator import administer
from tests.simulation.broker.partition_growth import Growth
from tests.simulation.broker.readers import PATIENCE_S
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.machines import addresses
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.machine.broker_host import TOPIC
from tests.simulation.machine.process import Process
from tidelog.client.admin.admin import Admin


@final
class GrowthIsCommitted:
    """Passes partition counts on to the checkers of nodes."""

    def __init__(self, cluster_history: ClusterHistory) -> None:
        """Report to `history`."""
        self._cluster_history = cluster_history

    def growing(self, count: int) -> None:
        """See `tests.simulation.broker.partition_growth.Promise`."""

    def seen(self, count: int, asked_at: float) -> None:
        """See `tests.simulation.broker.partition_growth.Promise`."""
        del asked_at
        self._cluster_history.told_partitions(TOPIC, count)


@final
class Grower:
    """Adds partitions until it is told to stop, and then checks the partition count once more."""

    def __init__(self, plan: ClusterPlan, random: Random, growth: Growth) -> None:
        """Take the pause between two commands from the plan."""
        self.should_stop = False
        self._plan = plan
        self._random = random
        self._growth = growth

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        await administer(process, addresses(self._plan), self._work)

    async def _work(self, admin: Admin) -> None:
        pause_s = self._plan.grow_pause_s
        assert pause_s is not None, "the plan has a grower"
        await self._look(admin)
        while not self.should_stop:
            await trio.sleep(min(self._random.expovariate(1 / pause_s), PATIENCE_S))
            await self._growth.add(admin, self._random.random())
            await self._look(admin)

    async def _look(self, admin: Admin) -> None:
        asked_at = trio.current_time()
        (topic,) = await admin.describe_topics([TOPIC])
        self._growth.seen(len(topic.partitions), asked_at)

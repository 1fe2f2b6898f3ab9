"""A client that adds partitions to a topic, now and then."""

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
    """What is said of the number of partitions goes to the checkers of nodes."""

    def __init__(self, cluster_history: ClusterHistory) -> None:
        """Tell `history`."""
        self._cluster_history = cluster_history

    def growing(self, count: int) -> None:
        """See `tests.simulation.broker.partition_growth.Promise`."""

    def seen(self, count: int, asked_at: float) -> None:
        """See `tests.simulation.broker.partition_growth.Promise`."""
        del asked_at
        self._cluster_history.told_partitions(TOPIC, count)


@final
class Grower:
    """Has a topic grow until it is told to stop, and then looks once more how large it is."""

    def __init__(self, plan: ClusterPlan, random: Random, growth: Growth) -> None:
        """Rest between two commands as the plan says."""
        self.should_stop = False
        self._plan = plan
        self._random = random
        self._growth = growth

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        await administer(process, addresses(self._plan), self._work)

    async def _work(self, admin: Admin) -> None:
        pause_s = self._plan.grow_pause_s
        assert pause_s is not None, "there is one who does it"
        await self._look(admin)
        while not self.should_stop:
            await trio.sleep(min(self._random.expovariate(1 / pause_s), PATIENCE_S))
            await self._growth.add(admin, self._random.random())
            await self._look(admin)

    async def _look(self, admin: Admin) -> None:
        asked_at = trio.current_time()
        (topic,) = await admin.describe_topics([TOPIC])
        self._growth.seen(len(topic.partitions), asked_at)

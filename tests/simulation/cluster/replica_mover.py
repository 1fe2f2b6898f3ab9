"""Client that periodically moves leaderships and replicas of a topic."""

from random import Random
from typing import final

import trio

from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.cluster.machines import addresses
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.machine.broker_host import TOPIC
from tests.simulation.machine.process import Process
from tidelog.client.admin.admin import Admin
from tidelog.client.client import connect
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.reassignment import PartitionMove

_ELECTS = 0.4
_CANCELS = 0.1


@final
class Mover:
    """Elects preferred leaders, changes the preferred replicas, and reassigns replicas."""

    def __init__(self, plan: ClusterPlan, random: Random, sometimes: Sometimes) -> None:
        """Take the pause between two commands from the plan."""
        self.should_stop = False
        self._plan = plan
        self._random = random
        self._sometimes = sometimes

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        while not self.should_stop:
            try:
                async with connect(
                    addresses(self._plan), env=process.env, request_timeout=PATIENCE_S
                ) as client:
                    await self._work(client.admin)
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _work(self, admin: Admin) -> None:
        pause_s = self._plan.move_pause_s
        assert pause_s is not None, "the plan has a mover"
        while not self.should_stop:
            dice = self._random.random()
            if dice < _ELECTS:
                if any(each.error is None for each in await admin.elect_leaders(TOPIC)):
                    self._sometimes.reached("leader moved")
            else:
                await self._move(admin, is_cancelled=dice < _ELECTS + _CANCELS)
            await trio.sleep(min(self._random.expovariate(1 / pause_s), PATIENCE_S))

    async def _move(self, admin: Admin, *, is_cancelled: bool) -> None:
        number = self._random.randrange(self._plan.partition_count)
        replicas = self._random.sample(self._plan.node_ids, self._plan.replication_factor)
        move = PartitionMove(TOPIC, number, None if is_cancelled else replicas)
        for moved in await admin.reassign([move]):
            if moved.error is None and moved.is_under_way:
                self._sometimes.reached("replica moved")

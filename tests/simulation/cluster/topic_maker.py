"""Client that creates, alters and deletes topics under a few recurring names."""

from random import Random
from typing import Final, final

import trio

from tests.simulation.broker.administrator import administer
from tests.simulation.broker.readers import BACKOFF_S
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.machines import addresses
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.machine.process import Process
from tidelog.client.admin.admin import Admin
from tidelog.wire.errors import InvalidTopicError, TidelogError, TopicExistsError, UnknownTopicError

NAMES: Final = ("delays", "gates", "crews")
_PARTITIONS_MAX = 3
_DELETES = 0.3
_ALTERS = 0.3
_LOOKS = 0.15
_RETENTIONS: Final = ("1h", "1d", "7d")


@final
class TopicMaker:
    """Creates, alters and deletes topics under names that no other client uses.

    When it is told to stop, it creates one more topic: the proof that the cluster still decides.
    """

    def __init__(
        self,
        plan: ClusterPlan,
        pause_s: float,
        random: Random,
        *,
        cluster_history: ClusterHistory,
        sometimes: Sometimes,
    ) -> None:
        """Pause for `pause_s` between two commands, on average."""
        self.should_stop = False
        self._plan = plan
        self._pause_s = pause_s
        self._random = random
        self._cluster_history = cluster_history
        self._sometimes = sometimes

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        await administer(process, addresses(self._plan), self._work)

    async def _work(self, admin: Admin) -> None:
        while not self.should_stop:
            name = self._random.choice(NAMES)
            dice = self._random.random()
            if dice < _DELETES:
                await self._delete(admin, name)
            elif dice < _DELETES + _ALTERS:
                await self._alter(admin, name)
            elif dice < _DELETES + _ALTERS + _LOOKS:
                for topic in await admin.describe_topics():
                    self._cluster_history.told_created(topic.name, topic.topic_id)
            else:
                await self._create(admin, name)
            await trio.sleep(self._random.expovariate(1 / self._pause_s))
        while not await self._create(admin, NAMES[0]):
            await self._delete(admin, NAMES[0])

    async def _create(self, admin: Admin, name: str) -> bool:
        """Return whether the topic was created now."""
        try:
            partition_count = self._random.randint(1, _PARTITIONS_MAX)
            reply = await admin.create_topic(
                name, partition_count, replication_factor=self._plan.replication_factor
            )
        except TopicExistsError:
            return False
        except InvalidTopicError:  # No broker has registered yet to host it.
            await trio.sleep(BACKOFF_S)
            return False
        except TidelogError:
            self._sometimes.reached("creation unknown")
            raise
        self._cluster_history.told_created(name, reply.topic_id)
        self._sometimes.reached("topic created")
        return True

    async def _alter(self, admin: Admin, name: str) -> None:
        settings = {"retention_ms": self._random.choice(_RETENTIONS)}
        asked_at = trio.current_time()
        try:
            await admin.alter_topic(name, set=settings)
        except UnknownTopicError:
            return
        self._cluster_history.told_altered(name, settings, asked_at)
        self._sometimes.reached("topic altered")

    async def _delete(self, admin: Admin, name: str) -> None:
        asked_at = trio.current_time()
        try:
            await admin.delete_topic(name)
        except UnknownTopicError:
            return
        except TidelogError:
            self._sometimes.reached("deletion unknown")
            raise
        self._cluster_history.told_deleted(name, asked_at)
        self._sometimes.reached("topic deleted")

"""An administrator who accepts the loss of what was in memory only, where nobody can have it.

A careful one: not before the cluster says that nobody is left who is known to have all that was
committed, and who led last is back, or, if that has lost its files, everybody is.
"""

from collections.abc import Mapping
from typing import final

import trio

from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.machines import addresses
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.machine.process import Process
from tidelog.client.client import connect
from tidelog.coordinator.metadata.catalog import queue_of_journal, topic_of_staging
from tidelog.coordinator.metadata.records import BrokerRegistration, PartitionRegistration
from tidelog.wire.errors import TidelogError

_LOOK_S = 0.5


@final
class LossAcceptor:
    """Looks at the partitions of all topics now and then, journals of queues included."""

    def __init__(
        self, plan: ClusterPlan, cluster_history: ClusterHistory, sometimes: Sometimes
    ) -> None:
        """Look at what `history` say is agreed on."""
        self._plan = plan
        self._cluster_history = cluster_history
        self._sometimes = sometimes

    async def run(self, process: Process) -> None:
        """Work until cancelled."""
        while True:
            await trio.sleep(_LOOK_S)
            lost = self._lost_partitions()
            if not lost:
                continue
            try:
                async with connect(
                    addresses(self._plan), env=process.env, request_timeout=PATIENCE_S
                ) as client:
                    elected = await client.admin.elect_leaders(lost, accept_data_loss=True)
            except TidelogError:
                await trio.sleep(BACKOFF_S)
                continue
            if any(each.may_have_lost_data for each in elected):
                self._sometimes.reached("loss accepted")

    def _lost_partitions(self) -> list[tuple[str, int]]:
        """Return the partitions that nobody can lead any more without a loss.

        With what stands beside a topic, for whoever accepts a loss accepts it of all of them.
        """
        state = self._cluster_history.image.state
        found: list[tuple[str, int]] = []
        for topic in state.catalog.topics:
            if queue_of_journal(topic.name) or topic_of_staging(topic.name):
                continue
            topics = [topic, *state.catalog.internal_topics_of(topic.topic_id)]
            for number in range(topic.partition_count):
                partitions = [state.partition(each.topic_id, number) for each in topics]
                lost = [each for each in partitions if each is not None and _is_lost(each)]
                if lost and all(_is_best_there(each, state.brokers) for each in lost):
                    found.append((topic.name, number))
        return found


def _is_lost(partition: PartitionRegistration) -> bool:
    return (
        partition.leader is None
        and not partition.in_sync_replicas
        and not partition.eligible_leader_replicas
    )


def _is_best_there(
    partition: PartitionRegistration, brokers: Mapping[int, BrokerRegistration]
) -> bool:
    """Return whether who led last is back, and has its files, or else everybody is."""
    last = partition.last_known_leader
    if last is not None and last not in partition.wiped_replicas:
        return not brokers[last].is_fenced
    return not any(brokers[node].is_fenced for node in partition.replicas)

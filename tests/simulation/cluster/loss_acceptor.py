"""Administrator that accepts the loss of records in memory where no replica can have them.

It is careful. It waits until the cluster reports that no remaining replica is known to have all
committed records. It also waits until the last leader is back or, if that has lost its files, until
all replicas are back.
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
    """Checks the partitions of all topics periodically, including journals of queues."""

    def __init__(
        self, plan: ClusterPlan, cluster_history: ClusterHistory, sometimes: Sometimes
    ) -> None:
        """Read the committed metadata from `history`."""
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
        """Return the partitions that no replica can lead any more without a loss.

        The companions of a topic are included, because an accepted loss applies to all of them.
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
    """Return whether the last leader is back with its files, or else all replicas are."""
    last = partition.last_known_leader
    if last is not None and last not in partition.wiped_replicas:
        return not brokers[last].is_fenced
    return not any(brokers[node].is_fenced for node in partition.replicas)

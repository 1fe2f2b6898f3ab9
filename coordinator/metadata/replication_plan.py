"""The plan for another replication factor: which replicas existing partitions get or lose.

Pure: no clock, no I/O, no randomness. The replicas that stay keep their order, so the preferred
leader stays. New replicas go to live brokers that are not drained, by the rules of placement.

A partition never loses its leader. It loses replicas that lack records first, then those on drained
brokers, then those on the brokers with the highest load. So the last replica with all committed
records stays. The journals of a topic's queues follow it: they count, but are not named.
"""

from collections.abc import Iterable, Sequence
from typing import final

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.commands import Reassignment
from tidelog.coordinator.metadata.placement import PlacementCandidate, ReplicaPlacer
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.topic_config import REPLICATION_FACTOR_MAX
from tidelog.wire.errors import InvalidTopicError


def plan_replication_factor(
    state: ClusterState, replication_factor: int, topics: Iterable[Topic] | None = None
) -> list[Reassignment]:
    """Return reassignments after which each partition has so many replicas, none if all have.

    A partition that is on the way to the replication factor already is named with the replicas that
    it will have.

    Args:
        state: The state of the cluster.
        replication_factor: Replicas per partition.
        topics: Topics that get more or fewer replicas; `None` for all, which only get more.

    Raises:
        InvalidTopicError: There are not enough brokers, or a topic's `min_insync_replicas` is
            higher than the replication factor.
    """
    if not 1 <= replication_factor <= REPLICATION_FACTOR_MAX:
        raise InvalidTopicError(
            f"{replication_factor} replicas are not possible: there can be 1 to"
            f" {REPLICATION_FACTOR_MAX}"
        )
    plan = _Plan(state, replication_factor, may_remove=topics is not None)
    return [
        move
        for topic in (state.catalog.record_topics if topics is None else topics)
        for move in plan.moves(topic)
    ]


def check_minimum(topic: Topic, replication_factor: int) -> None:
    """Check that a topic may have so few replicas.

    Raises:
        InvalidTopicError: The topic's own `min_insync_replicas` is higher.
    """
    minimum = topic.config.min_insync_replicas
    if "min_insync_replicas" in topic.overrides and minimum > replication_factor:
        raise InvalidTopicError(
            f"{replication_factor} replicas are too few: min_insync_replicas of topic"
            f" {topic.name!r} is {minimum}; lower it first, with `tidelog topic alter"
            f" {topic.name} --set min_insync_replicas={replication_factor}`"
        )


@final
class _Plan:
    """The replicas planned so far, as load of the brokers."""

    def __init__(self, state: ClusterState, replication_factor: int, *, may_remove: bool) -> None:
        self._state = state
        self._factor = replication_factor
        self._may_remove = may_remove
        self._takers = {
            node_id
            for node_id, broker in state.brokers.items()
            if broker.can_lead and node_id not in state.drained_node_ids
        }
        self._placer = ReplicaPlacer(
            PlacementCandidate(
                node_id,
                broker.rack,
                is_live=broker.can_lead,
                replica_count=state.index.load(node_id).replica_count,
                preferred_count=state.index.load(node_id).preferred_count,
                can_take=node_id in self._takers,
            )
            for node_id, broker in state.brokers.items()
        )

    def moves(self, topic: Topic) -> list[Reassignment]:
        """Return the reassignments of one topic."""
        internal = self._state.catalog.internal_topics_of(topic.topic_id)
        colocated = [topic.topic_id, *(each.topic_id for each in internal)]
        found: list[Reassignment] = []
        for number, partition in enumerate(self._state.partitions(topic.topic_id)):
            present = partition.target_replicas
            if len(present) == partition.replication_factor == self._factor:
                continue
            if len(present) > self._factor and not self._may_remove:
                continue
            check_minimum(topic, self._factor)
            if len(present) > self._factor:
                replicas = self._fewer(partition, colocated, number)
            else:
                self._check_enough_brokers(topic, present)
                replicas = self._placer.add(present, self._factor, weight=len(colocated))
            found.append(Reassignment(topic.topic_id, number, list(replicas)))
        return found

    def _check_enough_brokers(self, topic: Topic, present: Sequence[int]) -> None:
        broker_count = len(self._takers.union(present))
        if broker_count < self._factor:
            raise InvalidTopicError(
                f"topic {topic.name!r} cannot have {self._factor} replicas: the number of brokers"
                f" for them, alive and not drained, is {broker_count}; start more brokers, or end"
                " a draining with `tidelog broker drain NODE --cancel`"
            )

    def _fewer(
        self, partition: PartitionRegistration, colocated: Sequence[bytes], number: int
    ) -> tuple[int, ...]:
        state = self._state
        partitions = [state.partitions(topic_id)[number] for topic_id in colocated]

        def reluctance(node_id: int) -> tuple[int, ...]:
            return (
                node_id == partition.leader,
                node_id in partition.in_sync_or_eligible,
                all(node_id in each.in_sync_replicas for each in partitions),
                any(node_id == each.leader for each in partitions),
                node_id not in state.drained_node_ids,
                state.brokers[node_id].can_lead,
            )

        return self._placer.remove(
            partition.target_replicas, self._factor, reluctance=reluctance, weight=len(colocated)
        )

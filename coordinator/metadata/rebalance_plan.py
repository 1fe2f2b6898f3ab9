"""The rebalance plan: replica moves that make the loads of brokers equal.

Pure: no clock, no I/O, no randomness. It serves brokers that joined and brokers that leave.
Replicas move one by one from the broker with the highest load to the one with the lowest. A move
never puts two replicas of a partition on one broker. It puts two into one rack only if two were in
one rack before, or if a broker leaves and no other domain is left. The journals of a topic's queues
move with it, so they count but are not named. Then another replica becomes the first one where a
broker is preferred more often than others: that copies nothing. Drained brokers lose all their
replicas.
"""

from collections.abc import Collection, Iterator
from typing import final

from tidelog.coordinator.metadata.commands import Reassignment
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.coordinator.metadata.state import ClusterState

Key = tuple[bytes, int]
"""Topic id and number of a partition."""


def plan_moves(
    state: ClusterState, *, moves_max: int, leaving: Collection[int] = ()
) -> list[Reassignment]:
    """Return reassignments that make the loads of brokers more equal, none if they are.

    Args:
        state: The state of the cluster.
        moves_max: The maximum number of replicas that move at once: each is copied as a whole.
        leaving: Brokers that lose all their replicas.
    """
    plan = _Plan(state, leaving)
    while plan.move_count < moves_max and plan.move_one():
        pass
    while plan.prefer_others():
        pass
    return plan.reassignments()


def plan_replacement(state: ClusterState, lost: int, replacement: int) -> list[Reassignment]:
    """Return reassignments that give the replicas of one broker to another, in the same positions.

    If the replacement has a replica of a partition already, a third broker gets this one, if any
    can.
    """
    plan = _Plan(state, (lost,), replacement)
    while plan.move_one():
        pass
    return plan.reassignments()


@final
class _Plan:
    """The planned assignments.

    Invariant: each partition has as many replicas as before.
    """

    def __init__(
        self, state: ClusterState, leaving: Collection[int], replacement: int | None = None
    ) -> None:
        self._state = state
        self._leaving = {*leaving, *state.drained_node_ids} if replacement is None else {*leaving}
        self._heir = replacement
        self._planned: dict[Key, tuple[int, ...]] = {}
        self._loads = {
            node_id: state.index.load(node_id).replica_count for node_id in sorted(state.brokers)
        }
        self._preferred = {
            node_id: state.index.load(node_id).preferred_count for node_id in self._loads
        }
        self._targets = [
            node_id
            for node_id in self._loads
            if state.brokers[node_id].can_lead
            and node_id not in self._leaving
            and node_id not in state.drained_node_ids
        ]
        self._weights = {
            topic.topic_id: (
                0
                if topic.is_internal
                else 1 + len(state.catalog.internal_topics_of(topic.topic_id))
            )
            for topic in state.catalog.topics
        }
        """Replicas that move with one replica of a topic, itself included; 0 for an internal
        topic."""
        self._next: dict[int, Iterator[tuple[Key, tuple[int, ...]]]] = {}
        self.move_count = 0

    def move_one(self) -> bool:
        """Plan one more move; return whether there was one."""
        for source in self._sources():
            is_leaving = source in self._leaving
            targets = sorted(self._targets, key=self._reluctance)
            for target in targets:
                # A heavier topic would only reverse the difference.
                most = self._loads[source] - self._loads[target] - 1
                can_take = is_leaving or most >= 1
                weight_max = None if is_leaving else most
                if can_take and self._move(
                    source, target, weight_max, may_crowd=target == self._heir
                ):
                    return True
            if is_leaving and any(
                self._move(source, each, None, may_crowd=True) for each in targets
            ):
                return True
        return False

    def _reluctance(self, target: int) -> tuple[bool, int]:
        return (target != self._heir, self._loads[target])

    def prefer_others(self) -> bool:
        """Plan other preferred leaders, in one pass; return whether any changed."""
        has_changed = False
        for source in sorted(self._loads, key=lambda node: -self._preferred[node]):
            for key, replicas in self._replicas_of(source):
                others = [node for node in replicas[1:] if node in self._targets]
                replacement = min(others, key=lambda node: self._preferred[node], default=source)
                weight = self._weight(key)
                difference = self._preferred[source] - self._preferred[replacement]
                if replicas[0] == source and difference > weight:
                    rest = tuple(node for node in replicas if node != replacement)
                    self._planned[key] = (replacement, *rest)
                    self._preferred[source] -= weight
                    self._preferred[replacement] += weight
                    has_changed = True
        return has_changed

    def reassignments(self) -> list[Reassignment]:
        """Return the plan."""
        return [
            Reassignment(topic_id, number, list(replicas))
            for (topic_id, number), replicas in self._planned.items()
        ]

    def _sources(self) -> list[int]:
        """Return the brokers that lose replicas: leaving ones first, then by falling load."""
        if self._heir is not None:
            return sorted(self._leaving)
        leaving = [node for node in self._loads if node in self._leaving and self._loads[node]]
        staying = sorted(self._targets, key=lambda node: -self._loads[node])
        return [*leaving, *staying]

    def _move(self, source: int, target: int, weight_max: int | None, *, may_crowd: bool) -> bool:
        # Continues after the last move from this source, then once around: a plan of many moves
        # must
        # not check every partition for each of them.
        for replicas_left in (self._next.get(source, iter(())), self._replicas_of(source)):
            self._next[source] = replicas_left
            for key, replicas in replicas_left:
                weight = self._weight(key)
                if target in replicas or (weight_max is not None and weight > weight_max):
                    continue
                if not may_crowd and not self._keeps_apart(replicas, source, target):
                    continue
                moved = tuple(target if node == source else node for node in replicas)
                self._planned[key] = moved
                if replicas[0] == source:
                    self._preferred[source] -= weight
                    self._preferred[target] += weight
                self._loads[source] -= weight
                self._loads[target] += weight
                self.move_count += weight
                return True
        return False

    def _replicas_of(self, node_id: int) -> Iterator[tuple[Key, tuple[int, ...]]]:
        for topic_id in self._state.index.topic_ids(node_id):
            if not self._weights[topic_id]:
                continue
            for number, partition in enumerate(self._state.partitions(topic_id)):
                replicas = self._replicas(topic_id, number, partition)
                if node_id in replicas and not partition.is_reassigning:
                    yield (topic_id, number), replicas

    def _weight(self, key: Key) -> int:
        return self._weights[key[0]]

    def _replicas(
        self, topic_id: bytes, number: int, partition: PartitionRegistration
    ) -> tuple[int, ...]:
        return self._planned.get((topic_id, number), partition.replicas)

    def _keeps_apart(self, replicas: tuple[int, ...], source: int, target: int) -> bool:
        others = [self._domain(node) for node in replicas if node != source]
        return others.count(self._domain(target)) <= others.count(self._domain(source))

    def _domain(self, node_id: int) -> str:
        return self._state.brokers[node_id].rack or f"node {node_id}"

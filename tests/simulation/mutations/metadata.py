"""Mutations of metadata, which random runs must find.

Each replaces functions of the code under test for the duration of a block. The code itself contains
none of it.
"""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from tests.simulation.mutations.mutation import Mutation
from tidelog.coordinator.metadata import (
    broker_commands,
    catalog,
    feature_commands,
    leader_election,
    partition_changes,
    partition_commands,
    queue_commands,
    topic_commands,
)
from tidelog.coordinator.metadata.catalog import Catalog, Topic
from tidelog.coordinator.metadata.commands import (
    CommandOutcome,
    FailedReplica,
    FenceBroker,
    InSyncReplica,
    RegisterBroker,
    RemoveFromIsr,
)
from tidelog.coordinator.metadata.leader_election import Assignment, ElectionContext, PartitionEvent
from tidelog.coordinator.metadata.partition_changes import PartitionChangeBuilder
from tidelog.coordinator.metadata.records import (
    BrokerRegistration,
    ClusterSnapshot,
    PartitionRegistration,
    Record,
)
from tidelog.coordinator.metadata.state import ClusterState

_in_sync = leader_election._in_sync
_elect = leader_election.elect
_snapshot = ClusterState.snapshot
_catalog_snapshot = Catalog.snapshot
_register = broker_commands._register
_current_broker = broker_commands.current_broker
_check_in_sync = partition_commands._check_in_sync
_eligible = leader_election._eligible
_fence = broker_commands._fence
_after_restart = broker_commands._after_restart
_remove_from_isr = partition_commands._remove_from_isr
_elect_clean = leader_election._elect_clean
_apply_event = PartitionChangeBuilder.apply_event


def _in_sync_though_fenced(
    partition: PartitionRegistration,
    event: PartitionEvent,
    replicas: tuple[int, ...],
    *,
    context: ElectionContext,
) -> tuple[int, ...]:
    if event.in_sync_replicas is None:
        return _in_sync(partition, event, replicas, context=context)
    return tuple(node for node in replicas if node in event.in_sync_replicas)


def _nothing(*_: object, **__: object) -> None:
    pass


def _check_without_broker_epochs(
    state: ClusterState,
    leader: int,
    wanted: Sequence[InSyncReplica],
    *,
    partition: PartitionRegistration,
) -> None:
    current = [
        replace(replica, broker_epoch=state.brokers[replica.node_id].broker_epoch)
        for replica in wanted
    ]
    _check_in_sync(state, leader, current, partition=partition)


def _knows_only_what_is_there(self: Catalog, topic_id: bytes) -> bool:
    return topic_id in self._by_id


def _no_obstacles(*_: object) -> list[str]:
    return []


def _never(*_: object) -> bool:
    return False


def _all_that_are_not_in_sync(
    partition: PartitionRegistration,
    event: PartitionEvent,
    assignment: Assignment,
    *,
    in_sync: tuple[int, ...],
    context: ElectionContext,
) -> tuple[int, ...]:
    minimum = context.min_insync_replicas(
        len(assignment.replicas) - len(assignment.adding_replicas)
    )
    if len(in_sync) >= minimum:
        return ()
    return tuple(
        node
        for node in assignment.replicas
        if node not in in_sync and node not in event.lost and partition.replicas
    )


def _only_replicas_that_leave_now(
    partition: PartitionRegistration,
    event: PartitionEvent,
    assignment: Assignment,
    *,
    in_sync: tuple[int, ...],
    context: ElectionContext,
) -> tuple[int, ...]:
    forgetful = replace(partition, eligible_leader_replicas=())
    return _eligible(forgetful, event, assignment, in_sync=in_sync, context=context)


def _epoch_of_leaders_only(
    partition: PartitionRegistration, event: PartitionEvent, context: ElectionContext
) -> PartitionRegistration:
    after = _elect(partition, event, context)
    if after.leader is None and partition.leader is not None:
        return replace(after, leader_epoch=partition.leader_epoch)
    return after


def _complete_at_once(
    assignment: Assignment, in_sync: tuple[int, ...]
) -> tuple[Assignment, tuple[int, ...]]:
    staying = tuple(
        node for node in assignment.replicas if node not in assignment.removing_replicas
    )
    left = tuple(node for node in in_sync if node in staying)
    return (Assignment(staying), left) if left else (assignment, in_sync)


def _any_process(state: ClusterState, node_id: int, broker_epoch: int) -> BrokerRegistration:
    broker = state.brokers.get(node_id)
    if broker is None:
        return _current_broker(state, node_id, broker_epoch)
    return broker


def _fence_any_process(state: ClusterState, command: FenceBroker) -> CommandOutcome:
    broker = state.brokers.get(command.node_id)
    epoch = command.broker_epoch if broker is None else broker.broker_epoch
    return _fence(state, replace(command, broker_epoch=epoch))


def _register_every_time(
    state: ClusterState, command: RegisterBroker, now_ms: int
) -> CommandOutcome:
    another = replace(command, incarnation_id=f"{state.next_broker_epoch}", known_epoch=None)
    return _register(state, another, now_ms)


def _same_disk(
    state: ClusterState,
    command: RegisterBroker,
    previous: BrokerRegistration,
    *,
    broker: BrokerRegistration,
) -> list[Record]:
    return _after_restart(state, command, replace(previous, disk_id=broker.disk_id), broker=broker)


def _snapshot_without_deleted_ids(self: ClusterState) -> ClusterSnapshot:
    snapshot = _snapshot(self)
    return replace(snapshot, catalog=replace(snapshot.catalog, deleted_ids=[]))


def _snapshot_without_durability(self: ClusterState) -> ClusterSnapshot:
    snapshot = _snapshot(self)
    topics = [replace(topic, fsync_since_broker_epoch=0) for topic in snapshot.topics]
    return replace(snapshot, topics=topics)


def _remove_in_any_case(
    partition: PartitionRegistration,
    node_id: int,
    brokers: Mapping[int, BrokerRegistration],
    *,
    replica: FailedReplica,
) -> bool:
    del brokers, replica
    return node_id in (*partition.in_sync_replicas, *partition.eligible_leader_replicas)


def _remove_as_if_it_were_only_full(state: ClusterState, command: RemoveFromIsr) -> CommandOutcome:
    replicas = [replace(replica, may_lack_records=False) for replica in command.replicas]
    return _remove_from_isr(state, replace(command, replicas=replicas))


def _remove_for_good_when_offline(state: ClusterState, command: RemoveFromIsr) -> CommandOutcome:
    replicas = [
        replace(replica, may_lack_records=replica.may_lack_records or replica.is_offline)
        for replica in command.replicas
    ]
    return _remove_from_isr(state, replace(command, replicas=replicas))


def _lead_though_offline(
    partition: PartitionRegistration,
    candidates: leader_election._Candidates,
    context: ElectionContext,
) -> int | None:
    return _elect_clean(partition, dataclasses.replace(candidates, offline=()), context)


def _event_without_starts(**what: Collection[int]) -> PartitionEvent:
    return PartitionEvent(lost=what["lost"], unclean=what["unclean"])


def _alone(self: PartitionChangeBuilder, topic: Topic) -> list[Topic]:
    del self, topic
    return []


def _complete_when_it_is_ready_itself(
    self: PartitionChangeBuilder, topic: Topic, number: int, event: PartitionEvent
) -> list[partition_changes.PartitionTransition]:
    wanted = [(topic, event)]
    if event.assignment is not None:
        wanted += [(other, event) for other in self._colocated_topics(topic)]
    return self._next(wanted, number, may_complete=True)


def _no_records(*_: object) -> list[Record]:
    return []


def _catalog_snapshot_without_settings_of_queues(self: Catalog) -> catalog.CatalogSnapshot:
    snapshot = _catalog_snapshot(self)
    topics = [
        topic if topic.queue is None else replace(topic, queue=replace(topic.queue, overrides={}))
        for topic in snapshot.topics
    ]
    return replace(snapshot, topics=topics)


def _happen_here_and_now(
    self: PartitionChangeBuilder,
    topic: Topic,
    number: int,
    event: PartitionEvent = leader_election.NO_EVENT,
) -> PartitionRegistration:
    after = _apply_event(self, topic, number, event)
    partitions = self._state._partitions[topic.topic_id]
    partitions[number] = after
    return after


MUTATIONS: Final = (
    Mutation(
        "fenced-in-sync",
        "a late ISR change brings a fenced broker back (KIP-841)",
        (partition_commands, "_check_in_sync", _nothing),
        (leader_election, "_in_sync", _in_sync_though_fenced),
    ),
    Mutation(
        "other-process-in-sync",
        "a late ISR change adds a restarted broker, perhaps without records (KIP-903)",
        (partition_commands, "_check_in_sync", _check_without_broker_epochs),
    ),
    Mutation(
        "stale-partition-epoch",
        "an ISR change of a leader that has not seen the last one is accepted (KIP-497)",
        (partition_commands, "_check_partition_epoch", _nothing),
    ),
    Mutation(
        "created-twice",
        "a repeated creation brings a deleted topic back",
        (Catalog, "knows", _knows_only_what_is_there),
    ),
    Mutation(
        "unclean-stays-eligible",
        "a replica that lost its memory stays eligible under `replicated`",
        (ClusterState, "may_lose_committed", _never),
    ),
    Mutation(
        "empty-disk-stays-eligible",
        "a replica on another disk stays eligible",
        (broker_commands, "_after_restart", _same_disk),
    ),
    Mutation(
        "all-eligible",
        "every replica is eligible while too few are in sync",
        (leader_election, "_eligible", _all_that_are_not_in_sync),
    ),
    Mutation(
        "eligible-forgotten",
        "eligible replicas are forgotten at the next change",
        (leader_election, "_eligible", _only_replicas_that_leave_now),
    ),
    Mutation(
        "eligible-under-a-lower-minimum",
        "eligible replicas stay so when fewer are enough to commit",
        (topic_commands, "_settle", _nothing),
    ),
    Mutation(
        "epoch-of-no-broker",
        "the leader epoch does not rise when the partition loses its leader",
        (partition_changes, "elect", _epoch_of_leaders_only),
    ),
    Mutation(
        "complete-at-once",
        "a reassignment is complete before the new replicas are in sync",
        (leader_election, "_completed", _complete_at_once),
    ),
    Mutation(
        "copies-given-up",
        "a cancelled reassignment drops replicas with the only copies",
        (partition_commands, "_check_enough_copies_stay", _nothing),
    ),
    Mutation(
        "words-of-an-earlier-process",
        "commands of an old process are accepted after a newer one has registered",
        (broker_commands, "current_broker", _any_process),
        (partition_commands, "current_broker", _any_process),
    ),
    Mutation(
        "fenced-by-mistake",
        "a broker that has just registered is fenced because the process before was silent",
        (broker_commands, "_fence", _fence_any_process),
    ),
    Mutation(
        "registered-twice",
        "a repeated registration is a new one",
        (broker_commands, "_register", _register_every_time),
    ),
    Mutation(
        "deleted-forgotten",
        "a snapshot lacks the deleted topics",
        (ClusterState, "snapshot", _snapshot_without_deleted_ids),
    ),
    Mutation(
        "durability-forgotten",
        "a snapshot lacks the time since when a topic is on disk",
        (ClusterState, "snapshot", _snapshot_without_durability),
    ),
    Mutation(
        "given-up-without-need",
        "a damaged replica is removed although no other replica can lead",
        (partition_commands, "should_remove_from_isr", _remove_in_any_case),
    ),
    Mutation(
        "given-up-stays-eligible",
        "a replica that may lack records leaves the ISR, but stays eligible",
        (partition_commands, "_remove_from_isr", _remove_as_if_it_were_only_full),
    ),
    Mutation(
        "offline-forgotten",
        "a replica whose log is offline is not eligible although it has all durable records",
        (partition_commands, "_remove_from_isr", _remove_for_good_when_offline),
    ),
    Mutation(
        "offline-leads",
        "a replica whose log is offline leads before its broker restarts",
        (leader_election, "_elect_clean", _lead_though_offline),
    ),
    Mutation(
        "offline-for-ever",
        "a replica whose log was offline cannot lead even after a restart of its broker",
        (broker_commands, "PartitionEvent", _event_without_starts),
    ),
    Mutation(
        "journal-left-behind",
        "a topic is moved without the journals of its queues",
        (PartitionChangeBuilder, "_colocated_topics", _alone),
    ),
    Mutation(
        "journal-goes-ahead",
        "a journal is moved to other brokers before its messages",
        (PartitionChangeBuilder, "preview", _complete_when_it_is_ready_itself),
    ),
    Mutation(
        "journal-holds-up",
        "a move waits for the journal of a queue that is deleted",
        (queue_commands, "_no_longer_held_up", _no_records),
    ),
    Mutation(
        "journal-promises-less",
        "the durability of a topic is raised, but not that of its journals",
        (topic_commands, "_altered_companions", _no_records),
    ),
    Mutation(
        "dead-letters-come-back",
        "a dead-letter queue is on the topic of the dead letters",
        (queue_commands, "check_dead_letter_queue", _nothing),
    ),
    Mutation(
        "queue-settings-forgotten",
        "a snapshot lacks the settings of queues",
        (Catalog, "snapshot", _catalog_snapshot_without_settings_of_queues),
    ),
    Mutation(
        "level-rises-early",
        "the feature level rises although a node does not support it",
        (feature_commands, "obstacles", _no_obstacles),
    ),
    Mutation(
        "old-node-registers",
        "a node registers that does not support the feature level",
        (broker_commands, "check_node", _nothing),
    ),
    Mutation(
        "changed-while-deciding",
        "a command changes the state before its records are committed",
        (PartitionChangeBuilder, "apply_event", _happen_here_and_now),
    ),
)

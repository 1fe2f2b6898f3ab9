"""Mutations that replicas reveal: in the ISR, in the logs of followers, in elections."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from typing import Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.maintenance.idle_checkpoints import IdleCheckpoints
from tidelog.broker.partitions import replica_manager
from tidelog.broker.replication.fetcher import ReplicaFetcher
from tidelog.coordinator.metadata import broker_commands, leader_election, partition_commands
from tidelog.coordinator.metadata.leader_election import Assignment, ElectionContext, PartitionEvent
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.isr.fetch_session import FollowerPosition, Key
from tidelog.isr.follower import FetchPosition
from tidelog.isr.followers import Followers
from tidelog.isr.leader import PartitionLeader
from tidelog.logstore.log import PartitionLog
from tidelog.logstore.producer_state import ProducerStates
from tidelog.logstore.recovery.log_presence import LogPresence
from tidelog.wire.batch.record_batch import BatchHeader


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _nothing(*_: object, **__: object) -> None:
    """Skip the work."""


def _all_is_there(*_: object) -> LogPresence:
    return LogPresence.INTACT


def _place_in_memory(self: ReplicaFetcher, key: Key) -> FollowerPosition:
    partition = self._partitions[key]
    log = partition.log
    epoch = None if log.log_end_offset == log.log_start_offset else log.leader_epochs.latest
    end = self._durable[key] = log.log_end_offset
    return FollowerPosition(FetchPosition(end, epoch), end)


_append_replicated = PartitionLog.append_replicated


def _append_without_producers(
    self: PartitionLog, headers: Sequence[BatchHeader], batches: memoryview, *, now_ms: int
) -> None:
    producers, self.producers = self.producers, ProducerStates()
    try:
        _append_replicated(self, headers, batches, now_ms=now_ms)
    finally:
        self.producers = producers


_happening = PartitionEvent


def _nothing_lost(**what: object) -> PartitionEvent:
    what.pop("lost", None)
    return _happening(**what)  # type: ignore[arg-type]  # passed on


_elect_clean = leader_election._elect_clean


def _any_live_leader(
    partition: PartitionRegistration,
    candidates: leader_election._Candidates,
    context: ElectionContext,
) -> int | None:
    leader = _elect_clean(partition, candidates, context)
    if leader is not None:
        return leader
    return next(
        (node for node in partition.replicas if leader_election._can_lead(node, context)), None
    )


def _eligible_for_ever(
    partition: PartitionRegistration,
    event: PartitionEvent,
    assignment: Assignment,
    *,
    in_sync: tuple[int, ...],
    context: ElectionContext,
) -> tuple[int, ...]:
    del context
    before = (*partition.in_sync_replicas, *partition.eligible_leader_replicas)
    return tuple(
        node
        for node in assignment.replicas
        if node in before and node not in in_sync and node not in event.lost
    )


MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "ready-gate-skipped",
        "a new leader returns end offsets before it knows the committed end",
        (PartitionLeader, "has_caught_up", property(_always)),
    ),
    Mutation(
        "durable-before-it-is",
        "a follower reports its whole log as durable",
        (ReplicaFetcher, "_position_of", _place_in_memory),
    ),
    Mutation(
        "producers-not-carried-over",
        "a follower does not update producer state when it appends",
        (PartitionLog, "append_replicated", _append_without_producers),
    ),
    Mutation(
        "produce-below-minimum",
        "records are appended although too few replicas are in sync",
        (PartitionLeader, "require_enough_in_sync", _nothing),
    ),
    Mutation(
        "unclean-stop-forgiven",
        "a replica that may have lost its memory stays in sync and eligible",
        (ClusterState, "may_lose_committed", _never),
    ),
    Mutation(
        "lost-disk-forgiven",
        "a replica on a new disk stays in sync and eligible",
        (broker_commands, "PartitionEvent", _nothing_lost),
    ),
    Mutation(
        "lost-files-forgiven",
        "a replica whose files are gone stays eligible, and may lead",
        (replica_manager, "presence_of", _all_is_there),
    ),
    Mutation(
        "any-replica-leads",
        "without a live replica in sync or eligible, any live replica leads",
        (leader_election, "_elect_clean", _any_live_leader),
    ),
    Mutation(
        "eligible-for-ever",
        "an eligible replica stays eligible when others commit without it",
        (leader_election, "_eligible", _eligible_for_ever),
    ),
    Mutation(
        "join-unchecked",
        "the cluster does not check the process of a joining replica, nor whether it is alive",
        (partition_commands, "_check_in_sync", _nothing),
        (Followers, "_is_isr_eligible", _always),
    ),
    Mutation(
        "no-checkpoint-when-idle",
        "an idle log gets no checkpoint of its last records",
        (IdleCheckpoints, "write_due", _nothing),
    ),
)

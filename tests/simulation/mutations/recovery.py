"""Mutations of recovery after damage on one disk: recovery elections, and old directories."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

import dataclasses
from typing import Final

from msgspec.structs import replace

from tests.simulation.mutations.mutation import Mutation
from tidelog.coordinator.bootstrap import generation
from tidelog.coordinator.controller import broker_lifecycle
from tidelog.coordinator.metadata import (
    broker_commands,
    leader_election,
    partition_changes,
    recovery_commands,
)
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.commands import ElectRecovered, RegisterBroker
from tidelog.coordinator.metadata.leader_election import (
    Assignment,
    ElectionContext,
    PartitionEvent,
    _Candidates,
)
from tidelog.coordinator.metadata.records import (
    BrokerRegistration,
    LogEnd,
    PartitionRegistration,
    Record,
    UnverifiedReplica,
)
from tidelog.coordinator.metadata.recovery_elections import RecoveryElections
from tidelog.coordinator.metadata.state import ClusterState

_Ends = dict[int, LogEnd | None]

_elect = leader_election.elect
_unverified = leader_election._unverified
_elect_by_log_end = leader_election._elect_by_log_end
_after_restart = broker_commands._after_restart
_due = RecoveryElections.due


def _never(*_: object) -> bool:
    return False


def _all_verified(*_: object, **__: object) -> _Ends:
    return {}


def _reported_once(
    partition: PartitionRegistration,
    event: PartitionEvent,
    assignment: Assignment,
    *,
    in_sync: tuple[int, ...],
    context: ElectionContext,
) -> _Ends:
    found = _unverified(partition, event, assignment, in_sync=in_sync, context=context)
    known = {each.node_id: each.log_end for each in partition.unverified_replicas}
    return {node: known.get(node) if end is None else end for node, end in found.items()}


def _forgotten_at_the_next_change(
    partition: PartitionRegistration,
    event: PartitionEvent,
    assignment: Assignment,
    *,
    in_sync: tuple[int, ...],
    context: ElectionContext,
) -> _Ends:
    found = _unverified(partition, event, assignment, in_sync=in_sync, context=context)
    return {
        node: end for node, end in found.items() if node in event.unclean or node in event.log_ends
    }


def _silent_is_verified(
    partition: PartitionRegistration,
    event: PartitionEvent,
    assignment: Assignment,
    *,
    in_sync: tuple[int, ...],
    context: ElectionContext,
) -> _Ends:
    found = _unverified(partition, event, assignment, in_sync=in_sync, context=context)
    known = {each.node_id for each in partition.unverified_replicas}
    return {node: end for node, end in found.items() if node in known or node in event.unclean}


def _compared(ends: _Ends, candidates: _Candidates) -> _Candidates:
    return dataclasses.replace(candidates, unverified=ends)


def _by_offset_alone(
    event: PartitionEvent, candidates: _Candidates, context: ElectionContext
) -> int | None:
    ends = {
        node: None if end is None else end._replace(leader_epoch=0)
        for node, end in candidates.unverified.items()
    }
    return _elect_by_log_end(event, _compared(ends, candidates), context)


def _among_eligible(
    event: PartitionEvent, candidates: _Candidates, context: ElectionContext
) -> int | None:
    ends = {
        node: end for node, end in candidates.unverified.items() if node in candidates.relied_on
    }
    return _elect_by_log_end(event, _compared(ends, candidates), context)


def _first_report_wins(
    event: PartitionEvent, candidates: _Candidates, context: ElectionContext
) -> int | None:
    reported = [node for node, end in candidates.unverified.items() if end is not None]
    ends: _Ends = dict.fromkeys(reported, LogEnd(0, 0, is_whole=True))
    return _elect_by_log_end(_without_wait(event), _compared(ends, candidates), context)


def _without_wait(event: PartitionEvent) -> PartitionEvent:
    """Return the event as if the wait for missing replicas were over."""
    return PartitionEvent(
        lost=event.lost, log_ends=event.log_ends, election=leader_election.Election.RECOVERY
    )


def _with_reports_of_before(
    partition: PartitionRegistration, event: PartitionEvent, context: ElectionContext
) -> PartitionRegistration:
    after = _elect(partition, event, context)
    known = {each.node_id: each.log_end for each in partition.unverified_replicas}
    kept = tuple(
        UnverifiedReplica(each.node_id, each.log_end or known.get(each.node_id))
        for each in after.unverified_replicas
    )
    return after if kept == after.unverified_replicas else replace(after, unverified_replicas=kept)


def _leaderless_ever(
    state: ClusterState, topic_id: bytes, number: int, *, leader_epoch: int
) -> Topic | None:
    del leader_epoch
    partition = state.partition(topic_id, number)
    if partition is None or partition.leader is not None:
        return None
    return state.catalog.topic_by_id(topic_id)


def _after_clean_stop(
    state: ClusterState,
    command: RegisterBroker,
    previous: BrokerRegistration,
    *,
    broker: BrokerRegistration,
) -> list[Record]:
    command = replace(command, clean_stop_epoch=previous.broker_epoch)
    return _after_restart(state, command, previous, broker=broker)


def _due_at_once(
    self: RecoveryElections, state: ClusterState, *, now_ms: int
) -> ElectRecovered | None:
    _due(self, state, now_ms=now_ms)
    self._due_at_ms = dict.fromkeys(self._due_at_ms, now_ms)
    return _due(self, state, now_ms=now_ms)


COMPARISONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "first-back-leads",
        "the first eligible replica that is back leads without a comparison",
        (leader_election, "_unverified", _all_verified),
    ),
    Mutation(
        "first-report-wins",
        "the first replica that has reported leads, regardless of its log end",
        (leader_election, "_elect_by_log_end", _first_report_wins),
    ),
    Mutation(
        "unclean-end-is-clean",
        "every process counts as stopped cleanly",
        (broker_commands, "_after_restart", _after_clean_stop),
    ),
)
"""Mutations that runs of the metadata and of clusters must find."""

MUTATIONS: Final[tuple[Mutation, ...]] = (
    *COMPARISONS,
    Mutation(
        "reported-once",
        "the log end that an earlier process reported counts",
        (leader_election, "_unverified", _reported_once),
    ),
    Mutation(
        "unverified-forgotten",
        "a replica is unverified only until the next change of the partition",
        (leader_election, "_unverified", _forgotten_at_the_next_change),
    ),
    Mutation(
        "silent-is-verified",
        "a replica that left the ISR in silence is not compared",
        (leader_election, "_unverified", _silent_is_verified),
    ),
    Mutation(
        "log-ends-without-epochs",
        "log ends are compared by offset, without the leader epoch",
        (leader_election, "_elect_by_log_end", _by_offset_alone),
    ),
    Mutation(
        "only-eligible-compared",
        "unverified replicas that are not eligible are ignored",
        (leader_election, "_elect_by_log_end", _among_eligible),
    ),
    Mutation(
        "reports-outlive-a-leader",
        "log ends that were reported before a leader count after it",
        (partition_changes, "elect", _with_reports_of_before),
    ),
    Mutation(
        "reports-of-any-epoch",
        "a report counts although the partition has had a leader since",
        (recovery_commands, "_leaderless", _leaderless_ever),
    ),
)
"""Mutations that runs of the metadata must find."""

IN_CLUSTERS: Final[tuple[Mutation, ...]] = (
    *COMPARISONS,
    Mutation(
        "no-wait-for-the-missing",
        "the wait for missing replicas is over at once",
        (RecoveryElections, "due", _due_at_once),
    ),
    Mutation(
        "generation-ignored",
        "an old directory counts as a current one",
        (broker_commands, "is_old_directory", _never),
        (broker_lifecycle, "is_old_directory", _never),
        (generation, "is_old_directory", _never),
    ),
    Mutation(
        "old-replicas-stay",
        "replicas of an old directory stay in sync and eligible",
        (broker_commands, "is_old_directory", _never),
    ),
    Mutation(
        "old-vote-counts",
        "a node with an old vote takes part in elections of the Raft group",
        (generation, "is_old_directory", _never),
    ),
)
"""Mutations that runs of clusters must find."""

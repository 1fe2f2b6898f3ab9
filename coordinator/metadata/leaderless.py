"""The reason for which a partition has no leader, and the remedy.

Pure: no clock, no I/O. It explains the rules of `leader_election` for a partition as it is.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.cluster_config import recovery_election_wait_ms
from tidelog.coordinator.metadata.election_events import named_brokers
from tidelog.coordinator.metadata.leader_election import greatest_log_end, replicas_to_compare
from tidelog.coordinator.metadata.records import BrokerRegistration, PartitionRegistration
from tidelog.coordinator.metadata.state import ClusterState


class LeaderlessKind(StrEnum):
    """The kind of a reason."""

    WAITS_FOR_REPLICAS = "waits_for_replicas"
    """Unverified replicas are compared, and some are missing; the wait is limited."""
    NO_REPLICA_IS_BACK = "no_replica_is_back"
    """No replica that has all committed records is alive."""
    LOG_OFFLINE = "log_offline"
    """The logs of the replicas that have all committed records are offline."""
    NO_COMPLETE_REPLICA = "no_complete_replica"
    """No replica is known to have all committed records."""


class LeaderlessReason(NamedTuple):
    """Why a partition has no leader."""

    kind: LeaderlessKind
    text: str
    """One line: the reason and the remedy."""


def why_leaderless(state: ClusterState, topic: Topic, number: int) -> LeaderlessReason | None:
    """Return why a partition has no leader; `None` if it has one, or does not exist."""
    partition = state.partition(topic.topic_id, number)
    if partition is None or partition.leader is not None:
        return None
    return leaderless_reason(
        partition,
        state.brokers,
        wait_ms=recovery_election_wait_ms(state.config),
        command=acceptance_command(state, topic, number),
    )


def acceptance_command(state: ClusterState, topic: Topic, number: int) -> str:
    """Return the command that accepts the loss of committed records of a partition.

    Commands do not name internal topics: the partition of the source topic includes theirs.
    """
    source = state.catalog.topic_by_id(topic.source_id) if topic.is_internal else topic
    name = topic.name if source is None else source.name
    return f"tidelog cluster elect-leaders --topic {name} --partition {number} --accept-data-loss"


def leaderless_reason(
    partition: PartitionRegistration,
    brokers: Mapping[int, BrokerRegistration],
    *,
    wait_ms: int,
    command: str,
) -> LeaderlessReason:
    """Return why a partition without a leader has none.

    Args:
        partition: A partition without a leader.
        brokers: The registrations of brokers, by node id.
        wait_ms: `recovery_election_wait_ms` in force, in milliseconds.
        command: The command that accepts the loss of committed records of this partition.
    """
    eligible = partition.eligible_leader_replicas
    if not eligible:
        return _lost(partition, brokers, command=command)
    awaited = _awaited(partition, brokers)
    if awaited:
        return _waits(awaited, brokers, wait_ms=wait_ms)
    absent = [node for node in eligible if not _is_alive(node, brokers)]
    online = [node for node in absent if node not in partition.offline_replicas]
    alive = [node for node in eligible if node not in absent]
    able = [node for node in alive if node not in partition.offline_replicas]
    if able:
        return _waits(able, brokers, wait_ms=wait_ms)
    accept = _accept(partition, brokers, command=command)
    if online:
        text = (
            f"no replica with all committed records is alive: {_stated(online, brokers)};"
            f" start {named_brokers(online)}"
        )
        if [*partition.replicas] != online[:1]:  # Started, a sole replica leads without a loss.
            text += f", or {accept}"
        return LeaderlessReason(LeaderlessKind.NO_REPLICA_IS_BACK, text)
    return LeaderlessReason(
        LeaderlessKind.LOG_OFFLINE,
        f"the log of {named_brokers(eligible)} is offline after an error of the disk: check the"
        f" disk and restart {named_brokers(eligible)}, or {accept}",
    )


def _awaited(
    partition: PartitionRegistration, brokers: Mapping[int, BrokerRegistration]
) -> list[int]:
    """Return the replicas that an election waits for, for a limited time; empty without a wait."""
    eligible, unverified = partition.eligible_leader_replicas, partition.unverified_replicas
    ends = {each.node_id: each.log_end for each in unverified if each.log_end is not None}
    is_begun = any(node in ends for node in eligible)
    if not is_begun or not any(_is_alive(node, brokers) for node in ends):
        return []
    compared = replicas_to_compare(eligible, [each.node_id for each in unverified])
    missing = [node for node in compared if node not in ends]
    # With all reports the election is complete, unless the replica with most cannot lead now.
    best = greatest_log_end(ends, ends, relied_on=eligible)
    assert best is not None, "an eligible replica has reported"
    return missing or [best]


def _waits(
    missing: Iterable[int], brokers: Mapping[int, BrokerRegistration], *, wait_ms: int
) -> LeaderlessReason:
    absent = [node for node in missing if not _is_alive(node, brokers)]
    limit = f"for at most recovery_election_wait_ms = {wait_ms / 1000:g} s"
    if absent:
        what = "it may have" if len(absent) == 1 else "they may have"
        text = (
            f"the election waits {limit} for {named_brokers(absent)} to come back: {what} more"
            f" committed records; start {named_brokers(absent)}"
        )
    else:
        text = f"the election waits for {named_brokers(missing)} to report the end of the log"
    return LeaderlessReason(LeaderlessKind.WAITS_FOR_REPLICAS, text)


def _lost(
    partition: PartitionRegistration, brokers: Mapping[int, BrokerRegistration], *, command: str
) -> LeaderlessReason:
    accept = _accept(partition, brokers, command=command)
    wiped = partition.wiped_replicas
    if len(wiped) == len(partition.replicas):
        these = "this broker" if len(wiped) == 1 else "these brokers"
        # A stop writes checkpoints beside the files, so none follows their return.
        why = f"all replicas have lost files ({named_brokers(wiped)}): stop {these}, bring the"
        why += f" files back and start {these}; then, or without the files, {accept}"
    else:
        why = "no replica is known to have all committed records: all of them lost records in an"
        why += " unclean stop or lost files"
        if wiped:
            why += f" ({named_brokers(wiped)})"
        why += f"; {accept}"
    return LeaderlessReason(LeaderlessKind.NO_COMPLETE_REPLICA, why)


def _accept(
    partition: PartitionRegistration, brokers: Mapping[int, BrokerRegistration], *, command: str
) -> str:
    """Return the words for an accepted loss, which needs a live replica."""
    candidates = [node for node in partition.replicas if node not in partition.offline_replicas]
    if any(_is_alive(node, brokers) for node in candidates):
        return f"accept the loss: {command}"
    startable = candidates or partition.replicas
    any_of = "any of " if len(startable) > 1 else ""
    return f"start {any_of}{named_brokers(startable)} and accept the loss: {command}"


def _stated(node_ids: Iterable[int], brokers: Mapping[int, BrokerRegistration]) -> str:
    stopping = [node for node in node_ids if node in brokers and not brokers[node].is_fenced]
    fenced = [node for node in node_ids if node not in stopping]
    words = [(fenced, "fenced"), (stopping, "stopping")]
    return ", ".join(
        f"{named_brokers(nodes)} {'is' if len(nodes) == 1 else 'are'} {word}"
        for nodes, word in words
        if nodes
    )


def _is_alive(node_id: int, brokers: Mapping[int, BrokerRegistration]) -> bool:
    broker = brokers.get(node_id)
    return broker is not None and broker.can_lead

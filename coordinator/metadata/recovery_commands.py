"""Commands of a recovery election: reported log ends, and the end of the wait for missing replicas.

Pure: no clock, no I/O. `leader_election` has the rules.
"""

from tidelog.coordinator.metadata.broker_commands import current_broker
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.cluster_events import EventRecorder
from tidelog.coordinator.metadata.commands import (
    CommandOutcome,
    Done,
    ElectRecovered,
    ReportLogEnds,
)
from tidelog.coordinator.metadata.election_events import record_recovery
from tidelog.coordinator.metadata.leader_election import Election, PartitionEvent
from tidelog.coordinator.metadata.partition_changes import PartitionChangeBuilder
from tidelog.coordinator.metadata.state import ClusterState


def handle_recovery_command(
    state: ClusterState, command: ReportLogEnds | ElectRecovered, *, now_ms: int
) -> CommandOutcome:
    """Return the outcome of a report of log ends, or of an election without missing replicas.

    Raises:
        StaleBrokerEpochError: The reporting process is not the last registration of its broker.
    """
    if isinstance(command, ReportLogEnds):
        return _report_log_ends(state, command)
    return _elect_recovered(state, command, now_ms)


def _report_log_ends(state: ClusterState, command: ReportLogEnds) -> CommandOutcome:
    current_broker(state, command.node_id, command.broker_epoch)
    changes = PartitionChangeBuilder(state)
    for log in command.logs:
        topic = _leaderless(state, log.topic_id, log.partition, leader_epoch=log.leader_epoch)
        if topic is not None:
            event = PartitionEvent(log_ends={command.node_id: log.log_end})
            changes.apply_event(topic, log.partition, event)
    return CommandOutcome(changes.records(), Done())


def _elect_recovered(state: ClusterState, command: ElectRecovered, now_ms: int) -> CommandOutcome:
    changes = PartitionChangeBuilder(state)
    events = EventRecorder(state.events, now_ms=now_ms)
    for topic_id, number, leader_epoch in command.partitions:
        topic = _leaderless(state, topic_id, number, leader_epoch=leader_epoch)
        if topic is not None:
            before = changes.partition(topic_id, number)
            assert before is not None, "the topic has this partition"
            event = PartitionEvent(election=Election.RECOVERY)
            after = changes.apply_event(topic, number, event)
            record_recovery(events, topic, number, before=before, after=after)
    return CommandOutcome([*events.records(), *changes.records()], Done())


def _leaderless(
    state: ClusterState, topic_id: bytes, number: int, *, leader_epoch: int
) -> Topic | None:
    """Return the topic of a partition that has had no leader since this leader epoch."""
    partition = state.partition(topic_id, number)
    if partition is None or partition.leader is not None or partition.leader_epoch != leader_epoch:
        return None
    return state.catalog.topic_by_id(topic_id)

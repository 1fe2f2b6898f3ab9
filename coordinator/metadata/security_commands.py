"""Commands about security metadata, by their part of it.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence

from tidelog.coordinator.metadata.catalog import Topic, unknown_topic_id
from tidelog.coordinator.metadata.cluster_events import ClusterEventKind, EventRecorder
from tidelog.coordinator.metadata.commands import CommandOutcome, Done
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.security.access_commands import handle_access_command
from tidelog.coordinator.security.access_key_commands import handle_access_key_command
from tidelog.coordinator.security.administrator_commands import handle_administrator_command
from tidelog.coordinator.security.commands import (
    AccessCommand,
    AccessKeyCommand,
    RemoveDataKeys,
    SecurityCommand,
    SetAdministrator,
    SetDataKey,
    SetQuota,
    UserCommand,
)
from tidelog.coordinator.security.key_commands import handle_key_command
from tidelog.coordinator.security.quota_commands import handle_quota_command
from tidelog.coordinator.security.records import SecurityRecord
from tidelog.coordinator.security.user_commands import handle_user_command
from tidelog.wire.errors import InvalidRequestError


def handle_security_command(
    state: ClusterState, command: SecurityCommand, *, now_ms: int
) -> CommandOutcome:
    """Return the outcome of a command; `now_ms` is recorded.

    Raises:
        InvalidRequestError: The command is not legal in this state.
        UnknownTopicIdError: A data key is for a topic that does not exist (any more).
    """
    if isinstance(command, SetDataKey | RemoveDataKeys):
        _check_keys(state, command)
    records = _records(state, command, now_ms)
    if records and isinstance(command, SetAdministrator) and command.recovered_by is not None:
        events = EventRecorder(state.events, now_ms=now_ms)
        events.record(
            ClusterEventKind.ADMINISTRATOR_RECOVERED,
            f"user {command.user} got the role admin by `tidelog admin recover`; if no operator of"
            " this machine did that, remove the user",
            node_id=command.recovered_by,
        )
        return CommandOutcome([*records, *events.records()], Done())
    return CommandOutcome([*records], Done())


def has_committed_parts(state: ClusterState, topic: Topic) -> bool:
    """Return whether a staging log has committed records that are not known to be appended."""
    if topic.staging_of is None:
        return False
    numbers = range(topic.partition_count)
    return any(state.transactions.parts_of((topic.staging_of, number)) for number in numbers)


def _check_keys(state: ClusterState, command: SetDataKey | RemoveDataKeys) -> None:
    """Check the topic of data keys: none come back after it, and committed records keep theirs.

    Raises:
        UnknownTopicIdError: There is no such topic (any more).
        InvalidRequestError: It has staged records of committed transactions.
    """
    topic = state.catalog.topic_by_id(command.topic_id)
    if topic is None:
        raise unknown_topic_id(command.topic_id)
    if isinstance(command, RemoveDataKeys) and has_committed_parts(state, topic):
        raise InvalidRequestError(
            f"the data keys of {topic.name} cannot be deleted now: committed transactions are"
            " still being appended to its topic; try again"
        )


def _records(
    state: ClusterState, command: SecurityCommand, now_ms: int
) -> Sequence[SecurityRecord]:
    security = state.security
    if isinstance(command, UserCommand):
        return handle_user_command(security, command, now_ms=now_ms)
    if isinstance(command, AccessKeyCommand):
        return handle_access_key_command(security, command, now_ms=now_ms)
    if isinstance(command, AccessCommand):
        return handle_access_command(security, command)
    if isinstance(command, SetAdministrator):
        return handle_administrator_command(security, command, now_ms=now_ms)
    if isinstance(command, SetQuota):
        return handle_quota_command(security, command)
    return handle_key_command(security, command, now_ms=now_ms)

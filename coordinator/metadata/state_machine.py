"""The replicated state machine of a cluster's metadata.

Pure: no clock, no I/O. Every node has one that applies committed records only, and acts on nothing
else. The controller has a second one, copied from the first when it became leader. It applies its
own records to that as soon as it proposes them, so that no command waits for the commit of the one
before. It drops the second one when it stops leading.
"""

from typing import final

import msgspec

from tidelog.coordinator.metadata.broker_commands import handle_broker_command
from tidelog.coordinator.metadata.commands import (
    BrokerCommand,
    CatchUp,
    Command,
    CommandOutcome,
    Done,
    EventCommand,
    PartitionCommand,
    QueueCommand,
    SetFeatureLevel,
    TransactionCommand,
)
from tidelog.coordinator.metadata.event_commands import handle_event_command
from tidelog.coordinator.metadata.feature_commands import handle_feature_command
from tidelog.coordinator.metadata.features import check_records
from tidelog.coordinator.metadata.partition_commands import handle_partition_command
from tidelog.coordinator.metadata.queue_commands import handle_queue_command
from tidelog.coordinator.metadata.records import ClusterSnapshot, Record
from tidelog.coordinator.metadata.security_commands import handle_security_command
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.topic_commands import handle_topic_command
from tidelog.coordinator.metadata.transaction_commands import handle_transaction_command
from tidelog.coordinator.security.commands import SecurityCommand

_TimedCommand = (
    BrokerCommand | PartitionCommand | EventCommand | TransactionCommand | SecurityCommand
)


@final
class MetadataStateMachine:
    """Commands in, records out; records in, state out."""

    def __init__(self, state: ClusterState | None = None) -> None:
        """Start from a state, or empty."""
        self.state = state or ClusterState()
        """The state after all records; read-only."""

    @classmethod
    def from_snapshot(cls, data: bytes | memoryview) -> "MetadataStateMachine":
        """Restore a machine from its snapshot.

        Raises:
            msgspec.MsgspecError: The snapshot is damaged, or of an unknown version.
            InvalidConfigError: A newer version recorded a setting that this one does not know.
        """
        return cls(ClusterState.from_snapshot(_snapshot_decoder.decode(data)))

    def snapshot(self) -> bytes:
        """Return all of the state as bytes; `from_snapshot` is the inverse."""
        return msgspec.msgpack.encode(self.state.snapshot())

    def handle(self, command: Command, *, now_ms: int) -> CommandOutcome:
        """Return the outcome of a command; the state does not change.

        Args:
            command: The command to decide.
            now_ms: Wall clock. It is recorded for administrators, and decides how long transactions
                stay open and are remembered; nothing else depends on it.

        Raises:
            BrokerError: The command is refused; see `wire.errors`.
        """
        outcome = self._handle(command, now_ms)
        check_records(outcome.records, self.state.feature_level)
        return outcome

    def _handle(self, command: Command, now_ms: int) -> CommandOutcome:
        if isinstance(command, _TimedCommand):
            return self._handle_timed(command, now_ms)
        if isinstance(command, QueueCommand):
            return handle_queue_command(self.state, command)
        if isinstance(command, SetFeatureLevel):
            return handle_feature_command(self.state, command)
        if isinstance(command, CatchUp):
            return CommandOutcome([], Done())
        return handle_topic_command(self.state, command)

    def _handle_timed(self, command: _TimedCommand, now_ms: int) -> CommandOutcome:
        """Return the outcome of a command whose records have the time."""
        if isinstance(command, BrokerCommand):
            return handle_broker_command(self.state, command, now_ms=now_ms)
        if isinstance(command, PartitionCommand):
            return handle_partition_command(self.state, command, now_ms=now_ms)
        if isinstance(command, EventCommand):
            return handle_event_command(self.state, command, now_ms=now_ms)
        if isinstance(command, SecurityCommand):
            return handle_security_command(self.state, command, now_ms=now_ms)
        return handle_transaction_command(self.state, command, now_ms=now_ms)

    def apply(self, record: Record) -> None:
        """Apply a record; the only way in which the state changes.

        Raises:
            InvalidConfigError: A newer version recorded a setting that this one does not know.
        """
        self.state.apply(record)


_snapshot_decoder = msgspec.msgpack.Decoder(ClusterSnapshot)

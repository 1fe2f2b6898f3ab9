"""Commands about events: reports of brokers, and acknowledgements of administrators.

Pure: no clock, no I/O. Each function takes the state and a command, and returns the outcome.
"""

from tidelog.coordinator.metadata.broker_commands import current_broker
from tidelog.coordinator.metadata.cluster_events import EventOffsets, EventPlace, EventRecorder
from tidelog.coordinator.metadata.commands import (
    AcknowledgeEvents,
    CommandOutcome,
    Done,
    EventCommand,
    ReportLoss,
)
from tidelog.coordinator.metadata.records import EventsAcknowledged, Record
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.errors import InvalidRequestError


def handle_event_command(
    state: ClusterState, command: EventCommand, *, now_ms: int
) -> CommandOutcome:
    """Return the outcome of a command about events.

    Raises:
        BrokerError: The command is refused.
    """
    match command:
        case ReportLoss():
            return _report_loss(state, command, now_ms)
        case AcknowledgeEvents():
            return _acknowledge(state, command)


def _report_loss(state: ClusterState, command: ReportLoss, now_ms: int) -> CommandOutcome:
    current_broker(state, command.node_id, command.broker_epoch)
    events = EventRecorder(state.events, now_ms=now_ms)
    for loss in command.losses:
        topic = state.catalog.topic_by_id(loss.topic_id)
        if topic is not None:
            events.record(
                loss.kind,
                loss.detail,
                place=EventPlace(loss.topic_id, topic.name, loss.partition, loss.leader_epoch),
                node_id=command.node_id,
                offsets=EventOffsets(loss.first_offset, loss.end_offset),
                is_reported=True,
            )
    return CommandOutcome(events.records(), Done())


def _acknowledge(state: ClusterState, command: AcknowledgeEvents) -> CommandOutcome:
    newest = state.events.total
    for event_id in command.event_ids:
        if not 1 <= event_id <= newest:
            known = f"the newest event is {newest}" if newest else "the cluster has no events"
            raise InvalidRequestError(f"there is no event {event_id}: {known}; see cluster events")
    wanted, up_to_id = set(command.event_ids), command.up_to_id or 0
    found = [
        each.event_id
        for each in state.events.unacknowledged
        if each.event_id in wanted or each.event_id <= up_to_id
    ]
    records: list[Record] = [EventsAcknowledged(found)] if found else []
    return CommandOutcome(records, Done())

"""Handler of ACKNOWLEDGE_EVENTS, and the descriptions of events for DESCRIBE_CLUSTER and topics."""

from typing import Final, final

from tidelog.coordinator.metadata.commands import AcknowledgeEvents
from tidelog.coordinator.metadata.records import ClusterEvent
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.messages.cluster_admin import (
    AcknowledgeEventsReply,
    AcknowledgeEventsRequest,
    EventDescription,
)

_DECIDE_TIMEOUT_S: Final = 10.0


@final
class EventsHandler:
    """Acknowledges events of the cluster."""

    def __init__(self, cluster: ClusterNode) -> None:
        """Serve requests at one node."""
        self._cluster = cluster

    async def acknowledge(self, request: AcknowledgeEventsRequest) -> AcknowledgeEventsReply:
        """Acknowledge events. On cancellation, they may be acknowledged or not.

        Raises:
            InvalidRequestError: There was never an event of one of the ids.
            RequestTimedOutError: The voters have no majority; the events may be acknowledged.
        """
        command = AcknowledgeEvents(request.event_ids, request.up_to_id)
        await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
        return AcknowledgeEventsReply(len(self._cluster.metadata.state.events.unacknowledged))


def describe_event(event: ClusterEvent) -> EventDescription:
    """Return the description of an event."""
    return EventDescription(
        event.event_id,
        event.at_ms,
        event.kind,
        event.topic,
        event.topic_id,
        event.partition,
        event.node_id,
        event.leader_epoch,
        event.first_offset,
        event.end_offset,
        event.record_count,
        event.detail,
    )

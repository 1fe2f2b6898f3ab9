"""Events of elections after which committed records may be missing.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable

from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.cluster_events import (
    ClusterEventKind,
    EventOffsets,
    EventPlace,
    EventRecorder,
)
from tidelog.coordinator.metadata.commands import RefusedTruncation
from tidelog.coordinator.metadata.records import LogEnd, PartitionRegistration


def record_loss(
    events: EventRecorder,
    topic: Topic,
    number: int,
    *,
    before: PartitionRegistration,
    after: PartitionRegistration,
) -> None:
    """Record that an administrator has accepted a leader that may lack committed records."""
    if after.leader is None:
        return
    if before.refusing_replicas:
        refusing = before.refusing_replicas
        kept = EventOffsets(
            min(each.offset for each in refusing), max(each.high_watermark for each in refusing)
        )
        events.record(
            ClusterEventKind.DATA_LOSS_ACCEPTED,
            f"{named_brokers(each.node_id for each in refusing)} may remove committed records that"
            f" broker {after.leader}, the leader, lacks",
            place=_place(topic, number, after),
            node_id=after.leader,
            offsets=kept,
        )
        return
    ends = _reported_ends(before)
    others = [node for node in before.eligible_leader_replicas if node != after.leader]
    had = f"{named_brokers(others)} had all committed records" if others else "no replica had all"
    events.record(
        ClusterEventKind.DATA_LOSS_ACCEPTED,
        f"broker {after.leader} leads by an accepted loss of data, and may lack committed records;"
        f" {had}",
        place=_place(topic, number, after),
        node_id=after.leader,
        offsets=_missing(ends, after.leader),
    )


def record_recovery(
    events: EventRecorder,
    topic: Topic,
    number: int,
    *,
    before: PartitionRegistration,
    after: PartitionRegistration,
) -> None:
    """Record that a leader was elected without replicas that may have more records, if it was."""
    leader, ends = after.leader, _reported_ends(before)
    if before.leader is not None or leader is None or leader not in ends:
        return
    # Each of these may have more, also one that the election did not wait for.
    unverified = [each.node_id for each in before.unverified_replicas]
    silent = [
        node
        for node in before.replicas
        if node in (*before.eligible_leader_replicas, *unverified) and node not in ends
    ]
    greater = [node for node, end in ends.items() if end > ends[leader]]
    if not silent and not greater:
        return
    reasons: list[str] = []
    if silent:
        reasons.append(f"{named_brokers(silent)} did not report within the wait")
    if greater:
        reasons.append(f"{named_brokers(greater)} reported more records and could not lead")
    events.record(
        ClusterEventKind.ELECTED_WITHOUT_REPLICAS,
        f"broker {leader} leads, and may lack committed records: {'; '.join(reasons)}",
        place=_place(topic, number, after),
        node_id=leader,
        offsets=_missing(ends, leader),
    )


def record_refusal(
    events: EventRecorder,
    topic: Topic,
    refused: RefusedTruncation,
    *,
    node_id: int,
    before: PartitionRegistration,
    after: PartitionRegistration,
) -> None:
    """Record that a replica keeps committed records which its leader lacks, unless it was known."""
    if after is before or before.leader is None:
        return
    if after.leader == node_id:
        result = f"broker {node_id} leads instead"
    else:
        result = f"broker {node_id} stays out of the ISR until an administrator accepts the loss"
    events.record(
        ClusterEventKind.LEADER_LACKS_RECORDS,
        f"broker {node_id} keeps committed records that broker {before.leader}, the leader, lacks:"
        f" {result}",
        place=_place(topic, refused.partition, before),
        node_id=node_id,
        offsets=EventOffsets(refused.offset, refused.high_watermark),
    )


def named_brokers(node_ids: Iterable[int]) -> str:
    """Return the words for brokers, such as `brokers 2, 3`."""
    listed = [str(node_id) for node_id in node_ids]
    return f"broker{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def _place(topic: Topic, number: int, after: PartitionRegistration) -> EventPlace:
    return EventPlace(topic.topic_id, topic.name, number, after.leader_epoch)


def _reported_ends(partition: PartitionRegistration) -> dict[int, LogEnd]:
    return {
        each.node_id: each.log_end
        for each in partition.unverified_replicas
        if each.log_end is not None
    }


def _missing(ends: dict[int, LogEnd], leader: int) -> EventOffsets | None:
    """Return the records that a leader lacks: from its log end to the greatest reported end."""
    if leader not in ends:
        return None
    first = ends[leader].log_end_offset
    end = max(each.log_end_offset for each in ends.values())
    return EventOffsets(first, end if end > first else None)

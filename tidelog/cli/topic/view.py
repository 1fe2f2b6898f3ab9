"""The output of `tidelog topic`, as text and JSON."""

from collections.abc import Sequence

import click

from tidelog.cli.output.events import event_as_json, print_newest_events
from tidelog.cli.output.tables import (
    counted,
    nodes_text,
    print_fields,
    print_labels,
    print_settings,
    print_table,
    size_text,
    total_text,
)
from tidelog.wire.messages.topics import AddPartitionsReply, PartitionDescription, TopicDescription

_FIGURES = ("log_start_offset", "high_watermark", "log_end_offset", "size_bytes")
_NUMBERS = ("PARTITIONS", "PARTITION", "LEADER", "EPOCH", "START", "END", "RECORDS", "SIZE")


def topic_as_json(topic: TopicDescription) -> dict[str, object]:
    """Return the description of a topic; a figure that no leader reported is null."""
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex(),
        "config": topic.config,
        "config_overrides": topic.config_overrides,
        "config_of_cluster": topic.config_of_cluster,
        "labels": topic.labels,
        "partitions": [
            {
                "partition": each.partition,
                "leader_id": each.leader_id,
                "leader_epoch": each.leader_epoch,
                **{name: getattr(each, name) if is_reported(each) else None for name in _FIGURES},
                "status": each.status,
                "replicas": each.replicas,
                "in_sync_replicas": each.in_sync_replicas,
                "refused_records": [
                    {"node_id": refused.node_id, "offset": refused.offset}
                    | {"end_offset": refused.end_offset}
                    for refused in each.refused_records
                ],
                "leaderless_reason": each.leaderless_reason,
            }
            for each in topic.partitions
        ],
        "events": [event_as_json(each) for each in topic.events],
    }


def print_topics(topics: Sequence[TopicDescription]) -> None:
    """Print one line for each topic."""
    rows = [
        (
            topic.name,
            len(topic.partitions),
            _replication_factor(topic),
            total_text([record_count(each) for each in topic.partitions]),
            total_text([_size_bytes(each) for each in topic.partitions], size_text),
            ", ".join(sorted({each.status for each in topic.partitions})),
        )
        for topic in topics
    ]
    columns = ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE", "STATUS"]
    print_table(columns, rows, right=(*_NUMBERS, "REPLICAS"))


def print_topic(topic: TopicDescription) -> None:
    """Print identity, settings and partitions of a topic."""
    print_fields({"topic": topic.name, "id": topic.topic_id.hex()})
    click.echo()
    print_topic_settings(topic)
    print_labels(topic.labels)
    click.echo()
    columns = ["PARTITION", "LEADER", "EPOCH", "START", "END", "RECORDS", "SIZE", "STATUS"]
    columns += ["REPLICAS", "IN SYNC"]
    rows: list[tuple[object, ...]] = [
        (
            each.partition,
            each.leader_id,
            each.leader_epoch,
            *_offsets(each),
            record_count(each),
            size_text(each.size_bytes) if is_reported(each) else None,
            each.status,
            nodes_text(each.replicas) or None,
            nodes_text(each.in_sync_replicas) or None,
        )
        for each in topic.partitions
    ]
    print_table(columns, rows, right=_NUMBERS)
    notes = refusal_notes(topic)
    if notes:
        click.echo()
    for note in notes:
        click.echo(note)
    reasons = [each for each in topic.partitions if each.leaderless_reason]
    if reasons:
        click.echo("\nwhy partitions have no leader:")
    for each in reasons:
        click.echo(f"  {topic.name}/{each.partition}: {each.leaderless_reason}")
    print_newest_events(topic.events)


def _replication_factor(topic: TopicDescription) -> str:
    """Return the number of replicas of each partition, as a range if partitions differ."""
    counts = {len(each.replicas) for each in topic.partitions}
    least, most = min(counts, default=0), max(counts, default=0)
    return f"{most}" if least == most else f"{least}-{most}"


def refusal_notes(topic: TopicDescription) -> list[str]:
    """Return a line for each replica that keeps committed records which its leader lacks."""
    return [
        f"partition {each.partition}: broker {refused.node_id} refuses to truncate"
        f" {counted(refused.end_offset - refused.offset, 'committed record')}"
        f" (offsets {refused.offset} to {refused.end_offset - 1}) that leader"
        f" {'-' if each.leader_id is None else each.leader_id} lacks; to accept the loss:"
        f" tidelog cluster elect-leaders --topic {topic.name} --partition {each.partition}"
        " --accept-data-loss"
        for each in topic.partitions
        for refused in each.refused_records
    ]


def print_topic_settings(topic: TopicDescription) -> None:
    """Print every setting of a topic, and its source: topic, cluster or default."""
    print_settings(
        topic.config, topic.config_overrides, "topic", of_cluster=topic.config_of_cluster
    )


def growth_notes(planned: AddPartitionsReply) -> list[str]:
    """Return the consequences of more partitions for clients of a topic."""
    more = counted(planned.added, "partition")
    notes = [
        f"- {more} more, {planned.partition_count:,} in all; the number never falls again",
        "- records stay in their partitions; most keys map to another partition afterwards:",
        "  records with the same key are not ordered across the change",
        "- running producers see the new partitions within 5 minutes (metadata_max_age);",
        "  until then, records with the same key may go to two partitions",
        "- group members get the new partitions at once; members that start at the latest",
        "  offset may miss the first records; consumers without a group keep the old partitions",
    ]
    if planned.queues:
        queues = ", ".join(planned.queues)
        notes.append(f"- queues deliver messages of the new partitions as well: {queues}")
    return notes


def is_reported(partition: PartitionDescription) -> bool:
    """Return whether a leader reported the figures of a partition; otherwise they are zero."""
    return partition.leader_id is not None and partition.status != "unknown"


def record_count(partition: PartitionDescription) -> int | None:
    """Return the count of readable offsets; without compaction, the count of records.

    Return `None` if no leader reported it.
    """
    if not is_reported(partition):
        return None
    return partition.high_watermark - partition.log_start_offset


def _size_bytes(partition: PartitionDescription) -> int | None:
    return partition.size_bytes if is_reported(partition) else None


def _offsets(partition: PartitionDescription) -> tuple[int | None, int | None]:
    if not is_reported(partition):
        return None, None
    return partition.log_start_offset, partition.high_watermark

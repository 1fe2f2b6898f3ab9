"""Queues as people and programs see them."""

from collections.abc import Sequence

import click

from tidelog.cli.output.tables import nodes_text, print_facts, print_settings, print_table
from tidelog.cli.output.times import age_text, moment_text
from tidelog.client.admin.queue_counts import DescribedQueue, MessageCounts
from tidelog.wire.messages.queue_admin import QueueDescription

_COUNTS: tuple[str, ...] = ("visible", "in flight", "delayed", "dead", "oldest")
_UNKNOWN: object = None
_NUMBERS = ("PARTITIONS", "PARTITION", "LEADER", "EPOCH", "START")


def queue_as_json(queue: DescribedQueue) -> dict[str, object]:
    """Return everything about a queue."""
    counts = queue.counts
    return {
        "name": queue.name,
        "queue_id": queue.queue_id.hex(),
        "topic": queue.topic,
        "topic_id": queue.topic_id.hex(),
        "is_fifo": queue.is_fifo,
        "created_at_ms": queue.created_at_ms,
        "config": queue.config,
        "config_overrides": queue.config_overrides,
        "dead_letters_of": queue.dead_letters_of,
        "counts": None
        if counts is None
        else {
            "visible": counts.visible,
            "in_flight": counts.in_flight,
            "delayed": counts.delayed,
            "dead": counts.dead,
            "oldest_timestamp_ms": counts.oldest_timestamp_ms,
            "oldest_age_ms": counts.oldest_age_ms,
        },
        "partitions": [
            {
                "partition": each.partition,
                "leader_id": each.leader_id,
                "leader_epoch": each.leader_epoch,
                "start_offset": each.start_offset,
                "replicas": each.replicas,
                "in_sync_replicas": each.in_sync_replicas,
            }
            for each in queue.partitions
        ],
    }


def print_queues(queues: Sequence[DescribedQueue], *, with_counts: bool) -> None:
    """Print one line for each queue."""
    rows: list[tuple[object, ...]] = []
    for queue in queues:
        row: list[object] = [queue.name, queue.topic, _kind(queue), len(queue.partitions)]
        if with_counts:
            row += _counts(queue.counts).values()
        rows.append((*row, queue.config["dead_letter_queue"]))
    counts = [name.upper() for name in _COUNTS] if with_counts else []
    columns = ["QUEUE", "TOPIC", "KIND", "PARTITIONS", *counts, "DEAD LETTERS TO"]
    print_table(columns, rows, right=(*_NUMBERS, *counts))


def _counts(counts: MessageCounts | None) -> dict[str, object]:
    """Return what is known of the messages of a queue, in the order in which it is shown."""
    if counts is None:
        return dict.fromkeys(_COUNTS, _UNKNOWN)
    age_ms = counts.oldest_age_ms
    return {
        "visible": counts.visible,
        "in flight": counts.in_flight,
        "delayed": counts.delayed,
        "dead": counts.dead,
        "oldest": None if age_ms is None else age_text(age_ms),
    }


def print_queue(queue: DescribedQueue) -> None:
    """Print identity, messages, settings and partitions of a queue."""
    print_facts(
        {
            "queue": queue.name,
            "id": queue.queue_id.hex(),
            "topic": queue.topic,
            "kind": _kind(queue),
            "created": moment_text(queue.created_at_ms),
            "dead letters of": ", ".join(queue.dead_letters_of) or "none",
        }
    )
    click.echo()
    print_facts(_counts(queue.counts))
    click.echo()
    print_settings(queue.config, queue.config_overrides, "queue")
    click.echo()
    columns = ["PARTITION", "LEADER", "EPOCH", "START", "REPLICAS", "IN SYNC"]
    rows = [
        (
            each.partition,
            each.leader_id,
            each.leader_epoch,
            each.start_offset,
            nodes_text(each.replicas),
            nodes_text(each.in_sync_replicas),
        )
        for each in queue.partitions
    ]
    print_table(columns, rows, right=_NUMBERS)


def _kind(queue: QueueDescription) -> str:
    return "FIFO" if queue.is_fifo else "standard"

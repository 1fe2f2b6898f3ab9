"""Queues as people and programs see them."""

from collections.abc import Sequence

import click

from tidelog.cli.tables import nodes_text, print_facts, print_settings, print_table
from tidelog.cli.times import moment_text
from wire.queue_admin import QueueDescription

_NUMBERS = ("PARTITIONS", "PARTITION", "LEADER", "EPOCH", "START")


def queue_as_json(queue: QueueDescription) -> dict[str, object]:
    """Return everything about a queue."""
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


def print_queues(queues: Sequence[QueueDescription]) -> None:
    """Print one line for each queue."""
    rows = [
        (
            queue.name,
            queue.topic,
            _kind(queue),
            len(queue.partitions),
            queue.config["visibility_timeout_ms"],
            queue.config["max_receive_count"],
            queue.config["dead_letter_queue"],
        )
        for queue in queues
    ]
    columns = ["QUEUE", "TOPIC", "KIND", "PARTITIONS", "VISIBILITY", "RECEIVES", "DEAD LETTERS"]
    print_table(columns, rows, right=_NUMBERS)


def print_queue(queue: QueueDescription) -> None:
    """Print identity, settings and partitions of a queue."""
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

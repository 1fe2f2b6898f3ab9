"""The output of `tidelog queue`, as text and JSON."""

from collections.abc import Sequence

import click

from tidelog.cli.output.record_format import text_of
from tidelog.cli.output.tables import (
    nodes_text,
    print_fields,
    print_labels,
    print_settings,
    print_table,
    size_text,
)
from tidelog.cli.output.times import age_text, moment_text
from tidelog.client.admin.queue_counts import DescribedQueue, MessageCounts
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.queue.inspect.peek import PeekedMessage
from tidelog.client.queue.receive.message import Message, Origin
from tidelog.wire.batch.large_messages import is_large, length_of
from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.config.queue_config import QUEUE_SETTINGS
from tidelog.wire.messages.queue_admin import QueueDescription
from tidelog.wire.messages.queues import MessageState

_COUNTS: tuple[str, ...] = ("visible", "in flight", "delayed", "dead", "oldest")
_UNKNOWN: object = None
_NUMBERS = ("PARTITIONS", "PARTITION", "LEADER", "EPOCH", "START", "RECEIVES")
_SHOWN_MAX = 60
"""Characters of a value in a table at most."""


def queue_as_json(queue: DescribedQueue) -> dict[str, object]:
    """Return the description of a queue."""
    counts = queue.counts
    return {
        "name": queue.name,
        "queue_id": queue.queue_id.hex(),
        "topic": queue.topic,
        "topic_id": queue.topic_id.hex(),
        "is_fifo": queue.is_fifo,
        "created_at_ms": queue.created_at_ms,
        "modified_at_ms": queue.modified_at_ms,
        "config": queue.config,
        "config_overrides": queue.config_overrides,
        "labels": queue.labels,
        "dead_letters_of": queue.dead_letters_of,
        "topic_retention_ms": queue.topic_retention_ms,
        "topic_retention_bytes": queue.topic_retention_bytes,
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
    """Return the message counts of a queue, in the order of the columns."""
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
    """Print identity, message counts, settings and partitions of a queue."""
    print_fields(
        {
            "queue": queue.name,
            "id": queue.queue_id.hex(),
            "topic": queue.topic,
            "kind": _kind(queue),
            "created": moment_text(queue.created_at_ms),
            "changed": moment_text(queue.modified_at_ms or queue.created_at_ms),
            "dead letters of": ", ".join(queue.dead_letters_of) or "none",
            "keeps messages": _retention_text(queue),
        }
    )
    click.echo()
    print_fields(_counts(queue.counts))
    click.echo()
    print_settings(queue.config, queue.config_overrides, "queue")
    print_labels(queue.labels)
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


def _retention_text(queue: QueueDescription) -> str:
    """Return how long the queue keeps messages, and by which setting."""
    setting = QUEUE_SETTINGS["retention_ms"]
    own_ms = setting.parse(setting.name, queue.config[setting.name])
    kept_ms, owner = queue.topic_retention_ms, f"topic {queue.topic}"
    if isinstance(own_ms, int) and (kept_ms is None or own_ms <= kept_ms):
        kept_ms, owner = own_ms, "the queue"
    text = "unlimited"
    if kept_ms is not None:
        text = f"{age_text(kept_ms)} (retention_ms of {owner})"
    if queue.topic_retention_bytes is None:
        return text
    size = size_text(queue.topic_retention_bytes)
    return f"{text}, and the last {size} of each partition (retention_bytes of the topic)"


def _kind(queue: QueueDescription) -> str:
    return "FIFO" if queue.is_fifo else "standard"


def message_as_json(message: Message) -> dict[str, object]:
    """Return all fields of a received message."""
    return {
        **_record_as_json(message),
        "receive_count": message.receive_count,
        "first_received_ms": message.first_received_ms,
        "origin": _origin_as_json(message.origin),
        "receipt_handle": message.receipt_handle,
    }


def state_word(state: MessageState) -> str:
    """Return the state of a message as in `--state`, such as `in-flight`."""
    return state.name.lower().replace("_", "-")


def seen_as_json(seen: PeekedMessage) -> dict[str, object]:
    """Return all fields of a peeked message."""
    return {
        **_record_as_json(seen.record),
        "state": state_word(seen.state),
        "receive_count": seen.receive_count,
        "visible_at_ms": seen.visible_at_ms,
        "holder": seen.holder or None,
        "reason": seen.reason or None,
        "origin": _origin_as_json(seen.origin),
    }


def print_messages(messages: Sequence[Message]) -> None:
    """Print a line for each received message."""
    rows = [
        (
            message.message_id,
            message.receive_count,
            moment_text(message.timestamp_ms),
            _short(message.key),
            _value(message.content, message.headers),
            message.receipt_handle,
        )
        for message in messages
    ]
    columns = ["MESSAGE", "RECEIVES", "SENT", "KEY", "VALUE", "RECEIPT HANDLE"]
    print_table(columns, rows, right=_NUMBERS)


def print_seen(seen: Sequence[PeekedMessage]) -> None:
    """Print a line for each peeked message."""
    rows = [
        (
            each.message_id,
            state_word(each.state),
            each.receive_count,
            None if each.visible_at_ms is None else moment_text(each.visible_at_ms),
            each.holder or None,
            _short(each.record.key),
            _value(each.record.value, each.record.headers),
        )
        for each in seen
    ]
    columns = ["MESSAGE", "STATE", "RECEIVES", "VISIBLE AT", "HOLDER", "KEY", "VALUE"]
    print_table(columns, rows, right=_NUMBERS)


def print_dead_letters(seen: Sequence[PeekedMessage]) -> None:
    """Print a line for each dead letter, with its reason."""
    rows: list[tuple[object, ...]] = []
    for each in seen:
        origin = each.origin
        place = each.message_id if origin is None else f"{origin.partition}-{origin.offset}"
        count = each.receive_count if origin is None else origin.receive_count
        reason = each.reason if origin is None else origin.reason
        first_line = reason.partition("\n")[0]
        value = _value(each.record.value, each.record.headers)
        rows.append((place, count, _short(each.record.key), value, first_line))
    print_table(["MESSAGE", "RECEIVES", "KEY", "VALUE", "REASON"], rows, right=_NUMBERS)


def _record_as_json(record: Record | Message) -> dict[str, object]:
    content = record.content if isinstance(record, Message) else record.value
    return {
        "message_id": f"{record.partition}-{record.offset}",
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": text_of(record.key),
        "value": None if record.is_large and not content else text_of(content),
        "length": length_of(content, record.headers),
        "headers": [{"name": name, "value": text_of(item)} for name, item in record.headers],
    }


def _origin_as_json(origin: Origin | None) -> dict[str, object] | None:
    return None if origin is None else origin._asdict()


def _value(content: bytes | None, headers: Headers) -> str | None:
    """Return a value as a cell; for a large message, return its length."""
    if content or not is_large(headers):
        return _short(content)
    return f"({size_text(length_of(content, headers))})"


def _short(content: bytes | None) -> str | None:
    """Return bytes as a cell."""
    if content is None:
        return None
    text = " ".join(content.decode("utf-8", "backslashreplace").split())
    # Control characters are escaped, so that they cannot control the terminal.
    text = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"

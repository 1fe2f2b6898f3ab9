"""Messages on their way into a queue: checked, and as records.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable, Sequence
from operator import index
from typing import TypeGuard, cast, final

import msgspec

from client.outgoing import OutgoingRecord, checked_record
from client.queue_message import milliseconds
from wire.errors import InvalidRequestError
from wire.queues import (
    DEDUPLICATION_ID_HEADER,
    DELIVER_AT_HEADER,
    HEADER_PREFIX,
    PRIORITY_HEADER,
)

_DEDUPLICATION_ID_LENGTH_MAX = 128
"""Bytes of UTF-8."""

_PLAIN_BYTES_MAX = 32 << 10


@final
class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message for `Queue.send_batch`; only `value` must be given."""

    value: bytes | None
    key: bytes | None = None
    """FIFO queues: its group, which is handed out in order. Others: as for records."""
    headers: Iterable[tuple[str, bytes]] = ()
    delay: float | None = None
    """Nobody gets it for so many seconds; `None` for what the queue says."""
    priority: int | None = None
    """Its lane, in a queue that has some; 0 is the most urgent."""
    deduplication_id: str | None = None
    """FIFO queues: one of these is kept within the window."""


def is_plain(messages: Sequence[bytes | OutgoingMessage]) -> TypeGuard[Sequence[bytes]]:
    """Return whether all are values of a moderate size, and nothing else."""
    return set(map(type, messages)) == {bytes} and (
        max(map(len, cast("Sequence[bytes]", messages))) <= _PLAIN_BYTES_MAX
    )


def record_of(message: OutgoingMessage, topic: str, *, now_ms: int) -> OutgoingRecord:
    """Return the record of a message.

    Raises:
        TypeError: Something is not of its type; the message says what it should be.
        ValueError: A number is out of range, or a header means something to queues.
    """
    record = checked_record(topic, message.value, message.key, None, message.headers, None)
    for name, _ in record.headers:
        if name.startswith(HEADER_PREFIX):
            raise ValueError(
                f"headers that begin with {HEADER_PREFIX!r} are set by queues, {name!r} is one"
            )
    fields = _fields(message, now_ms)
    if not fields:
        return record
    return msgspec.structs.replace(record, headers=(*record.headers, *fields))


def check_for_kind(
    message: OutgoingMessage, *, is_fifo: bool, is_deduplicated: bool = False
) -> None:
    """Check that a message may be sent to a queue of this kind.

    Args:
        message: What is to be sent.
        is_fifo: Whether the queue has message groups.
        is_deduplicated: Whether it makes deduplication ids of values (content-based).

    Raises:
        InvalidRequestError: It may not, and why.
    """
    if not is_fifo:
        if message.deduplication_id is not None:
            raise InvalidRequestError("only FIFO queues take deduplication ids")
    elif message.key is None:
        raise InvalidRequestError("a message to a FIFO queue needs a group: give its key")
    elif message.delay:
        raise InvalidRequestError(
            "messages of a FIFO queue have no delays of their own; the queue can have one"
            " (delivery_delay)"
        )
    elif message.priority is not None:
        raise InvalidRequestError("a FIFO queue has an order of its own, and no priorities")
    elif message.deduplication_id is not None:
        # Better not sent than sent twice.
        raise InvalidRequestError("brokers do not look for duplicates yet; send it without the id")
    elif is_deduplicated:
        raise InvalidRequestError(
            "brokers do not look for duplicates yet; turn content_based_deduplication off"
        )


def _fields(message: OutgoingMessage, now_ms: int) -> list[tuple[str, bytes]]:
    fields: list[tuple[str, bytes]] = []
    if message.delay is not None:
        deliver_at_ms = now_ms + milliseconds("delay", message.delay)
        fields.append((DELIVER_AT_HEADER, b"%d" % deliver_at_ms))
    if message.priority is not None:
        if message.priority < 0:
            raise ValueError(f"a priority is a number from 0 on, not {message.priority}")
        fields.append((PRIORITY_HEADER, str(index(message.priority)).encode()))
    if message.deduplication_id is not None:
        sent_id = message.deduplication_id.encode()
        if not 1 <= len(sent_id) <= _DEDUPLICATION_ID_LENGTH_MAX:
            raise ValueError(
                f"a deduplication id has 1 to {_DEDUPLICATION_ID_LENGTH_MAX} bytes,"
                f" not {len(sent_id)}"
            )
        fields.append((DEDUPLICATION_ID_HEADER, sent_id))
    return fields

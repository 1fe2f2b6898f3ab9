"""Fields of outgoing messages: checks, and conversion to records.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any, NamedTuple, TypedDict, final

import msgspec

from tidelog.client.cluster.durations import milliseconds_of
from tidelog.client.producer.producer_record import (
    ProducerRecord,
    checked_headers,
    checked_record,
)
from tidelog.client.queue.send.chunk_writer import Source
from tidelog.client.tracing.trace_context import with_context
from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.queues import (
    DEDUPLICATION_ID_BYTES_MAX,
    DEDUPLICATION_ID_HEADER,
    DELIVER_AT_HEADER,
    HEADER_PREFIX,
    PRIORITY_HEADER,
)

_PLAIN_BYTES_MAX = 32 << 10


class _Valued(msgspec.Struct, frozen=True):
    value: Source | None
    """Value of up to 1 GiB: bytes, a file open for reading bytes, or an asynchronous iterable."""


@final
class OutgoingMessage(_Valued, frozen=True, kw_only=True):
    """One message for `Queue.send_batch`; only `value` must be given."""

    key: bytes | None = None
    """Key of the record: messages with the same key are in one partition."""
    group: bytes | None = None
    """Message group in FIFO queues: messages of one group are delivered in order. An alias of
    `key`, which stores it."""
    headers: Iterable[tuple[str, bytes]] = ()
    delay: float | None = None
    """Seconds until it becomes visible; `None` for the setting of the queue."""
    priority: int | None = None
    """Priority in a queue with priorities, 0 is the most urgent; `None` for the setting of the
    queue."""
    deduplication_id: str | None = None
    """Deduplication id in FIFO queues: one message with this id is kept within the window."""


def plain_messages(
    messages: Sequence[bytes | OutgoingMessage], context: Headers
) -> tuple[Sequence[bytes], Headers] | None:
    """Return the values and the headers of messages that differ in their values alone.

    Any standard queue accepts them as columns of values. They have values of a moderate size,
    and headers at most, all the same object.

    Args:
        messages: Values and messages.
        context: Trace context, which they get unless their headers have one.

    Raises:
        TypeError: A header has a wrong type.
        ValueError: A header is reserved for queues.
    """
    values: Sequence[Any] | None = None
    headers = context
    first = messages[0] if messages else None
    if type(first) is bytes:
        if set(map(type, messages)) == {bytes}:
            values = messages
    elif isinstance(first, OutgoingMessage):
        values = _values_of(messages, first.headers)
        if values is not None:
            headers = with_context(_own_headers(first.headers), context)
    if values is None or max(map(len, values)) > _PLAIN_BYTES_MAX:
        return None
    return values, headers


def _values_of(
    messages: Sequence[bytes | OutgoingMessage], headers: Iterable[tuple[str, bytes]]
) -> list[bytes] | None:
    """Return the values of messages that have these headers and nothing else."""
    if not isinstance(headers, tuple):
        return None  # It may be readable only once.
    values: list[bytes] = []
    for each in messages:
        if (
            type(each) is not OutgoingMessage
            or type(each.value) is not bytes
            or each.headers is not headers
            or each.key is not None
            or each.group is not None
            or each.delay is not None
            or each.priority is not None
            or each.deduplication_id is not None
        ):
            return None
        values.append(each.value)
    return values


def _own_headers(given: Iterable[tuple[str, bytes]]) -> Headers:
    """Return the headers that an application gave.

    Raises:
        TypeError: One has a wrong type.
        ValueError: One is reserved for queues.
    """
    headers = checked_headers(given) if given else ()
    for name, _ in headers:
        if name.startswith(HEADER_PREFIX):
            raise ValueError(
                f"headers that begin with {HEADER_PREFIX!r} are set by queues, {name!r} is one"
            )
    return headers


class MessageFields(TypedDict, total=False):
    """The fields of `OutgoingMessage` except its value, as keywords."""

    key: bytes | None
    group: bytes | None
    headers: Iterable[tuple[str, bytes]]
    delay: float | None
    priority: int | None
    deduplication_id: str | None


def record_of(
    message: OutgoingMessage, topic: str, *, now_ms: int, is_fifo: bool = False
) -> ProducerRecord:
    """Return the record of a message.

    Raises:
        TypeError: A part has a wrong type; the message names the right one.
        ValueError: A number is out of range, a header is reserved for queues, or key and group
            differ.
    """
    key = _key_of(message)
    value = message.value
    if value is not None and not isinstance(value, (bytes, str)):
        value = b""  # A placeholder; see `client.queue.send.chunk_writer`.
    headers = _own_headers(message.headers)
    record = checked_record(topic, value, key, partition=None, headers=headers, timestamp_ms=None)
    if is_fifo and message.delay == 0:
        message = msgspec.structs.replace(message, delay=None)  # The queue's delay applies.
    fields = _fields(message, now_ms)
    if not fields:
        return record
    return msgspec.structs.replace(record, headers=(*record.headers, *fields))


@final
class QueueKind(NamedTuple):
    """Properties of a queue that decide which messages it accepts."""

    topic: str = ""
    is_fifo: bool = False
    priority_count: int = 0
    """Number of its priorities, 0 without."""
    topic_retention_ms: int | None = None
    """How long the topic keeps records; `None` without a limit."""


def check_for_kind(message: OutgoingMessage, kind: QueueKind) -> None:
    """Check that a queue of this kind accepts a message.

    Raises:
        InvalidRequestError: It does not; the error has the reason.
    """
    if not kind.is_fifo:
        if message.deduplication_id is not None:
            raise InvalidRequestError("only FIFO queues take deduplication ids")
        if message.priority is not None:
            _check_priority(message.priority, kind.priority_count)
        if message.delay and kind.topic_retention_ms is not None:
            _check_delay(message.delay, kind.topic, kept_s=kind.topic_retention_ms / 1000)
    elif _key_of(message) is None:
        raise InvalidRequestError("a message to a FIFO queue needs a group: give its key")
    elif message.delay:
        raise InvalidRequestError(
            "messages of a FIFO queue have no delays of their own; the queue can have one"
            " (delivery_delay)"
        )
    elif message.priority is not None:
        raise InvalidRequestError("a FIFO queue has an order of its own, and no priorities")


def _check_delay(delay_s: float, topic: str, *, kept_s: float) -> None:
    if milliseconds_of("delay", delay_s) >= kept_s * 1000:
        raise InvalidRequestError(
            f"the delay of a message is {delay_s:g} s, and topic {topic!r} deletes records after"
            f" {kept_s:g} s (retention_ms): it would delete the message before its delivery; raise"
            " retention_ms of the topic, or send the message later"
        )


def _check_priority(priority: int, count: int) -> None:
    if not count:
        raise InvalidRequestError(
            "the queue has no priorities; it needs `priority_weights`, such as"
            " `tidelog queue alter NAME --set priority_weights=8,4,1`"
        )
    if priority >= count:
        raise InvalidRequestError(
            f"the priority of a message is {priority}, it must be from 0 to {count - 1}: the"
            f" `priority_weights` of the queue have {count} of them"
        )


def _key_of(message: OutgoingMessage) -> bytes | None:
    key, group = message.key, message.group
    if key is not None and group is not None and key != group:
        raise ValueError("key and group are the same thing; give one of them")
    return key if group is None else group


def _fields(message: OutgoingMessage, now_ms: int) -> list[tuple[str, bytes]]:
    fields: list[tuple[str, bytes]] = []
    if message.delay is not None:
        deliver_at_ms = now_ms + milliseconds_of("delay", message.delay)
        fields.append((DELIVER_AT_HEADER, b"%d" % deliver_at_ms))
    if message.priority is not None:
        if message.priority < 0:
            raise ValueError(f"a priority is a number from 0 on, not {message.priority}")
        fields.append((PRIORITY_HEADER, str(index(message.priority)).encode()))
    if message.deduplication_id is not None:
        sent_id = message.deduplication_id.encode()
        if not 1 <= len(sent_id) <= DEDUPLICATION_ID_BYTES_MAX:
            raise ValueError(
                f"a deduplication id has 1 to {DEDUPLICATION_ID_BYTES_MAX} bytes,"
                f" not {len(sent_id)}"
            )
        fields.append((DEDUPLICATION_ID_HEADER, sent_id))
    return fields

"""Rows of an outbox: messages that wait in a table for the relay.

Pure: no clock, no I/O.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from tidelog.client.producer.producer_record import ProducerRecord, checked_record
from tidelog.outbox.errors import OutboxRowError
from tidelog.wire.batch.message_id import MESSAGE_ID_HEADER, message_id_in
from tidelog.wire.batch.record_batch import Headers

PARTITIONS_END: Final = 1 << 31
_decoder: Final = msgspec.json.Decoder(list[list[str]])


class OutboxMessage(NamedTuple):
    """One message for `Outbox.add_many`."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    """Key: messages with the same key stay in the order of their inserts."""
    partition: int | None = None
    """Partition; `None` lets the key, or the relay, choose."""
    headers: Sequence[tuple[str, bytes]] = ()
    """Pairs of name and value."""


class OutboxRow(NamedTuple):
    """One row, as the relay reads it."""

    row_id: int
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: str | None
    created_at_us: int
    """Time of the insert, by the clock of the database: Unix microseconds."""


Values = tuple[str, int | None, bytes | None, bytes | None, str | None]
"""Topic, partition, key, value and headers, as the columns take them."""


def values_of(message: OutboxMessage) -> Values:
    """Return the values of the columns of a row.

    Raises:
        TypeError: A part has a wrong type; the message names the right one.
        ValueError: The topic is empty, or the partition is out of range.
    """
    topic = message.topic
    if not isinstance(cast("object", topic), str):
        raise TypeError(f"a topic is a str, not {type(topic).__name__}")
    if not topic:
        raise ValueError("the topic is empty; give the name of a topic")
    partition = message.partition
    if partition is not None and not 0 <= partition < PARTITIONS_END:
        raise ValueError(f"partition is {partition}; it must be from 0 to 2^31 - 1")
    record = checked_record(
        topic,
        message.value,
        message.key,
        partition=partition,
        headers=message.headers,
        timestamp_ms=None,
    )
    headers = encode_headers(record.headers) if record.headers else None
    return topic, partition, record.key, record.value, headers


def encode_headers(headers: Iterable[tuple[str, bytes]]) -> str:
    """Return headers as JSON: `["name", "text"]`, or `["name", "...", "base64"]` for bytes."""
    return msgspec.json.encode([_encoded(name, value) for name, value in headers]).decode()


def _encoded(name: str, value: bytes) -> Sequence[str]:
    try:
        return name, value.decode()
    except UnicodeDecodeError:
        return name, base64.b64encode(value).decode(), "base64"


def decode_headers(text: str) -> Headers:
    """Return headers from JSON, which an application may have written itself.

    Raises:
        ValueError: It is no list of headers.
    """
    headers: list[tuple[str, bytes]] = []
    for header in _decoder.decode(text):
        match header:
            case [name, value]:
                headers.append((name, value.encode()))
            case [name, value, "base64"]:
                headers.append((name, base64.b64decode(value, validate=True)))
            case _:
                raise ValueError(f"{header} is no header")
    return tuple(headers)


def record_of(row: OutboxRow, name: str) -> ProducerRecord:
    """Return the record of a row; its message id is that of the row, unless it has one.

    Args:
        row: Row.
        name: Name of the outbox, which no other table has.

    Raises:
        OutboxRowError: The headers are no list of headers.
    """
    headers: Headers = ()
    if row.headers:
        try:
            headers = decode_headers(row.headers)
        except (msgspec.DecodeError, binascii.Error, ValueError) as error:
            raise OutboxRowError(
                f"row {row.row_id} cannot be sent: its headers are no JSON list of"
                f' ["name", "text"] pairs: {error}',
                row_id=row.row_id,
            ) from error
    if not headers or message_id_in(headers) is None:
        headers = (*headers, (MESSAGE_ID_HEADER, f"{name}:{row.row_id}".encode()))
    return ProducerRecord(
        row.topic, row.value, row.key, row.partition, headers, max(row.created_at_us // 1000, 0)
    )

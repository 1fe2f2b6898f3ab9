"""Routing of rows: whether a topic takes a row, and the dead letters of those that it refuses.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, final

from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.outbox.errors import OutboxRowError
from tidelog.outbox.rows import OutboxRow, record_of
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.config.settings import parse_size_bytes
from tidelog.wire.messages.topics import TopicDescription

REFUSED_TOPIC_HEADER: Final = "tidelog-outbox-topic"
"""Topic of the row of a dead letter."""
REFUSED_REASON_HEADER: Final = "tidelog-outbox-reason"
"""Reason of a dead letter."""
RECORD_BYTES_MAX: Final = 64 << 20
"""Maximum size of any record; the buffer of the relay's producer takes some of them."""
_OVERHEAD_BYTES: Final = 1024
"""More than a batch of one record without headers has beside key and value."""


class Destination(NamedTuple):
    """A topic, as far as it refuses rows."""

    partition_count: int
    max_message_bytes: int

    @classmethod
    def of(cls, described: TopicDescription) -> "Destination":
        """Return the destination that a topic is."""
        name = "max_message_bytes"
        return cls(len(described.partitions), parse_size_bytes(name, described.config[name]))


class Routed(NamedTuple):
    """Rows that can be sent, and the reason to stop behind them."""

    records: Sequence[ProducerRecord]
    """One record for each of the first rows."""
    dead_letters: Sequence[OutboxRowError]
    """The refusals of those records that go to the topic of dead letters."""
    refusal: OutboxRowError | None
    """The refusal of the next row; `None` if there is no next row."""


@final
class Router:
    """Turns the rows of one outbox into records."""

    def __init__(self, name: str, dead_letter_topic: str | None) -> None:
        """Send what topics refuse to `dead_letter_topic`, if there is one."""
        self._name = name
        self._dead_letter_topic = dead_letter_topic

    def topics_of(self, rows: Iterable[OutboxRow]) -> set[str]:
        """Return all topics that the records of these rows may go to."""
        letters = () if self._dead_letter_topic is None else (self._dead_letter_topic,)
        return {*letters, *(row.topic for row in rows)}

    def route(self, rows: Sequence[OutboxRow], destinations: Mapping[str, Destination]) -> Routed:
        """Return the records of the first rows, up to one that cannot be sent anywhere."""
        records: list[ProducerRecord] = []
        letters: list[OutboxRowError] = []
        for row in rows:
            try:
                record = self._accepted(record_of(row, self._name), row, destinations)
            except OutboxRowError as error:
                letter = self._dead_letter(row, error)
                if letter is None or self._refusal(letter, destinations) is not None:
                    return Routed(records, letters, error)
                letters.append(error)
                records.append(letter)
            else:
                records.append(record)
        return Routed(records, letters, None)

    def _accepted(
        self, record: ProducerRecord, row: OutboxRow, destinations: Mapping[str, Destination]
    ) -> ProducerRecord:
        refusal = self._refusal(record, destinations)
        if refusal is not None:
            raise OutboxRowError(f"row {row.row_id} cannot be sent: {refusal}", row_id=row.row_id)
        return record

    @staticmethod
    def _refusal(record: ProducerRecord, destinations: Mapping[str, Destination]) -> str | None:
        """Return why a topic does not take a record, `None` if it does."""
        destination = destinations.get(record.topic)
        if destination is None:
            return f"there is no topic {record.topic!r}; create it, or set a dead-letter topic"
        count = destination.partition_count
        if record.partition is not None and not 0 <= record.partition < count:
            return f"topic {record.topic!r} has {count} partitions, and no {record.partition}"
        limit = min(destination.max_message_bytes, RECORD_BYTES_MAX)
        if record.size + _OVERHEAD_BYTES > limit and (size := _encoded_bytes(record)) > limit:
            return (
                f"it has {size:,} bytes, and topic {record.topic!r} takes {limit:,}"
                " (max_message_bytes)"
            )
        return None

    def _dead_letter(self, row: OutboxRow, refusal: OutboxRowError) -> ProducerRecord | None:
        if self._dead_letter_topic is None:
            return None
        try:
            record = record_of(row, self._name)
        except OutboxRowError:
            record = record_of(row._replace(headers=None), self._name)
        headers = (
            *record.headers,
            (REFUSED_TOPIC_HEADER, row.topic.encode()),
            (REFUSED_REASON_HEADER, str(refusal).encode()),
        )
        topic, at_ms = self._dead_letter_topic, record.timestamp_ms
        return ProducerRecord(topic, record.value, record.key, None, headers, at_ms)


def by_topic(records: Iterable[ProducerRecord]) -> dict[str, list[ProducerRecord]]:
    """Return the records of each topic, in their order."""
    found: dict[str, list[ProducerRecord]] = {}
    for record in records:
        found.setdefault(record.topic, []).append(record)
    return found


def _encoded_bytes(record: ProducerRecord) -> int:
    columns = Columns(1, keys=[record.key], values=[record.value], headers=[record.headers])
    return len(encode_batch(columns, first_timestamp_ms=record.timestamp_ms or 0))

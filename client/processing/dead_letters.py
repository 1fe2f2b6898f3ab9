"""Dead letters of a processor: records that its transform refused.

Pure: no clock, no I/O.
"""

from typing import Final

from tidelog.client.consumer.fetch.record import Record
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.queue.receive.worker import reason_of
from tidelog.wire.messages.queues import (
    ORIGIN_OFFSET_HEADER,
    ORIGIN_PARTITION_HEADER,
    ORIGIN_TOPIC_HEADER,
    REASON_HEADER,
)

_ADDED: Final = frozenset(
    {ORIGIN_TOPIC_HEADER, ORIGIN_PARTITION_HEADER, ORIGIN_OFFSET_HEADER, REASON_HEADER}
)


def dead_letter(topic: str, record: Record, error: Exception) -> ProducerRecord:
    """Return a record for the dead-letter topic, with headers for its origin and the error.

    They are the headers of dead letters of queues.
    """
    kept = [(name, value) for name, value in record.headers if name not in _ADDED]
    added = {
        ORIGIN_TOPIC_HEADER: record.topic,
        ORIGIN_PARTITION_HEADER: record.partition,
        ORIGIN_OFFSET_HEADER: record.offset,
        REASON_HEADER: reason_of(error),
    }
    headers = [*kept, *((name, str(value).encode()) for name, value in added.items())]
    return ProducerRecord(topic, record.value, record.key, headers=tuple(headers))

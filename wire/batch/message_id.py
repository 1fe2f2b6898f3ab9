"""Message id: the identity of a message over dead-letter queues and redrives.

Pure: no clock, no I/O. A move gives a message a new record with a new offset. So each move writes
the id of the first record into a header, unless the record has this header: an application, such as
the relay of an outbox, may set it.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

MESSAGE_ID_HEADER: Final = "tidelog-message-id"
"""Header with the message id, at most `MESSAGE_ID_BYTES_MAX` bytes of UTF-8."""
MESSAGE_ID_BYTES_MAX: Final = 255


def record_id(topic_id: bytes, partition: int, offset: int) -> str:
    """Return the id of a record without the header, which no other record ever has."""
    return f"{topic_id.hex()}-{partition}-{offset}"


def message_id_in(headers: Iterable[tuple[str, bytes]]) -> str | None:
    """Return the message id in headers, `None` without a valid one; the first valid one counts."""
    for name, value in headers:
        if name == MESSAGE_ID_HEADER and 0 < len(value) <= MESSAGE_ID_BYTES_MAX:
            with suppress(UnicodeDecodeError):
                return value.decode()
    return None

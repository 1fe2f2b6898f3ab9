"""Sends to queues that look at each message: what is refused, and what was sent before.

Pure: no clock, no I/O. Whoever leads the partition asks here before it appends, and tells the
window of what it appended, with nothing in between. A duplicate may be one of a message that is not
committed yet: its answer waits for that message as if it were its own.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from queue_layer.deduplication import DeduplicationRule, DeduplicationWindow
from wire.errors import InvalidRequestError

DEDUPLICATION_ID_SIZE_MAX: Final = 128
"""Bytes."""


class SentMessage(NamedTuple):
    """What a sender says about a message."""

    value: bytes
    group: bytes | None = None
    """The key of the record."""
    deduplication_id: bytes | None = None
    delay_ms: int | None = None
    """`None`: as the queue says."""


class Original(NamedTuple):
    """The message that another one is a duplicate of: in the log, or before it in the same send."""

    offset: int | None = None
    place: int | None = None


def check_message(message: SentMessage, rule: DeduplicationRule | None) -> bytes | None:
    """Return by which key a message is told from others, `None` if it never is a duplicate.

    Args:
        message: The message.
        rule: That of the FIFO queue, `None` for a standard one.

    Raises:
        InvalidRequestError: The queue does not take it, and why. In a send of several messages this
            is the error of one of them.
    """
    if rule is None:
        if message.deduplication_id is not None:
            raise InvalidRequestError("only FIFO queues take deduplication ids")
        return None
    if message.group is None:
        raise InvalidRequestError("a message to a FIFO queue needs a group: the key of its record")
    if message.delay_ms:
        raise InvalidRequestError(
            "messages of a FIFO queue have no delays of their own, for they would hold back what"
            " is behind them; the queue can have one (delivery_delay_ms)"
        )
    sent_id = message.deduplication_id
    if sent_id is not None and not 1 <= len(sent_id) <= DEDUPLICATION_ID_SIZE_MAX:
        raise InvalidRequestError(f"a deduplication id has 1 to {DEDUPLICATION_ID_SIZE_MAX} bytes")
    key = rule.key_of(message.group, sent_id, message.value)
    if key is None:
        raise InvalidRequestError(
            "a message to a FIFO queue needs a deduplication id, unless the queue makes one of the"
            " content (content_based_deduplication)"
        )
    return key


def originals(
    keys: Sequence[bytes | None], window: DeduplicationWindow, *, now_ms: int
) -> list[Original | None]:
    """Return of which message each one is a duplicate; `None` for those to be appended."""
    found: list[Original | None] = []
    places: dict[bytes, int] = {}
    for place, key in enumerate(keys):
        original = None
        if key is not None:
            offset = window.original_of(key, now_ms=now_ms)
            if offset is not None:
                original = Original(offset=offset)
            elif key in places:
                original = Original(place=places[key])
            else:
                places[key] = place
        found.append(original)
    return found

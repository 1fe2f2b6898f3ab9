"""Sends to a FIFO queue: duplicates of earlier messages are not appended.

Pure: no clock, no I/O. The leader of the topic partition decides here which messages to append,
appends them, and records that, without any step in between. So of two sends of one id, the second
finds the first, committed or not, and its reply waits for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar, final

from tidelog.queue_layer.commands.deduplication import DeduplicationRule, DeduplicationWindow
from tidelog.wire.batch.record_batch import Columns
from tidelog.wire.errors import InvalidRequestError, OverloadedError
from tidelog.wire.messages.queues import (
    CHUNKS_HEADER,
    DEDUPLICATION_ID_BYTES_MAX,
    DEDUPLICATION_ID_HEADER,
    DELIVER_AT_HEADER,
    PRIORITY_HEADER,
    SENT_TO_HEADER,
)

_Item = TypeVar("_Item")
_NO_FIELDS: Final[Mapping[str, bytes]] = {}


class SentMessage(NamedTuple):
    """Fields of a record that matter for its message."""

    value: bytes | None
    group: bytes | None = None
    """The key of the record."""
    fields: Mapping[str, bytes] = _NO_FIELDS
    """Headers of the record; of several with one name the last."""


class SendDecision(NamedTuple):
    """Decision about the messages of one send."""

    time_ms: int
    """Time of the decision, Unix milliseconds."""
    keys: Sequence[bytes | None]
    """Deduplication keys; `None` for messages that are never duplicates."""
    known: Sequence[int | None]
    """Offsets of originals."""
    kept: Sequence[int]
    """Places of the messages to append, ascending."""

    def offsets(self, base_offset: int) -> list[int]:
        """Return the offset of each message, if the kept ones were appended from here on."""
        found: list[int] = []
        appended: dict[bytes | None, int] = {}
        next_offset = base_offset
        for key, known in zip(self.keys, self.known, strict=True):
            offset = known if known is not None or key is None else appended.get(key)
            if offset is None:
                offset = appended[key] = next_offset
                next_offset += 1
            found.append(offset)
        return found


@final
class SentMessages:
    """Messages of one partition that were sent to one queue within its window."""

    __slots__ = ("_queue_id", "_rule", "_window")

    def __init__(
        self, queue_id: bytes, rule: DeduplicationRule, window: DeduplicationWindow
    ) -> None:
        """Use `window` for the ids of the queue."""
        self._queue_id = queue_id
        self._rule = rule
        self._window = window

    def decide(self, messages: Sequence[SentMessage], *, now_ms: int) -> SendDecision:
        """Return which of these messages are new; of equal ids among them the first is.

        Raises:
            InvalidRequestError: The queue does not accept one of the messages, so it accepts none.
            OverloadedError: The window has the maximum number of ids.
        """
        if self._window.is_full(now_ms=now_ms):
            raise OverloadedError(
                f"{len(self._window)} ids were sent to this partition of the queue within its"
                " window, and no more can be remembered; send later"
            )
        time_ms = self._window.time(now_ms)
        keys = [self._checked_key(message) for message in messages]
        known: list[int | None] = []
        kept: list[int] = []
        fresh: set[bytes] = set()
        for place, key in enumerate(keys):
            original = None if key is None else self._window.original_of(key, now_ms=time_ms)
            known.append(original)
            if original is None and key not in fresh:
                kept.append(place)
                if key is not None:
                    fresh.add(key)
        return SendDecision(time_ms, keys, known, kept)

    def appended(self, decision: SendDecision, base_offset: int) -> None:
        """Add the appended messages of a decision, from this offset on."""
        for offset, place in enumerate(decision.kept, base_offset):
            key = decision.keys[place]
            if key is not None:
                self._window.appended(key, offset, accepted_ms=decision.time_ms)

    def read(
        self, messages: Sequence[SentMessage], offsets: Iterable[int], *, time_ms: int
    ) -> None:
        """Add a batch that was read from the log, in the order of offsets.

        A purge must be applied before: purged messages are no originals of later ones.
        """
        for offset, message in zip(offsets, messages, strict=False):
            if message.fields.get(SENT_TO_HEADER) == self._queue_id:
                key = self._key(message)
                if key is not None:
                    self._window.appended(key, offset, accepted_ms=time_ms)

    def original_of(self, message: SentMessage, *, now_ms: int) -> int | None:
        """Return the offset of the original of a duplicate, if it is known."""
        key = self._key(message)
        return None if key is None else self._window.original_of(key, now_ms=now_ms)

    def forget_below(self, offset: int) -> None:
        """Ignore messages below an offset from now on, after a purge."""
        self._window.forget_below(offset)

    def _key(self, message: SentMessage) -> bytes | None:
        sent_id = message.fields.get(DEDUPLICATION_ID_HEADER)
        # A large message has no value here, and the offsets of its chunks are unique.
        content = message.fields.get(CHUNKS_HEADER, message.value or b"")
        return self._rule.key_of(message.group, sent_id, content)

    def _checked_key(self, message: SentMessage) -> bytes | None:
        fields = message.fields
        if message.group is None:
            raise InvalidRequestError(
                "a message to a FIFO queue needs a group: the key of its record"
            )
        if DELIVER_AT_HEADER in fields:
            raise InvalidRequestError(
                "messages of a FIFO queue have no delays of their own, because they would block"
                " later messages of their group; the queue can have one (delivery_delay_ms)"
            )
        if PRIORITY_HEADER in fields:
            raise InvalidRequestError("a FIFO queue has an order of its own, and no priorities")
        if fields.get(SENT_TO_HEADER) != self._queue_id:
            raise InvalidRequestError(
                f"each message to a FIFO queue says so in its header {SENT_TO_HEADER!r}"
            )
        sent_id = fields.get(DEDUPLICATION_ID_HEADER)
        if sent_id is not None and not 1 <= len(sent_id) <= DEDUPLICATION_ID_BYTES_MAX:
            raise InvalidRequestError(
                f"a deduplication id has 1 to {DEDUPLICATION_ID_BYTES_MAX} bytes"
            )
        return self._key(message)


def messages_of(columns: Columns) -> list[SentMessage]:
    """Return the messages of one batch."""
    count = columns.record_count
    values = columns.values or [None] * count
    keys = columns.keys or [None] * count
    headers = columns.headers or [()] * count
    return [
        SentMessage(value, key, dict(of_record) if of_record else _NO_FIELDS)
        for value, key, of_record in zip(values, keys, headers, strict=True)
    ]


def check_standard(messages: Sequence[SentMessage]) -> None:
    """Check messages for a queue that is not FIFO.

    Raises:
        InvalidRequestError: A message has a deduplication id.
    """
    if any(DEDUPLICATION_ID_HEADER in message.fields for message in messages):
        raise InvalidRequestError("only FIFO queues take deduplication ids")


def chosen(columns: Columns, places: Sequence[int]) -> Columns:
    """Return some of the records of a batch, without their own times."""

    def some(column: Sequence[_Item] | None) -> list[_Item] | None:
        return None if column is None else [column[place] for place in places]

    return Columns(
        len(places),
        keys=some(columns.keys),
        values=some(columns.values),
        headers=some(columns.headers),
    )


def places_in(
    sent: Sequence[SentMessage], stored: Sequence[SentMessage]
) -> list[int | None] | None:
    """Return the place of each sent message among the stored ones: `None` if it was left out.

    `None` for all if another send has stored these: a send stores its messages in order.
    """
    places: list[int | None] = []
    at = 0
    for message in sent:
        if at < len(stored) and stored[at] == message:
            places.append(at)
            at += 1
        else:
            places.append(None)
    return places if at == len(stored) else None

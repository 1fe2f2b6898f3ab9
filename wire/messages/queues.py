"""Requests of queues: send, receive, settle, peek, count, purge, seek, redrive.

Pure: declarations.

A queue is known by its id, the topic id of its journal. Offsets are those of the records in the
partition of the queue's topic. Runs of offsets are pairs of a first offset and a count,
ascending, without overlap.
"""

from enum import IntEnum

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import ByteCount, Listed, LongListed, Milliseconds

Run = tuple[int, int]
"""The first of consecutive offsets, and their count."""

VISIBILITY_TIMEOUT_MS_MAX = 12 * 60 * 60 * 1000
"""Maximum time that a message stays invisible after a receive, extensions included."""
RECEIVE_COUNT_MAX = 1000
"""Maximum messages in one receive."""

HEADER_PREFIX = "tidelog."
"""Prefix of the headers that queues interpret; other headers with this prefix are refused."""
DELIVER_AT_HEADER = "tidelog.deliver_at_ms"
"""Time before which no queue delivers the message: Unix milliseconds, in decimal."""
PRIORITY_HEADER = "tidelog.priority"
"""The priority of the message, in decimal; 0 is the most urgent."""
DEDUPLICATION_ID_HEADER = "tidelog.deduplication_id"
"""The deduplication id: a second message with it within the window is not appended."""
DEDUPLICATION_ID_BYTES_MAX = 128
SENT_TO_HEADER = "tidelog.sent_to"
"""Id of the FIFO queue of the send: the search for duplicates covers the messages of this queue,
and no other records of the topic."""
CHUNK_HEADER = "tidelog.chunk"
"""Id of the large message of which the record is a chunk, and the chunk's index. A chunk is no
message."""
CHUNKS_HEADER = "tidelog.chunks"
"""Length and chunk offsets of a large message; see `wire.batch.large_messages`."""
ORIGIN_QUEUE_HEADER = "tidelog.origin.queue"
ORIGIN_TOPIC_HEADER = "tidelog.origin.topic"
ORIGIN_PARTITION_HEADER = "tidelog.origin.partition"
ORIGIN_OFFSET_HEADER = "tidelog.origin.offset"
"""Source of a dead letter."""
RECEIVE_COUNT_HEADER = "tidelog.receive_count"
FIRST_RECEIVED_HEADER = "tidelog.first_received_ms"
LAST_RECEIVED_HEADER = "tidelog.last_received_ms"
FIRST_SENT_HEADER = "tidelog.first_sent_ms"
"""Timestamp of the first record of a message that was moved, as a dead letter or back, in decimal
Unix milliseconds. The timestamp of its present record is that of the last move."""
REASON_HEADER = "tidelog.reason"
"""Reason of the dead letter: the consumer's text, or `max_receive_count`."""


class SendRequest(msgspec.Struct, frozen=True, array_like=True):
    """Send messages to one partition of a queue; the attachment is one record batch of them.

    The request goes to the leader of the topic's partition. The leader sets the append time of all
    messages, and drops those with a known deduplication id. The batch has a producer's sequence, so
    that messages without such an id can be retried too. A producer may have one request per
    partition in flight.
    """

    queue_id: bytes
    partition: int
    timeout_ms: Milliseconds
    """Maximum wait for the commit before the broker answers `REQUEST_TIMED_OUT`."""


class SendReply(msgspec.Struct, frozen=True, array_like=True):
    """Offsets of the messages; all are committed, the originals of duplicates included."""

    offsets: list[int | None]
    """Offset per message, in the order of the request; for a duplicate the offset of its original.
    `None` if the request was repeated so late that the broker does not know it any more."""
    duplicates: list[int]
    """Indexes, in the request, of dropped duplicates, ascending."""
    ack_level: int
    """A `wire.messages.produce.AckLevel`."""
    timestamp_ms: int
    """Append time of the messages."""
    throttle_ms: Milliseconds = 0
    """Time to wait before the next send to this partition, because of the queue's `send_rate`."""


class SettleAction(IntEnum):
    """The end of a delivery (SQS: DeleteMessage, ChangeMessageVisibility)."""

    DELETE = 0
    """The messages are deleted."""
    EXTEND = 1
    """The messages stay invisible for `delay_ms` from now on, instead of the time left."""
    RELEASE = 2
    """The messages become visible after `delay_ms`; with `None`, after the queue's backoff."""
    REJECT = 3
    """The messages become dead letters, regardless of their receive count."""
    RETURN = 4
    """The messages were not processed: `RELEASE` without delay, but the delivery does not count."""
    CHANGE_VISIBILITY = 5
    """The messages stay invisible for `delay_ms` from now on: `EXTEND` during a lease, `RELEASE`
    with this delay after a release under the same receipt, and for 0."""


class Settlement(msgspec.Struct, frozen=True, array_like=True):
    """A settle action for messages of one receive."""

    partition: int
    receipt: bytes
    runs: LongListed[Run]
    action: int
    """A `SettleAction`."""
    delay_ms: Milliseconds | None = None
    reason: str = ""
    """Reason of a `REJECT` or `RELEASE`: one line or more, at most 8,192 characters."""


class SettleRequest(msgspec.Struct, frozen=True, array_like=True):
    """Settle messages, at most `LONG_LIST_LENGTH_MAX` runs.

    Each settlement succeeds or fails alone.
    """

    queue_id: bytes
    settlements: Listed[Settlement]


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a settlement that were refused."""

    runs: list[Run]
    error: ErrorDetail


class Settled(msgspec.Struct, frozen=True, array_like=True):
    """Result of one settlement; the messages that are not refused are settled durably."""

    refused: list[Refused] = []
    error: ErrorDetail | None = None
    """Error of the whole settlement: no message was settled, or the error is retriable and its
    outcome unknown."""


class SettleReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request."""

    results: list[Settled]


class ReceiveRequest(msgspec.Struct, frozen=True, array_like=True):
    """Receive messages: they are in flight until a settlement or the visibility timeout."""

    queue_id: bytes
    partitions: LongListed[int]
    """Partitions that the broker leads, read in this order; rotate them between requests."""
    max_messages: int
    """1 to `RECEIVE_COUNT_MAX`, over all partitions. A partition offers at most 100 runs of
    adjacent messages at a time."""
    max_bytes: ByteCount
    """Approximate limit of record bytes; at least one message is returned if there is one."""
    max_wait_ms: Milliseconds
    """Maximum wait for a message (long polling); 0 to answer at once."""
    visibility_timeout_ms: Milliseconds | None = None
    """Visibility timeout of these messages; `None` for the queue's setting. 0 leaves them visible,
    but the receive counts."""
    holder: str = ""
    """Name of the receiver, for display; at most 128 characters."""
    attempt_id: bytes | None = None
    """Receive attempt id of FIFO queues: within five minutes the same id gets the same messages
    under the same receipt, unless their state changed meanwhile. At most 16 bytes."""
    fail_at_limit: bool = False
    """Whether to answer `OVER_LIMIT` for partitions that have visible messages and reached their
    share of `max_in_flight`, if no partition delivers any. Without it the answer is empty."""
    is_repetition: bool = False
    """Whether to return only messages of an earlier receive with this attempt id, and no others."""
    settlements: Listed[Settlement] = []
    """Settlements that the broker decides first, as those of a SETTLE. The receive then waits for
    their commit, and never for messages."""


class ReceivedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive messages with the same receive count."""

    first_offset: int
    count: int
    receive_count: int
    """Deliveries up to and including this one."""
    first_received_ms: int
    """Time of the first delivery."""
    rank: int = 0
    """Order of processing: runs by rank, those of equal rank by offset. The priority, or in a FIFO
    queue the turn of the group in this receive; 0 in other queues, and when a receive is repeated.
    """


class PartitionReceived(msgspec.Struct, frozen=True, array_like=True):
    """The received messages of one partition."""

    partition: int
    receipt: bytes = b""
    """Proof of the receive of these messages; opaque, the same for all of them, and invalid for
    other messages. Together with an offset it is a receipt handle."""
    runs: list[ReceivedRun] = []
    batch_bytes: ByteCount = 0
    """Length of its batches in the attachment, in the order of this list. They are whole and may
    hold records that were not received."""
    deadline_ms: int = 0
    """End of the visibility timeout, by the clock of the broker."""
    error: ErrorDetail | None = None


class ReceiveReply(msgspec.Struct, frozen=True, array_like=True):
    """Partitions that had messages, or an error."""

    results: list[PartitionReceived]
    now_ms: int
    """Time of the broker, the reference of the deadlines."""
    settled: list[Settled] = []
    """The results of the settlements, in the order of the request."""


class EndReceivesRequest(msgspec.Struct, frozen=True, array_like=True):
    """Answer the receives of this connection that wait for messages of a queue."""

    queue_id: bytes


class EndReceivesReply(msgspec.Struct, frozen=True, array_like=True):
    """No receive waits; one that has leased messages is answered with their commit."""

    ended_count: int
    """Receives that waited for messages."""


class MessageState(IntEnum):
    """State of a message in a queue."""

    VISIBLE = 0
    IN_FLIGHT = 1
    DELAYED = 2
    """Delayed by its sender, or by a release with a delay."""
    DEAD = 3
    """A dead letter: its move is pending, or no dead-letter queue accepts it."""
    BLOCKED = 4
    """FIFO: an earlier message of its group is not visible."""


class PeekRequest(msgspec.Struct, frozen=True, array_like=True):
    """Read messages of one partition without receiving them."""

    queue_id: bytes
    partition: int
    states: Listed[int]
    """Filter by `MessageState`; empty for all."""
    from_offset: int
    max_messages: int
    """1 to `RECEIVE_COUNT_MAX`."""
    max_bytes: ByteCount
    """Approximate limit of record bytes; 0 for states only."""


class PeekedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive messages in the same state."""

    first_offset: int
    count: int
    state: int
    """A `MessageState`."""
    receive_count: int
    visible_at_ms: int
    """End of the lease or the delay; 0 without one."""
    holder: str
    """Name of the receiver, if the messages are in flight."""
    reason: str


class PeekReply(msgspec.Struct, frozen=True, array_like=True):
    """The messages, in the order of offsets; the attachment has the batches."""

    runs: list[PeekedRun]
    next_offset: int | None
    """Offset of the next request; `None` at the end."""
    now_ms: int


class QueueCounts(msgspec.Struct, frozen=True, array_like=True):
    """Exact counts of one partition's messages by state."""

    partition: int
    visible: int
    in_flight: int
    delayed: int
    dead: int
    oldest_offset: int
    """Offset below which all messages are deleted (low-water mark)."""
    oldest_timestamp_ms: int | None = None
    """Timestamp of the oldest message that is not deleted."""
    error: ErrorDetail | None = None
    oldest_age_ms: int | None = None
    """Age of this message by the broker's clock (SQS: ApproximateAgeOfOldestMessage)."""


class CountMessagesRequest(msgspec.Struct, frozen=True, array_like=True):
    """Count the messages of partitions that this broker leads."""

    queue_id: bytes
    partitions: LongListed[int]


class CountMessagesReply(msgspec.Struct, frozen=True, array_like=True):
    """The counts, in the order of the request."""

    counts: list[QueueCounts]


class PurgeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Purge all present messages: visible, in flight, delayed or dead."""

    queue_id: bytes
    partitions: LongListed[int]


class GetPurgeOffsetRequest(msgspec.Struct, frozen=True, array_like=True):
    """A broker's question for the offset of a queue partition's last purge."""

    queue_id: bytes
    partition: int


class GetPurgeOffsetReply(msgspec.Struct, frozen=True, array_like=True):
    """The committed purge offset."""

    below_offset: int
    """Messages below it do not count as originals of duplicates. 0 without a purge."""


class CancelScheduledRequest(msgspec.Struct, frozen=True, array_like=True):
    """Cancel messages that are still delayed."""

    queue_id: bytes
    partition: int
    runs: LongListed[Run]


class CancelScheduledReply(msgspec.Struct, frozen=True, array_like=True):
    """The messages that are not refused are cancelled durably."""

    refused: list[Refused]


class QueueSeekRequest(msgspec.Struct, frozen=True, array_like=True):
    """Make all messages from an offset on visible again; messages below it are deleted."""

    queue_id: bytes
    partition: int
    offset: int


class RedriveRequest(msgspec.Struct, frozen=True, array_like=True):
    """Start or cancel a redrive of dead letters; it survives failures of brokers."""

    queue_id: bytes
    """Id of the dead-letter queue."""
    partitions: LongListed[int]
    destination: bytes | None = None
    """Topic id; `None` for each message's source."""
    messages_per_s: int | None = None
    """Maximum messages a second per partition."""
    origin_queue: str | None = None
    """Filter: only messages from this queue."""
    is_cancelled: bool = False
    """Whether to cancel the running redrive."""
    redrive_id: bytes = b""
    """Up to 64 bytes that the client chose. A start fails while a redrive with another id runs, and
    changes nothing if one of the last ten redrives has this id; a cancellation ends the redrive
    with this id only. Empty: a start is equal to the running redrive if its fields are, and a
    cancellation ends any."""
    note: str = ""
    """Text for reports, up to 1,024 characters."""
    only_sources: bool = False
    """Whether to move messages only to topics of queues whose dead-letter queue this is. Others
    stay, and count as skipped. The principal needs `send` of these queues, and no right to topics.
    """


class QueuePartitionDone(msgspec.Struct, frozen=True, array_like=True):
    """Result of a purge, seek or redrive of one partition."""

    partition: int
    count: int = 0
    """Number of affected messages."""
    error: ErrorDetail | None = None


class QueueDoneReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request."""

    results: list[QueuePartitionDone]

"""Messages of queues: receiving, settling, looking at messages, purging, seeking.

Pure: declarations.

A queue is known by its id, the topic id of its journal. Offsets are those of the records in the
partition of the topic that the queue stands on; runs of them are pairs of a first offset and a
count, ascending, without overlap.
"""

from enum import IntEnum

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import ByteCount, Listed, Milliseconds

Run = tuple[int, int]
"""The first of some offsets that follow each other, and how many there are."""

VISIBILITY_TIMEOUT_MS_MAX = 12 * 60 * 60 * 1000
"""No message stays invisible for longer, from the receive on, however often that is extended."""
RECEIVE_COUNT_MAX = 1000
"""Messages in one receive."""

HEADER_PREFIX = "tidelog."
"""Headers of records whose names begin so mean something to queues; people cannot set others."""
DELIVER_AT_HEADER = "tidelog.deliver_at_ms"
"""No queue hands the message out before this time: Unix milliseconds, in decimal."""
PRIORITY_HEADER = "tidelog.priority"
"""The priority of the message, in decimal; 0 is the most urgent."""
DEDUPLICATION_ID_HEADER = "tidelog.deduplication_id"
"""A message with an id that was sent within the window is not appended again."""
DEDUPLICATION_ID_BYTES_MAX = 128
SENT_TO_HEADER = "tidelog.sent_to"
"""Id of the FIFO queue that the message was sent to: its duplicates are looked for among these
messages, and among no others of the topic."""
CHUNK_HEADER = "tidelog.chunk"
"""The record is a part of a large message, and no message: which one, and its place in it."""
CHUNKS_HEADER = "tidelog.chunks"
"""Of a large message: its length, and where its chunks are; see `wire.batch.large_messages`."""
ORIGIN_QUEUE_HEADER = "tidelog.origin.queue"
ORIGIN_TOPIC_HEADER = "tidelog.origin.topic"
ORIGIN_PARTITION_HEADER = "tidelog.origin.partition"
ORIGIN_OFFSET_HEADER = "tidelog.origin.offset"
"""Where a dead letter comes from."""
RECEIVE_COUNT_HEADER = "tidelog.receive_count"
FIRST_RECEIVED_HEADER = "tidelog.first_received_ms"
LAST_RECEIVED_HEADER = "tidelog.last_received_ms"
FIRST_SENT_HEADER = "tidelog.first_sent_ms"
"""Of a message that was moved, as a dead letter or back: the time that its first record had, in
decimal Unix milliseconds. Its own time is that of the last move."""
REASON_HEADER = "tidelog.reason"
"""Why it was given up: what the consumer said, or `max_receive_count`."""


class SendRequest(msgspec.Struct, frozen=True, array_like=True):
    """Send messages to one partition of a queue; the attachment is one record batch of them.

    Asked of whoever leads the partition of the topic. It gives all of them the time at which it
    takes them, and leaves out those that were sent before: so that other messages, too, may be
    sent again when an answer was lost, the batch has the sequence of a producer. Of one producer
    only one request for a partition may be under way.
    """

    queue_id: bytes
    partition: int
    timeout_ms: Milliseconds
    """How long the broker may wait for the commit before it answers `REQUEST_TIMED_OUT`."""


class SendReply(msgspec.Struct, frozen=True, array_like=True):
    """Where the messages are: all of them are committed, duplicates and their originals too."""

    offsets: list[int | None]
    """Of each message, in the order of the request; of a duplicate that of the original. `None` if
    the request was repeated so late that this is not known any more."""
    duplicates: list[int]
    """Places, in the request, of messages that were left out, ascending."""
    ack_level: int
    """A `wire.messages.produce.AckLevel`."""
    timestamp_ms: int
    """The time that the messages were given."""
    throttle_ms: Milliseconds = 0
    """Send no more to this partition for so long: the queue has a `send_rate`."""


class ReceiveRequest(msgspec.Struct, frozen=True, array_like=True):
    """Take messages: nobody else gets them until they are settled or their time is over."""

    queue_id: bytes
    partitions: Listed[int]
    """All led by this broker; served in this order, put one last that was served first before."""
    max_messages: int
    """1 to `RECEIVE_COUNT_MAX`, over all partitions."""
    max_bytes: ByteCount
    """Stop at about so many bytes of records; at least one message is returned if there is one."""
    max_wait_ms: Milliseconds
    """Wait for so long if there is none; 0 to answer at once."""
    visibility_timeout_ms: Milliseconds | None = None
    """For these messages; `None` for what the queue says. 0 shows them without taking them, but
    counts."""
    holder: str = ""
    """Who takes them, for people; at most 128 characters."""
    attempt_id: bytes | None = None
    """FIFO queues: the same id within five minutes gets the same messages again under the same
    receipt, if nothing happened to them meanwhile. At most 16 bytes."""


class ReceivedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages that follow each other and were received equally often."""

    first_offset: int
    count: int
    receive_count: int
    """Deliveries up to and including this one."""
    first_received_ms: int
    """Time of the first of them."""


class PartitionReceived(msgspec.Struct, frozen=True, array_like=True):
    """What one partition had."""

    partition: int
    receipt: bytes = b""
    """Proves who was given these messages; opaque, the same for all of them, and of no use for
    others. Together with an offset it is a receipt handle."""
    runs: list[ReceivedRun] = []
    batch_bytes: ByteCount = 0
    """Length of its batches in the attachment, in the order of this list. They are whole and may
    hold records that were not received."""
    deadline_ms: int = 0
    """Until when nobody else gets the messages, by the clock of the broker."""
    error: ErrorDetail | None = None


class ReceiveReply(msgspec.Struct, frozen=True, array_like=True):
    """Partitions that had messages, or an error."""

    results: list[PartitionReceived]
    now_ms: int
    """The time at the broker, to make something of deadlines."""


class SettleAction(IntEnum):
    """What becomes of messages that somebody received."""

    DELETE = 0
    """They are done."""
    EXTEND = 1
    """They stay invisible for `delay_ms` from now on, however long it was to be."""
    RELEASE = 2
    """Others may have them, after `delay_ms`; with `None`, as the queue's backoff says."""
    REJECT = 3
    """They are dead letters, whatever their receive count."""
    RETURN = 4
    """Nobody saw them: as `RELEASE` without delay, and this delivery does not count."""


class Settlement(msgspec.Struct, frozen=True, array_like=True):
    """What becomes of some messages of one receive."""

    partition: int
    receipt: bytes
    runs: Listed[Run]
    action: int
    """A `SettleAction`."""
    delay_ms: Milliseconds | None = None
    reason: str = ""
    """With `REJECT` or `RELEASE`: one line or more, at most 8,192 characters."""


class SettleRequest(msgspec.Struct, frozen=True, array_like=True):
    """Settle messages, at most `LIST_LENGTH_MAX` runs; each settlement succeeds or fails alone."""

    queue_id: bytes
    settlements: Listed[Settlement]


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a settlement that it did not apply to."""

    runs: list[Run]
    error: ErrorDetail


class Settled(msgspec.Struct, frozen=True, array_like=True):
    """What became of one settlement; what is not refused is done, and durable."""

    refused: list[Refused] = []
    error: ErrorDetail | None = None
    """Of the settlement as a whole: nothing was done."""


class SettleReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request."""

    results: list[Settled]


class MessageState(IntEnum):
    """Where a message of a queue is."""

    VISIBLE = 0
    IN_FLIGHT = 1
    DELAYED = 2
    """By its sender, or by a release with a delay."""
    DEAD = 3
    """On its way to the dead-letter queue, or kept because there is none that takes it."""
    BLOCKED = 4
    """FIFO: an earlier message of its group is not visible."""


class PeekRequest(msgspec.Struct, frozen=True, array_like=True):
    """Look at messages of one partition without taking them."""

    queue_id: bytes
    partition: int
    states: Listed[int]
    """Of these `MessageState`s only; empty for all."""
    from_offset: int
    max_messages: int
    """1 to `RECEIVE_COUNT_MAX`."""
    max_bytes: ByteCount
    """About so many bytes of records; 0 for states only."""


class PeekedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages that follow each other and are in the same state."""

    first_offset: int
    count: int
    state: int
    """A `MessageState`."""
    receive_count: int
    visible_at_ms: int
    """When a lease or a delay ends; 0 otherwise."""
    holder: str
    """Who has them, if anybody has."""
    reason: str


class PeekReply(msgspec.Struct, frozen=True, array_like=True):
    """What was found, in the order of offsets; the attachment has the batches."""

    runs: list[PeekedRun]
    next_offset: int | None
    """Where to go on; `None` at the end."""
    now_ms: int


class QueueCounts(msgspec.Struct, frozen=True, array_like=True):
    """How many messages of one partition are in which state; exact."""

    partition: int
    visible: int
    in_flight: int
    delayed: int
    dead: int
    oldest_offset: int
    """Nothing below it is left (low-water mark)."""
    oldest_timestamp_ms: int | None = None
    """Of the oldest message that is left."""
    error: ErrorDetail | None = None
    oldest_age_ms: int | None = None
    """Its age by the broker's clock (SQS: ApproximateAgeOfOldestMessage)."""


class CountMessagesRequest(msgspec.Struct, frozen=True, array_like=True):
    """Count the messages of partitions that this broker leads."""

    queue_id: bytes
    partitions: Listed[int]


class CountMessagesReply(msgspec.Struct, frozen=True, array_like=True):
    """The counts, in the order of the request."""

    counts: list[QueueCounts]


class PurgeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Do away with every message that is there now: visible, leased, delayed or dead."""

    queue_id: bytes
    partitions: Listed[int]


class GetPurgeOffsetRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask whoever serves a partition of a queue when it was purged last: for brokers."""

    queue_id: bytes
    partition: int


class GetPurgeOffsetReply(msgspec.Struct, frozen=True, array_like=True):
    """What is committed of it."""

    below_offset: int
    """Messages below it are no originals of duplicates. 0 if it was never purged."""


class CancelScheduledRequest(msgspec.Struct, frozen=True, array_like=True):
    """Do not deliver messages that are delayed still."""

    queue_id: bytes
    partition: int
    runs: Listed[Run]


class CancelScheduledReply(msgspec.Struct, frozen=True, array_like=True):
    """What is not refused is cancelled, and durable."""

    refused: list[Refused]


class QueueSeekRequest(msgspec.Struct, frozen=True, array_like=True):
    """Hand out again everything from an offset on; what lies below it counts as done."""

    queue_id: bytes
    partition: int
    offset: int


class RedriveRequest(msgspec.Struct, frozen=True, array_like=True):
    """Bring dead letters back, or stop doing so; goes on whatever happens to brokers."""

    queue_id: bytes
    """Of the dead-letter queue."""
    partitions: Listed[int]
    destination: bytes | None = None
    """Topic id; `None` for where each message came from."""
    messages_per_s: int | None = None
    """For each partition."""
    origin_queue: str | None = None
    """Only messages from this queue."""
    is_cancelled: bool = False
    """Stop the one that runs."""


class QueuePartitionDone(msgspec.Struct, frozen=True, array_like=True):
    """What became of one partition of a purge, seek or redrive."""

    partition: int
    count: int = 0
    """Messages it applies to."""
    error: ErrorDetail | None = None


class QueueDoneReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request."""

    results: list[QueuePartitionDone]

"""Entries of a queue journal: the decisions about a queue's messages (KIP-932: share-group state).

Pure: declarations and their encoding; `docs/formats/queue_journal.md` describes the format.
A record of the journal holds one frame. New fields are appended, with defaults that keep the
meaning of older entries; numbers of entries are never reused. An unknown entry is an error: the
state without it would be wrong.
"""

from enum import IntEnum
from typing import Annotated, Final, final

import msgspec

from tidelog.wire.errors import WireFormatError
from tidelog.wire.messages.queues import Run

Offset = Annotated[int, msgspec.Meta(ge=0)]
TimeMs = Annotated[int, msgspec.Meta(ge=0)]
"""Unix milliseconds."""
Count = Annotated[int, msgspec.Meta(ge=0)]

Target = tuple[bytes, int]
"""Topic id and partition to which dead letters go."""
NO_TARGET: Final[Target] = (b"", 0)
"""Target of dead letters that stay because there is no dead-letter queue."""


class BackgroundWork(IntEnum):
    """Pending background work of a queue partition, without a request."""

    NOTHING = 0
    KEPT = 1
    """Dead letters have no target: the work begins as soon as there is one."""
    MOVES = 2
    """Moves of messages are pending, or a redrive runs."""
    LAST_DELIVERIES = 3
    """Messages in flight or delayed have had all their deliveries: they become dead letters when
    they become visible. Moves may be pending, too."""


class JournalEntry(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """Base of all entries: a number in front names the kind."""


@final
class Seeked(JournalEntry, frozen=True, tag=1):
    """Messages from an offset on are visible, as if never received; messages below are deleted.

    The first entry of a journal. Earlier leases and pending moves are void.
    """

    offset: Offset
    void_below_lease_id: int = 0
    """Leases below it that are not in this journal are void, because it lost them; 0 if it has
    all."""


@final
class Received(JournalEntry, frozen=True, tag=2):
    """Messages were received under one lease; the receive count of each grows by one."""

    lease_id: int
    """From 1 on, and larger than all earlier ids, lost ones included: see `QueueState`."""
    runs: list[Run]
    """Messages between the cursor and a run beyond it become unreceived: visible, not received."""
    visible_at_ms: TimeMs
    """When the lease ends."""
    holder: str = ""
    attempt_id: bytes | None = None
    """Receive attempt id of FIFO queues: within five minutes it returns the same messages again."""


@final
class Delayed(JournalEntry, frozen=True, tag=3):
    """The cursor passes delayed messages."""

    runs: list[tuple[int, int, int]]
    """First offset, count, and the time at which they become visible, in Unix milliseconds."""


@final
class Deleted(JournalEntry, frozen=True, tag=4):
    """Messages are deleted from the queue."""

    runs: list[Run]


@final
class Extended(JournalEntry, frozen=True, tag=5):
    """Leases get another end, or begin again."""

    lease_id: int
    runs: list[Run]
    visible_at_ms: TimeMs


@final
class Released(JournalEntry, frozen=True, tag=6):
    """Messages become visible again at a time."""

    runs: list[Run]
    visible_at_ms: TimeMs
    reason: str = ""
    """The consumer's reason; without one the earlier reason stays."""


@final
class Returned(JournalEntry, frozen=True, tag=7):
    """Messages were not processed: they become visible again, and this delivery does not count."""

    runs: list[Run]
    visible_at_ms: TimeMs


@final
class DeadLettered(JournalEntry, frozen=True, tag=8):
    """Messages are dead letters: the queue no longer delivers them and moves them."""

    runs: list[Run]
    target: Target
    reason: str = ""


@final
class Moved(JournalEntry, frozen=True, tag=9):
    """The first pending moves to a target are complete: the messages are there and deleted here."""

    target: Target
    epoch: int
    sequence: int
    """Sequence of the first of them."""
    count: Count


@final
class MoveFailed(JournalEntry, frozen=True, tag=10):
    """The first pending moves to a target failed: the messages become visible again."""

    target: Target
    epoch: int
    sequence: int
    count: Count
    reason: str = ""
    visible_at_ms: TimeMs = 0
    """0: at once."""


@final
class TargetChanged(JournalEntry, frozen=True, tag=11):
    """All pending moves to one target go to another target."""

    source: Target
    target: Target


@final
class LogStartAdvanced(JournalEntry, frozen=True, tag=12):
    """The log starts at an offset: messages below it are gone, in flight or not."""

    offset: Offset


@final
class Expired(JournalEntry, frozen=True, tag=13):
    """Messages exceeded the retention of the queue."""

    runs: list[Run]


@final
class Purged(JournalEntry, frozen=True, tag=14):
    """All messages below an offset are purged, dead letters included."""

    end: Offset


@final
class RedriveStarted(JournalEntry, frozen=True, tag=15):
    """A redrive of messages below an offset, in the order of offsets, has started."""

    end: Offset
    to_move: Count
    """Number of these messages before filters."""
    destination: bytes | None = None
    """Topic id; `None` for each message's source."""
    messages_per_s: int | None = None
    origin_queue: str | None = None
    redrive_id: bytes = b""
    """Id that the client chose, the same in all partitions; empty for none."""
    note: str = ""
    """Text of the client for reports."""
    only_sources: bool = False
    """Whether messages go only to topics of queues that send their dead letters here."""


@final
class Redriven(JournalEntry, frozen=True, tag=16):
    """The redrive removes messages from the queue; their moves to a target are pending."""

    runs: list[Run]
    target: Target


@final
class RedriveProgressed(JournalEntry, frozen=True, tag=17):
    """The redrive has checked all messages below an offset."""

    next_offset: Offset
    skipped: Count = 0
    """Messages that stay: they do not match the filter, or have no target."""
    reason: str = ""
    """Reason that the redrive is going to fail: a destination does not exist any more."""


@final
class RedriveEnded(JournalEntry, frozen=True, tag=18):
    """The redrive has ended: completed, cancelled or failed."""

    status: int
    """A `RedriveStatus`."""
    reason: str = ""


class Attempt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A receive that its receive attempt id can repeat."""

    attempt_id: bytes
    lease_id: int
    runs: tuple[Run, ...]
    """The received messages; never empty, because an empty answer needs no repetition."""
    received_ms: int
    """Time of the first attempt; repetitions do not change it."""
    deadline_ms: int
    """End of the leases; the messages change their state then."""


class SnapshotRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive messages in the same state.

    Times are differences to the time of the snapshot, in milliseconds, so that they are short.
    """

    gap: int
    """Offsets from the end of the run before, or from offset 0."""
    count: int
    kind: int
    visible_in_ms: int
    """Negative if the time has passed; an absolute time if `receive_count` is 0."""
    receive_count: int
    first_received_ago_ms: int
    last_received_ago_ms: int
    lease_ago: int
    """Leases since the lease of its receive."""
    text: int
    """Index of holder and reason in the table of texts."""


class SnapshotMoves(msgspec.Struct, frozen=True, array_like=True):
    """Pending moves to one target."""

    target: Target
    epoch: int
    sequence: int
    """Sequence of the first message."""
    batches: list[list[Run]]
    redrives: list[int] = []
    """For each batch the number of its redrive, 0 for dead letters; empty if all are 0."""


class SnapshotRedrive(msgspec.Struct, frozen=True, array_like=True):
    """The running redrive, or an earlier one."""

    status: int
    end: int
    next_offset: int
    to_move: int
    taken: int
    started_ms: int
    destination: bytes | None = None
    messages_per_s: int | None = None
    origin_queue: str | None = None
    reason: str = ""
    number: int = 1
    moved: int = 0
    failed: int = 0
    skipped: int = 0
    ended_ms: int | None = None
    redrive_id: bytes = b""
    note: str = ""
    only_sources: bool = False


@final
class SnapshotStarted(JournalEntry, frozen=True, tag=19):
    """First entry of a snapshot: moves, attempts and runs follow in parts, then the end.

    No other entries are in between.
    """

    cursor: Offset
    next_lease_id: int
    void_below_lease_id: int
    moves: list[SnapshotMoves]
    redrive: SnapshotRedrive | None = None
    attempts: list[Attempt] = []
    """Receives that can be repeated."""
    purged_below: Offset = 0
    """See `QueueState.purged_below`."""
    earlier_redrives: list[SnapshotRedrive] = []
    """The redrives before `redrive` that are remembered, in the order of their starts."""


@final
class SnapshotRuns(JournalEntry, frozen=True, tag=20):
    """A part of the runs."""

    texts: list[tuple[str, str]]
    """Pairs of holder and reason that the runs of this part refer to."""
    runs: list[SnapshotRun]


@final
class SnapshotEnded(JournalEntry, frozen=True, tag=21):
    """The snapshot is complete and replaces the state before."""

    run_count: Count
    """Runs of all parts."""


@final
class ReceiveRepeated(JournalEntry, frozen=True, tag=22):
    """A receive was repeated because its answer was lost: its leases get another end."""

    attempt_id: bytes
    visible_at_ms: TimeMs


@final
class SnapshotMoreMoves(JournalEntry, frozen=True, tag=23):
    """Pending moves of a snapshot that do not fit into its first entry."""

    moves: list[SnapshotMoves]
    """Batches for a target of an earlier entry follow the earlier batches."""


@final
class SnapshotMoreAttempts(JournalEntry, frozen=True, tag=24):
    """Repeatable receives of a snapshot that do not fit into its first entry."""

    attempts: list[Attempt]


AnyEntry = (
    Seeked
    | Received
    | Delayed
    | Deleted
    | Extended
    | Released
    | Returned
    | DeadLettered
    | Moved
    | MoveFailed
    | TargetChanged
    | LogStartAdvanced
    | Expired
    | Purged
    | RedriveStarted
    | Redriven
    | RedriveProgressed
    | RedriveEnded
    | SnapshotStarted
    | SnapshotRuns
    | SnapshotEnded
    | ReceiveRepeated
    | SnapshotMoreMoves
    | SnapshotMoreAttempts
)


@final
class JournalFrame(msgspec.Struct, frozen=True, array_like=True):
    """Entries of one decision; the value of one record of the journal."""

    now_ms: TimeMs
    """Time of the decision, by the queue's time, which never runs backwards."""
    entries: list[AnyEntry]
    background_work: int | None = None
    """The `BackgroundWork` after these entries; `None` if it is not stored. A new leader of the
    journal sees in the last frame whether it must read the others."""
    snapshot_offset: Offset | None = None
    """Offset of the journal at which the last complete snapshot begins; this frame may be its last.
    `None` if there is no snapshot, or it is not stored. Reading from there restores the state."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(JournalFrame)


def encode(frame: JournalFrame) -> bytes:
    """Return the value of a journal record."""
    if frame.snapshot_offset is not None:
        return _ENCODER.encode(frame)
    if frame.background_work is not None:
        return _ENCODER.encode((frame.now_ms, frame.entries, frame.background_work))
    return _ENCODER.encode((frame.now_ms, frame.entries))


def size(entry: AnyEntry) -> int:
    """Return the bytes of an entry in a frame."""
    return len(_ENCODER.encode(entry))


def decode(value: bytes | memoryview) -> JournalFrame:
    """Return the frame in the value of a journal record.

    Raises:
        WireFormatError: The bytes are no journal frame, or a newer version wrote them.
    """
    try:
        return _DECODER.decode(value)
    except msgspec.MsgspecError as error:
        raise WireFormatError(f"this is no frame of a queue journal: {error}") from error

"""Entries of a queue's journal: what was decided about messages, as it stands in the log.

Pure: declarations and their encoding; `docs/formats/queue_journal.md` is the page of the format.
A record of the journal holds one frame. New fields are appended, with defaults that mean what was
meant before; numbers of entries are never used again. An entry that this version does not know is
an error: without it the state would be a guess.
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
"""Of dead letters that are kept because there is no dead-letter queue."""


class BackgroundWork(IntEnum):
    """What a partition of a queue has to do by itself, though nobody asks for it."""

    NOTHING = 0
    KEPT = 1
    """Dead letters have no place to go to: it has something to do as soon as there is one."""
    MOVES = 2
    """Messages are to be moved, or a redrive runs."""


class JournalEntry(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """What all entries have in common: a number in front that says which one it is."""


@final
class Seeked(JournalEntry, frozen=True, tag=1):
    """Everything from an offset on is there, as if never received; what is below is done.

    The first entry of a journal. Leases and pending moves of before are void.
    """

    offset: Offset
    void_below_lease_id: int = 0
    """Leases below it are void that this journal says nothing of, for they were lost; 0 if it knows
    all."""


@final
class Received(JournalEntry, frozen=True, tag=2):
    """Messages were handed out, all under one lease, once more each."""

    lease_id: int
    """From 1 on, and larger than all before, also those that were lost: see `QueueState`."""
    runs: list[Run]
    """What lies between the cursor and a run beyond it is passed over: there, never received."""
    visible_at_ms: TimeMs
    """When the lease ends."""
    holder: str = ""
    attempt_id: bytes | None = None
    """FIFO queues: the same id within five minutes gets the same messages again."""


@final
class Delayed(JournalEntry, frozen=True, tag=3):
    """The cursor passes messages whose time has not come."""

    runs: list[tuple[int, int, int]]
    """First offset, count, and when they are visible, in Unix milliseconds."""


@final
class Deleted(JournalEntry, frozen=True, tag=4):
    """Messages are done."""

    runs: list[Run]


@final
class Extended(JournalEntry, frozen=True, tag=5):
    """Leases end at another time, or begin again."""

    lease_id: int
    runs: list[Run]
    visible_at_ms: TimeMs


@final
class Released(JournalEntry, frozen=True, tag=6):
    """Others may have messages, from a time on."""

    runs: list[Run]
    visible_at_ms: TimeMs
    reason: str = ""
    """What the consumer said; the reason of before stays if it said nothing."""


@final
class Returned(JournalEntry, frozen=True, tag=7):
    """Nobody saw messages: others may have them, and this delivery does not count."""

    runs: list[Run]
    visible_at_ms: TimeMs


@final
class DeadLettered(JournalEntry, frozen=True, tag=8):
    """Messages are dead letters: nobody gets them here, and they are to be moved."""

    runs: list[Run]
    target: Target
    reason: str = ""


@final
class Moved(JournalEntry, frozen=True, tag=9):
    """The first pending moves to a target are done: the messages are there, and gone here."""

    target: Target
    epoch: int
    sequence: int
    """Of the first of them."""
    count: Count


@final
class MoveFailed(JournalEntry, frozen=True, tag=10):
    """The first pending moves to a target cannot be done: the messages are visible again."""

    target: Target
    epoch: int
    sequence: int
    count: Count
    reason: str = ""
    visible_at_ms: TimeMs = 0
    """0 for at once."""


@final
class TargetChanged(JournalEntry, frozen=True, tag=11):
    """All that was to go to one target goes to another one."""

    source: Target
    target: Target


@final
class LogStartAdvanced(JournalEntry, frozen=True, tag=12):
    """The log begins at an offset: what is below it is gone, leased or not."""

    offset: Offset


@final
class Expired(JournalEntry, frozen=True, tag=13):
    """Messages were there for longer than the queue keeps any."""

    runs: list[Run]


@final
class Purged(JournalEntry, frozen=True, tag=14):
    """All messages below an offset are done away with, dead letters too."""

    end: Offset


@final
class RedriveStarted(JournalEntry, frozen=True, tag=15):
    """Messages below an offset are being moved elsewhere, in the order of offsets."""

    end: Offset
    to_move: Count
    """How many there are, filtered or not."""
    destination: bytes | None = None
    """Topic id; `None` for where each message came from."""
    messages_per_s: int | None = None
    origin_queue: str | None = None


@final
class Redriven(JournalEntry, frozen=True, tag=16):
    """Messages are taken out and to be moved to a target."""

    runs: list[Run]
    target: Target


@final
class RedriveProgressed(JournalEntry, frozen=True, tag=17):
    """The redrive has looked at all below an offset."""

    next_offset: Offset
    skipped: Count = 0
    """How many messages it has left where they are: it is not for them, or they have no place to
    go to."""


@final
class RedriveEnded(JournalEntry, frozen=True, tag=18):
    """The redrive is over: by itself, or because somebody wanted it or something failed."""

    status: int
    """A `RedriveStatus`."""
    reason: str = ""


class Attempt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A receive that may be repeated."""

    attempt_id: bytes
    lease_id: int
    runs: tuple[Run, ...]
    """The messages that it was given; never empty, for an empty answer is not worth repeating."""
    received_ms: int
    """When it was made first; repetitions do not change that."""
    deadline_ms: int
    """When the leases end: something happened to the messages then."""


class SnapshotRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages that follow each other and are in the same state.

    Times are differences to the time of the snapshot, in milliseconds, so that they are short.
    """

    gap: int
    """From the end of the run before, or from offset 0."""
    count: int
    kind: int
    visible_in_ms: int
    """Negative if that has passed; the whole time, not a difference, if `receive_count` is 0."""
    receive_count: int
    first_received_ago_ms: int
    last_received_ago_ms: int
    lease_ago: int
    """How many leases ago it was received."""
    text: int
    """Place of holder and reason in the table of texts."""


class SnapshotMoves(msgspec.Struct, frozen=True, array_like=True):
    """What is to be moved to one target."""

    target: Target
    epoch: int
    sequence: int
    """Of the first message."""
    batches: list[list[Run]]
    redrives: list[int] = []
    """For each batch the number of the redrive that took it out, 0 for dead letters; empty if they
    are all 0."""


class SnapshotRedrive(msgspec.Struct, frozen=True, array_like=True):
    """The redrive that runs or ran last."""

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


@final
class SnapshotStarted(JournalEntry, frozen=True, tag=19):
    """The state follows: this, then moves, attempts and runs in parts, then the end.

    Nothing else in between.
    """

    cursor: Offset
    next_lease_id: int
    void_below_lease_id: int
    moves: list[SnapshotMoves]
    redrive: SnapshotRedrive | None = None
    attempts: list[Attempt] = []
    """Receives that may be repeated."""
    purged_below: Offset = 0
    """See `QueueState.purged_below`."""


@final
class SnapshotRuns(JournalEntry, frozen=True, tag=20):
    """A part of the runs."""

    texts: list[tuple[str, str]]
    """Pairs of holder and reason that the runs of this part speak of."""
    runs: list[SnapshotRun]


@final
class SnapshotEnded(JournalEntry, frozen=True, tag=21):
    """The state is complete, and replaces whatever was before."""

    run_count: Count
    """Of all parts."""


@final
class ReceiveRepeated(JournalEntry, frozen=True, tag=22):
    """A receive was made again, because its answer was lost: its leases end at another time."""

    attempt_id: bytes
    visible_at_ms: TimeMs


@final
class SnapshotMoreMoves(JournalEntry, frozen=True, tag=23):
    """Pending moves of a snapshot that were too many for its first entry."""

    moves: list[SnapshotMoves]
    """Batches for a target that was spoken of before come behind the ones there."""


@final
class SnapshotMoreAttempts(JournalEntry, frozen=True, tag=24):
    """Receives of a snapshot that may be repeated, of which its first entry has not all."""

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
    """Entries that were decided at once; the value of one record of the journal."""

    now_ms: TimeMs
    """When they were decided, by the queue's time, which never runs backwards."""
    entries: list[AnyEntry]
    background_work: int | None = None
    """A `BackgroundWork`, after these entries; `None` if that is not said. So a new leader of the
    journal sees by its last frame whether it has to read the others."""
    snapshot_offset: Offset | None = None
    """Offset in the journal at which the last whole snapshot begins, of which this frame may be the
    last; `None` if there is none before it, or that is not said. Whoever reads from there on knows
    what all frames up to this one come to."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(JournalFrame)


def encode(frame: JournalFrame) -> bytes:
    """Return the value of a record."""
    if frame.snapshot_offset is not None:
        return _ENCODER.encode(frame)
    if frame.background_work is not None:
        return _ENCODER.encode((frame.now_ms, frame.entries, frame.background_work))
    return _ENCODER.encode((frame.now_ms, frame.entries))


def size(entry: AnyEntry) -> int:
    """Return how many bytes of a frame an entry is."""
    return len(_ENCODER.encode(entry))


def decode(value: bytes | memoryview) -> JournalFrame:
    """Return the frame in the value of a record.

    Raises:
        WireFormatError: These are not bytes of a journal, or a newer version wrote them.
    """
    try:
        return _DECODER.decode(value)
    except msgspec.MsgspecError as error:
        raise WireFormatError(f"this is no frame of a queue journal: {error}") from error

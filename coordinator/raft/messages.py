"""Entries of the log, and what nodes say to each other.

Pure: no clock, no I/O.

Indexes and terms are Raft's: the first entry has index 1, index 0 and term 0 stand for "before
everything", and an index names an entry, so ends are inclusive here, as in the paper. Where a
message comes from and which one it answers is all in the message; nothing is taken from the
connection it came over.

Requests come from a leader or a candidate and are judged by their term and log. Reports (the
replies) are *counted*, so they are believed only from the very identity that is a member.
"""

from enum import IntEnum
from typing import Annotated, Final, final

import msgspec

from tidelog.coordinator.raft.membership import Identity, Membership, decode_membership
from tidelog.wire.errors import WireFormatError

Index = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Term = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]

ENTRY_OVERHEAD_BYTES: Final = 32
"""What an entry counts for besides its payload, so that empty entries are not free."""

ENTRY_COUNT_MAX: Final = 10_000
"""In one message; a bound for decoders, far above what is sent."""


class EntryKind(IntEnum):
    """What an entry is for."""

    COMMAND = 0
    """Opaque bytes for the state machine."""
    TERM_START = 1
    """The first entry of a leader. Empty: committing it commits what earlier terms left (I67)."""
    MEMBERSHIP = 2
    """The members from here on."""


@final
class EntryId(msgspec.Struct, frozen=True, array_like=True):
    """Names an entry: two entries with the same index and term are the same, in all logs."""

    index: Index
    term: Term


@final
class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One entry of the log."""

    index: Index
    term: Term
    """Of the leader that appended it."""
    kind: EntryKind
    payload: bytes

    @property
    def entry_id(self) -> EntryId:
        """The entry's name."""
        return EntryId(self.index, self.term)

    @property
    def size_bytes(self) -> int:
        """What the entry counts for against limits."""
        return len(self.payload) + ENTRY_OVERHEAD_BYTES


@final
class SnapshotMeta(msgspec.Struct, frozen=True, array_like=True):
    """What the core knows of a snapshot; the data itself is kept and moved by the shell."""

    index: Index
    """The last entry that the snapshot covers."""
    term: Term
    """The term of that entry."""
    membership: Membership
    """In force at that entry."""

    @property
    def entry_id(self) -> EntryId:
        """The last entry that the snapshot covers."""
        return EntryId(self.index, self.term)


class _Addressed(msgspec.Struct, frozen=True, array_like=True):
    sender: Identity
    target: Identity
    """A node that does not have this very identity refuses the message."""
    term: Term
    """The sender's; in a vote request the one of the campaign."""


@final
class PreVoteRequest(_Addressed, frozen=True, array_like=True, tag="pre-vote"):
    """Would you vote for me in the term after `term`? Changes nothing anywhere."""

    last: EntryId
    """The end of the candidate's log."""


@final
class PreVoteReply(_Addressed, frozen=True, array_like=True, tag="pre-vote-reply"):
    """Whether the sender would vote."""

    asked_term: Term
    """The candidate's term at the time of the question."""
    is_granted: bool


@final
class VoteRequest(_Addressed, frozen=True, array_like=True, tag="vote"):
    """Vote for me in `term`."""

    last: EntryId
    """The end of the candidate's log."""
    is_transfer: bool
    """The leader asked the candidate to stand, so a live leader is no reason to refuse."""


@final
class VoteReply(_Addressed, frozen=True, array_like=True, tag="vote-reply"):
    """Whether the sender has voted for the target in `term`."""

    is_granted: bool


@final
class AppendRequest(_Addressed, frozen=True, array_like=True, tag="append"):
    """Entries, from the leader; without any it is a heartbeat."""

    previous: EntryId
    """The entry before the first one."""
    commit_index: Index
    """The leader's."""
    attempt: int
    """Comes back in the answer: how often the leader has begun anew to find out where the two logs
    agree. An answer to an earlier attempt is late."""
    read_round: int
    """Comes back in the answer: the number of the latest round of ReadIndex."""
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=ENTRY_COUNT_MAX)]


@final
class AppendReply(_Addressed, frozen=True, array_like=True, tag="append-reply"):
    """The sender's log agrees with the leader's."""

    received_index: Index
    """Up to here it agrees, in memory at least; tells the leader what to send next."""
    durable_index: Index
    """Up to here it agrees and is on disk; this is what counts for a commit (I66)."""
    attempt: int
    """Of the request that this answers; 0 when it answers none, because more was synced."""
    read_round: int
    """Of the request that this answers; 0 when it answers none."""


@final
class AppendRefusal(_Addressed, frozen=True, array_like=True, tag="append-refusal"):
    """The sender does not have `previous_index` as the leader does, or knows a later term."""

    previous_index: Index
    """From the request that is refused."""
    hint: EntryId
    """The last entry of the sender that may agree: everything behind it does not."""
    attempt: int
    """Of the request that this answers."""
    read_round: int
    """Of the request that this answers."""


@final
class SnapshotRequest(_Addressed, frozen=True, array_like=True, tag="snapshot"):
    """Take this snapshot; what it stands for is gone from the leader's log.

    The shell moves the data beside, and hands the message to the core when all of it is there.
    """

    snapshot: SnapshotMeta


@final
class TimeoutNow(_Addressed, frozen=True, array_like=True, tag="timeout-now"):
    """Stand for election at once: the leader wants you to be the next one."""


Message = (
    PreVoteRequest
    | PreVoteReply
    | VoteRequest
    | VoteReply
    | AppendRequest
    | AppendReply
    | AppendRefusal
    | SnapshotRequest
    | TimeoutNow
)

Report = PreVoteReply | VoteReply | AppendReply | AppendRefusal
"""What is counted."""

OfOneTerm = VoteReply | AppendReply | AppendRefusal | TimeoutNow
"""What means nothing when its term is over. Requests of an earlier term are answered, so that the
sender learns of the later one; the reply to a pre-vote names the term that it is about."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """Return the bytes of a message; `decode` is the inverse."""
    return _encoder.encode(message)


def decode(data: bytes | memoryview) -> Message:
    """Return the message in these bytes.

    Raises:
        WireFormatError: They are no message, or one that no correct node sends.
    """
    try:
        message: Message = _decoder.decode(data)
    except ValueError as error:  # a MsgspecError, or a UnicodeDecodeError
        raise WireFormatError(f"not a message of Raft: {error}") from error
    if isinstance(message, AppendRequest):
        _check_entries(message)
    return message


def _check_entries(request: AppendRequest) -> None:
    previous = request.previous
    for entry in request.entries:
        if entry.index != previous.index + 1 or not previous.term <= entry.term <= request.term:
            raise WireFormatError(
                f"entry {entry.index} of term {entry.term} cannot follow entry {previous.index}"
                f" of term {previous.term} in a message of term {request.term}"
            )
        if entry.kind is EntryKind.MEMBERSHIP:
            decode_membership(entry.payload)
        previous = entry.entry_id

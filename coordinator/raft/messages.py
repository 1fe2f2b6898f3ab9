"""Entries of the log, and the messages between nodes.

Pure: no clock, no I/O.

Indexes and terms are Raft's: the first entry has index 1, and index 0 with term 0 stands for
"before everything". An index names an entry, so ends are inclusive here, as in the paper. A message
itself has its sender and the request that it answers; nothing is taken from its connection.

Requests come from a leader or a candidate and are judged by their term and log. Reports (the
replies) are *counted*, so they are accepted only from the very identity that is a member.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Annotated, Final, final

import msgspec

from tidelog.coordinator.raft.membership import Identity, Membership, decode_membership
from tidelog.wire.errors import WireFormatError
from tidelog.wire.messages.field_types import Epoch

Index = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]

ENTRY_OVERHEAD_BYTES: Final = 32
"""Bytes that an entry counts for besides its payload, so that empty entries are not free."""

ENTRY_COUNT_MAX: Final = 10_000
"""Entries in one message; a bound for decoders, far above what is sent."""


class EntryKind(IntEnum):
    """The purpose of an entry."""

    COMMAND = 0
    """Opaque bytes for the state machine."""
    TERM_START = 1
    """The first entry of a leader. Empty: committing it commits entries of earlier terms (I67)."""
    MEMBERSHIP = 2
    """The membership from here on."""


@final
class EntryId(msgspec.Struct, frozen=True, array_like=True):
    """The name of an entry: entries with the same index and term are the same, in all logs."""

    index: Index
    term: Epoch


@final
class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One entry of the log."""

    index: Index
    term: Epoch
    """Term of the leader that appended it."""
    kind: EntryKind
    payload: bytes

    @property
    def entry_id(self) -> EntryId:
        """The entry's name."""
        return EntryId(self.index, self.term)

    @property
    def size_bytes(self) -> int:
        """Bytes that the entry counts for against limits."""
        return len(self.payload) + ENTRY_OVERHEAD_BYTES


def size_of(entries: Iterable[Entry]) -> int:
    """Return the bytes that entries count for against limits."""
    size_bytes = 0
    for entry in entries:
        size_bytes += len(entry.payload) + ENTRY_OVERHEAD_BYTES
    return size_bytes


@final
class SnapshotMeta(msgspec.Struct, frozen=True, array_like=True):
    """The core's part of a snapshot; the shell keeps and moves the data itself."""

    index: Index
    """The last entry that the snapshot covers."""
    term: Epoch
    """The term of that entry."""
    membership: Membership
    """The membership in force at that entry."""

    @property
    def entry_id(self) -> EntryId:
        """The last entry that the snapshot covers."""
        return EntryId(self.index, self.term)


class _Addressed(msgspec.Struct, frozen=True, array_like=True):
    sender: Identity
    target: Identity
    """The receiver; a node with another identity refuses the message."""
    term: Epoch
    """The sender's term; in a vote request the term of the campaign."""


@final
class PreVoteRequest(_Addressed, frozen=True, array_like=True, tag="pre-vote"):
    """Request for a vote in the term after `term`, which changes nothing anywhere."""

    last: EntryId
    """The end of the candidate's log."""


@final
class PreVoteReply(_Addressed, frozen=True, array_like=True, tag="pre-vote-reply"):
    """Whether the sender would grant its vote."""

    asked_term: Epoch
    """The candidate's term at the time of the request."""
    is_granted: bool


@final
class VoteRequest(_Addressed, frozen=True, array_like=True, tag="vote"):
    """Request for a vote in `term`."""

    last: EntryId
    """The end of the candidate's log."""
    is_transfer: bool
    """The leader asked the candidate to campaign, so a live leader is no reason to refuse."""


@final
class VoteReply(_Addressed, frozen=True, array_like=True, tag="vote-reply"):
    """Whether the sender has granted the target its vote in `term`."""

    is_granted: bool


@final
class AppendRequest(_Addressed, frozen=True, array_like=True, tag="append"):
    """Entries, from the leader; without any it is a heartbeat."""

    previous: EntryId
    """The entry before the first one."""
    commit_index: Index
    """The leader's commit index."""
    attempt: int
    """Comes back in the answer: how often the leader has restarted the probe for the place where
    the two logs agree. An answer to an earlier attempt is late."""
    read_round: int
    """Comes back in the answer: the number of the latest round of ReadIndex."""
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=ENTRY_COUNT_MAX)]


@final
class AppendReply(_Addressed, frozen=True, array_like=True, tag="append-reply"):
    """Report that the sender's log agrees with the leader's."""

    received_index: Index
    """The log agrees up to here, in memory at least; the leader sends the next entries."""
    durable_index: Index
    """The log agrees and is on disk up to here; this counts for a commit (I66)."""
    attempt: int
    """Attempt of the request that this answers; 0 without one, after a later sync."""
    read_round: int
    """Read round of the request that this answers; 0 without one."""


@final
class AppendRefusal(_Addressed, frozen=True, array_like=True, tag="append-refusal"):
    """Report that the sender lacks the leader's `previous_index`, or knows a later term."""

    previous_index: Index
    """The index in the refused request."""
    hint: EntryId
    """The last entry of the sender that may agree; all entries behind it differ."""
    attempt: int
    """Attempt of the request that this answers."""
    read_round: int
    """Read round of the request that this answers."""


@final
class SnapshotRequest(_Addressed, frozen=True, array_like=True, tag="snapshot"):
    """A snapshot to install; its entries are compacted in the leader's log.

    The shell moves the data beside it, and gives the core the message when the data is complete.
    """

    snapshot: SnapshotMeta


@final
class TimeoutNow(_Addressed, frozen=True, array_like=True, tag="timeout-now"):
    """Request to campaign at once: the leader transfers its leadership."""


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
"""Messages that are counted."""

OfOneTerm = VoteReply | AppendReply | AppendRefusal | TimeoutNow
"""Messages without a meaning after their term. Requests of an earlier term are answered, so that
the sender learns of the later one; the reply to a pre-vote names the term that it is about."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """Return the bytes of a message; `decode` is the inverse."""
    return _encoder.encode(message)


def decode(data: bytes | memoryview) -> Message:
    """Return the message in these bytes.

    Raises:
        WireFormatError: The bytes are no message, or one that no correct node sends.
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

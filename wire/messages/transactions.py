"""Messages of transactions: staged records that become visible together.

Pure: declarations. A transaction has a name (Kafka: `transactional.id`) and a transaction id;
`docs/transactions.md` describes the guarantees.
"""

from enum import IntEnum
from typing import Final

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import Listed, LongListed, Milliseconds, ProducerId
from tidelog.wire.messages.produce import PartitionBatch

STAGING_PREFIX: Final = "staged@"
"""Prefix of the name of a staging log, before the name of its topic; not legal in other names."""

NAMES_MAX: Final = 100_000
"""Maximum names of transactions that a cluster remembers."""
NAMES_WARNED: Final = NAMES_MAX * 8 // 10
"""Number of names from which the cluster warns."""


class TransactionStatus(IntEnum):
    """Status of a transaction."""

    OPEN = 1
    """Records may be staged; consumers do not see them."""
    COMMITTED = 2
    """The commit is decided; some records may not be readable yet."""
    COMPLETE = 3
    """All records are readable."""
    LOST = 4
    """The commit is decided, but records are missing: an operator accepted a loss of records."""


class BeginTransactionRequest(msgspec.Struct, frozen=True, array_like=True):
    """Begin a transaction, resume it, or keep it alive; any broker accepts the request."""

    name: str
    """1 to 200 characters; a name has one open transaction at a time."""
    transaction_id: int
    """Not below 0. A transaction with a higher id ends the open transaction."""
    topics: Listed[str]
    """Topics of the staged records; their staging logs exist when the reply comes."""
    timeout_ms: Milliseconds
    """The transaction is aborted after so long without a keep-alive; 1 s to 24 h."""
    number: int = 0
    """Number that the reply to a commit has given; 0 without one. Since version 2."""


class BeginTransactionReply(msgspec.Struct, frozen=True, array_like=True):
    """The transaction, unless it is committed already."""

    number: int
    """Number of this transaction in the cluster, for each stage request; 0 if the transaction is
    committed already."""
    status: int
    """A `TransactionStatus`."""
    topic_ids: list[bytes]
    """Ids of the topics, in the order of the request."""
    expires_in_ms: int = 0
    """Time after which the transaction is aborted without a keep-alive, if it is not the timeout of
    the request: a commit has begun it, and it has no id yet. Else 0. Since version 2."""


class StageRequest(msgspec.Struct, frozen=True, array_like=True):
    """Append one batch per staging log; each append succeeds or fails on its own.

    Answered like a PRODUCE with acks all: acknowledged batches are as durable as the topic says.
    """

    number: int
    """Number of the transaction."""
    timeout_ms: Milliseconds
    """Maximum wait before the broker answers `REQUEST_TIMED_OUT`."""
    batches: LongListed[PartitionBatch]
    """At most one for each partition; topic ids are those of staging logs."""


class StagedPiece(msgspec.Struct, frozen=True, array_like=True):
    """All batches of one producer in a range of a staging log's offsets."""

    producer_id: ProducerId
    first_offset: int
    """First offset in the staging log."""
    end_offset: int
    """Exclusive end. Other producers may have written in between."""
    record_count: int
    """The producer's records in this range."""


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """Staged records to append to one partition, in this order."""

    topic_id: bytes
    """Id of the topic, not of its staging log."""
    partition: int
    pieces: list[StagedPiece]


class CommitTransactionRequest(msgspec.Struct, frozen=True, array_like=True):
    """Commit a transaction: append all of the parts, or none if the commit is refused."""

    name: str
    transaction_id: int
    number: int
    parts: list[StagedPart]
    """At most one for each partition; other staged records are dropped."""
    timeout_ms: Milliseconds
    """Maximum wait until all records are readable, before the broker answers `REQUEST_TIMED_OUT`.
    The outcome is then unknown, and a retry of the request returns it."""
    begins_next: bool = False
    """Begin the next transaction of the name as well. Since version 2."""
    is_last: bool = False
    """No transaction of this name follows: the cluster forgets it after 10 minutes. Since version
    2."""


class CommitTransactionReply(msgspec.Struct, frozen=True, array_like=True):
    """The transaction is committed, and all of its records are readable."""

    was_committed: bool
    """Whether it was committed before this request; `parts` was then ignored."""
    next_number: int = 0
    """Number of the transaction that the commit has begun, for any id above this one; 0 without
    one. Since version 2."""
    next_expires_in_ms: int = 0
    """Time after which that transaction is aborted without a keep-alive. Since version 2."""


class AbortTransactionRequest(msgspec.Struct, frozen=True, array_like=True):
    """Drop the staged records; a transaction that is committed or not open stays unchanged."""

    name: str
    transaction_id: int
    number: int
    """0 for any number."""


class AbortTransactionReply(msgspec.Struct, frozen=True, array_like=True):
    """The transaction is aborted, unless it was committed before."""

    is_committed: bool


class ListTransactionsRequest(msgspec.Struct, frozen=True, array_like=True):
    """List the transaction names that the cluster knows."""

    names: Listed[str] | None
    """`None` asks for all."""


class TransactionDescription(msgspec.Struct, frozen=True, array_like=True):
    """Transactions of one name."""

    name: str
    open_transaction_id: int | None
    """`None` without an open transaction."""
    begun_at_ms: int | None
    """Start of the open transaction."""
    expires_at_ms: int | None
    """End of the timeout of the open transaction, unless a keep-alive extends it."""
    last_transaction_id: int | None
    """The last committed transaction, `None` without one."""
    last_status: int | None
    """`TransactionStatus` of the last committed transaction."""
    last_used_ms: int


class ListTransactionsReply(msgspec.Struct, frozen=True, array_like=True):
    """The names, sorted; unknown names are left out."""

    transactions: list[TransactionDescription]


class ForgetTransactionsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Delete the state of transaction names, so that their ids count as new."""

    names: Listed[str]
    unused_for_ms: Milliseconds
    """A name that was used since is kept; 10 minutes or more."""


class NameForgotten(msgspec.Struct, frozen=True, array_like=True):
    """What became of a name; one that the cluster did not know counts as forgotten."""

    error: ErrorDetail | None = None
    """Why the name is kept."""


class ForgetTransactionsReply(msgspec.Struct, frozen=True, array_like=True):
    """One result for each name of the request, in its order."""

    results: list[NameForgotten]


class AppendedPlace(msgspec.Struct, frozen=True, array_like=True):
    """Partition of a commit."""

    topic_id: bytes
    partition: int


class AwaitAppendedRequest(msgspec.Struct, frozen=True, array_like=True):
    """Wait until the asked broker has appended parts of a commit that it leads."""

    cluster_id: str
    """A node of another cluster refuses the request."""
    commit_number: int
    parts: LongListed[AppendedPlace]
    timeout_ms: Milliseconds
    """Maximum wait."""


class AwaitAppendedReply(msgspec.Struct, frozen=True, array_like=True):
    """The parts that are readable."""

    are_appended: list[bool]
    """One for each part of the request, in its order; `False` if the time was over before, or the
    broker does not lead the partition."""

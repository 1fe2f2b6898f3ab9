"""Messages that stage records, and let them become visible together.

Pure: declarations. A transaction has a name and a transaction id; `docs/transactions.md` says what
they promise.
"""

from enum import IntEnum
from typing import Final

import msgspec

from tidelog.wire.messages.field_types import Milliseconds, ProducerId
from tidelog.wire.messages.produce import PartitionBatch

STAGING_PREFIX: Final = "staged@"
"""Prefix of the name of a staging log, before the name of its topic; not legal in other names."""


class TransactionStatus(IntEnum):
    """How a transaction of a name stands."""

    OPEN = 1
    """Records may be staged for it, and nobody sees them."""
    COMMITTED = 2
    """It is decided; some of it may not be readable yet."""
    COMPLETE = 3
    """All of it is readable."""
    LOST = 4
    """It is decided, and some of it is not there: somebody accepted a loss of records."""


class BeginTransactionRequest(msgspec.Struct, frozen=True, array_like=True):
    """Begin a transaction, go on with it, or keep it open for longer; any broker can be asked."""

    name: str
    """1 to 200 characters; of a name one transaction is open at a time."""
    transaction_id: int
    """Not below 0. A transaction with a higher id than the open one ends that one."""
    topics: list[str]
    """To which something is to be staged; their staging logs are there when the reply comes."""
    timeout_ms: Milliseconds
    """It is dropped if nobody has said for so long that it goes on; 1 s to 24 h."""


class BeginTransactionReply(msgspec.Struct, frozen=True, array_like=True):
    """The transaction, if there is still something to do."""

    number: int
    """Of this transaction in the cluster: to be given with all that is staged; 0 if the
    transaction is committed already."""
    status: int
    """A `TransactionStatus`."""
    topic_ids: list[bytes]
    """Of the topics, in the order of the request."""


class StageRequest(msgspec.Struct, frozen=True, array_like=True):
    """Append one batch to each of some staging logs; each succeeds or fails on its own.

    Answered like a PRODUCE with acks all: what is acknowledged is as safe as the topic says.
    """

    number: int
    """Of the transaction."""
    timeout_ms: Milliseconds
    """How long the broker may wait before it answers `REQUEST_TIMED_OUT`."""
    batches: list[PartitionBatch]
    """At most one for each partition; topic ids are those of staging logs."""


class StagedPiece(msgspec.Struct, frozen=True, array_like=True):
    """What one producer staged for one partition: all of its batches in a range of offsets."""

    producer_id: ProducerId
    first_offset: int
    """In the staging log."""
    end_offset: int
    """Exclusive. Other producers may have written in between."""
    record_count: int
    """Its records in this range."""


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """What is to be appended to one partition, in this order."""

    topic_id: bytes
    """Of the topic, not of its staging log."""
    partition: int
    pieces: list[StagedPiece]


class CommitTransactionRequest(msgspec.Struct, frozen=True, array_like=True):
    """Let what was staged be appended: all of the parts, or nothing if it is refused."""

    name: str
    transaction_id: int
    number: int
    parts: list[StagedPart]
    """At most one for each partition; what is not named is dropped."""
    timeout_ms: Milliseconds
    """How long the broker may wait until all is readable before it answers `REQUEST_TIMED_OUT`;
    the transaction is committed then, or not, and the same request says which."""


class CommitTransactionReply(msgspec.Struct, frozen=True, array_like=True):
    """The transaction is committed, and all of it readable."""

    was_committed: bool
    """Whether it was before this request; then nothing of `parts` counted."""


class AbortTransactionRequest(msgspec.Struct, frozen=True, array_like=True):
    """Drop what was staged; nothing happens to a transaction that is committed, or not open."""

    name: str
    transaction_id: int
    number: int
    """0 for any number."""


class AbortTransactionReply(msgspec.Struct, frozen=True, array_like=True):
    """The transaction will never be committed, unless it was before."""

    is_committed: bool


class ListTransactionsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the names that the cluster remembers."""

    names: list[str] | None
    """`None` asks for all."""


class TransactionDescription(msgspec.Struct, frozen=True, array_like=True):
    """One name."""

    name: str
    open_transaction_id: int | None
    """`None` if none is open."""
    begun_at_ms: int | None
    """Of the open one."""
    expires_at_ms: int | None
    """When it is dropped unless somebody says that it goes on."""
    last_transaction_id: int | None
    """The last one that was committed, `None` if none was."""
    last_status: int | None
    """Its `TransactionStatus`."""
    last_used_ms: int


class ListTransactionsReply(msgspec.Struct, frozen=True, array_like=True):
    """The names, sorted; those that are not known are left out."""

    transactions: list[TransactionDescription]

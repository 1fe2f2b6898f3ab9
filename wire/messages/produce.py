"""Messages that append records.

Pure: declarations.
"""

from enum import IntEnum
from typing import Final

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import (
    ByteCount,
    Listed,
    Milliseconds,
    ProducerEpoch,
    ProducerId,
)

BROKER_PRODUCER_IDS_FROM: Final = 1 << 62
"""Producer ids from here on are those of brokers, which have one batch under way at a time.
Those that are given to clients are counted from 1, and never get here."""

STAGED_PRODUCER_ID: Final = (1 << 63) - 1
"""The producer as which leaders append what was staged and is committed. Its sequences may leave
some out: they begin anew, higher, with each commit."""


class Acks(IntEnum):
    """Who must have the records before the broker answers; see `docs/guarantees.md`."""

    NONE = 0
    """The broker does not answer at all."""
    LEADER = 1
    """The leader has them, as durably as the topic's `durability` says."""
    ALL = 2
    """Every in-sync replica has them, as durably as the topic's `durability` says."""


class AckLevel(IntEnum):
    """What is true of acknowledged records at the moment of the reply."""

    APPENDED = 1
    """In the memory (page cache) of the leader."""
    LEADER_DURABLE = 2
    """On the disk of the leader."""
    REPLICATED = 3
    """In the memory of every in-sync replica."""
    DURABLE = 4
    """On the disk of every in-sync replica."""


class InitProducerRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for a producer identity."""

    producer_id: ProducerId = 0
    """0 asks for a new id; an own id asks for its next epoch, which fences the old one."""
    producer_epoch: ProducerEpoch = 0
    """The epoch held now, when `producer_id` is not 0."""


class InitProducerReply(msgspec.Struct, frozen=True, array_like=True):
    """A producer identity; under it, sequences start at 0 in each partition."""

    producer_id: ProducerId
    """Never 0, never given to anyone else."""
    producer_epoch: ProducerEpoch


class PartitionBatch(msgspec.Struct, frozen=True, array_like=True):
    """One record batch for one partition."""

    topic_id: bytes
    partition: int
    batch_bytes: ByteCount
    """Length of the batch in the attachment; batches follow each other in this order."""


class ProduceRequest(msgspec.Struct, frozen=True, array_like=True):
    """Append one batch to each of some partitions; each succeeds or fails on its own."""

    acks: int
    """An `Acks`."""
    timeout_ms: Milliseconds
    """How long the broker may wait for `acks` before it answers `REQUEST_TIMED_OUT`."""
    batches: Listed[PartitionBatch]
    """At most one for each partition."""


class PartitionAppended(msgspec.Struct, frozen=True, array_like=True):
    """What became of one batch."""

    base_offset: int
    """Offset of its first record; the original one when the batch is a duplicate."""
    ack_level: int
    """An `AckLevel`; 0 with an error."""
    log_start_offset: int
    error: ErrorDetail | None = None


class ProduceReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request."""

    results: list[PartitionAppended]


class DescribeProducerRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leader of a partition how far an idempotent producer is there."""

    topic_id: bytes
    partition: int
    producer_id: ProducerId


class DescribeProducerReply(msgspec.Struct, frozen=True, array_like=True):
    """How far the producer is, as far as it is committed."""

    producer_epoch: ProducerEpoch | None
    """The newest one; nil if the partition knows nothing of the producer."""
    next_sequence: int | None
    """What follows its last record; nil if no record of that epoch is known."""

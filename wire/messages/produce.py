"""Messages that append records.

Pure: declarations.
"""

from enum import IntEnum
from typing import Final

import msgspec

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.field_types import (
    ByteCount,
    LongListed,
    Milliseconds,
    ProducerEpoch,
    ProducerId,
)

BROKER_PRODUCER_IDS_FROM: Final = 1 << 62
"""First producer id of brokers, which have one batch in flight at a time. Producer ids of clients
count from 1 and never reach it."""

STAGED_PRODUCER_ID: Final = (1 << 63) - 1
"""Producer id under which leaders append committed staged records. Its sequences may have gaps:
each commit starts at a higher sequence."""


class Acks(IntEnum):
    """Replicas that must have the records before the broker answers; see `docs/guarantees.md`."""

    NONE = 0
    """The broker does not answer at all."""
    LEADER = 1
    """The leader has them, as durably as the topic's `durability` says."""
    ALL = 2
    """Every in-sync replica has them, as durably as the topic's `durability` says."""


class AckLevel(IntEnum):
    """Durability of acknowledged records at the moment of the reply."""

    APPENDED = 1
    """In the memory (page cache) of the leader."""
    LEADER_DURABLE = 2
    """On the disk of the leader."""
    REPLICATED = 3
    """In the memory of every in-sync replica."""
    DURABLE = 4
    """On the disk of every in-sync replica."""


class InitProducerRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for a producer id and epoch."""

    producer_id: ProducerId = 0
    """0 asks for a new id; an own id asks for its next epoch, which fences the old one."""
    producer_epoch: ProducerEpoch = 0
    """The present epoch, if `producer_id` is not 0."""


class InitProducerReply(msgspec.Struct, frozen=True, array_like=True):
    """A producer id and epoch; their sequences start at 0 in each partition."""

    producer_id: ProducerId
    """Never 0, and unique to the producer."""
    producer_epoch: ProducerEpoch


class PartitionBatch(msgspec.Struct, frozen=True, array_like=True):
    """One record batch for one partition."""

    topic_id: bytes
    partition: int
    batch_bytes: ByteCount
    """Length of the batch in the attachment; batches follow each other in this order."""


class ProduceRequest(msgspec.Struct, frozen=True, array_like=True):
    """Append one batch per partition; each append succeeds or fails on its own."""

    acks: int
    """An `Acks`."""
    timeout_ms: Milliseconds
    """Maximum wait for `acks` before the broker answers `REQUEST_TIMED_OUT`."""
    batches: LongListed[PartitionBatch]
    """At most one for each partition."""


class PartitionAppended(msgspec.Struct, frozen=True, array_like=True):
    """Result of one append."""

    base_offset: int
    """Offset of the first record; the original offset if the batch is a duplicate."""
    ack_level: int
    """An `AckLevel`; 0 with an error."""
    log_start_offset: int
    error: ErrorDetail | None = None


class ProduceReply(msgspec.Struct, frozen=True, array_like=True):
    """The results, in the order of the request."""

    results: list[PartitionAppended]


class DescribeProducerRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leader of a partition for the state of an idempotent producer."""

    topic_id: bytes
    partition: int
    producer_id: ProducerId


class DescribeProducerReply(msgspec.Struct, frozen=True, array_like=True):
    """Committed state of a producer in the partition."""

    producer_epoch: ProducerEpoch | None
    """The newest epoch; nil if the partition does not know the producer."""
    next_sequence: int | None
    """The sequence after its last record; nil if no record of that epoch is known."""

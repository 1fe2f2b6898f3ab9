"""Surroundings of a hosted partition: the broker, and the receives that wait.

Declarations.
"""

from typing import TYPE_CHECKING, Protocol

import trio

from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.metrics.object_counts import ObjectCounts
from tidelog.broker.metrics.queue_totals import QueueTotals
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.offset_search import OffsetSearch
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.queues.partition.delivery import Delivery
from tidelog.wire.env.env import Env
from tidelog.wire.errors import BrokerError

if TYPE_CHECKING:
    from tidelog.broker.queues.partition.hosted_partition import HostedPartition


class MessageWaiter(Protocol):
    """A receive that waits."""

    is_older: bool
    """Whether its client reads batches of format version 1 only."""

    def is_waiting(self) -> bool:
        """Return whether the receive has no messages yet."""
        ...

    def attempt(self, ready_at: "HostedPartition | None" = None) -> None:
        """Try to receive; if only one of its partitions has changed, at that one."""
        ...

    def on_delivery(self, hosted: "HostedPartition", delivery: Delivery) -> None:
        """Take messages that were read from the disk for this receive."""
        ...

    def on_failure(self, hosted: "HostedPartition", error: BrokerError) -> None:
        """Take the error of a partition that has no messages for this receive."""
        ...


class Context(Protocol):
    """The broker, as far as a hosted partition needs it."""

    env: Env
    metadata_version: int
    """Grows with each change of the metadata."""
    nursery: trio.Nursery
    """For tasks that run as long as the broker."""
    partitions: ReplicaManager
    group_commit: GroupCommit
    search: OffsetSearch
    reader: SliceReader
    counts: ObjectCounts[QueueTotals]
    """What happened to messages, by name of the queue."""

    def deletion_ms(self) -> int | None:
        """Return the time that decides about deletion by time; `None`: nothing is deleted."""
        ...

    def check_view(self, hosted: "HostedPartition") -> None:
        """Update the settings of a partition, after a change of the metadata.

        Raises:
            BrokerError: The queue was deleted, or must be loaded again.
        """
        ...

    def not_led_error(self, hosted: "HostedPartition") -> BrokerError:
        """Return the error of a partition that is no longer served here."""
        ...

    def schedule(self, hosted: "HostedPartition") -> None:
        """Schedule a tick for a partition."""
        ...

    def schedule_deadline(self, hosted: "HostedPartition") -> None:
        """Schedule a tick for a partition's next deadline."""
        ...

    def remove(self, hosted: "HostedPartition") -> None:
        """Remove a partition from the server."""
        ...

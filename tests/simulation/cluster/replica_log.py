"""Views of a partition's replicas at one moment."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import msgspec

Partition = tuple[bytes, int]
"""Topic id and number."""


class ReplicaLog(msgspec.Struct, frozen=True):
    """The log of one replica."""

    end_offset: int
    durable_end_offset: int
    """The offset below which all records are on its disk."""
    leader_epochs: Sequence[tuple[int, int]] = ()
    """Leader epochs, with the offset of the first record of each."""
    log_start_offset: int = 0
    is_held: bool = False
    """Whether it is being truncated or reset."""
    is_damaged: bool = False
    """Whether records are missing; their epochs may be known from other replicas only."""

    def epoch_of(self, offset: int) -> int | None:
        """Return the leader epoch of the record at an offset; `None` if unknown."""
        found = [epoch for epoch, start in self.leader_epochs if start <= offset]
        return found[-1] if found and offset < self.end_offset else None

    def epochs_from(self, offset: int) -> list[tuple[int, int]]:
        """Return `leader_epochs` as if the log began at an offset that has a record."""
        begun = [(epoch, offset) for epoch, start in self.leader_epochs if start <= offset]
        return begun[-1:] + [entry for entry in self.leader_epochs if entry[1] > offset]

    def agreed_end(self, other: "ReplicaLog") -> int:
        """Return the end offset of the records that two logs share, by leader epochs."""
        start = max(self.log_start_offset, other.log_start_offset)
        ends = [self.end_offset, other.end_offset]
        for entries in zip_longest(self.epochs_from(start), other.epochs_from(start)):
            if entries[0] != entries[1]:
                ends += [entry[1] for entry in entries if entry is not None]
                break
        return min(ends)


class Opened(msgspec.Struct, frozen=True):
    """A process has opened the log of a replica."""

    node_id: int
    partition: Partition
    log: ReplicaLog
    before: ReplicaLog | None
    """Last state in the process before; `None` if there was none, or it had another disk."""
    has_kept_cache: bool = False
    """Whether all of its written bytes are there, on disk or not: it was killed, and no more."""


class Shown(msgspec.Struct, frozen=True):
    """State of a partition at a new high watermark, a change of its metadata, or a truncation.

    No higher one was shown before, if there is no error.
    """

    partition: Partition
    leader: tuple[int, int] | None
    """Node and leader epoch of the leader that shows it; `None` for a change of metadata."""
    high_watermark: int
    """For a change of metadata, the highest ever shown."""
    epoch: int | None
    """Leader epoch of the last record below it; `None` if it was deleted."""
    must_have_all: Sequence[int]
    """The nodes in the ISR, or eligible to lead, by the committed metadata."""
    logs: Mapping[int, ReplicaLog]
    """By node."""
    is_durable: bool
    """Whether only records on a disk count."""
    agreed_leader: int | None = None
    """The leader by the committed metadata."""
    has_enough: bool = True
    """Whether the ISR has `min_insync_replicas`, as the leader that shows it knows."""


class Lost(msgspec.Struct, frozen=True):
    """An accepted loss: committed records may be lost, and the log is shorter now."""

    partition: Partition
    end_offset: int
    """End of the committed records that the new leader has; records from there on are void."""
    lost_end: int
    """End of the longest log."""
    passed_over: Sequence[int]
    """Nodes in the ISR or eligible before, whose processes have run without interruption."""
    is_durable: bool
    """Whether committed records were on disks."""


class Cut(msgspec.Struct, frozen=True):
    """A follower is about to truncate its log at an offset where its leader's log differs."""

    node_id: int
    partition: Partition
    offset: int
    high_watermark: int
    """High watermark of the follower."""


class Waits(msgspec.Struct, frozen=True):
    """A leader has appended records whose acknowledgement waits for all in-sync replicas."""

    node_id: int
    partition: Partition
    has_enough: bool
    """Whether the ISR has `min_insync_replicas`, as the leader knows."""


class Joined(msgspec.Struct, frozen=True):
    """A node that does not lead joins the ISR by the committed metadata."""

    node_id: int
    partition: Partition
    broker_epoch: int
    """Broker epoch of the registered process."""


class Asked(msgspec.Struct, frozen=True):
    """A leader is about to request an ISR change."""

    node_id: int
    """Node id of the leader."""
    partition: Partition
    joining: Sequence[int]
    """Nodes that are to join the ISR."""
    in_sync: Sequence[tuple[int, int]] = ()
    """The proposed ISR: node ids, and the broker epochs that the leader knows."""
    high_watermark: int = 0
    """The highest that was ever shown."""
    logs: Mapping[int, ReplicaLog] = {}
    """By node: logs of joining nodes for which cluster and leader know the same process; empty if
    the leader was deposed and does not know it."""
    is_durable: bool = True
    """Whether only records on a disk count."""


class Appended(msgspec.Struct, frozen=True):
    """A produce request that waits for the ISR was appended: it is acknowledged, or timed out."""

    node_id: int
    partition: Partition
    asked_at: float


class ToldEnd(msgspec.Struct, frozen=True):
    """A client has just received the end offset of a partition."""

    node_id: int
    """Node id of the replying broker."""
    partition: Partition
    end_offset: int
    asked_at: float

"""What there is to say of the replicas of a partition, at one moment."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import msgspec

Partition = tuple[bytes, int]
"""Topic id and number."""


class ReplicaLog(msgspec.Struct, frozen=True):
    """What one replica has."""

    end_offset: int
    durable_end_offset: int
    """All below it is on its disk."""
    leader_epochs: Sequence[tuple[int, int]] = ()
    """Leader epochs with the offset of the first record that each wrote."""
    log_start_offset: int = 0
    is_held: bool = False
    """Whether it is just being truncated, or begun anew."""
    is_damaged: bool = False
    """Whether records are missing; who wrote them may be known from the others only."""

    def epoch_of(self, offset: int) -> int | None:
        """Return which leader epoch wrote the record at an offset; `None` if none is known."""
        found = [epoch for epoch, start in self.leader_epochs if start <= offset]
        return found[-1] if found and offset < self.end_offset else None

    def epochs_from(self, offset: int) -> list[tuple[int, int]]:
        """Return `leader_epochs` as if the log began at an offset, where there is a record."""
        begun = [(epoch, offset) for epoch, start in self.leader_epochs if start <= offset]
        return begun[-1:] + [entry for entry in self.leader_epochs if entry[1] > offset]

    def agreed_end(self, other: "ReplicaLog") -> int:
        """Return up to where two logs have the same records, by who wrote them."""
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
    """What the process before it had last; `None` if there was none, or it had another disk."""
    has_kept_cache: bool = False
    """Whether all that it had written is there, on the disk or not: it was killed, no more."""


class Shown(msgspec.Struct, frozen=True):
    """How things stand when a leader shows a high watermark, or the metadata of a partition change.

    So it is when a replica was truncated.

    There was never a higher one, if nothing is wrong.
    """

    partition: Partition
    leader: tuple[int, int] | None
    """Node and leader epoch of who has just shown something; `None` for a change of metadata."""
    high_watermark: int
    """The highest that was ever shown, if the metadata have changed."""
    epoch: int | None
    """Who wrote the last record below it; `None` if it was deleted."""
    must_have_all: Sequence[int]
    """The nodes that are in sync, or eligible to lead, as the cluster has agreed."""
    logs: Mapping[int, ReplicaLog]
    """By node."""
    is_durable: bool
    """Whether only what is on a disk counts."""
    agreed_leader: int | None = None
    """Who leads, as the cluster has agreed."""
    has_enough: bool = True
    """Whether `min_insync_replicas` are in sync, as the one knows who shows something."""


class Lost(msgspec.Struct, frozen=True):
    """Somebody has accepted that committed records may be lost, and there are fewer now."""

    partition: Partition
    end_offset: int
    """Up to where the new leader has what was committed; what was at or above is void."""
    lost_end: int
    """Where the longest log ended."""
    passed_over: Sequence[int]
    """Nodes that were in sync or eligible last, and whose processes still run as they did then."""
    is_durable: bool
    """Whether what is committed was on disks."""


class Cut(msgspec.Struct, frozen=True):
    """A follower is about to remove what it has from an offset on: its leader's log is another."""

    node_id: int
    partition: Partition
    offset: int
    high_watermark: int
    """Up to where the follower takes what it has for committed."""


class Waits(msgspec.Struct, frozen=True):
    """A leader has appended what is acknowledged only when all in sync have it."""

    node_id: int
    partition: Partition
    has_enough: bool
    """Whether `min_insync_replicas` are in sync, as it knows."""


class Joined(msgspec.Struct, frozen=True):
    """The cluster takes a node for in sync from now on that does not lead, and was not before."""

    node_id: int
    partition: Partition
    broker_epoch: int
    """Of the process that the cluster knows."""


class Asked(msgspec.Struct, frozen=True):
    """A leader is about to ask the cluster for others in sync."""

    node_id: int
    """Of the leader."""
    partition: Partition
    joining: Sequence[int]
    """Who is to be in sync, and is not."""
    in_sync: Sequence[tuple[int, int]] = ()
    """All who are to be, and the broker epochs of the processes that the leader means."""
    high_watermark: int = 0
    """The highest that was ever shown."""
    logs: Mapping[int, ReplicaLog] = {}
    """What those have of whom the cluster and the leader know the same process, by node; of nobody
    if the leader was deposed and does not know it."""
    is_durable: bool = True
    """Whether only what is on a disk counts."""


class Appended(msgspec.Struct, frozen=True):
    """A produce that waits for all in sync has been appended: it is acknowledged, or timed out."""

    node_id: int
    partition: Partition
    asked_at: float


class ToldEnd(msgspec.Struct, frozen=True):
    """A client that asked for it was told just now where a partition ends."""

    node_id: int
    """Who says so."""
    partition: Partition
    end_offset: int
    asked_at: float

"""The decision whether the data directory of a starting node is older than its cluster knows.

Pure: no clock, no I/O. A directory that was restored from a copy, or a disk that went back in time,
has an old vote and an old log of Raft. A voter that has forgotten its promises may elect a leader
that lacks committed entries. So a node asks the other voters before it takes part:

- If any node of the cluster knows a later broker epoch of this directory, the directory is old.
- If the active controller knows none, or no other voter does, the directory is current.
- If some voters are silent, the node waits for them, but not for long: it could not start while one
  of the others is down. It needs the answer of one voter at least; without that one it could
  neither lead nor elect, unless it is the only voter.

What a node knows comes from all entries in its metadata, committed or not: a controller proposes
the epoch of a directory only after the broker has reported it as written.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import final

from tidelog.coordinator.controller.log_entries import (
    StateSnapshot,
    decode_entry,
    decode_snapshot_records,
)
from tidelog.coordinator.metadata.broker_commands import is_old_directory
from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerRegistration,
    BrokerUnregistered,
)
from tidelog.coordinator.metadata.state import with_changed
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import Entry, EntryKind
from tidelog.wire.messages.cluster import KnownDirectory, PeerStatusReply

SILENT_MS = 2_000
"""Time that a node waits for silent voters after the first answer."""
_ABOUT_BROKERS = b"broker-"
"""Begin of the tags of all records about brokers; other entries need no decoding."""


class Generation(Enum):
    """The age of a data directory."""

    CURRENT = "current"
    OLD = "old"
    UNKNOWN = "unknown"
    """More answers are needed, or more time."""


@final
class GenerationCheck:
    """The view of one starting node of its own data directory."""

    def __init__(
        self, own: KnownDirectory, cluster_id: str, voters: Collection[Identity], *, asked: set[int]
    ) -> None:
        """Start without answers.

        Args:
            own: The directory of the node, with the epoch that it holds.
            cluster_id: The cluster of the node.
            voters: The other voters, as far as the node knows; with none, any member counts.
            asked: The node ids that the node can reach.
        """
        self._own = own
        self._cluster_id = cluster_id
        self._voters = voters
        self._awaited = set(asked)
        self._first_ms: int | None = None
        self._is_confirmed = False
        self.known_epoch: int | None = None
        """Highest epoch that a node knows of this directory."""

    def answered(self, status: PeerStatusReply, *, now_ms: int) -> None:
        """Record the status of a node; `now_ms` is monotonic."""
        # A voter without a cluster yet is a first voter that has not started before.
        if status.cluster_id not in (None, self._cluster_id):
            return
        for each in status.directories:
            if (each.node_id, each.disk_id) == (self._own.node_id, self._own.disk_id):
                self.known_epoch = max(self.known_epoch or 0, each.directory_epoch)
        identity = Identity(status.peer.node_id, status.peer.disk_id)
        if self._voters and identity not in self._voters:
            return
        self._awaited.discard(status.peer.node_id)
        self._is_confirmed |= status.is_leading
        if self._first_ms is None:
            self._first_ms = now_ms

    def decide(self, *, now_ms: int) -> Generation:
        """Return the age of the directory, as far as the answers tell."""
        if is_old_directory(self.known_epoch, self._own.directory_epoch):
            return Generation.OLD
        if self._is_confirmed or not self._awaited:
            return Generation.CURRENT
        if self._first_ms is not None and now_ms - self._first_ms >= SILENT_MS:
            return Generation.CURRENT
        return Generation.UNKNOWN


def stored_brokers(snapshot: bytes, entries: Collection[Entry]) -> dict[int, BrokerRegistration]:
    """Return the registrations of brokers in the stored metadata of a node.

    Raises:
        msgspec.MsgspecError: A newer version wrote the metadata.
    """
    brokers: dict[int, BrokerRegistration] = {}
    if snapshot:
        state = decode_snapshot_records(snapshot)
        cluster = state.cluster if isinstance(state, StateSnapshot) else state
        brokers = {broker.node_id: broker for broker in cluster.brokers}
    for entry in entries:
        if entry.kind is not EntryKind.COMMAND or _ABOUT_BROKERS not in entry.payload:
            continue
        for record in decode_entry(entry.payload).cluster:
            match record:
                case BrokerRegistered():
                    brokers[record.broker.node_id] = record.broker
                case BrokerChanged() if record.node_id in brokers:
                    brokers[record.node_id] = with_changed(brokers[record.node_id], record)
                case BrokerUnregistered():
                    brokers.pop(record.node_id, None)
                case _:
                    pass
    return brokers


def known_directories(
    brokers: Mapping[int, BrokerRegistration], earlier: Collection[KnownDirectory] = ()
) -> list[KnownDirectory]:
    """Return the data directories in these registrations, and those that were known earlier."""
    known = {each.node_id: each for each in earlier}
    for node_id, broker in sorted(brokers.items()):
        epoch, before = broker.directory_epoch, known.get(node_id)
        if epoch is None:
            continue
        if before is not None and before.disk_id == broker.disk_id:
            epoch = max(epoch, before.directory_epoch)
        known[node_id] = KnownDirectory(node_id, broker.disk_id, epoch)
    return [known[node_id] for node_id in sorted(known)]

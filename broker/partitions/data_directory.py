"""The data directory: whose it is, who uses it, and how it was left.

lock                        held while a broker runs
node                        node id, cluster id, disk id
replicas                    which logs were made here, see `broker.partitions.replica_manifest`
clean-shutdown              there only between a clean stop and the next start
metadata/                   what this node knows of its cluster, see `coordinator.raft_node.storage`
metadata.damaged/           what was there when it turned out to be damaged, if it ever did
topics/NAME.ID/PARTITION/   the logs; NAME is cut to what fits, ID is the topic id in hex
deleted/                    topics on their way out
"""

import re
from random import Random
from typing import NamedTuple, final

import msgspec

from tidelog.coordinator.bootstrap.open_node import METADATA_DIRECTORY
from tidelog.logstore.checkpoint import DamagedFileError, read_small_file, write_small_file
from tidelog.logstore.disk.disk import DirectoryLock, Disk
from tidelog.wire.errors import DataDirectoryError
from tidelog.wire.messages.cluster import Peer

LOCK_NAME = "lock"
NODE_NAME = "node"
CLEAN_SHUTDOWN_NAME = "clean-shutdown"
_TOPICS = "topics"
_DELETED = "deleted"
_NAME_CHARACTERS_MAX = 150
_TOPIC_ID = re.compile(r"[0-9a-f]{32}")


class NodeIdentity(msgspec.Struct, frozen=True, array_like=True):
    """Who a data directory belongs to."""

    node_id: int
    cluster_id: str
    """Empty as long as it belongs to none."""
    disk_id: str
    """Tells a wiped and remade directory from the old one."""
    metadata_disk_id: str = ""
    """The same for the metadata alone, which can be lost while the rest is not. Empty: written by a
    version that knew no clusters."""
    keeps_manifest: bool = False
    """Whether there must be a manifest of its replicas; versions before that had none."""


class DiskIds(NamedTuple):
    """The ids of a new data directory; see `NodeIdentity`."""

    data: str
    metadata: str

    @classmethod
    def draw(cls, random: Random) -> "DiskIds":
        """Return ids that no other directory has."""
        return cls(random.randbytes(12).hex(), random.randbytes(12).hex())


class CleanShutdown(msgspec.Struct, frozen=True, array_like=True):
    """Left behind by a clean stop."""

    at_ms: int
    broker_epoch: int | None = None
    """Of the process that stopped."""


@final
class DataDirectory:
    """A locked data directory."""

    def __init__(
        self,
        disk: Disk,
        lock: DirectoryLock,
        identity: NodeIdentity,
        *,
        was_clean: bool,
        clean_stop_epoch: int | None,
    ) -> None:
        """Describe a directory that `open_data_directory` has opened."""
        self.disk = disk
        self._lock = lock
        self.identity = identity
        self.was_clean = was_clean
        """Whether the last broker here stopped cleanly; true for a new directory."""
        self.clean_stop_epoch = clean_stop_epoch
        """Broker epoch of the last broker here, if it stopped cleanly and had one."""

    # Whose metadata this is; see `coordinator.bootstrap.open_node.Home`.

    @property
    def peer(self) -> Peer:
        """This node, with the metadata that it has or will have."""
        identity = self.identity
        disk_id = identity.metadata_disk_id or identity.disk_id
        return Peer(identity.node_id, bytes.fromhex(disk_id))

    @property
    def cluster_id(self) -> str:
        """The cluster that it belongs to; empty as long as it belongs to none."""
        return self.identity.cluster_id

    @property
    def has_old_catalog(self) -> bool:
        """Whether the metadata was written by a version that knew no clusters."""
        return not self.identity.metadata_disk_id

    def settle(self, cluster_id: str) -> None:
        """Belong to a cluster from now on, durably; blocks."""
        self._identify(cluster_id, self.identity.metadata_disk_id or self.identity.disk_id)

    @property
    def keeps_manifest(self) -> bool:
        """Whether all replicas that were made here are in the manifest."""
        return self.identity.keeps_manifest

    def note_manifest(self) -> None:
        """Take note, durably, that there is a manifest from now on; blocks."""
        self._write_identity(msgspec.structs.replace(self.identity, keeps_manifest=True))

    def renew_peer(self, disk_id: bytes) -> None:
        """Be another peer from now on, durably; blocks."""
        self._identify(self.cluster_id, disk_id.hex())

    def _identify(self, cluster_id: str, metadata_disk_id: str) -> None:
        self._write_identity(
            msgspec.structs.replace(
                self.identity, cluster_id=cluster_id, metadata_disk_id=metadata_disk_id
            )
        )

    def _write_identity(self, identity: NodeIdentity) -> None:
        if identity != self.identity:
            write_small_file(self.disk, NODE_NAME, identity)
            self.identity = identity

    def topic_directory(self, name: str, topic_id: bytes) -> str:
        """Return where a topic's partitions are; the id keeps namesakes apart."""
        return f"{_TOPICS}/{name[:_NAME_CHARACTERS_MAX]}.{topic_id.hex()}"

    def partition_directory(self, name: str, topic_id: bytes, partition: int) -> str:
        """Return where a partition's log is."""
        return f"{self.topic_directory(name, topic_id)}/{partition}"

    def set_aside(self, name: str, topic_id: bytes) -> None:
        """Move a deleted topic's files out of the way, durably; `remove_deleted` does the rest."""
        source = self.topic_directory(name, topic_id)
        if self.disk.exists(source):
            self.disk.make_directory(_DELETED)
            self.disk.rename(source, f"{_DELETED}/{topic_id.hex()}")
            self.disk.sync_directory(_TOPICS)
            self.disk.sync_directory(_DELETED)

    def set_aside_partition(self, name: str, topic_id: bytes, partition: int) -> None:
        """Move a partition that others have now out of the way, durably; see `set_aside`."""
        source = self.partition_directory(name, topic_id, partition)
        if self.disk.exists(source):
            self.disk.make_directory(_DELETED)
            target = f"{_DELETED}/{topic_id.hex()}-{partition}"
            self.disk.remove_directory(target)  # Of an earlier time here.
            self.disk.rename(source, target)
            self.disk.sync_directory(self.topic_directory(name, topic_id))
            self.disk.sync_directory(_DELETED)

    def stored_partitions(self, name: str, topic_id: bytes) -> list[int]:
        """Return the numbers of a topic's partitions that have a directory."""
        entries = self.disk.list_directory(self.topic_directory(name, topic_id))
        return sorted(int(entry) for entry in entries if entry.isdecimal())

    def remove_deleted(self) -> None:
        """Remove the files of topics that were set aside; blocks, maybe for long."""
        self.disk.remove_directory(_DELETED)

    def stored_topics(self) -> list[tuple[str, bytes]]:
        """Return (name as far as it fits, topic id) of all topic directories."""
        found: list[tuple[str, bytes]] = []
        for entry in self.disk.list_directory(_TOPICS):
            name, _, topic_id = entry.rpartition(".")
            if _TOPIC_ID.fullmatch(topic_id):
                found.append((name, bytes.fromhex(topic_id)))
        return found

    def mark_clean(self, *, now_ms: int, broker_epoch: int | None) -> None:
        """Say that everything is on disk; the last thing a broker does here."""
        write_small_file(self.disk, CLEAN_SHUTDOWN_NAME, CleanShutdown(now_ms, broker_epoch))

    def release(self) -> None:
        """Let others use the directory."""
        self._lock.release()


def open_data_directory(disk: Disk, *, node_id: int, disk_ids: DiskIds) -> DataDirectory:
    """Lock the directory and check whose it is; a new one gets the ids given. Blocks.

    Args:
        disk: The directory.
        node_id: Of the node that wants to use it.
        disk_ids: Those of a new directory.

    Raises:
        DataDirectoryError: It is in use, of another node, or cannot be read.
        OSError: The disk failed.
    """
    lock = disk.lock(LOCK_NAME)
    try:
        identity, is_new = _identify(disk, NodeIdentity(node_id, "", *disk_ids))
        clean = _read_clean(disk)
        # Gone, durably, before anything is appended (KIP-966).
        disk.remove(CLEAN_SHUTDOWN_NAME)
        disk.sync_directory("")
    except DamagedFileError as error:
        lock.release()
        raise DataDirectoryError(f"{error}; restore it from a backup") from error
    except BaseException:
        lock.release()
        raise
    return DataDirectory(
        disk,
        lock,
        identity,
        was_clean=is_new or clean is not None,
        clean_stop_epoch=None if clean is None else clean.broker_epoch,
    )


def _read_clean(disk: Disk) -> CleanShutdown | None:
    """Return the mark of a clean stop; one that cannot be read is none."""
    try:
        return read_small_file(disk, CLEAN_SHUTDOWN_NAME, CleanShutdown)
    except DamagedFileError:
        return None


def _identify(disk: Disk, own: NodeIdentity) -> tuple[NodeIdentity, bool]:
    """Return whose directory this is, and whether it is a new one."""
    found = read_small_file(disk, NODE_NAME, NodeIdentity)
    if found is None:
        if disk.exists(_TOPICS) or disk.exists(METADATA_DIRECTORY):
            raise DataDirectoryError(
                f"{disk.root} has data, but not the file {NODE_NAME!r} that says whose it is;"
                " restore it from a backup"
            )
        write_small_file(disk, NODE_NAME, own)
        return own, True
    if found.node_id != own.node_id:
        raise DataDirectoryError(
            f"{disk.root} belongs to node {found.node_id}, this is node {own.node_id};"
            f" use --node-id {found.node_id} or another --data-dir"
        )
    return found, False

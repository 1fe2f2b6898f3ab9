"""Data directory of a broker: its owner, its lock, and the mark of a clean stop.

lock                        locked while a broker runs
node                        node id, cluster id, disk id, broker epoch
replicas                    the replicas created here, see `broker.partitions.replica_manifest`
recover-admin               exists only after `tidelog admin recover`, until a start has done it
clean-shutdown              exists only between a clean stop and the next start
metadata/                   metadata of the cluster, see `coordinator.raft_node.storage`
metadata.damaged/           earlier metadata that was found to be damaged, if ever
topics/NAME.ID/PARTITION/   the logs; NAME is cut to what fits, ID is the topic id in hex
deleted/                    deleted topics whose files are being removed
"""

import re
from random import Random
from typing import NamedTuple, final

import msgspec

from tidelog.coordinator.bootstrap.open_node import METADATA_DIRECTORY, RESTORE_HELP
from tidelog.coordinator.security.commands import SetAdministrator
from tidelog.logstore.checkpoint import DamagedFileError, read_small_file, write_small_file
from tidelog.logstore.disk.disk import DirectoryLock, Disk
from tidelog.wire.errors import DataDirectoryError
from tidelog.wire.messages.cluster import Peer

LOCK_NAME = "lock"
NODE_NAME = "node"
CLEAN_SHUTDOWN_NAME = "clean-shutdown"
RECOVERY_NAME = "recover-admin"
_TOPICS = "topics"
_DELETED = "deleted"
_NAME_CHARACTERS_MAX = 150
_TOPIC_ID = re.compile(r"[0-9a-f]{32}")


class NodeIdentity(msgspec.Struct, frozen=True, array_like=True):
    """Owner of a data directory."""

    node_id: int
    cluster_id: str
    """Empty before the node has joined a cluster."""
    disk_id: str
    """Random id, which differs in a directory that was wiped and created again."""
    metadata_disk_id: str = ""
    """The same for the metadata alone, which can be lost while the rest is not. Empty: written by a
    version without clusters."""
    keeps_manifest: bool = False
    """Whether a manifest of the replicas must exist; earlier versions had none."""
    directory_epoch: int = 0
    """Broker epoch of the last registered process here, 0 for none: the generation of the data. A
    copy from before that registration has a lower one."""


class DiskIds(NamedTuple):
    """The ids of a new data directory; see `NodeIdentity`."""

    data: str
    metadata: str

    @classmethod
    def draw(cls, random: Random) -> "DiskIds":
        """Return ids that no other directory has."""
        return cls(random.randbytes(12).hex(), random.randbytes(12).hex())


class CleanShutdown(msgspec.Struct, frozen=True, array_like=True):
    """Mark of a clean stop."""

    at_ms: int
    broker_epoch: int | None = None
    """Broker epoch of the process that stopped."""


class WantedRecovery(msgspec.Struct, frozen=True, array_like=True):
    """A recovery that an operator asks for; see `broker.security.administrators`."""

    command: SetAdministrator


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

    # Owner of the metadata; see `coordinator.bootstrap.open_node.Home`.

    @property
    def peer(self) -> Peer:
        """This node as a peer, with the id of its present or future metadata."""
        identity = self.identity
        disk_id = identity.metadata_disk_id or identity.disk_id
        return Peer(identity.node_id, bytes.fromhex(disk_id))

    @property
    def cluster_id(self) -> str:
        """Cluster of this directory; empty before the node has joined one."""
        return self.identity.cluster_id

    @property
    def has_old_catalog(self) -> bool:
        """Whether a version without clusters wrote the metadata."""
        return not self.identity.metadata_disk_id

    def settle(self, cluster_id: str) -> None:
        """Record the cluster of this directory, durably; blocks."""
        self._identify(cluster_id, self.identity.metadata_disk_id or self.identity.disk_id)

    @property
    def keeps_manifest(self) -> bool:
        """Whether the manifest lists all replicas that were created here."""
        return self.identity.keeps_manifest

    def note_manifest(self) -> None:
        """Record, durably, that a manifest exists from now on; blocks."""
        self._write_identity(msgspec.structs.replace(self.identity, keeps_manifest=True))

    @property
    def disk_id(self) -> str:
        """Random id from the creation of the directory."""
        return self.identity.disk_id

    @property
    def directory_epoch(self) -> int:
        """Broker epoch of the last registered process here, 0 for none."""
        return self.identity.directory_epoch

    def note_epoch(self, broker_epoch: int) -> None:
        """Record the broker epoch of a process that has registered here, durably; blocks.

        Raises:
            OSError: The disk is full or failed; the directory holds the earlier epoch.
        """
        self._write_identity(msgspec.structs.replace(self.identity, directory_epoch=broker_epoch))

    def renew_peer(self, disk_id: bytes) -> None:
        """Record another disk id for the metadata, durably: the node is a new peer; blocks."""
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

    def wanted_recovery(self) -> SetAdministrator | None:
        """Return the recovery that an operator asks for in this directory, if any; blocks.

        Raises:
            DamagedFileError: The request cannot be read.
            OSError: The disk failed.
        """
        found = read_small_file(self.disk, RECOVERY_NAME, WantedRecovery)
        return None if found is None else found.command

    def recovery_done(self) -> None:
        """Remove the request for a recovery, durably; blocks.

        Raises:
            OSError: The disk failed.
        """
        self.disk.remove(RECOVERY_NAME)
        self.disk.sync_directory("")

    def topic_directory(self, name: str, topic_id: bytes) -> str:
        """Return the directory of a topic; the id distinguishes topics of one name."""
        return f"{_TOPICS}/{name[:_NAME_CHARACTERS_MAX]}.{topic_id.hex()}"

    def partition_directory(self, name: str, topic_id: bytes, partition: int) -> str:
        """Return the directory of a partition's log."""
        return f"{self.topic_directory(name, topic_id)}/{partition}"

    def set_aside(self, name: str, topic_id: bytes) -> None:
        """Move a deleted topic's files aside, durably; `remove_deleted` removes them."""
        source = self.topic_directory(name, topic_id)
        if self.disk.exists(source):
            self.disk.make_directory(_DELETED)
            self.disk.rename(source, f"{_DELETED}/{topic_id.hex()}")
            self.disk.sync_directory(_TOPICS)
            self.disk.sync_directory(_DELETED)

    def set_aside_partition(self, name: str, topic_id: bytes, partition: int) -> None:
        """Move a partition that was reassigned aside, durably; see `set_aside`."""
        source = self.partition_directory(name, topic_id, partition)
        if self.disk.exists(source):
            self.disk.make_directory(_DELETED)
            target = f"{_DELETED}/{topic_id.hex()}-{partition}"
            self.disk.remove_directory(target)  # Left by an earlier replica of it.
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
        """Return names, cut to what fits, and ids of all topic directories."""
        found: list[tuple[str, bytes]] = []
        for entry in self.disk.list_directory(_TOPICS):
            name, _, topic_id = entry.rpartition(".")
            if _TOPIC_ID.fullmatch(topic_id):
                found.append((name, bytes.fromhex(topic_id)))
        return found

    def mark_clean(self, *, now_ms: int, broker_epoch: int | None) -> None:
        """Record that everything is synced; the last action of a broker here."""
        write_small_file(self.disk, CLEAN_SHUTDOWN_NAME, CleanShutdown(now_ms, broker_epoch))

    def release(self) -> None:
        """Release the lock of the directory."""
        self._lock.release()


def open_data_directory(disk: Disk, *, node_id: int, disk_ids: DiskIds) -> DataDirectory:
    """Lock the directory and check whose it is; a new one gets the ids given. Blocks.

    Args:
        disk: The directory.
        node_id: Of the node that wants to use it.
        disk_ids: Those of a new directory.

    Raises:
        DataDirectoryError: The directory is in use, belongs to another node, or cannot be read.
        OSError: The disk failed.
    """
    lock = disk.lock(LOCK_NAME)
    try:
        identity, is_new = _identify(disk, NodeIdentity(node_id, "", *disk_ids))
        clean = _read_clean(disk)
        # Removed, durably, before the first append (KIP-966).
        disk.remove(CLEAN_SHUTDOWN_NAME)
        disk.sync_directory("")
    except DamagedFileError as error:
        lock.release()
        raise DataDirectoryError(f"{error}; {RESTORE_HELP}") from error
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


def request_recovery(disk: Disk, command: SetAdministrator) -> int:
    """Ask the next broker in a directory for a recovery, durably; return its node id. Blocks.

    The directory is locked by the caller.

    Raises:
        DataDirectoryError: The directory belongs to no node.
        OSError: The disk is full or failed.
    """
    try:
        identity = read_small_file(disk, NODE_NAME, NodeIdentity)
    except DamagedFileError as error:
        raise DataDirectoryError(f"{error}; {RESTORE_HELP}") from error
    if identity is None:
        raise DataDirectoryError(
            f"{disk.root} is no data directory of a broker; name that of a node of the cluster"
        )
    wanted = msgspec.structs.replace(command, recovered_by=identity.node_id)
    write_small_file(disk, RECOVERY_NAME, WantedRecovery(wanted))
    return identity.node_id


def _read_clean(disk: Disk) -> CleanShutdown | None:
    """Return the mark of a clean stop; an unreadable mark counts as none."""
    try:
        return read_small_file(disk, CLEAN_SHUTDOWN_NAME, CleanShutdown)
    except DamagedFileError:
        return None


def _identify(disk: Disk, own: NodeIdentity) -> tuple[NodeIdentity, bool]:
    """Return the owner of the directory, and whether the directory is new."""
    found = read_small_file(disk, NODE_NAME, NodeIdentity)
    if found is None:
        if disk.exists(_TOPICS) or disk.exists(METADATA_DIRECTORY):
            raise DataDirectoryError(
                f"{disk.root} has data, but not the file {NODE_NAME!r} with the id of its node;"
                f" {RESTORE_HELP}"
            )
        write_small_file(disk, NODE_NAME, own)
        return own, True
    if found.node_id != own.node_id:
        raise DataDirectoryError(
            f"{disk.root} belongs to node {found.node_id}, this is node {own.node_id};"
            f" use --node-id {found.node_id} or another --data-dir"
        )
    return found, False

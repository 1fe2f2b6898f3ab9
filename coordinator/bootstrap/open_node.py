"""The start of a node from its data directory: continue, form a cluster, or join one.

Shell: reads and writes the durable state of a voter. A node without peers forms a cluster of its
own. A node with peers first learns from them which cluster there is. A node with damaged, lost or
old metadata may have lost promises. It comes back under another identity, and only into the cluster
that it belonged to.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from tidelog.coordinator.bootstrap.decision import FormCluster
from tidelog.coordinator.bootstrap.discovery import find_cluster, find_generation
from tidelog.coordinator.bootstrap.generation import (
    Generation,
    GenerationCheck,
    known_directories,
    stored_brokers,
)
from tidelog.coordinator.metadata.records import BrokerRegistration
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.core import RaftCore
from tidelog.coordinator.raft.errors import DamagedLogError
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import SnapshotMeta
from tidelog.coordinator.raft.ready import HardState, StoredState
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.storage import (
    DamagedStorageError,
    RaftStorage,
    Stored,
    StoredSnapshot,
    Vote,
    found_raft_storage,
    is_founded,
    open_raft_storage,
)
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.wire.env.env import Env
from tidelog.wire.errors import DataDirectoryError
from tidelog.wire.messages.cluster import KnownDirectory, Peer, PeerStatusReply
from tidelog.wire.transport.node_rpc import NodeDialer

METADATA_DIRECTORY: Final = "metadata"
RESTORE_HELP: Final = (
    "if other brokers have replicas of all partitions, move the directory away and start the broker"
    " with an empty one under the same node id, which copies everything from them; else restore the"
    " whole directory from a backup, which loses the records since"
)
"""Advice for a data directory that cannot be used, at the end of an error."""
ALONE_HELP: Final = (
    "if other nodes belong to the cluster, name them with --peers; else restore the whole data"
    " directory from a backup, which loses the records since"
)
METADATA_SET_ASIDE: Final = "metadata.damaged"


class Home(Protocol):
    """The identity that a data directory records."""

    @property
    def peer(self) -> Peer:
        """The identity of this node, with the metadata that it has or will have."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster of this node; empty without one."""
        ...

    @property
    def disk_id(self) -> str:
        """The id of the data directory, also if its metadata was lost."""
        ...

    @property
    def directory_epoch(self) -> int:
        """Broker epoch of the last registered process in the directory, 0 for none."""
        ...

    @property
    def has_old_catalog(self) -> bool:
        """Whether a version without clusters wrote the metadata."""
        ...

    def settle(self, cluster_id: str) -> None:
        """Record the cluster of this node, durably; blocks."""
        ...

    def renew_peer(self, disk_id: bytes) -> None:
        """Record a new identity of this node, durably; blocks."""
        ...


class OpenedNode(NamedTuple):
    """A node that is ready to run."""

    node: RaftNode
    status: PeerStatusReply
    """Its status for peers, with the data directories that its stored metadata names."""


class _Reach(NamedTuple):
    """The way to other nodes, and the answer to theirs."""

    dialer: NodeDialer
    addresses: Mapping[int, tuple[str, int]]
    answer: Callable[[PeerStatusReply], None]


class _Opened(NamedTuple):
    """The metadata of a node that does not take part yet."""

    opened: OpenedNode
    brokers: Mapping[int, BrokerRegistration]
    """Registrations in its stored metadata."""


async def open_node(
    env: Env,
    files: FileCache,
    home: Home,
    *,
    dialer: NodeDialer,
    addresses: Mapping[int, tuple[str, int]],
    answer: Callable[[PeerStatusReply], None],
) -> OpenedNode:
    """Return the node of a data directory; with peers, this may wait until they answer.

    Args:
        env: Clock, network and disk.
        files: Files of the data directory.
        home: The data directory.
        dialer: Connects to the other nodes.
        addresses: Host and port of the nodes that this one was started with, itself included, by
            node id; empty for a node without peers.
        answer: Called with the current answer to `PEER_STATUS`.

    Raises:
        DataDirectoryError: The metadata is damaged or lost and there are no peers to get it from,
            or it belongs to another cluster.
        ConfigError: The peers contradict each other.
        OSError: The disk failed.
    """
    disk = files.disk
    peer_ids = sorted(addresses.keys() | {home.peer.node_id})
    if await env.run_in_thread(lambda: is_founded(disk, METADATA_DIRECTORY)):
        try:
            found = await _open(env, files, home, peer_ids=peer_ids)
        except DamagedStorageError as error:
            if len(peer_ids) == 1:
                raise DataDirectoryError(f"{error}; {ALONE_HELP}") from error
            env.probe("metadata_damaged", severity="error", reason=str(error))
        else:
            reach = _Reach(dialer, addresses, answer)
            if await _is_current(env, home, found, reach=reach):
                return found.opened
            await found.opened.node.aclose()
            files.clear()
        disk_id = env.random.randbytes(12)
        await env.run_in_thread(lambda: _set_aside(disk, home, disk_id))
    vote, snapshot = await _beginning(env, files, home, reach=_Reach(dialer, addresses, answer))
    await env.run_in_thread(
        lambda: found_raft_storage(disk, METADATA_DIRECTORY, vote, snapshot=snapshot)
    )
    try:
        return (await _open(env, files, home, peer_ids=peer_ids)).opened
    except DamagedStorageError as error:
        raise DataDirectoryError(f"{error}, right after it was written; check the disk") from error


async def _is_current(
    env: Env,
    home: Home,
    found: _Opened,
    *,
    reach: _Reach,
) -> bool:
    """Return whether the other voters know no later state of this data directory.

    Waits until one of them answers, unless there is none: without it, this node could do nothing.
    """
    node, status = found.opened
    own_id = node.identity.node_id
    voters = [voter for voter in node.membership.voters if voter != node.identity]
    if node.is_only_voter:
        return True
    known = {each.node_id: (each.host, each.port) for each in found.brokers.values()} | {
        **reach.addresses
    }
    wanted = {voter.node_id for voter in voters} or reach.addresses.keys()
    reached = {node_id: known[node_id] for node_id in wanted if node_id in known}
    reached.pop(own_id, None)
    if not reached:
        return True
    reach.answer(status)
    own = KnownDirectory(own_id, home.disk_id, home.directory_epoch)
    check = GenerationCheck(own, node.cluster_id, voters, asked=set(reached))
    found_generation = await find_generation(
        env, reach.dialer, check, own_id=own_id, addresses=reached
    )
    if found_generation is not Generation.OLD:
        return True
    env.probe(
        "metadata_is_old",
        severity="warning",
        directory_epoch=home.directory_epoch,
        known_epoch=check.known_epoch,
    )
    return False


async def _beginning(
    env: Env,
    files: FileCache,
    home: Home,
    *,
    reach: _Reach,
) -> tuple[Vote, StoredSnapshot]:
    """Return the first state of a node without metadata."""
    addresses = reach.addresses
    peer, cluster_id = home.peer, home.cluster_id
    others = addresses.keys() - {peer.node_id}
    if home.has_old_catalog or not (others or cluster_id):
        return _first(peer, cluster_id or env.random.randbytes(12).hex(), [peer])
    where = f"{files.disk.root}/{METADATA_DIRECTORY}"
    if not others:
        raise DataDirectoryError(
            f"{where} has lost the metadata of cluster {cluster_id}; {ALONE_HELP}"
        )
    if cluster_id:
        # A node that has lost its metadata does not know its promises, so it gets a new identity.
        disk_id = env.random.randbytes(12)
        await env.run_in_thread(lambda: home.renew_peer(disk_id))
        peer = home.peer
    own = PeerStatusReply(peer, sorted(addresses), None, [])
    reach.answer(own)
    decision = await find_cluster(env, reach.dialer, own, addresses=addresses)
    if isinstance(decision, FormCluster):
        if cluster_id:
            raise DataDirectoryError(
                f"{where} has lost the metadata of cluster {cluster_id}, and none of the peers"
                " belongs to it; name nodes of that cluster with --peers"
            )
        return _first(peer, env.random.randbytes(12).hex(), decision.voters)
    if cluster_id not in ("", decision.cluster_id):
        raise DataDirectoryError(
            f"{files.disk.root} belongs to cluster {cluster_id}, node {decision.node_id} to cluster"
            f" {decision.cluster_id}; name nodes of the same cluster with --peers"
        )
    return _first(peer, decision.cluster_id, decision.first_voters)


def _first(peer: Peer, cluster_id: str, voters: list[Peer]) -> tuple[Vote, StoredSnapshot]:
    """Return the first vote and snapshot of a node.

    A node that is not among the first voters knows no members, and learns them from the leader.
    """
    vote = Vote(_identity(peer), cluster_id, HardState())
    identities = [_identity(voter) for voter in voters] if peer in voters else []
    return vote, StoredSnapshot(SnapshotMeta(0, 0, Membership.of_voters(identities)), b"")


def _identity(peer: Peer) -> Identity:
    return Identity(peer.node_id, peer.disk_id)


def _peer(identity: Identity) -> Peer:
    return Peer(identity.node_id, identity.disk_id)


async def _open(env: Env, files: FileCache, home: Home, *, peer_ids: list[int]) -> _Opened:
    now_ms = env.clock.now_ms()

    def open_it() -> tuple[RaftStorage, Stored, dict[int, BrokerRegistration]]:
        storage, stored, _ = open_raft_storage(METADATA_DIRECTORY, files, now_ms=now_ms)
        cluster_id = stored.vote.cluster_id
        if home.cluster_id not in ("", cluster_id):
            raise DataDirectoryError(
                f"{files.disk.root} belongs to cluster {home.cluster_id}, its metadata to cluster"
                f" {cluster_id}; {RESTORE_HELP}"
            )
        home.settle(cluster_id)
        return storage, stored, _stored_brokers(stored)

    storage, stored, brokers = await env.run_in_thread(open_it)
    vote, meta = stored.vote, stored.snapshot.meta
    begin = StoredState(vote.hard_state, meta, tuple(stored.entries))
    try:
        core = RaftCore(vote.identity, begin, RaftConfig(), random=env.random)
    except DamagedLogError as error:
        raise DamagedStorageError(f"{files.disk.root}/{METADATA_DIRECTORY}: {error}") from error
    voters = meta.membership.voters if meta.index == 0 else ()
    status = PeerStatusReply(
        _peer(vote.identity),
        peer_ids,
        vote.cluster_id,
        [_peer(voter) for voter in voters],
        known_directories(brokers),
    )
    return _Opened(OpenedNode(RaftNode(env, core, storage, stored=stored), status), brokers)


def _stored_brokers(stored: Stored) -> dict[int, BrokerRegistration]:
    """Return the registrations in the stored metadata.

    An entry of a newer version names none here; applying it refuses the start.
    """
    try:
        return stored_brokers(stored.snapshot.data, stored.entries)
    except msgspec.MsgspecError:
        return {}


def _set_aside(disk: Disk, home: Home, disk_id: bytes) -> None:
    """Set damaged or old metadata aside, for inspection, and take a new identity."""
    # The identity first: after a crash in between, the new one has promised nothing yet.
    home.renew_peer(disk_id)
    set_metadata_aside(disk)


def set_metadata_aside(disk: Disk) -> str:
    """Rename the metadata, durably, and return the new name.

    The next start with peers copies the metadata from them.

    Raises:
        OSError: The disk failed.
    """
    disk.remove_directory(METADATA_SET_ASIDE)
    disk.rename(METADATA_DIRECTORY, METADATA_SET_ASIDE)
    disk.sync_directory("")
    return METADATA_SET_ASIDE

"""A broker's partitions without the rest of the broker; tests commit the metadata."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, final

import trio

from tests.broker.world import World
from tests.coordinator.metadata.clusters import Cluster
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.metadata_applier import MetadataApplier
from tidelog.broker.partitions.data_directory import DiskIds, open_data_directory
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.replication.context import ReplicationContext
from tidelog.broker.replication.role_transitions import RoleTransitions
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.coordinator.controller.log_entries import encode_entry
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.raft.membership import Identity
from tidelog.logstore.segments.file_cache import FileCache

OWN_ID = 1


@final
class Follower:
    """Stub of a cluster node, which only has an id."""

    identity = Identity(OWN_ID, b"a disk")


def _nowhere(node_id: int) -> None:
    del node_id


@final
class StubClusterNode:
    """Stub of the rest of the cluster, which has no address and takes no command."""

    node_id = OWN_ID
    addresses = SimpleNamespace(address_of=_nowhere)
    raft = SimpleNamespace(cluster_id="a cluster")

    def __init__(self, metadata: ReplicatedState) -> None:
        """Serve the metadata of `metadata`."""
        self.metadata = metadata


@final
class AppliedMetadata:
    """Broker 1 and its partitions, in a cluster that consists of metadata only."""

    def __init__(self, world: World, cluster: Cluster, nursery: trio.Nursery) -> None:
        """Apply all decisions of `cluster` so far."""
        env = world.env
        node: Any = Follower()
        directory = open_data_directory(world.disk, node_id=OWN_ID, disk_ids=DiskIds("d1", "d2"))
        directory.release()
        self.cluster = cluster
        self.metadata = ReplicatedState(env, node)
        self.is_heard_of = True
        """Whether this broker has contact with the cluster."""
        self.partitions = ReplicaManager(
            env,
            directory,
            FileCache(world.disk),
            state=lambda: self.metadata.state,
            may_lead=lambda: self.is_heard_of,
        )
        self.group_commit = GroupCommit(env, nursery)
        cluster_node: Any = StubClusterNode(self.metadata)
        lifecycle: Any = SimpleNamespace(broker_epoch=None, may_lead=lambda: self.is_heard_of)
        roles = RoleTransitions(
            ReplicationContext(
                env, nursery, cluster_node, lifecycle, self.partitions, self.group_commit
            ),
            Purgatory(),
        )
        self.applier = MetadataApplier(
            env, self.metadata, self.partitions, group_commit=self.group_commit, roles=roles
        )
        self._nursery = nursery
        self._heard_count = 0
        self._entry_count = 0
        self.hear()

    def hear(self, decide: Callable[[], object] = lambda: None) -> None:
        """Have the cluster decide, and apply the decision, in one entry."""
        decide()
        records = self.cluster.records[self._heard_count :]
        self._heard_count += len(records)
        self._entry_count += 1
        self.metadata.apply(self._entry_count, encode_entry(records))

    async def start(self) -> None:
        """Open the assigned replicas, and follow the metadata from then on."""
        await self.applier.start()
        self._nursery.start_soon(self.applier.run)

    def replica(self, topic_id: bytes, number: int = 0) -> Partition:
        """Return an open replica."""
        partition = self.partitions.replica(topic_id, number)
        assert partition is not None
        return partition

    def leader_epoch(self, topic_id: bytes, number: int = 0) -> int | None:
        """Return the epoch in which this broker leads a partition, `None` if it does not."""
        leader = self.replica(topic_id, number).leader
        return None if leader is None else leader.leader_epoch


@asynccontextmanager
async def keeping(world: World, cluster: Cluster) -> AsyncGenerator[AppliedMetadata]:
    """Apply metadata to partitions until the end of the block, which is like a crash."""
    async with trio.open_nursery() as nursery:
        yield AppliedMetadata(world, cluster, nursery)
        nursery.cancel_scope.cancel()
